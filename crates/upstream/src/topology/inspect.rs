//! What `forebay check --connect` finds out: every server is asked once what a running gateway asks it, by
//! the accounts that it has.
//!
//! Nothing is judged here, and nothing is changed on a server; a login that fails counts there as any other
//! does.

use std::sync::Arc;
use std::time::Duration;

use config::{AccountsFrom, Secret};
use mysql_wire::gtid::Flavor;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::connection::Connection;
use super::look::look;
use crate::accounts;
use crate::cluster::Cluster;
use crate::conversation::{Rows, is_off};
use crate::direct::Direct;
use crate::error::Seconds;
use crate::login::Account;
use crate::probe::probe;
use crate::server::{Server, ServerId, Status};
use crate::sharing;

/// How often it is looked whether every server has been seen.
const TICK: Duration = Duration::from_millis(50);

/// Time without another topology after which the picture is taken for complete: members may name further
/// ones.
const QUIET: Duration = Duration::from_millis(500);

/// The longest wait for such a time.
const QUIET_MAX: Duration = Duration::from_secs(5);

const OF_MYSQL: &str = "SELECT @@global.read_only AS read_only, @@global.super_read_only AS super_read_only, \
    @@global.gtid_mode AS gtid_mode, @@global.log_bin AS log_bin, @@global.gtid_executed AS position, \
    @@global.max_connections AS max_connections";
const OF_MARIADB: &str = "SELECT @@global.read_only AS read_only, @@global.log_bin AS log_bin, \
    @@global.gtid_current_pos AS position, @@global.max_connections AS max_connections";

/// Rights of which one lets an account end the statements of others.
const ENDS_OTHERS: [&str; 4] = ["ALL PRIVILEGES", "SUPER", "CONNECTION ADMIN", "CONNECTION_ADMIN"];

/// An account whose login is to be tried.
#[derive(Clone, Debug)]
pub struct LoginTrial {
    pub user: String,
    pub password: Secret,
}

/// What one server has said. Words are for a person.
#[derive(Debug)]
pub struct Inspection {
    pub server: ServerId,
    /// Its version as in its greeting.
    pub version: Option<String>,
    /// The health check: what it found, or why it failed.
    pub check: Result<String, String>,
    /// What the account of the monitor (`None`: there is none) may ask: role and lag.
    pub monitor: Option<Result<(), String>>,
    /// Whether that account may ask for further members, where it has to.
    pub discovery: Option<Result<(), String>>,
    /// Whether that account may read the servers' accounts, where it has to.
    pub accounts: Option<Result<(), String>>,
    /// Whether the account of the checks may end statements of others; `None` where that is not known.
    pub ends_others: Option<bool>,
    /// Its variables, as far as an account may ask for them.
    pub variables: Option<Variables>,
    /// Why sessions cannot share connections to it.
    pub unshared: Option<String>,
    /// The logins that were to be tried, in their order; nothing where the server cannot be reached.
    pub logins: Vec<Result<(), String>>,
}

/// Variables of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variables {
    /// `read_only` or `super_read_only`.
    pub read_only: bool,
    /// It gives transactions GTIDs: MySQL `gtid_mode = ON`, MariaDB the binary log.
    pub gives_gtids: bool,
    /// What it has executed, as GTIDs.
    pub position: String,
    /// Connections that it takes.
    pub max_connections: Option<u64>,
}

impl Cluster {
    /// Asks every server, discovered ones as well, after following the cluster until every server was seen.
    /// To be called on a cluster of one's own, whose checks do not run. Ends within the limits of time of
    /// checks, monitor and logins.
    pub async fn inspect(self: &Arc<Self>, trials: Vec<LoginTrial>) -> Vec<Inspection> {
        let mut checks = JoinSet::new();
        checks.spawn(Arc::clone(self).run_checks());
        self.settle().await;
        let trials: Arc<[LoginTrial]> = trials.into();
        let mut asked = JoinSet::new();
        for (place, server) in self.servers().iter().enumerate() {
            let (cluster, server, trials) = (Arc::clone(self), Arc::clone(server), Arc::clone(&trials));
            asked.spawn(async move { (place, inspect(&cluster, &server, &trials).await) });
        }
        let mut inspections = asked.join_all().await;
        inspections.sort_by_key(|(place, _)| *place);
        inspections
            .into_iter()
            .map(|(_, inspection)| inspection)
            .collect()
    }

