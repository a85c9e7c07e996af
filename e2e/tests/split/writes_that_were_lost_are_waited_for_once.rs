//! A primary dies with a transaction that no replica has got. Nobody will ever have it, and the session that
//! wrote it goes on.

use std::time::{Duration, Instant};

use e2e::link::Link;
use e2e::{Setup, client, eventually};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::{Node, PASSWORD, USER};
use testkit::lossy_link::Fault;

use crate::a_new_primary_is_followed::{follow, promote};
use crate::cluster::{self, ask, where_am_i};

const SCHEMA: &str = "lost_writes";
/// Far more than a read takes that waits for nothing.
const READ_WAIT: Duration = Duration::from_secs(2);

#[tokio::test]
async fn by_reads_of_its_session() {
    let sandbox = cluster::replicated();
    cluster::schema(&sandbox, SCHEMA, "CREATE TABLE t (id INT PRIMARY KEY)");
    let setup = cluster::split(&sandbox)
        .cluster("failover_wait = \"50s\"")
        .cluster(&format!("read_wait = \"{}s\"", READ_WAIT.as_secs()));
    let gateway = cluster::start(setup, 2).await;
    let mut session = cluster::connect_to(&gateway, SCHEMA).await;
    session.query_drop("INSERT INTO t VALUES (1)").await.unwrap();
    sandbox.sync().unwrap();
    let replicas = &sandbox.nodes()[1..];
    replicas.iter().for_each(cluster::cut_off);
    session.query_drop("INSERT INTO t VALUES (2)").await.unwrap();
    sandbox.primary().kill9().unwrap();
    promote(&replicas[0]);
    follow(&replicas[1], &replicas[0], false);
    cluster::knows(&gateway, 1).await;

    let rows = async |session: &mut mysql_async::Conn| {
        let rows: Vec<u32> = session.query("SELECT id FROM t ORDER BY id").await.unwrap();
        rows
    };
    assert_eq!(rows(&mut session).await, [1], "the second is lost");
    let began = Instant::now();
    assert_eq!(where_am_i(&mut session).await, replicas[1].port());
    assert_eq!(rows(&mut session).await, [1]);
    assert!(began.elapsed() < READ_WAIT, "{:?}", began.elapsed());
    assert_eq!(gateway.metric("forebay_split_writes_lost_total", &[]), 1.0);
    // From here on it sees what it writes, as ever.
    for id in 3..9 {
        session
            .query_drop(format!("INSERT INTO t VALUES ({id})"))
            .await
            .unwrap();
        assert_eq!(rows(&mut session).await.last(), Some(&id));
    }
    assert_eq!(gateway.metric("forebay_split_writes_lost_total", &[]), 1.0);
}

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
