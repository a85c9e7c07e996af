//! A gateway in front of scripted servers, whose commands are observed.
//!
//! The servers answer a statement with a text in it, `SELECT 'ROWS 2'` or `INSERT INTO t VALUES ('CUT')`, as
//! [`Script`] answers that text: so a statement is what it looks like to the gateway, and the test says what
//! becomes of it. What begins with `ONCE` is so at the first time only, and at all others one row. Any other
//! statement gets an OK.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dataplane::extension::{Departure, Extension, ProtocolConnection, WorkerExtension, WorkerHandle};
use dataplane::finished::{End, Finished, Observer};
use mysql_wire::{Capabilities, Command, ErrPacket};
use sql_class::Class;
use testkit::scripted::{Client, Identity, Reply, Script, Server, ServerScript};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use crate::gateway::RunningGateway;

/// What servers and clients of these tests can.
const CAPABILITIES: Capabilities = Capabilities(
    Capabilities::PROTOCOL_41.0
        | Capabilities::LONG_PASSWORD.0
        | Capabilities::LONG_FLAG.0
        | Capabilities::TRANSACTIONS.0
        | Capabilities::SECURE_CONNECTION.0
        | Capabilities::PLUGIN_AUTH.0
        | Capabilities::CONNECT_WITH_DB.0
        | Capabilities::MULTI_RESULTS.0
        | Capabilities::PS_MULTI_RESULTS.0
        | Capabilities::SESSION_TRACK.0
        | Capabilities::DEPRECATE_EOF.0,
);

/// What a new connection to MySQL 8.4 shows of its variables, where somebody asks for them.
const VARIABLES: [[&str; 2]; 10] = [
    ["autocommit", "ON"],
    ["character_set_client", "utf8mb4"],
    ["character_set_connection", "utf8mb4"],
    ["character_set_results", "utf8mb4"],
    ["collation_connection", "utf8mb4_general_ci"],
    ["sql_mode", "STRICT_TRANS_TABLES"],
    ["time_zone", "SYSTEM"],
    ["transaction_isolation", "REPEATABLE-READ"],
    ["transaction_read_only", "OFF"],
    ["wait_timeout", "28800"],
];

/// A gateway with one listener and its servers.
pub(crate) struct Stage {
    address: SocketAddr,
    ended: UnboundedReceiver<Ended>,
    _servers: Vec<Server>,
    _gateway: RunningGateway,
}

/// A command that has ended, as an observer saw it.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    pub(crate) command: Command,
    pub(crate) class: Option<Class>,
    pub(crate) digest: u64,
    pub(crate) end: End,
    pub(crate) server: Option<String>,
    pub(crate) user: String,
    pub(crate) resent: u32,
    pub(crate) rows: u64,
    pub(crate) affected_rows: u64,
    pub(crate) bytes: (u64, u64),
    pub(crate) error: Option<u16>,
    pub(crate) times_add_up: bool,
}

impl Stage {
    /// The first server is the primary. `options`: of each server. `tables`: what comes last in the
    /// configuration.
    pub(crate) async fn start(mode: &str, servers: usize, options: &str, tables: &str) -> Self {
        let mut running = Vec::new();
        let seen = Arc::default();
        for _ in 0..servers {
            running.push(Server::start(script(Arc::clone(&seen))).await.unwrap());
        }
        let addresses = running.iter().enumerate().map(|(at, server)| {
            let (role, address) = (if at == 0 { "primary" } else { "replica" }, server.address());
            format!("{{ address = \"{address}\", role = \"{role}\" {options} }}")
        });
        let addresses: Vec<String> = addresses.collect();
        let configuration = format!(
            r#"
            workers = 1
            [[listener]]
            login_delay_max = "0s"
            bind = "127.0.0.1:0"
            cluster = "main"
            mode = "{mode}"
            [[user]]
            name = "app"
            password = "secret"
            [cluster.main]
            servers = [{}]
            check = {{ interval = "1h", rise = 1 }}
            {tables}
            "#,
            addresses.join(", ")
        );
        let (sender, ended) = unbounded_channel();
        let gateway = RunningGateway::start(&configuration, Some(Arc::new(Observing(Mutex::new(sender)))));
        Self {
            address: gateway.addresses()[0],
            ended,
            _servers: running,
            _gateway: gateway,
        }
    }

    pub(crate) async fn connect(&self) -> Session {
        self.connect_as("app").await
    }

    pub(crate) async fn connect_as(&self, user: &str) -> Session {
        let identity = Identity {
            user: user.into(),
            capabilities: CAPABILITIES,
            ..Identity::default()
        };
        Session(Client::connect(self.address, &identity).await.unwrap())
    }

    /// The next command that has ended. It is the only one: nobody else's comes in between.
    pub(crate) async fn next_end(&mut self) -> Ended {
        timeout(Duration::from_secs(10), self.ended.recv())
            .await
            .unwrap()
            .unwrap()
    }

    /// No more have ended than were asked for.
    pub(crate) async fn no_more(&mut self) {
        let more = timeout(Duration::from_millis(50), self.ended.recv()).await;
        assert!(more.is_err(), "{more:?}");
    }
}

/// A client that reads answers as they come.
pub(crate) struct Session(pub(crate) Client);

