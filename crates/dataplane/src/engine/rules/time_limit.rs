//! `timeout`: a statement that takes too long is killed on its server, by the account that watches the
//! servers.
//!
//! The server then ends the statement with the error of an interruption, in whose place the client gets that
//! of a statement that took too long. If the kill does not work, the connection is given up with whatever is
//! going on there.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::sleep;
use tracing::warn;
use upstream::Cluster;

use crate::control::{Control, Signal};
use crate::engine::client_session::ClientSession;
use crate::engine::kill;

/// Time for a server to end a statement that was killed.
const GRACE: Duration = Duration::from_secs(10);

/// `ER_QUERY_INTERRUPTED`, of either family.
const INTERRUPTED: u16 = 1317;

/// The error that a client is told: `ER_QUERY_TIMEOUT`, and MariaDB's `ER_STATEMENT_TIMEOUT`.
const TOO_LONG: (u16, &[u8; 5]) = (3024, b"HY000");
const TOO_LONG_MARIADB: (u16, &[u8; 5]) = (1969, b"70100");

/// Counts the time of one statement.
pub(crate) struct TimeLimit {
    watch: Rc<Watch>,
    task: AbortHandle,
    is_mariadb: bool,
}

#[derive(Default)]
struct Watch {
    stage: Cell<Stage>,
    shot: Notify,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Running,
    /// The time has passed, and the kill is under way.
    Shooting,
    Shot,
}

impl TimeLimit {
    /// Begins the limit of the statement which is about to be sent, where a rule gives it one.
    pub(crate) fn begin(session: &ClientSession) -> Option<Self> {
        let limit = session.rules.verdict()?.timeout?;
        let watch = Rc::<Watch>::default();
        let control = Rc::clone(&session.control);
        let cluster = Arc::clone(&session.context.listener.cluster);
        let task = spawn_local(Rc::clone(&watch).run(limit, control, cluster));
        Some(Self {
            watch,
            task: task.abort_handle(),
            is_mariadb: session.state.syntax().dialect.is_mariadb(),
        })
    }

    /// Ends the limit with the statement. A kill that is under way must not meet the next one, and a kill
    /// that failed is none of the session's concern any more.
    pub(crate) async fn end(self, control: &Control) {
        if self.watch.stage.get() == Stage::Shooting {
            self.watch.shot.notified().await;
        }
        control.take_back(Signal::StatementTimeout);
    }

    /// Changes the error that ends these bytes, if it is that of a statement killed by this.
    pub(crate) fn explain(&self, code: u16, bytes: &mut [u8]) {
        if code == INTERRUPTED && self.watch.stage.get() != Stage::Running {
            let (code, state) = if self.is_mariadb {
                TOO_LONG_MARIADB
            } else {
                TOO_LONG
            };
            change_error(bytes, INTERRUPTED, code, state);
        }
    }
}

