//! With `lookup_consistency = "session"` a session's lookups see what it has written itself.

use mysql_wire::Capabilities as C;
use sandbox::Kind;

use crate::stage::{Stage, differs, query, run_at};

fn own_writes(stage: &Stage) {
    let lookup = "SELECT c FROM t WHERE id=1";
    let (mut direct, mut through) = stage.both("app", C::DEPRECATE_EOF);
    let expected = direct.sql(lookup);
    stage.until_answered(&mut through, &query(lookup), &expected);
    let before = stage.answered();
    for count in 0..200 {
        through.sql(&format!("UPDATE t SET c='mine {count}' WHERE id=1"));
        let (said, expected) = (through.sql(lookup), direct.sql(lookup));
        assert!(said == expected, "{}", differs(&query(lookup), &expected, &said));
    }
    assert!(stage.answered() - before >= 190, "{}", stage.left());
}

#[test]
fn mariadb_split() {
    run_at(Kind::Mariadb, "split", "session", own_writes);
}

#[test]
fn mysql_split() {
    run_at(Kind::Mysql, "split", "session", own_writes);
}

#[test]
fn mysql_session() {
    run_at(Kind::Mysql, "session", "session", own_writes);
}