    async fn settle(&self) {
        let config = self.config();
        let of_monitor = config.monitor.as_ref().map(|monitor| monitor.timeout);
        let limit = config.check.timeout.max(of_monitor.unwrap_or_default()) + QUIET;
        let until = Instant::now() + limit;
        while Instant::now() < until && !self.is_seen() {
            sleep(TICK).await;
        }
        let end = Instant::now() + QUIET_MAX;
        let mut generation = self.topology().generation;
        while Instant::now() < end {
            if timeout(QUIET, self.wait_for_topology_change(generation))
                .await
                .is_err()
            {
                return;
            }
            generation = self.topology().generation;
        }
    }

    fn is_seen(&self) -> bool {
        let has_monitor = self.config().monitor.is_some();
        let servers = self.servers();
        let is_seen = |server: &Arc<Server>| {
            server.state().status != Status::Starting && (!has_monitor || server.looks.total.get() > 0)
        };
        !servers.is_empty() && servers.iter().all(is_seen)
    }
}

async fn inspect(cluster: &Arc<Cluster>, server: &Arc<Server>, trials: &[LoginTrial]) -> Inspection {
    let config = cluster.config();
    let check = probe(cluster, server, &config).await;
    let is_there = check.is_ok();
    let mut found = Inspection {
        server: server.id(),
        version: None,
        check,
        monitor: None,
        discovery: None,
        accounts: None,
        ends_others: None,
        variables: None,
        unshared: None,
        logins: Vec::new(),
    };
    if let Some(monitor) = &config.monitor {
        let limit = monitor.timeout;
        let asked = timeout(
            limit,
            ask_as_monitor(cluster, server, &config, monitor, &mut found),
        )
        .await;
        let late = || Err(format!("no answer within {}", Seconds(limit)));
        found.monitor = Some(asked.unwrap_or_else(|_| late()));
        if config.accounts.from == AccountsFrom::Servers && found.monitor == Some(Ok(())) {
            let read = timeout(limit, accounts::try_read(cluster, server, &config, monitor)).await;
            found.accounts = Some(read.unwrap_or_else(|_| late()));
        }
    }
    if let Some(user) = &config.check.user {
        let mut account = config::Monitor::new(user.as_str());
        account.password.clone_from(&config.check.password);
        let asked = ask_as_check(cluster, server, &config, &account, &mut found);
        // What it could not say is not known.
        let _ = timeout(config.check.timeout, asked).await;
    }
    if let Some(profile) = server.profile() {
        found.version = Some(String::from_utf8_lossy(&profile.server_version).into_owned());
        found.unshared = sharing::missing(profile.capabilities);
    }
    if is_there {
        for trial in trials {
            found.logins.push(try_login(cluster, server, trial).await);
        }
    }
    found
}

async fn ask_as_monitor(
    cluster: &Cluster,
    server: &Server,
    config: &config::Cluster,
    monitor: &config::Monitor,
    found: &mut Inspection,
) -> Result<(), String> {
    let opened = Connection::open(cluster, server, config, monitor, monitor.timeout).await;
    let mut connection = opened.map_err(|blind| blind.reason)?;
    found.variables = variables(&mut connection).await;
    let looked = look(&mut connection, config.topology, monitor).await;
    let follows = config.topology == config::Topology::Replication && monitor.discover;
    if follows && looked.is_ok() {
        let replicas = match connection.flavor {
            Flavor::MySql if !connection.old_words => "SHOW REPLICAS",
            Flavor::MySql | Flavor::MariaDb => "SHOW SLAVE HOSTS",
        };
        let listed = connection.query(replicas).await;
        found.discovery = Some(listed.map(drop).map_err(|error| error.to_string()));
    }
    connection.close().await;
    looked
        .map(drop)
        .map_err(|error| format!("does not tell its role: {error}"))
}

