//! Reads the accounts again and again, and when somebody has met one that does not fit.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use config::AccountsFrom;
use mysql_wire::gtid::Flavor;
use tokio::time::{Instant, sleep_until, timeout};

use super::{ServerAccounts, entry};
use crate::cluster::Cluster;
use crate::conversation::{Bounds, Rows};
use crate::error::Seconds;
use crate::server::Server;
use crate::topology::{Connection, Role};

/// Least time between the beginnings of two reads, however many logins fail.
const MIN_GAP: Duration = Duration::from_secs(1);

/// How often passwords of accounts that are not read are looked through for those that nobody uses.
const CLEAN_INTERVAL: Duration = Duration::from_secs(30);

/// What is read at most: more is an error, and nothing is known then.
const BOUNDS: Bounds = Bounds {
    rows: 200_000,
    bytes: 64 << 20,
};

/// Accounts for local clients are not for those of a gateway. Of several with one name those go first that
/// the server takes for the gateway's.
macro_rules! chosen {
    () => {
        " WHERE User <> '' AND Host NOT IN ('localhost', '127.0.0.1', '::1')
          ORDER BY User, SUBSTRING_INDEX(USER(), '@', -1) LIKE Host DESC, Host DESC"
    };
}

/// The first that the server does not refuse: the others are for older servers, and for want of privileges.
const OF_MARIADB: &[&str] = &[
    concat!("SELECT User, Priv FROM mysql.global_priv", chosen!()),
    concat!(
        "SELECT User, plugin, IF(authentication_string = '', Password, authentication_string) AS authentication_string
         FROM mysql.user",
        chosen!()
    ),
];
const OF_MYSQL: &[&str] = &[
    concat!(
        "SELECT User, plugin, authentication_string, account_locked, password_expired, User_attributes FROM mysql.user",
        chosen!()
    ),
    concat!(
        "SELECT User, plugin, authentication_string, account_locked, password_expired FROM mysql.user",
        chosen!()
    ),
    concat!(
        "SELECT User, plugin, authentication_string FROM mysql.user",
        chosen!()
    ),
];

/// Reads accounts until the future is dropped.
pub(crate) async fn watch(cluster: Arc<Cluster>) {
    let accounts = &cluster.accounts;
    let mut failing = None;
    let hasher = RandomState::default();
    let mut before = None;
    loop {
        let config = cluster.config();
        let Some(monitor) = config
            .monitor
            .as_ref()
            .filter(|_| config.accounts.from == AccountsFrom::Servers)
        else {
            accounts.known.store(None);
            before = None;
            accounts.pass_through.clean(&config.accounts);
            let _ = timeout(CLEAN_INTERVAL, accounts.wanted.notified()).await;
            continue;
        };
        let begun = Instant::now();
        let number = accounts.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let read = read_in_time(&cluster, &config, monitor).await;
        let interval = match &read {
            Ok(_) => config.accounts.interval,
            Err(_) => MIN_GAP,
        };
        tell(&cluster, &read, &mut failing);
        if let Ok(rows) = read {
            let earlier = accounts.known.load_full();
            let earlier = earlier.as_deref().filter(|_| config.accounts.keep_passwords);
            let new = ServerAccounts::new(entry::entries(&rows), earlier);
            accounts.known.store(Some(Arc::new(new)));
            let hash = Some(hasher.hash_one(&rows));
            if before.is_some() && before != hash {
                cluster.note_changed_accounts();
            }
            before = hash;
        }
        accounts.ended.send_replace(number);
        tokio::select! {
            () = sleep_until(begun + interval) => {}
            () = accounts.wanted.notified() => sleep_until(begun + MIN_GAP).await,
        }
    }
}

async fn read_in_time(
    cluster: &Cluster,
    config: &config::Cluster,
    monitor: &config::Monitor,
) -> Result<Rows, String> {
    let server = timeout(monitor.timeout, server(cluster)).await;
    let server = server.map_err(|_| "no server is known to be the primary or a replica")?;
    let read = timeout(monitor.timeout, read(cluster, &server, config, monitor)).await;
    read.unwrap_or_else(|_| {
        let limit = Seconds(monitor.timeout);
        Err(format!("server {}: no answer within {limit}", server.name()))
    })
}

/// Whether the account of the monitor may read the accounts of this server.
pub(crate) async fn try_read(
    cluster: &Cluster,
    server: &Server,
    config: &config::Cluster,
    monitor: &config::Monitor,
) -> Result<(), String> {
    read(cluster, server, config, monitor).await.map(drop)
}

async fn read(
    cluster: &Cluster,
    server: &Server,
    config: &config::Cluster,
    monitor: &config::Monitor,
) -> Result<Rows, String> {
    let connection = Connection::open(cluster, server, config, monitor, monitor.timeout).await;
    let in_words = |reason: String| format!("server {}: {reason}", server.name());
    let mut connection = connection.map_err(|blind| in_words(blind.reason))?;
    let questions = match connection.flavor {
        Flavor::MariaDb => OF_MARIADB,
        Flavor::MySql => OF_MYSQL,
    };
    let mut rows = Err(in_words("nothing to ask".to_owned()));
    for question in questions {
        match connection.query_within(question, BOUNDS).await {
            Ok(found) => {
                rows = Ok(found);
                break;
            }
            Err(error) => {
                let is_refusal = error.is_refusal();
                rows = Err(in_words(error.to_string()));
                if !is_refusal {
                    break;
                }
            }
        }
    }
    let rows = rows?;
    connection.close().await;
    Ok(rows)
}

/// The primary has them first; replicas have them as well. Waits where there is neither, as in the first
/// moments.
pub(super) async fn server(cluster: &Cluster) -> Arc<Server> {
    let mut topology = cluster.topology();
    loop {
        let members = topology.members.iter();
        let usable = members.filter(|member| member.role != Role::Unusable);
        let best =
            usable.max_by_key(|member| (member.role == Role::Primary, member.server.takes_statements()));
        if let Some(best) = best {
            return Arc::clone(&best.server);
        }
        topology = cluster.wait_for_topology_change(topology.generation).await;
    }
}

/// Logs when reads begin to fail, for another reason, and when they succeed again.
fn tell(cluster: &Cluster, read: &Result<Rows, String>, failing: &mut Option<String>) {
    let cluster = cluster.name();
    let reason = read.as_ref().err();
    if reason == failing.as_ref() {
        return;
    }
    match reason {
        Some(reason) => tracing::warn!(cluster, reason, "the servers' accounts cannot be read"),
        None => tracing::info!(cluster, "the servers' accounts can be read again"),
    }
    *failing = reason.cloned();
}
