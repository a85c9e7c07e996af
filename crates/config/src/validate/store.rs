//! `[store]`, `[vip]`, and what may stand in the file of a gateway that has them.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

use crate::address::ServerAddress;
use crate::report::Report;
use crate::schema::{Config, Store, TlsMode, Vip};

/// Options that a gateway has by itself.
pub(crate) const OF_GATEWAY: [&str; 8] = [
    "store",
    "vip",
    "zone",
    "zone_file",
    "zone_env",
    "workers",
    "admin",
    "watch",
];

/// Options that may stand in the gateway's own file, for what the common text does not say.
const IN_EITHER: [&str; 5] = [
    "log",
    "max_connections",
    "buffer_pool_max",
    "statement_memory_max",
    "memory_max",
];

/// The port that an address without one would have.
const MYSQL_PORT: u16 = 3306;

/// Longest `fleet` and `name`, in bytes: they are parts of keys.
const NAME_MAX: usize = 64;

/// Endpoints that are asked one after the other.
const ENDPOINTS_MAX: usize = 9;

/// Longest name of an interface, in bytes (IFNAMSIZ without the final zero).
const INTERFACE_MAX: usize = 15;

pub(super) fn store(config: &Config, report: &mut Report<'_>) {
    if let Some(vip) = &config.vip {
        self::vip(vip, config.store.as_ref(), report);
    }
    let Some(store) = &config.store else { return };
    where_it_is(store, report);
    for (option, name) in [("fleet", Some(&store.fleet)), ("name", store.name.as_ref())] {
        let path = format!("store.{option}");
        let Some(name) = name.filter(|name| !is_name(name)) else {
            continue;
        };
        if !report.is_wrong(&path) {
            let expected = format!("1 to {NAME_MAX} letters, digits, `.`, `-` or `_`");
            report.wrong(&path, expected, format!("{name:?}"));
        }
    }
    account(store, report);
    if store.tls.mode == TlsMode::Preferred && !report.is_wrong("store.tls.mode") {
        let found = "\"preferred\"";
        report.wrong("store.tls.mode", "\"off\" or \"required\"", found);
    }
    super::cluster_tls(&store.tls, "store.tls", report);
    only_own(report);
}

fn vip(vip: &Vip, store: Option<&Store>, report: &mut Report<'_>) {
    let found = match store {
        None => Some("none"),
        Some(store) if store.folder.is_some() => Some("`folder`"),
        Some(_) => None,
    };
    if let Some(found) = found {
        let expected = "a [store] with `endpoints` of an etcd, which says who has the address";
        report.wrong("vip", expected, found);
    }
    if !report.is_wrong("vip.address") {
        let expected = match vip.address {
            IpNet::V6(_) => "an IPv4 address: one of IPv6 cannot move yet",
            IpNet::V4(net)
                if net.prefix_len() < 31 && [net.network(), net.broadcast()].contains(&net.addr()) =>
            {
                "the address of a machine (\"10.0.0.9/24\")"
            }
            IpNet::V4(net) if !is_of_a_machine(net.addr()) => "the address of a machine (\"10.0.0.9/24\")",
            IpNet::V4(_) => "",
        };
        if !expected.is_empty() {
            let found = format!("\"{}\"", vip.address);
            report.wrong("vip.address", expected, found);
        }
    }
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':');
    let name = &vip.interface;
    let is_name = (1..=INTERFACE_MAX).contains(&name.len()) && name.bytes().all(is_plain);
    if !is_name && !report.is_wrong("vip.interface") {
        let expected = format!("the name of an interface, 1 to {INTERFACE_MAX} characters (\"eth0\")");
        report.wrong("vip.interface", expected, format!("{name:?}"));
    }
}

fn is_of_a_machine(address: Ipv4Addr) -> bool {
    !(address.is_unspecified() || address.is_loopback() || address.is_multicast() || address.is_broadcast())
}

fn where_it_is(store: &Store, report: &mut Report<'_>) {
    if report.is_wrong("store.endpoints") || report.is_wrong("store.folder") {
        return;
    }
    let (expected, found) = match (store.endpoints.len(), &store.folder) {
        (1..=ENDPOINTS_MAX, None) | (0, Some(_)) => ("", ""),
        (0, None) => ("`endpoints` of an etcd", "none"),
        (_, Some(_)) => ("`endpoints` or `folder`", "both"),
        _ => ("at most 9 of them", "more"),
    };
    if !expected.is_empty() {
        report.wrong("store.endpoints", expected, found);
    }
    for (index, endpoint) in store.endpoints.iter().enumerate() {
        let element = format!("store.endpoints[{index}]");
        let is_reachable = matches!(endpoint, ServerAddress::Host { port, .. } if *port != MYSQL_PORT);
        if !is_reachable && !report.is_wrong(&element) {
            let expected = "a host and the port of etcd for clients (\"etcd1:2379\")";
            report.wrong(&element, expected, endpoint.to_string());
        }
    }
}

/// The configuration of all gateways is changed by whoever reaches the store.
fn account(store: &Store, report: &mut Report<'_>) {
    let ways = super::passwords!(store);
    super::at_most_one("the password", &ways, "store", report);
    let has_password = ways.iter().any(|(_, given)| *given);
    if store.user.is_some() != has_password && !report.is_wrong("store.user") {
        let (expected, found) = match has_password {
            true => ("an account, since a password is given", "none"),
            false => ("an account with a password", "none for it"),
        };
        report.wrong("store.user", expected, found);
    }
    let Some(far) = store.endpoints.iter().find(|endpoint| !is_loopback(endpoint)) else {
        return;
    };
    let why = format!("since {far} is beyond this machine");
    if store.tls.mode != TlsMode::Required && !report.is_wrong("store.tls.mode") {
        let found = format!("\"{}\"", store.tls.mode.word());
        let expected = format!("\"required\", {why}");
        report.wrong("store.tls.mode", expected, found);
    }
    if store.user.is_none() && !has_password && !report.is_wrong("store.user") {
        let expected = format!("an account of the etcd, {why}");
        report.wrong("store.user", expected, "none");
    }
}

fn is_loopback(endpoint: &ServerAddress) -> bool {
    match endpoint {
        ServerAddress::Unix(_) => true,
        ServerAddress::Host { host, .. } => {
            let address = host.parse::<IpAddr>();
            address.map_or(host == "localhost", |address| address.is_loopback())
        }
    }
}

fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

/// What is one for all gateways would be silently another one here.
fn only_own(report: &mut Report<'_>) {
    let is_shared = |key: &String| {
        let key = key.as_str();
        !OF_GATEWAY.contains(&key) && !IN_EITHER.contains(&key)
    };
    let shared: Vec<String> = report.written_at_top().filter(is_shared).collect();
    for key in &shared {
        if report.is_wrong(key) {
            continue;
        }
        let expected = "what is one for all gateways in the store alone, since there is a [store]";
        report
            .wrong_key(key, expected, format!("`{key}`"))
            .hint("put it into the file of `forebay ctl apply FILE`".to_owned());
    }
}
