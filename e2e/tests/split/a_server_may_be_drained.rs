//! A server that is to be taken out of service is left by all, and no client notices.

use e2e::{Gateway, Setup, client, eventually, kind};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::{Kind, Node, PASSWORD, Sandbox, Spec, USER};

use crate::cluster::{self, ctl, where_am_i};

/// A gateway's setup in which these servers drain.
fn setup(sandbox: &Sandbox, drained: &[&Node]) -> Setup {
    let names: Vec<_> = drained.iter().map(|node| node.address()).collect();
    cluster::split(sandbox).cluster(&format!("drain = {names:?}"))
}

/// Connections of the pools to this server, in use or not.
fn connections(gateway: &Gateway, server: &Node) -> f64 {
    let label = format!("server={:?}", server.address());
    let pools = ["forebay_pool_idle", "forebay_pool_busy"];
    pools.iter().map(|pool| gateway.metric(pool, &[&label])).sum()
}

/// The ports of the servers that the reads come to: `reads` of each session.
async fn servers_of(sessions: &mut [Conn], reads: usize) -> Vec<u16> {
    let mut ports = Vec::new();
    for _ in 0..reads {
        for session in sessions.iter_mut() {
            ports.push(where_am_i(session).await);
        }
    }
    ports
}

#[tokio::test]
async fn by_its_reads_and_its_connections() {
    let sandbox = cluster::shared();
    let (leaves, stays) = (sandbox.node(1), sandbox.node(2));
    let mut gateway = cluster::start(setup(sandbox, &[]), 2).await;
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(cluster::connect(&gateway).await);
    }
    eventually("both replicas are read from", async || {
        let ports = servers_of(&mut sessions, 4).await;
        ports.contains(&leaves.port()) && ports.contains(&stays.port())
    })
    .await;
    // A session is in a transaction on the server that is to drain. The transaction goes on.
    let mut holder = cluster::connect(&gateway).await;
    loop {
        holder.query_drop("START TRANSACTION READ ONLY").await.unwrap();
        if where_am_i(&mut holder).await == leaves.port() {
            break;
        }
        holder.query_drop("COMMIT").await.unwrap();
    }

    assert!(gateway.reload(setup(sandbox, &[leaves])).await);
    let label = format!("server={:?}", leaves.address());
    assert_eq!(gateway.metric("forebay_server_draining", &[&label]), 1.0);
    let ports = servers_of(&mut sessions, 20).await;
    assert!(ports.iter().all(|port| *port == stays.port()), "{ports:?}");
    eventually("the transaction alone is left", async || {
        connections(&gateway, leaves) == 1.0
    })
    .await;
    assert!(gateway.log().contains("server drains"), "{}", gateway.log());
    assert_eq!(where_am_i(&mut holder).await, leaves.port());
    holder.query_drop("COMMIT").await.unwrap();
    assert_eq!(where_am_i(&mut holder).await, stays.port());
    eventually("it is empty", async || connections(&gateway, leaves) == 0.0).await;

    assert!(gateway.reload(setup(sandbox, &[])).await);
    eventually("it is read from again", async || {
        servers_of(&mut sessions, 4).await.contains(&leaves.port())
    })
    .await;
}

/// No other server takes writes.
#[tokio::test]
async fn but_by_its_writes_while_it_is_the_primary() {
    let sandbox = cluster::shared();
    cluster::schema(sandbox, "drained", "CREATE TABLE t (v INT)");
    let mut gateway = cluster::start(setup(sandbox, &[]), 2).await;
    let mut session = cluster::connect_to(&gateway, "drained").await;
    session.query_drop("INSERT INTO t VALUES (1)").await.unwrap();
    assert!(gateway.reload(setup(sandbox, &[sandbox.primary()])).await);
    for _ in 0..20 {
        session.query_drop("INSERT INTO t VALUES (2)").await.unwrap();
    }
    let mut later = cluster::connect_to(&gateway, "drained").await;
    later.query_drop("INSERT INTO t VALUES (3)").await.unwrap();
    let log = gateway.log();
    assert!(log.contains("server drains and takes the writes"), "{log}");
}

