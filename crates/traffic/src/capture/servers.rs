//! The servers at the beginning of a capture, so that a copy of them can be brought to that point.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;
use upstream::conversation;
use upstream::login::Account;
use upstream::{Cluster, Direct, Flavor, Member};

use crate::record::ServerAtStart;

/// Servers that are asked.
const SERVERS_MAX: usize = 64;
/// For one server; it is less than an operator waits for the act.
const LIMIT: Duration = Duration::from_secs(2);

/// What is known of all servers, and what they say, asked by the account of the cluster's `monitor` or of its
/// checks.
pub async fn servers(clusters: &[Arc<Cluster>]) -> Vec<ServerAtStart> {
    // Side by side: some that are down are not to take the time of an operator one after the other.
    let mut asking = JoinSet::new();
    for cluster in clusters {
        for member in cluster.topology().members.iter().take(SERVERS_MAX) {
            let (place, cluster, member) = (asking.len(), Arc::clone(cluster), member.clone());
            asking.spawn(async move { (place, server(&cluster, &member).await) });
        }
    }
    let mut servers = asking.join_all().await;
    servers.sort_by_key(|(place, _)| *place);
    servers.into_iter().map(|(_, server)| server).collect()
}

async fn server(cluster: &Arc<Cluster>, member: &Member) -> ServerAtStart {
    let identity = member.identity.as_ref().map(ToString::to_string);
    let is_mariadb = member.flavor == Some(Flavor::MariaDb);
    let (server_uuid, server_id) = match is_mariadb {
        true => (None, identity),
        false => (identity, None),
    };
    let mut server = ServerAtStart {
        cluster: cluster.name().to_owned(),
        name: member.server.name().to_owned(),
        role: member.role.label().to_owned(),
        server_uuid,
        server_id,
        ..ServerAtStart::default()
    };
    match timeout(LIMIT, ask(cluster, member, &mut server)).await {
        Ok(Ok(())) => {}
        Ok(Err(why)) => server.missing = Some(why),
        Err(_) => server.missing = Some(format!("no answer within {} s", LIMIT.as_secs())),
    }
    server
}

async fn ask(cluster: &Arc<Cluster>, member: &Member, server: &mut ServerAtStart) -> Result<(), String> {
    let config = cluster.config();
    let of_monitor = config
        .monitor
        .as_ref()
        .map(|monitor| (monitor.user.clone(), monitor.password.clone()));
    let of_checks = || Some((config.check.user.clone()?, config.check.password.clone()));
    let (user, password) = of_monitor
        .or_else(of_checks)
        .ok_or("the cluster has no account to ask with: neither `monitor` nor `check.user`")?;
    let account = Account::of(&user, password.as_ref());
    let opened = Direct::open(cluster, &member.server, account).await;
    let mut direct = opened.map_err(|error| error.to_string())?;
    let of_kind = match direct.flavor {
        Flavor::MariaDb => "SELECT NULL, @@GLOBAL.gtid_current_pos",
        Flavor::MySql => "SELECT @@GLOBAL.server_uuid, @@GLOBAL.gtid_executed",
    };
    let common = "SELECT VERSION(), @@GLOBAL.sql_mode, @@GLOBAL.time_zone, @@GLOBAL.server_id";
    let commands = [common, of_kind].map(|text| conversation::query(direct.capabilities, text));
    let answers = conversation::ask(&mut direct.stream, direct.capabilities, &commands).await;
    let answers = answers.map_err(|error| error.to_string())?;
    if let [common, of_kind] = answers.as_slice() {
        let text = |value: Option<&[u8]>| value.map(|value| String::from_utf8_lossy(value).into_owned());
        if let Some(row) = common.row::<4>() {
            let server_id;
            [server.version, server.sql_mode, server.time_zone, server_id] = row.map(text);
            server.server_id = server_id.or(server.server_id.take());
        }
        if let Some(row) = of_kind.row::<2>() {
            let server_uuid;
            [server_uuid, server.gtid_position] = row.map(text);
            server.server_uuid = server_uuid.or(server.server_uuid.take());
        }
    }
    direct.close().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn servers_that_say_nothing_are_not_waited_for_one_by_one() {
        // The kernel takes the connections, and nobody greets.
        let silent = [(); 6].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let servers = silent.iter().map(|listener| {
            config::Server::new(config::ServerAddress::Host {
                host: "127.0.0.1".to_owned(),
                port: listener.local_addr().unwrap().port(),
            })
        });
        let mut config = config::Cluster::new("main", servers.collect());
        config.check.user = Some("monitor".to_owned());
        let clusters = [Cluster::new(config).unwrap()];
        // Servers that are asked one by one take six limits.
        let asked = timeout(5 * LIMIT, super::servers(&clusters)).await;
        let asked = asked.expect("side by side");
        assert_eq!(asked.len(), 6);
        for (server, listener) in asked.iter().zip(&silent) {
            let port = listener.local_addr().unwrap().port().to_string();
            let missing = server.missing.as_deref().unwrap_or_default();
            assert!(server.name.ends_with(&port), "in their order: {}", server.name);
            assert!(missing.contains("no answer within"), "{missing}");
        }
    }
}
