//! After a server has come back, or was added, sessions go to it while they live, and no client notices.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use e2e::{Gateway, Setup, client, eventually};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::{Node, PASSWORD, Sandbox, USER};
use tokio::task::JoinHandle;

use crate::cluster::{self, where_am_i};

/// A gateway's setup over these servers, which evens out soon.
fn over(sandbox: &Sandbox, servers: &[&Node]) -> Setup {
    let servers = servers.iter().map(|node| format!("{:?}", node.address()));
    Setup::of_addresses(sandbox.addresses())
        .top("log.level = \"info,dataplane=debug\"")
        .servers(servers)
        .listener("moves = true")
        .cluster("rebalance = { policy = \"connections\", within = \"2s\" }")
        .tables(&cluster::user(USER, PASSWORD))
        .check(cluster::PATIENT_CHECKS)
}

/// The same over the replicas, of which these drain.
fn setup(sandbox: &Sandbox, drained: &[&Node]) -> Setup {
    let names: Vec<_> = drained.iter().map(|node| node.address()).collect();
    over(sandbox, &[sandbox.node(1), sandbox.node(2)]).cluster(&format!("drain = {names:?}"))
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
        eventually("they have been busy", async || {
            self.turns.load(Ordering::Relaxed) > 100
        })
        .await;
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
        let share = (sessions_on(&gateway, first), sessions_on(&gateway, second));
        share == (6.0, 6.0) && moved(&gateway, "connections") == 6.0
    })
    .await;
    for session in busy.end().await.iter_mut().chain(&mut silent) {
        where_am_i(session).await;
    }
    assert_eq!(moved(&gateway, "connections"), 6.0, "nobody goes to and fro");
    assert_eq!(gateway.metric("forebay_session_moves_failed_total", &[]), 0.0);
}

/// What is held on its server stays, and keeps nobody else there.
#[tokio::test]
async fn when_a_server_is_added() {
    let sandbox = cluster::shared();
    let [first, second] = [sandbox.node(1), sandbox.node(2)];
    let with_socket = |servers: &[&Node]| over(sandbox, servers).admin("socket = \"admin.sock\"");
    let mut gateway = with_socket(&[first]).start();
    let mut held = Vec::new();
    for number in 0..4 {
        let mut session = client::connect(&gateway).await;
        let lock = format!("DO GET_LOCK('evens{number}', 1)");
        session.query_drop(lock).await.unwrap();
        held.push(session);
    }
    let mut free = Vec::new();
    for _ in 0..4 {
        free.push(client::connect(&gateway).await);
    }
    assert!(gateway.reload(with_socket(&[first, second])).await);
    eventually("those have moved that can", async || {
        (sessions_on(&gateway, first), sessions_on(&gateway, second)) == (4.0, 4.0)
    })
    .await;
    for session in &mut held {
        assert_eq!(where_am_i(session).await, first.port());
    }
    for session in &mut free {
        assert_eq!(where_am_i(session).await, second.port());
    }
    let mut ctl = std::process::Command::new(e2e::program());
    ctl.args(["ctl", "--socket"])
        .arg(gateway.folder().join("admin.sock"));
    let shown = ctl.args(["balance", "main"]).output().unwrap();
    let shown = String::from_utf8([shown.stdout, shown.stderr].concat()).unwrap();
    assert!(
        shown.starts_with("main: ") && shown.contains("(policy connections)"),
        "{shown}"
    );
    // So many as were the last to move, which need not be all.
    let left = shown.lines().find(|line| line.starts_with(&first.address()));
    let moved = format!(" to {} ", second.address());
    assert!(
        left.is_some_and(|line| line.contains(&moved) && line.ends_with(" s ago (connections)")),
        "{shown}"
    );
    let (status, page) = gateway.get("/balance");
    assert!(status == 200 && page.contains("\"score\":1.0"), "{page}");
}

