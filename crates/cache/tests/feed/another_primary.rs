//! The primary changes.

use sandbox::{Kind, Spec};

use crate::fed::{Fed, Wishes, on_both, string};

on_both! { a_replica_that_has_all_is_followed a_replica_that_lacks_something_means_a_copy }

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
        .sql("INSERT INTO t VALUES (3, 'new primary')")
        .unwrap();
    fed.assert_same_as(1, "t", SELECT);
    assert!(fed.feed.board().stream().contains("n1"));
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
        fed.feed.board().stream().contains("following n1")
    });
    fed.until("it is copied again", || fed.copies() == 2);
    fed.sandbox
        .node(1)
        .sql("INSERT INTO t VALUES (3, 'new primary')")
        .unwrap();
    fed.assert_same_as(1, "t", SELECT);
}
