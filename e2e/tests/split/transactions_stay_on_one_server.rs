use e2e::link::Link;
use e2e::{Setup, client};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, TxOpts};
use sandbox::{PASSWORD, USER};
use testkit::lossy_link::Fault;

use crate::cluster::{self, WHERE_AM_I};

#[tokio::test]
async fn on_the_primary_where_they_may_write() {
    let sandbox = cluster::shared();
    // A busy machine is no reason to read at the primary.
    let setup = cluster::split(sandbox).cluster("read_wait = \"30s\"");
    let gateway = cluster::start(setup, 2).await;
    let primary = sandbox.primary().port();
    cluster::schema(sandbox, "transactions", "CREATE TABLE t (id INT PRIMARY KEY)");
    let mut session = cluster::connect_to(&gateway, "transactions").await;
    for (id, begin) in ["BEGIN", "START TRANSACTION", "START TRANSACTION READ WRITE"]
        .iter()
        .enumerate()
    {
        session.query_drop(*begin).await.unwrap();
        for _ in 0..5 {
            assert_eq!(cluster::where_am_i(&mut session).await, primary, "{begin}");
        }
        let prepared: Option<u16> = session.exec_first(WHERE_AM_I, ()).await.unwrap();
        assert_eq!(prepared, Some(primary));
        session
            .exec_drop("INSERT INTO t VALUES (?)", (id,))
            .await
            .unwrap();
        let mine: Option<usize> = session.query_first("SELECT COUNT(*) FROM t").await.unwrap();
        assert_eq!(mine, Some(id + 1));
        session.query_drop("COMMIT").await.unwrap();
        assert_ne!(cluster::where_am_i(&mut session).await, primary, "after {begin}");
    }
}

/// The server of each of several reads of one transaction.
async fn servers_of(session: &mut Conn, begin: &str) -> Vec<u16> {
    session.query_drop(begin).await.unwrap();
    let mut ports = Vec::new();
    for _ in 0..10 {
        ports.push(cluster::where_am_i(session).await);
        ports.push(session.exec_first(WHERE_AM_I, ()).await.unwrap().unwrap());
    }
    session.query_drop("COMMIT").await.unwrap();
    ports
}

#[tokio::test]
async fn on_one_replica_where_they_only_read() {
    let sandbox = cluster::shared();
    let gateway = cluster::start(cluster::split(sandbox), 2).await;
    let replicas = cluster::replica_ports(sandbox);
    let mut session = cluster::connect(&gateway).await;
    for begin in [
        "START TRANSACTION READ ONLY",
        "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
    ] {
        let ports = servers_of(&mut session, begin).await;
        assert!(replicas.contains(&ports[0]), "{begin}: {ports:?}");
        assert!(ports.iter().all(|port| *port == ports[0]), "{begin}: {ports:?}");
    }

    // What a replica refuses, it refuses as a server would.
    session.query_drop("START TRANSACTION READ ONLY").await.unwrap();
    let refused = session.query_drop("UPDATE test.where_am_i SET port = 1").await;
    assert!([1290, 1792].contains(&client::code(&refused.unwrap_err())));
    session.query_drop("ROLLBACK").await.unwrap();
    session
        .query_drop("CREATE TABLE test.after_all (id INT)")
        .await
        .unwrap();

    // Libraries begin transactions in their own way.
    let mut options = TxOpts::new();
    options.with_readonly(true);
    let mut transaction = session.start_transaction(options).await.unwrap();
    let first: Option<u16> = transaction.query_first(WHERE_AM_I).await.unwrap();
    let second: Option<u16> = transaction.exec_first(WHERE_AM_I, ()).await.unwrap();
    assert_eq!(first, second);
    transaction.commit().await.unwrap();
}

