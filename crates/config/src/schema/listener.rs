//! `[[listener]]`: where clients connect, and what they may expect there.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use super::tls::ListenerTls;
use crate::address::BindAddress;
use crate::congestion::Congestion;
use crate::duration::{days, hours, minutes, ms, secs};
use crate::section::{choice, section};
use crate::value::{FileMode, Value};

section! {
    /// One place where clients connect.
    pub struct Listener [label name] {
        /// The listener in logs and metrics.
        pub name: String = default(String::new(), "the value of `bind`"), NewSessions;

        /// Where to accept clients.
        pub bind: BindAddress = required, Live;

        /// What clients speak here. `redis`: they read the rows of `[cache]`.
        pub protocol: Protocol = default(Protocol::Mysql), NewSessions;

        /// `tcp` passes bytes both ways and looks at none of them; `session` understands MySQL and keeps one
        /// server connection per client session; `split` sends writes to the primary and reads to replicas,
        /// over connections that sessions share.
        pub mode: Mode = default(Mode::Session), NewSessions;

        /// Whether sessions of mode `split` share server connections: between transactions, or never. With
        /// `never` each has a connection of its own, to the primary, on which its client has logged in;
        /// rules see its statements. It is for servers that do not tell what a statement does to its
        /// session (TiDB).
        pub sharing: Sharing = default(Sharing::Transaction), NewSessions;

        /// Name of the `[cluster.NAME]` that serves the clients of this listener.
        pub cluster: String = default(String::new(), "required; with `protocol = \"redis\"` that of `[cache]`"), NewSessions;

        /// Servers with the same `label` get the sessions of modes `tcp` and `session` as long as one of them
        /// takes any. With `moves`, sessions on other servers come back, one a second.
        pub label: Option<String> = default(None), NewSessions;

        /// How fresh reads on replicas are, in mode `split`. `eventual`: as fresh as the replica. `session`:
        /// a session sees its own writes. `strong`: every session sees every write that was acknowledged
        /// before.
        pub read_consistency: ReadConsistency = default(ReadConsistency::Session), NewSessions;

        /// Where reads of a transaction run that begins with a plain `BEGIN` or `START TRANSACTION`, in mode
        /// `split`. `primary`: on the primary, as all of it. `replica`: on a replica up to the first
        /// statement that is no plain read, which begins the transaction anew on the primary: the reads
        /// before it are from another server, whose data may be older.
        pub transaction_reads: TransactionReads = default(TransactionReads::Primary), NewSessions;

        /// How fresh rows from memory are: those of Redis clients and of `point_lookups`. `strong`: every
        /// read sees every write that was acknowledged before. `session`: a session sees its own writes.
        /// `eventual`: what has arrived.
        pub lookup_consistency formerly "consistency": ReadConsistency = default(ReadConsistency::Strong), NewSessions;

        /// Answer a SELECT of one mapped row by its key from memory, in modes `session` and `split`.
        pub point_lookups: bool = default(false), NewSessions;

        /// Move sessions to another server, between two statements, when theirs drains (`drain`) or is gone.
        /// In mode `session`. The gateway reads the texts of their statements then, and has to know the
        /// password of their account; TiDB says itself what a session holds. A session that holds what no
        /// other server can be given stays.
        pub moves: bool = default(false), NewSessions;

        /// Client sessions of this listener; the limit of all listeners together stays in force.
        pub max_connections: Option<u32> = default(None) unit "sessions" in Some(1)..=Some(10_000_000), Live;

        /// Connections that the kernel holds for us until they are accepted. The kernel caps it at
        /// `net.core.somaxconn`.
        pub backlog: u32 = default(1024) unit "connections" in 1..=65_535, Restart;

        /// TCP congestion control of client connections. `auto`: the system's
        /// (`net.ipv4.tcp_congestion_control`); but where that is `bbr` or another that paces, clients on
        /// this machine have `reno`, which costs less. `system`: the system's, always. Or the name of one.
        pub congestion: Congestion = default(Congestion::AUTO), NewSessions;

        /// Permissions of the socket file, in octal; for Unix sockets.
        pub unix_mode: FileMode = default(FileMode(0o666)), Restart;

        /// Clients on a Unix socket of this listener (mode `session`) may log in to accounts that a server
        /// opens to the process at the other end of *its* Unix socket (`unix_socket`, `auth_socket`): to the
        /// gateway's system user, whoever the client is. Otherwise nobody may.
        pub trust_unix_clients: bool = default(false), NewSessions;

        /// Peers whose PROXY protocol header (v1 or v2) is required and believed. From other peers a header
        /// is refused as the broken login that it is.
        pub accept_proxy_from: Vec<IpNet> = default(Vec::new()), NewSessions;

        /// Time from the connection to the end of the login.
        pub login_timeout: Duration = default(secs(10)) in ms(10)..=hours(1), NewSessions;

        /// Longest time that a login waits after failures of the same account from the same address: they
        /// cost nothing at first, then 100 ms, and each further one twice as much. `0s` is never.
        pub login_delay_max: Duration = default(secs(5)) in Duration::ZERO..=minutes(1), NewSessions;

        /// Failed logins after which a connection is closed that may try again: COM_CHANGE_USER, `AUTH` of
        /// Redis.
        pub login_failures_max: u32 = default(3) unit "logins" in 1..=100, NewSessions;

        /// A client that sends nothing for this long, outside a command, is disconnected. `0s` is never.
        pub client_idle_timeout: Duration = default(hours(8)) in Duration::ZERO..=days(365), NewSessions;

        /// A client that does not go on with a command that it has begun (the rest of a packet, a file of
        /// `LOAD DATA LOCAL`), or does not take an answer, is disconnected after this time. Silence between
        /// two commands does not count. `0s` is never. Unless set, mode `split` goes by `net_read_timeout`
        /// and `net_write_timeout`, the session's or else its server's, and by a minute where that is longer;
        /// in mode `session` the server does by its own.
        pub stall_timeout: Option<Duration> = default(None, "see the text") in Some(Duration::ZERO)..=Some(days(365)), NewSessions;

        /// Offer compression (zlib, zstd) to clients that ask for it.
        pub compression: bool = default(true), NewSessions;

        /// RSA private key (PEM) for full logins with `caching_sha2_password` and `sha256_password` over a
        /// plain client link when the link to the server is TLS.
        pub rsa_key: Option<PathBuf> = default(None, "a key generated at start"), NewSessions;

        /// Encryption of client links. The files are read again when they change.
        pub tls: ListenerTls = default(ListenerTls::default()), Live;
    }
}

