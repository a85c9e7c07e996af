//! `max_writers`: where several servers can take writes, sessions divide among them, and each keeps to its
//! own.

use std::collections::HashSet;

use e2e::{Gateway, Setup, client, eventually, kind};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::{Kind, Node, PASSWORD, Sandbox, Spec, USER};

use crate::cluster::{self, ask};

const SESSIONS: usize = 8;

const READ: &str = "SELECT v FROM cells WHERE id = 1";
const READ_AT_WRITER: &str = "/* forebay: primary */ SELECT v FROM cells WHERE id = 1";

/// Galera where the server is MariaDB, a group of primaries where it is MySQL. Each server has a table with
/// its own port.
fn group() -> (Sandbox, &'static str) {
    let (of_group, topology, local) = match kind() {
        Kind::Mysql => (Kind::GroupReplication, "group-replication", "sql_log_bin"),
        _ => (Kind::Galera, "galera", "wsrep_on"),
    };
    let sandbox = Sandbox::start(Spec::new(of_group).nodes(3)).unwrap();
    if of_group == Kind::GroupReplication {
        let switch = "SELECT group_replication_switch_to_multi_primary_mode()";
        sandbox.primary().sql(switch).unwrap();
    }
    sandbox
        .primary()
        .sql("CREATE TABLE cells (id INT PRIMARY KEY, v INT)")
        .unwrap();
    sandbox.sync().unwrap();
    for node in sandbox.nodes() {
        let statements = format!(
            "SET {local} = 0; CREATE TABLE where_am_i (port INT PRIMARY KEY); INSERT INTO where_am_i VALUES ({})",
            node.port()
        );
        node.sql(&statements).unwrap();
    }
    (sandbox, topology)
}

fn setup(sandbox: &Sandbox, topology: &str, writers: u32) -> Setup {
    Setup::of_addresses(sandbox.addresses())
        .mode("split")
        .top("workers = 2")
        .tables(&cluster::user(USER, PASSWORD))
        .cluster(&format!("topology = {topology:?}\nmax_writers = {writers}"))
        .cluster(&cluster::monitor())
        .check(cluster::PATIENT_CHECKS)
}

/// The port of the server that takes this session's writes.
async fn writer(session: &mut Conn) -> u16 {
    ask(session, "SELECT @@port")
        .await
        .unwrap()
        .unwrap()
        .parse()
        .unwrap()
}

/// As many sessions, once they are spread over so many servers.
async fn spread(gateway: &Gateway, servers: usize) -> Vec<(Conn, u16)> {
    let mut sessions = Vec::new();
    eventually(
        "the sessions spread over the servers that take writes",
        async || {
            sessions.clear();
            for _ in 0..SESSIONS {
                let mut session = cluster::connect(gateway).await;
                let port = writer(&mut session).await;
                sessions.push((session, port));
            }
            ports(&sessions).len() == servers
        },
    )
    .await;
    sessions
}

fn ports(sessions: &[(Conn, u16)]) -> HashSet<u16> {
    sessions.iter().map(|(_, port)| *port).collect()
}

/// Every session writes, and reads its own writes at once.
async fn write_and_read(sessions: &mut [(Conn, u16)], turns: i32) {
    for v in 0..turns {
        for (id, (session, port)) in sessions.iter_mut().enumerate() {
            let write = format!("INSERT INTO cells VALUES ({id}, {v}) ON DUPLICATE KEY UPDATE v = {v}");
            session.query_drop(write).await.unwrap();
            let read = ask(session, &format!("SELECT v FROM cells WHERE id = {id}")).await;
            assert_eq!(read, Ok(Some(v.to_string())));
            assert_eq!(writer(session).await, *port, "a session keeps to its server");
        }
    }
}

