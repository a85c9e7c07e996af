//! A server that has come back is not met by everybody at once, and nobody fails for that.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant, sleep};
use upstream::{LeaseError, Pool, Server};

use crate::host;
use crate::play::until;
use crate::sessions_share_connections::{State, lease, on_a_worker, pool_of};

const MANY: usize = 400;
/// As many as are opened at the same time.
const TURNS: usize = 64;

fn statements(pool: &Rc<Pool<State>>, server: &Arc<Server>) -> Vec<JoinHandle<Result<(), LeaseError>>> {
    let statement = || {
        let (pool, server) = (Rc::clone(pool), Arc::clone(server));
        spawn_local(async move {
            let connection = lease(&pool, &server, "u").await?;
            pool.give_back(connection);
            Ok(())
        })
    };
    (0..MANY).map(|_| statement()).collect()
}

/// Longer than a test waits for anything.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(120);

/// For how long the gateway makes anybody wait for a turn.
const PATIENCE: Duration = Duration::from_secs(1);

/// Who had to wait for too long goes on: a run that took longer, on a machine that is busy with something
/// else, shows nothing and is done again. `attempt` gives back how many have come to the server.
fn until_quick(attempt: impl Fn() -> usize) {
    for _ in 0..20 {
        let begun = Instant::now();
        let came = attempt();
        if came < 2 * TURNS {
            return;
        }
        assert!(
            begun.elapsed() >= PATIENCE,
            "{came} came in {:?}",
            begun.elapsed()
        );
    }
    panic!("no run of 20 took less than {PATIENCE:?}");
}

#[test]
fn and_share_what_the_first_have_opened() {
    until_quick(|| {
        let host = host::start();
        host.stuck.store(true, Ordering::SeqCst);
        on_a_worker(async {
            let (pool, server) = pool_of(&host, |config| config.pool.adaptive = false);
            let since = Instant::now();
            let waiting = statements(&pool, &server);
            let begun = || host.begun.load(Ordering::SeqCst);
            until("all that may have begun", || begun() >= TURNS).await;
            sleep(Duration::from_millis(50)).await;
            assert!(begun() == TURNS || since.elapsed() >= PATIENCE, "{}", begun());
            host.stuck.store(false, Ordering::SeqCst);
            for statement in waiting {
                statement.await.unwrap().unwrap();
            }
            assert_eq!((pool.busy(), server.sessions() as usize), (0, pool.idle()));
        });
        host.logins()
    });
}

#[test]
fn but_not_for_long_where_logins_are_slow() {
    let host = host::start();
    host.stuck.store(true, Ordering::SeqCst);
    on_a_worker(async {
        // Whoever would wait for a login to end would wait for this.
        let (pool, server) = pool_of(&host, |config| {
            config.login_timeout = LOGIN_TIMEOUT;
            config.pool.adaptive = false;
        });
        let begun = Instant::now();
        let waiting = statements(&pool, &server);
        until("all have begun", || host.begun.load(Ordering::SeqCst) == MANY).await;
        assert!(begun.elapsed() < LOGIN_TIMEOUT);
        // Who has gone leaves nothing behind.
        waiting.iter().for_each(JoinHandle::abort);
        until("nothing is left", || server.sessions() == 0).await;
        host.stuck.store(false, Ordering::SeqCst);
        drop(lease(&pool, &server, "u").await.unwrap());
    });
}

#[test]
fn and_hear_at_once_that_it_is_gone_again() {
    until_quick(|| {
        let host = host::start();
        host.silent.store(true, Ordering::SeqCst);
        on_a_worker(async {
            let (pool, server) = pool_of(&host, |config| {
                config.login_timeout = Duration::from_millis(300);
                config.pool.adaptive = false;
            });
            for statement in statements(&pool, &server) {
                statement.await.unwrap().unwrap_err();
            }
            assert_eq!((pool.busy(), pool.idle(), server.sessions()), (0, 0, 0));
        });
        host.came.load(Ordering::SeqCst)
    });
}
