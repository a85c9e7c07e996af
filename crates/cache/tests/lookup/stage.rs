//! A server, a gateway with a cache before it, and clients of both.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use cache::Cache;
use config::Config;
use dataplane::Gateway;
use dataplane::extension::Extension;
use mysql_wire::{Capabilities, Command, Event, ResponseTracker, write_packet};
use net::Peer;
use sandbox::{Kind, Lent, Sandbox, Spec};
use telemetry::Telemetry;
use testkit::scripted::{Client, Identity};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::oneshot;

/// Far above what anything here needs: a busy machine is no failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks: the others have work to do meanwhile.
const POLL: Duration = Duration::from_millis(2);

/// Both kinds of servers, in both modes.
macro_rules! on_all {
    ($($name:ident)*) => { $(mod $name {
        use crate::stage::run;
        #[test] fn mariadb_split() { run(sandbox::Kind::Mariadb, "split", super::$name); }
        #[test] fn mysql_split() { run(sandbox::Kind::Mysql, "split", super::$name); }
        #[test] fn mariadb_session() { run(sandbox::Kind::Mariadb, "session", super::$name); }
        #[test] fn mysql_session() { run(sandbox::Kind::Mysql, "session", super::$name); }
    })* };
}
pub(crate) use on_all;

pub(crate) struct Stage {
    gateway: Arc<Gateway>,
    telemetry: Arc<Telemetry>,
    control: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
    pub(crate) sandbox: Lent,
    pub(crate) kind: Kind,
    pub(crate) is_split: bool,
}

const SCHEMA: &str = "
    CREATE TABLE test.t (
        id INT PRIMARY KEY, c VARCHAR(200), tiny TINYINT UNSIGNED, small SMALLINT, medium MEDIUMINT, big BIGINT UNSIGNED,
        zero INT(6) ZEROFILL, d DECIMAL(20,4), f FLOAT, g DOUBLE, b BIT(12), y YEAR, da DATE, t TIME(3), dt DATETIME(6),
        ts TIMESTAMP(2) NULL, ch CHAR(10), bi BINARY(6), vb VARBINARY(20), te TEXT, bl BLOB, e ENUM('x','y','ü'),
        s SET('a','b','c'), l VARCHAR(20) CHARACTER SET latin1) CHARACTER SET utf8mb4;
    INSERT INTO test.t VALUES
        (1, 'one', 255, -5, 70000, 18446744073709551615, 42, -12345.6789, 1.5, -2.25e100, b'101', 2024, '2024-02-29', '-12:34:56.789',
         '2024-02-29 12:34:56.000001', '2024-02-29 12:34:56.12', 'ch', 'bin', 'vb', REPEAT('te', 200), 'bl', 'ü', 'a,c', 'é'),
        (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
         NULL, NULL, NULL),
        (-3, '', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '1000-01-01', 0, '9999-12-31', '1970-01-02', '', '', '', '', '', 'x', '', '');
    CREATE TABLE test.k (a VARCHAR(30) COLLATE utf8mb4_general_ci, b BIGINT, v VARCHAR(30), PRIMARY KEY (a, b)) CHARACTER SET utf8mb4;
    INSERT INTO test.k VALUES ('Key', 7, 'composite'), ('ä', 7, 'umlaut');
    CREATE TABLE test.bytes (k VARBINARY(9) PRIMARY KEY, v VARCHAR(9)) CHARACTER SET utf8mb4;
    INSERT INTO test.bytes VALUES (X'E9', 'latin1'), (X'C3A9', 'utf8'), ('e', 'ascii');
    CREATE TABLE test.older (k VARCHAR(9) CHARACTER SET latin1 COLLATE latin1_bin PRIMARY KEY, v INT);
    INSERT INTO test.older VALUES ('e', 1), (_latin1 X'E9', 2);
    CREATE TABLE test.u (id INT PRIMARY KEY, x INT);
    INSERT INTO test.u VALUES (1, 1), (2, 2);
    CREATE TABLE test.many (id INT PRIMARY KEY, v VARCHAR(6000)) CHARACTER SET latin1;
    INSERT INTO test.many SELECT a.d + 8 * b.d + 64 * c.d, REPEAT(CHAR(97 + a.d), 5000 + a.d + b.d + c.d) FROM
        (SELECT 0 d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7) a,
        (SELECT 0 d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7) b,
        (SELECT 0 d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7) c;
    CREATE TABLE test.wide (id INT PRIMARY KEY, v MEDIUMTEXT) CHARACTER SET latin1;
    CREATE DATABASE other;
    CREATE TABLE other.t (id INT PRIMARY KEY, c VARCHAR(9));
    INSERT INTO other.t VALUES (1, 'other');
    CREATE FUNCTION test.fr() RETURNS INT READS SQL DATA RETURN FOUND_ROWS();
    CREATE FUNCTION test.rc() RETURNS INT READS SQL DATA RETURN ROW_COUNT();
    CREATE PROCEDURE test.what_it_found() SELECT FOUND_ROWS();
    CREATE USER app@'%' IDENTIFIED BY 'secret';
    GRANT ALL ON test.* TO app@'%';
    GRANT ALL ON other.* TO app@'%';
    CREATE USER few@'%' IDENTIFIED BY 'secret';
    GRANT SELECT (id, c) ON test.t TO few@'%';
    CREATE USER wide@'%' IDENTIFIED BY 'secret';
    GRANT SELECT ON *.* TO wide@'%';
    GRANT SELECT ON test.u TO wide@'%';
