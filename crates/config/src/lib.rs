//! The configuration of Forebay: every option, once.
//!
//! `schema` is the table: an option's name, type, default, bounds, reload class and documentation stand
//! together there, and parsing, error messages, the reference ([`docs`]) and reload ([`Config::diff`]) come
//! from that table. [`Config::load`] reads a TOML file and answers with a complete, validated [`Config`] or
//! with every mistake in it, each with its place.
//!
//! This crate knows nothing about sockets, TLS or logging; what it says about a file is only that it can be
//! read, and about the kernel only which congestion controls it has. Nothing here is global: whoever needs an
//! option is handed the section that holds it.

mod address;
mod byte_size;
mod congestion;
mod derive;
mod diff;
pub mod docs;
mod duration;
mod error;
mod files;
mod fleet_text;
mod fraction;
mod http_url;
mod load;
mod matcher;
mod option;
mod report;
mod schema;
mod secret;
mod section;
mod share;
mod stored;
mod suggest;
mod syntax;
mod users_file;
mod validate;
mod value;
mod zone_offset;

pub use address::{BindAddress, ServerAddress};
pub use byte_size::ByteSize;
pub use congestion::{Congestion, congestion_worries};
pub use diff::ConfigDiff;
pub use docs::options;
pub use duration::{parse as parse_duration, show as show_duration};
pub use error::{ConfigError, ConfigErrors, Place};
pub use fraction::Fraction;
pub use http_url::HttpUrl;
pub use ipnet::IpNet;
pub use matcher::{DigestHash, Glob, Pattern};
pub use option::{Change, OptionDoc, Reload};
pub use schema::{
    Accounts, AccountsFrom, Admin, Balance, Cache, CacheAccount, CacheMapping, CacheMode, Check, CheckKind,
    ClientAuth, Cluster, ClusterTls, Config, EndpointSlices, Group, Listener, ListenerTls, Log, LogFormat,
    MappingKind, Mode, Monitor, OnDown, Pd, PinRule, Pool, Pooling, Protocol, ReadBalance, ReadConsistency,
    ReadConsistency as Consistency, Rebalance, RebalancePolicy, ReplicationAccount, Reuse, Role, Rule,
    Server, ServerCompression, Sharing, Srv, StatementClass, Store, Switchover, TlsMode, TlsVersion,
    Topology, TransactionReads, User, Verify, Vip,
};
pub use secret::Secret;
pub use stored::{from_hex, is_native_hash, sha2_hash};
pub use validate::{LOG_PARTS, MAPPINGS_MAX, idle_worries, log_worries, setup_worries, trust_worries};
pub use value::FileMode;
pub use zone_offset::ZoneOffset;
