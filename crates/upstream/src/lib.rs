//! The servers' side: which servers a cluster has, how they are, and connections to them.
//!
//! A [`Cluster`] is shared by all workers. [`Cluster::lease`] gives a session a connection to a server,
//! within all limits; [`Cluster::run_checks`] watches the servers and runs on the control thread. What a
//! session reads on its way (servers, counts of sessions, health) are snapshots and atomics: no lock is taken
//! unless a server fails or all are full.
//!
//! Where sessions share connections, each worker has a [`Pool`] of them: opened, kept, lent and closed there,
//! within the same limits.
//!
//! It knows greetings and logins ([`read_greeting`], [`login`], [`disconnect()`]), for its checks and for
//! those who log in by themselves, and asks servers what the gateway itself wants to know ([`conversation`]).
//! What clients and servers say to each other after that is not its business.

mod accounts;
mod address;
mod backoff;
mod checks;
mod cluster;
mod connect;
pub mod conversation;
mod direct;
mod disconnect;
mod endpoint_slices;
mod error;
pub mod etcd;
mod exporter;
mod greeting;
mod health;
mod http;
mod lease;
mod lock;
pub mod login;
mod metrics;
mod packets;
mod permit;
mod pool;
mod probe;
mod queue;
mod read_index;
mod resolver;
mod server;
mod server_profile;
mod sharing;
mod srv;
pub mod switchover;
mod tickets;
mod tidb;
mod topology;
mod usage;

pub use mysql_wire::gtid::Flavor;

pub use accounts::{
    AccountSecret, DENIALS, NO_VERDICTS, SECRETS_MAX, ServerAccount, ServerAccounts, StoredSecret,
};
pub use backoff::Backoff;
pub use cluster::{
    Balance, Cluster, Left, PausedStatement, Released, ServerBalance, ServerChange, ServerEvent,
};
pub use direct::{Direct, DirectError};
pub use disconnect::{Nobody, disconnect};
pub use error::{ConnectFailure, LeaseError, ServerReason, UpstreamError};
pub use greeting::{GREETING_MAX_LEN, GreetingError, read_greeting};
pub use lease::Lease;
pub use permit::Permit;
pub use pool::{
    Adopted, Baseline, Connection, Credential, CredentialSecret, ForSession, Key, OUTDATED, Opened,
    PackedConnection, Pool, Travel, terms_in_words,
};
pub use read_index::{Arrival, Ended, PrimaryPosition, Probe, Probes, ReadIndex};
pub use server::{DrainedBy, Server, ServerId, ServerState, Status, Ticket};
pub use server_profile::ServerProfile;
pub use topology::{Inspection, LoginTrial, Member, Role, Signal, Topology, Variables};
