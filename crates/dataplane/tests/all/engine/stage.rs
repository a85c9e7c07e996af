//! A gateway in front of scripted servers, whose commands are observed.
//!
//! The servers answer a statement with a text in it, `SELECT 'ROWS 2'` or `INSERT INTO t VALUES ('CUT')`,
//! as [`Script`] answers that text: so a statement is what it looks like to the gateway, and the test says
//! what becomes of it. What begins with `ONCE` is so at the first time only, and at all others one row;
//! with `TWICE` at the second time only. Any other statement gets an OK. What says `'TRX'` behind that
//! (`SELECT 'ROWS 2', 'TRX'`), or begins a transaction, is answered as in a transaction: the servers know
//! none of their own. What says `'WARNS'` has warnings, and what says `'MAKES 7'` has made that id. A server
//! closes the connection right behind the OK to what says `'GONE'`. What says `'UNTIL KILLED'` is under way
//! until somebody kills a statement. An answer to `'TWO ENDS'` has another OK behind it. Behind a statement
//! with `'NO KILLS'` no server answers a `KILL` any more; behind one with `'RIGHTS'` every account may kill
//! whom it likes. To prepare what ends with `'NO ROOM'` is refused (1461) by a server that closes the
//! connection then. An execution whose last parameter is [`CUT_ONCE`] is cut at the first time, and each bulk
//! execution is refused by [`NO_WRITES`].
//!
//! Servers of a setup that `remembers` know what a session has set and its transactions, too. Those of one
//! with a `replication` follow each other: see [`Replication`].
//!
//! Lookups of listeners with `point_lookups` are answered by [`Memory`].

use std::collections::HashSet;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dataplane::Gateway;
use dataplane::extension::{
    Extension, Lookups, ProtocolConnection, ProtocolEnd, WorkerExtension, WorkerHandle,
};
use dataplane::finished::{CopyLimits, End, Finished, Observer};
use mysql_wire::{Capabilities, Command, ErrPacket, OkPacket, StatusFlags, write_packet};
use sql_class::Class;
use testkit::lossy_link::LossyLink;
use testkit::scripted::{
    self, Client, ClientError, Identity, Reply, Script, Seen, Server, ServerScript, Special,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};

use super::memory::Memory;
use super::replication::Replication;
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

/// Longest wait for anything that should happen at once; a busy machine is no failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A parameter by which an execution is lost with its connection, once.
pub(crate) const CUT_ONCE: u64 = 0x6365_7473_6e6f_7421;

/// The words of a server that takes no writes (any more).
pub(crate) const NO_WRITES: &str = "The server is running with the --read-only option";