async fn ask_as_check(
    cluster: &Cluster,
    server: &Server,
    config: &config::Cluster,
    account: &config::Monitor,
    found: &mut Inspection,
) -> Option<()> {
    let opened = Connection::open(cluster, server, config, account, config.check.timeout).await;
    let mut connection = opened.ok()?;
    if found.variables.is_none() {
        found.variables = variables(&mut connection).await;
    }
    let grants = connection.query("SHOW GRANTS").await.ok()?;
    found.ends_others = ends_others(&grants);
    connection.close().await;
    Some(())
}

/// `None` where roles are granted, of which it is not known what they allow.
fn ends_others(grants: &Rows) -> Option<bool> {
    let mut has_roles = false;
    for grant in grants.texts() {
        let Some((rights, _)) = grant.split_once(" ON ") else {
            has_roles = true;
            continue;
        };
        let is_global = grant.contains(" ON *.* ");
        if is_global && ENDS_OTHERS.iter().any(|right| rights.contains(right)) {
            return Some(true);
        }
    }
    (!has_roles).then_some(false)
}

async fn variables(connection: &mut Connection) -> Option<Variables> {
    let statement = match connection.flavor {
        Flavor::MySql => OF_MYSQL,
        Flavor::MariaDb => OF_MARIADB,
    };
    let rows = connection.query(statement).await.ok()?;
    let row = rows.first()?;
    let is_on = |name| row.is_on(&[name]).unwrap_or(false);
    let mode = row.bytes(&["gtid_mode"]);
    Some(Variables {
        read_only: is_on("read_only") || is_on("super_read_only"),
        gives_gtids: is_on("log_bin")
            && mode.is_none_or(|mode| !is_off(mode) && mode.eq_ignore_ascii_case(b"ON")),
        position: row.text(&["position"]).unwrap_or_default(),
        max_connections: row.number(&["max_connections"]),
    })
}

async fn try_login(cluster: &Cluster, server: &Server, trial: &LoginTrial) -> Result<(), String> {
    let account = Account::of(&trial.user, Some(&trial.password));
    let opened = Direct::open(cluster, server, account).await;
    opened.map_err(|error| error.to_string())?.close().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_to_end_statements_are_read_from_grants() {
        let of = |grants: &[&str]| {
            let rows: Vec<[Option<&str>; 1]> = grants.iter().map(|grant| [Some(*grant)]).collect();
            let rows: Vec<&[Option<&str>]> = rows.iter().map(|row| &row[..]).collect();
            ends_others(&Rows::of(&["Grants for m@%"], &rows))
        };
        assert_eq!(of(&["GRANT USAGE ON *.* TO `m`@`%`"]), Some(false));
        assert_eq!(
            of(&["GRANT SLAVE MONITOR, CONNECTION ADMIN ON *.* TO `m`@`%`"]),
            Some(true)
        );
        assert_eq!(
            of(&[
                "GRANT USAGE ON *.* TO `m`@`%`",
                "GRANT CONNECTION_ADMIN ON *.* TO `m`@`%`"
            ]),
            Some(true)
        );
        assert_eq!(
            of(&["GRANT ALL PRIVILEGES ON `shop`.* TO `m`@`%`"]),
            Some(false),
            "of a schema"
        );
        assert_eq!(
            of(&["GRANT USAGE ON *.* TO `m`@`%`", "GRANT `role`@`%` TO `m`@`%`"]),
            None
        );
    }
}