";

/// What a stage is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) kind: Kind,
    pub(crate) mode: &'static str,
    pub(crate) consistency: &'static str,
    /// Servers: the first is the primary of the others.
    pub(crate) nodes: usize,
    /// Options of `[cache]`.
    pub(crate) cache: &'static str,
    /// Whole `[[rule]]` tables.
    pub(crate) rules: &'static str,
}

const MAPPINGS: &str = r#"
    [[cache.mapping]]
    name = "t"
    kind = "hash"
    table = "test.t"
    key = ["id"]
    value = ["*"]
    [[cache.mapping]]
    name = "many"
    kind = "string"
    table = "test.many"
    key = ["id"]
    value = ["v"]
    [[cache.mapping]]
    name = "wide"
    kind = "string"
    table = "test.wide"
    key = ["id"]
    value = ["v"]
    [[cache.mapping]]
    name = "k"
    kind = "hash"
    table = "test.k"
    key = ["a", "b"]
    value = ["v"]
    [[cache.mapping]]
    name = "older"
    kind = "hash"
    table = "test.older"
    key = ["k"]
    value = ["v"]
    [[cache.mapping]]
    name = "bytes"
    kind = "hash"
    table = "test.bytes"
    key = ["k"]
    value = ["v"]
"#;

fn configuration(sandbox: &Sandbox, setup: Setup) -> String {
    let Setup {
        mode,
        consistency,
        cache,
        rules,
        ..
    } = setup;
    let servers: Vec<_> = sandbox
        .nodes()
        .iter()
        .map(|node| format!("\"{}\"", node.address()))
        .collect();
    format!(
        r#"
            workers = 1
            [[listener]]
            bind = "127.0.0.1:0"
            mode = "{mode}"
            cluster = "main"
            point_lookups = true
            compression = true
            lookup_consistency = "{consistency}"
            [[user]]
            name = "app"
            password = "secret"
            [[user]]
            name = "few"
            password = "secret"
            [[user]]
            name = "wide"
            password = "secret"
            [cluster.main]
            servers = [{servers}]
            {topology}
            check = {{ interval = "200ms", rise = 1 }}
            monitor = {{ user = "{user}", password = "{password}", interval = "200ms" }}
            [cache]
            cluster = "main"
            strong_wait = "20s"
            {cache}
            account = {{ user = "{user}", password = "{password}" }}
            {MAPPINGS}
            {rules}
            "#,
        servers = servers.join(", "),
        topology = match servers.len() {
            1 => "",
            _ => "topology = \"replication\"",
        },
        user = sandbox::USER,
        password = sandbox::PASSWORD,
    )
}

pub(crate) fn run(kind: Kind, mode: &'static str, test: fn(&Stage)) {
    run_at(kind, mode, "strong", test);
}

pub(crate) fn run_at(kind: Kind, mode: &'static str, consistency: &'static str, test: fn(&Stage)) {
    let setup = Setup {
        kind,
        mode,
        consistency,
        nodes: 1,
        cache: "",
        rules: "",
    };
    run_with(setup, test);
}