/// What a new connection to MySQL 8.4 shows of its variables, where somebody asks for them.
const VARIABLES: [[&str; 2]; 16] = [
    ["autocommit", "ON"],
    ["character_set_client", "utf8mb4"],
    ["character_set_connection", "utf8mb4"],
    ["character_set_results", "utf8mb4"],
    ["collation_connection", "utf8mb4_general_ci"],
    ["foreign_key_checks", "ON"],
    ["group_concat_max_len", "1024"],
    ["lc_time_names", "en_US"],
    ["net_write_timeout", "60"],
    ["sort_buffer_size", "262144"],
    ["sql_mode", "STRICT_TRANS_TABLES"],
    ["time_zone", "SYSTEM"],
    ["transaction_isolation", "REPEATABLE-READ"],
    ["transaction_read_only", "OFF"],
    ["unique_checks", "ON"],
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

/// The cluster of a setup with a `replication`.
const REPLICATES: &str = r#"
topology = "replication"
monitor = { user = "app", password = "secret", interval = "50ms", timeout = "1m" }
"#;

/// A gateway with one listener and its servers.
pub(crate) struct Stage {
    pub(crate) address: SocketAddr,
    ended: UnboundedReceiver<Ended>,
    servers: Vec<Option<Server>>,
    /// In front of each server, where the setup `is_linked`.
    links: Vec<LossyLink>,
    /// Statements that any server has had.
    seen: Arc<Mutex<HashSet<Vec<u8>>>>,
    names: Vec<String>,
    capabilities: Capabilities,
    remembers: bool,
    replication: Option<Replication>,
    configuration: String,
    observing: Arc<dyn Extension>,
    gateway: RunningGateway,
}

/// What is not as in most tests.
#[derive(Clone, Copy)]
pub(crate) struct Setup<'a> {
    pub(crate) mode: &'a str,
    pub(crate) servers: usize,
    /// Of each server, behind a comma.
    pub(crate) options: &'a str,
    /// The same, where servers differ: one for each.
    pub(crate) each: &'a [&'a str],
    /// Of the checks, behind a comma.
    pub(crate) check: &'a str,
    /// Lines of the listener.
    pub(crate) listener: &'a str,
    /// Lines of the cluster.
    pub(crate) cluster: &'a str,
    /// Lines in front of all tables.
    pub(crate) top: &'a str,
    /// What servers can.
    pub(crate) capabilities: Capabilities,
    /// They remember what a session sets and how its transactions are, and tell it: see
    /// `testkit::scripted::is_of_state`.
    pub(crate) remembers: bool,
    /// One of them takes so long for each read of rows.
    pub(crate) slow: Option<(usize, Duration)>,
    /// They replicate, and the gateway watches how.
    pub(crate) replication: Option<&'a Replication>,
    /// The gateway comes to each server over a link of its own.
    pub(crate) is_linked: bool,
    /// What comes last in the configuration. `{0}` is the address of the first server, and so on.
    pub(crate) tables: &'a str,
}

/// A primary and a replica in mode `split`. Reads are `eventual`: the servers have no positions, and so all
/// reads behind a write would be the primary's.
pub(crate) const USUAL: Setup<'static> = Setup {
    mode: "split",
    servers: 2,
    options: "",
    each: &[],
    check: "",
    listener: "read_consistency = \"eventual\"",
    cluster: "",
    top: "",
    capabilities: CAPABILITIES,
    remembers: false,
    slow: None,
    replication: None,
    is_linked: false,
    tables: "",
};

impl Default for Setup<'_> {
    fn default() -> Self {
        USUAL
    }
}

