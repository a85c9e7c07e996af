//! A server that says by itself that it is to be left is left as one that drains, and comes back by itself.
//! What it says is caused on the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use e2e::{Gateway, Setup, client, eventually, kind};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder};
use sandbox::{Kind, Node, PASSWORD, Sandbox, Spec, USER};
use tokio::task::JoinHandle;

use crate::cluster;

/// An account that administers nothing.
const ORDINARY: &str = "ordinary";

/// A gateway whose sessions move.
pub(crate) fn setup(sandbox: &Sandbox, topology: &str) -> Setup {
    let users = [cluster::user(USER, PASSWORD), cluster::user(ORDINARY, PASSWORD)];
    Setup::of_addresses(sandbox.addresses())
        .top("log.level = \"info,dataplane=debug\"")
        .listener("moves = true")
        .cluster(&format!("topology = {topology:?}"))
        .cluster(&cluster::monitor())
        .check(cluster::PATIENT_CHECKS)
        .tables(&users.concat())
        .admin("socket = \"admin.sock\"")
}

pub(crate) async fn session_on(gateway: &Gateway, server: &Node) -> Conn {
    session_of(client::options(gateway), server).await
}

/// A session on this server.
async fn session_of(options: OptsBuilder, server: &Node) -> Conn {
    let mut others = Vec::new();
    loop {
        let mut session = Conn::new(options.clone()).await.unwrap();
        if client::server_port(&mut session).await == server.port() {
            return session;
        }
        others.push(session);
    }
}

pub(crate) fn sessions_on(gateway: &Gateway, server: &Node) -> f64 {
    let label = format!("server={:?}", server.address());
    gateway.metric("forebay_server_sessions_active", &[&label])
}

pub(crate) fn is_draining(gateway: &Gateway, server: &Node) -> bool {
    let label = format!("server={:?}", server.address());
    gateway.metric("forebay_server_draining", &[&label]) == 1.0
}

/// Sessions on this server whose clients do something all the time, and fail at the first error.
pub(crate) struct Busy {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<u32>>,
}

impl Busy {
    pub(crate) async fn on(gateway: &Gateway, server: &Node) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut clients = Vec::new();
        for number in 0..4 {
            let (mut session, stop) = (session_on(gateway, server).await, Arc::clone(&stop));
            clients.push(tokio::spawn(async move {
                session
                    .query_drop(format!("SET @number = {number}"))
                    .await
                    .unwrap();
                for turn in 1.. {
                    let found: Option<u32> = session.query_first("SELECT @number").await.unwrap();
                    assert_eq!(found, Some(number));
                    if stop.load(Ordering::Relaxed) {
                        return turn;
                    }
                }
                0
            }));
        }
        Self { stop, clients }
    }

    pub(crate) async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            assert!(client.await.unwrap() > 0);
        }
    }
}

/// All have left it, and it is known why.
pub(crate) async fn is_left(gateway: &Gateway, server: &Node, why: &str) {
    let drained_by = format!("\"drained_by\":{why:?}");
    eventually("it is left, and it is known why", async || {
        let is_known = gateway.get("/status").1.contains(&drained_by);
        is_known && is_draining(gateway, server) && sessions_on(gateway, server) == 0.0
    })
    .await;
    let name = server.address();
    let drains = cluster::ctl(gateway, &["drains"]).1;
    assert_eq!(drains, format!("main/{name} is empty (drained by: {why})\n"));
    let said = cluster::ctl(gateway, &["undrain", &name]).1;
    assert!(
        said.contains("says itself that it is to be left") && said.contains(why),
        "{said}"
    );
    eventually("the log says why", async || {
        gateway.log().contains(&format!("drained_by={why:?}"))
    })
    .await;
    for _ in 0..6 {
        let mut new = client::connect(gateway).await;
        assert_ne!(client::server_port(&mut new).await, server.port());
    }
}

