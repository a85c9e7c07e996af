//! What the tests share: a primary with two replicas, and gateways in mode `split` in front of them.
//!
//! Reading `@@port` is something that only the primary is trusted with, so every server has a table with its
//! own port in it: [`where_am_i`] asks for it as any read would.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::OnceLock;

use e2e::packets::{Client, Identity};
use e2e::{Gateway, Setup, client, eventually, kind};
use mysql_async::prelude::{FromValue, Queryable};
use mysql_async::{Conn, OptsBuilder};
use mysql_wire::Capabilities;
use sandbox::{DATABASE, Kind, Lent, Node, PASSWORD, Sandbox, Spec, USER};

/// The table with the port of the server it is on.
pub(crate) const WHERE_AM_I: &str = "SELECT port FROM test.where_am_i";

/// Checks of servers that nobody freezes. A server of a busy machine that is late is not down.
pub(crate) const PATIENT_CHECKS: &str = "interval = \"200ms\"\ntimeout = \"20s\"\nrise = 1\nfall = 2";

/// A primary and two replicas for all tests that do them no harm. Each test makes a schema of its own.
pub(crate) fn shared() -> &'static Sandbox {
    static SHARED: OnceLock<Lent> = OnceLock::new();
    SHARED.get_or_init(replicated)
}

/// One server for all tests in which the number of servers plays no part.
pub(crate) fn single() -> &'static Sandbox {
    static SINGLE: OnceLock<Sandbox> = OnceLock::new();
    SINGLE.get_or_init(|| Sandbox::start(Spec::new(kind())).unwrap())
}

/// A primary and two replicas of a test's own. The next test gets them where this one did their processes no
/// harm.
pub(crate) fn replicated() -> Lent {
    let sandbox = Sandbox::lend(Spec::new(kind()).nodes(3)).unwrap();
    tell_ports(&sandbox);
    sandbox
}

/// Gives every server the table with its port, which is not replicated.
pub(crate) fn tell_ports(sandbox: &Sandbox) {
    for node in sandbox.nodes() {
        let statements = format!(
            "SET sql_log_bin = 0; CREATE TABLE where_am_i (port INT); INSERT INTO where_am_i VALUES ({});",
            node.port()
        );
        write_at(node, &statements);
    }
}

/// Statements that write on this server, replica or not.
pub(crate) fn write_at(node: &Node, statements: &str) {
    let (before, after) = match kind() {
        Kind::Mysql if node.index() > 0 => (
            "SET GLOBAL super_read_only = OFF;",
            "SET GLOBAL super_read_only = ON;",
        ),
        _ => ("", ""),
    };
    node.sql(&format!("{before}{statements}{after}")).unwrap();
}

/// An account for `[[user]]`.
pub(crate) fn user(name: &str, password: &str) -> String {
    format!("[[user]]\nname = {name:?}\npassword = {password:?}\n")
}

/// A gateway in front of replicating servers, which are watched closely.
pub(crate) fn split(sandbox: &Sandbox) -> Setup {
    Setup::of_addresses(sandbox.addresses())
        .mode("split")
        .tables(&user(USER, PASSWORD))
        .cluster("topology = \"replication\"")
        .cluster(&monitor())
        .check(PATIENT_CHECKS)
}

/// The account that watches, and how often it looks. A server of a busy machine that is late is not silent.
pub(crate) fn monitor() -> String {
    let account = format!("user = {USER:?}, password = {PASSWORD:?}");
    format!("monitor = {{ {account}, interval = \"100ms\", timeout = \"10s\" }}")
}

/// A gateway in front of one server, over as many connections, all of one worker.
pub(crate) fn narrow(sandbox: &Sandbox, connections: u32) -> Setup {
    narrow_over(sandbox, connections, 1)
}

/// The same with several workers.
pub(crate) fn narrow_over(sandbox: &Sandbox, connections: u32, workers: u32) -> Setup {
    let server = format!(
        "{{ address = {:?}, role = \"primary\", max_connections = {connections} }}",
        sandbox.primary().address()
    );
    Setup::of_addresses(sandbox.addresses())
        .servers([server])
        .mode("split")
        .top(&format!("workers = {workers}"))
        .tables(&user(USER, PASSWORD))
        .check(PATIENT_CHECKS)
}

/// Starts the gateway and waits until it knows the primary and so many replicas.
pub(crate) async fn start(setup: Setup, replicas: usize) -> Gateway {
    let gateway = setup.start();
    knows(&gateway, replicas).await;
    gateway
}

/// Waits until the gateway knows a primary and so many replicas.
pub(crate) async fn knows(gateway: &Gateway, replicas: usize) {
    let count = |role| gateway.metric("forebay_server_role", &[&format!("role=\"{role}\"")]) as usize;
    eventually("the roles of the servers are known", async || {
        (count("primary"), count("replica")) == (1, replicas)
    })
    .await;
}

