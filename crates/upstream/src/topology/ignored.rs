//! Members that discovery leaves alone: those at an address of the option `discover_ignore`, by whatever name
//! somebody names them.
//!
//! A name of the option that cannot be looked up leads to where it led before; one that never could is
//! compared as it is written.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use config::ServerAddress;

use super::discovery::{place_of, resolve, together};
use super::observation::Address;

/// How often names are looked up of which nobody knows yet where they lead.
const RETRY_AFTER: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Ignored {
    /// With what each leads to, as far as that is known.
    addresses: Vec<(ServerAddress, Vec<SocketAddr>)>,
    /// Other names that were found to lead there, since the option's were last looked up.
    also: HashSet<Address>,
    /// When names were last looked up.
    looked_up: Option<Instant>,
}

impl Ignored {
    /// Takes over what the option says, and looks names up where that is due.
    pub(super) async fn renew(&mut self, config: &config::Cluster, now: Instant) {
        let is_same = config
            .discover_ignore
            .iter()
            .eq(self.addresses.iter().map(|(address, _)| address));
        if !is_same {
            let known = |address: &ServerAddress| {
                let found = self.addresses.iter().find(|(other, _)| other == address);
                found.map_or_else(Vec::new, |(_, found)| found.clone())
            };
            let addresses = config.discover_ignore.iter();
            self.addresses = addresses
                .map(|address| (address.clone(), known(address)))
                .collect();
            self.also.clear();
        }
        let interval = match self.addresses.iter().any(|(_, found)| found.is_empty()) {
            true => RETRY_AFTER,
            false => config.dns_interval,
        };
        let is_due = |at: Instant| now.saturating_duration_since(at) >= interval;
        if self.addresses.is_empty() || (is_same && !self.looked_up.is_none_or(is_due)) {
            return;
        }
        self.looked_up = Some(now);
        self.also.clear();
        let hosts: Vec<Option<Address>> = (self.addresses.iter())
            .map(|(address, _)| Address::of(address))
            .collect();
        let asked = hosts.into_iter().map(async |host| match host {
            Some(host) => resolve(host).await,
            None => Vec::new(),
        });
        for ((_, known), found) in self.addresses.iter_mut().zip(together(asked).await) {
            if let Some(found) = found.filter(|found| !found.is_empty()) {
                *known = found;
            }
        }
    }

    /// Whether a member of that name is known to be left alone.
    pub(super) fn names(&self, address: &Address) -> bool {
        let place = place_of(address);
        self.also.contains(address) || self.addresses.iter().any(|(ignored, _)| ignored.is_same(&place))
    }

    /// Whether a member that goes by `address`, which leads to `found`, is to be left alone; then the name is
    /// remembered.
    pub(super) fn has(&mut self, address: &Address, found: &[SocketAddr]) -> bool {
        let leads_here = |(_, known): &(_, Vec<SocketAddr>)| found.iter().any(|found| known.contains(found));
        if self.addresses.iter().any(leads_here) {
            self.also.insert(address.clone());
        }
        self.names(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(host: &str) -> Address {
        Address {
            host: host.to_owned(),
            port: 3307,
        }
    }

    #[tokio::test]
    async fn whoever_is_at_an_ignored_address_is_ignored_by_any_name() {
        let mut config = config::Cluster::new("main", Vec::new());
        config.discover_ignore = ["localhost", "no-such-host.invalid"]
            .map(|host| place_of(&address(host)))
            .to_vec();
        let mut ignored = Ignored::default();
        let start = Instant::now();
        ignored.renew(&config, start).await;
        let [here, other] = [3307, 3308].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        assert!(ignored.names(&address("LOCALHOST")) && ignored.names(&address("no-such-host.invalid")));
        assert!(!ignored.has(&address("127.0.0.1"), &[other]));
        assert!(ignored.has(&address("127.0.0.1"), &[here]));
        assert!(ignored.names(&address("127.0.0.1")), "which is remembered");
        config.discover_ignore.remove(0);
        ignored.renew(&config, start).await;
        assert!(
            !ignored.has(&address("127.0.0.1"), &[here]),
            "as long as that is so"
        );
    }
}
