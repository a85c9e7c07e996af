//! What is right and trusts more than it seems to: encryption with whoever answers, and accounts that a
//! server opens to a process.

use crate::address::ServerAddress;
use crate::schema::{Cluster, ClusterTls, Config, Mode, Protocol, TlsMode, Verify};

/// System users for whom servers have accounts without a password from the start (`unix_socket`,
/// `auth_socket`).
const TRUSTED_BY_SERVERS: [&str; 2] = ["root", "mysql"];

/// What is said of each cluster that trusts too much. `system_user` runs the gateway.
#[must_use]
pub fn trust_worries(config: &Config, system_user: &str) -> Vec<String> {
    let of_cluster = |(name, cluster): (&String, &Cluster)| {
        [
            tls(&format!("{name}.tls"), &cluster.tls),
            (cluster.pd.as_ref()).and_then(|pd| tls(&format!("{name}.pd.tls"), &pd.tls)),
            sockets(name, cluster, system_user),
            bytes_by_socket(name, cluster, config),
        ]
    };
    config.clusters.iter().flat_map(of_cluster).flatten().collect()
}

/// A cluster without `ca` verifies nothing unless `verify` is written, and that needs a `ca`.
fn tls(path: &str, tls: &ClusterTls) -> Option<String> {
    let is_blind = tls.mode == TlsMode::Required && tls.verify == Verify::Off;
    let why = match tls.ca {
        None => "without `ca`",
        Some(_) => "with `verify = \"off\"`",
    };
    is_blind.then(|| {
        format!(
            "cluster.{path}: `mode = \"required\"` {why} encrypts, and does not say with whom: somebody in between can show a certificate of \
             his own, and read and change everything. Name the authority of the servers' certificates in `ca`"
        )
    })
}

pub(super) fn by_socket(cluster: &Cluster) -> Option<&ServerAddress> {
    let mut addresses = cluster.servers.iter().map(|server| &server.address);
    addresses.find(|address| matches!(address, ServerAddress::Unix(_)))
}

fn sockets(name: &str, cluster: &Cluster, system_user: &str) -> Option<String> {
    let address = by_socket(cluster).filter(|_| TRUSTED_BY_SERVERS.contains(&system_user))?;
    Some(format!(
        "cluster.{name}: server {address} is reached by its Unix socket, and this runs as {system_user}, whom servers let in there without a \
         password (unix_socket, auth_socket). Run the gateway as a user of its own"
    ))
}

/// Mode `tcp` cannot tell a login from anything else.
fn bytes_by_socket(name: &str, cluster: &Cluster, config: &Config) -> Option<String> {
    let address = by_socket(cluster)?;
    let is_bare = |listener: &&crate::schema::Listener| {
        listener.cluster == name && listener.mode == Mode::Tcp && listener.protocol == Protocol::Mysql
    };
    let listener = config.listeners.iter().find(is_bare)?;
    Some(format!(
        "listener {}: mode \"tcp\" in front of {address}, a Unix socket: whoever connects is the gateway's system user to the server, and gets in \
         without a password where that has an account of unix_socket or auth_socket. Other modes prevent that",
        listener.name
    ))
}
