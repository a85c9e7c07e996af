//! The table of options: everything that can be configured, each option once.
//!
//! Read [`crate::section`] for the notation. The sections follow the file: top level, `[log]`, `[admin]`,
//! `[[listener]]`, `[cluster.NAME]`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use crate::address::{BindAddress, ServerAddress};
use crate::duration::{days, hours, minutes, ms, secs};
use crate::secret::Secret;
use crate::section::{choice, section};
use crate::value::{FileMode, Value};

section! {
    /// A whole configuration.
    pub struct Config {
        /// Worker threads. Each session lives on one of them, with both of its sockets.
        pub workers: usize = default(cores(), "one per core") unit "threads" in 1..=1024, Restart;

        /// Client sessions in all. A client beyond that is told so with error 1040 (too many connections). Each takes two
        /// file descriptors: a figure that the process's limit does not allow is refused at start.
        pub max_connections: Option<u32> = default(None, "what the limit of file descriptors allows, at most 20000") unit "sessions" in Some(1)..=Some(10_000_000), Live;

        /// After SIGTERM, sessions end when they are outside a command and a transaction; what is left after this
        /// time is cut off.
        pub shutdown_timeout: Duration = default(secs(30)) in Duration::ZERO..=days(1), Live;

        /// Reload when the configuration file changes. SIGHUP reloads in any case.
        pub watch: bool = default(true), Live;

        /// Free buffers of 64 KiB that each worker keeps for the next session with bytes in flight.
        pub buffer_pool_max: usize = default(64) unit "buffers" in 0..=65_536, Restart;

        /// What is logged, and how.
        pub log: Log = default(Log::default()), Live;

        /// Where operators connect.
        pub admin: Option<Admin> = default(None), Restart;

        /// Where clients connect.
        pub listeners as "listener": Vec<Listener> = default(Vec::new()), Live;

        /// The servers behind the listeners, by cluster name.
        pub clusters as "cluster": BTreeMap<String, Cluster> = default(BTreeMap::new()), Live;
    }

    /// Log lines, written to standard error.
    pub struct Log {
        /// `error`, `warn`, `info`, `debug`, `trace` or `off`; or several, separated by commas, of the form
        /// `PART=LEVEL` where PART is a crate of Forebay: `info,upstream=debug`.
        pub level: String = default("info".to_owned()), Live;

        /// `text` for people, `json` for programs: one object a line.
        pub format: LogFormat = default(LogFormat::Text), Restart;
    }

    /// The HTTP server for operators.
    pub struct Admin {
        /// Address of `/metrics`, `/healthz` and `/readyz`. There is no login: choose an address that only operators
        /// reach.
        pub bind: SocketAddr = required, Restart;
    }

    /// One place where clients connect.
    pub struct Listener [label name] {
        /// The listener in logs and metrics.
        pub name: String = default(String::new(), "the value of `bind`"), NewSessions;

        /// Where to accept clients.
        pub bind: BindAddress = required, Live;

        /// `tcp` passes bytes both ways and looks at none of them; `session` understands MySQL and keeps one server
        /// connection per client session.
        pub mode: Mode = default(Mode::Session), NewSessions;

        /// Name of the `[cluster.NAME]` that serves the clients of this listener.
        pub cluster: String = required, NewSessions;

        /// Client sessions of this listener; the limit of all listeners together stays in force.
        pub max_connections: Option<u32> = default(None) unit "sessions" in Some(1)..=Some(10_000_000), Live;

        /// Connections that the kernel holds for us until they are accepted. The kernel caps it at `net.core.somaxconn`.
        pub backlog: u32 = default(1024) unit "connections" in 1..=65_535, Restart;

        /// Permissions of the socket file, in octal; for Unix sockets.
        pub unix_mode: FileMode = default(FileMode(0o666)), Restart;

        /// Peers whose PROXY protocol header (v1 or v2) is required and believed. From other peers a header is
        /// refused as the broken login that it is.
        pub accept_proxy_from: Vec<IpNet> = default(Vec::new()), NewSessions;

        /// Time from the connection to the end of the login.
        pub login_timeout: Duration = default(secs(10)) in ms(10)..=hours(1), NewSessions;

        /// A client that sends nothing for this long, outside a command, is disconnected. `0s` is never.
        pub client_idle_timeout: Duration = default(hours(8)) in Duration::ZERO..=days(365), NewSessions;

        /// Offer compression (zlib, zstd) to clients that ask for it.
        pub compression: bool = default(true), NewSessions;

        /// RSA private key (PEM) for full logins with `caching_sha2_password` and `sha256_password` over a plain
        /// client link when the link to the server is TLS.
        pub rsa_key: Option<PathBuf> = default(None, "a key generated at start"), NewSessions;

        /// Encryption of client links. The files are read again when they change.
        pub tls: ListenerTls = default(ListenerTls::default()), Live;
    }

    /// Encryption between clients and a listener.
    pub struct ListenerTls {
        /// `off`; `preferred`: offered, the client decides; `required`: a login without TLS is refused.
        pub mode: TlsMode = default(TlsMode::Off), NewSessions;

        /// Certificate chain (PEM), the listener's own first.
        pub cert: Option<PathBuf> = default(None), NewSessions;

        /// Private key of `cert` (PEM).
        pub key: Option<PathBuf> = default(None), NewSessions;

        /// Authorities (PEM) that sign client certificates.
        pub client_ca: Option<PathBuf> = default(None), NewSessions;

        /// Whether clients are asked for a certificate (`optional`) or must have one (`required`).
        pub client_auth: ClientAuth = default(ClientAuth::Off), NewSessions;

        /// Oldest TLS version accepted.
        pub min_version: TlsVersion = default(TlsVersion::V12), NewSessions;
    }

    /// Servers that hold the same data.
    pub struct Cluster {
        /// The name in `[cluster.NAME]`.
        pub name: String = internal(String::new()), Live;

        /// The servers: addresses (port 3306 where none is given), or tables where a server needs more than that.
        pub servers: Vec<Server> = required, Live;

        /// How a new session finds its server, among those that are up and not full.
        pub balance: Balance = default(Balance::LeastConnections), NewSessions;

        /// Time to establish a connection to a server, before the next server is tried.
        pub connect_timeout: Duration = default(secs(3)) in ms(1)..=minutes(10), NewSessions;

        /// Time for a server to send its greeting and for each of its answers during a login.
        pub login_timeout: Duration = default(secs(5)) in ms(10)..=hours(1), NewSessions;

        /// A server that stops sending in the middle of a response is given up after this time. `0s` is never: a
        /// slow statement looks the same.
        pub server_idle_timeout: Duration = default(Duration::ZERO) in Duration::ZERO..=days(365), NewSessions;

        /// Time that a new session waits for a seat when every server is at its `max_connections`.
        pub queue_timeout: Duration = default(secs(5)) in Duration::ZERO..=hours(1), NewSessions;

        /// New sessions that wait for a seat at the same time. One more is refused at once.
        pub queue_max: u32 = default(1000) unit "sessions" in 0..=1_000_000, Live;

        /// A server that came up gets its full share of new sessions only after this time, and a growing share before.
        /// `0s` is at once.
        pub slow_start: Duration = default(Duration::ZERO) in Duration::ZERO..=hours(24), Live;

        /// Time for the sessions of a server that was removed from the configuration to end by themselves.
        pub drain_timeout: Duration = default(secs(30)) in Duration::ZERO..=days(7), Live;

        /// What happens to the sessions of a server that the checks found down.
        pub on_down: OnDown = default(OnDown::Close), Live;

        /// Silence after which TCP keepalive probes a server link. `0s` is off.
        pub keepalive: Duration = default(secs(60)) in Duration::ZERO..=hours(12), NewSessions;

        /// How often host names are looked up again.
        pub dns_interval: Duration = default(secs(30)) in secs(1)..=days(1), Live;

        /// Send a PROXY protocol header (v2) with the client's address to the servers, which must expect it.
        pub send_proxy: bool = default(false), NewSessions;

        /// Compression of server links; `zlib` and `zstd` where the server can do it. Leave it off in front of MariaDB where
        /// clients send files with LOAD DATA LOCAL in packets of 16 MiB and more: its servers (10.11.19) lose rows of such
        /// packets under compression, whoever compresses.
        pub compression: ServerCompression = default(ServerCompression::Off), NewSessions;

        /// The version in our greeting to clients.
        pub server_version: Option<String> = default(None, "the servers' own"), NewSessions;

        /// Let a client's password travel in the clear (`mysql_clear_password`, `dialog`) on a plain server link.
        pub allow_cleartext_passwords: bool = default(false), NewSessions;

        /// How the health of servers is found out.
        pub check: Check = default(Check::default()), Live;

        /// Encryption of server links. The files are read again when they change.
        pub tls: ClusterTls = default(ClusterTls::default()), Live;
    }

    /// One server.
    pub struct Server [label name] [short "address"] {
        /// Where the server is. Host names are looked up again every `dns_interval`.
        pub address: ServerAddress = required, Live;

        /// The server in logs and metrics.
        pub name: String = default(String::new(), "the address with its port"), Live;

        /// Share of new sessions in relation to the other servers. 0 is none: existing sessions go on.
        pub weight: u32 = default(1) in 0..=1_000_000, NewSessions;

        /// Sessions at the same time; 0 is no limit. Further ones go elsewhere, or wait when every server is full.
        pub max_connections: u32 = default(0) unit "sessions" in 0..=10_000_000, Live;

        /// Used for new sessions only while no other server is available.
        pub backup: bool = default(false), NewSessions;
    }

    /// Health checks.
    pub struct Check {
        /// `tcp`: a connection is enough. `greeting`: the server must greet, too. `login`: it must also let `user` in
        /// and answer `query`.
        pub kind: CheckKind = default(CheckKind::Greeting, "`login` with a `user`, else `greeting`"), Live;

        /// Time between two checks of a server.
        pub interval: Duration = default(secs(2)) in ms(50)..=hours(1), Live;

        /// Time that one check may take.
        pub timeout: Duration = default(secs(2)) in ms(10)..=minutes(10), Live;

        /// Successes in a row that bring a server up.
        pub rise: u32 = default(2) unit "checks" in 1..=1000, Live;

        /// Failures in a row that take a server down.
        pub fall: u32 = default(3) unit "checks" in 1..=1000, Live;

        /// Account for `kind = "login"`.
        pub user: Option<String> = default(None), Live;

        /// Password of `user`; at most one of the three ways to give it.
        pub password: Option<Secret> = default(None), Live;

        /// File that holds the password; a newline at its end is not part of it. Read at every reload.
        pub password_file: Option<PathBuf> = default(None), Live;

        /// Environment variable that holds the password.
        pub password_env: Option<String> = default(None), Live;

        /// Statement for `kind = "login"`; any result but an error is a success.
        pub query: String = default("SELECT 1".to_owned()), Live;
    }

    /// Encryption between us and the servers of a cluster.
    pub struct ClusterTls {
        /// `off`; `preferred`: used where the server offers it; `required`: a server without TLS is not used.
        pub mode: TlsMode = default(TlsMode::Off), NewSessions;

        /// How far a server's certificate is trusted: not looked at (`off`), signed by `ca` (`ca`), or signed by `ca`
        /// for the host name in `servers` (`identity`).
        pub verify: Verify = default(Verify::Off, "`identity` with a `ca`, else `off`"), NewSessions;

        /// Authorities (PEM) that sign server certificates.
        pub ca: Option<PathBuf> = default(None), NewSessions;

        /// Certificate chain (PEM) that we show to servers that ask for one.
        pub cert: Option<PathBuf> = default(None), NewSessions;

        /// Private key of `cert` (PEM).
        pub key: Option<PathBuf> = default(None), NewSessions;
    }
}

