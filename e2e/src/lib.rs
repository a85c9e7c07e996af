//! The real gateway in front of real servers: what the scenarios in `tests/` share.
//!
//! A scenario starts servers ([`servers`]), a gateway in front of them ([`Setup`]), connects clients
//! ([`client`]) and waits for conditions ([`eventually`]), never for time to pass. Everything panics where it
//! fails: this is code of tests.
//!
//! `FOREBAY_BIN` names the gateway's program (`script/test` builds and sets it; else `target/debug/forebay`
//! is taken), `FOREBAY_E2E_SERVER` the servers: `mariadb` (default) or `mysql`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "code of tests")]

pub mod authentication;
pub mod client;
mod gateway;
pub mod link;
pub mod packets;
pub mod raw;
mod setup;
pub mod traffic;

use std::thread;
use std::time::{Duration, Instant};

use sandbox::{Kind, Lent, Node, Sandbox, Spec};

pub use gateway::{Gateway, program};
pub use setup::Setup;

/// Longest wait for anything that should happen at once; a busy machine is no failure.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Shortest and longest pause between two looks at a condition. The pause grows with the time of a look.
const POLL: Duration = Duration::from_millis(20);
const POLL_MAX: Duration = Duration::from_millis(200);

/// The kind of server that this run is about.
#[must_use]
pub fn kind() -> Kind {
    match std::env::var("FOREBAY_E2E_SERVER").as_deref() {
        Err(_) | Ok("mariadb") => Kind::Mariadb,
        Ok("mysql") => Kind::Mysql,
        Ok(other) => panic!("FOREBAY_E2E_SERVER={other}: there are mariadb and mysql"),
    }
}

/// `count` servers that know nothing of one another.
#[must_use]
pub fn servers(count: usize) -> Vec<Lent> {
    servers_with(count, &[])
}

/// The same with server options.
#[must_use]
pub fn servers_with(count: usize, options: &[&str]) -> Vec<Lent> {
    let start = || {
        let spec = options
            .iter()
            .fold(Spec::new(kind()), |spec, option| spec.option(*option));
        Sandbox::lend(spec).unwrap()
    };
    thread::scope(|scope| {
        let starting: Vec<_> = (0..count).map(|_| scope.spawn(start)).collect();
        starting
            .into_iter()
            .map(|sandbox| sandbox.join().unwrap())
            .collect()
    })
}

/// The server that listens on `port`.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn server_at(servers: &[Lent], port: u16) -> &Node {
    servers
        .iter()
        .map(|server| server.primary())
        .find(|node| node.port() == port)
        .expect("a server on that port")
}

/// Looks again and again until `condition` holds.
///
/// # Panics
/// After [`PATIENCE`], with `what`.
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    loop {
        let look = Instant::now();
        if condition().await {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "this did not come true: {what}");
        // Some looks start a client: the machine is there for others twice as long.
        tokio::time::sleep((look.elapsed() * 2).clamp(POLL, POLL_MAX)).await;
    }
}
