//! Servers that PD knows. Each TiDB server keeps two keys in PD's etcd: `info` for good, and `ttl` as long as
//! it lives. Both below `/topology/tidb/ADDRESS/`, in a keyspace below `/keyspaces/tidb/ID/topology/tidb/`.
//!
//! They are read once and then watched. Where PD cannot be asked, or knows no server at all, the last list
//! stays.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use config::{Pd, ServerAddress};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use crate::backoff::Backoff;
use crate::cluster::{Cluster, is_zone};
use crate::etcd::{Change, Entry, Etcd, KEYS_MAX, Range, Watch};

/// Who names the servers, for the log.
const NAMED_BY: &str = "PD";

/// Servers that PD names; further ones are left out.
const SERVERS_MAX: usize = 256;

/// Between one attempt and the next, once PD has not answered or a watch has ended.
const PAUSES: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));

/// A watch that says nothing for so long is begun anew: each server renews its `ttl` every 30 s.
const SILENCE_MAX: Duration = Duration::from_secs(90);

/// Keys and values.
type Known = BTreeMap<String, Vec<u8>>;

/// Follows PD until the future is dropped.
pub(crate) async fn follow(cluster: Arc<Cluster>) {
    let mut told = LastLogged::default();
    loop {
        let config = cluster.config();
        let Some(pd) = &config.pd else {
            cluster.pd_changed.notified().await;
            continue;
        };
        tokio::select! {
            // No list is taken over behind a reload that has named others.
            biased;
            () = cluster.pd_changed.notified() => {}
            () = follow_one(&cluster, pd, &mut told) => {}
        }
    }
}

async fn follow_one(cluster: &Arc<Cluster>, pd: &Pd, told: &mut LastLogged) {
    let members = pd.addresses.iter().filter_map(|address| match address {
        ServerAddress::Host { host, port } => Some((host.as_str(), *port)),
        ServerAddress::Unix(_) => None,
    });
    let mut etcd = Etcd::new(members, cluster.pd_tls(), None);
    let below = Range::below(&prefix(pd));
    let mut pauses = PAUSES;
    loop {
        match etcd.read(&below).await {
            Ok(snapshot) => {
                pauses = PAUSES;
                let pair = |entry: Entry| (entry.key, entry.value);
                let mut known: Known = snapshot.entries.into_iter().map(pair).collect();
                take(cluster, pd, &known, told);
                let ended = match etcd.watch(&below, snapshot.revision).await {
                    Ok(mut watch) => loop {
                        match next(&mut watch).await {
                            Ok(changes) if changes.is_empty() => {}
                            Ok(changes) => {
                                changes.into_iter().for_each(|change| apply(&mut known, change));
                                if known.len() > KEYS_MAX {
                                    break io::Error::other("there are more keys than can be meant");
                                }
                                take(cluster, pd, &known, told);
                            }
                            Err(error) => break error,
                        }
                    },
                    Err(error) => error,
                };
                let reason = ended.to_string();
                tracing::debug!(cluster = cluster.name(), reason, "PD is asked anew");
                etcd.doubt();
            }
            Err(error) => told.tell(cluster, Some(error.to_string())),
        }
        sleep(pauses.pause()).await;
    }
}

async fn next(watch: &mut Watch) -> io::Result<Vec<Change>> {
    timeout(SILENCE_MAX, watch.next()).await?
}

fn apply(known: &mut Known, change: Change) {
    match change {
        Change::Put(entry) => {
            known.insert(entry.key, entry.value);
        }
        Change::Deleted { key, .. } => {
            known.remove(&key);
        }
    }
}

/// Takes over the list, unless it is empty.
fn take(cluster: &Arc<Cluster>, pd: &Pd, known: &Known, told: &mut LastLogged) {
    let (servers, left_out) = servers(pd, known);
    if servers.is_empty() {
        let reason = format!("it knows no living server below {}", prefix(pd));
        told.tell(cluster, Some(reason));
        return;
    }
    cluster.take_named(&servers, NAMED_BY);
    told.tell(cluster, None);
    if std::mem::replace(&mut told.left_out, left_out) != left_out && left_out > 0 {
        let cluster = cluster.name();
        tracing::warn!(cluster, left_out, "PD names more than {SERVERS_MAX} servers");
    }
}

/// What the log has heard last.
#[derive(Default)]
struct LastLogged {
    failing: Option<String>,
    left_out: usize,
}

impl LastLogged {
    /// Says whether PD can be asked where that is news: why not, or `None`.
    fn tell(&mut self, cluster: &Cluster, reason: Option<String>) {
        cluster.pd_answers.store(reason.is_none(), Ordering::Relaxed);
        let name = cluster.name();
        match &reason {
            Some(reason) if self.failing.is_none() => {
                tracing::warn!(
                    cluster = name,
                    reason,
                    "PD cannot be asked: its last list of servers stays"
                );
            }
            None if self.failing.is_some() => tracing::info!(cluster = name, "PD can be asked"),
            _ => {}
        }
        self.failing = reason;
    }
}

/// What the keys of servers begin with.
fn prefix(pd: &Pd) -> String {
    match pd.keyspace {
        Some(id) => format!("/keyspaces/tidb/{id}/topology/tidb/"),
        None => "/topology/tidb/".to_owned(),
    }
}