/// What a client was told: the rows of a result set, or an error.
pub(crate) type Told = Result<usize, u16>;

impl Session {
    pub(crate) async fn query(&mut self, text: &str) -> Told {
        self.send(Command::QUERY, text.as_bytes()).await;
        self.answer().await
    }

    pub(crate) async fn send(&mut self, command: Command, rest: &[u8]) {
        self.0.send(&[&[command.0], rest].concat()).await.unwrap();
    }

    /// An OK, an error or a result set. The end of a connection is the error 0.
    pub(crate) async fn answer(&mut self) -> Told {
        let Ok(first) = self.0.receive().await else {
            return Err(0);
        };
        match first.payload[0] {
            0 => return Ok(0),
            ErrPacket::HEADER => return Err(code(&first.payload)),
            _ => {}
        }
        let mut packets = 0;
        loop {
            let Ok(packet) = self.0.receive().await else {
                return Err(0);
            };
            match packet.payload[0] {
                0xfe => return Ok(packets - usize::from(first.payload[0])),
                ErrPacket::HEADER => return Err(code(&packet.payload)),
                _ => packets += 1,
            }
        }
    }

    /// Prepares a statement without parameters that has one column or none. Returns its id.
    pub(crate) async fn prepare(&mut self, text: &str) -> u32 {
        self.send(Command::STMT_PREPARE, text.as_bytes()).await;
        let head = self.0.receive().await.unwrap().payload;
        assert_eq!(head[0], 0, "{head:?}");
        for _ in 0..head[5] {
            self.0.receive().await.unwrap();
        }
        u32::from_le_bytes(head[1..5].try_into().unwrap())
    }
}

fn code(payload: &[u8]) -> u16 {
    ErrPacket::decode(payload, CAPABILITIES).unwrap().code
}

/// `seen`: the statements that any server has had.
fn script(seen: Arc<Mutex<HashSet<Vec<u8>>>>) -> ServerScript {
    ServerScript {
        capabilities: CAPABILITIES,
        special: Some(Arc::new(move |request| special(request, &seen))),
        ..ServerScript::default()
    }
}

fn special(request: &[u8], seen: &Mutex<HashSet<Vec<u8>>>) -> Option<Reply> {
    let (&command, text) = request.split_first()?;
    if command != Command::QUERY.0 {
        return None;
    }
    if text
        .windows(b"performance_schema.".len())
        .any(|part| part == b"performance_schema.")
    {
        return Some(variables());
    }
    let mut parts = text.split(|byte| *byte == b'\'').skip(1);
    let mut said = parts.next()?;
    if let Some(once) = said.strip_prefix(b"ONCE ") {
        let is_first = seen.lock().unwrap().insert(text.to_vec());
        said = if is_first { once } else { b"ROWS 1" };
    }
    let mut reply = Script::new(CAPABILITIES).reply(&[&[command], said].concat());
    // Without the warning that the script has: a session would hold its connection for it.
    if let Reply::Payloads(payloads) = &mut reply
        && let Some([0xfe, .., low, high]) = payloads.last_mut().map(Vec::as_mut_slice)
    {
        (*low, *high) = (0, 0);
    }
    Some(reply)
}

/// The rows of [`VARIABLES`].
fn variables() -> Reply {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let column = |name: &str| {
        let names = ["def", "", "", "", name, name].map(text).concat();
        [names, vec![0x0c, 45, 0, 0, 4, 0, 0, 0xfd, 0, 0, 0, 0, 0]].concat()
    };
    let mut payloads = vec![vec![2], column("VARIABLE_NAME"), column("VARIABLE_VALUE")];
    payloads.extend(VARIABLES.map(|row| row.map(text).concat()));
    payloads.push(vec![0xfe, 0, 0, 2, 0, 0, 0]);
    Reply::Payloads(payloads)
}

/// Passes on what ends.
struct Observing(Mutex<UnboundedSender<Ended>>);

impl Extension for Observing {
    fn on_worker(&self, _worker: &WorkerHandle) -> Rc<dyn WorkerExtension> {
        Rc::new(Watcher(self.0.lock().unwrap().clone()))
    }
}

struct Watcher(UnboundedSender<Ended>);

impl WorkerExtension for Watcher {
    fn serve(&self, _visit: ProtocolConnection) -> Pin<Box<dyn Future<Output = Departure> + '_>> {
        unreachable!("no listener of another protocol")
    }

    fn observers(&self) -> Vec<Rc<dyn Observer>> {
        vec![Rc::new(Self(self.0.clone()))]
    }
}

impl Observer for Watcher {
    fn finished(&self, finished: &Finished<'_>) {
        let ended = Ended {
            command: finished.command,
            class: finished.class,
            digest: finished.digest,
            end: finished.end,
            server: finished.server.map(str::to_owned),
            user: finished.user.to_owned(),
            resent: finished.resent,
            rows: finished.rows,
            affected_rows: finished.affected_rows,
            bytes: (finished.bytes_from_client, finished.bytes_to_client),
            error: finished.error,
            times_add_up: finished.until_sent + finished.at_server <= finished.total
                && finished.total > Duration::ZERO,
        };
        // The test may be over.
        let _ = self.0.send(ended);
    }
}
