//! Who reads the binary log and the tables.

use config::Secret;
use mysql_wire::gtid::Flavor;
use upstream::login::Account;
use upstream::{Cluster, Direct, DirectError, Server};

use super::link::Link;

/// User and password, and the name that the gateway has among the replicas of a server.
#[derive(Clone)]
pub(super) struct Replica {
    user: String,
    password: Option<Secret>,
    pub(super) server_id: u32,
    /// The uuid that goes with it, for MySQL.
    pub(super) uuid: String,
}

impl Replica {
    /// The account of the configuration, or that of the cluster's monitor. `None` where there is neither.
    /// `drawn` is a random number.
    pub(super) fn new(config: &config::Cache, cluster: &config::Cluster, drawn: u64) -> Option<Self> {
        let (user, password) = match (&config.account, &cluster.monitor) {
            (Some(account), _) => (account.user.clone(), account.password.clone()),
            (None, Some(monitor)) => (monitor.user.clone(), monitor.password.clone()),
            (None, None) => return None,
        };
        // Away from the small numbers that people give.
        let server_id = config.server_id.unwrap_or((drawn >> 32) as u32 | 1 << 30);
        let uuid = format!("f07eba70-0000-4000-8000-{:04x}{server_id:08x}", drawn & 0xffff);
        Some(Self {
            user,
            password,
            server_id,
            uuid,
        })
    }

    pub(super) async fn connect(
        &self,
        cluster: &Cluster,
        server: &Server,
    ) -> Result<(Link, Flavor), DirectError> {
        let account = Account::of(&self.user, self.password.as_ref());
        let direct = Direct::open(cluster, server, account).await?;
        let flavor = direct.flavor;
        Ok((Link::new(direct), flavor))
    }
}
