//! Leases: which server a session gets, and what happens when servers cannot be reached.

use std::collections::HashMap;
use std::time::Duration;

use crate::play::{Act, Player, by_name, client, cluster, local, nobody, server, status, take_lease, until};
use config::Balance;
use tokio::net::{TcpSocket, TcpStream};
use upstream::{Cluster, LeaseError, Status};

#[tokio::test]
async fn sessions_are_spread_and_counted() {
    let players = [Player::start(Act::Silent).await, Player::start(Act::Silent).await];
    let cluster = Cluster::new(cluster(vec![players[0].config("a"), players[1].config("b")])).unwrap();
    let mut leases = Vec::new();
    for _ in 0..10 {
        leases.push(take_lease(&cluster).await.unwrap());
    }
    let sessions = |name: &str| by_name(&cluster, name).sessions();
    assert_eq!((sessions("a"), sessions("b")), (5, 5));
    drop(leases);
    assert_eq!((sessions("a"), sessions("b")), (0, 0));
}

#[tokio::test]
async fn every_balancing_method_reaches_every_server() {
    for balance in [
        Balance::LeastConnections,
        Balance::Weighted,
        Balance::RoundRobin,
        Balance::RandomTwo,
    ] {
        let players = [Player::start(Act::Silent).await, Player::start(Act::Silent).await];
        let mut config = cluster(vec![players[0].config("a"), players[1].config("b")]);
        config.balance = balance;
        let cluster = Cluster::new(config).unwrap();
        let mut counts = HashMap::new();
        let mut leases = Vec::new();
        for _ in 0..40 {
            let lease = take_lease(&cluster).await.unwrap();
            *counts.entry(lease.server.name().to_owned()).or_insert(0) += 1;
            leases.push(lease);
        }
        assert!(counts["a"] >= 12 && counts["b"] >= 12, "{balance:?}: {counts:?}");
    }
}

#[tokio::test]
async fn a_server_that_refuses_is_left_out_at_once() {
    let good = Player::start(Act::Silent).await;
    let mut config = cluster(vec![server("dead", nobody().await), good.config("good")]);
    config.balance = Balance::RoundRobin;
    let cluster = Cluster::new(config).unwrap();
    let mut failures = Vec::new();
    for _ in 0..10 {
        let lease = take_lease(&cluster).await.unwrap();
        assert_eq!(lease.server.name(), "good");
        failures.extend(lease.failures);
    }
    assert_eq!(failures.len(), 1, "tried once and then suspected: {failures:?}");
    assert_eq!(failures[0].server, "dead");
    assert!(
        failures[0].reason.starts_with("connection refused by 127.0.0.1:"),
        "{failures:?}"
    );
    assert!(by_name(&cluster, "dead").state().suspect);
    assert_eq!(by_name(&cluster, "dead").sessions(), 0, "its permits are free");
}

#[tokio::test]
async fn each_server_is_tried_once_and_the_error_tells_of_all() {
    let cluster = Cluster::new(cluster(vec![
        server("a", nobody().await),
        server("b", nobody().await),
    ]))
    .unwrap();
    let error = take_lease(&cluster).await.unwrap_err();
    let LeaseError::ConnectFailed { failures, .. } = &error else {
        panic!("{error:?}")
    };
    let mut names: Vec<_> = failures.iter().map(|failure| failure.server.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["a", "b"]);
    let error = take_lease(&cluster).await.unwrap_err();
    let LeaseError::NoServerAvailable { servers, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(servers.len(), 2);
    assert!(
        error
            .to_string()
            .contains("a does not answer (connection refused by 127.0.0.1:"),
        "{error}"
    );
}

#[tokio::test]
async fn a_cluster_without_a_usable_server_says_why() {
    let player = Player::start(Act::Silent).await;
    let mut drained = player.config("drained");
    drained.weight = 0;
    let cluster = Cluster::new(cluster(vec![drained])).unwrap();
    let error = take_lease(&cluster).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "no server of cluster main is available: drained takes no new sessions (weight = 0)"
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_swallows_packets_costs_connect_timeout() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let full = listener.local_addr().unwrap();
    // Nobody accepts; once its backlog is full the kernel drops further attempts.
    let mut waiting = Vec::new();
    while let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_secs(1), TcpStream::connect(full)).await {
        waiting.push(stream);
        assert!(waiting.len() < 64, "the backlog never fills");
    }
    let good = Player::start(Act::Silent).await;
    let mut config = cluster(vec![server("full", full), good.config("good")]);
    config.servers[1].backup = true;
    let cluster = Cluster::new(config).unwrap();
    let begun = tokio::time::Instant::now();
    let lease = take_lease(&cluster).await.unwrap();
    assert_eq!(lease.server.name(), "good");
    assert!(
        lease.failures[0].reason.contains("within 3s"),
        "{:?}",
        lease.failures
    );
    assert!(begun.elapsed() >= Duration::from_secs(3) && begun.elapsed() < Duration::from_secs(4));
}

