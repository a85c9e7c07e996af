//! Which server is the primary, and what has to be known to find out.

use std::net::SocketAddr;

use super::{NAME_MAX, needs};
use crate::address::ServerAddress;
use crate::report::Report;
use crate::schema::{Cluster, Config, Listener, Mode, ReadConsistency, Role, Server, Topology, User};

/// What an address without a port has, and PD never.
const MYSQL_PORT: u16 = 3306;

/// Longest name in DNS and longest part of one, in bytes (RFC 1035, 2.3.4).
const DNS_NAME_MAX: usize = 253;
const LABEL_MAX: usize = 63;

/// Roles are either written or found out, never both; and a cluster whose roles are written has one primary
/// where somebody needs it.
pub(super) fn roles(cluster: &Cluster, config: &Config, path: &str, report: &mut Report<'_>) {
    for (index, server) in cluster.servers.iter().enumerate() {
        let zone_path = format!("{path}.servers[{index}].zone");
        zone(server.zone.as_deref(), &zone_path, report);
    }
    if report.is_wrong(&format!("{path}.topology")) {
        return;
    }
    if cluster.topology == Topology::Static {
        one_primary(cluster, path, report);
        primary_for_some(cluster, config, path, report);
    } else if cluster.topology == Topology::Tidb {
        no_roles(cluster, path, report);
        no_monitor(cluster, path, report);
        no_sharing(cluster, config, report);
    } else {
        let topology = cluster.topology.word();
        let need = format!("an account, since `topology` is \"{topology}\"");
        needs("monitor", cluster.monitor.is_some(), &need, path, report);
        no_roles(cluster, path, report);
    }
}

/// Whoever limits the lag, or says how a cluster is to be followed, must not find out by a stale read that
/// nobody looks.
pub(super) fn followed(cluster: &Cluster, path: &str, report: &mut Report<'_>) {
    let (topology, word) = (cluster.topology, cluster.topology.word());
    if report.is_wrong(&format!("{path}.topology")) {
        return;
    }
    let max_lag = format!("{path}.max_lag");
    let is_limited = report.is_written(&max_lag) && !cluster.max_lag.is_zero();
    if topology == Topology::Static && cluster.monitor.is_none() && is_limited && !report.is_wrong(&max_lag) {
        let found = "it without, so that nobody knows the lag";
        report.wrong_key(&max_lag, "this option only with a `monitor`", found);
    }
    let discovers = cluster.monitor.as_ref().is_some_and(|monitor| monitor.discover);
    let counts = matches!(topology, Topology::GroupReplication | Topology::Galera);
    let options = [
        ("monitor.discover", !topology.has_primary(), discovers),
        ("monitor.damping", !topology.has_primary(), true),
        ("monitor.heartbeat_table", topology == Topology::Galera, true),
        ("max_lag", topology == Topology::Tidb, is_limited),
        (
            "max_transactions_behind",
            !counts,
            cluster.max_transactions_behind > 0,
        ),
        ("donor_reads", topology != Topology::Galera, cluster.donor_reads),
        (
            "discover_ignore",
            !topology.has_primary(),
            !cluster.discover_ignore.is_empty(),
        ),
    ];
    for (option, is_idle, is_meant) in options {
        let path = format!("{path}.{option}");
        if is_idle && is_meant && report.is_written(&path) && !report.is_wrong(&path) {
            let found = format!("it with \"{word}\", where it does nothing");
            report.wrong_key(&path, "this option only with another `topology`", found);
        }
    }
}

/// Addresses that members may be named by, each once, and none of a server that is wanted.
pub(super) fn ignored(cluster: &Cluster, path: &str, report: &mut Report<'_>) {
    let servers = format!("{path}.servers");
    for (index, address) in cluster.discover_ignore.iter().enumerate() {
        let element = format!("{path}.discover_ignore[{index}]");
        if report.is_wrong(&element) {
            continue;
        }
        let same = |other: &ServerAddress| other.is_same(address);
        let listed = (cluster.servers.iter())
            .position(|server| same(&server.address))
            .filter(|at| !report.is_wrong(&format!("{servers}[{at}]")));
        let (expected, found) = if let ServerAddress::Unix(_) = address {
            (
                "a host, or a host and port",
                "a socket, by which nobody names a member".to_owned(),
            )
        } else if let Some(at) = listed {
            let line = report.line(&format!("{servers}[{at}]"));
            (
                "an address that is not among `servers`",
                format!("{address}, which is in line {line}"),
            )
        } else if let Some(first) = cluster.discover_ignore[..index].iter().position(same) {
            let line = report.line(&format!("{path}.discover_ignore[{first}]"));
            (
                "each address once",
                format!("{address} a second time, first in line {line}"),
            )
        } else {
            continue;
        };
        report.wrong(&element, expected, found);
    }
}

