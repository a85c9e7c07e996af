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

#[test]
fn and_share_what_the_first_have_opened() {
    let host = host::start();
    host.stuck.store(true, Ordering::SeqCst);
    on_a_worker(async {
        let (pool, server) = pool_of(&host, |_| ());
        let waiting = statements(&pool, &server);
        let begun = || host.begun.load(Ordering::SeqCst);
        until("all that may have begun", || begun() >= TURNS).await;
        sleep(Duration::from_millis(50)).await;
        assert_eq!(begun(), TURNS);
        host.stuck.store(false, Ordering::SeqCst);
        for statement in waiting {
            statement.await.unwrap().unwrap();
        }
        assert!(host.logins() < 2 * TURNS, "{} logins", host.logins());
        assert_eq!((pool.busy(), server.sessions() as usize), (0, pool.idle()));
    });
}

#[test]
fn but_not_for_long_where_logins_are_slow() {
    let host = host::start();
    host.stuck.store(true, Ordering::SeqCst);
    on_a_worker(async {
        let (pool, server) = pool_of(&host, |_| ());
        let begun = Instant::now();
        let waiting = statements(&pool, &server);
        until("all have begun", || host.begun.load(Ordering::SeqCst) == MANY).await;
        assert!(begun.elapsed() < Duration::from_secs(5));
        // Who has gone leaves nothing behind.
        waiting.iter().for_each(JoinHandle::abort);
        until("nothing is left", || server.sessions() == 0).await;
        host.stuck.store(false, Ordering::SeqCst);
        drop(lease(&pool, &server, "u").await.unwrap());
    });
}

#[test]
fn and_hear_at_once_that_it_is_gone_again() {
    let host = host::start();
    host.stuck.store(true, Ordering::SeqCst);
    on_a_worker(async {
        let (pool, server) = pool_of(&host, |config| config.login_timeout = Duration::from_millis(700));
        let waiting = statements(&pool, &server);
        until("the first have begun", || {
            host.begun.load(Ordering::SeqCst) >= TURNS
        })
        .await;
        for statement in waiting {
            statement.await.unwrap().unwrap_err();
        }
        let begun = host.begun.load(Ordering::SeqCst);
        assert!(begun < 2 * TURNS, "{begun} logins");
        assert_eq!((pool.busy(), pool.idle(), server.sessions()), (0, 0, 0));
    });
}
