//! After a server has come back, or was added, sessions go to it while they live, and no client notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use e2e::{Gateway, Setup, client, eventually};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::{Node, PASSWORD, Sandbox, USER};
use tokio::task::JoinHandle;

use crate::cluster::{self, where_am_i};

/// A gateway's setup over the replicas, which evens out soon, and in which these servers drain.
fn setup(sandbox: &Sandbox, drained: &[&Node]) -> Setup {
    let names: Vec<_> = drained.iter().map(|node| node.address()).collect();
    let replicas = [sandbox.node(1), sandbox.node(2)].map(|node| format!("{:?}", node.address()));
    Setup::of_addresses(sandbox.addresses())
        .top("log.level = \"info,dataplane=debug\"")
        .servers(replicas)
        .listener("moves = true")
        .cluster(&format!("drain = {names:?}"))
        .cluster("rebalance = { policy = \"connections\", within = \"2s\" }")
        .tables(&cluster::user(USER, PASSWORD))
}

/// Sessions of the gateway on this server.
fn sessions_on(gateway: &Gateway, server: &Node) -> f64 {
    let label = format!("server={:?}", server.address());
    gateway.metric("forebay_server_sessions_active", &[&label])
}

fn moved(gateway: &Gateway, cause: &str) -> f64 {
    gateway.metric("forebay_sessions_moved_total", &[&format!("cause={cause:?}")])
}

/// Clients that never pause.
struct Busy {
    stop: Arc<AtomicBool>,
    turns: Arc<AtomicU32>,
    clients: Vec<JoinHandle<Conn>>,
}

impl Busy {
    async fn begin(gateway: &Gateway, count: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let turns = Arc::new(AtomicU32::new(0));
        let mut clients = Vec::new();
        for number in 0..count {
            let session = client::connect(gateway).await;
            clients.push(tokio::spawn(read(
                session,
                number,
                Arc::clone(&stop),
                Arc::clone(&turns),
            )));
        }
        Self { stop, turns, clients }
    }

    async fn end(self) -> Vec<Conn> {
        assert!(self.turns.load(Ordering::Relaxed) > 100);
        self.stop.store(true, Ordering::Relaxed);
        let mut sessions = Vec::new();
        for client in self.clients {
            sessions.push(client.await.unwrap());
        }
        sessions
    }
}

/// Reads with answers that only this session can have. Any error fails.
async fn read(mut session: Conn, number: u32, stop: Arc<AtomicBool>, turns: Arc<AtomicU32>) -> Conn {
    let set = format!("SET @number = {number}");
    session.query_drop(set).await.unwrap();
    let statement = session.prep("SELECT @number + ?").await.unwrap();
    for turn in 0_u32.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let sum: Option<u32> = session.exec_first(&statement, (turn,)).await.unwrap();
        assert_eq!(sum, Some(number + turn));
        session.query_drop("START TRANSACTION READ ONLY").await.unwrap();
        let before = where_am_i(&mut session).await;
        assert_eq!(where_am_i(&mut session).await, before, "in one transaction");
        session.query_drop("COMMIT").await.unwrap();
        turns.fetch_add(1, Ordering::Relaxed);
    }
    session
}

#[tokio::test]
async fn when_a_server_is_back() {
    let sandbox = cluster::shared();
    let [first, second] = [sandbox.node(1), sandbox.node(2)];
    let mut gateway = setup(sandbox, &[]).start();
    let busy = Busy::begin(&gateway, 6).await;
    let mut silent = Vec::new();
    for _ in 0..6 {
        silent.push(client::connect(&gateway).await);
    }
    assert!(gateway.reload(setup(sandbox, &[first])).await);
    eventually("all have left", async || {
        (sessions_on(&gateway, first), sessions_on(&gateway, second)) == (0.0, 12.0)
    })
    .await;

    assert!(gateway.reload(setup(sandbox, &[])).await);
    eventually("it has its share again", async || {
        (sessions_on(&gateway, first), sessions_on(&gateway, second)) == (6.0, 6.0)
    })
    .await;
    assert_eq!(moved(&gateway, "connections"), 6.0, "{}", gateway.log());
    for session in busy.end().await.iter_mut().chain(&mut silent) {
        where_am_i(session).await;
    }
    assert_eq!(moved(&gateway, "connections"), 6.0, "nobody goes to and fro");
    assert_eq!(gateway.metric("forebay_session_moves_failed_total", &[]), 0.0);
}
