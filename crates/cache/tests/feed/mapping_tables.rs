//! Mappings that are rows of tables on the primary.

use std::sync::Arc;

use cache::feed::{MAPPING_TABLES, Phase};
use config::CacheMapping;
use sandbox::Kind;

use crate::fed::{Fed, Wishes, on_both, string};

on_both! {
    rows_are_mappings_as_soon_as_they_are_committed
    a_wrong_row_says_so_and_disturbs_nothing
    the_configuration_comes_first
    tables_that_go_take_their_mappings_along
    a_prepared_transaction_counts_when_it_is_committed
    a_flush_tries_again
    until_they_have_been_read_there_may_be_mappings_of_any_name
}

const TABLES: &str = "CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(60)); INSERT INTO t VALUES (1, 'one'), (2, 'two'); \
     CREATE TABLE u (a INT, b INT, c VARCHAR(60), PRIMARY KEY (a, b), UNIQUE KEY ba (b, a)); INSERT INTO u VALUES (3, 4, 'three')";

fn start(kind: Kind, sql: &str, mappings: Vec<CacheMapping>) -> Fed {
    let mut wishes = Wishes::of(kind);
    wishes.mapping_tables = true;
    Fed::start(wishes, &format!("{TABLES}; {sql}"), mappings)
}

fn add(container: &str, row: &str) -> String {
    format!("INSERT INTO forebay.{container}_containers VALUES ({row})")
}

fn is_known(fed: &Fed, name: &str) -> bool {
    fed.feed
        .status()
        .states()
        .iter()
        .any(|state| &*state.name == name)
}

fn until_gone(fed: &Fed, name: &str) {
    fed.until(&format!("{name} is gone"), || !is_known(fed, name));
}

fn until_reason(fed: &Fed, name: &str, reason: &str) {
    fed.until(reason, || match fed.phase(name) {
        Phase::Waiting { reason: found } | Phase::Stopped { reason: found } => found.contains(reason),
        _ => false,
    });
}

fn rows_are_mappings_as_soon_as_they_are_committed(kind: Kind) {
    let before = format!(
        "{MAPPING_TABLES} {}",
        add("string", "'s', 'test', 't', 'id', 'c', ''")
    );
    let fed = start(kind, &before, Vec::new());
    fed.assert_same("s", "SELECT id, c FROM t");
    let served = fed.until_served("s");
    fed.sql(&format!(
        "BEGIN; {}; ROLLBACK",
        add("hash", "'no', 'test', 'u', 'a,b', '*', ''")
    ));
    fed.sql(&add("hash", "'h', 'test', 'u', 'b, a', '*', 'BA'"));
    fed.assert_same("h", "SELECT CONCAT(b, ':', a), a, b, c FROM u");
    assert_eq!(&*fed.until_served("h").index.name, "ba");
    assert!(!is_known(&fed, "no"));
    assert!(
        Arc::ptr_eq(&served, &fed.until_served("s")),
        "it was served all the time"
    );
    fed.sql("UPDATE forebay.hash_containers SET value_column = 'c'");
    let is_changed = || {
        fed.feed
            .status()
            .mappings()
            .by_name(b"h")
            .is_some_and(|h| h.values().count() == 1)
    };
    fed.until("it is another", is_changed);
    fed.assert_same("h", "SELECT CONCAT(b, ':', a), c FROM u");
    fed.sql("DELETE FROM forebay.hash_containers");
    until_gone(&fed, "h");
    assert_eq!(fed.store.memory().row_count, 2);
    // They are no longer followed.
    fed.reload_with(false, Vec::new());
    until_gone(&fed, "s");
    fed.reload_with(true, Vec::new());
    fed.assert_same("s", "SELECT id, c FROM t");
}

fn a_wrong_row_says_so_and_disturbs_nothing(kind: Kind) {
    let before = format!(
        "{MAPPING_TABLES} {}",
        add("string", "'s', 'test', 't', 'id', 'c', ''")
    );
    let fed = start(kind, &before, Vec::new());
    let served = fed.until_served("s");
    fed.sql(&add("string", "'a@b', 'test', 't', 'id', 'c', ''"));
    until_reason(
        &fed,
        "forebay.string_containers/a@b",
        "expected a name without `@`",
    );
    fed.sql(&add("hash", "'gone', 'test', 'nothing', 'id', '*', ''"));
    until_reason(&fed, "gone", "no such table");
    until_reason(&fed, "gone", "forebay.hash_containers");
    fed.sql(&add("hash", "'other', 'test', 't', 'id', '*', 'by_id'"));
    until_reason(
        &fed,
        "other",
        "no unique index by_id over exactly these columns: id",
    );
    fed.sql("UPDATE forebay.hash_containers SET unique_idx_name_on_key = 'primary' WHERE name = 'other'");
    fed.assert_same("other", "SELECT id, id, c FROM t");
    fed.sql("DELETE FROM forebay.string_containers WHERE name = 'a@b'");
    until_gone(&fed, "forebay.string_containers/a@b");
    // Not one that can be read.
    fed.sql("ALTER TABLE forebay.string_containers CHANGE db_table dbtable VARCHAR(64)");
    until_reason(&fed, "forebay.string_containers", "db_table");
    assert!(
        Arc::ptr_eq(&served, &fed.until_served("s")),
        "it was served all the time"
    );
    fed.sql("ALTER TABLE forebay.string_containers CHANGE dbtable db_table VARCHAR(64)");
    until_gone(&fed, "forebay.string_containers");
    assert!(
        Arc::ptr_eq(&served, &fed.until_served("s")),
        "it was served all the time"
    );
}

