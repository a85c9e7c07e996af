//! Who reads the binary log and the tables.

use config::CacheAccount;
use mysql_wire::gtid::Flavor;
use upstream::{Cluster, DirectError, Server};

use super::link::Link;

/// User and password, and the name that the gateway has among the replicas of a server.
#[derive(Clone)]
pub(super) struct Replica {
    account: CacheAccount,
    pub(super) server_id: u32,
    /// The uuid that goes with it, for MySQL.
    pub(super) uuid: String,
}

impl Replica {
    /// `None` without an account: a configuration that was read has one, that of the cluster's monitor where
    /// none is written. `drawn` is a random number.
    pub(super) fn new(config: &config::Cache, drawn: u64) -> Option<Self> {
        // Away from the small numbers that people give.
        let server_id = config.server_id.unwrap_or((drawn >> 32) as u32 | 1 << 30);
        let uuid = format!("f07eba70-0000-4000-8000-{:04x}{server_id:08x}", drawn & 0xffff);
        Some(Self {
            account: config.account.clone()?,
            server_id,
            uuid,
        })
    }

    pub(super) async fn connect(
        &self,
        cluster: &Cluster,
        server: &Server,
    ) -> Result<(Link, Flavor), DirectError> {
        Link::open(cluster, server, &self.account).await
    }
}
