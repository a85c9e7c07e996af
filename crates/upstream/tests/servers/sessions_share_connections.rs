//! Pools: what a lease finds, and who gets what is given back. When a pool closes connections:
//! `connections_end`.

use std::cell::Cell;
use std::future::{pending, ready};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use config::Secret;
use mysql_wire::Capabilities;
use tokio::runtime::{Builder, LocalOptions};
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout};
use upstream::{Cluster, Connection, Credential, CredentialSecret, Key, LeaseError, Pool, Server};

use crate::host::{self, Running};
use crate::play::{cluster, server, until};

/// What the tests keep with a connection: the cost of using it.
pub(crate) type State = u32;

pub(crate) fn on_a_worker<T>(test: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .unwrap();
    runtime.block_on(test)
}

pub(crate) fn key(user: &str) -> Rc<Key> {
    Rc::new(Key {
        user: user.into(),
        account: 0,
        capabilities: Capabilities(0),
        collation: 45,
    })
}

pub(crate) fn credential(user: &str, password: &str) -> Credential {
    Credential {
        user: user.into(),
        account: 0,
        secret: CredentialSecret::Password(Secret::new(password)),
    }
}

pub(crate) async fn lease(
    pool: &Pool<State>,
    server: &Arc<Server>,
    user: &str,
) -> Result<Connection<State>, LeaseError> {
    lease_until(pool, server, user, pending()).await
}

/// In line until `left`.
async fn lease_until(
    pool: &Pool<State>,
    server: &Arc<Server>,
    user: &str,
    left: impl Future<Output = ()>,
) -> Result<Connection<State>, LeaseError> {
    let credential = credential(user, "");
    pool.lease(server, &key(user), &credential, |cost| *cost, Some(left))
        .await
}

/// A cluster of one server, and a pool of it.
pub(crate) fn pool_of(
    host: &Running,
    change: impl FnOnce(&mut config::Cluster),
) -> (Rc<Pool<State>>, Arc<Server>) {
    let cluster = cluster_of(host, change);
    let server = Arc::clone(&cluster.servers()[0]);
    (Pool::new(cluster, |_| 0), server)
}

pub(crate) fn cluster_of(host: &Running, change: impl FnOnce(&mut config::Cluster)) -> Arc<Cluster> {
    let mut config = cluster(vec![server("a", host.address)]);
    change(&mut config);
    Cluster::new(config).unwrap()
}

pub(crate) fn permits(max: u32) -> impl FnOnce(&mut config::Cluster) {
    move |config| config.servers[0].max_connections = max
}

#[test]
fn a_connection_that_was_given_back_is_used_again() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, |_| ());
        let first = lease(&pool, &server, "u").await.unwrap();
        let id = first.thread_id;
        assert_eq!((pool.busy(), pool.idle(), server.sessions()), (1, 0, 1));
        pool.give_back(first);
        assert_eq!((pool.busy(), pool.idle(), server.sessions()), (0, 1, 1));
        let again = lease(&pool, &server, "u").await.unwrap();
        assert_eq!(again.thread_id, id);
        let other = lease(&pool, &server, "u").await.unwrap();
        assert_ne!(other.thread_id, id);
        drop(other);
        assert_eq!((pool.busy(), pool.idle(), server.sessions()), (1, 0, 1));
        until("closed", || host.open() == 1).await;
        drop(again);
        assert_eq!(server.sessions(), 0);
    });
}

#[test]
fn of_idle_connections_the_one_that_costs_least_is_taken_and_of_equals_the_newest() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, |config| config.pool.adaptive = false);
        let mut ids = Vec::new();
        let mut leased = Vec::new();
        for cost in [5, 1, 9, 1] {
            let mut connection = lease(&pool, &server, "u").await.unwrap();
            connection.state = cost;
            ids.push(connection.thread_id);
            leased.push(connection);
        }
        leased
            .into_iter()
            .for_each(|connection| pool.give_back(connection));
        let mut order = Vec::new();
        let mut leased = Vec::new();
        for _ in 0..4 {
            let connection = lease(&pool, &server, "u").await.unwrap();
            order.push(connection.thread_id);
            leased.push(connection);
        }
        assert_eq!(order, [ids[3], ids[1], ids[0], ids[2]]);
        // Not more than the 16 newest are looked at.
        let mut old = leased.pop().unwrap();
        old.state = 0;
        pool.give_back(old);
        for _ in 0..16 {
            leased.push(lease(&pool, &server, "u2").await.unwrap());
        }
        drop(leased);
        assert_eq!(pool.idle(), 1);
    });
}

