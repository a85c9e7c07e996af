//! Defaults that depend on other options: names, and what an option that is given says about one that is not.

use std::collections::BTreeSet;

use crate::address::ServerAddress;
use crate::report::Report;
use crate::schema::{
    CacheAccount, Check, CheckKind, Cluster, ClusterTls, Config, Mode, Protocol, Topology, Verify,
};

/// Fills in what is not written; what is written stays.
pub(crate) fn fill(config: &mut Config, report: &Report<'_>) {
    for (index, listener) in config.listeners.iter_mut().enumerate() {
        if !report.is_written(&format!("listener[{index}].name")) {
            listener.name = listener.bind.to_string();
        }
        let cache = config.cache.as_ref();
        if let Some(cache) = cache.filter(|_| listener.protocol == Protocol::Redis)
            && !report.is_written(&format!("listener[{index}].cluster"))
        {
            listener.cluster.clone_from(&cache.cluster);
        }
    }
    for (index, rule) in config.rules.iter_mut().enumerate() {
        if !report.is_written(&format!("rule[{index}].name")) {
            rule.name = format!("rule-{}", index + 1);
        }
    }
    if let Some(store) = &mut config.store {
        fill_tls(&mut store.tls, report.is_written("store.tls.verify"));
    }
    let by_roles = used_by_roles(config);
    for (name, cluster) in &mut config.clusters {
        cluster.name.clone_from(name);
        cluster.uses_roles =
            cluster.topology.has_primary() || cluster.topology == Topology::Static && by_roles.contains(name);
        for (index, server) in cluster.servers.iter_mut().enumerate() {
            if !report.is_written(&format!("cluster.{name}.servers[{index}].name")) {
                server.name = server.address.to_string();
            }
        }
        cluster.limits_lag =
            report.is_written(&format!("cluster.{name}.max_lag")) && !cluster.max_lag.is_zero();
        name_servers_of_groups(cluster);
        let written = |option: &str| report.is_written(&format!("cluster.{name}.check.{option}"));
        let own_account = ["user", "password", "password_file", "password_env"];
        let monitor = cluster.monitor.as_ref();
        if let Some(monitor) = monitor.filter(|_| !own_account.into_iter().any(written))
            && (!written("kind") || cluster.check.kind == CheckKind::Login)
        {
            cluster.check.user = Some(monitor.user.clone());
        }
        fill_check(&mut cluster.check, written("kind"));
        fill_tls(
            &mut cluster.tls,
            report.is_written(&format!("cluster.{name}.tls.verify")),
        );
        if let Some(pd) = &mut cluster.pd {
            let verify = format!("cluster.{name}.pd.tls.verify");
            fill_tls(&mut pd.tls, report.is_written(&verify));
        }
    }
}

/// Clusters whose servers are chosen by what they are.
fn used_by_roles(config: &Config) -> BTreeSet<String> {
    let splits = (config.listeners.iter())
        .filter(|listener| listener.mode == Mode::Split)
        .map(|listener| &listener.cluster);
    let cached = config.cache.iter().map(|cache| &cache.cluster);
    let mirrored = config.rules.iter().filter_map(|rule| rule.mirror.as_ref());
    splits.chain(cached).chain(mirrored).cloned().collect()
}

/// What stands for itself only once secrets have been read: a check and a cache that use the account of the
/// monitor.
pub(crate) fn inherit(config: &mut Config) {
    for cluster in config.clusters.values_mut() {
        let (check, Some(monitor)) = (&mut cluster.check, &cluster.monitor) else {
            continue;
        };
        if check.password.is_none() && check.user.as_ref() == Some(&monitor.user) {
            check.password.clone_from(&monitor.password);
        }
    }
    let Some(cache) = config.cache.as_mut().filter(|cache| cache.account.is_none()) else {
        return;
    };
    let cluster = config.clusters.get(&cache.cluster);
    cache.account = cluster
        .and_then(|cluster| cluster.monitor.as_ref())
        .map(|monitor| CacheAccount::new(monitor.user.as_str(), monitor.password.clone()));
}

/// A group may name a server by its address; from here on it is the server's name.
fn name_servers_of_groups(cluster: &mut Cluster) {
    let servers = &cluster.servers;
    for name in cluster.groups.values_mut().flat_map(|group| &mut group.servers) {
        let address = ServerAddress::parse(name);
        let is_named = servers.iter().any(|server| server.name == *name);
        let meant = servers
            .iter()
            .find(|server| Some(&server.address) == address.as_ref());
        if let Some(server) = meant.filter(|_| !is_named) {
            name.clone_from(&server.name);
        }
    }
}

/// An account is given to be used.
fn fill_check(check: &mut Check, kind_is_written: bool) {
    if !kind_is_written && check.user.is_some() {
        check.kind = CheckKind::Login;
    }
}

/// An authority is given to be trusted, and nothing else: the stricter of the two checks.
fn fill_tls(tls: &mut ClusterTls, verify_is_written: bool) {
    if !verify_is_written && tls.ca.is_some() {
        tls.verify = Verify::Identity;
    }
}