#[tokio::test(start_paused = true)]
async fn backups_serve_while_the_others_are_down() {
    let (mut normal, backup) = (
        Player::start(Act::Greet("9.0.0")).await,
        Player::start(Act::Greet("9.0.0")).await,
    );
    let mut config = cluster(vec![normal.config("normal"), backup.config("backup")]);
    config.servers[1].backup = true;
    let cluster = Cluster::new(config).unwrap();
    let checks = tokio::spawn(std::sync::Arc::clone(&cluster).run_checks());
    until("both up", || {
        status(&cluster, "normal") == Status::Up && status(&cluster, "backup") == Status::Up
    })
    .await;
    let name = async || take_lease(&cluster).await.unwrap().server.name().to_owned();
    assert_eq!(name().await, "normal");
    normal.stop().await;
    until("normal down", || status(&cluster, "normal") == Status::Down).await;
    assert_eq!(name().await, "backup");
    normal.resume().await;
    until("normal up", || status(&cluster, "normal") == Status::Up).await;
    assert_eq!(name().await, "normal");
    checks.abort();
}

#[tokio::test]
async fn servers_are_told_who_the_client_is() {
    let player = Player::start(Act::Silent).await;
    let mut config = cluster(vec![player.config("a")]);
    config.send_proxy = true;
    let cluster = Cluster::new(config).unwrap();
    let _lease = take_lease(&cluster).await.unwrap();
    until("the header arrives", || {
        !player.received.lock().unwrap().is_empty()
    })
    .await;
    let received = player.received.lock().unwrap()[0].clone();
    let mut expected = Vec::new();
    net::proxy_header::encode_v2(&client(), &local(), &mut expected);
    assert_eq!(received, expected);
}

#[tokio::test]
async fn a_host_name_leads_to_the_address_that_answers() {
    let player = Player::start(Act::Silent).await;
    let mut config = cluster(vec![player.config("a")]);
    // Where it has an IPv6 address too, that one refuses.
    config.servers[0].address = config::ServerAddress::Host {
        host: "localhost".to_owned(),
        port: player.address.port(),
    };
    let cluster = Cluster::new(config).unwrap();
    for _ in 0..3 {
        let lease = take_lease(&cluster).await.unwrap();
        assert!(lease.failures.is_empty());
    }
    until("all have arrived", || player.accepted() == 3).await;
}

#[tokio::test]
async fn a_name_that_does_not_exist_is_named() {
    let mut config = cluster(vec![server("a", nobody().await)]);
    config.servers[0].address = config::ServerAddress::Host {
        host: "no-such-host.invalid".to_owned(),
        port: 3306,
    };
    let cluster = Cluster::new(config).unwrap();
    let error = take_lease(&cluster).await.unwrap_err().to_string();
    assert!(
        error.contains("a: cannot resolve host name no-such-host.invalid"),
        "{error}"
    );
}