#[test]
fn the_oldest_is_taken_where_that_is_wanted_whatever_it_costs() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, |config| config.pool.reuse = config::Reuse::Oldest);
        let mut leased = Vec::new();
        for cost in [5, u32::MAX, 9, 0] {
            let mut connection = lease(&pool, &server, "u").await.unwrap();
            connection.state = cost;
            leased.push(connection);
        }
        leased
            .into_iter()
            .for_each(|connection| pool.give_back(connection));
        let mut order = Vec::new();
        for _ in 0..4 {
            let connection = lease(&pool, &server, "u").await.unwrap();
            order.push(connection.state);
            pool.give_back(connection);
        }
        assert_eq!(order, [5, 9, 0, 5]);
    });
}

#[test]
fn accounts_do_not_share_but_one_makes_room_for_another() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, permits(2));
        let a = lease(&pool, &server, "a").await.unwrap();
        let b = lease(&pool, &server, "b").await.unwrap();
        pool.give_back(b);
        pool.give_back(a);
        let c = lease(&pool, &server, "c").await.unwrap();
        assert_eq!(&*c.key.user, "c");
        assert_eq!((pool.idle(), server.sessions()), (1, 2));
        let a = lease(&pool, &server, "a").await.unwrap();
        assert_eq!(pool.idle(), 0, "the one that had been idle for longer is gone");
        drop(a);
        assert_eq!(*host.users.lock().unwrap(), ["a", "b", "c"]);
        until("it was closed in order", || {
            host.quits.load(Ordering::SeqCst) == 1
        })
        .await;
    });
}

#[test]
fn who_has_gone_leaves_the_line() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, permits(1));
        let held = lease(&pool, &server, "u").await.unwrap();
        let left = lease_until(&pool, &server, "u", ready(())).await;
        assert_eq!(left.unwrap_err(), LeaseError::Left);
        assert_eq!((pool.waiting(), server.waiting()), (0, 0));
        pool.give_back(held);
        let at_once = lease_until(&pool, &server, "u", ready(())).await;
        assert!(at_once.is_ok(), "there was no line");
    });
}

#[test]
fn who_waits_is_served_in_order() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, permits(2));
        let mut held = vec![
            lease(&pool, &server, "u").await.unwrap(),
            lease(&pool, &server, "u").await.unwrap(),
        ];
        let served = Rc::new(Cell::new(0));
        let mut tasks = Vec::new();
        for number in 0..20 {
            let (pool2, server, served) = (Rc::clone(&pool), Arc::clone(&server), Rc::clone(&served));
            tasks.push(spawn_local(async move {
                let connection = lease(&pool2, &server, "u").await.unwrap();
                assert_eq!(served.replace(number + 1), number, "first come, first served");
                tokio::task::yield_now().await;
                pool2.give_back(connection);
            }));
            until("it is in line", || pool.waiting() == number + 1).await;
        }
        pool.give_back(held.pop().unwrap());
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!((pool.waiting(), pool.idle(), host.logins()), (0, 1, 2));
    });
}

#[test]
fn a_dropped_connection_makes_room_for_the_next_in_line() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, permits(1));
        let held = lease(&pool, &server, "u").await.unwrap();
        let waiting = {
            let (pool, server) = (Rc::clone(&pool), Arc::clone(&server));
            spawn_local(async move { lease(&pool, &server, "other").await.unwrap().thread_id })
        };
        until("it is in line", || pool.waiting() == 1).await;
        let id = held.thread_id;
        drop(held);
        assert_ne!(waiting.await.unwrap(), id);
        assert_eq!((pool.waiting(), server.sessions()), (0, 0));
    });
}

#[test]
fn who_gives_up_at_any_moment_leaves_nothing_behind() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, |config| {
            permits(2)(config);
            config.queue_timeout = Duration::from_secs(60);
        });
        let keeping = spawn_local(Rc::clone(&pool).run());
        let mut tasks = Vec::new();
        for session in 0..8_u64 {
            let (pool, server) = (Rc::clone(&pool), Arc::clone(&server));
            tasks.push(spawn_local(async move {
                for round in 0..60_u64 {
                    let user = if (session + round) % 5 == 0 { "v" } else { "u" };
                    let patience = Duration::from_micros((session * 977 + round * 131) % 4000);
                    match (session + round) % 3 {
                        0 => drop(timeout(patience, lease(&pool, &server, user)).await),
                        1 => {
                            let connection = lease(&pool, &server, user).await.unwrap();
                            assert!(server.sessions() <= 2);
                            tokio::task::yield_now().await;
                            pool.give_back(connection);
                        }
                        _ => drop(lease(&pool, &server, user).await.unwrap()),
                    }
                }
            }));
        }
        for task in tasks {
            timeout(Duration::from_secs(60), task).await.unwrap().unwrap();
        }
        assert_eq!((pool.waiting(), pool.busy()), (0, 0));
        assert_eq!(server.sessions() as usize, pool.idle());
        keeping.abort();
        let _ = keeping.await;
        drop(pool);
        assert_eq!(server.sessions(), 0);
        assert!(
            host.most.load(Ordering::SeqCst) <= 4,
            "closed ones may linger at the server"
        );
    });
}