/// In a Galera cluster every node takes writes: another one gets them, and what is open ends where it began.
#[tokio::test]
async fn and_by_its_writes_where_another_node_takes_them() {
    if kind() == Kind::Mysql {
        return;
    }
    let sandbox = Sandbox::start(Spec::new(Kind::Galera).nodes(3)).unwrap();
    cluster::schema(&sandbox, "drained", "CREATE TABLE t (v INT PRIMARY KEY)");
    let setup = Setup::of_addresses(sandbox.addresses())
        .mode("split")
        .tables(&cluster::user(USER, PASSWORD))
        .cluster("topology = \"galera\"")
        .cluster(&cluster::monitor())
        .check(cluster::PATIENT_CHECKS)
        .admin("socket = \"admin.sock\"");
    let gateway = cluster::start(setup, 2).await;
    let is_primary = |node: &Node| {
        let label = format!("server={:?}", node.address());
        gateway.metric("forebay_server_role", &[&label, "role=\"primary\""]) == 1.0
    };
    let writer = sandbox.nodes().iter().find(|node| is_primary(node)).unwrap();
    let mut open = cluster::connect_to(&gateway, "drained").await;
    open.query_drop("START TRANSACTION").await.unwrap();
    open.query_drop("INSERT INTO t VALUES (1)").await.unwrap();

    let name = writer.address();
    assert_eq!(ctl(&gateway, &["drain", &name, "--no-wait"]).0, Some(0));
    eventually("another node gets the writes", async || !is_primary(writer)).await;
    let mut other = cluster::connect_to(&gateway, "drained").await;
    other.query_drop("INSERT INTO t VALUES (2)").await.unwrap();
    open.query_drop("INSERT INTO t VALUES (3)").await.unwrap();
    open.query_drop("COMMIT").await.unwrap();
    open.query_drop("INSERT INTO t VALUES (4)").await.unwrap();
    let rows: Vec<u32> = open.query("SELECT v FROM t ORDER BY v").await.unwrap();
    assert_eq!(rows, [1, 2, 3, 4]);
    let (code, said) = ctl(&gateway, &["drain", &name, "--deadline", "10s"]);
    assert_eq!(code, Some(0), "{said}");

    // It does not take them back by itself.
    assert_eq!(ctl(&gateway, &["undrain", &name]).0, Some(0));
    other.query_drop("INSERT INTO t VALUES (5)").await.unwrap();
    assert!(!is_primary(writer));
}

#[tokio::test]
async fn by_new_sessions_in_mode_session() {
    let sandbox = cluster::shared();
    let leaves = sandbox.node(1);
    let of_session = |drained: &[&Node]| {
        let names: Vec<_> = drained.iter().map(|node| node.address()).collect();
        Setup::of_addresses(sandbox.addresses())
            .cluster(&format!("drain = {names:?}"))
            .check(cluster::PATIENT_CHECKS)
    };
    let mut gateway = of_session(&[]).start();
    let mut others = Vec::new();
    let mut there = client::connect(&gateway).await;
    while client::server_port(&mut there).await != leaves.port() {
        others.push(std::mem::replace(&mut there, client::connect(&gateway).await));
    }
    assert!(gateway.reload(of_session(&[leaves])).await);
    for _ in 0..6 {
        let mut new = client::connect(&gateway).await;
        assert_ne!(client::server_port(&mut new).await, leaves.port());
    }
    assert_eq!(
        client::server_port(&mut there).await,
        leaves.port(),
        "who is there stays"
    );
}