impl Drop for TimeLimit {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watch {
    async fn run(self: Rc<Self>, limit: Duration, control: Rc<Control>, cluster: Arc<Cluster>) {
        sleep(limit).await;
        self.stage.set(Stage::Shooting);
        let killed = kill::shoot(Rc::clone(&control), Arc::clone(&cluster)).await;
        self.stage.set(Stage::Shot);
        self.shot.notify_one();
        match killed {
            Ok(()) => sleep(GRACE).await,
            Err(cause) => warn!(
                session = control.id,
                cluster = cluster.name(),
                cause,
                "a statement over its time limit cannot be killed: its connection is given up"
            ),
        }
        control.raise(Signal::StatementTimeout);
    }
}

/// Changes code and state of the error packet that ends `bytes`, which has the code `from`. The words stay
/// the server's, since the packet must keep its length.
fn change_error(bytes: &mut [u8], from: u16, code: u16, state: &[u8; 5]) {
    /// Header, `ff`, code, `#`, state; and the longest of messages (`MYSQL_ERRMSG_SIZE`).
    const HEAD: usize = 4 + 1 + 2 + 1 + 5;
    const MESSAGE_MAX: usize = 512;
    let [low, high] = from.to_le_bytes();
    let end = bytes.len();
    let first = end.saturating_sub(HEAD + MESSAGE_MAX);
    for start in (first..=end.saturating_sub(HEAD)).rev() {
        let Some([a, b, c, _, 0xff, l, h, b'#', ..]) = bytes.get(start..) else {
            continue;
        };
        let len = u32::from_le_bytes([*a, *b, *c, 0]) as usize;
        if len == end - start - 4 && (*l, *h) == (low, high) {
            bytes[start + 5..start + 7].copy_from_slice(&code.to_le_bytes());
            bytes[start + 8..start + 13].copy_from_slice(state);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use mysql_wire::{Capabilities, ErrPacket, write_packet};
    use tokio::task::{LocalSet, yield_now};
    use upstream::ServerId;

    use super::*;
    use crate::control::ServerKey;

    fn interrupted() -> Vec<u8> {
        let error = ErrPacket {
            code: INTERRUPTED,
            sql_state: *b"70100",
            message: b"Query execution was interrupted".to_vec(),
        };
        let (mut payload, mut packet) = (Vec::new(), Vec::new());
        error.encode(&mut payload, Capabilities::PROTOCOL_41);
        write_packet(&mut packet, &mut 7, &payload);
        packet
    }

    #[test]
    fn the_error_behind_rows_gets_another_code() {
        for rows in [&b""[..], b"\x05\0\0\x06\x04rows", &[0xff; 2000]] {
            let mut bytes = [rows, &interrupted()].concat();
            change_error(&mut bytes, INTERRUPTED, 3024, b"HY000");
            assert_eq!(&bytes[..rows.len()], rows);
            let error = ErrPacket::decode(&bytes[rows.len() + 4..], Capabilities::PROTOCOL_41).unwrap();
            assert_eq!((error.code, &error.sql_state), (3024, b"HY000"));
            assert_eq!(error.message, b"Query execution was interrupted");
        }
    }

    #[test]
    fn other_bytes_stay() {
        for bytes in [
            Vec::new(),
            vec![0xff; 12],
            vec![0; 4000],
            interrupted()[1..].to_vec(),
        ] {
            let mut changed = bytes.clone();
            change_error(&mut changed, INTERRUPTED, 3024, b"HY000");
            assert_eq!(changed, bytes);
        }
        let mut other = interrupted();
        let before = other.clone();
        change_error(&mut other, 1205, 3024, b"HY000");
        assert_eq!(other, before);
    }

    #[tokio::test]
    async fn a_session_whose_statement_ended_during_a_kill_in_vain_goes_on() {
        // The server takes connections and greets nobody.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = config::ServerAddress::Host {
            host: "127.0.0.1".to_owned(),
            port: silent.local_addr().unwrap().port(),
        };
        let mut config = config::Cluster::new("main", vec![config::Server::new(address)]);
        config.check.timeout = Duration::from_millis(50);
        let cluster = Cluster::new(config).unwrap();
        let control = Rc::new(Control::new(1, Rc::default()));
        let server = ServerKey {
            cluster: 1,
            server: ServerId(0),
        };
        control.attach_connection(server, 7);
        let test = async {
            let watch = Rc::<Watch>::default();
            let run = Rc::clone(&watch).run(Duration::ZERO, Rc::clone(&control), cluster);
            let limit = TimeLimit {
                watch: Rc::clone(&watch),
                task: spawn_local(run).abort_handle(),
                is_mariadb: false,
            };
            while watch.stage.get() == Stage::Running {
                yield_now().await;
            }
            limit.end(&control).await;
            assert!(watch.stage.get() == Stage::Shot);
            assert_eq!(control.due(true), None);
        };
        LocalSet::new().run_until(test).await;
    }
}