#[test]
fn nobody_waits_longer_than_queue_timeout_or_in_a_longer_line_than_queue_max() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, |config| {
            permits(1)(config);
            config.queue_timeout = Duration::from_secs(3);
            config.queue_max = 1;
        });
        spawn_local(Rc::clone(&pool).run());
        let _held = lease(&pool, &server, "u").await.unwrap();
        let begun = Instant::now();
        let waiting = {
            let (pool, server) = (Rc::clone(&pool), Arc::clone(&server));
            spawn_local(async move { lease(&pool, &server, "u").await })
        };
        until("it is in line", || pool.waiting() == 1).await;
        let error = lease(&pool, &server, "u").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "server a of cluster main is full, and so is the queue (queue_max = 1)"
        );
        let error = waiting.await.unwrap().unwrap_err();
        assert_eq!(
            error.to_string(),
            "server a of cluster main was full for 3s (queue_timeout)"
        );
        assert!(begun.elapsed() >= Duration::from_secs(3));
        assert_eq!(pool.waiting(), 0);
    });
}

/// A login may be slow for its account alone.
#[test]
fn a_server_that_does_not_greet_is_suspected_and_one_that_does_not_finish_a_login_is_not() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, |config| {
            config.login_timeout = Duration::from_secs(2);
        });
        host.stuck.store(true, Ordering::SeqCst);
        let error = lease(&pool, &server, "u").await.unwrap_err();
        assert!(
            error.to_string().contains("login not finished within 2s"),
            "{error}"
        );
        assert!(!server.state().suspect);
        host.silent.store(true, Ordering::SeqCst);
        lease(&pool, &server, "u").await.unwrap_err();
        assert!(server.state().suspect);
        let error = lease(&pool, &server, "u").await.unwrap_err();
        assert!(error.to_string().contains("a does not answer"), "{error}");
        assert_eq!(server.sessions(), 0);
    });
}

#[test]
fn a_server_that_lacks_what_sessions_were_offered_gets_none_of_them() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, |_| ());
        let key = Rc::new(Key {
            capabilities: Capabilities::QUERY_ATTRIBUTES,
            ..Key::clone(&key("u"))
        });
        let credential = credential("u", "");
        let leased = pool.lease(&server, &key, &credential, |cost| *cost, Some(pending()));
        let refused = leased.await.unwrap_err();
        assert!(matches!(refused, LeaseError::Unusable { .. }), "{refused}");
        assert!(refused.to_string().contains("QUERY_ATTRIBUTES"), "{refused}");
        assert_eq!(server.sessions(), 0);
        let other = lease(&pool, &server, "u").await.unwrap();
        assert!(!other.capabilities.contains(Capabilities::QUERY_ATTRIBUTES));
    });
}

#[test]
fn a_server_that_does_not_show_its_values_is_asked_in_a_plainer_way() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, |_| ());
        host.coy.store(true, Ordering::SeqCst);
        let connection = lease(&pool, &server, "u").await.unwrap();
        assert!(connection.baseline.is_empty());
        let queries = host.queries.lock().unwrap().clone();
        assert_eq!(queries.last().map(String::as_str), Some("SHOW SESSION VARIABLES"));
    });
}

/// Waits in line, and is gone between the delivery and the look at it.
async fn leaves_at_delivery(
    pool: &Rc<Pool<State>>,
    server: &Arc<Server>,
    user: &str,
    connection: Connection<State>,
) {
    let mut waiting = Box::pin(lease(pool, server, user));
    let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(waiting.as_mut().poll(cx))).await;
    assert!(polled.is_pending() && pool.waiting() == 1);
    pool.give_back(connection);
    assert_eq!(pool.idle(), usize::from(user == "u"), "it is on its way");
    drop(waiting);
}

