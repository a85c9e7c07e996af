//! What is known of one server when the roles are decided. Plain data; where it comes from is the business of
//! `look`.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use config::ServerAddress;

/// What the configuration says of a server's place in its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerPlace {
    pub(crate) role: Option<config::Role>,
    pub(crate) zone: Option<Arc<str>>,
    /// The port at which a TiDB server says whether it is about to end.
    pub(crate) status_port: Option<u16>,
    pub(crate) label: Option<Arc<str>>,
    /// Who says how much of its CPU and memory is in use.
    pub(crate) exporter: Option<config::HttpUrl>,
}

impl ServerPlace {
    pub(crate) fn of(config: &config::Server) -> Self {
        Self {
            role: config.role,
            zone: config.zone.as_deref().map(Arc::from),
            status_port: config.status_port.and_then(|port| u16::try_from(port).ok()),
            label: config.label.as_deref().map(Arc::from),
            exporter: config.exporter.clone(),
        }
    }
}

/// One server, seen from outside and by its own words.
#[derive(Clone, Debug)]
pub(super) struct Observation {
    pub(super) name: String,
    /// As configured; of a server on a Unix socket, `None`.
    pub(super) address: Option<Address>,
    /// Further ones that are known to lead to it: what its name stands for, and what its followers call it.
    pub(super) also: Vec<Address>,
    /// Where topology is `static`.
    pub(super) role: Option<config::Role>,
    /// It is to be left by all.
    pub(super) drains: bool,
    pub(super) visibility: Visibility,
    /// How far it is behind its source, when that was last known.
    pub(super) lag: Option<Lag>,
}

impl Observation {
    /// Whether this is where it is, as far as that is known.
    pub(super) fn is_at(&self, address: &Address) -> bool {
        self.address.as_ref() == Some(address) || self.also.contains(address)
    }
}

/// How well a server can be seen.
#[derive(Clone, Debug)]
pub(super) enum Visibility {
    /// Not looked at yet, and its checks do not speak against it.
    Unseen,
    /// This is what it said at the last look.
    Seen(Facts),
    /// The last look failed. It may be well, and still be what it was.
    Stale { facts: Facts },
    /// Nobody listens there, its checks failed, or several looks did.
    Lost { reason: String },
}

impl Visibility {
    /// What it said last, unless it is lost.
    pub(super) fn facts(&self) -> Option<&Facts> {
        match self {
            Self::Seen(facts) | Self::Stale { facts } => Some(facts),
            Self::Unseen | Self::Lost { .. } => None,
        }
    }

    pub(super) fn is_seen(&self) -> bool {
        matches!(self, Self::Seen(_))
    }

    pub(super) fn is_unseen(&self) -> bool {
        matches!(self, Self::Unseen)
    }

    /// Why nothing at all can be said of it.
    pub(super) fn blindness(&self) -> Option<&str> {
        match self {
            Self::Unseen => Some("has not been looked at yet"),
            Self::Lost { reason } => Some(reason),
            Self::Seen(_) | Self::Stale { .. } => None,
        }
    }
}

/// How far a server was behind, and how long ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lag {
    pub(super) was: Duration,
    /// Zero as long as every look tells.
    pub(super) age: Duration,
    /// The lag is that behind the primary, whoever is in between; else that behind the source.
    pub(super) to_primary: bool,
}

/// What a server said of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Facts {
    Replication(ReplicationFacts),
    Group(GroupFacts),
    Galera(GaleraFacts),
}

impl Facts {
    pub(super) fn is_writable(&self) -> bool {
        match self {
            Self::Replication(facts) => facts.writable,
            Self::Group(facts) => facts.writable,
            Self::Galera(facts) => facts.writable,
        }
    }

    /// Whether it replicates from another server, or would if it could.
    pub(super) fn follows_somebody(&self) -> bool {
        match self {
            Self::Replication(facts) => facts.sources.iter().any(Source::is_on),
            Self::Group(_) | Self::Galera(_) => false,
        }
    }
}

/// Which server it is, by what no two of a cluster have in common: `server_uuid` of MySQL, `server_id` of
/// MariaDB.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Identity(pub(super) String);

/// Which process a server is: its identity, and where it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostIdentity(pub(super) String);

/// Host and port as somebody writes them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