#[tokio::test]
async fn and_every_session_keeps_to_one_of_all_or_of_some() {
    let (sandbox, topology) = group();
    // No servers take longer to start than a group: one is enough for both parts.
    all_may_be_among_them(&sandbox, topology).await;
    // The next gateway may write to other servers: all must have the rows.
    sandbox.sync().unwrap();
    // A busy machine is no reason to read where writes go.
    let setup = setup(&sandbox, topology, 2).cluster("read_wait = \"10s\"");
    let gateway = cluster::start(setup, 2).await;
    let mut sessions = spread(&gateway, 2).await;
    write_and_read(&mut sessions, 20).await;
    sandbox.sync().unwrap();
    // Those that take writes take no reads while another can.
    let reader = cluster::where_am_i(&mut sessions[0].0).await;
    assert!(!ports(&sessions).contains(&reader));

    // One of them dies: its sessions go on at another.
    let (dead, stays) = (
        sessions[0].1,
        sessions
            .iter()
            .map(|(_, port)| *port)
            .find(|port| *port != sessions[0].1),
    );
    let node = sandbox.nodes().iter().find(|node| node.port() == dead).unwrap();
    node.kill9().unwrap();
    for (id, (session, port)) in sessions.iter_mut().enumerate() {
        let mut said = Ok(0);
        eventually("the session's writes go on", async || {
            said = ask(session, "SELECT @@port")
                .await
                .map(|port| port.unwrap().parse().unwrap());
            match said {
                Ok(now) if now != dead => {
                    let write = format!("REPLACE INTO cells VALUES ({id}, 100)");
                    session.query_drop(write).await.is_ok()
                }
                _ => false,
            }
        })
        .await;
        if Some(*port) == stays {
            assert_eq!(said, Ok(*port), "whose server is there stays there");
        }
    }
    // What was written at another server arrives.
    let count = "SELECT COUNT(*) FROM cells WHERE v = 100 FOR UPDATE";
    let all = Ok(Some(SESSIONS.to_string()));
    eventually("all writes are there", async || {
        ask(&mut sessions[0].0, count).await == all
    })
    .await;
}

/// All servers may take writes, and so may a single one.
async fn all_may_be_among_them(sandbox: &Sandbox, topology: &str) {
    let gateway = cluster::start(setup(sandbox, topology, 3), 2).await;
    let mut sessions = spread(&gateway, 3).await;
    // Nobody is left for reads alone: all take them.
    let all = ports(&sessions);
    for (session, _) in &mut sessions {
        assert!(all.contains(&cluster::where_am_i(session).await));
    }
    write_and_read(&mut sessions, 20).await;

    let single = cluster::start(setup(sandbox, topology, 1), 2).await;
    let sessions = spread(&single, 1).await;
    assert_eq!(ports(&sessions).len(), 1);
}

/// Locks the table on a server, so that it applies nothing of what others write to it, and can be read even
/// so.
async fn hold_back(node: &Node) -> Conn {
    let mut holding = Conn::new(client::options_at(node.port())).await.unwrap();
    holding.query_drop("LOCK TABLES cells READ").await.unwrap();
    holding
}

/// Whether a session of the gateway's waits there for what others have written, or its read does by itself.
fn is_waited_for(node: &Node) -> bool {
    let waiting = "SELECT COUNT(*) FROM information_schema.processlist
        WHERE command = 'Query' AND time > 0
            AND (info LIKE 'SELECT WAIT_FOR_EXECUTED_GTID_SET%' OR info = 'SELECT 1' OR info LIKE '%SELECT v FROM cells%')
            AND info NOT LIKE '%processlist%'";
    node.sql(waiting).unwrap().trim() != "0"
}

/// The server of a session is lost, and the others have yet to apply what the session wrote there. Whichever
/// takes its place, the session sees its writes.
async fn its_writes_go_with_a_session(writers: u32, read: &str) {
    let (sandbox, topology) = group();
    let setup = setup(&sandbox, topology, writers).cluster("failover_wait = \"50s\"");
    let gateway = cluster::start(setup, 2).await;
    let mut session = cluster::connect(&gateway).await;
    session
        .query_drop("REPLACE INTO cells VALUES (1, 1)")
        .await
        .unwrap();
    let old = writer(&mut session).await;
    sandbox.sync().unwrap();
    let (dead, others): (Vec<_>, Vec<_>) = sandbox.nodes().iter().partition(|node| node.port() == old);
    let mut holding = Vec::new();
    for node in &others {
        holding.push(hold_back(node).await);
    }
    session
        .query_drop("REPLACE INTO cells VALUES (1, 2)")
        .await
        .unwrap();
    dead[0].kill9().unwrap();

    let reads = async {
        let mut seen = Err(0);
        eventually("reads go on", async || {
            seen = ask(&mut session, read).await;
            seen.is_ok()
        })
        .await;
        assert_eq!(seen, Ok(Some("2".to_owned())));
    };
    let lets_go = async {
        eventually("the read waits", async || {
            others.iter().any(|node| is_waited_for(node))
        })
        .await;
        for mut holding in holding {
            holding.query_drop("UNLOCK TABLES").await.unwrap();
        }
    };
    tokio::join!(reads, lets_go);
    assert_ne!(writer(&mut session).await, old);
}

#[tokio::test]
async fn and_what_a_session_has_written_goes_with_it() {
    its_writes_go_with_a_session(3, READ).await;
}

#[tokio::test]
async fn and_so_it_does_where_it_writes() {
    its_writes_go_with_a_session(3, READ_AT_WRITER).await;
}

#[tokio::test]
async fn and_so_it_does_where_only_one_does() {
    its_writes_go_with_a_session(1, READ_AT_WRITER).await;
}
