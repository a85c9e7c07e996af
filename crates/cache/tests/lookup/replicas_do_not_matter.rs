//! In mode `split` reads go to replicas, but lookups that are not known yet go to the primary: they are
//! learned of all the same.

use mysql_wire::Capabilities as C;
use sandbox::Kind;

use crate::stage::{Session, Setup, Stage, execute, query, run_with};

#[test]
fn mariadb() {
    run(Kind::Mariadb);
}

#[test]
fn mysql() {
    run(Kind::Mysql);
}

fn run(kind: Kind) {
    let setup = Setup {
        kind,
        mode: "split",
        consistency: "strong",
        nodes: 2,
        cache: "",
        rules: "",
    };
    run_with(setup, sessions_that_read_from_a_replica);
}

fn sessions_that_read_from_a_replica(stage: &Stage) {
    const LOOKUP: &str = "SELECT c FROM t WHERE id=1";
    const READ: &str = "SELECT COUNT(*) FROM u";
    let own_row = "SET sql_log_bin = 0; INSERT INTO test.u VALUES (9, 9)";
    let own_row = match stage.kind {
        Kind::Mysql => format!("SET GLOBAL super_read_only = 0; {own_row}"),
        _ => own_row.to_owned(),
    };
    stage.sandbox.node(1).sql(&own_row).unwrap();
    let (mut direct, mut through) = stage.both("app", C::DEPRECATE_EOF);
    let of_primary = direct.sql(READ);
    stage.until(|| through.sql(READ) != of_primary);
    let expected = direct.sql(LOOKUP);
    stage.until_answered(&mut through, &query(LOOKUP), &expected);
    let one = |session: &mut Session| {
        let id = session.prepare("SELECT c FROM t WHERE id=?");
        execute(id, &[3, 0], &[0], &1_u32.to_le_bytes(), true)
    };
    let (asked, asked_through) = (one(&mut direct), one(&mut through));
    let expected = direct.ask(&asked);
    stage.until_answered(&mut through, &asked_through, &expected);
    // Another session that has only ever read from the replica.
    let (_, mut other) = stage.both("app", C::DEPRECATE_EOF);
    assert_ne!(other.sql(READ), of_primary);
    let before = stage.answered();
    assert!(other.sql(LOOKUP) == direct.sql(LOOKUP));
    assert_eq!(stage.answered(), before + 1, "{}", stage.left());
}
