//! The primary changes.

use cache::feed::Phase;
use sandbox::{Kind, Sandbox, Spec};

use crate::fed::{Fed, Wishes, on_both, string};

on_both! {
    a_replica_that_has_all_is_followed
    a_replica_that_lacks_something_means_a_copy
    a_replica_with_changes_of_its_own_means_a_copy
    another_server_behind_the_same_address_means_a_copy
    another_machine_is_not_copied_beside_the_stream_of_the_first
    what_a_primary_replicates_must_be_in_its_log
}

const TABLE: &str =
    "CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(60)); INSERT INTO t VALUES (1, 'one'), (2, 'two')";
const SELECT: &str = "SELECT id, c FROM t";

fn start(kind: Kind) -> Fed {
    let mut wishes = Wishes::of(kind);
    wishes.spec = Spec::new(kind).nodes(2).option("--log-slave-updates=ON");
    if kind == Kind::Mariadb {
        wishes.spec = wishes.spec.option("--gtid-strict-mode=ON");
    }
    wishes.topology = config::Topology::Replication;
    let fed = Fed::start(wishes, TABLE, vec![string("t", "test.t", &["id"], "c")]);
    fed.assert_same("t", SELECT);
    fed
}

fn what_a_primary_replicates_must_be_in_its_log(kind: Kind) {
    let mut wishes = Wishes::of(kind);
    wishes.spec = wishes.spec.option("--log-slave-updates=OFF");
    let (configure, forget) = match kind {
        Kind::Mysql => (
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1'",
            "RESET REPLICA ALL",
        ),
        _ => (
            "CHANGE MASTER 'other' TO MASTER_HOST = '127.0.0.1'",
            "RESET SLAVE 'other' ALL",
        ),
    };
    let fed = Fed::start(
        wishes,
        &format!("{TABLE}; {configure}"),
        vec![string("t", "test.t", &["id"], "c")],
    );
    let is_refused = || {
        let stream = fed.feed.status().stream();
        stream.contains("_updates is OFF, and must be ON")
    };
    fed.until("that is refused", is_refused);
    fed.sql(forget);
    fed.assert_same("t", SELECT);
    // Its log is followed already, and says nothing of it.
    fed.sql(configure);
    fed.until("that is noticed", is_refused);
    assert_ne!(fed.phase("t"), Phase::Serving, "its rows may be older by now");
    fed.sql(forget);
    fed.assert_same("t", SELECT);
}

/// They are not in its log.
#[test]
fn triggers_that_a_replica_runs_by_itself_are_refused() {
    let mut wishes = Wishes::of(Kind::Mariadb);
    wishes.spec = wishes.spec.option("--slave-run-triggers-for-rbr=YES");
    let configure = "CHANGE MASTER 'other' TO MASTER_HOST = '127.0.0.1'";
    let fed = Fed::start(
        wishes,
        &format!("{TABLE}; {configure}"),
        vec![string("t", "test.t", &["id"], "c")],
    );
    let is_refused = || {
        let stream = fed.feed.status().stream();
        stream.contains("slave_run_triggers_for_rbr is YES, and must be LOGGING")
    };
    fed.until("that is refused", is_refused);
    fed.sql("SET GLOBAL slave_run_triggers_for_rbr = LOGGING");
    fed.assert_same("t", SELECT);
    fed.sql("SET GLOBAL slave_run_triggers_for_rbr = YES");
    fed.until("that is noticed", is_refused);
    assert_ne!(fed.phase("t"), Phase::Serving, "its rows may be older by now");
}

fn promote(fed: &Fed, kind: Kind) {
    let sql = match kind {
        Kind::Mysql => {
            "STOP REPLICA; RESET REPLICA ALL; SET GLOBAL super_read_only = 0; SET GLOBAL read_only = 0"
        }
        _ => "STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = 0",
    };
    fed.sandbox.node(1).sql(sql).unwrap();
}

fn a_replica_that_has_all_is_followed(kind: Kind) {
    let fed = start(kind);
    fed.sql("UPDATE t SET c = 'last words'");
    fed.until_applied();
    fed.sandbox.sync().unwrap();
    fed.sandbox.primary().kill9().unwrap();
    promote(&fed, kind);
    fed.sandbox
        .node(1)
        .sql(
            "INSERT INTO t VALUES (3, 'new primary'); FLUSH BINARY LOGS; UPDATE t SET c = 'another log' WHERE id = 2; \
             FLUSH BINARY LOGS; FLUSH BINARY LOGS; DELETE FROM t WHERE id = 1",
        )
        .unwrap();
    fed.assert_same_as(1, "t", SELECT);
    assert!(fed.feed.status().stream().contains("n1"));
    assert_eq!(fed.copies(), 1, "nothing was copied again");
}

