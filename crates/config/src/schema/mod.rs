//! The table of options: everything that can be configured, each option once.
//!
//! Read [`crate::section`] for the notation. One file a section: here the top level, `[log]` and `[admin]`;
//! then `[[listener]]`, `[cluster.NAME]` with what is inside it, `[[user]]`, `[[rule]]` and `[cache]`.

mod cache;
mod cluster;
mod listener;
mod pool;
mod rules;
mod store;
mod tls;
mod user;
mod watch;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use cache::{Cache, CacheAccount, CacheMapping, CacheMode, MappingKind};
pub use cluster::{
    Balance, Cluster, EndpointSlices, OnDown, Pd, ReadBalance, Rebalance, RebalancePolicy, Role, Server,
    ServerCompression, Srv, Topology,
};
pub use listener::{Listener, Mode, Protocol, ReadConsistency, Sharing, TransactionReads};
pub use pool::{Pool, Reuse};
pub use rules::{Group, PinRule, Rule, StatementClass};
pub use store::{Store, Vip};
pub use tls::{ClientAuth, ClusterTls, ListenerTls, TlsMode, TlsVersion, Verify};
pub(crate) use user::UsersFile;
pub use user::{Accounts, AccountsFrom, Pooling, User};
pub use watch::{Check, CheckKind, Monitor, ReplicationAccount, Switchover};

use crate::byte_size::ByteSize;
use crate::duration::{days, hours, secs};
use crate::section::{choice, section};