/// The option `drain` names servers of the cluster, each once, and not all of them.
pub(super) fn drained(cluster: &Cluster, path: &str, report: &mut Report<'_>) {
    let path = format!("{path}.drain");
    if report.is_wrong(&path) {
        return;
    }
    super::rules::servers_exist(&cluster.drain, cluster, &path, report);
    for (index, name) in cluster.drain.iter().enumerate() {
        if let Some(first) = cluster.drain[..index].iter().position(|other| other == name) {
            let line = report.line(&format!("{path}[{first}]"));
            let found = format!("{name:?} a second time, first in line {line}");
            let element = format!("{path}[{index}]");
            report.wrong(&element, "each server once", found);
        }
    }
    let is_drained = |server: &Server| cluster.drains(&server.name);
    let has_others = cluster.discovers() || cluster.looks_up_servers();
    if !cluster.servers.is_empty() && cluster.servers.iter().all(is_drained) && !has_others {
        let expected = "a server that is left to take sessions";
        report
            .wrong(&path, expected, "all servers of the cluster")
            .hint("drain one after the other".to_owned());
    }
}

/// A name that can be asked for, and somebody to ask.
pub(super) fn srv(cluster: &Cluster, path: &str, report: &mut Report<'_>) {
    let Some(srv) = &cluster.srv else { return };
    let is_label = |label: &str| {
        (1..=LABEL_MAX).contains(&label.len())
            && (label.bytes()).all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let name = srv.name.trim_end_matches('.');
    if name.len() > DNS_NAME_MAX || !name.split('.').all(is_label) {
        let found = format!("{name:?}");
        let path = format!("{path}.srv.name");
        report.wrong(&path, "a name such as \"_mysql._tcp.db.example.com\"", found);
    }
    if let Some(server) = srv
        .server
        .as_deref()
        .filter(|server| server.parse::<SocketAddr>().is_err())
    {
        let path = format!("{path}.srv.server");
        report.wrong(
            &path,
            "an IP address and port (\"127.0.0.1:53\", \"[::1]:53\")",
            format!("{server:?}"),
        );
    }
}

/// PD can be asked where it is TiDB's, by nothing but its address, and not beside DNS.
pub(super) fn pd(cluster: &Cluster, path: &str, report: &mut Report<'_>) {
    let is_tidb = cluster.topology == Topology::Tidb || report.is_wrong(&format!("{path}.topology"));
    let of_tidb = |option: &str, report: &mut Report<'_>| {
        if !is_tidb {
            let found = format!("it with \"{}\"", cluster.topology.word());
            let expected = "this option only with `topology = \"tidb\"`";
            report.wrong_key(option, expected, found);
        }
    };
    for (index, server) in cluster.servers.iter().enumerate() {
        if server.status_port.is_some() {
            of_tidb(&format!("{path}.servers[{index}].status_port"), report);
        }
    }
    let Some(pd) = &cluster.pd else { return };
    let path = format!("{path}.pd");
    of_tidb(&path, report);
    if cluster.srv.is_some() {
        let found = "both `srv` and `pd`";
        report.wrong_key(&path, "one that names the servers", found);
    }
    let addresses = format!("{path}.addresses");
    if pd.addresses.is_empty() && !report.is_wrong(&addresses) && !report.is_wrong(&path) {
        report.wrong(&path, "the address of a member of PD", "none");
    }
    for (index, address) in pd.addresses.iter().enumerate() {
        let element = format!("{addresses}[{index}]");
        let is_reachable = matches!(address, ServerAddress::Host { port, .. } if *port != MYSQL_PORT);
        if !is_reachable && !report.is_wrong(&element) && !report.is_wrong(&addresses) {
            let expected = "a host and the port of PD for clients (\"pd1:2379\")";
            report.wrong(&element, expected, format!("{address}"));
        }
    }
}

