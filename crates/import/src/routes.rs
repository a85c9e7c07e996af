//! Listeners: where clients reach which cluster.

use std::net::SocketAddr;

use config::BindAddress;

use crate::clusters::Cluster;
use crate::dump::Dump;
use crate::variables::{self, Section};
use crate::write::{Notes, Toml};

/// Where ProxySQL listens when nothing is said.
const USUAL_INTERFACE: &str = "0.0.0.0:6033";
/// The address of a listener for which no interface can be read.
const LOCAL_INTERFACE: &str = "127.0.0.1:6033";

/// A listener to be. Its name is its address.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    pub(crate) bind: BindAddress,
    pub(crate) cluster: String,
}

impl Listener {
    pub(crate) fn name(&self) -> String {
        self.bind.to_string()
    }

    /// Whether a `proxy_addr` and a `proxy_port` mean this one and nothing else: a listener for all addresses
    /// does not tell them apart.
    pub(crate) fn is_at(&self, address: Option<&str>, port: Option<u64>) -> bool {
        match &self.bind {
            BindAddress::Tcp(bind) => {
                let is_address = address.is_none_or(|address| bind.ip().to_string() == address);
                is_address && port.is_none_or(|port| port == u64::from(bind.port()))
            }
            BindAddress::Unix(path) => address == path.to_str() && port.is_none(),
        }
    }
}

/// All of ProxySQL's interfaces for the first cluster, and one more port for each other cluster that
/// `has_users`.
pub(crate) fn listeners(
    dump: &Dump,
    clusters: &[Cluster],
    has_users: impl Fn(&Cluster) -> bool,
    notes: &mut Notes,
) -> Vec<Listener> {
    let mut listeners: Vec<Listener> = Vec::new();
    let Some(first) = clusters.first() else {
        return listeners;
    };
    let interfaces = dump.variable("mysql-interfaces").unwrap_or(USUAL_INTERFACE);
    for interface in interfaces
        .split([';', ','])
        .map(str::trim)
        .filter(|text| !text.is_empty())
    {
        let Some(bind) = BindAddress::parse(&interface.replace("localhost:", "127.0.0.1:")) else {
            notes.add(format!(
                "mysql-interfaces: {interface:?} is not an address; left out"
            ));
            continue;
        };
        listeners.push(Listener {
            bind,
            cluster: first.name.clone(),
        });
    }
    if listeners.is_empty() {
        // An address that cannot be read may be one that few are to reach.
        let interface = match dump.variable("mysql-interfaces") {
            None => USUAL_INTERFACE,
            Some(_) => {
                notes.add(format!(
                    "mysql-interfaces: no address is left; {LOCAL_INTERFACE} is written, which this machine alone reaches: change `bind`"
                ));
                LOCAL_INTERFACE
            }
        };
        listeners.extend(BindAddress::parse(interface).map(|bind| Listener {
            bind,
            cluster: first.name.clone(),
        }));
    }
    for cluster in clusters.iter().skip(1).filter(|cluster| has_users(cluster)) {
        let Some(bind) = next_port(&listeners) else {
            notes.add(format!(
                "cluster {}: no port is left for a listener of its own",
                cluster.name
            ));
            continue;
        };
        notes.add(format!(
            "cluster {}: a listener is for one cluster, so its users have one of their own, {bind}",
            cluster.name
        ));
        listeners.push(Listener {
            bind: BindAddress::Tcp(bind),
            cluster: cluster.name.clone(),
        });
    }
    listeners
}

/// The port after the largest one.
fn next_port(listeners: &[Listener]) -> Option<SocketAddr> {
    let tcp = listeners.iter().filter_map(|listener| match &listener.bind {
        BindAddress::Tcp(address) => Some(*address),
        BindAddress::Unix(_) => None,
    });
    let usual = SocketAddr::from(([0, 0, 0, 0], 6032));
    let last = tcp.max_by_key(SocketAddr::port).unwrap_or(usual);
    Some(SocketAddr::new(last.ip(), last.port().checked_add(1)?))
}

pub(crate) fn write(listeners: &[Listener], dump: &Dump, toml: &mut Toml, notes: &mut Notes) {
    for listener in listeners {
        toml.section("[[listener]]");
        toml.text("bind", &listener.name());
        toml.text("mode", "split");
        toml.text("cluster", &listener.cluster);
        // ProxySQL knows no positions unless a rule asks for them.
        toml.text("read_consistency", "eventual");
        if dump.flag("mysql-have_compress") == Some(false) {
            toml.option("compression", "false");
        }
        variables::write(dump, Section::Listener, toml, notes);
    }
}
