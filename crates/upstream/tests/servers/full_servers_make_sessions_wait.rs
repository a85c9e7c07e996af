//! `max_connections` and the queue.

use std::future::ready;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::play::{Act, Player, by_name, client, cluster, local, server, take_lease, until};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use upstream::{Cluster, LeaseError};

async fn one_permit(player: &Player) -> config::Cluster {
    let mut config = cluster(vec![player.config("a")]);
    config.servers[0].max_connections = 1;
    config
}

#[tokio::test]
async fn who_waits_gets_the_permit_that_becomes_free_in_order() {
    let player = Player::start(Act::Silent).await;
    let cluster = Cluster::new(one_permit(&player).await).unwrap();
    let first = take_lease(&cluster).await.unwrap();
    let served = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for number in 0..5 {
        let (waiting, served) = (Arc::clone(&cluster), Arc::clone(&served));
        tasks.push(tokio::spawn(async move {
            let lease = take_lease(&waiting).await.unwrap();
            assert_eq!(
                served.fetch_add(1, Ordering::SeqCst),
                number,
                "first come, first served"
            );
            assert_eq!(lease.server.sessions(), 1);
        }));
        until("it is in line", || cluster.waiting() == number + 1).await;
    }
    drop(first);
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!((cluster.waiting(), by_name(&cluster, "a").sessions()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_longer_than_queue_timeout() {
    let player = Player::start(Act::Silent).await;
    let mut config = one_permit(&player).await;
    config.queue_timeout = Duration::from_secs(5);
    let cluster = Cluster::new(config).unwrap();
    let _first = take_lease(&cluster).await.unwrap();
    let begun = Instant::now();
    let error = take_lease(&cluster).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "all servers of cluster main were full for 5s (queue_timeout)"
    );
    assert_eq!(begun.elapsed().as_secs(), 5);
    assert_eq!(cluster.waiting(), 0);
}

#[tokio::test]
async fn the_queue_has_an_end() {
    let player = Player::start(Act::Silent).await;
    let mut config = one_permit(&player).await;
    config.queue_max = 1;
    let cluster = Cluster::new(config).unwrap();
    let _first = take_lease(&cluster).await.unwrap();
    let waiting = tokio::spawn({
        let cluster = Arc::clone(&cluster);
        async move { take_lease(&cluster).await }
    });
    until("one is in line", || cluster.waiting() == 1).await;
    let error = take_lease(&cluster).await.unwrap_err();
    assert_eq!(
        error,
        LeaseError::QueueFull {
            cluster: "main".to_owned(),
            server: None,
            queue_max: 1
        }
    );
    waiting.abort();
    let _ = waiting.await;
    assert_eq!(cluster.waiting(), 0, "who goes away leaves the line");
}

#[tokio::test]
async fn who_has_gone_leaves_the_line() {
    let player = Player::start(Act::Silent).await;
    let cluster = Cluster::new(one_permit(&player).await).unwrap();
    let lease = async || {
        cluster
            .lease(&client(), &local(), None, Vec::new(), ready(()))
            .await
    };
    let at_once = lease().await.unwrap();
    assert_eq!(at_once.server.sessions(), 1);
    assert_eq!(lease().await.unwrap_err(), LeaseError::Left);
    assert_eq!(cluster.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_told_when_the_last_server_goes_down() {
    let mut player = Player::start(Act::Greet("9.0.0")).await;
    let mut config = one_permit(&player).await;
    config.queue_timeout = Duration::from_secs(3600);
    let cluster = Cluster::new(config).unwrap();
    let checks = tokio::spawn(Arc::clone(&cluster).run_checks());
    until("up", || {
        crate::play::status(&cluster, "a") == upstream::Status::Up
    })
    .await;
    let _first = take_lease(&cluster).await.unwrap();
    player.stop().await;
    let begun = Instant::now();
    let error = take_lease(&cluster).await.unwrap_err();
    assert!(
        error.to_string().contains("a is down (connection refused by"),
        "{error}"
    );
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    checks.abort();
}

#[tokio::test]
async fn a_raised_limit_lets_those_in_line_in() {
    let player = Player::start(Act::Silent).await;
    let mut config = one_permit(&player).await;
    let cluster = Cluster::new(config.clone()).unwrap();
    let _first = take_lease(&cluster).await.unwrap();
    let waiting = tokio::spawn({
        let cluster = Arc::clone(&cluster);
        async move { take_lease(&cluster).await }
    });
    until("one is in line", || cluster.waiting() == 1).await;
    config.servers[0].max_connections = 2;
    cluster.reload(config).unwrap();
    let second = timeout(Duration::from_secs(30), waiting)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(second.server.sessions(), 2);
}

/// Workers as in production: threads with a runtime each, leasing, holding and giving back at random, some of
/// them giving up while they wait. The limit holds at every moment and in the end nothing is left.
#[test]
fn limits_hold_across_workers() {
    const WORKERS: usize = 4;
    const ROUNDS: u64 = 150;
    const PERMITS: u32 = 3;
    let (players, _playing) = players_on_their_own_thread();
    let mut config = cluster(vec![server("a", players[0]), server("b", players[1])]);
    config
        .servers
        .iter_mut()
        .for_each(|server| server.max_connections = PERMITS);
    config.queue_timeout = Duration::from_secs(60);
    let cluster = Cluster::new(config).unwrap();
    let exceeded = AtomicBool::new(false);
    let served = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for worker in 0..WORKERS as u64 {
            let (cluster, exceeded, served) = (&cluster, &exceeded, &served);
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .unwrap();
                runtime.block_on(async {
                    let mut tasks = tokio::task::JoinSet::new();
                    // More sessions than permits, so that there is always a line.
                    for session in 0..4_u64 {
                        let cluster = Arc::clone(cluster);
                        tasks.spawn(async move {
                            let mut most = 0;
                            let mut leases = 0;
                            for round in 0..ROUNDS {
                                let dice = (worker * 7 + session * 13 + round * 31) % 11;
                                let lease = take_lease(&cluster);
                                if dice == 0 {
                                    // Gives up at a moment of its own.
                                    let _ = timeout(Duration::from_micros(50), lease).await;
                                    continue;
                                }
                                let lease = lease.await.unwrap();
                                most = most.max(lease.server.sessions());
                                leases += 1;
                                for _ in 0..dice {
                                    tokio::task::yield_now().await;
                                }
                            }
                            (most, leases)
                        });
                    }
                    while let Some(done) = tasks.join_next().await {
                        let (most, leases) = done.unwrap();
                        exceeded.fetch_or(most > PERMITS, Ordering::SeqCst);
                        served.fetch_add(leases, Ordering::SeqCst);
                    }
                });
            });
        }
    });
    assert!(!exceeded.load(Ordering::SeqCst), "max_connections was exceeded");
    assert!(served.load(Ordering::SeqCst) > WORKERS * 4 * ROUNDS as usize * 8 / 10);
    assert_eq!(cluster.waiting(), 0);
    for server in cluster.servers().iter() {
        assert_eq!(server.sessions(), 0, "every permit came back");
    }
}

/// Two silent servers, who play until the sender is dropped.
fn players_on_their_own_thread() -> ([SocketAddr; 2], oneshot::Sender<()>) {
    let (tell, addresses) = std::sync::mpsc::channel();
    let (playing, end) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let players = [Player::start(Act::Silent).await, Player::start(Act::Silent).await];
            tell.send([players[0].address, players[1].address]).unwrap();
            let _ = end.await;
        });
    });
    (addresses.recv().unwrap(), playing)
}