#[test]
fn what_is_delivered_to_one_who_has_just_left_is_not_lost() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, permits(1));
        let connection = lease(&pool, &server, "u").await.unwrap();
        let id = connection.thread_id;
        leaves_at_delivery(&pool, &server, "u", connection).await;
        // The connection itself.
        let again = timeout(Duration::from_secs(30), lease(&pool, &server, "u")).await;
        let again = again.unwrap().unwrap();
        assert_eq!(again.thread_id, id);
        leaves_at_delivery(&pool, &server, "v", again).await;
        // Its permit.
        assert_eq!((pool.idle(), server.sessions()), (0, 0));
        // With somebody behind in line.
        let held = lease(&pool, &server, "u").await.unwrap();
        let mut first = Box::pin(lease(&pool, &server, "u"));
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(first.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
        let second = {
            let (pool, server) = (Rc::clone(&pool), Arc::clone(&server));
            spawn_local(async move { lease(&pool, &server, "u").await.unwrap().thread_id })
        };
        until("both are in line", || pool.waiting() == 2).await;
        let id = held.thread_id;
        pool.give_back(held);
        drop(first);
        let second = timeout(Duration::from_secs(30), second).await;
        assert_eq!(second.unwrap().unwrap(), id);
    });
}

#[test]
fn a_scrape_shows_what_pools_do() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, |config| {
            permits(2)(config);
            config.queue_timeout = Duration::from_millis(1);
            config.queue_max = 1;
        });
        let other_worker: Rc<Pool<State>> = Pool::new(Arc::clone(pool.cluster()), |_| 0);
        let keeping = spawn_local(Rc::clone(&pool).run());
        let first = lease(&pool, &server, "u").await.unwrap();
        let second = lease(&other_worker, &server, "u").await.unwrap();
        lease(&pool, &server, "u").await.unwrap_err();
        keeping.abort();
        pool.give_back(first);
        drop(second);
        let third = lease(&other_worker, &server, "u").await.unwrap();

        struct Shared(Arc<Cluster>);
        impl telemetry::Source for Shared {
            fn collect(&self, out: &mut telemetry::Samples) {
                self.0.collect(out);
            }
        }
        let telemetry = telemetry::Telemetry::new(1, |_| "other");
        telemetry.register(Arc::new(Shared(Arc::clone(pool.cluster()))));
        let text = telemetry.encode();
        let labels = r#"{cluster="main",server="a""#;
        for line in [
            format!("forebay_pool_idle{labels}}} 1"),
            format!("forebay_pool_busy{labels}}} 1"),
            format!("forebay_pool_opened_total{labels}}} 3"),
            format!("forebay_pool_open_failures_total{labels}}} 0"),
            format!(r#"forebay_pool_closed_total{labels},reason="dropped"}} 1"#),
            format!(r#"forebay_pool_closed_total{labels},reason="handover"}} 0"#),
            format!("forebay_pool_waiting{labels}}} 0"),
            format!("forebay_pool_waits_total{labels}}} 1"),
            format!("forebay_pool_wait_duration_seconds_count{labels}}} 1"),
            format!("forebay_pool_wait_timeouts_total{labels}}} 1"),
            format!("forebay_pool_wait_rejected_total{labels}}} 0"),
            format!("forebay_pool_lease_duration_seconds_count{labels}}} 1"),
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
        drop(third);
    });
}

#[test]
fn a_connection_that_will_not_do_makes_room_for_one_that_does() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, permits(1));
        let first = lease(&pool, &server, "u").await.unwrap();
        let id = first.thread_id;
        let spoil = |mut connection: Connection<State>| {
            connection.state = u32::MAX;
            pool.give_back(connection);
        };
        spoil(first);
        let second = lease(&pool, &server, "u").await.unwrap();
        assert_ne!(second.thread_id, id);
        // The same, delivered to the first in line, who keeps its turn.
        let mut tasks = Vec::new();
        let turn = Rc::new(Cell::new(0));
        for number in 0..2 {
            let (pool2, server, turn) = (Rc::clone(&pool), Arc::clone(&server), Rc::clone(&turn));
            tasks.push(spawn_local(async move {
                let connection = lease(&pool2, &server, "u").await.unwrap();
                assert_eq!((turn.replace(number + 1), connection.state), (number, 0));
                pool2.give_back(connection);
            }));
            until("it is in line", || pool.waiting() == number + 1).await;
        }
        spoil(second);
        for task in tasks {
            timeout(Duration::from_secs(30), task).await.unwrap().unwrap();
        }
        assert_eq!((host.logins(), server.sessions()), (3, 1));
    });
}
