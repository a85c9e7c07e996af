//! What is right and does nothing: options of mode `split` where no listener has it, or of sessions that move
//! where none does. Nobody must believe that a rule refuses statements which no listener looks at; but a file
//! is good with it, since listeners come and go.

use crate::schema::{Cluster, Config, Listener, Mode, Protocol, RebalancePolicy, Rule, Server, Topology};

/// What is said of each rule, account and option that does nothing.
#[must_use]
pub fn idle_worries(config: &Config) -> Vec<String> {
    let mut worries = Vec::new();
    worries.extend(rules(config));
    worries.extend(users(config));
    for (name, cluster) in &config.clusters {
        worries.extend(options(name, cluster, config));
        worries.extend(rebalance(name, cluster, config));
    }
    worries.extend(
        config
            .listeners
            .iter()
            .filter_map(|listener| label(listener, config)),
    );
    worries
}

/// Some server bears the label of a listener, and its mode goes by that.
fn label(listener: &Listener, config: &Config) -> Option<String> {
    let (name, wanted) = (&listener.name, listener.label.as_ref()?);
    if splits(listener) || is_redis(listener) {
        return Some(format!(
            "listener.{name}: `label` does nothing: it is for sessions of modes \"tcp\" and \"session\""
        ));
    }
    let cluster = config.clusters.get(&listener.cluster)?;
    let is_borne = cluster
        .servers
        .iter()
        .any(|server| server.label.as_ref() == Some(wanted));
    (!is_borne).then(|| {
        format!(
            "listener.{name}: no server of cluster.{} has `label = \"{wanted}\"`",
            listener.cluster
        )
    })
}

fn splits(listener: &Listener) -> bool {
    listener.protocol == Protocol::Mysql && listener.mode == Mode::Split
}

fn is_redis(listener: &Listener) -> bool {
    listener.protocol == Protocol::Redis
}

/// Rules see statements, and only mode `split` does.
fn rules(config: &Config) -> Option<String> {
    let rules = || config.rules.iter().filter(|rule| rule.enabled);
    let first = rules().next()?;
    if !config.listeners.iter().any(splits) {
        let which = match rules().count() {
            1 => format!("rule[{}]: it does", first.name),
            count => format!("rule: all {count} do"),
        };
        return Some(format!(
            "{which} nothing, since no listener has mode \"split\"; other modes know no rules"
        ));
    }
    let is_meant =
        |listener: &Listener, rule: &Rule| rule.listener.is_empty() || rule.listener.contains(&listener.name);
    let passed_by = |listener: &&Listener| {
        !splits(listener) && !is_redis(listener) && rules().any(|rule| is_meant(listener, rule))
    };
    let names = config.listeners.iter().filter(passed_by);
    let names: Vec<String> = names
        .map(|listener| format!("{} (mode \"{}\")", listener.name, listener.mode.word()))
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            "rule: rules do not apply to {}: only mode \"split\" knows them. A rule that is not for all listeners says for which in `listener`",
            names.join(", ")
        )
    })
}

/// Everywhere else servers let clients in.
fn users(config: &Config) -> Option<String> {
    let asks = |listener: &Listener| splits(listener) || is_redis(listener) || listener.moves;
    let is_idle = !config.users.is_empty() && !config.listeners.iter().any(asks);
    is_idle.then(|| {
        "user: accounts are asked for by listeners of mode \"split\", of `protocol = \"redis\"` and with `moves`, and there is none: servers alone decide who logs in"
            .to_owned()
    })
}

/// Options that are written with another value than their default, where nobody looks at them.
fn options(name: &str, cluster: &Cluster, config: &Config) -> Option<String> {
    let of_cluster = || {
        config
            .listeners
            .iter()
            .filter(|listener| listener.cluster == name)
    };
    let gets_copies = config
        .rules
        .iter()
        .any(|rule| rule.mirror.as_deref() == Some(name));
    // One that nobody uses at all is another matter.
    if gets_copies || of_cluster().next().is_none() || of_cluster().any(splits) {
        return None;
    }
    let usual = Cluster::new(name, Vec::new());
    let moves = of_cluster().any(|listener| listener.moves);
    // Over a Unix socket `interval` counts in all modes that see a login.
    let accounts = cluster.accounts != usual.accounts
        && !of_cluster().any(is_redis)
        && super::trust::by_socket(cluster).is_none();
    let written = [
        ("accounts", accounts),
        (
            "failover_release",
            !moves && cluster.failover_release != usual.failover_release,
        ),
        (
            "failover_wait",
            !moves && cluster.failover_wait != usual.failover_wait,
        ),
        ("group", cluster.groups != usual.groups),
        ("pool", cluster.pool != usual.pool),
        ("primary_reads", cluster.primary_reads != usual.primary_reads),
        ("read_balance", cluster.read_balance != usual.read_balance),
        ("read_wait", !moves && cluster.read_wait != usual.read_wait),
        (
            "transaction_replay",
            cluster.transaction_replay != usual.transaction_replay,
        ),
        (
            "transaction_replay_max",
            cluster.transaction_replay_max != usual.transaction_replay_max,
        ),
        (
            "transaction_replay_memory",
            cluster.transaction_replay_memory != usual.transaction_replay_memory,
        ),
        (
            "trust_functions",
            cluster.trust_functions != usual.trust_functions,
        ),
    ];
    let idle: Vec<String> = written
        .iter()
        .filter(|(_, is_written)| *is_written)
        .map(|(option, _)| format!("`{option}`"))
        .collect();
    (!idle.is_empty()).then(|| {
        let does = if idle.len() == 1 { "does" } else { "do" };
        format!(
            "cluster.{name}: {} {does} nothing, since no listener of this cluster has mode \"split\"",
            idle.join(", ")
        )
    })
}

/// Sessions even out that may move, and the own zone is one that is said.
fn rebalance(name: &str, cluster: &Cluster, config: &Config) -> Option<String> {
    let policy = cluster.rebalance.policy;
    let mut moving = config
        .listeners
        .iter()
        .filter(|listener| listener.moves && listener.cluster == name);
    if policy == RebalancePolicy::Off {
        return None;
    }
    if moving.next().is_none() {
        return Some(format!(
            "cluster.{name}: `rebalance` does nothing, since no listener of this cluster has `moves = true`"
        ));
    }
    let is_known = |zone: &String| {
        cluster
            .servers
            .iter()
            .any(|server| server.zone.as_ref() == Some(zone))
    };
    let has_figures = |server: &Server| server.exporter.is_some() || cluster.topology == Topology::Tidb;
    if policy == RebalancePolicy::Resource && !cluster.servers.iter().any(has_figures) && cluster.pd.is_none()
    {
        return Some(format!(
            "cluster.{name}: `rebalance` knows nothing of CPU and memory: give the servers an `exporter`"
        ));
    }
    let is_idle = policy == RebalancePolicy::Location && !config.zone.as_ref().is_some_and(is_known);
    is_idle.then(|| {
        format!(
            "cluster.{name}: `rebalance` knows no server of the gateway's own zone: set `zone` of the gateway and of its servers"
        )
    })
}
