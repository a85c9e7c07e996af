//! A gateway in front of scripted servers, whose commands are observed.
//!
//! The servers answer a statement with a text in it, `SELECT 'ROWS 2'` or `INSERT INTO t VALUES ('CUT')`, as
//! [`Script`] answers that text: so a statement is what it looks like to the gateway, and the test says what
//! becomes of it. What begins with `ONCE` is so at the first time only, and at all others one row; with
//! `TWICE` at the second time only. Any other
//! statement gets an OK. What says `'TRX'` behind that (`SELECT 'ROWS 2', 'TRX'`), or begins a transaction,
//! is answered as in a transaction: the servers know none of their own. What says `'WARNS'` has warnings.
//!
//! Lookups of listeners with `point_lookups` are answered by [`Memory`].

use std::collections::HashSet;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dataplane::Gateway;
use dataplane::extension::{
    Extension, Lookups, ProtocolConnection, ProtocolEnd, WorkerExtension, WorkerHandle,
};
use dataplane::finished::{End, Finished, Observer};
use mysql_wire::{Capabilities, Command, ErrPacket, OkPacket, StatusFlags};
use sql_class::Class;
use testkit::scripted::{Client, Identity, Reply, Script, Seen, Server, ServerScript};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};

use super::memory::Memory;
use crate::gateway::RunningGateway;

/// What servers and clients of these tests can.
pub(crate) const CAPABILITIES: Capabilities = Capabilities(
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

/// What a listener with `point_lookups` needs. Nobody reads it: see [`Memory`].
pub(crate) const CACHE: &str = r#"
[cache]
cluster = "main"
account = { user = "app", password = "secret" }
[[cache.mapping]]
name = "remembered"
kind = "string"
table = "test.remembered"
key = ["id"]
value = ["c"]
"#;

/// A gateway with one listener and its servers.
pub(crate) struct Stage {
    address: SocketAddr,
    ended: UnboundedReceiver<Ended>,
    servers: Vec<Option<Server>>,
    /// Statements that any server has had.
    seen: Arc<Mutex<HashSet<Vec<u8>>>>,
    names: Vec<String>,
    configuration: String,
    gateway: RunningGateway,
}

/// What is not as in most tests.
#[derive(Clone, Copy)]
pub(crate) struct Setup<'a> {
    pub(crate) mode: &'a str,
    pub(crate) servers: usize,
    /// Of each server, behind a comma.
    pub(crate) options: &'a str,
    /// Of the checks, behind a comma.
    pub(crate) check: &'a str,
    /// Lines of the listener.
    pub(crate) listener: &'a str,
    /// Lines of the cluster.
    pub(crate) cluster: &'a str,
    /// What comes last in the configuration. `{0}` is the address of the first server, and so on.
    pub(crate) tables: &'a str,
}

impl Default for Setup<'_> {
    /// A primary and a replica in mode `split`. Reads are `eventual`: the servers have no positions, and so
    /// all reads behind a write would be the primary's.
    fn default() -> Self {
        Self {
            mode: "split",
            servers: 2,
            options: "",
            check: "",
            listener: "read_consistency = \"eventual\"",
            cluster: "",
            tables: "",
        }
    }
}

impl Setup<'_> {
    /// Two servers whose sessions have lookups.
    pub(crate) fn with_lookups(mode: &str) -> Setup<'_> {
        Setup {
            mode,
            listener: "point_lookups = true",
            tables: CACHE,
            ..Setup::default()
        }
    }
}

/// Where a server has had a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    /// 0 is the primary.
    pub(crate) server: usize,
    /// In the order in which the server's connections were opened.
    pub(crate) connection: usize,
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
    /// Those of queue, lease, server and relay are all of it, where a server had it.
    pub(crate) times_add_up: bool,
}

impl Stage {
    /// The first server is the primary. `options`: of each server. `tables`: what comes last in the
    /// configuration.
    pub(crate) async fn start(mode: &str, servers: usize, options: &str, tables: &str) -> Self {
        let setup = Setup {
            mode,
            servers,
            options,
            listener: "",
            tables,
            ..Setup::default()
        };
        Self::set(setup).await
    }

    /// A primary and a replica under these rules.
    pub(crate) async fn with_rules(tables: &str) -> Self {
        let setup = Setup {
            tables,
            ..Setup::default()
        };
        Self::set(setup).await
    }