/// Makes a schema on the primary and waits until the replicas have it.
pub(crate) fn schema(sandbox: &Sandbox, name: &str, statements: &str) {
    let create = format!("CREATE DATABASE {name}; USE {name}; {statements}");
    sandbox.primary().sql(&create).unwrap();
    sandbox.sync().unwrap();
}

/// Options without the questions that the library asks at the start of a session.
pub(crate) fn options(gateway: &Gateway) -> OptsBuilder {
    client::options(gateway)
        .max_allowed_packet(Some(1 << 24))
        .wait_timeout(Some(28_800))
}

/// Logs in with a client whose packets are written by hand. `further`: what it can do beyond the usual.
pub(crate) fn connect_raw(address: &str, schema: &'static str, further: Capabilities) -> Client {
    let identity = Identity {
        user: USER,
        password: PASSWORD,
        database: Some(schema),
        charset: 45,
        capabilities: Capabilities::PROTOCOL_41
            | Capabilities::SECURE_CONNECTION
            | Capabilities::PLUGIN_AUTH
            | Capabilities::CONNECT_WITH_DB
            | Capabilities::TRANSACTIONS
            | further,
    };
    let (client, verdict) = Client::connect(address, &identity).unwrap();
    assert_eq!(verdict.payload[0], 0, "{:?}", verdict.payload);
    client
}

/// A session in this schema.
pub(crate) async fn connect_to(gateway: &Gateway, schema: &str) -> Conn {
    Conn::new(options(gateway).db_name(Some(schema))).await.unwrap()
}

/// A session in the schema `test`.
pub(crate) async fn connect(gateway: &Gateway) -> Conn {
    connect_to(gateway, DATABASE).await
}

/// The port of the server that a read of this session comes to now.
pub(crate) async fn where_am_i(session: &mut Conn) -> u16 {
    session.query_first(WHERE_AM_I).await.unwrap().unwrap()
}

/// The first column of the first row as text; `None` where it is NULL or there is no row; errors by their
/// number.
pub(crate) async fn ask(session: &mut Conn, statement: &str) -> Result<Option<String>, u16> {
    match session.query_first::<Option<String>, _>(statement).await {
        Ok(value) => Ok(value.flatten()),
        Err(error) => Err(client::code(&error)),
    }
}

/// Why the session holds its connection. Each reason has a digest, and the time since.
pub(crate) async fn pins(session: &mut Conn) -> Vec<String> {
    let pins: Vec<(String, String, String)> = session.query("FOREBAY SHOW PINS").await.unwrap();
    let reason = |(reason, digest, since): (String, String, String)| {
        let is_pin =
            u64::from_str_radix(&digest, 16).is_ok() && since.parse().is_ok_and(|since: f64| since >= 0.0);
        assert!(is_pin, "{reason} {digest} {since}");
        reason
    };
    pins.into_iter().map(reason).collect()
}

/// What the gateway says of why a read goes where it goes.
pub(crate) async fn why(session: &mut Conn) -> Vec<(String, String)> {
    let explain = format!("FOREBAY EXPLAIN {WHERE_AM_I}");
    session.query(explain).await.unwrap()
}

/// The ports of replicas.
pub(crate) fn replica_ports(sandbox: &Sandbox) -> Vec<u16> {
    sandbox.nodes().iter().skip(1).map(Node::port).collect()
}

/// `forebay ctl` on the socket of this gateway: its exit code, and what it prints.
pub(crate) fn ctl(gateway: &Gateway, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(e2e::program());
    command
        .args(["ctl", "--socket"])
        .arg(gateway.folder().join("admin.sock"));
    let output = command.args(arguments).output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(printed).unwrap())
}

/// `forebay ctl drain --one-at-a-time` of these servers, which goes on; and the lines that it says.
pub(crate) fn drain_one_at_a_time(
    gateway: &Gateway,
    servers: &[String],
) -> (Child, Lines<BufReader<ChildStderr>>) {
    let mut ctl = Command::new(e2e::program())
        .args(["ctl", "--socket"])
        .arg(gateway.folder().join("admin.sock"))
        .args(["drain", "--one-at-a-time"])
        .args(servers)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(ctl.stderr.take().unwrap()).lines();
    (ctl, lines)
}

/// A session on this server.
pub(crate) async fn session_on(gateway: &Gateway, server: &Node) -> Conn {
    let mut others = Vec::new();
    loop {
        let mut session = client::connect(gateway).await;
        if where_am_i(&mut session).await == server.port() {
            return session;
        }
        others.push(session);
    }
}

/// The first value of an answer.
pub(crate) async fn first<T: FromValue + Send + 'static>(session: &mut Conn, statement: &str) -> T {
    session.query_first(statement).await.unwrap().unwrap()
}

/// Has this replica get no more of what the primary writes.
pub(crate) fn cut_off(replica: &Node) {
    let stop = match kind() {
        Kind::Mysql => "STOP REPLICA IO_THREAD",
        _ => "STOP SLAVE IO_THREAD",
    };
    replica.sql(stop).unwrap();
}