impl Address {
    /// `None` for a Unix socket.
    pub(super) fn of(address: &ServerAddress) -> Option<Self> {
        match address.clone() {
            ServerAddress::Host { host, port } => Some(Self { host, port }),
            ServerAddress::Unix(_) => None,
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self {
            host: address.ip().to_string(),
            port: address.port(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReplicationFacts {
    pub(super) identity: Option<Identity>,
    /// `read_only` and `super_read_only` are off.
    pub(super) writable: bool,
    /// What it replicates from, or did and could again.
    pub(super) sources: Vec<Source>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) address: Address,
    /// `None` until it was connected to for the first time.
    pub(super) identity: Option<Identity>,
    pub(super) receiving: Receiving,
    /// The SQL thread runs.
    pub(super) applying: bool,
    /// What stopped it.
    pub(super) error: Option<String>,
}

/// What the IO thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receiving {
    Yes,
    Connecting,
    No,
}

impl Source {
    /// Whether it takes anything from there, or would if it could.
    pub(super) fn is_on(&self) -> bool {
        self.applying || self.receiving != Receiving::No
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupFacts {
    /// Its `server_uuid`, by which members name each other.
    pub(super) uuid: String,
    pub(super) writable: bool,
    pub(super) single_primary: bool,
    /// The group as it sees it; nothing where it is in none.
    pub(super) view: Vec<GroupMember>,
}

impl GroupFacts {
    /// The server itself, as it sees itself.
    pub(super) fn own(&self) -> Option<&GroupMember> {
        self.view.iter().find(|member| member.uuid == self.uuid)
    }

    pub(super) fn reachable(&self) -> impl Iterator<Item = &GroupMember> {
        self.view.iter().filter(|member| member.is_reachable())
    }

    /// It reaches more than half of the group.
    pub(super) fn has_majority(&self) -> bool {
        self.reachable().count() * 2 > self.view.len()
    }
}

impl GroupMember {
    pub(super) fn is_reachable(&self) -> bool {
        matches!(self.state, MemberState::Online | MemberState::Recovering)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupMember {
    pub(super) uuid: String,
    pub(super) state: MemberState,
    pub(super) is_primary: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberState {
    Online,
    Recovering,
    Offline,
    Error,
    Unreachable,
}

impl MemberState {
    /// As in MEMBER_STATE. A state nobody has heard of is not a good one.
    pub(super) fn parse(word: &str) -> Self {
        match word {
            "ONLINE" => Self::Online,
            "RECOVERING" => Self::Recovering,
            "OFFLINE" => Self::Offline,
            "UNREACHABLE" => Self::Unreachable,
            _ => Self::Error,
        }
    }

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Recovering => "recovering",
            Self::Offline => "offline",
            Self::Error => "in error",
            Self::Unreachable => "unreachable",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GaleraFacts {
    /// `wsrep_ready`: it runs statements.
    pub(super) ready: bool,
    /// `wsrep_cluster_status` is `Primary`: it is in the majority.
    pub(super) in_primary_component: bool,
    pub(super) state: NodeState,
    /// `wsrep_desync`: its operator has taken it out of flow control.
    pub(super) desynced: bool,
    /// `read_only`.
    pub(super) writable: bool,
    /// What the operator has closed it with: `wsrep_reject_queries`, `pxc_maint_mode`.
    pub(super) closed: Option<String>,
    /// `wsrep_local_index`
    pub(super) index: u32,
    /// `wsrep_cluster_state_uuid` and `wsrep_cluster_conf_id`: which component, at which of its changes.
    pub(super) component: (String, u64),
    /// `wsrep_cluster_size`
    pub(super) size: u32,
}

/// `wsrep_local_state`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeState {
    Joining,
    /// Gives its data to a joining node, or was desynced by its operator: it may fall behind.
    Donor,
    Joined,
    Synced,
    Other,
}

impl NodeState {
    pub(super) const fn of(number: u32) -> Self {
        match number {
            1 => Self::Joining,
            2 => Self::Donor,
            3 => Self::Joined,
            4 => Self::Synced,
            _ => Self::Other,
        }
    }

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Donor => "donor or desynced",
            Self::Joined => "joined, not yet synced",
            Self::Synced => "synced",
            Self::Other => "in no state to be used",
        }
    }
}