fn a_replica_that_lacks_something_means_a_copy(kind: Kind) {
    let fed = start(kind);
    let stop = if kind == Kind::Mysql {
        "STOP REPLICA"
    } else {
        "STOP SLAVE"
    };
    fed.sandbox.sync().unwrap();
    fed.sandbox.node(1).sql(stop).unwrap();
    fed.sql("UPDATE t SET c = 'lost'; INSERT INTO t VALUES (9, 'lost')");
    fed.until_applied();
    fed.sandbox.primary().kill9().unwrap();
    promote(&fed, kind);
    fed.until("the other one is followed", || {
        fed.feed.status().stream().contains("following n1")
    });
    fed.until("it is copied again", || fed.copies() == 2);
    fed.sandbox
        .node(1)
        .sql("INSERT INTO t VALUES (3, 'new primary')")
        .unwrap();
    fed.assert_same_as(1, "t", SELECT);
}

/// It was changed by itself, and then by what it replicates. Its log has the former, which the feed has not
/// seen, before the latter.
fn a_replica_with_changes_of_its_own_means_a_copy(kind: Kind) {
    let fed = start(kind);
    let own = match kind {
        Kind::Mysql => "SET GLOBAL super_read_only = 0",
        // In the same domain the replica would stop.
        _ => "SET SESSION gtid_domain_id = 7",
    };
    fed.sandbox.sync().unwrap();
    let change = format!("{own}; UPDATE t SET c = 'its own' WHERE id = 1");
    fed.sandbox.node(1).sql(&change).unwrap();
    fed.sql("UPDATE t SET c = 'replicated'");
    fed.until_applied();
    fed.sandbox.sync().unwrap();
    fed.sandbox.primary().kill9().unwrap();
    promote(&fed, kind);
    fed.until("it is copied again", || fed.copies() == 2);
    fed.assert_same_as(1, "t", SELECT);
    let rows = fed.rows("t");
    assert_eq!(rows, ["1\treplicated", "2\treplicated"]);
}

/// It has the same number, and a log that looks the same.
fn another_server_behind_the_same_address_means_a_copy(kind: Kind) {
    let mut wishes = Wishes::of(kind);
    wishes.proxy = true;
    let fed = Fed::start(wishes, TABLE, vec![string("t", "test.t", &["id"], "c")]);
    fed.assert_same("t", SELECT);
    let other = Sandbox::start(Spec::new(kind)).unwrap();
    other.primary().sql(&TABLE.replace("one", "ONE")).unwrap();
    fed.proxy.as_ref().unwrap().lead_to(other.primary().port());
    fed.sandbox.primary().kill9().unwrap();
    fed.until("its rows are seen", || fed.rows("t") == ["1\tONE", "2\ttwo"]);
    other.primary().sql("INSERT INTO t VALUES (3, 'three')").unwrap();
    fed.until("its changes are seen", || fed.rows("t").len() == 3);
}

/// The stream is still there, and new connections lead elsewhere.
fn another_machine_is_not_copied_beside_the_stream_of_the_first(kind: Kind) {
    let mut wishes = Wishes::of(kind);
    wishes.proxy = true;
    let fed = Fed::start(wishes, TABLE, vec![string("t", "test.t", &["id"], "c")]);
    fed.assert_same("t", SELECT);
    let other = Sandbox::start(Spec::new(kind)).unwrap();
    let tables = TABLE.replace("one", "ONE");
    let more = TABLE
        .replace("TABLE t ", "TABLE u ")
        .replace("INTO t ", "INTO u ");
    other.primary().sql(&format!("{tables}; {more}")).unwrap();
    fed.proxy.as_ref().unwrap().lead_to(other.primary().port());
    fed.reload(vec![
        string("t", "test.t", &["id"], "c"),
        string("u", "test.u", &["id"], "c"),
    ]);
    fed.until_served("u");
    assert_eq!(fed.rows("t"), ["1\tONE", "2\ttwo"]);
    assert_eq!(fed.feed.status().streams(), 2);
}