choice! {
    /// The form of log lines.
    pub enum LogFormat {
        /// For people.
        Text = "text",
        /// For programs: one object a line.
        Json = "json",
    }

    /// What a listener understands of its clients' bytes.
    pub enum Mode {
        /// Nothing: bytes pass both ways.
        Tcp = "tcp",
        /// MySQL, with one server connection per client session.
        Session = "session",
    }

    /// How much TLS is wanted on a link.
    pub enum TlsMode {
        /// None.
        Off = "off",
        /// Where the other side can.
        Preferred = "preferred",
        /// Always.
        Required = "required",
    }

    /// Whether clients show a certificate.
    pub enum ClientAuth {
        /// They are not asked.
        Off = "off",
        /// They are asked; one that is shown must be valid.
        Optional = "optional",
        /// They must.
        Required = "required",
    }

    /// A TLS version.
    pub enum TlsVersion {
        /// TLS 1.2.
        V12 = "1.2",
        /// TLS 1.3.
        V13 = "1.3",
    }

    /// How a new session finds its server.
    pub enum Balance {
        /// The server with the fewest sessions in relation to its weight.
        LeastConnections = "least-connections",
        /// In even turns, in proportion to the weights.
        Weighted = "weighted",
        /// In turn, each as often as the others; weight 0 is left out.
        RoundRobin = "round-robin",
        /// Two at random, of which the one with fewer sessions.
        RandomTwo = "random-two",
    }

    /// What happens to the sessions of a server that is down.
    pub enum OnDown {
        /// They end with an error packet.
        Close = "close",
        /// They go on as long as their connection lives.
        Keep = "keep",
    }

    /// What a health check asks of a server.
    pub enum CheckKind {
        /// That it accepts a connection.
        Tcp = "tcp",
        /// That it greets.
        Greeting = "greeting",
        /// That it lets an account in and answers a statement.
        Login = "login",
    }

    /// How far a server's certificate is trusted.
    pub enum Verify {
        /// Not looked at.
        Off = "off",
        /// Signed by a known authority.
        Ca = "ca",
        /// Signed by a known authority for this host name.
        Identity = "identity",
    }

    /// Compression of server links.
    pub enum ServerCompression {
        /// None.
        Off = "off",
        /// The classic one.
        Zlib = "zlib",
        /// MySQL 8.0.18 and later.
        Zstd = "zstd",
    }
}

/// Cores that this process may use; 1 where the system does not say.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl Listener {
    /// A listener with every option at its default.
    pub fn new(bind: BindAddress, cluster: impl Into<String>) -> Self {
        Self {
            name: bind.to_string(),
            bind,
            cluster: cluster.into(),
            ..Self::stand_in()
        }
    }
}

impl Cluster {
    /// A cluster with every option at its default.
    pub fn new(name: impl Into<String>, servers: Vec<Server>) -> Self {
        Self {
            name: name.into(),
            servers,
            ..Self::stand_in()
        }
    }
}

impl Server {
    /// A server with every option at its default.
    pub fn new(address: ServerAddress) -> Self {
        Self {
            name: address.to_string(),
            address,
            ..Self::stand_in()
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self::stand_in()
    }
}

impl Default for ListenerTls {
    fn default() -> Self {
        Self::stand_in()
    }
}

impl Default for Check {
    fn default() -> Self {
        Self::stand_in()
    }
}

impl Default for ClusterTls {
    fn default() -> Self {
        Self::stand_in()
    }
}
