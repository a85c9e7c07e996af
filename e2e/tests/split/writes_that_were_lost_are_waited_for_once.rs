//! A write whose answer was lost may be done later than the next one: what a session reads has it all the
//! same. A primary that dies with a write that nobody else has is with the tests of the data plane,
//! `a_new_primary_is_followed`.

use e2e::link::Link;
use e2e::{Setup, client, eventually};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::{Node, PASSWORD, USER};
use testkit::lossy_link::Fault;

use crate::cluster::{self, ask};

/// A gateway that comes to the primary over a link.
fn through(link: &Link, replicas: &[Node]) -> Setup {
    let replicas = replicas.iter().map(|replica| (replica.address(), "replica"));
    let servers = std::iter::once((link.address().to_string(), "primary")).chain(replicas);
    Setup::of_addresses([])
        .servers(servers.map(|(address, role)| format!("{{ address = {address:?}, role = {role:?} }}")))
        .mode("split")
        .tables(&cluster::user(USER, PASSWORD))
        .cluster("read_wait = \"100ms\"")
        .cluster(&cluster::monitor())
}

/// The connection to the primary was lost while the write waited for a lock. It is done all the same, but
/// after the session's next one, of which alone it is known who has it.
#[tokio::test]
async fn but_one_that_is_done_after_the_next_is_seen() {
    let sandbox = cluster::replicated();
    cluster::schema(
        &sandbox,
        "late_writes",
        "CREATE TABLE t (id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 0), (2, 0)",
    );
    let (primary, replicas) = (sandbox.primary(), &sandbox.nodes()[1..]);
    let link = Link::to(&sandbox);
    let setup = through(&link, replicas);
    let gateway = cluster::start(setup, 2).await;
    let mut session = cluster::connect_to(&gateway, "late_writes").await;
    session
        .query_drop("UPDATE t SET v = 1 WHERE id = 1")
        .await
        .unwrap();
    let directly = client::options_at(primary.port()).db_name(Some("late_writes"));
    let mut blocker = Conn::new(directly).await.unwrap();
    blocker.query_drop("BEGIN").await.unwrap();
    blocker
        .query_drop("SELECT v FROM t WHERE id = 1 FOR UPDATE")
        .await
        .unwrap();

    let cut = async {
        eventually("it waits for the lock", async || {
            let waiting = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'";
            primary.sql(waiting).unwrap().trim() == "1"
        })
        .await;
        link.set_to_client(Fault::CutAfter(0));
    };
    let (lost, ()) = tokio::join!(session.query_drop("UPDATE t SET v = 7 WHERE id = 1"), cut);
    assert_eq!(client::code(&lost.unwrap_err()), 1158);
    link.set_to_client(Fault::None);
    eventually("the next write is done", async || {
        session
            .query_drop("UPDATE t SET v = v + 1 WHERE id = 2")
            .await
            .is_ok()
    })
    .await;
    let next = ask(&mut session, "SELECT v FROM t WHERE id = 1").await;
    assert_eq!(next, Ok(Some("1".to_owned())));
    sandbox.sync().unwrap();
    replicas.iter().for_each(cluster::cut_off);
    blocker.query_drop("ROLLBACK").await.unwrap();
    eventually("the lost one is done", async || {
        primary
            .sql("SELECT v FROM late_writes.t WHERE id = 1")
            .unwrap()
            .trim()
            == "7"
    })
    .await;
    for _ in 0..4 {
        let seen = ask(&mut session, "SELECT v FROM t WHERE id = 1").await;
        assert_eq!(seen, Ok(Some("7".to_owned())));
    }
    for (reset, word) in [(false, "strong"), (true, "session")] {
        assert!(!reset || session.reset().await.unwrap());
        let explained: Vec<(String, String)> =
            session.query("FOREBAY EXPLAIN SELECT v FROM t").await.unwrap();
        let row = ("read_consistency".to_owned(), word.to_owned());
        assert!(explained.contains(&row), "{explained:?}");
    }
}
