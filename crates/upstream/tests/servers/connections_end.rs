//! Pools: when connections are closed, and when they are not trusted any more: age, idleness, another
//! configuration, a server that was down.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::spawn_local;
use upstream::Status;

use crate::host;
use crate::play::until;
use crate::sessions_share_connections::{lease, on_a_worker, permits, pool_of};

fn quick_checks(config: &mut config::Cluster) {
    config.check.interval = Duration::from_millis(50);
    config.check.timeout = Duration::from_secs(1);
    config.check.rise = 1;
    config.check.fall = 2;
}

#[test]
fn connections_that_the_server_has_closed_are_not_used() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, permits(1));
        let first = lease(&pool, &server, "u").await.unwrap();
        pool.give_back(first);
        host.kick();
        until("closed", || host.open() == 0).await;
        // The runtime has to hear of it first; whether it has, a lease cannot know.
        let keeping = spawn_local(Rc::clone(&pool).run());
        until("noticed", || pool.idle() == 0).await;
        assert_eq!(server.sessions(), 0);
        keeping.abort();
        let mut second = lease(&pool, &server, "u").await.unwrap();
        host.kick();
        until("the runtime has heard of it", || second.stream.has_news()).await;
        pool.give_back(second);
        assert_eq!((pool.idle(), server.sessions()), (0, 0));
    });
}

#[test]
fn what_a_server_says_unasked_is_no_answer_to_whoever_takes_its_connection() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, permits(1));
        let first = lease(&pool, &server, "u").await.unwrap();
        pool.give_back(first);
        let taken = pool.take_idle(&server, |_| 1).unwrap();
        pool.give_back(taken);
        host.kick();
        // The runtime has to hear of it first.
        until("it is closed", || match pool.take_idle(&server, |_| 1) {
            Some(mut taken) => {
                assert!(!taken.stream.has_news());
                pool.give_back(taken);
                false
            }
            None => true,
        })
        .await;
        assert_eq!(server.sessions(), 0);
    });
}

#[test]
fn connections_grow_old() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, |config| config.pool.max_age = Duration::from_secs(1));
        let keeping = spawn_local(Rc::clone(&pool).run());
        let busy = lease(&pool, &server, "u").await.unwrap();
        // On a busy machine one may be too old by the time it is given back.
        for attempt in 0.. {
            let idle = lease(&pool, &server, "u").await.unwrap();
            pool.give_back(idle);
            if pool.idle() == 1 {
                break;
            }
            assert!(attempt < 100, "none is kept");
        }
        until("the idle one is closed", || pool.idle() == 0).await;
        assert_eq!(pool.busy(), 1, "one in use is left alone");
        pool.give_back(busy);
        assert_eq!((pool.idle(), server.sessions()), (0, 0));
        keeping.abort();
    });
}

#[test]
fn idle_connections_are_closed_but_for_those_that_are_to_be_kept() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, |config| config.pool.min_idle = 2);
        let keeping = spawn_local(Rc::clone(&pool).run());
        let mut leased = Vec::new();
        for _ in 0..5 {
            leased.push(lease(&pool, &server, "u").await.unwrap());
        }
        assert_eq!(pool.idle(), 0);
        // The server is known to be up only where checks run.
        let checks = tokio::spawn(Arc::clone(pool.cluster()).run_checks());
        until("two are opened for nobody", || pool.idle() == 2).await;
        assert_eq!(pool.busy(), 5);
        leased
            .into_iter()
            .for_each(|connection| pool.give_back(connection));
        assert_eq!(pool.idle(), 7);
        // Accounts that nobody has used for as long are forgotten, and nothing is opened for them: the time
        // is short only from here on.
        let mut config = (*pool.cluster().config()).clone();
        config.pool.idle_timeout = Duration::from_millis(100);
        pool.cluster().reload(config).unwrap();
        until("the others are closed", || pool.idle() == 2).await;
        let warm = lease(&pool, &server, "u").await.unwrap();
        assert_eq!(warm.state, 0);
        checks.abort();
        keeping.abort();
    });
}

#[test]
fn a_connection_is_tried_before_it_is_used_after_a_while() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, |config| {
            config.pool.ping_after = Duration::from_millis(1);
        });
        let first = lease(&pool, &server, "u").await.unwrap();
        let id = first.thread_id;
        pool.give_back(first);
        tokio::time::sleep(Duration::from_millis(2)).await;
        let second = lease(&pool, &server, "u").await.unwrap();
        assert_eq!(second.thread_id, id, "it answers");
        pool.give_back(second);
        host.mute.store(true, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(2)).await;
        let third = lease(&pool, &server, "u").await.unwrap();
        assert_ne!(third.thread_id, id, "it does not");
        assert_eq!((pool.busy(), pool.idle(), server.sessions()), (1, 0, 1));
    });
}

#[test]
fn a_changed_configuration_is_taken_over_by_new_connections() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, |_| ());
        let first = lease(&pool, &server, "u").await.unwrap();
        let mut config = (*pool.cluster().config()).clone();
        config.pool.max_age = Duration::from_secs(77);
        pool.cluster().reload(config.clone()).unwrap();
        pool.give_back(first);
        assert_eq!(pool.idle(), 1, "nothing that matters has changed");
        let first = lease(&pool, &server, "u").await.unwrap();
        config.pool.init = vec!["SET a = 1".to_owned(), "SET b = 2".to_owned()];
        pool.cluster().reload(config.clone()).unwrap();
        pool.give_back(first);
        assert_eq!(pool.idle(), 0, "it has not run the statements");
        let _second = lease(&pool, &server, "u").await.unwrap();
        let queries = host.queries.lock().unwrap().clone();
        assert_eq!(queries[queries.len() - 3..][..2], ["SET a = 1", "SET b = 2"]);
    });
}

