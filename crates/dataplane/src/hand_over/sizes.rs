//! The number of connections to each server that are of use. The old process has learned the numbers, and the
//! new one begins with them: otherwise the first statements after an upgrade would wait while the new process
//! learns the same.

use std::sync::Arc;

use net::handover::MESSAGE_MAX;
use serde::{Deserialize, Serialize};
use upstream::Cluster;

/// Most bytes of the numbers, which share their message with its head.
const BYTES_MAX: usize = MESSAGE_MAX - 64;

#[derive(Serialize, Deserialize)]
struct Learned {
    cluster: String,
    server: String,
    connections: u32,
}

/// The numbers that this process has learned. Empty where they do not fit: the new process learns by itself.
pub(super) fn learned(clusters: &[Arc<Cluster>]) -> Vec<u8> {
    let mut all = Vec::new();
    for cluster in clusters {
        all.extend(cluster.servers().iter().map(|server| Learned {
            cluster: cluster.name().to_owned(),
            server: server.whereabouts(),
            connections: server.learned_size(),
        }));
    }
    let bytes = serde_json::to_vec(&all).unwrap_or_default();
    if bytes.len() > BYTES_MAX {
        Vec::new()
    } else {
        bytes
    }
}

/// Begins with the numbers that the process before this one has learned. Numbers that are not understood are
/// left out.
pub(super) fn begin_with(clusters: &[Arc<Cluster>], learned: &[u8]) {
    for known in serde_json::from_slice::<Vec<Learned>>(learned).unwrap_or_default() {
        let its = clusters.iter().find(|cluster| cluster.name() == known.cluster);
        let servers = its.map(|cluster| cluster.servers());
        let mut servers = servers.iter().flat_map(|servers| servers.iter());
        if let Some(server) = servers.find(|server| server.whereabouts() == known.server) {
            server.begin_with_size(known.connections);
        }
    }
}
