//! `[cluster.NAME]`: servers that hold the same data, and how sessions find theirs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::pool::Pool;
use super::rules::Group;
use super::tls::ClusterTls;
use super::user::Accounts;
use super::watch::{Check, Monitor, Switchover};
use crate::address::ServerAddress;
use crate::byte_size::ByteSize;
use crate::congestion::Congestion;
use crate::duration::{days, hours, minutes, ms, secs};
use crate::http_url::HttpUrl;
use crate::section::{choice, section};
use crate::value::Value;

section! {
    /// Servers that hold the same data.
    pub struct Cluster {
        /// The name in `[cluster.NAME]`.
        pub name: String = internal(String::new()), Live;

        /// The servers: addresses (port 3306 where none is given), or tables where a server needs more than
        /// that.
        pub servers: Vec<Server> = required, Live;

        /// Further servers, named by SRV records in DNS: the records' name, or a table where that is not all.
        /// `servers` may be empty then.
        pub srv: Option<Srv> = default(None), Live;

        /// Further servers, named by PD, where `topology` is `tidb`: PD's addresses, or a table where that is
        /// not all. `servers` may be empty then.
        pub pd: Option<Pd> = default(None), Live;

        /// Further servers, named by Kubernetes: the endpoints of a service, by its EndpointSlices. The
        /// service's name, or a table where that is not all. `servers` may be empty then.
        pub endpoint_slices: Option<EndpointSlices> = default(None), Live;

        /// How it is known which server is the primary, and which servers there are: nothing but the list
        /// (`static`, with the `role` of each server), or what the servers say. With `tidb` all are alike.
        pub topology: Topology = default(Topology::Static), Live;

        /// What a server is matters to somebody: to a listener of mode `split`, to the cache, to copies of
        /// statements; or it is found out.
        pub uses_roles: bool = internal(true), Live;

        /// Addresses (host, or host and port) that discovery leaves alone, whoever names them: a member that
        /// is to stay away.
        pub discover_ignore formerly "ignore": Vec<ServerAddress> = default(Vec::new()), Live;

        /// Servers, by name, that are to be left by all: they get no new sessions and no reads, and
        /// connections to them are closed once nobody uses them. Sessions that are on one in modes `tcp` and
        /// `session`, or that hold a connection to it in mode `split`, stay until they end or let go of it.
        /// The primary keeps the writes until another server takes them.
        pub drain: Vec<String> = default(Vec::new()), Live;

        /// A server that says by itself that it is to be left drains as one that `drain` names, until it says
        /// so no longer: `offline_mode`, the state of a member of a group or of a Galera node, a primary that
        /// has become read-only. It needs `monitor`.
        pub drain_on_signal: bool = default(true), Live;

        /// The account that asks the servers for their role, their lag and the other members. Health checks
        /// use it, too.
        pub monitor: Option<Monitor> = default(None), Live;

        /// The account by which `forebay ctl switchover` makes another server the primary.
        pub switchover: Option<Switchover> = default(None), Live;

        /// Who may log in at listeners of mode `split`: `"servers"`, or a table where that is not all.
        pub accounts: Accounts = default(Accounts::default()), Live;

        /// Servers that take writes at the same time, where several can: with `galera`, and with
        /// `group-replication` where all members are primaries. A session keeps to one of them, and its reads
        /// go to the others only as far as `primary_reads` lets them. Not together with
        /// `read_consistency = "strong"`, `sharing = "never"`, nor with `[cache]`.
        pub max_writers: u32 = default(1) unit "servers" in 1..=64, Live;

        /// Time that a statement for the primary waits while there is none, and a session with `moves` whose
        /// server is gone for one that takes it.
        pub failover_wait: Duration = default(secs(10)) in Duration::ZERO..=hours(1), Live;

        /// After a failover, statements that have waited for the primary, and sessions with `moves` whose
        /// server is gone, that are let through at the same time. Each other one follows when one is done, or
        /// after `failover_wait`. 0 is no limit.
        pub failover_release: u32 = default(100) unit "statements" in 0..=1_000_000, Live;

        /// A transaction whose primary is lost in the middle is executed again on the new one, in mode
        /// `split`: its statements are kept with checksums of their answers, and the session goes on only if
        /// each answer is the same. Never once its COMMIT was sent.
        pub transaction_replay: bool = default(false), NewSessions;

        /// Statements of one transaction that are kept for that, with what is noted of their answers. A
        /// longer one ends with its server.
        pub transaction_replay_max: ByteSize = default(ByteSize::mebibytes(1)) in ByteSize::kibibytes(1)..=ByteSize::mebibytes(64), NewSessions;

        /// The same of all sessions of one worker together. A transaction that finds no room ends with its
        /// server.
        pub transaction_replay_memory: ByteSize = default(ByteSize::mebibytes(64)) in ByteSize::mebibytes(1)..=ByteSize::gibibytes(64), NewSessions;

        /// Time that a statement waits while the cluster is paused (`forebay ctl pause`, a switchover).
        pub pause_timeout: Duration = default(secs(10)) in ms(1)..=hours(1), Live;

        /// Statements that wait at the same time while the cluster is paused. One more is refused at once.
        pub pause_max: u32 = default(10_000) unit "statements" in 0..=1_000_000, Live;

        /// A replica that is further behind gets no reads. `0s` is no limit.
        pub max_lag: Duration = default(secs(10)) in Duration::ZERO..=days(7), Live;

        /// `max_lag` is written, and is a limit.
        pub limits_lag: bool = internal(false), Live;

        /// A replica with more transactions to apply gets no reads; with `group-replication` and `galera`,
        /// whose members count them. 0 is no limit.
        pub max_transactions_behind: u32 = default(0) unit "transactions" in 0..=1_000_000_000, Live;

        /// Galera: a donor, or a node that its operator has desynced, takes reads as others do, as far as it
        /// is not too far behind.
        pub donor_reads: bool = default(false), Live;

        /// Time that a read waits for a replica to have what it must see, before it goes to the primary.
        pub read_wait: Duration = default(ms(500)) in Duration::ZERO..=hours(1), Live;

        /// How a read finds its replica.
        pub read_balance: ReadBalance = default(ReadBalance::LeastOutstanding), Live;

        /// Whether the primary takes its share of the reads while there are replicas.
        pub primary_reads: bool = default(false), Live;

        /// Stored and loadable functions are known to leave nothing behind: they write nothing, take no user
        /// locks, make no temporary tables and set no variables. Reads that call them go to replicas then,
        /// and they do not bind a session to its connection.
        pub trust_functions: bool = default(false), NewSessions;

        /// Servers that rules and hints can name together.
        pub groups as "group": BTreeMap<String, Group> = default(BTreeMap::new()), Live;

        /// The connections that sessions share in mode `split`.
        pub pool: Pool = default(Pool::default()), Live;

        /// How a new session finds its server, among those that are up and not full, in modes `tcp` and
        /// `session`.
        pub balance: Balance = default(Balance::LeastConnections), NewSessions;

        /// How the load of sessions that are there already is evened out.
        pub rebalance: Rebalance = default(Rebalance::default()), Live;

        /// Time to establish a connection to a server, before the next server is tried.
        pub connect_timeout: Duration = default(secs(3)) in ms(1)..=minutes(10), NewSessions;

        /// Time for a server to send its greeting and for each of its answers during a login. Where several
        /// do not greet one client, the others have as much once more, all together.
        pub login_timeout: Duration = default(secs(5)) in ms(10)..=hours(1), NewSessions;

        /// A server that stops sending in the middle of a response is given up after this time. `0s` is
        /// never: a slow statement looks the same.
        pub server_idle_timeout: Duration = default(Duration::ZERO) in Duration::ZERO..=days(365), NewSessions;

        /// Time that a new session (in mode `split`, a statement) waits for a seat when every server is at
        /// its `max_connections`.
        pub queue_timeout: Duration = default(secs(5)) in Duration::ZERO..=hours(1), NewSessions;

        /// New sessions that wait for a seat at the same time; in mode `split` statements, for each server.
        /// One more is refused at once.
        pub queue_max: u32 = default(1000) unit "sessions" in 0..=1_000_000, Live;

        /// A server that came up gets its full share of new sessions (in mode `split`, of reads) only after
        /// this time, and a growing share before. `0s` is at once.
        pub slow_start: Duration = default(Duration::ZERO) in Duration::ZERO..=hours(24), Live;

        /// Time for the sessions of a server that was removed from the configuration to end by themselves.
        pub drain_timeout: Duration = default(secs(30)) in Duration::ZERO..=days(7), Live;

        /// What happens to the sessions of a server that the checks found down.
        pub on_down: OnDown = default(OnDown::Close), Live;

        /// Silence after which TCP keepalive probes a server link. `0s` is off.
        pub keepalive: Duration = default(secs(60)) in Duration::ZERO..=hours(12), NewSessions;

        /// TCP congestion control of connections to the servers. `auto`: the system's
        /// (`net.ipv4.tcp_congestion_control`); but where that is `bbr` or another that paces, servers on
        /// this machine have `reno`, which costs less. `system`: the system's, always. Or the name of one.
        pub congestion: Congestion = default(Congestion::AUTO), NewSessions;

        /// How often host names are looked up again.
        pub dns_interval: Duration = default(secs(30)) in secs(1)..=days(1), Live;

        /// Send a PROXY protocol header (v2) to the servers, which must expect it: with the client's address,
        /// and without any where sessions share connections (mode `split`).
        pub send_proxy: bool = default(false), NewSessions;

        /// Compression of server links; `zlib` and `zstd` where the server can do it. Leave it off in front
        /// of MariaDB where clients send files with LOAD DATA LOCAL in packets of 16 MiB and more: its
        /// servers (10.11.19) lose rows of such packets under compression, whoever compresses.
        pub compression: ServerCompression = default(ServerCompression::Off), NewSessions;

        /// The version in our greeting to clients.
        pub server_version: Option<String> = default(None, "the servers' own"), NewSessions;

        /// Let a client's password travel in the clear (`mysql_clear_password`, `dialog`) on a plain server
        /// link, in mode `session`.
        pub allow_cleartext_passwords: bool = default(false), NewSessions;

        /// How the health of servers is found out.
        pub check: Check = default(Check::default()), Live;

        /// Encryption of server links. The files are read again when they change.
        pub tls: ClusterTls = default(ClusterTls::default()), Live;
    }

    /// Sessions go to other servers while they live, so that the load evens out after a server has come back
    /// or was added: those of mode `session` whose listener has `moves = true`.
    pub struct Rebalance [impl Default] {
        /// What they move for.
        pub policy: RebalancePolicy = default(RebalancePolicy::Off), Live;

        /// Time in which all of a difference between servers moves, one session after the other.
        pub within: Duration = default(secs(120)) in secs(1)..=hours(24), Live;
    }

    /// Servers that DNS names.
    pub struct Srv [short "name"] {
        /// Name of the SRV records, in full: `_mysql._tcp.db.example.com`. They are looked up every
        /// `dns_interval`. A record's weight is that of the server; those of another priority than the first
        /// are backups.
        pub name: String = required, Live;

        /// The name server that is asked: IP address and port.
        pub server: Option<String> = default(None, "those of `/etc/resolv.conf`"), Live;

        /// Sessions on each of the servers at the same time; 0 is no limit.
        pub max_connections: u32 = default(0) unit "sessions" in 0..=10_000_000, Live;
    }

    /// The placement driver of a TiDB cluster, which knows its TiDB servers.
    pub struct Pd [list "addresses"] {
        /// Members of PD, each with the port for clients (usually 2379). One after the other is asked until
        /// one answers.
        pub addresses: Vec<ServerAddress> = required, Live;

        /// The id of a keyspace, whose servers are meant. Without it those that belong to none.
        pub keyspace: Option<u32> = default(None) in Some(0)..=Some(16_777_215), Live;

        /// Sessions on each of the servers at the same time; 0 is no limit.
        pub max_connections: u32 = default(0) unit "sessions" in 0..=10_000_000, Live;

        /// Encryption to PD and to the servers' status ports. There is no `preferred`.
        pub tls: ClusterTls = default(ClusterTls::default()), Live;
    }

    /// A service of Kubernetes whose endpoints are servers.
    pub struct EndpointSlices [short "service"] {
        /// The service's name. A headless one does, and one with `publishNotReadyAddresses` is not needed:
        /// whether an endpoint is of use the gateway finds out itself. One that terminates drains.
        pub service: String = required, Live;

        /// The service's namespace.
        pub namespace: Option<String> = default(None, "the pod's own, in the file `namespace` of `account_dir`"), Live;

        /// The name of the port, as the service has it.
        pub port: Option<String> = default(None, "the only one"), Live;

        /// Host and port of the API server. TLS is always used, with `ca.crt` of `account_dir`.
        pub api_server: Option<ServerAddress> = default(None, "the variables `KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT`"), Live;

        /// The folder with `token`, `ca.crt` and `namespace` of the pod's service account, which has to be
        /// allowed to `list` and `watch` `endpointslices` of `discovery.k8s.io`.
        pub account_dir: PathBuf = default(PathBuf::from("/var/run/secrets/kubernetes.io/serviceaccount")), Live;

        /// Sessions on each of the servers at the same time; 0 is no limit.
        pub max_connections: u32 = default(0) unit "sessions" in 0..=10_000_000, Live;
    }

    /// One server.
    pub struct Server [label name] [short "address"] {
        /// Where the server is. Host names are looked up again every `dns_interval`.
        pub address: ServerAddress = required, Live;

        /// The server in logs and metrics.
        pub name: String = default(String::new(), "the address with its port"), Live;

        /// Share of new sessions (in mode `split`, of reads) in relation to the other servers. 0 is none:
        /// existing sessions go on.
        pub weight: u32 = default(1) in 0..=1_000_000, NewSessions;

        /// Sessions (in mode `split`, connections) at the same time; 0 is no limit. Further ones go
        /// elsewhere, or wait when every server is full.
        pub max_connections: u32 = default(0) unit "sessions" in 0..=10_000_000, Live;

        /// Used for new sessions (in mode `split`, for reads) only while no other server is available.
        pub backup: bool = default(false), NewSessions;

        /// What the server is for, where `topology` is `static`.
        pub role: Option<Role> = default(None), Live;

        /// Where the server is: the gateway's own `zone` is preferred for reads, and by
        /// sessions with the policy `location` of `rebalance`.
        pub zone: Option<String> = default(None), Live;

        /// Sessions of listeners with the same `label` come here first.
        pub label: Option<String> = default(None), Live;

        /// TiDB's status port, where `topology` is `tidb`: it tells when the server is about to end. PD says
        /// it of the servers that it names.
        pub status_port: Option<u32> = default(None) in Some(1)..=Some(65_535), Live;

        /// Where somebody says how much of the server's CPU and memory is in use, for the policy `resource`
        /// of `rebalance`: a Prometheus node exporter on its machine, or TiDB's own `/metrics`. Without one
        /// TiDB is asked where `status_port` is known. Asked every five seconds, without encryption.
        pub exporter: Option<HttpUrl> = default(None), Live;
    }
}

