//! Mappings come, go and change while the feed runs.

use std::sync::Arc;

use cache::feed::Phase;
use config::CacheMapping;
use sandbox::Kind;

use crate::fed::{Fed, Wishes, hash, on_both, string};

on_both! {
    a_reload_touches_only_what_it_changes
    a_mapping_is_removed_while_another_is_copied
    mappings_change_while_there_is_no_server
    a_prepared_transaction_outlives_a_reload
}

const TABLES: &str = "CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(60)); INSERT INTO t VALUES (1, 'one'), (2, 'two'); \
     CREATE TABLE u (id INT PRIMARY KEY, c VARCHAR(60)); INSERT INTO u VALUES (3, 'three'); \
     CREATE TABLE v (id INT PRIMARY KEY, c VARCHAR(60)); INSERT INTO v VALUES (4, 'four'), (5, 'five')";

fn of(table: &str) -> CacheMapping {
    string(table, &format!("test.{table}"), &["id"], "c")
}

fn select(table: &str) -> String {
    format!("SELECT id, c FROM {table}")
}

fn is_known(fed: &Fed, name: &str) -> bool {
    fed.feed
        .status()
        .states()
        .iter()
        .any(|state| &*state.name == name)
}

fn a_reload_touches_only_what_it_changes(kind: Kind) {
    let fed = Fed::start(Wishes::of(kind), TABLES, vec![of("t"), of("u")]);
    fed.assert_same("t", &select("t"));
    fed.assert_same("u", &select("u"));
    let before = fed.until_served("u");
    fed.reload(vec![of("v"), of("u")]);
    fed.until("it is removed", || !is_known(&fed, "t"));
    fed.assert_same("v", &select("v"));
    let names: Vec<_> = fed
        .feed
        .status()
        .states()
        .iter()
        .map(|state| state.name.clone())
        .collect();
    assert_eq!(names, ["v".into(), "u".into()]);
    assert!(fed.feed.status().mappings().by_name(b"t").is_none());
    assert!(
        Arc::ptr_eq(&before, &fed.until_served("u")),
        "it was served all the time"
    );
    assert_eq!(fed.copies(), 3);
    assert_eq!(fed.store.memory().row_count, 3, "removed rows are given back");
    // The same name, and something else under it.
    fed.reload(vec![hash("u", "test.t", &["id"]), of("v")]);
    let changed = |fed: &Fed| fed.phase("u") == Phase::Serving && &*fed.until_served("u").table == "t";
    fed.until("it is another", || changed(&fed));
    fed.sql("INSERT INTO t VALUES (7, 'seven'); INSERT INTO u VALUES (8, 'not ours'); INSERT INTO v VALUES (9, 'nine')");
    fed.assert_same("u", "SELECT id, id, c FROM t");
    fed.assert_same("v", &select("v"));
    assert_eq!(fed.copies(), 4);
    fed.reload(Vec::new());
    fed.until("none is left", || fed.feed.status().states().is_empty());
    assert_eq!(fed.store.memory().row_count, 0);
    fed.reload(vec![of("t")]);
    fed.assert_same("t", &select("t"));
}

fn a_mapping_is_removed_while_another_is_copied(kind: Kind) {
    let limit = match kind {
        Kind::Mysql => "SET SESSION cte_max_recursion_depth = 100000",
        _ => "SET SESSION max_recursive_iterations = 100000",
    };
    let rows = "CREATE TABLE large (id INT PRIMARY KEY, c VARCHAR(60)); INSERT INTO large WITH RECURSIVE n AS \
         (SELECT 1 AS id UNION ALL SELECT id + 1 FROM n WHERE id < 20000) SELECT id, CONCAT('row ', id) FROM n";
    let mut wishes = Wishes::of(kind);
    wishes.chunk = 20;
    let sql = format!("{limit}; {TABLES}; {rows}");
    let fed = Fed::start(wishes, &sql, vec![of("t"), of("u"), of("large")]);
    let copying = || matches!(fed.phase("large"), Phase::Copying { rows, .. } if rows > 0);
    fed.until("it is being copied", copying);
    fed.reload(vec![of("large")]);
    fed.until("they are removed", || !is_known(&fed, "u"));
    fed.assert_same("large", &select("large"));
    assert_eq!(fed.copies(), 3, "the copy went on");
    fed.reload(vec![string("large", "test.large", &["id"], "id"), of("t")]);
    fed.until("it is being copied", copying);
    fed.reload(vec![of("u")]);
    fed.assert_same("u", &select("u"));
    fed.until("it is removed", || !is_known(&fed, "large"));
    assert_eq!(fed.store.memory().row_count, 1);
}

fn mappings_change_while_there_is_no_server(kind: Kind) {
    let fed = Fed::start(Wishes::of(kind), TABLES, vec![of("t"), of("u")]);
    fed.assert_same("t", &select("t"));
    fed.assert_same("u", &select("u"));
    let before = fed.until_served("u");
    fed.sandbox.primary().kill9().unwrap();
    fed.reload(vec![of("u"), of("v")]);
    fed.until("it is removed", || !is_known(&fed, "t"));
    // In between it tries.
    fed.until("it waits", || matches!(fed.phase("v"), Phase::Waiting { .. }));
    assert_eq!(fed.phase("u"), Phase::Serving);
    fed.sandbox.primary().restart().unwrap();
    fed.assert_same("v", &select("v"));
    fed.assert_same("u", &select("u"));
    let stays = Arc::ptr_eq(&before, &fed.until_served("u"));
    assert!(stays, "it was not copied again");
}

fn a_prepared_transaction_outlives_a_reload(kind: Kind) {
    let fed = Fed::start(Wishes::of(kind), TABLES, vec![of("t"), of("u")]);
    fed.assert_same("t", &select("t"));
    fed.assert_same("u", &select("u"));
    let before = fed.until_served("u");
    fed.sql(
        "XA START 'a'; UPDATE u SET c = 'changed'; UPDATE v SET c = 'changed'; XA END 'a'; XA PREPARE 'a'",
    );
    fed.reload(vec![of("v"), of("u")]);
    fed.assert_same("v", &select("v"));
    fed.sql("XA COMMIT 'a'");
    fed.assert_same("v", &select("v"));
    fed.assert_same("u", &select("u"));
    assert!(
        Arc::ptr_eq(&before, &fed.until_served("u")),
        "its changes were known"
    );
}
