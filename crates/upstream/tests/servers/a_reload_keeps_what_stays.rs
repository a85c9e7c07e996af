//! Changes of the configuration while sessions run.

use std::sync::Arc;
use std::time::Duration;

use config::TlsMode;
use tokio::time::{Instant, sleep};
use upstream::{Cluster, ServerChange, ServerEvent, Status};

use crate::play::{Act, Player, by_name, cluster, nobody, server, status, take_lease, until};

#[tokio::test(start_paused = true)]
async fn servers_come_and_go_and_the_others_stay() {
    let players = [
        Player::start(Act::Greet("9.0.0")).await,
        Player::start(Act::Greet("9.0.0")).await,
    ];
    let mut config = cluster(vec![players[0].config("a")]);
    config.drain_timeout = Duration::from_secs(30);
    let cluster = Cluster::new(config.clone()).unwrap();
    let checks = tokio::spawn(Arc::clone(&cluster).run_checks());
    until("a up", || status(&cluster, "a") == Status::Up).await;
    let a = by_name(&cluster, "a");
    let lease = take_lease(&cluster).await.unwrap();
    let mut events = cluster.subscribe();

    config.servers.push(players[1].config("b"));
    config.servers[0].weight = 7;
    cluster.reload(config.clone()).unwrap();
    assert!(Arc::ptr_eq(&a, &by_name(&cluster, "a")), "the same server");
    assert_eq!((a.weight(), a.sessions(), a.state().status), (7, 1, Status::Up));
    until("b up", || status(&cluster, "b") == Status::Up).await;
    let b = by_name(&cluster, "b");
    assert!(a.id() < b.id());
    assert_eq!(
        events.recv().await.unwrap(),
        ServerEvent {
            server: b.id(),
            change: ServerChange::Up
        }
    );

    config.servers.remove(0);
    cluster.reload(config.clone()).unwrap();
    let deadline = Instant::now().into_std() + Duration::from_secs(30);
    let removed = ServerEvent {
        server: a.id(),
        change: ServerChange::Removed { deadline },
    };
    assert_eq!(events.recv().await.unwrap(), removed);
    assert_eq!(
        (a.state().status, a.sessions()),
        (Status::Removed, 1),
        "its session lives on"
    );
    for _ in 0..5 {
        assert_eq!(take_lease(&cluster).await.unwrap().server.name(), "b");
    }
    drop(lease);
    assert_eq!(a.sessions(), 0);
    let before = players[0].accepted();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(players[0].accepted(), before, "a removed server is not checked");

    config.servers.push(players[0].config("a"));
    cluster.reload(config).unwrap();
    assert!(
        by_name(&cluster, "a").id() > b.id(),
        "numbers are never used twice"
    );
    until("a up again", || status(&cluster, "a") == Status::Up).await;
    checks.abort();
}

#[tokio::test]
async fn another_address_is_another_server() {
    let players = [Player::start(Act::Silent).await, Player::start(Act::Silent).await];
    let mut config = cluster(vec![players[0].config("a")]);
    let cluster = Cluster::new(config.clone()).unwrap();
    let old = by_name(&cluster, "a");
    config.servers = vec![players[1].config("a")];
    cluster.reload(config).unwrap();
    assert_ne!(by_name(&cluster, "a").id(), old.id());
    assert_eq!(old.state().status, Status::Removed);
    let lease = take_lease(&cluster).await.unwrap();
    assert_eq!(
        lease.stream.peer().unwrap().socket_addr(),
        Some(players[1].address)
    );
}

#[tokio::test]
async fn a_new_server_gets_no_session_before_its_first_check_while_others_are_up() {
    let player = Player::start(Act::Greet("9.0.0")).await;
    let mut config = cluster(vec![player.config("a")]);
    let cluster = Cluster::new(config.clone()).unwrap();
    let checks = tokio::spawn(Arc::clone(&cluster).run_checks());
    until("a up", || status(&cluster, "a") == Status::Up).await;
    checks.abort();
    let _ = checks.await;
    config.servers.push(server("b", nobody().await));
    cluster.reload(config).unwrap();
    for _ in 0..5 {
        let lease = take_lease(&cluster).await.unwrap();
        assert_eq!((lease.server.name(), lease.failures.len()), ("a", 0));
    }
}