async fn is_back(gateway: &Gateway, server: &Node) {
    eventually("it takes sessions again", async || !is_draining(gateway, server)).await;
    session_on(gateway, server).await;
}

/// It is left by silent sessions and by busy ones, and comes back.
async fn leaves_and_comes_back(gateway: &Gateway, server: &Node, (on, why, off): (&str, &str, &str)) {
    let mut silent = session_on(gateway, server).await;
    silent.query_drop("SET @mine = 'mine'").await.unwrap();
    let busy = Busy::on(gateway, server).await;
    server.sql(on).unwrap();
    is_left(gateway, server, why).await;
    busy.end().await;
    // An operator who has drained the server as well takes that back before its own reason is over.
    for act in ["drain", "undrain"] {
        let (code, said) = cluster::ctl(gateway, &[act, &server.address()]);
        assert_eq!(code, Some(0), "{act}: {said}");
    }
    is_left(gateway, server, why).await;
    let mine: Option<String> = silent.query_first("SELECT @mine").await.unwrap();
    assert_eq!(mine.as_deref(), Some("mine"));
    let moves = gateway.metric("forebay_sessions_moved_total", &[]);
    server.sql(off).unwrap();
    is_back(gateway, server).await;
    assert_eq!(
        gateway.metric("forebay_sessions_moved_total", &[]),
        moves,
        "nobody goes back"
    );
}

/// It refuses statements from one moment to the next: of its sessions only the silent ones notice nothing.
async fn is_left_by_the_silent(gateway: &Gateway, node: &Node, (on, why, off): (&str, &str, &str)) {
    let mut silent = session_on(gateway, node).await;
    silent.query_drop("SET @mine = 'mine'").await.unwrap();
    node.sql(on).unwrap();
    is_left(gateway, node, why).await;
    let mine: Option<String> = silent.query_first("SELECT @mine").await.unwrap();
    assert_eq!(mine.as_deref(), Some("mine"));
    node.sql(off).unwrap();
    is_back(gateway, node).await;
}

#[tokio::test]
async fn a_node_of_galera() {
    if kind() == Kind::Mysql {
        return;
    }
    let sandbox = Sandbox::start(Spec::new(Kind::Galera).nodes(3)).unwrap();
    let mut gateway = setup(&sandbox, "galera").start();
    let node = sandbox.node(1);
    let desync = (
        "SET GLOBAL wsrep_desync = ON",
        "wsrep_desync = ON",
        "SET GLOBAL wsrep_desync = OFF",
    );
    leaves_and_comes_back(&gateway, node, desync).await;
    let rejects = (
        "SET GLOBAL wsrep_reject_queries = ALL",
        "wsrep_reject_queries = ALL",
        "SET GLOBAL wsrep_reject_queries = NONE",
    );
    is_left_by_the_silent(&gateway, node, rejects).await;
    let is_alone = (
        "SET GLOBAL wsrep_provider_options = 'gmcast.isolate=1'",
        "is not in the primary component",
        "SET GLOBAL wsrep_provider_options = 'gmcast.isolate=0'",
    );
    is_left_by_the_silent(&gateway, node, is_alone).await;
    a_donor_takes_those_for_whom_others_have_no_room(&mut gateway, &sandbox).await;
    somebody_stays(&mut gateway, &sandbox).await;
}

async fn a_donor_takes_those_for_whom_others_have_no_room(gateway: &mut Gateway, sandbox: &Sandbox) {
    let donor = sandbox.node(1);
    donor.sql("SET GLOBAL wsrep_desync = ON").unwrap();
    eventually("the donor is left", async || is_draining(gateway, donor)).await;
    // Sessions that have ended would take the room that there is.
    eventually("no session is there any more", async || {
        sandbox
            .nodes()
            .iter()
            .all(|node| sessions_on(gateway, node) == 0.0)
    })
    .await;
    let servers = sandbox.nodes().iter().map(|node| {
        let address = node.address();
        format!("{{ address = {address:?}, max_connections = 1 }}")
    });
    assert!(gateway.reload(setup(sandbox, "galera").servers(servers)).await);
    let mut sessions = Vec::new();
    for _ in sandbox.nodes() {
        sessions.push(client::connect(gateway).await);
    }
    let mut last = sessions.pop().unwrap();
    assert_eq!(client::server_port(&mut last).await, donor.port());
    sessions.pop().unwrap().disconnect().await.unwrap();
    eventually("it goes where there is room", async || {
        client::server_port(&mut last).await != donor.port()
    })
    .await;
    donor.sql("SET GLOBAL wsrep_desync = OFF").unwrap();
    assert!(gateway.reload(setup(sandbox, "galera")).await);
    is_back(gateway, donor).await;
}