    pub(crate) async fn set(setup: Setup<'_>) -> Self {
        let mut servers = Vec::new();
        let seen = Arc::<Mutex<HashSet<_>>>::default();
        for _ in 0..setup.servers {
            servers.push(Server::start(script(Arc::clone(&seen))).await.unwrap());
        }
        let names: Vec<String> = servers
            .iter()
            .map(|server| server.address().to_string())
            .collect();
        let configuration = configuration(setup, &names);
        let (sender, ended) = unbounded_channel();
        let gateway = RunningGateway::start(&configuration, Some(Arc::new(Observing(Mutex::new(sender)))));
        Self {
            address: gateway.addresses()[0],
            ended,
            servers: servers.into_iter().map(Some).collect(),
            seen,
            names,
            configuration,
            gateway,
        }
    }

    pub(crate) fn gateway(&self) -> &Arc<Gateway> {
        self.gateway.gateway()
    }

    /// Another gateway by the same configuration.
    pub(crate) fn another(&self) -> RunningGateway {
        RunningGateway::start(&self.configuration, None)
    }

    /// Another gateway, with these lines more for the cluster.
    pub(crate) fn another_with(&self, cluster: &str) -> RunningGateway {
        let more = format!("[cluster.main]\n{cluster}\n");
        RunningGateway::start(&self.configuration.replace("[cluster.main]\n", &more), None)
    }

    /// What `Ended::server` has for a server.
    pub(crate) fn name(&self, server: usize) -> Option<String> {
        Some(self.names[server].clone())
    }

    /// A server is gone, with all of its connections. It may be asked no more.
    pub(crate) fn remove(&mut self, server: usize) {
        self.servers[server] = None;
    }

    /// A server that is gone comes back, once the gateway has found out; what it was sent is forgotten.
    pub(crate) async fn bring_back(&mut self, server: usize) {
        let address = self.names[server].parse().unwrap();
        let back = async {
            while self.gateway.takes_statements(&self.names[server]) {
                sleep(Duration::from_millis(1)).await;
            }
            loop {
                // The one before may still be listening.
                match Server::start_at(address, script(Arc::clone(&self.seen))).await {
                    Ok(server) => return server,
                    Err(_) => sleep(Duration::from_millis(1)).await,
                }
            }
        };
        let back = timeout(Duration::from_secs(10), back).await.unwrap();
        self.servers[server] = Some(back);
    }

    /// The requests with this text in them that servers have had, those of the first server first: each
    /// with its place.
    pub(crate) fn sent(&self, text: &str) -> Vec<(Place, String)> {
        let mut sent = Vec::new();
        for (server, running) in self.servers.iter().enumerate() {
            let seen = running.as_ref().map(Server::seen).unwrap_or_default();
            for (connection, seen) in seen.iter().enumerate() {
                let place = Place { server, connection };
                sent.extend(with(seen, text).map(|request| (place, request)));
            }
        }
        sent
    }

    /// Where the one request with this text was sent to.
    pub(crate) fn place(&self, text: &str) -> Place {
        let sent = self.sent(text);
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent[0].0
    }

    /// All requests of a connection, command byte first.
    pub(crate) fn requests(&self, place: Place) -> Vec<Vec<u8>> {
        let seen = self.servers[place.server].as_ref().unwrap().seen();
        seen[place.connection].requests.clone()
    }

    /// The connections over which somebody has logged in to a server so far.
    pub(crate) fn logins(&self, server: usize) -> usize {
        let seen = self.servers[server].as_ref().unwrap().seen();
        seen.iter().filter(|seen| seen.logged_in).count()
    }

    /// Waits until a server has had as many requests with this text.
    pub(crate) async fn has_come(&self, server: usize, text: &str, count: usize) {
        let has = |seen: &[Seen]| seen.iter().flat_map(|seen| with(seen, text)).count() >= count;
        let running = self.servers[server].as_ref().unwrap();
        assert!(running.wait_until(has).await.is_some(), "{:?}", self.sent(""));
    }

    /// Waits until a connection has ended. Returns what it has had last, and why it ended: nothing behind
    /// COM_QUIT.
    pub(crate) async fn has_ended(&self, place: Place) -> (Vec<u8>, String) {
        let running = self.servers[place.server].as_ref().unwrap();
        let seen = running
            .wait_until(|seen| seen[place.connection].end.is_some())
            .await
            .unwrap();
        let seen = &seen[place.connection];
        (seen.requests.last().unwrap().clone(), seen.end.clone().unwrap())
    }

    /// What the gateway and a server can on a connection between them.
    pub(crate) fn negotiated(&self, place: Place) -> Capabilities {
        self.servers[place.server].as_ref().unwrap().seen()[place.connection].negotiated
    }

    pub(crate) async fn connect(&self) -> Session {
        self.connect_as("app").await
    }

    pub(crate) async fn connect_as(&self, user: &str) -> Session {
        self.log_in(user, CAPABILITIES).await
    }

    /// A client that cannot do all that the servers can.
    pub(crate) async fn connect_with(&self, capabilities: Capabilities) -> Session {
        self.log_in("app", capabilities).await
    }