/// It does not end its stream, and nobody but the feed asks.
#[test]
fn a_machine_that_was_demoted_is_left() {
    let mut wishes = Wishes::of(Kind::Mariadb);
    wishes.proxy = true;
    let fed = Fed::start(wishes, TABLE, vec![string("t", "test.t", &["id"], "c")]);
    fed.assert_same("t", SELECT);
    let other = Sandbox::start(Spec::new(Kind::Mariadb)).unwrap();
    other.primary().sql(&TABLE.replace("one", "ONE")).unwrap();
    fed.sql("SET GLOBAL read_only = 1");
    fed.proxy.as_ref().unwrap().lead_to(other.primary().port());
    fed.until("its rows are seen", || fed.rows("t") == ["1\tONE", "2\ttwo"]);
}

/// The group elects another one, which has all.
#[test]
fn of_a_group() {
    let mut wishes = Wishes::of(Kind::GroupReplication);
    wishes.spec = Spec::new(Kind::GroupReplication).nodes(3);
    wishes.topology = config::Topology::GroupReplication;
    let fed = Fed::start(wishes, TABLE, vec![string("t", "test.t", &["id"], "c")]);
    fed.assert_same("t", SELECT);
    fed.sql("UPDATE t SET c = 'last words'");
    fed.until_applied();
    fed.sandbox.primary().kill9().unwrap();
    let takes_writes = |at: usize| {
        let sql = "INSERT INTO t VALUES (3, 'new primary')";
        fed.sandbox.node(at).sql(sql).is_ok()
    };
    fed.until("another one takes writes", || takes_writes(1) || takes_writes(2));
    let name = || {
        fed.feed
            .status()
            .stream()
            .strip_prefix("following ")
            .map(str::to_owned)
    };
    fed.until("it is followed", || name().is_some_and(|name| name != "n0"));
    let at = if name().as_deref() == Some("n1") { 1 } else { 2 };
    fed.assert_same_as(at, "t", SELECT);
    assert_eq!(fed.copies(), 1, "nothing was copied again");
}

/// Every node has a log of its own.
#[test]
fn of_galera() {
    let mut wishes = Wishes::of(Kind::Galera);
    wishes.spec = Spec::new(Kind::Galera).nodes(3).option("--log-slave-updates=ON");
    wishes.topology = config::Topology::Galera;
    let fed = Fed::start(wishes, TABLE, vec![string("t", "test.t", &["id"], "c")]);
    fed.assert_same("t", SELECT);
    fed.sandbox
        .node(1)
        .sql("UPDATE t SET c = 'written elsewhere'")
        .unwrap();
    fed.sandbox.sync().unwrap();
    let expected = |at: usize| {
        let rows = fed.sandbox.node(at).sql(SELECT).unwrap();
        let mut rows: Vec<_> = rows.lines().map(str::to_owned).collect();
        rows.sort();
        rows
    };
    fed.until("the write is seen", || fed.rows("t") == expected(0));
    let first = fed.feed.status().stream().to_string();
    let at: usize = first.trim_start_matches("following n").parse().unwrap();
    fed.until_applied_of(at);
    // What the feed has applied last, another node has under the same number: of another transaction.
    let last = fed
        .sandbox
        .node(at)
        .sql("SELECT @@GLOBAL.gtid_binlog_pos")
        .unwrap();
    let [_, server, number] = last.trim().split('-').collect::<Vec<_>>()[..] else {
        panic!("one domain: {last}");
    };
    for node in (0..3).filter(|node| *node != at) {
        let own = format!(
            "SET SESSION wsrep_on = OFF, server_id = {server}, gtid_seq_no = {number}; CREATE TABLE own (id INT)"
        );
        fed.sandbox.node(node).sql(&own).unwrap();
    }
    fed.sandbox.node(at).kill9().unwrap();
    fed.until("another one is followed", || {
        let stream = fed.feed.status().stream().to_string();
        stream.starts_with("following") && stream != first
    });
    let other = (at + 1) % 3;
    fed.sandbox
        .node(other)
        .sql("INSERT INTO t VALUES (3, 'new primary')")
        .unwrap();
    fed.until("its write is seen", || fed.rows("t") == expected(other));
    assert!(fed.copies() > 1, "its numbers say nothing");
}