async fn somebody_stays(gateway: &mut Gateway, sandbox: &Sandbox) {
    for node in sandbox.nodes() {
        node.sql("SET GLOBAL wsrep_desync = ON").unwrap();
    }
    let said = "no other server would be left to take sessions";
    eventually("it is said that they stay", async || gateway.log().contains(said)).await;
    // Those that were left while others had yet to say so take sessions again, a moment later.
    eventually("none drains", async || {
        !sandbox.nodes().iter().any(|node| is_draining(gateway, node))
    })
    .await;
    client::connect(gateway).await.query_drop("DO 1").await.unwrap();
    let times = || gateway.log().matches(said).count();
    assert_eq!(times(), 1, "{}", gateway.log());
    sandbox.node(0).sql("SET GLOBAL wsrep_desync = OFF").unwrap();
    eventually("the others are left", async || {
        is_draining(gateway, sandbox.node(1)) && is_draining(gateway, sandbox.node(2))
    })
    .await;
    assert!(!is_draining(gateway, sandbox.node(0)));
    assert_eq!(times(), 1, "{}", gateway.log());

    let deaf = setup(sandbox, "galera").cluster("drain_on_signal = false");
    assert!(gateway.reload(deaf).await);
    assert!(!sandbox.nodes().iter().any(|node| is_draining(gateway, node)));
}

#[tokio::test]
async fn a_server_in_offline_mode() {
    if kind() != Kind::Mysql {
        return;
    }
    let sandbox = cluster::replicated();
    let node = sandbox.node(1);
    let account = format!(
        "CREATE USER {ORDINARY}@'%' IDENTIFIED BY '{PASSWORD}'; GRANT SELECT ON *.* TO {ORDINARY}@'%'"
    );
    sandbox.primary().sql(&account).unwrap();
    sandbox.sync().unwrap();
    let gateway = setup(&sandbox, "replication").start();
    let ordinary = client::options(&gateway).user(Some(ORDINARY));
    let mut theirs = session_of(ordinary.clone(), node).await;
    let offline = (
        "SET GLOBAL offline_mode = ON",
        "offline_mode = ON",
        "SET GLOBAL offline_mode = OFF",
    );
    leaves_and_comes_back(&gateway, node, offline).await;
    // The server has closed their connection, and let nobody of theirs in: it was gone for them.
    assert_ne!(client::server_port(&mut theirs).await, node.port());
    node.sql("SET GLOBAL offline_mode = ON").unwrap();
    eventually("it is left", async || is_draining(&gateway, node)).await;
    for _ in 0..6 {
        let mut new = Conn::new(ordinary.clone()).await.unwrap();
        assert_ne!(client::server_port(&mut new).await, node.port());
    }
}