section! {
    /// A whole configuration.
    pub struct Config {
        /// Worker threads. Each session lives on one of them, with both of its sockets. A CPU limit of the
        /// container (cgroup) counts as so many cores, rounded down.
        pub workers: usize = default(cores(), "one per core") unit "threads" in 1..=1024, Restart;

        /// Client sessions in all. A client beyond that is told so with error 1040 (too many connections).
        /// Each takes two file descriptors: a figure that the process's limit does not allow is refused at
        /// start.
        pub max_connections: Option<u32> = default(None, "what the limit of file descriptors allows, at most 20000") unit "sessions" in Some(1)..=Some(10_000_000), Live;

        /// After SIGTERM, sessions end when they are outside a command and a transaction; what is left after
        /// this time is cut off.
        pub shutdown_timeout: Duration = default(secs(30)) in Duration::ZERO..=days(1), Live;

        /// After SIGTERM, `/readyz` says 503 for this time before listeners close and sessions begin to end:
        /// for balancers that ask it, and need a while until they send nobody any more. A second signal ends
        /// this time only.
        pub shutdown_delay: Duration = default(Duration::ZERO) in Duration::ZERO..=hours(1), Live;

        /// After an upgrade (`forebay ctl upgrade`), sessions that have stayed with the old process have this
        /// time to go or to end by themselves; then they end as after SIGTERM.
        pub upgrade_timeout: Duration = default(hours(1)) in Duration::ZERO..=days(30), Live;

        /// Reload when the configuration file changes. SIGHUP reloads in any case.
        pub watch: bool = default(true), Live;

        /// Free buffers of 64 KiB (one of 128 KiB counts as two) that each worker keeps for the next session
        /// with bytes in flight.
        pub buffer_pool_max: usize = default(64) unit "buffers" in 0..=65_536, Restart;

        /// Memory in which each worker reads whole what is longer than 64 KiB: statements, and the heads of
        /// executions. Each may have up to 16 MiB. Prepared texts of that length count as long as they are
        /// prepared. One that finds no room among those of other sessions is forwarded while it is read, and
        /// binds its session to its connection (pin `incomplete`).
        pub statement_memory_max: ByteSize = default(ByteSize::mebibytes(128)) in ByteSize::mebibytes(0)..=ByteSize::gibibytes(1024), Restart;

        /// Memory that the process may have. Once 80 % of it are resident, `[cache]` gives back rows of
        /// mappings in mode `bounded` and takes none, until it is below 75 %. From 90 % on new clients are
        /// refused with error 1040 and `/readyz` says 503, until it is below 85 %. Sessions go on. What the
        /// kernel holds for sockets is not counted.
        pub memory_max: Option<ByteSize> = default(None, "the memory limit of the container (cgroup), if it has one") in Some(ByteSize::mebibytes(16))..=Some(ByteSize::gibibytes(65_536)), Live;

        /// What is logged, and how.
        pub log: Log = default(Log::default()), Live;

        /// Where operators connect.
        pub admin: Option<Admin> = default(None), Restart;

        /// The store that several gateways have their configuration in.
        pub store: Option<Store> = default(None), Restart;

        /// An address that one of several gateways has.
        pub vip: Option<Vip> = default(None), Restart;

        /// Where clients connect.
        pub listeners as "listener": Vec<Listener> = default(Vec::new()), Live;

        /// The servers behind the listeners, by cluster name.
        pub clusters as "cluster": BTreeMap<String, Cluster> = default(BTreeMap::new()), Live;

        /// Accounts of clients of listeners in mode `split`, where the gateway itself checks the password.
        pub users as "user": Vec<User> = default(Vec::new()), Live;

        /// Another file with `[[user]]` tables and nothing else, for whoever keeps secrets apart. Read at
        /// every reload, and when it changes.
        pub users_file: Option<PathBuf> = default(None), Live;

        /// What happens to certain statements in mode `split`, in order: the first rule that matches a
        /// statement decides.
        pub rules as "rule": Vec<Rule> = default(Vec::new()), Live;

        /// The zone this gateway is in: servers of the same `zone` are preferred for reads, and by
        /// sessions with the policy `location` of `rebalance`.
        pub zone: Option<String> = default(None), Live;

        /// File that holds the zone, instead of `zone`; a newline at its end is not part of it. Read at every
        /// reload.
        pub zone_file: Option<PathBuf> = default(None), Live;

        /// Environment variable that holds the zone, instead of `zone`: one configuration for the gateways of
        /// all zones.
        pub zone_env: Option<String> = default(None), Live;

        /// Rows of chosen tables in memory, as new as they are on the primary.
        pub cache: Option<Cache> = default(None), Restart;

        /// What is to be said of options that the file has under names of earlier versions.
        pub renamed: Vec<String> = internal(Vec::new()), Live;
    }

    /// Log lines, written to standard error.
    pub struct Log [impl Default] {
        /// `error`, `warn`, `info`, `debug`, `trace` or `off`; or several, separated by commas, of the form
        /// `PART=LEVEL` where PART is `admin`, `cache`, `dataplane`, `fleet`, `forebay`, `net`,
        /// `telemetry`, `traffic` or `upstream`: `info,upstream=debug`.
        pub level: String = default("info".to_owned()), Live;

        /// `text` for people, `json` for programs: one object a line.
        pub format: LogFormat = default(LogFormat::Text), Restart;
    }

    /// The HTTP server for operators.
    pub struct Admin {
        /// Address of `/metrics`, `/healthz` and `/readyz`. To read needs no login: choose an address
        /// that only operators reach.
        pub bind: SocketAddr = required, Restart;

        /// Unix socket for `forebay ctl`: the same server, and the acts that change something. Only root and
        /// the gateway's own system user get in.
        pub socket: Option<PathBuf> = default(None), Restart;

        /// File with the token by which `bind` takes acts as well (`Authorization: Bearer TOKEN`); without it
        /// `bind` only answers questions. Its owner is root or the gateway's own system user, and nobody else
        /// may read it (mode 0600); `forebay token FILE` makes one. Read again at every reload, and when it
        /// changes.
        pub token_file: Option<PathBuf> = default(None), Live;

        /// Names by which `bind` is asked (`Host` of a request), besides IP addresses, `localhost` and this
        /// machine's own name; others are refused: a web page could give its own name to this address, and
        /// have a browser read here.
        pub hosts: Vec<String> = default(Vec::new()), Live;
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
}

/// Cores that this process may use; 1 where the system does not say.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