choice! {
    /// What tells the primary from the replicas.
    pub enum Topology {
        /// The list of servers and their `role`.
        Static = "static",
        /// `read_only`, and where replication comes from: MySQL and MariaDB.
        Replication = "replication",
        /// The members of a group: MySQL.
        GroupReplication = "group-replication",
        /// The nodes of a cluster: MariaDB, Percona.
        Galera = "galera",
        /// TiDB servers, which all read and write.
        Tidb = "tidb",
    }

    /// What a server is for.
    pub enum Role {
        /// Writes.
        Primary = "primary",
        /// Reads.
        Replica = "replica",
    }

    /// How a read finds its replica.
    pub enum ReadBalance {
        /// The one with the fewest statements under way in relation to its weight.
        LeastOutstanding = "least-outstanding",
        /// The one that will answer first, judged by its latest answers and what is under way.
        Latency = "latency",
        /// In even turns, in proportion to the weights.
        Weighted = "weighted",
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

    /// What sessions move for.
    pub enum RebalancePolicy {
        /// Nothing: they stay where they are.
        Off = "off",
        /// Servers with as many sessions as their weights say.
        Connections = "connections",
        /// The gateway's own zone first: new sessions go there as long as a server of it has room, others
        /// come there one a second. Then as with `connections`, among its servers.
        Location = "location",
        /// Servers that are short of memory or CPU give sessions to others, by the figures of `exporter`.
        /// Then as with `location`.
        Resource = "resource",
    }

    /// What happens to the sessions of a server that is down.
    pub enum OnDown {
        /// They end with an error packet.
        Close = "close",
        /// They go on as long as their connection lives.
        Keep = "keep",
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

impl Topology {
    /// Whether the servers say which of them is the primary.
    pub fn has_primary(self) -> bool {
        !matches!(self, Self::Static | Self::Tidb)
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

    /// Whether members that the servers name are added to `servers`.
    pub fn discovers(&self) -> bool {
        self.topology.has_primary() && self.monitor.as_ref().is_some_and(|monitor| monitor.discover)
    }

    /// Whether servers are looked up that the configuration need not list: by SRV records, PD or
    /// Kubernetes.
    pub fn looks_up_servers(&self) -> bool {
        self.srv.is_some() || self.pd.is_some() || self.endpoint_slices.is_some()
    }

    /// Whether the server of this name is to be left by all.
    pub fn drains(&self, name: &str) -> bool {
        self.drain.iter().any(|drained| drained == name)
    }

    /// Whether discovery leaves this address alone, as it is written. A name that leads to it is another
    /// matter.
    pub fn ignores(&self, address: &ServerAddress) -> bool {
        self.discover_ignore
            .iter()
            .any(|ignored| ignored.is_same(address))
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

impl Pd {
    /// Of these members, with every other option at its default.
    pub fn new(addresses: Vec<ServerAddress>) -> Self {
        Self {
            addresses,
            ..Self::stand_in()
        }
    }
}

impl Srv {
    /// Records of that name, with every option at its default.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::stand_in()
        }
    }
}

impl EndpointSlices {
    /// Of that service, with every other option at its default.
    pub fn new(service: impl Into<String>) -> Self {
        Self {
            service: service.into(),
            ..Self::stand_in()
        }
    }
}