fn the_configuration_comes_first(kind: Kind) {
    let before = format!(
        "{MAPPING_TABLES} {}",
        add("hash", "'m', 'test', 'u', 'a,b', '*', ''")
    );
    let own = string("m", "test.t", &["id"], "c");
    let fed = start(kind, &before, vec![own.clone()]);
    fed.assert_same("m", "SELECT id, c FROM t");
    fed.sql(&add("hash", "'n', 'test', 't', 'id', '*', ''"));
    fed.assert_same("n", "SELECT id, id, c FROM t");
    fed.assert_same("m", "SELECT id, c FROM t");
    fed.reload_with(true, Vec::new());
    let is_row = || {
        fed.feed
            .status()
            .mappings()
            .by_name(b"m")
            .is_some_and(|m| &*m.table == "u")
    };
    fed.until("the row counts", is_row);
    fed.reload_with(true, vec![own]);
    fed.until("it counts no more", || !is_row());
    fed.assert_same("m", "SELECT id, c FROM t");
}

fn tables_that_go_take_their_mappings_along(kind: Kind) {
    let fed = start(kind, "SELECT 1", vec![string("t", "test.t", &["id"], "c")]);
    fed.assert_same("t", "SELECT id, c FROM t");
    fed.sql(&format!(
        "{MAPPING_TABLES} {}",
        add("string", "'s', 'test', 't', 'id', 'c', ''")
    ));
    fed.assert_same("s", "SELECT id, c FROM t");
    fed.sql("TRUNCATE forebay.string_containers");
    until_gone(&fed, "s");
    fed.sql(&add("string", "'s', 'test', 't', 'id', 'c', ''"));
    fed.assert_same("s", "SELECT id, c FROM t");
    fed.sql("DROP DATABASE forebay");
    until_gone(&fed, "s");
    assert_eq!(fed.phase("t"), Phase::Serving);
}

fn a_prepared_transaction_counts_when_it_is_committed(kind: Kind) {
    let fed = start(kind, MAPPING_TABLES, vec![string("t", "test.t", &["id"], "c")]);
    fed.assert_same("t", "SELECT id, c FROM t");
    let row = add("string", "'s', 'test', 't', 'id', 'c', ''");
    fed.sql(&format!("XA START 'a'; {row}; XA END 'a'; XA PREPARE 'a'"));
    fed.until_applied();
    assert!(!is_known(&fed, "s"));
    fed.sql("XA COMMIT 'a'");
    fed.assert_same("s", "SELECT id, c FROM t");
}

fn a_flush_tries_again(kind: Kind) {
    let mut wishes = Wishes::of(kind);
    wishes.memory_max = 1 << 20;
    let rows = "INSERT INTO t SELECT a.n + 10 * b.n + 100 * c.n + 1000 * d.n + 10, REPEAT('x', 500) FROM n a, n b, n c, n d";
    let numbers = (0..10).map(|n| format!("({n})")).collect::<Vec<_>>().join(",");
    let sql = format!(
        "CREATE TABLE n (n INT PRIMARY KEY); INSERT INTO n VALUES {numbers}; CREATE TABLE t (id INT PRIMARY KEY, c TEXT); {rows}"
    );
    let fed = Fed::start(wishes, &sql, vec![string("t", "test.t", &["id"], "c")]);
    until_reason(&fed, "t", "memory_max");
    fed.sql("DELETE FROM t WHERE id > 10");
    fed.until_applied();
    assert!(matches!(fed.phase("t"), Phase::Stopped { .. }));
    fed.feed.status().flush();
    fed.assert_same("t", "SELECT id, c FROM t");
}

fn until_they_have_been_read_there_may_be_mappings_of_any_name(kind: Kind) {
    let unreadable = "CREATE DATABASE forebay; CREATE TABLE forebay.hash_containers (name INT)";
    let fed = start(kind, unreadable, vec![string("t", "test.t", &["id"], "c")]);
    fed.assert_same("t", "SELECT id, c FROM t");
    let why = || fed.feed.status().mappings().unready(b"other").map(str::to_owned);
    fed.until("it cannot be read", || {
        why().is_some_and(|why| why.starts_with("forebay.hash_containers cannot be read: "))
    });
    fed.sql("DROP TABLE forebay.hash_containers");
    fed.until("there is no other mapping", || why().is_none());
    // What was read once is known.
    fed.sql("CREATE TABLE forebay.hash_containers (name INT)");
    until_reason(&fed, "forebay.hash_containers", "cannot be read");
    assert_eq!(why(), None);
}