/// The monitor, too, may be one whom the server refuses then.
#[tokio::test]
async fn a_server_whose_offline_mode_refuses_the_monitor() {
    if kind() != Kind::Mysql {
        return;
    }
    let sandbox = cluster::replicated();
    let node = sandbox.node(1);
    let account = format!(
        "CREATE USER {ORDINARY}@'%' IDENTIFIED BY '{PASSWORD}';
         GRANT SELECT, REPLICATION CLIENT, REPLICATION SLAVE ON *.* TO {ORDINARY}@'%'"
    );
    sandbox.primary().sql(&account).unwrap();
    sandbox.sync().unwrap();
    let monitor =
        format!("monitor = {{ user = {ORDINARY:?}, password = {PASSWORD:?}, interval = \"100ms\" }}");
    let setup = Setup::of_addresses(sandbox.addresses())
        .mode("split")
        .cluster("topology = \"replication\"")
        .cluster(&monitor)
        .tables(&cluster::user(ORDINARY, PASSWORD))
        .check("kind = \"greeting\"");
    let gateway = cluster::start(setup, 2).await;
    let read = async |session: &mut Conn| cluster::where_am_i(session).await;
    let mut sessions = Vec::new();
    for _ in 0..4 {
        let options = cluster::options(&gateway).user(Some(ORDINARY));
        sessions.push(Conn::new(options).await.unwrap());
    }
    eventually("it is read from", async || {
        let mut ports = Vec::new();
        for session in &mut sessions {
            ports.push(read(session).await);
        }
        ports.contains(&node.port())
    })
    .await;
    node.sql("SET GLOBAL offline_mode = ON").unwrap();
    eventually("it drains", async || {
        for session in &mut sessions {
            read(session).await;
        }
        is_draining(&gateway, node)
    })
    .await;
    for session in &mut sessions {
        assert_ne!(read(session).await, node.port());
    }
    node.sql("SET GLOBAL offline_mode = OFF").unwrap();
    eventually("it is read from again", async || {
        let mut ports = Vec::new();
        for session in &mut sessions {
            ports.push(read(session).await);
        }
        ports.contains(&node.port())
    })
    .await;
}

#[tokio::test]
async fn a_member_that_leaves_its_group() {
    if kind() != Kind::Mysql {
        return;
    }
    let sandbox = Sandbox::start(Spec::new(Kind::GroupReplication).nodes(3)).unwrap();
    sandbox
        .primary()
        .sql("CREATE TABLE kept (v INT PRIMARY KEY)")
        .unwrap();
    sandbox.sync().unwrap();
    let gateway = setup(&sandbox, "group-replication").start();
    let node = sandbox.node(1);
    let mut silent = session_on(&gateway, node).await;
    silent.query_drop("SET @mine = 'mine'").await.unwrap();
    let busy = Busy::on(&gateway, node).await;
    node.sql("STOP GROUP_REPLICATION").unwrap();
    is_left(&gateway, node, "is offline in its group").await;
    busy.end().await;
    let mine: Option<String> = silent.query_first("SELECT @mine").await.unwrap();
    assert_eq!(mine.as_deref(), Some("mine"));

    // It cannot apply what it has missed: it is recovering for as long as somebody locks the table.
    sandbox.primary().sql("INSERT INTO kept VALUES (1)").unwrap();
    let mut locker = Conn::new(
        OptsBuilder::default()
            .ip_or_hostname("127.0.0.1")
            .tcp_port(node.port())
            .user(Some(USER))
            .pass(Some(PASSWORD))
            .db_name(Some("test")),
    )
    .await
    .unwrap();
    locker.query_drop("LOCK TABLES kept READ").await.unwrap();
    node.sql("START GROUP_REPLICATION").unwrap();
    is_left(&gateway, node, "is recovering in its group").await;
    locker.query_drop("UNLOCK TABLES").await.unwrap();
    is_back(&gateway, node).await;

    // It has a row of its own, and cannot apply that of the others. MySQL 8.4 and later go offline then.
    let fails = sandbox.node(2);
    cluster::write_at(fails, "SET sql_log_bin = 0; INSERT INTO kept VALUES (2);");
    sandbox.primary().sql("INSERT INTO kept VALUES (2)").unwrap();
    let goes_offline = sandbox.release() >= [8, 4, 0];
    let why = if goes_offline {
        "offline_mode = ON"
    } else {
        "is in error in its group"
    };
    is_left(&gateway, fails, why).await;
}