#[tokio::test]
async fn tls_files_that_cannot_be_used_change_nothing() {
    let player = Player::start(Act::Silent).await;
    let mut config = cluster(vec![player.config("a")]);
    let cluster = Cluster::new(config.clone()).unwrap();
    config.servers.clear();
    config.tls.mode = TlsMode::Required;
    config.tls.verify = config::Verify::Ca;
    config.tls.ca = Some("/no/such/ca.pem".into());
    let error = cluster.reload(config).unwrap_err().to_string();
    assert!(
        error.starts_with("cluster main: ") && error.contains("/no/such/ca.pem"),
        "{error}"
    );
    assert_eq!(cluster.servers().len(), 1);
    assert!(cluster.tls().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_drains_is_left_and_comes_back() {
    let players = [
        Player::start(Act::Greet("9.0.0")).await,
        Player::start(Act::Greet("9.0.0")).await,
    ];
    let mut config = cluster(vec![players[0].config("a"), players[1].config("b")]);
    config.drain = vec!["a".to_owned()];
    let cluster = Cluster::new(config.clone()).unwrap();
    let checks = tokio::spawn(Arc::clone(&cluster).run_checks());
    for name in ["a", "b"] {
        until("both up", || status(&cluster, name) == Status::Up).await;
    }
    let chosen = async || {
        let lease = take_lease(&cluster).await.unwrap();
        lease.server.name().to_owned()
    };
    for _ in 0..5 {
        assert_eq!(chosen().await, "b", "from the start on");
    }

    config.drain = vec!["b".to_owned()];
    cluster.reload(config.clone()).unwrap();
    let (a, b) = (by_name(&cluster, "a"), by_name(&cluster, "b"));
    assert_eq!((a.is_draining(), b.is_draining()), (false, true));
    for _ in 0..5 {
        assert_eq!(chosen().await, "a");
    }
    assert_eq!((a.weight(), b.weight(), b.state().status), (1, 0, Status::Up));

    config.drain.clear();
    cluster.reload(config).unwrap();
    assert_eq!(b.weight(), 1, "what it had before");
    let first = take_lease(&cluster).await.unwrap();
    let second = take_lease(&cluster).await.unwrap();
    assert_ne!(first.server.name(), second.server.name());
    checks.abort();
}

#[tokio::test]
async fn a_reload_leaves_somebody_beside_what_operators_drain() {
    let players = [
        Player::start(Act::Greet("9.0.0")).await,
        Player::start(Act::Greet("9.0.0")).await,
    ];
    let mut config = cluster(vec![players[0].config("a"), players[1].config("b")]);
    let cluster = Cluster::new(config.clone()).unwrap();
    let checks = tokio::spawn(Arc::clone(&cluster).run_checks());
    for name in ["a", "b"] {
        until("both up", || status(&cluster, name) == Status::Up).await;
    }
    let (a, b) = (by_name(&cluster, "a"), by_name(&cluster, "b"));
    cluster.drain("a", None).unwrap();
    cluster.reload(config.clone()).unwrap();
    assert!(a.is_draining(), "a reload that has nothing to do with it");

    config.drain = vec!["b".to_owned()];
    cluster.reload(config.clone()).unwrap();
    assert_eq!((a.is_draining(), b.is_draining()), (false, true));

    config.drain.clear();
    cluster.reload(config.clone()).unwrap();
    cluster.drain("a", None).unwrap();
    config.drain = vec!["a".to_owned()];
    cluster.reload(config.clone()).unwrap();
    assert!(cluster.forget_drain("a"), "also where the option names it");
    assert!(a.is_draining());
    assert!(!cluster.forget_drain("a"), "nothing is left to take back");
    config.drain.clear();
    cluster.reload(config.clone()).unwrap();
    assert!(!a.is_draining());

    cluster.drain("a", None).unwrap();
    config.servers.remove(0);
    cluster.reload(config.clone()).unwrap();
    cluster.undrain("a").expect("it is away, and may come back");
    assert!(cluster.undrain("a").is_err(), "nobody knows it");
    config.servers.insert(0, players[0].config("a"));
    cluster.reload(config).unwrap();
    assert!(!by_name(&cluster, "a").is_draining());
    checks.abort();
}
