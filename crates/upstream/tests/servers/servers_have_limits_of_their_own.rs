//! What servers say no to, and what becomes of it: their own limits are waited for, and nobody is stormed.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use config::{AccountsFrom, Secret};
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};
use upstream::LeaseError;

use crate::host;
use crate::play::until;
use crate::sessions_share_connections::{lease, on_a_worker, pool_of};

/// Others use the server up, and leave after a while: of many who wait one tries now and then, and then all
/// go on at once.
#[test]
fn a_server_that_is_full_is_not_stormed_by_those_who_wait() {
    const WAITING: usize = 40;
    let host = host::start();
    host.max.store(2, Ordering::SeqCst);
    on_a_worker(async {
        let (pool, server) = pool_of(&host, |config| config.queue_timeout = Duration::from_secs(60));
        let keeping = spawn_local(Rc::clone(&pool).run());
        let ours = [
            lease(&pool, &server, "u").await.unwrap(),
            lease(&pool, &server, "u").await.unwrap(),
        ];
        let tasks: Vec<_> = (0..WAITING)
            .map(|_| {
                let (pool, server) = (Rc::clone(&pool), Arc::clone(&server));
                spawn_local(async move { lease(&pool, &server, "u").await })
            })
            .collect();
        until("all are in line", || pool.waiting() == WAITING).await;
        // Those who came before it was known that the server is full.
        let first = host.refused.load(Ordering::SeqCst);
        until("it was tried again", || {
            host.refused.load(Ordering::SeqCst) > first
        })
        .await;
        let refused = host.refused.load(Ordering::SeqCst);
        assert!(
            refused < first + WAITING / 4,
            "{refused} after {first}: one a second"
        );
        assert!(!server.state().suspect, "full is not ill");
        host.max.store(1000, Ordering::SeqCst);
        let mut leased = Vec::new();
        for task in tasks {
            leased.push(task.await.unwrap().unwrap());
        }
        assert_eq!(host.open(), WAITING + 2);
        drop((ours, leased));
        keeping.abort();
    });
}

/// The first one may go elsewhere; whoever asks again waits.
#[test]
fn who_asks_a_full_server_again_waits_for_room() {
    let host = host::start();
    host.full.store(true, Ordering::SeqCst);
    on_a_worker(async {
        let (pool, server) = pool_of(&host, |config| config.queue_timeout = Duration::from_secs(60));
        let keeping = spawn_local(Rc::clone(&pool).run());
        let error = lease(&pool, &server, "u").await.unwrap_err();
        assert!(error.is_full() && server.is_full(), "{error}");
        let waiting = {
            let (pool, server) = (Rc::clone(&pool), Arc::clone(&server));
            spawn_local(async move { lease(&pool, &server, "u").await })
        };
        until("it is in line", || pool.waiting() == 1).await;
        host.full.store(false, Ordering::SeqCst);
        drop(waiting.await.unwrap().unwrap());
        keeping.abort();
    });
}

/// A password that was changed on the server: an account that is refused again and again may be locked.
#[test]
fn a_refused_account_is_not_tried_for_nobody() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, |config| config.pool.min_idle = 2);
        let keeping = spawn_local(Rc::clone(&pool).run());
        // The server is known to be up only where checks run.
        let checks = tokio::spawn(Arc::clone(pool.cluster()).run_checks());
        let first = lease(&pool, &server, "u").await.unwrap();
        until("it is warm", || pool.idle() == 2).await;
        host.denied.store(true, Ordering::SeqCst);
        host.kick();
        until("it was tried once", || host.refused.load(Ordering::SeqCst) == 1).await;
        // A few more turns of the one who would.
        sleep(Duration::from_millis(500)).await;
        assert_eq!(host.refused.load(Ordering::SeqCst), 1);
        drop(first);
        host.denied.store(false, Ordering::SeqCst);
        let again = lease(&pool, &server, "u").await.unwrap();
        until("it is warm again", || pool.idle() == 2).await;
        drop(again);
        checks.abort();
        keeping.abort();
    });
}

fn pass_through(config: &mut config::Cluster) {
    config.accounts.from = AccountsFrom::PassThrough;
    config.accounts.interval = Duration::ZERO;
    config.servers[0].max_connections = 1;
    config.queue_timeout = Duration::from_secs(60);
}

