//! What is right, and mostly not what was meant: told by `forebay check`, and in the log at the start.

use crate::schema::{AccountsFrom, Cluster, Config, Listener, Protocol, Rule, TlsMode, Topology};

/// Servers that a line names; further ones are counted.
const NAMED_MAX: usize = 4;

/// What is said of options that probably miss something.
#[must_use]
pub fn setup_worries(config: &Config) -> Vec<String> {
    let mut worries = config.renamed.clone();
    worries.extend(config.rules.iter().filter(|rule| rule.enabled).filter_map(rule));
    worries.extend(
        config
            .clusters
            .iter()
            .flat_map(|(name, cluster)| [passwords(name, cluster), limits(name, cluster, config)])
            .flatten(),
    );
    worries.extend(
        config
            .listeners
            .iter()
            .filter_map(|listener| moves(listener, config)),
    );
    worries.extend(admin(config));
    worries
}

/// A rule that matches and says nothing ends the search for one that does, unless it has `continue`.
fn rule(rule: &Rule) -> Option<String> {
    let acts = rule.route.is_some()
        || rule.pin.is_some()
        || rule.refuse.is_some()
        || rule.answer_ok.is_some()
        || rule.rewrite.is_some()
        || rule.max_concurrency.is_some()
        || rule.rate.is_some()
        || rule.timeout.is_some()
        || rule.delay.is_some()
        || rule.retries.is_some()
        || rule.mirror.is_some()
        || rule.log
        || rule.read_consistency.is_some();
    let effect = match rule.go_on {
        true => "it does nothing",
        false => {
            "it does nothing but keep the rules behind it from the statements that it matches. If that is meant, `log = true` shows them"
        }
    };
    (!acts).then(|| {
        format!(
            "rule[{}]: no action (`route`, `pin`, `refuse`, `rewrite`, `timeout`, …): {effect}",
            rule.name
        )
    })
}

/// An account that was given without its password logs in with none.
fn passwords(name: &str, cluster: &Cluster) -> Option<String> {
    let check = &cluster.check;
    let has_some = |ways: [(&str, bool); 3]| ways.iter().any(|(_, given)| *given);
    let user = check
        .user
        .as_ref()
        .filter(|_| !has_some(super::passwords!(check)))?;
    let monitor = cluster.monitor.as_ref().filter(|monitor| monitor.user == *user);
    let is_monitors = monitor.is_some_and(|monitor| has_some(super::passwords!(monitor)));
    (!is_monitors).then(|| {
        let whose = if monitor.is_some() { "monitor" } else { "check" };
        format!(
            "cluster.{name}.{whose}: `user` {user:?} has no password; say so with `password = \"\"`, or give it with `password_file`, \
             `password_env` or `password`"
        )
    })
}

/// Servers without a limit get as many connections as transactions and long statements hold, up to their own
/// limit.
fn limits(name: &str, cluster: &Cluster, config: &Config) -> Option<String> {
    let splits = |listener: &Listener| {
        listener.cluster == name && listener.protocol == Protocol::Mysql && listener.shares()
    };
    if !config.listeners.iter().any(splits) {
        return None;
    }
    let servers = cluster
        .servers
        .iter()
        .filter(|server| server.max_connections == 0);
    let by_dns = cluster.srv.iter().filter(|srv| srv.max_connections == 0);
    let by_kubernetes = (cluster.endpoint_slices.iter()).filter(|slices| slices.max_connections == 0);
    let names: Vec<&str> = servers
        .map(|server| server.name.as_str())
        .chain(by_dns.map(|srv| srv.name.as_str()))
        .chain(by_kubernetes.map(|slices| slices.service.as_str()))
        .collect();
    let more = match names.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = names
        .iter()
        .take(NAMED_MAX)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    (!names.is_empty()).then(|| {
        format!(
            "cluster.{name}: no `max_connections` for {named}{more}: in mode \"split\" that is the ceiling of the connections that sessions \
             share, and without it the server's own limit is, which others need as well. \
             servers = [{{ address = \"…\", max_connections = 100 }}]"
        )
    })
}

/// To log in on another server takes a password, or the token that TiDB gives.
fn moves(listener: &Listener, config: &Config) -> Option<String> {
    let cluster = config.clusters.get(&listener.cluster)?;
    if cluster.topology == Topology::Tidb {
        let is_open = cluster.tls.mode == TlsMode::Off;
        return (listener.moves && is_open).then(|| {
            format!(
                "listener {}: `moves` is on, and TiDB lets sessions go over TLS only. tls = {{ mode = \"required\", ca = \"…\" }}",
                listener.name
            )
        });
    }
    let knows_some = !config.users.is_empty() || cluster.accounts.from != AccountsFrom::Configured;
    (listener.moves && !knows_some).then(|| {
        format!(
            "listener {}: `moves` is on, and there is no [[user]]: only sessions move whose clients have sent their password in full. Name the \
             accounts with their passwords, or let `accounts = \"servers\"` read their hashes",
            listener.name
        )
    })
}

/// The admin server knows no TLS, and answers questions of anybody.
fn admin(config: &Config) -> Option<String> {
    let bind = config.admin.as_ref()?.bind;
    (!bind.ip().to_canonical().is_loopback()).then(|| {
        format!(
            "admin: {bind} is not loopback, and to read needs no login: whoever reaches it sees sessions and accounts' names. \
             Bind 127.0.0.1, or let a firewall keep everybody else away"
        )
    })
}
