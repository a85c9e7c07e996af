//! `[store]`: where a gateway that is one of several takes its configuration from; and `[vip]`: the address
//! that one of them has.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use super::tls::ClusterTls;
use crate::address::ServerAddress;
use crate::duration::{minutes, secs};
use crate::secret::Secret;
use crate::section::section;

section! {
    /// The store that several gateways have their configuration in. The file of a gateway has what is its own
    /// beside it: `zone`, `workers`, `[admin]`, and what else the machine decides; all other options stand in
    /// the store's text.
    pub struct Store {
        /// Members of an etcd, each with the port for clients (usually 2379). One after the other is asked
        /// until one answers. Beyond loopback it takes `user` and `tls`.
        pub endpoints: Vec<ServerAddress> = default(Vec::new()), Restart;

        /// Instead of an etcd a folder, which all gateways share: of one machine, for tests.
        pub folder: Option<PathBuf> = default(None), Restart;

        /// Which gateways belong together: those with the same word here. Their keys are below
        /// `/forebay/FLEET/`.
        pub fleet: String = default("main".to_owned()), Restart;

        /// This gateway among the others. No two have the same.
        pub name: Option<String> = default(None, "the name of the machine"), Restart;

        /// Account of the etcd. It needs to read and write the keys of the fleet.
        pub user: Option<String> = default(None), Restart;

        /// Password of `user`; exactly one of the three ways to give it.
        pub password: Option<Secret> = default(None), Restart;

        /// File that holds the password; a newline at its end is not part of it.
        pub password_file: Option<PathBuf> = default(None), Restart;

        /// Environment variable that holds the password.
        pub password_env: Option<String> = default(None), Restart;

        /// Encryption to the etcd. There is no `preferred`.
        pub tls: ClusterTls = default(ClusterTls::default()), Restart;

        /// Where the files are that the store's text names (`password_file`, certificates, keys): relative
        /// paths in it start here, and others are refused.
        pub secrets_dir: PathBuf = default(PathBuf::from("/etc/forebay/secrets")), Restart;

        /// Where the configuration that was applied last is kept, for a start without the store.
        pub state_dir: PathBuf = default(PathBuf::from("/var/lib/forebay")), Restart;

        /// Limits of the store's text are those of all gateways together, and each has an equal part of them:
        /// `max_connections` of servers and users; `max_concurrency`, `rate` and `burst` of rules. A
        /// gateway has at least one of each. `false`: each gateway has them for itself. All gateways have
        /// the same word here.
        pub share_limits: bool = default(false), Restart;

        /// A gateway of which nothing has been heard for this time is none of the fleet any more: changes
        /// no longer wait for its word.
        pub lease: Duration = default(secs(10)) in secs(2)..=minutes(5), Restart;
    }

    /// An address that one of the gateways has: the store says which one, so it takes a `[store]` with an
    /// etcd. Where that one is lost another one has it some seconds later. Needs the rights
    /// `CAP_NET_ADMIN` and `CAP_NET_RAW`.
    pub struct Vip {
        /// The address, which clients connect to, and the length of its network. All gateways have the same,
        /// and listeners bind to `0.0.0.0` (or it takes `net.ipv4.ip_nonlocal_bind`). IPv4 only.
        pub address: IpNet = required, Restart;

        /// The interface that has it then.
        pub interface: String = required, Restart;

        /// Of several gateways that could have it that one takes it whose number is larger. Who has it keeps
        /// it, also where one comes whose number is larger.
        pub priority: u32 = default(100) in 0..=255, Restart;
    }
}