impl Setup<'_> {
    /// A server that remembers, with one connection for all sessions.
    pub(crate) fn one_connection() -> Setup<'static> {
        Setup {
            servers: 1,
            options: ", max_connections = 1",
            cluster: "queue_timeout = \"1m\"",
            remembers: true,
            ..Setup::default()
        }
    }

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
    /// The schema and the collation that the login has named.
    pub(crate) login: (Option<Vec<u8>>, u8),
    pub(crate) resent: u32,
    pub(crate) rows: u64,
    pub(crate) affected_rows: u64,
    pub(crate) bytes: (u64, u64),
    pub(crate) error: Option<u16>,
    /// Packets of files that the client has sent for it.
    pub(crate) files: Vec<u8>,
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
        for at in 0..setup.servers {
            let node = setup.replication.map(|replication| (replication.clone(), at));
            let mut script = script(setup.capabilities, setup.remembers, node, Arc::clone(&seen));
            if let Some((_, pace)) = setup.slow.filter(|(slow, _)| *slow == at) {
                script.special = script.special.map(|special| slowly(special, pace));
            }
            let server = Server::start(script).await.unwrap();
            if let Some(replication) = setup.replication {
                replication.listens(at, server.address().port());
            }
            servers.push(server);
        }
        let mut links = Vec::new();
        for server in servers.iter().filter(|_| setup.is_linked) {
            links.push(LossyLink::start(server.address()).await.unwrap());
        }
        let addresses: Vec<SocketAddr> = match setup.is_linked {
            true => links.iter().map(LossyLink::address).collect(),
            false => servers.iter().map(Server::address).collect(),
        };
        let names: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        let configuration = configuration(setup, &names);
        let (sender, ended) = unbounded_channel();
        let observing: Arc<dyn Extension> = Arc::new(Observing(Mutex::new(sender)));
        let gateway = RunningGateway::start(&configuration, Some(Arc::clone(&observing)));
        let stage = Self {
            address: gateway.addresses()[0],
            ended,
            servers: servers.into_iter().map(Some).collect(),
            links,
            seen,
            names,
            capabilities: setup.capabilities,
            remembers: setup.remembers,
            replication: setup.replication.cloned(),
            configuration,
            observing,
            gateway,
        };
        let all_are_up = async {
            for name in &stage.names {
                while !stage.gateway.takes_statements(name) {
                    sleep(Duration::from_millis(1)).await;
                }
            }
        };
        timeout(PATIENCE, all_are_up).await.unwrap();
        if setup.replication.is_some() {
            stage.knows(0, setup.servers - 1).await;
        }
        stage
    }

    /// From here on every server answers the gateway's own `COMMIT` as [`Script`] answers this.
    pub(crate) fn answer_commits(&self, statement: &str) {
        let answer = [OF_COMMITS, statement.as_bytes()].concat();
        self.seen.lock().unwrap().insert(answer);
    }

    /// Waits until the gateway knows who is the primary, and so many replicas.
    pub(crate) async fn knows(&self, primary: usize, replicas: usize) {
        let server = format!("server={:?}", self.names[primary]);
        self.until("the roles are known", |stage| {
            let is_primary = stage.metric("forebay_server_role", &[&server, "role=\"primary\""]);
            let others = stage.metric("forebay_server_role", &["role=\"replica\""]);
            (is_primary, others) == (1.0, replicas as f64)
        })
        .await;
    }

    /// The first server goes, and was the primary: waits until the gateway knows of none.
    pub(crate) async fn loses_its_primary(&mut self) {
        self.remove(0);
        self.until("the primary is lost", |stage| {
            stage.metric("forebay_server_role", &["role=\"primary\""]) == 0.0
        })
        .await;
    }

    /// Waits until so many sessions wait for this.
    pub(crate) async fn waits(&self, count: usize, what: &str) {
        let label = format!("waits_for={what:?}");
        self.until(&format!("{count} wait for {what}"), |stage| {
            stage.metric("forebay_sessions_waiting", &[&label]) == count as f64
        })
        .await;
    }

    pub(crate) fn gateway(&self) -> &Arc<Gateway> {
        self.gateway.gateway()
    }

    /// Another gateway by the same configuration.
    pub(crate) fn another(&self) -> RunningGateway {
        RunningGateway::start(&self.configuration, None)
    }

    /// Another gateway by the same configuration, whose commands are observed, too.
    pub(crate) fn another_that_is_observed(&self) -> RunningGateway {
        RunningGateway::start(&self.configuration, Some(Arc::clone(&self.observing)))
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

    /// The link in front of a server.
    pub(crate) fn link(&self, server: usize) -> &LossyLink {
        &self.links[server]
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
                let node = self.replication.clone().map(|replication| (replication, server));
                let script = script(self.capabilities, self.remembers, node, Arc::clone(&self.seen));
                match Server::start_at(address, script).await {
                    Ok(server) => return server,
                    Err(_) => sleep(Duration::from_millis(1)).await,
                }
            }
        };
        let back = timeout(PATIENCE, back).await.unwrap();
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

    /// All requests of all connections of a server, connection by connection.
    pub(crate) fn all_requests(&self, server: usize) -> Vec<Vec<u8>> {
        let seen = self.servers[server].as_ref().unwrap().seen();
        seen.into_iter().flat_map(|seen| seen.requests).collect()
    }

    /// How many connections a server has had.
    pub(crate) fn connections(&self, server: usize) -> usize {
        self.servers[server].as_ref().unwrap().seen().len()
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
        self.log_in(user, CAPABILITIES, None).await
    }

    /// A client that cannot do all that the servers can.
    pub(crate) async fn connect_with(&self, capabilities: Capabilities) -> Session {
        self.log_in("app", capabilities, None).await
    }

    /// In this schema from the start.
    pub(crate) async fn connect_to(&self, schema: &str) -> Session {
        self.log_in("app", CAPABILITIES, Some(schema)).await
    }

    /// The error that a login is refused with; none where it is not.
    pub(crate) async fn login_error(&self, user: &str) -> Option<u16> {
        let identity = Identity {
            user: user.into(),
            capabilities: CAPABILITIES,
            ..Identity::default()
        };
        match Client::connect(self.address, &identity).await {
            Ok(_) => None,
            Err(ClientError::Refused(packet)) => Some(packet.code),
            Err(error) => panic!("{error}"),
        }
    }

    async fn log_in(&self, user: &str, capabilities: Capabilities, schema: Option<&str>) -> Session {
        let identity = Identity {
            user: user.into(),
            capabilities,
            database: schema.map(Into::into),
            ..Identity::default()
        };
        Session(Client::connect(self.address, &identity).await.unwrap())
    }

    /// The next command that has ended. It is the only one: nobody else's comes in between.
    pub(crate) async fn next_end(&mut self) -> Ended {
        timeout(PATIENCE, self.ended.recv()).await.unwrap().unwrap()
    }

    /// How many of so many executions of a statement each server has had.
    pub(crate) async fn spread(
        &self,
        session: &mut Session,
        text: &str,
        is_prepared: bool,
        times: usize,
    ) -> Vec<usize> {
        let id = match is_prepared {
            true => Some(session.prepare(text).await),
            false => None,
        };
        let before = self.had(text, is_prepared);
        for _ in 0..times {
            let told = match id {
                Some(id) => session.execute(id).await,
                None => session.query(text).await,
            };
            assert!(told.is_ok(), "{text}: {told:?}");
        }
        let counts = self.had(text, is_prepared).into_iter().zip(before);
        counts.map(|(now, before)| now - before).collect()
    }

    /// How often each server has had this text, or any execution.
    pub(crate) fn had(&self, text: &str, is_prepared: bool) -> Vec<usize> {
        let is_it = |request: &&Vec<u8>| match is_prepared {
            true => request[0] == Command::STMT_EXECUTE.0,
            false => request[1..] == *text.as_bytes(),
        };
        let had = |server: &Option<Server>| {
            let seen = server.as_ref().map(Server::seen).unwrap_or_default();
            seen.iter().flat_map(|seen| &seen.requests).filter(is_it).count()
        };
        self.servers.iter().map(had).collect()
    }

    /// A metric's sum over the series that have these labels.
    pub(crate) fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        testkit::metrics::sum(&self.gateway.metrics(), name, labels)
    }

    /// Waits until something is so.
    pub(crate) async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !is_so(self) {
            assert!(began.elapsed() < PATIENCE, "not so: {what}");
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// The gateway reads its configuration again, with other tables at its end.
    pub(crate) fn reload(&self, before: &str, after: &str) {
        assert!(self.configuration.contains(before), "{}", self.configuration);
        self.gateway.reload(&self.configuration.replace(before, after));
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

    /// What `FOREBAY EXPLAIN` says under this name of a statement.
    pub(crate) async fn explain(&mut self, text: &str, name: &str) -> Option<String> {
        let lines = self.rows(&format!("FOREBAY EXPLAIN {text}")).await;
        let line = lines.into_iter().find(|line| line[0] == name);
        line.map(|mut line| line.swap_remove(1))
    }

    /// The code and the words of an error that a statement is answered with.
    pub(crate) async fn refused(&mut self, text: &str) -> (u16, String) {
        self.send(Command::QUERY, text.as_bytes()).await;
        self.error().await
    }

    /// The code and the words of the error that comes.
    pub(crate) async fn error(&mut self) -> (u16, String) {
        let packet = self.0.receive().await.unwrap().payload;
        let error = ErrPacket::decode(&packet, CAPABILITIES).unwrap();
        (error.code, String::from_utf8(error.message).unwrap())
    }

    /// The first value that a statement with rows of text is answered with.
    pub(crate) async fn value(&mut self, text: &str) -> String {
        self.rows(text).await[0][0].clone()
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

/// The texts of a row, none of them longer than 64 KiB.
fn texts(row: &[u8]) -> Vec<String> {
    let mut texts = Vec::new();
    let mut rest = row;
    while let Some((&length, tail)) = rest.split_first() {
        if length == 0xfb {
            texts.push("NULL".to_owned());
            rest = tail;
            continue;
        }
        assert!(length < 251 || length == 0xfc, "{row:?}");
        let (length, tail) = match length {
            0xfc => (u16::from_le_bytes([tail[0], tail[1]]), &tail[2..]),
            length => (u16::from(length), tail),
        };
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
        let role = match (at, setup.replication) {
            (_, Some(_)) => "",
            (0, None) => ", role = \"primary\"",
            (_, None) => ", role = \"replica\"",
        };
        let own = setup.each.get(at).unwrap_or(&"");
        format!("{{ address = \"{address}\" {role} {options} {own} }}")
    });
    let servers = servers.collect::<Vec<_>>().join(", ");
    let named = |text: String, (at, name): (usize, &String)| text.replace(&format!("{{{at}}}"), name);
    let tables = names.iter().enumerate().fold(setup.tables.to_owned(), named);
    let (check, listener, cluster, top) = (setup.check, setup.listener, setup.cluster, setup.top);
    let topology = match setup.replication {
        Some(_) => REPLICATES,
        None => "",
    };
    let interval = match check.contains("interval") {
        true => "",
        false => "interval = \"1h\", ",
    };
    // The first check decides, and a busy machine is no failure.
    let limit = match check.contains("timeout") {
        true => "",
        false => "timeout = \"1m\", ",
    };
    format!(
        r#"
        workers = 1
        {top}
        [[listener]]
        login_delay_max = "0s"
        login_timeout = "1m"
        bind = "127.0.0.1:0"
        cluster = "main"
        mode = "{mode}"
        {listener}
        [[user]]
        name = "app"
        password = "secret"
        [cluster.main]
        servers = [{servers}]
        login_timeout = "1m"
        check = {{ {interval}{limit}rise = 1 {check} }}
        {topology}
        {cluster}
        {tables}
        "#
    )
}

/// `node`: which of those that replicate. `seen`: the statements that any server has had.
fn script(
    capabilities: Capabilities,
    remembers: bool,
    node: Option<(Replication, usize)>,
    seen: Arc<Mutex<HashSet<Vec<u8>>>>,
) -> ServerScript {
    ServerScript {
        capabilities,
        special: Some(Arc::new(move |request| {
            let of_replication = node.as_ref();
            let of_replication = of_replication.and_then(|(all, at)| all.reply(*at, request));
            if of_replication.is_some() {
                return of_replication;
            }
            let is_of_state = remembers && request.get(1..).is_some_and(scripted::is_of_state);
            (!is_of_state).then(|| special(request, &seen)).flatten()
        })),
        remembers: remembers.then_some(&VARIABLES),
        ..ServerScript::default()
    }
}

/// Behind it is how the gateway's own `COMMIT` is answered.
const OF_COMMITS: &[u8] = b"COMMITS ARE ANSWERED AS ";

/// The same, and each read of rows so much later. There is one at a time.
fn slowly(special: Special, pace: Duration) -> Special {
    let begun = Mutex::new(None::<Instant>);
    Arc::new(move |request: &[u8]| {
        if !request.get(1..).unwrap_or_default().starts_with(b"SELECT 'ROWS") {
            return special(request);
        }
        let mut begun = begun.lock().unwrap();
        if begun.get_or_insert_with(Instant::now).elapsed() < pace {
            return Some(Reply::Later);
        }
        *begun = None;
        special(request)
    })
}

fn special(request: &[u8], seen: &Mutex<HashSet<Vec<u8>>>) -> Option<Reply> {
    let (&command, text) = request.split_first()?;
    if command == Command::STMT_BULK_EXECUTE.0 {
        return Some(Reply::Payloads(vec![error(1290, *b"HY000", NO_WRITES)]));
    }
    if command == Command::STMT_EXECUTE.0 && text.ends_with(&CUT_ONCE.to_le_bytes()) {
        let is_first = seen.lock().unwrap().insert(b"CUT ONCE".to_vec());
        return is_first.then(|| Reply::Cut(Vec::new()));
    }
    if command == Command::STMT_PREPARE.0 && text.ends_with(b"'LOST ONCE'") {
        let is_first = seen.lock().unwrap().insert(text.to_vec());
        return is_first
            .then(|| Script::new(CAPABILITIES).reply(&[&[Command::QUERY.0], &b"CUT"[..]].concat()));
    }
    if command == Command::STMT_PREPARE.0 && text.ends_with(b"'LOST THEN'") {
        let is_first = seen.lock().unwrap().insert(text.to_vec());
        return (!is_first).then_some(Reply::Cut(Vec::new()));
    }
    if command == Command::STMT_PREPARE.0 && text.ends_with(b"'NO ROOM'") {
        let (mut packet, mut sequence) = (Vec::new(), 1);
        let error = error(
            1461,
            *b"42000",
            "Can't create more than max_prepared_stmt_count statements",
        );
        write_packet(&mut packet, &mut sequence, &error);
        return Some(Reply::Cut(packet));
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
    if text.starts_with(b"KILL ") && seen.lock().unwrap().contains(&b"NO KILLS"[..]) {
        return Some(Reply::Silence);
    }
    if text == b"SHOW GRANTS" && seen.lock().unwrap().contains(&b"RIGHTS"[..]) {
        let grant = "GRANT CONNECTION_ADMIN, SYSTEM_USER ON *.* TO `other`@`%`";
        return Some(rows(["Grants"], [[grant]]));
    }
    let of_commits = seen.lock().unwrap().iter().find_map(|seen| {
        let answer = seen.strip_prefix(OF_COMMITS)?;
        text.starts_with(b"COMMIT AND NO CHAIN").then(|| answer.to_vec())
    });
    let said = text.split(|byte| *byte == b'\'').nth(1).unwrap_or(b"OK");
    let mut said = of_commits.as_deref().unwrap_or(said);
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
    if text.starts_with(b"KILL QUERY ") {
        seen.lock().unwrap().insert(b"A KILL".to_vec());
    }
    if said == b"UNTIL KILLED" {
        let is_killed = seen.lock().unwrap().remove(&b"A KILL"[..]);
        return Some(if is_killed { interrupted() } else { Reply::Later });
    }
    if said == b"TWO ENDS" {
        let ok = vec![0, 0, 0, 2, 0, 0, 0];
        return Some(Reply::Payloads(vec![ok.clone(), ok]));
    }
    if [&b"NO KILLS"[..], b"RIGHTS"].contains(&said) {
        seen.lock().unwrap().insert(said.to_vec());
    }
    let mut reply = Script::new(CAPABILITIES).reply(&[&[command], said].concat());
    let begins = text.to_ascii_uppercase();
    let reads_only = begins.starts_with(b"START TRANSACTION READ ONLY");
    let begins = begins.starts_with(b"BEGIN") || begins.starts_with(b"START TRANSACTION");
    if let Reply::Payloads(payloads) = &mut reply
        && let Some(end) = payloads.last_mut()
        && !has(b"'WARNS'")
    {
        as_here(end, begins || has(b"'TRX'"), CAPABILITIES);
        if said == b"MAKES 7"
            && let Ok(mut ok) = OkPacket::decode(end, CAPABILITIES)
        {
            ok.last_insert_id = 7;
            end.clear();
            ok.encode(end, CAPABILITIES);
        }
        if reads_only && let Ok(mut ok) = OkPacket::decode(end, CAPABILITIES) {
            ok.status = ok.status | StatusFlags::IN_TRANS_READONLY;
            end.clear();
            ok.encode(end, CAPABILITIES);
        }
    }
    match reply {
        Reply::Payloads(payloads) if said == b"GONE" => {
            let (mut packets, mut sequence) = (Vec::new(), 1);
            payloads
                .iter()
                .for_each(|payload| write_packet(&mut packets, &mut sequence, payload));
            Some(Reply::Cut(packets))
        }
        reply => Some(reply),
    }
}

/// The end of a statement that was killed.
fn interrupted() -> Reply {
    Reply::Payloads(vec![error(1317, *b"70100", "Query execution was interrupted")])
}

fn error(code: u16, sql_state: [u8; 5], message: &str) -> Vec<u8> {
    let mut payload = Vec::new();
    let error = ErrPacket {
        code,
        sql_state,
        message: message.into(),
    };
    error.encode(&mut payload, CAPABILITIES);
    payload
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
    rows(["VARIABLE_NAME", "VARIABLE_VALUE"], VARIABLES)
}

/// Rows of texts.
fn rows<const N: usize>(columns: [&str; N], rows: impl IntoIterator<Item = [&'static str; N]>) -> Reply {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let column = |name: &str| {
        let names = ["def", "", "", "", name, name].map(text).concat();
        [names, vec![0x0c, 45, 0, 0, 4, 0, 0, 0xfd, 0, 0, 0, 0, 0]].concat()
    };
    let mut payloads = vec![vec![N as u8]];
    payloads.extend(columns.map(column));
    payloads.extend(rows.into_iter().map(|row| row.map(text).concat()));
    payloads.push(vec![0xfe, 0, 0, 2, 0, 0, 0]);
    Reply::Payloads(payloads)
}

/// Passes on what ends.
struct Observing(Mutex<UnboundedSender<Ended>>);

impl Extension for Observing {
    fn on_worker(&self, _worker: &WorkerHandle) -> Rc<dyn WorkerExtension> {
        Rc::new(WorkerObserving {
            sender: self.0.lock().unwrap().clone(),
            memory: Rc::default(),
        })
    }
}

struct WorkerObserving {
    sender: UnboundedSender<Ended>,
    memory: Rc<Memory>,
}

struct Watcher(UnboundedSender<Ended>);

impl WorkerExtension for WorkerObserving {
    fn serve(&self, _connection: ProtocolConnection) -> Pin<Box<dyn Future<Output = ProtocolEnd> + '_>> {
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
    fn copies(&self, _session: u32) -> Option<CopyLimits> {
        Some(CopyLimits {
            command: 0,
            answer: 0,
            files: 1 << 10,
            room: None,
        })
    }

    fn finished(&self, finished: &Finished<'_>) {
        let ended = Ended {
            command: finished.command,
            class: finished.class,
            digest: finished.digest,
            end: finished.end,
            server: finished.server.map(str::to_owned),
            user: finished.user.to_owned(),
            login: (
                finished.login_schema.map(<[u8]>::to_vec),
                finished.login_collation,
            ),
            resent: finished.resent,
            rows: finished.rows,
            affected_rows: finished.affected_rows,
            bytes: (finished.bytes_from_client, finished.bytes_to_client),
            error: finished.error,
            files: {
                let copied = finished.copied.borrow();
                let files = copied.as_ref().and_then(|copied| copied.files());
                files.unwrap_or_default().to_vec()
            },
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