#[tokio::test]
async fn as_do_several_statements_in_one() {
    let sandbox = cluster::shared();
    // A busy machine is no reason to read at the primary.
    let setup = cluster::split(sandbox).cluster("read_wait = \"30s\"");
    let gateway = cluster::start(setup, 2).await;
    let (primary, replicas) = (sandbox.primary().port(), cluster::replica_ports(sandbox));
    cluster::schema(
        sandbox,
        "several",
        "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, port INT)",
    );
    let mut session = cluster::connect_to(&gateway, "several").await;
    for _ in 0..5 {
        let mut reads = session
            .query_iter(format!("{WHERE_AM_I}; {WHERE_AM_I}"))
            .await
            .unwrap();
        let first: Vec<u16> = reads.collect().await.unwrap();
        let second: Vec<u16> = reads.collect().await.unwrap();
        assert_eq!(first, second);
        assert!(replicas.contains(&first[0]), "only reads: {first:?}");
        drop(reads);

        let mixed = format!("INSERT INTO t (port) {WHERE_AM_I}; {WHERE_AM_I}");
        let mut mixed = session.query_iter(mixed).await.unwrap();
        mixed.collect::<u16>().await.unwrap();
        let read: Vec<u16> = mixed.collect().await.unwrap();
        assert_eq!(read, [primary]);
    }
    // A transaction that begins in one and ends in another.
    session
        .query_drop("BEGIN; INSERT INTO t (port) VALUES (0)")
        .await
        .unwrap();
    assert_eq!(cluster::where_am_i(&mut session).await, primary);
    session.query_drop("SELECT 1; COMMIT").await.unwrap();
    let rows: Option<usize> = session.query_first("SELECT COUNT(*) FROM t").await.unwrap();
    assert_eq!(rows, Some(6));
}

/// A server that has become read-only refuses to commit and rolls back: nothing of it is left on the
/// connection.
#[tokio::test]
async fn even_where_the_commit_is_refused() {
    let server = &e2e::servers(1)[0];
    let gateway = cluster::narrow(server, 2).start();
    let (on, off) = match e2e::kind() {
        sandbox::Kind::Mysql => (
            "SET GLOBAL super_read_only = ON",
            "SET GLOBAL super_read_only = OFF; SET GLOBAL read_only = OFF",
        ),
        _ => ("SET GLOBAL read_only = ON", "SET GLOBAL read_only = OFF"),
    };
    let mut own = cluster::connect(&gateway).await;
    let mut other = cluster::connect(&gateway).await;
    own.query_drop("CREATE TABLE t (n INT PRIMARY KEY)")
        .await
        .unwrap();
    for _ in 0..3 {
        own.query_drop("BEGIN").await.unwrap();
        own.query_drop("INSERT INTO t VALUES (1)").await.unwrap();
        server.primary().sql(on).unwrap();
        let refused = own.query_drop("COMMIT").await.unwrap_err();
        assert_eq!(client::code(&refused), 1290, "{refused}");
        server.primary().sql(off).unwrap();
        for session in [&mut other, &mut own] {
            let rows = cluster::ask(session, "SELECT COUNT(*) FROM t").await;
            assert_eq!(rows, Ok(Some("0".to_owned())));
        }
        // Nobody holds the row.
        other.query_drop("INSERT INTO t VALUES (1)").await.unwrap();
        own.query_drop("DELETE FROM t").await.unwrap();
    }
}

/// The connection is lost while the gateway itself asks something there, in front of the client's statement.
/// Nobody goes on as if the transaction were still open.
#[tokio::test]
async fn or_end_with_their_session() {
    let link = Link::to(cluster::single());
    let address = link.address().to_string();
    let server = format!("{{ address = {address:?}, max_connections = 2, role = \"primary\" }}");
    let gateway = Setup::of_addresses(vec![address])
        .servers([server])
        .mode("split")
        .tables(&cluster::user(USER, PASSWORD))
        .start();
    let mut session = cluster::connect(&gateway).await;
    session.query_drop("CREATE TABLE torn (n INT)").await.unwrap();
    session.query_drop("BEGIN").await.unwrap();
    session.query_drop("INSERT INTO torn VALUES (1)").await.unwrap();
    link.set_to_client(Fault::CutAfter(1));
    session.query_drop("SELECT LAST_INSERT_ID()").await.unwrap_err();
    link.set_to_client(Fault::None);
    session
        .query_drop("INSERT INTO torn VALUES (2)")
        .await
        .unwrap_err();
    let rows = cluster::single().primary().sql("SELECT * FROM test.torn");
    assert_eq!(rows.unwrap(), "");
}