choice! {
    /// What clients speak.
    pub enum Protocol {
        /// MySQL.
        Mysql = "mysql",
        /// Redis: RESP2 and RESP3.
        Redis = "redis",
    }

    /// What a listener understands of its clients' bytes.
    pub enum Mode {
        /// Nothing: bytes pass both ways.
        Tcp = "tcp",
        /// MySQL, with one server connection per client session.
        Session = "session",
        /// MySQL, with each statement on the server it belongs to.
        Split = "split",
    }

    /// When sessions let go of their server connection.
    pub enum Sharing {
        /// After each transaction.
        Transaction = "transaction",
        /// When they end.
        Never = "never",
    }

    /// How fresh a read must be.
    pub enum ReadConsistency {
        /// As the replica or the memory is.
        Eventual = "eventual",
        /// With the session's own writes.
        Session = "session",
        /// With every write that was acknowledged before.
        Strong = "strong",
    }

    /// Where a transaction that may write reads before it writes.
    pub enum TransactionReads {
        /// Where it writes.
        Primary = "primary",
        /// On a replica.
        Replica = "replica",
    }
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

    /// Whether its sessions share server connections.
    pub fn shares(&self) -> bool {
        self.mode == Mode::Split && self.sharing == Sharing::Transaction
    }

    /// Whether its sessions are understood, and have a server connection of their own.
    pub fn shares_never(&self) -> bool {
        self.mode == Mode::Split && self.sharing == Sharing::Never
    }

    /// Whether what its sessions do is understood, beyond the first byte of each command.
    pub fn understands(&self) -> bool {
        self.mode == Mode::Split || self.point_lookups || self.moves
    }
}