#[test]
fn a_lowered_limit_and_a_removed_server_close_what_comes_back() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, permits(3));
        let mut leased = Vec::new();
        for _ in 0..3 {
            leased.push(lease(&pool, &server, "u").await.unwrap());
        }
        let mut config = (*pool.cluster().config()).clone();
        config.servers[0].max_connections = 2;
        pool.cluster().reload(config.clone()).unwrap();
        pool.give_back(leased.pop().unwrap());
        assert_eq!((pool.idle(), server.sessions()), (0, 2));
        pool.give_back(leased.pop().unwrap());
        assert_eq!((pool.idle(), server.sessions()), (1, 2));

        let waiting = {
            let (pool, server) = (Rc::clone(&pool), Arc::clone(&server));
            let _taken = lease(&pool, &server, "u").await.unwrap();
            spawn_local(async move {
                let _kept = _taken;
                lease(&pool, &server, "u").await
            })
        };
        until("it is in line", || pool.waiting() == 1).await;
        config.servers.clear();
        pool.cluster().reload(config).unwrap();
        let error = waiting.await.unwrap().unwrap_err();
        assert!(error.to_string().contains("a is removed"), "{error}");
        pool.give_back(leased.pop().unwrap());
        assert_eq!((pool.idle(), server.sessions()), (0, 0));
        assert!(lease(&pool, &server, "u").await.is_err());
    });
}

#[test]
fn idle_connections_are_looked_at_again_before_they_are_used() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, |_| ());
        let first = lease(&pool, &server, "u").await.unwrap();
        let id = first.thread_id;
        pool.give_back(first);
        let mut config = (*pool.cluster().config()).clone();
        config.pool.init = vec!["SET a = 1".to_owned()];
        pool.cluster().reload(config).unwrap();
        let second = lease(&pool, &server, "u").await.unwrap();
        assert_ne!(second.thread_id, id, "the first has not run the statement");
        assert_eq!((pool.idle(), server.sessions()), (0, 1));
    });
}

#[test]
fn connections_from_before_a_server_was_down_are_not_used_again() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, quick_checks);
        let checks = tokio::spawn(Arc::clone(pool.cluster()).run_checks());
        until("up", || server.state().status == Status::Up).await;
        let busy = lease(&pool, &server, "u").await.unwrap();
        let idle = lease(&pool, &server, "u").await.unwrap();
        let id = idle.thread_id;
        pool.give_back(idle);
        host.silent.store(true, Ordering::SeqCst);
        until("down", || server.state().status == Status::Down).await;
        assert!(lease(&pool, &server, "u").await.is_err());
        host.silent.store(false, Ordering::SeqCst);
        until("up again", || server.state().status == Status::Up).await;
        assert_eq!(host.open(), 2, "they are still open");
        let other = lease(&pool, &server, "u").await.unwrap();
        assert_ne!(other.thread_id, id);
        assert_eq!((pool.idle(), pool.busy()), (0, 2));
        pool.give_back(busy);
        assert_eq!((pool.idle(), pool.busy()), (0, 1));
        pool.give_back(other);
        assert_eq!(pool.idle(), 1);
        checks.abort();
    });
}

#[test]
fn idle_connections_to_a_server_that_goes_down_are_closed_at_once() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, quick_checks);
        let keeping = spawn_local(Rc::clone(&pool).run());
        let checks = tokio::spawn(Arc::clone(pool.cluster()).run_checks());
        until("up", || server.state().status == Status::Up).await;
        let idle = lease(&pool, &server, "u").await.unwrap();
        pool.give_back(idle);
        host.silent.store(true, Ordering::SeqCst);
        until("it is closed", || pool.idle() == 0).await;
        assert_eq!((server.state().status, server.sessions()), (Status::Down, 0));
        checks.abort();
        keeping.abort();
    });
}

#[test]
fn a_suspicion_makes_connections_be_tried_and_does_not_close_them() {
    let host = host::start();
    on_a_worker(async {
        let (pool, server) = pool_of(&host, quick_checks);
        let keeping = spawn_local(Rc::clone(&pool).run());
        let checks = tokio::spawn(Arc::clone(pool.cluster()).run_checks());
        until("up", || server.state().status == Status::Up).await;
        for answers in [true, false] {
            let busy = lease(&pool, &server, "u").await.unwrap();
            let id = busy.thread_id;
            pool.cluster().suspect(&server, "a test says so");
            pool.give_back(busy);
            assert_eq!(pool.idle(), 1, "it is kept");
            until("cleared", || !server.state().suspect).await;
            host.mute.store(!answers, Ordering::SeqCst);
            let next = lease(&pool, &server, "u").await.unwrap();
            assert_eq!(next.thread_id == id, answers);
            pool.give_back(next);
            assert_eq!((pool.idle(), server.sessions()), (1, 1));
        }
        checks.abort();
        keeping.abort();
    });
}