/// A password is tried by a login that counts as any other: idle connections make room, busy ones are waited
/// for.
#[test]
fn passwords_are_tried_within_the_limits() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, pass_through);
        let cluster = Arc::clone(pool.cluster());
        let keeping = spawn_local(Rc::clone(&pool).run());
        let secret = Secret::new("hunter2");
        let busy = lease(&pool, &server, "u").await.unwrap();
        let trying = {
            let (cluster, secret) = (Arc::clone(&cluster), secret.clone());
            spawn_local(async move { cluster.pass("v", &secret).await })
        };
        until("it waits", || server.waiting() == 1).await;
        pool.give_back(busy);
        let id = trying.await.unwrap().unwrap();
        assert!(id.is_some());
        assert_eq!((pool.idle(), server.sessions()), (0, 0), "its permit was needed");

        let idle = lease(&pool, &server, "u").await.unwrap();
        pool.give_back(idle);
        assert_eq!(cluster.pass("v", &secret).await, Ok(id));
        assert_eq!((pool.idle(), server.sessions()), (0, 0));
        keeping.abort();
    });
}

/// Whoever tries passwords takes the permits of idle connections, but not for ever.
#[test]
fn wrong_passwords_do_not_empty_the_pools() {
    let host = host::start();
    *host.stranger.lock().unwrap() = Some("mallory".to_owned());
    on_a_worker(async {
        let (pool, server) = pool_of(&host, |config| {
            pass_through(config);
            config.queue_timeout = Duration::from_millis(20);
        });
        let cluster = Arc::clone(pool.cluster());
        let keeping = spawn_local(Rc::clone(&pool).run());
        let began = Instant::now();
        for attempt in 0..60 {
            // The only connection there may be is idle.
            pool.give_back(lease(&pool, &server, "u").await.unwrap());
            let password = Secret::new(format!("wrong {attempt}"));
            match cluster.pass("mallory", &password).await {
                Ok(None) | Err(LeaseError::QueueTimeout { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
        let opened = host.logins();
        // Eight connections may go in vain in eight seconds. A busy machine may take longer.
        let spans = 1 + usize::try_from(began.elapsed().as_secs() / 8).unwrap();
        assert!((2..20 * spans).contains(&opened), "{opened} of 60");
        // Whoever has the right one comes in as soon as there is room.
        let cluster = Arc::clone(pool.cluster());
        let patient = spawn_local(async move {
            loop {
                if let Ok(id) = cluster.pass("v", &Secret::new("hunter2")).await {
                    return id;
                }
            }
        });
        assert!(patient.await.unwrap().is_some());
        keeping.abort();
    });
}

/// Where no pool has a connection to look after, who waits looks himself whether the server has room again.
#[test]
fn a_password_is_tried_when_a_full_server_has_room_again() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, pass_through);
        host.full.store(true, Ordering::SeqCst);
        let cluster = Arc::clone(pool.cluster());
        let trying = spawn_local(async move { cluster.pass("v", &Secret::new("hunter2")).await });
        until("it waits", || server.waiting() == 1).await;
        host.full.store(false, Ordering::SeqCst);
        assert!(trying.await.unwrap().unwrap().is_some());
    });
}

/// Nothing is said of the password by a server that has no room.
#[test]
fn a_password_that_cannot_be_tried_stands() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, |config| {
            pass_through(config);
            config.queue_timeout = Duration::from_millis(20);
            config.accounts.interval = Duration::from_secs(1000);
        });
        let cluster = Arc::clone(pool.cluster());
        let secret = Secret::new("hunter2");
        let id = cluster.pass("v", &secret).await.unwrap();
        let _busy = lease(&pool, &server, "u").await.unwrap();
        let error = cluster.pass("v", &Secret::new("hunter3")).await.unwrap_err();
        assert!(matches!(error, LeaseError::QueueTimeout { .. }), "{error}");
        assert_eq!(cluster.pass("v", &secret).await, Ok(id));
    });
}

/// Nor is one that is known kept waiting for it: it stands for a while.
#[test]
fn a_known_password_does_not_wait_for_room() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, |config| {
            pass_through(config);
            config.accounts.interval = Duration::from_millis(500);
        });
        let cluster = Arc::clone(pool.cluster());
        let secret = Secret::new("hunter2");
        let id = cluster.pass("v", &secret).await.unwrap();
        let _busy = lease(&pool, &server, "u").await.unwrap();
        sleep(Duration::from_millis(501)).await;
        let again = timeout(Duration::from_secs(30), cluster.pass("v", &secret)).await;
        assert_eq!(again.unwrap(), Ok(id));
        let unknown = timeout(Duration::from_millis(10), cluster.pass("w", &secret)).await;
        assert!(unknown.is_err(), "it waits");
        assert_eq!(
            (server.sessions(), server.waiting()),
            (1, 0),
            "and has left the line"
        );
    });
}