#[tokio::test]
async fn by_an_operators_word() {
    let sandbox = cluster::shared();
    let leaves = sandbox.node(1);
    let name = leaves.address();
    let gateway = Setup::of_addresses(sandbox.addresses())
        .listener("moves = true")
        .check(cluster::PATIENT_CHECKS)
        .tables(&cluster::user(USER, PASSWORD))
        .admin("socket = \"admin.sock\"")
        .start();
    let mut session = client::connect(&gateway).await;
    let mut others = Vec::new();
    while client::server_port(&mut session).await != leaves.port() {
        others.push(std::mem::replace(&mut session, client::connect(&gateway).await));
    }
    session.query_drop("DO GET_LOCK('by_word', 1)").await.unwrap();
    let of_server = format!("server={name}");
    let (status, _) = gateway.put_over_tcp(&format!("/drain?{of_server}"), "");
    assert_eq!(status, 403, "without a token acts are taken on the socket alone");

    // The gateway itself may be left by the balancer before it; that ends nothing.
    assert_eq!(ctl(&gateway, &["unready", "--reason", "new kernel"]).0, Some(0));
    let (status, said) = gateway.get("/readyz");
    assert!(
        status == 503 && said.contains("taken out by an operator") && said.ends_with(": new kernel\n"),
        "{said}"
    );
    assert_eq!(gateway.metric("forebay_unready", &[]), 1.0);
    assert!(gateway.get("/status").1.contains("\"unready\":\"new kernel\""));
    assert_eq!(client::server_port(&mut session).await, leaves.port());
    assert_eq!(ctl(&gateway, &["ready"]).0, Some(0));
    assert_eq!(gateway.get("/readyz").0, 200);
    assert_eq!(gateway.metric("forebay_unready", &[]), 0.0);
    // For a time, nobody has to think of its end.
    eventually("it is out for a time, and is asked in time", async || {
        assert_eq!(ctl(&gateway, &["unready", "--for", "300ms"]).0, Some(0));
        let (status, said) = gateway.get("/readyz");
        status == 503 && said.contains("for 1 s more")
    })
    .await;
    let is_over = async || gateway.metric("forebay_unready", &[]) == 0.0;
    eventually("it ends by itself, though nobody asks", is_over).await;
    assert_eq!(gateway.get("/readyz").0, 200);
    assert!(
        gateway
            .get("/status")
            .1
            .contains("\"unready\":null,\"unready_ends_in_seconds\":null")
    );

    let (code, said) = ctl(&gateway, &["drain", &name, "--deadline", "5s"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("has 1 left (user-lock 1)"), "{said}");
    let (code, said) = ctl(&gateway, &["sessions", "--pinned"]);
    assert!(code == Some(0) && said.contains("user-lock"), "{said}");
    session.query_drop("DO RELEASE_ALL_LOCKS()").await.unwrap();
    let (code, said) = ctl(&gateway, &["drain", &name]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("is empty"), "{said}");
    assert_ne!(client::server_port(&mut session).await, leaves.port());

    // Nobody is left to go to.
    for node in [sandbox.node(0), sandbox.node(2)] {
        let (code, said) = ctl(&gateway, &["drain", &node.address(), "--no-wait"]);
        let is_last = node.port() == sandbox.node(2).port();
        assert_eq!(code, Some(i32::from(is_last)), "{said}");
        assert_eq!(
            said.contains("no other server of cluster main is up"),
            is_last,
            "{said}"
        );
    }
    for node in [leaves, sandbox.node(0)] {
        assert_eq!(ctl(&gateway, &["undrain", &node.address()]).0, Some(0));
    }
    let (code, said) = ctl(&gateway, &["drains"]);
    assert_eq!((code, said.as_str()), (Some(0), ""));

    // At the deadline sessions end that are left.
    session.query_drop("DO GET_LOCK('by_word', 1)").await.unwrap();
    let port = client::server_port(&mut session).await;
    let there = sandbox.nodes().iter().find(|node| node.port() == port).unwrap();
    let (code, said) = ctl(
        &gateway,
        &["drain", &there.address(), "--deadline", "1s", "--then", "close"],
    );
    assert_eq!(code, Some(0), "{said}");
    assert!(session.query_drop("SELECT 1").await.is_err());

    let mut session = client::connect(&gateway).await;
    let id: u64 = session
        .query_first("SELECT CONNECTION_ID()")
        .await
        .unwrap()
        .unwrap();
    let (_, said) = ctl(&gateway, &["kill", &id.to_string()]);
    assert!(session.query_drop("SELECT 1").await.is_err(), "{said}");
    let (code, said) = ctl(&gateway, &["kill", "17"]);
    assert!(
        code == Some(1) && said.contains("there is no session 17"),
        "{said}"
    );
    let log = gateway.log();
    assert!(
        log.contains("act by=system user") && log.contains("/kill?id=17"),
        "{log}"
    );
    assert!(log.contains("admin request refused"), "{log}");
}

/// The next is not begun before somebody has said that the first one is back.
#[tokio::test]
async fn after_another_one() {
    let sandbox = cluster::shared();
    let [first, second] = [1, 2].map(|node| sandbox.node(node).address());
    let gateway = cluster::start(cluster::split(sandbox), 2).await;
    let servers = [first.clone(), second.clone()];
    let (mut ctl_drain, mut lines) = cluster::drain_one_at_a_time(&gateway, &servers);
    let told = lines.next().unwrap().unwrap();
    assert!(told.contains(&format!("forebay ctl undrain {first}")), "{told}");
    let drains = |server: &str| gateway.get("/drains").1.contains(server);
    assert_eq!([&first, &second].map(|server| drains(server)), [true, false]);
    assert!(ctl_drain.try_wait().unwrap().is_none());
    assert_eq!(ctl(&gateway, &["undrain", &first]).0, Some(0));
    let ended = tokio::task::spawn_blocking(move || {
        let told: Vec<String> = lines.map(Result::unwrap).collect();
        (told.concat(), ctl_drain.wait().unwrap().code())
    });
    let (told, code) = ended.await.unwrap();
    assert_eq!(code, Some(0), "{told}");
    assert!(
        told.contains(&format!("drains until: forebay ctl undrain {second}")),
        "{told}"
    );
    assert_eq!([&first, &second].map(|server| drains(server)), [false, true]);

    // Together they would leave only the primary, which is enough.
    let (code, said) = ctl(&gateway, &["drain", &first, &second]);
    assert!(code == Some(0) && said.matches("is empty").count() == 2, "{said}");
}