/// New sessions go to a server of the gateway's own zone, and others come back to it one a second.
#[tokio::test]
async fn when_the_own_zone_is_back() {
    let sandbox = cluster::shared();
    let [near, far] = [sandbox.node(1), sandbox.node(2)];
    let setup = |drained: &[&Node]| {
        let names: Vec<_> = drained.iter().map(|node| node.address()).collect();
        let zoned = [(near, "here"), (far, "there")]
            .map(|(node, zone)| format!("{{ address = {:?}, zone = {zone:?} }}", node.address()));
        Setup::of_addresses(sandbox.addresses())
            .top("zone = \"here\"")
            .servers(zoned)
            .listener("moves = true")
            .cluster(&format!("drain = {names:?}"))
            .cluster("rebalance.policy = \"location\"")
            .tables(&cluster::user(USER, PASSWORD))
            .check(cluster::PATIENT_CHECKS)
    };
    let mut gateway = setup(&[]).start();
    let mut sessions = Vec::new();
    for _ in 0..4 {
        let mut session = client::connect(&gateway).await;
        assert_eq!(where_am_i(&mut session).await, near.port());
        sessions.push(session);
    }
    assert!(gateway.reload(setup(&[near])).await);
    eventually("all have left", async || sessions_on(&gateway, far) == 4.0).await;
    assert!(gateway.reload(setup(&[])).await);
    // Each is counted as moved a moment after it is there.
    eventually("all are back, and counted", async || {
        let moves = (moved(&gateway, "drain"), moved(&gateway, "location"));
        sessions_on(&gateway, near) == 4.0 && moves == (4.0, 4.0)
    })
    .await;
}

/// Says how much memory of a machine is in use, as a node exporter does. Returns its port.
fn exporter(percent: Arc<AtomicU32>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request);
            let free = 100 - percent.load(Ordering::Relaxed);
            let figures =
                format!("node_memory_MemTotal_bytes 1e9\nnode_memory_MemAvailable_bytes {free}e7\n");
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{figures}",
                figures.len()
            );
        }
    });
    port
}

/// The exporters are not real ones: no machine is to run out of memory here.
#[tokio::test]
async fn when_a_server_runs_out_of_memory() {
    let sandbox = cluster::shared();
    let [full, other] = [sandbox.node(1), sandbox.node(2)];
    let servers = [(full, 91), (other, 30)].map(|(node, percent)| {
        let port = exporter(Arc::new(AtomicU32::new(percent)));
        let exporter = format!("http://127.0.0.1:{port}/metrics");
        format!("{{ address = {:?}, exporter = {exporter:?} }}", node.address())
    });
    let gateway = Setup::of_addresses(sandbox.addresses())
        .servers(servers)
        .listener("moves = true")
        .cluster("rebalance.policy = \"resource\"")
        .tables(&cluster::user(USER, PASSWORD))
        .check(cluster::PATIENT_CHECKS)
        .start();
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(client::connect(&gateway).await);
    }
    eventually("all have left", async || sessions_on(&gateway, other) == 4.0).await;
    for session in &mut sessions {
        assert_eq!(where_am_i(session).await, other.port());
    }
    assert!(moved(&gateway, "memory") > 0.0, "{}", gateway.log());
    let (_, page) = gateway.get("/balance");
    for part in ["\"memory_percent\":91.0", "\"factor\":\"memory\""] {
        assert!(page.contains(part), "{page}");
    }
}

/// Sessions go to servers with their listener's label, to others while those are away, and come back.
#[tokio::test]
async fn where_a_label_says_so() {
    let sandbox = cluster::shared();
    let [other, labelled] = [sandbox.node(1), sandbox.node(2)];
    let setup = |drained: &[&Node]| {
        let names: Vec<_> = drained.iter().map(|node| node.address()).collect();
        Setup::of_addresses(sandbox.addresses())
            .servers([
                format!("{:?}", other.address()),
                format!("{{ address = {:?}, label = \"reports\" }}", labelled.address()),
            ])
            .listener("moves = true\nlabel = \"reports\"")
            .cluster(&format!("drain = {names:?}"))
            .tables(&cluster::user(USER, PASSWORD))
            .check(cluster::PATIENT_CHECKS)
    };
    let mut gateway = setup(&[]).start();
    let mut sessions = Vec::new();
    for _ in 0..3 {
        let mut session = client::connect(&gateway).await;
        assert_eq!(where_am_i(&mut session).await, labelled.port());
        sessions.push(session);
    }
    assert!(gateway.reload(setup(&[labelled])).await);
    eventually("all have left", async || sessions_on(&gateway, other) == 3.0).await;
    assert!(gateway.reload(setup(&[])).await);
    eventually("all are back", async || {
        for session in &mut sessions {
            where_am_i(session).await;
        }
        sessions_on(&gateway, labelled) == 3.0 && moved(&gateway, "label") >= 3.0
    })
    .await;
    assert_eq!(moved(&gateway, "label"), 3.0, "{}", gateway.log());
}
