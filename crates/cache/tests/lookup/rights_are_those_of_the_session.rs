//! A server keeps some rights of a session from its login on: what one session may read another of the same
//! user may not.

use mysql_wire::{Capabilities as C, Command};
use sandbox::Kind;

use crate::stage::{Stage, differs, query, run};

#[test]
fn mariadb() {
    run(Kind::Mariadb, "session", sessions_of_one_user);
    run(Kind::Mariadb, "session", another_role);
}

#[test]
fn mysql() {
    run(Kind::Mysql, "session", sessions_of_one_user);
    run(Kind::Mysql, "session", another_role);
}

const LOOKUP: &str = "SELECT c FROM t WHERE id=1";

fn sessions_of_one_user(stage: &Stage) {
    let (mut direct, mut old) = stage.both("wide", C::DEPRECATE_EOF);
    let row = direct.sql(LOOKUP);
    assert_ne!(row[4], 0xff, "{}", row.escape_ascii());
    stage.until_answered(&mut old, &query(LOOKUP), &row);
    stage
        .sandbox
        .primary()
        .sql("REVOKE SELECT ON *.* FROM wide@'%'")
        .unwrap();
    assert!(direct.sql(LOOKUP) == row, "a right that is kept");
    let (mut direct, mut new) = stage.both("wide", C::DEPRECATE_EOF);
    let denied = direct.sql(LOOKUP);
    assert_eq!(denied[4], 0xff, "{}", denied.escape_ascii());
    for _ in 0..3 {
        stage.until_answered(&mut old, &query(LOOKUP), &row);
        let said = new.sql(LOOKUP);
        assert!(said == denied, "{}", differs(&query(LOOKUP), &denied, &said));
    }
}

/// Whether a reset brings the first role back is not known.
fn another_role(stage: &Stage) {
    let role = "CREATE ROLE other; GRANT SELECT ON test.* TO other; GRANT other TO wide@'%'";
    stage.sandbox.primary().sql(role).unwrap();
    let (mut direct, mut through) = stage.both("wide", C::DEPRECATE_EOF);
    let reset = [Command::RESET_CONNECTION.0];
    direct.ask(&reset);
    through.ask(&reset);
    let row = direct.sql(LOOKUP);
    stage.until_answered(&mut through, &query(LOOKUP), &row);
    assert_eq!(through.sql("SET ROLE other")[4], 0);
    through.ask(&reset);
    let before = stage.answered();
    for _ in 0..3 {
        assert!(through.sql(LOOKUP) == row);
    }
    assert_eq!(stage.answered(), before);
}