/// What the configuration would say of the servers that live, and how many were left out.
fn servers(pd: &Pd, known: &Known) -> (Vec<config::Server>, usize) {
    let prefix = prefix(pd);
    let part = |key: &str, kind: &str| {
        let address = key.strip_prefix(&prefix)?.strip_suffix(kind)?;
        Some(address.to_owned())
    };
    let living: BTreeSet<String> = known.keys().filter_map(|key| part(key, "/ttl")).collect();
    let server = |(key, info): (&String, &Vec<u8>)| {
        let address = part(key, "/info").filter(|address| living.contains(address))?;
        let address = ServerAddress::parse(&address);
        let address = address.filter(|address| matches!(address, ServerAddress::Host { .. }))?;
        // What cannot be read says nothing; the server is there.
        let info: Value = serde_json::from_slice(info).unwrap_or_default();
        let port = info["status_port"]
            .as_u64()
            .filter(|port| (1..=65_535).contains(port));
        let zone = info["labels"]["zone"].as_str();
        Some(config::Server {
            max_connections: pd.max_connections,
            status_port: port.and_then(|port| u32::try_from(port).ok()),
            zone: zone.filter(|zone| is_zone(zone)).map(str::to_owned),
            ..config::Server::new(address)
        })
    };
    let mut servers: Vec<config::Server> = known.iter().filter_map(server).collect();
    let mut named = BTreeSet::new();
    servers.retain(|server| named.insert(server.address.to_string()));
    let left_out = servers.len().saturating_sub(SERVERS_MAX);
    servers.truncate(SERVERS_MAX);
    (servers, left_out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As a TiDB server of version 6.5 writes it.
    const INFO: &str = r#"{"version":"5.7.25-TiDB-v6.5.0","git_hash":"706c3fa3c526cdba5b3e9f066b1a568fb96c56e3","ip":"10.0.0.1",
        "listening_port":4000,"status_port":10080,"deploy_path":"/tidb/bin","start_timestamp":1700000000,"labels":{"zone":"east","host":"h1"}}"#;

    fn known(pairs: &[(&str, &str)]) -> Known {
        let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), value.as_bytes().to_vec());
        pairs.iter().map(pair).collect()
    }

    fn found(pd: &Pd, pairs: &[(&str, &str)]) -> Vec<(String, Option<u32>, Option<String>)> {
        let (servers, _) = servers(pd, &known(pairs));
        let say = |server: config::Server| (server.name, server.status_port, server.zone);
        servers.into_iter().map(say).collect()
    }

    #[test]
    fn a_server_lives_as_long_as_its_ttl() {
        let pd = Pd::new(Vec::new());
        let pairs = [
            ("/topology/tidb/10.0.0.1:4000/info", INFO),
            ("/topology/tidb/10.0.0.1:4000/ttl", "1700000000000000000"),
            ("/topology/tidb/10.0.0.1:04000/info", INFO),
            ("/topology/tidb/10.0.0.1:04000/ttl", "1"),
            ("/topology/tidb/10.0.0.1:3000/info", INFO),
            ("/topology/tidb/10.0.0.2:4000/info", INFO),
            ("/topology/tidb/10.0.0.3:4000/ttl", "1700000000000000000"),
            ("/topology/tidb/[fd00::1]:4000/info", "{}"),
            ("/topology/tidb/[fd00::1]:4000/ttl", "1"),
            ("/topology/tidb/tidb-0.tidb-peer.svc:4000/info", "no JSON"),
            ("/topology/tidb/tidb-0.tidb-peer.svc:4000/ttl", "1"),
            ("/topology/tidb/no host:4000/info", "{}"),
            ("/topology/tidb/no host:4000/ttl", "1"),
        ];
        let expected = [
            ("10.0.0.1:4000".to_owned(), Some(10_080), Some("east".to_owned())),
            ("[fd00::1]:4000".to_owned(), None, None),
            ("tidb-0.tidb-peer.svc:4000".to_owned(), None, None),
        ];
        assert_eq!(found(&pd, &pairs), expected);
    }

    #[test]
    fn a_keyspace_has_servers_of_its_own() {
        let pairs = [
            ("/keyspaces/tidb/42/topology/tidb/10.0.0.1:4000/info", INFO),
            ("/keyspaces/tidb/42/topology/tidb/10.0.0.1:4000/ttl", "1"),
            ("/topology/tidb/10.0.0.2:4000/info", INFO),
            ("/topology/tidb/10.0.0.2:4000/ttl", "1"),
        ];
        let named = |keyspace| {
            let pd = Pd {
                keyspace,
                ..Pd::new(Vec::new())
            };
            let found = found(&pd, &pairs);
            found.into_iter().map(|(name, ..)| name).collect::<Vec<_>>()
        };
        assert_eq!(named(Some(42)), ["10.0.0.1:4000"]);
        assert_eq!(named(None), ["10.0.0.2:4000"]);
        assert_eq!(named(Some(4)), [""; 0]);
    }

    #[test]
    fn their_number_is_bounded() {
        let mut known = Known::new();
        for port in 1..=300 {
            known.insert(format!("/topology/tidb/10.0.0.1:{port}/info"), b"{}".to_vec());
            known.insert(format!("/topology/tidb/10.0.0.1:{port}/ttl"), b"1".to_vec());
        }
        let (servers, left_out) = servers(&Pd::new(Vec::new()), &known);
        assert_eq!((servers.len(), left_out), (SERVERS_MAX, 300 - SERVERS_MAX));
    }

    proptest! {
        #[test]
        fn any_info_is_read(info in prop::collection::vec(any::<u8>(), 0..100), address in "\\PC{0,20}") {
            let known = Known::from([
                (format!("/topology/tidb/{address}/info"), info),
                (format!("/topology/tidb/{address}/ttl"), Vec::new()),
            ]);
            servers(&Pd::new(Vec::new()), &known);
        }
    }
}
