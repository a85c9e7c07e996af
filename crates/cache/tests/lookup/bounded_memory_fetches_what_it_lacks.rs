//! With `mode = "bounded"` lookups are answered by rows of memory and, where it does not have them, by rows
//! of the primary: by those of now, either way.

use mysql_wire::Capabilities as C;
use sandbox::Kind;

use crate::stage::{Setup, Stage, differs, query, run_with};

#[test]
fn mariadb_split() {
    run(Kind::Mariadb, "split");
}

#[test]
fn mysql_split() {
    run(Kind::Mysql, "split");
}

#[test]
fn mariadb_session() {
    run(Kind::Mariadb, "session");
}

#[test]
fn mysql_session() {
    run(Kind::Mysql, "session");
}

fn run(kind: Kind, mode: &'static str) {
    let setup = Setup {
        kind,
        mode,
        consistency: "strong",
        nodes: 1,
        // Less than half of the rows of `many`.
        cache: "mode = \"bounded\"\nmemory_max = \"1MiB\"",
        rules: "",
    };
    run_with(setup, rows_that_come_and_go);
}

/// Keys of `many`, and some that are not there.
const KEYS: u32 = 520;

fn rows_that_come_and_go(stage: &Stage) {
    let (mut direct, mut through) = stage.both("app", C::DEPRECATE_EOF);
    let lookup = |id: u32| format!("SELECT v FROM many WHERE id={id}");
    let expected = direct.sql(&lookup(1));
    stage.until_answered(&mut through, &query(&lookup(1)), &expected);
    let before = stage.answered();
    for count in 0..3 * KEYS {
        // Each comes up three times, not one after the other; every fourth has just been changed.
        let id = count * 7 % KEYS;
        if count % 4 == 0 {
            direct.sql(&format!("UPDATE many SET v='changed {count}' WHERE id={id}"));
        }
        for _ in 0..2 {
            let (expected, said) = (direct.sql(&lookup(id)), through.sql(&lookup(id)));
            assert!(
                said == expected,
                "{count}: {}",
                differs(&query(&lookup(id)), &expected, &said)
            );
        }
    }
    let (answered, evicted) = (
        stage.answered() - before,
        stage.count("forebay_cache_evicted_rows_total"),
    );
    assert!(
        answered >= u64::from(6 * KEYS * 9 / 10),
        "{answered}: {}",
        stage.left()
    );
    assert!(evicted > 0, "all of them fit");
}