pub(crate) fn run_with(setup: Setup, test: fn(&Stage)) {
    test(&Stage::new(setup));
}

impl Stage {
    fn new(setup: Setup) -> Self {
        let Setup {
            kind, mode, nodes, ..
        } = setup;
        let spec = Spec::new(kind)
            .nodes(nodes)
            .option("--log-bin-trust-function-creators=1");
        let sandbox = Sandbox::lend(spec).unwrap();
        sandbox.primary().sql(SCHEMA).unwrap();
        let since = Instant::now();
        for replica in &sandbox.nodes()[1..] {
            // The last statement of the schema.
            let is_there = || {
                let grants = replica.sql("SHOW GRANTS FOR wide@'%'");
                grants.is_ok_and(|grants| grants.contains("`u`"))
            };
            while !is_there() {
                assert!(since.elapsed() < PATIENCE, "the replica does not follow");
                sleep(POLL);
            }
        }
        let text = configuration(&sandbox, setup);
        let config = Config::parse(&text, "lookup.toml").unwrap_or_else(|errors| panic!("{errors}"));
        let telemetry = Telemetry::new(config.workers, |byte| Command(byte).name());
        let build = {
            let (config, telemetry) = (config.cache.clone().unwrap(), Arc::clone(&telemetry));
            move |clusters: &[Arc<upstream::Cluster>]| {
                let cache = Cache::start(&config, Arc::clone(&clusters[0]), &telemetry);
                cache
                    .map(|cache| cache as Arc<dyn Extension>)
                    .map_err(|error| error.to_string())
            }
        };
        let gateway = Gateway::start(&config, Arc::clone(&telemetry), Some(Box::new(build))).unwrap();
        telemetry.register(Arc::clone(&gateway) as _);
        let (stop, stopped) = oneshot::channel();
        let running = Arc::clone(&gateway);
        let control = std::thread::spawn(move || {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .build_local(LocalOptions::default())
                .unwrap();
            runtime.block_on(async {
                tokio::select! {
                    () = running.run() => {}
                    _ = stopped => {}
                }
            });
        });
        let stage = Self {
            gateway,
            telemetry,
            control: Some((stop, control)),
            sandbox,
            kind,
            is_split: mode == "split",
        };
        // A mapping that is served later has all lookups learned anew.
        stage.until(|| stage.serves_all());
        stage
    }

    fn serves_all(&self) -> bool {
        let text = self.telemetry.encode();
        let is_served = |line: &&str| {
            line.starts_with("forebay_cache_mapping_state{") && line.ends_with("state=\"serving\"} 1")
        };
        text.lines().filter(is_served).count() == MAPPINGS.matches("[[cache.mapping]]").count()
    }

    fn gateway_address(&self) -> SocketAddr {
        match self.gateway.listeners()[0].address {
            Peer::Tcp(address) => address,
            Peer::Unix => panic!("not a Unix socket"),
        }
    }

    /// A session on the server itself, and one through the gateway.
    pub(crate) fn both(&self, user: &str, capabilities: Capabilities) -> (Session, Session) {
        let direct = SocketAddr::from(([127, 0, 0, 1], self.sandbox.primary().port()));
        let of = |address| Session::new(self.kind, address, user, capabilities);
        (of(direct), of(self.gateway_address()))
    }

    /// The sum of a counter.
    pub(crate) fn count(&self, metric: &str) -> u64 {
        let text = self.telemetry.encode();
        let lines = text.lines().filter(|line| line.starts_with(metric));
        lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum::<f64>() as u64
    }

    pub(crate) fn answered(&self) -> u64 {
        self.count("forebay_lookups_answered_total")
    }

    /// Asks the gateway until it answers from memory. Whatever it says on the way has to be what is expected.
    pub(crate) fn until_answered(&self, session: &mut Session, request: &[u8], expected: &[u8]) {
        let (before, since) = (self.answered(), Instant::now());
        while self.answered() == before {
            let said = session.ask(request);
            assert!(said == expected, "{}", differs(request, expected, &said));
            assert!(
                since.elapsed() < PATIENCE,
                "{} is not answered from memory: {}",
                shown(request),
                self.left()
            );
            sleep(POLL);
        }
    }

    /// Waits until something is so.
    pub(crate) fn until(&self, mut what: impl FnMut() -> bool) {
        let since = Instant::now();
        while !what() {
            assert!(
                since.elapsed() < PATIENCE,
                "it did not come true: {}",
                self.left()
            );
            sleep(POLL);
        }
    }

