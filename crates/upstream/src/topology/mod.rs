//! Following a cluster: which server is the primary, what the others are good for, and which there are.
//!
//! One task a server asks it what it is (`monitor`, `look`), a function without I/O makes one picture out of
//! all the answers (`decide`), and the picture is published as a [`Topology`] whenever it differs from the
//! one before. Sessions read it and never wait for it, but for the next one
//! ([`Cluster::wait_for_topology_change`]).
//!
//! What it does not do: it promotes and repairs nothing. It finds out what others have done, `switchover`
//! among them.

mod behind;
mod cluster_state;
mod connection;
mod damping;
mod decide;
mod discovery;
mod follow;
mod ignored;
mod inspect;
mod lag;
mod look;
mod monitor;
mod observation;
mod rogue_writers;
mod signal;

use std::sync::Arc;
use std::time::Duration;

use mysql_wire::gtid::Flavor;

use crate::cluster::{Cluster, reason};
use crate::error::ServerReason;
use crate::server::{Server, ServerId};

pub(crate) use connection::Connection;
pub(crate) use discovery::discover;
pub(crate) use follow::Follow;
pub use inspect::{Inspection, LoginTrial, Variables};
pub(crate) use monitor::watch;
pub(crate) use observation::ServerPlace;
pub use signal::Signal;
pub(crate) use signal::Standing;

/// What a server is good for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Takes writes. There is at most one in a [`Topology`].
    Primary,
    /// Takes reads, as far as its lag is good enough for them.
    Replica,
    /// Takes nothing: it is down, joining, behind for good, in a minority, or nobody knows.
    Unusable,
}

impl Role {
    /// All of them, in the order of [`label`](Self::label)s in metrics.
    pub const ALL: [Self; 3] = [Self::Primary, Self::Replica, Self::Unusable];

    /// The word in logs and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Replica => "replica",
            Self::Unusable => "unusable",
        }
    }
}

/// Whose dialect and whose GTIDs a server of this version speaks, as in its greeting.
pub(crate) fn flavor(version: &[u8]) -> Flavor {
    let says = |word: &[u8]| {
        version
            .windows(word.len())
            .any(|part| part.eq_ignore_ascii_case(word))
    };
    if says(b"mariadb") {
        Flavor::MariaDb
    } else {
        Flavor::MySql
    }
}

/// One server in the picture.
#[derive(Clone, Debug)]
pub struct Member {
    pub server: Arc<Server>,
    /// What it is good for.
    pub role: Role,
    /// Why, in words for a person.
    pub reason: String,
    /// How far its data are behind the primary's, as of its last look; of a replica that nobody can tell it
    /// of, `None`.
    pub lag: Option<Duration>,
    /// Transactions that it has received and not applied, as of its last look, where it counts them; of a
    /// replica.
    pub transactions_behind: Option<u32>,
    /// It is a replica that is further behind than reads may see: `max_lag`, `max_transactions_behind`.
    pub is_too_far_behind: bool,
    /// Where it is, as configured.
    pub zone: Option<Arc<str>>,
    /// `None` until it has greeted.
    pub flavor: Option<Flavor>,
    /// Who it was at its last look, by what no two of a cluster have in common: `server_uuid` of MySQL,
    /// `server_id` of MariaDB. Of Galera it is nothing that can be asked for.
    pub identity: Option<Arc<str>>,
}

impl Member {
    /// Why it is of no use.
    fn refusal(&self) -> ServerReason {
        match self.server.takes_statements() {
            true => ServerReason {
                server: self.server.name().to_owned(),
                reason: self.reason.clone(),
            },
            false => reason(&self.server),
        }
    }
}

/// All servers of a cluster and what each is good for, at one moment.
#[derive(Clone, Debug)]
pub struct Topology {
    /// In the order of [`Cluster::servers`]: configured ones first, discovered ones behind them.
    pub members: Vec<Member>,
    /// Place of the primary in `members`. None: statements for it wait, within `failover_wait`.
    pub primary: Option<usize>,
    /// Places of all that take writes, the primary first: more than it only with `max_writers`.
    pub writers: Vec<usize>,
    /// Grows with every change of members, roles, primary, writers or `refuse_writes`. Lags and reasons alone
    /// do not count.
    pub generation: u64,
    /// Several servers take writes and nobody can tell which of them is right: none gets any. Says so to
    /// clients.
    pub refuse_writes: Option<String>,
}

impl Topology {
    #[must_use]
    pub fn primary(&self) -> Option<&Member> {
        self.members.get(self.primary?)
    }

    /// Where a session begins whose server is chosen by role: on the primary, or where there is none on any
    /// that can be read from.
    ///
    /// # Errors
    /// What is the matter with each server.
    pub fn entrance(&self) -> Result<&Member, Vec<ServerReason>> {
        let usable = self.members.iter();
        let usable =
            usable.filter(|member| member.role != Role::Unusable && member.server.takes_statements());
        let best = usable.max_by_key(|member| member.role == Role::Primary);
        best.ok_or_else(|| self.members.iter().map(Member::refusal).collect())
    }

    /// Those that take writes, the primary first.
    pub fn writers(&self) -> impl Iterator<Item = &Member> {
        self.writers.iter().filter_map(|at| self.members.get(*at))
    }

    /// The one that takes the writes of a session: the one that it `kept` to so far, as long as that takes
    /// any, or one by its number.
    #[must_use]
    pub fn writer_of(&self, kept: Option<ServerId>, session: u32) -> Option<&Member> {
        if self.writers.len() < 2 {
            return self.primary();
        }
        let kept = self.writers().find(|member| Some(member.server.id()) == kept);
        kept.or_else(|| self.writers().nth(session as usize % self.writers.len()))
    }

    /// There are replicas, and all of them are further behind than reads may see: those go to the primary.
    #[must_use]
    pub fn are_replicas_too_far_behind(&self) -> bool {
        behind::are_all(&self.members)
    }

    #[must_use]
    pub fn member(&self, server: ServerId) -> Option<&Member> {
        self.members.iter().find(|member| member.server.id() == server)
    }

    /// Whether sessions cannot tell this one from `other`.
    fn same_roles(&self, other: &Self) -> bool {
        let role = |member: &Member| (member.server.id(), member.role, member.zone.clone());
        self.primary == other.primary
            && self.writers == other.writers
            && self.refuse_writes == other.refuse_writes
            && self.members.iter().map(role).eq(other.members.iter().map(role))
    }
}

impl Cluster {
    /// The cluster as it was seen last. Costs no lock.
    #[must_use]
    pub fn topology(&self) -> Arc<Topology> {
        self.follow.topology()
    }

    /// The first topology that is not of `generation`: at once where the present one is not.
    pub async fn wait_for_topology_change(&self, generation: u64) -> Arc<Topology> {
        self.follow.changed_from(generation).await
    }
}
