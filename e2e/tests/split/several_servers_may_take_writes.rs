//! `max_writers`: where several servers can take writes, sessions divide among them, and each keeps to its own.

use std::collections::HashSet;

use e2e::{Gateway, Setup, eventually, kind};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::{Kind, PASSWORD, Sandbox, Spec, USER};

use crate::cluster::{self, ask};

const SESSIONS: usize = 8;

/// Galera where the server is MariaDB, a group of primaries where it is MySQL. Each server has a table with its own port.
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
async fn and_every_session_keeps_to_one() {
    let (sandbox, topology) = group();
    let gateway = cluster::start(setup(&sandbox, topology, 2), 2).await;
    let mut sessions = spread(&gateway, 2).await;
    write_and_read(&mut sessions, 20).await;
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

#[tokio::test]
async fn and_all_may_be_among_them() {
    let (sandbox, topology) = group();
    let gateway = cluster::start(setup(&sandbox, topology, 3), 2).await;
    let mut sessions = spread(&gateway, 3).await;
    // Nobody is left for reads alone: all take them.
    let all = ports(&sessions);
    for (session, _) in &mut sessions {
        assert!(all.contains(&cluster::where_am_i(session).await));
    }
    write_and_read(&mut sessions, 20).await;

    let single = cluster::start(setup(&sandbox, topology, 1), 2).await;
    let sessions = spread(&single, 1).await;
    assert_eq!(ports(&sessions).len(), 1);
}