/// The service can be asked for, and nobody else names servers.
pub(super) fn endpoint_slices(cluster: &Cluster, path: &str, report: &mut Report<'_>) {
    let Some(slices) = &cluster.endpoint_slices else {
        return;
    };
    let path = format!("{path}.endpoint_slices");
    if report.is_wrong(&path) {
        return;
    }
    for (other, is_there) in [("srv", cluster.srv.is_some()), ("pd", cluster.pd.is_some())] {
        if is_there {
            let found = format!("both `{other}` and `endpoint_slices`");
            report.wrong_key(&path, "one that names the servers", found);
        }
    }
    // They are parts of a URL.
    let is_name = |name: &str| {
        (1..=LABEL_MAX).contains(&name.len())
            && (name.bytes()).all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    let names = [
        ("service", Some(&slices.service)),
        ("namespace", slices.namespace.as_ref()),
    ];
    for (option, name) in names {
        let option = format!("{path}.{option}");
        if let Some(name) = name.filter(|name| !is_name(name))
            && !report.is_wrong(&option)
        {
            let expected = "a name as Kubernetes has it: lower-case letters, digits and `-`";
            report.wrong(&option, expected, format!("{name:?}"));
        }
    }
    let option = format!("{path}.api_server");
    if let Some(address) = &slices.api_server
        && !matches!(address, ServerAddress::Host { port, .. } if *port != MYSQL_PORT)
        && !report.is_wrong(&option)
    {
        let expected = "the host and port of the API server (\"10.96.0.1:443\")";
        report.wrong(&option, expected, format!("{address}"));
    }
}

/// TiDB servers are asked at their status port.
fn no_monitor(cluster: &Cluster, path: &str, report: &mut Report<'_>) {
    if cluster.monitor.is_some() {
        let found = "one, since `topology` is \"tidb\"";
        report
            .wrong_key(&format!("{path}.monitor"), "no monitor", found)
            .hint("give the account to `check`".to_owned());
    }
}

/// TiDB does not tell what a statement does to a session.
fn no_sharing(cluster: &Cluster, config: &Config, report: &mut Report<'_>) {
    for (index, listener) in config.listeners.iter().enumerate() {
        let mode = format!("listener[{index}].mode");
        if listener.cluster == cluster.name && listener.shares() && !report.is_wrong(&mode) {
            let expected = "`sharing = \"never\"` with it, since `topology` is \"tidb\"";
            let hint = "TiDB does not tell what a statement does to its session".to_owned();
            report.wrong(&mode, expected, "\"split\" without").hint(hint);
        }
    }
    let meets = |rule: &crate::schema::Rule| {
        config.listeners.iter().any(|listener| {
            let is_meant = rule.listener.is_empty() || rule.listener.contains(&listener.name);
            listener.cluster == cluster.name && listener.shares_never() && is_meant
        })
    };
    let with_schema =
        |rule: &crate::schema::Rule| rule.table.iter().any(|table| table.as_str().contains('.'));
    for (index, rule) in config.rules.iter().enumerate() {
        for (option, asks) in [("schema", !rule.schema.is_empty()), ("table", with_schema(rule))] {
            let path = format!("rule[{index}].{option}");
            if asks && !report.is_wrong(&path) && meets(rule) {
                let found = "one, for a listener before TiDB, which does not tell the present schema";
                let hint = "say in `listener` for which the rule is".to_owned();
                report
                    .wrong_key(&path, "a rule without a schema", found)
                    .hint(hint);
            }
        }
    }
}

/// Several servers may take writes where they can, and where nobody needs to know what all of them have
/// taken.
pub(super) fn writers(cluster: &Cluster, config: &Config, path: &str, report: &mut Report<'_>) {
    let path = format!("{path}.max_writers");
    if cluster.max_writers == 1 || report.is_wrong(&path) {
        return;
    }
    let splits = |listener: &Listener| listener.mode == Mode::Split && listener.cluster == cluster.name;
    let strong = |consistency| consistency == Some(ReadConsistency::Strong);
    let listener = (config.listeners.iter())
        .position(|listener| splits(listener) && strong(Some(listener.read_consistency)));
    let of_one_writer =
        (config.listeners.iter()).position(|listener| splits(listener) && listener.shares_never());
    let rule = config.rules.iter().position(|rule| strong(rule.read_consistency));
    let cached = (config.cache.as_ref()).is_some_and(|cache| cache.cluster == cluster.name);
    let why = if !matches!(cluster.topology, Topology::GroupReplication | Topology::Galera) {
        format!("`topology` is \"{}\"", cluster.topology.word())
    } else if cached {
        format!("the [cache] of line {} follows one", report.line("cache"))
    } else if let Some(index) = of_one_writer {
        let line = report.line(&format!("listener[{index}].sharing"));
        format!("sessions keep one server in line {line}")
    } else if let Some(index) = listener {
        let line = report.line(&format!("listener[{index}].read_consistency"));
        format!("reads are \"strong\" in line {line}")
    } else if let Some(index) = rule {
        let line = report.line(&format!("rule[{index}].read_consistency"));
        format!("reads are \"strong\" in line {line}")
    } else {
        return;
    };
    let found = cluster.max_writers.to_string();
    report.wrong(&path, format!("1, since {why}"), found);
}

/// No account reads everybody's writes where several servers take them.
pub(crate) fn strong_users(users: &[User], config: &Config, report: &mut Report<'_>) {
    let several = |listener: &&Listener| {
        let cluster = config.clusters.get(&listener.cluster);
        listener.mode == Mode::Split && cluster.is_some_and(|cluster| cluster.max_writers > 1)
    };
    let Some(listener) = config.listeners.iter().find(several) else {
        return;
    };
    for (index, user) in users.iter().enumerate() {
        if user.read_consistency == Some(ReadConsistency::Strong) {
            let expected = format!(
                "another one than \"strong\", since [cluster.{}] has `max_writers`",
                listener.cluster
            );
            let path = format!("user[{index}].read_consistency");
            report.wrong(&path, expected, "\"strong\"");
        }
    }
}

/// Text that people give places: it is compared, shown, and no more.
pub(crate) fn zone(zone: Option<&str>, path: &str, report: &mut Report<'_>) {
    let Some(zone) = zone else { return };
    if zone.is_empty() || zone.len() > NAME_MAX || zone.chars().any(char::is_control) {
        let expected = format!("1 to {NAME_MAX} bytes of printable text");
        report.wrong(path, expected, format!("{} bytes", zone.len()));
    }
}

fn one_primary(cluster: &Cluster, path: &str, report: &mut Report<'_>) {
    let mut primaries = primaries(cluster);
    let Some(first) = primaries.next() else { return };
    for index in primaries {
        let line = report.line(&format!("{path}.servers[{first}].role"));
        report.wrong(
            &format!("{path}.servers[{index}].role"),
            "one primary in a cluster",
            format!("a second one, first in line {line}"),
        );
    }
}

/// A listener that sends writes to the primary needs one, and so does a cache that follows it. A single
/// server is one unless it says otherwise.
fn primary_for_some(cluster: &Cluster, config: &Config, path: &str, report: &mut Report<'_>) {
    let splits = |listener: &Listener| listener.mode == Mode::Split && listener.cluster == cluster.name;
    let cached = (config.cache.as_ref()).is_some_and(|cache| cache.cluster == cluster.name);
    let reason = match config.listeners.iter().position(splits) {
        Some(listener) => {
            let line = report.line(&format!("listener[{listener}].mode"));
            format!("the listener of line {line} has mode \"split\"")
        }
        None if cached => format!("the [cache] of line {} follows it", report.line("cache")),
        None => return,
    };
    let servers = format!("{path}.servers");
    let broken = |index| report.is_wrong(&format!("{servers}[{index}].role"));
    let is_clear = match cluster.servers.as_slice() {
        [only] => only.role != Some(Role::Replica),
        _ => primaries(cluster).next().is_some(),
    };
    if is_clear || cluster.servers.is_empty() || (0..cluster.servers.len()).any(broken) {
        return;
    }
    let expected = format!("a server with `role = \"primary\"`, since {reason}");
    let hint = "or let the servers say which it is: `topology` and `monitor`".to_owned();
    report.wrong(&servers, expected, "none").hint(hint);
}

fn no_roles(cluster: &Cluster, path: &str, report: &mut Report<'_>) {
    for (index, server) in cluster.servers.iter().enumerate() {
        let path = format!("{path}.servers[{index}].role");
        if let Some(role) = server.role.filter(|_| !report.is_wrong(&path)) {
            let found = match cluster.topology {
                Topology::Tidb => format!("\"{}\"", role.word()),
                _ => format!("\"{}\", which the servers say themselves", role.word()),
            };
            let expected = format!("no role, since `topology` is \"{}\"", cluster.topology.word());
            report.wrong(&path, expected, found);
        }
    }
}

fn primaries(cluster: &Cluster) -> impl Iterator<Item = usize> {
    let servers = cluster.servers.iter().enumerate();
    servers
        .filter(|(_, server)| server.role == Some(Role::Primary))
        .map(|(index, _)| index)
}