    async fn log_in(&self, user: &str, capabilities: Capabilities) -> Session {
        let identity = Identity {
            user: user.into(),
            capabilities,
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
        // Behind columns, for clients that know it.
        let mut has_other_end = !self.0.negotiated().contains(Capabilities::DEPRECATE_EOF);
        loop {
            let Ok(packet) = self.0.receive().await else {
                return Err(0);
            };
            match packet.payload[0] {
                0xfe if std::mem::take(&mut has_other_end) => {}
                0xfe => return Ok(packets - usize::from(first.payload[0])),
                ErrPacket::HEADER => return Err(code(&packet.payload)),
                _ => packets += 1,
            }
        }
    }

    /// The rows of an answer of the gateway's own, to a `FOREBAY` statement.
    pub(crate) async fn rows(&mut self, text: &str) -> Vec<Vec<String>> {
        self.send(Command::QUERY, text.as_bytes()).await;
        let columns = self.0.receive().await.unwrap().payload[0];
        let mut rows = Vec::new();
        for at in 0.. {
            let payload = self.0.receive().await.unwrap().payload;
            match payload[0] {
                0xfe => break,
                _ if at >= columns => rows.push(texts(&payload)),
                _ => {}
            }
        }
        rows
    }

    /// Why the session keeps its connection.
    pub(crate) async fn pins(&mut self) -> Vec<String> {
        let rows = self.rows("FOREBAY SHOW PINS").await;
        rows.into_iter().map(|mut row| row.swap_remove(0)).collect()
    }

    /// The number that the gateway gave the session.
    pub(crate) fn id(&self) -> u32 {
        self.0.greeting().connection_id
    }

    pub(crate) async fn reset(&mut self) {
        self.send(Command::RESET_CONNECTION, b"").await;
        assert_eq!(self.answer().await, Ok(0));
    }

    /// Executes a prepared statement with one parameter, a BIGINT.
    pub(crate) async fn execute_with(&mut self, id: u32, value: u64) -> Told {
        let rest = [
            &id.to_le_bytes()[..],
            &[0, 1, 0, 0, 0, 0, 1, 8, 0],
            &value.to_le_bytes(),
        ]
        .concat();
        self.send(Command::STMT_EXECUTE, &rest).await;
        self.answer().await
    }

    /// Executes a prepared statement without parameters.
    pub(crate) async fn execute(&mut self, id: u32) -> Told {
        let rest = [&id.to_le_bytes()[..], &[0, 1, 0, 0, 0]].concat();
        self.send(Command::STMT_EXECUTE, &rest).await;
        self.answer().await
    }

    /// Prepares a statement with fewer than 250 parameters that has one column or none. Returns its id.
    pub(crate) async fn prepare(&mut self, text: &str) -> u32 {
        self.send(Command::STMT_PREPARE, text.as_bytes()).await;
        let head = self.0.receive().await.unwrap().payload;
        assert_eq!(head[0], 0, "{text}: {}", String::from_utf8_lossy(&head));
        for _ in 0..head[5] + head[7] {
            self.0.receive().await.unwrap();
        }
        u32::from_le_bytes(head[1..5].try_into().unwrap())
    }
}

fn code(payload: &[u8]) -> u16 {
    ErrPacket::decode(payload, CAPABILITIES).unwrap().code
}

/// The texts of a row, none of them longer than 250 bytes.
fn texts(row: &[u8]) -> Vec<String> {
    let mut texts = Vec::new();
    let mut rest = row;
    while let Some((&length, tail)) = rest.split_first() {
        assert!(length < 251, "{row:?}");
        let (text, tail) = tail.split_at(usize::from(length));
        texts.push(String::from_utf8(text.to_vec()).unwrap());
        rest = tail;
    }
    texts
}

/// The requests of a connection that have this text.
fn with<'a>(seen: &'a Seen, text: &'a str) -> impl Iterator<Item = String> + 'a {
    let requests = seen.requests.iter().filter_map(|request| request.get(1..));
    let texts = requests.map(|request| String::from_utf8_lossy(request).into_owned());
    texts.filter(move |request| request.contains(text))
}

fn configuration(setup: Setup<'_>, names: &[String]) -> String {
    let (mode, options) = (setup.mode, setup.options);
    let servers = names.iter().enumerate().map(|(at, address)| {
        let role = if at == 0 { "primary" } else { "replica" };
        format!("{{ address = \"{address}\", role = \"{role}\" {options} }}")
    });
    let servers = servers.collect::<Vec<_>>().join(", ");
    let named = |text: String, (at, name): (usize, &String)| text.replace(&format!("{{{at}}}"), name);
    let tables = names.iter().enumerate().fold(setup.tables.to_owned(), named);
    let (check, listener, cluster) = (setup.check, setup.listener, setup.cluster);
    let interval = match check.contains("interval") {
        true => "",
        false => "interval = \"1h\", ",
    };
    format!(
        r#"
        workers = 1
        [[listener]]
        login_delay_max = "0s"
        bind = "127.0.0.1:0"
        cluster = "main"
        mode = "{mode}"
        {listener}
        [[user]]
        name = "app"
        password = "secret"
        [cluster.main]
        servers = [{servers}]
        check = {{ {interval}rise = 1 {check} }}
        {cluster}
        {tables}
        "#
    )
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
    if command == Command::STMT_PREPARE.0 && text.ends_with(b"'LOST ONCE'") {
        let is_first = seen.lock().unwrap().insert(text.to_vec());
        return is_first
            .then(|| Script::new(CAPABILITIES).reply(&[&[Command::QUERY.0], &b"CUT"[..]].concat()));
    }
    if command == Command::STMT_PREPARE.0 && text.ends_with(b"'SILENT THEN'") {
        let is_first = seen.lock().unwrap().insert(text.to_vec());
        return (!is_first).then_some(Reply::Silence);
    }
    if command == Command::STMT_PREPARE.0 && text.ends_with(b"'SILENT TWICE'") {
        let mut seen = seen.lock().unwrap();
        let is_second = !seen.insert(text.to_vec()) && seen.insert([text, b"twice"].concat());
        return is_second.then_some(Reply::Silence);
    }
    if command != Command::QUERY.0 {
        return None;
    }
    let has = |part: &[u8]| text.windows(part.len()).any(|window| window == part);
    if has(b"performance_schema.") {
        return Some(variables());
    }
    let mut said = text.split(|byte| *byte == b'\'').nth(1).unwrap_or(b"OK");
    if let Some(once) = said.strip_prefix(b"ONCE ") {
        let is_first = seen.lock().unwrap().insert(text.to_vec());
        said = if is_first { once } else { b"ROWS 1" };
    }
    if let Some(twice) = said.strip_prefix(b"TWICE ") {
        let mut seen = seen.lock().unwrap();
        let is_first = seen.insert(text.to_vec());
        let is_second = !is_first && seen.insert([text, b"twice"].concat());
        said = if is_second { twice } else { b"ROWS 1" };
    }
    let mut reply = Script::new(CAPABILITIES).reply(&[&[command], said].concat());
    let begins = text.starts_with(b"BEGIN") || text.starts_with(b"START TRANSACTION");
    if let Reply::Payloads(payloads) = &mut reply
        && let Some(end) = payloads.last_mut()
        && !has(b"'WARNS'")
    {
        as_here(end, begins || has(b"'TRX'"), CAPABILITIES);
    }
    Some(reply)
}

/// An end of an answer without the warning and the id that the script has: a session would hold its
/// connection for them. `capabilities`: the client's, DEPRECATE_EOF among them.
pub(crate) fn as_here(end: &mut Vec<u8>, is_in_transaction: bool, capabilities: Capabilities) {
    let mut ok = match end[0] {
        0 | 0xfe => OkPacket::decode(end, capabilities).unwrap(),
        _ => return,
    };
    (ok.warnings, ok.last_insert_id) = (0, 0);
    if is_in_transaction {
        ok.status = ok.status | StatusFlags::IN_TRANS;
    }
    let is_of_rows = end[0] == 0xfe;
    end.clear();
    match is_of_rows {
        true => ok.encode_as_eof(end, capabilities),
        false => ok.encode(end, capabilities),
    }
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
        Rc::new(OnWorker {
            sender: self.0.lock().unwrap().clone(),
            memory: Rc::default(),
        })
    }
}

struct OnWorker {
    sender: UnboundedSender<Ended>,
    memory: Rc<Memory>,
}

struct Watcher(UnboundedSender<Ended>);

impl WorkerExtension for OnWorker {
    fn serve(&self, _visit: ProtocolConnection) -> Pin<Box<dyn Future<Output = ProtocolEnd> + '_>> {
        unreachable!("no listener of another protocol")
    }

    fn observers(&self) -> Vec<Rc<dyn Observer>> {
        vec![Rc::new(Watcher(self.sender.clone()))]
    }

    fn lookups(&self, _listener: &config::Listener) -> Option<Rc<dyn Lookups>> {
        Some(Rc::clone(&self.memory) as Rc<dyn Lookups>)
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
            times_add_up: {
                let sum =
                    finished.queue_time + finished.lease_time + finished.server_time + finished.relay_time;
                let expected = if finished.server.is_some() {
                    finished.total
                } else {
                    Duration::ZERO
                };
                sum == expected && finished.total > Duration::ZERO
            },
        };
        // The test may be over.
        let _ = self.0.send(ended);
    }
}