    /// Why lookups were left to the server.
    pub(crate) fn left(&self) -> String {
        let text = self.telemetry.encode();
        let lines = text
            .lines()
            .filter(|line| line.contains("lookups") || line.contains("forebay_cache_mappings"));
        lines
            .filter(|line| !line.starts_with('#') && !line.ends_with(" 0"))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.gateway.stop_now();
        self.gateway.join();
        if let Some((stop, control)) = self.control.take() {
            drop(stop);
            let _ = control.join();
        }
    }
}

pub(crate) fn differs(request: &[u8], expected: &[u8], said: &[u8]) -> String {
    format!(
        "{}\n  server:  {}\n  gateway: {}",
        shown(request),
        expected.escape_ascii(),
        said.escape_ascii()
    )
}

pub(crate) fn shown(request: &[u8]) -> String {
    request[1..].escape_ascii().to_string()
}

/// A client, with its runtime.
pub(crate) struct Session {
    runtime: tokio::runtime::Runtime,
    client: Client,
}

pub(crate) fn query(text: &str) -> Vec<u8> {
    [&[Command::QUERY.0], text.as_bytes()].concat()
}

impl Session {
    fn new(kind: Kind, address: SocketAddr, user: &str, capabilities: Capabilities) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let mut identity = Identity {
            user: user.as_bytes().to_vec(),
            database: Some(b"test".to_vec()),
            ..Identity::default()
        };
        identity.capabilities.insert(capabilities);
        if kind == Kind::Mysql {
            identity.plugin = "caching_sha2_password";
        }
        let since = Instant::now();
        let client = loop {
            match runtime.block_on(Client::connect(address, &identity)) {
                Ok(client) => break client,
                // The gateway has not seen its server yet.
                Err(error) => assert!(since.elapsed() < PATIENCE, "{error}"),
            }
            sleep(POLL);
        };
        Self { runtime, client }
    }

    /// All packets of the answer to a command.
    pub(crate) fn ask(&mut self, request: &[u8]) -> Vec<u8> {
        let Self { runtime, client } = self;
        runtime.block_on(async {
            client.send(request).await.unwrap();
            let mut tracker = ResponseTracker::new(client.negotiated());
            tracker.begin(Command(request[0]));
            let (mut bytes, mut seen) = (Vec::new(), 0);
            while tracker.in_progress() {
                let packet = client.receive().await;
                let packet = packet.unwrap_or_else(|error| panic!("{}: {error}", shown(request)));
                let mut sequence = packet.sequence;
                write_packet(&mut bytes, &mut sequence, &packet.payload);
                let progress = tracker.advance(&bytes[seen..]).unwrap();
                seen += progress.consumed;
                if let Event::Done(_) = progress.event {
                    break;
                }
            }
            bytes
        })
    }

    pub(crate) fn sql(&mut self, text: &str) -> Vec<u8> {
        self.ask(&query(text))
    }

    /// COM_QUIT, which is answered by the end of the connection.
    pub(crate) fn quit(mut self) {
        let Self { runtime, client } = &mut self;
        runtime.block_on(async {
            client.send(&[Command::QUIT.0]).await.unwrap();
            assert!(client.receive().await.is_err());
        });
    }

    /// The id of a prepared statement.
    pub(crate) fn prepare(&mut self, text: &str) -> u32 {
        let answer = self.ask(&[&[Command::STMT_PREPARE.0], text.as_bytes()].concat());
        assert_eq!(answer[4], 0, "{text}: {}", answer.escape_ascii());
        u32::from_le_bytes(answer[5..9].try_into().unwrap())
    }
}

/// COM_STMT_EXECUTE with these parameters: types, bits for NULL, values.
pub(crate) fn execute(id: u32, types: &[u8], nulls: &[u8], values: &[u8], sends_types: bool) -> Vec<u8> {
    let mut request = vec![Command::STMT_EXECUTE.0];
    request.extend(id.to_le_bytes());
    request.extend([0, 1, 0, 0, 0]);
    if !types.is_empty() {
        request.extend(nulls);
        request.push(u8::from(sends_types));
        request.extend(if sends_types { types } else { &[] });
        request.extend(values);
    }
    request
}
