//! Where a server is: its configured address, resolved again and again.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use config::ServerAddress;
use tokio::time::sleep;

use crate::lock::lock;
use crate::resolver::Lookup;
use crate::server::now;

/// Most addresses of one name that are kept. A name with more is a mistake or somebody else's load balancer.
const MAX_ADDRESSES: usize = 16;

/// Lookups in a row by which an address has to be missing before it is given up: some names have more
/// addresses than an answer shows, and show others each time.
const MISSING_MAX: u32 = 5;

/// The addresses behind a server's configured address.
pub(crate) struct Addresses {
    /// Host and port to look up; `None` for IP addresses and Unix sockets.
    name: Option<(String, u16)>,
    current: ArcSwap<Vec<SocketAddr>>,
    asked: Mutex<Asked>,
    /// Those of the last lookups.
    seen: Mutex<Vec<Seen>>,
    /// Grows when one of them is given up.
    moves: AtomicU32,
}

/// Where the lookups are.
#[derive(Debug, Default)]
struct Asked {
    /// When the last one was begun.
    at: Option<Instant>,
    /// The one that is under way, or whose result nobody has taken yet: whoever waited may have given it up.
    lookup: Option<Lookup>,
}

/// An address that the name had at one of the last lookups.
#[derive(Clone, Copy, Debug)]
struct Seen {
    address: SocketAddr,
    /// By so many lookups in a row.
    missing: u32,
    /// It is another machine's now.
    gone: bool,
}

impl Addresses {
    pub(crate) fn of(address: &ServerAddress) -> Self {
        let (name, fixed) = match address {
            ServerAddress::Unix(_) => (None, Vec::new()),
            ServerAddress::Host { host, port } => match host.parse::<IpAddr>() {
                Ok(ip) => (None, vec![SocketAddr::new(ip, *port)]),
                Err(_) => (Some((host.clone(), *port)), Vec::new()),
            },
        };
        Self {
            name,
            current: ArcSwap::from_pointee(fixed),
            asked: Mutex::default(),
            seen: Mutex::default(),
            moves: AtomicU32::new(0),
        }
    }

    /// Another number than before: some address [`is_gone`](Self::is_gone).
    #[inline]
    pub(crate) fn moves(&self) -> u32 {
        self.moves.load(Ordering::Acquire)
    }

    /// Whether the name has left this address, to which a connection was made.
    pub(crate) fn is_gone(&self, address: SocketAddr) -> bool {
        let place = |address: SocketAddr| (address.ip(), address.port());
        let is_here = |seen: &Seen| place(seen.address) == place(address) && !seen.gone;
        self.name.is_some() && !lock(&self.seen).iter().any(is_here)
    }

    /// The addresses to try, in order. Looked up here and now only if that never succeeded before.
    pub(crate) async fn get(&self) -> io::Result<Arc<Vec<SocketAddr>>> {
        if self.current.load().is_empty() {
            self.resolve().await?;
        }
        Ok(self.current.load_full())
    }

    /// The addresses that are known, without asking anybody.
    pub(crate) fn known(&self) -> Arc<Vec<SocketAddr>> {
        self.current.load_full()
    }

    /// Looks the name up again if the last lookup is older than `max_age`. On failure the old addresses stay.
    pub(crate) async fn refresh(&self, max_age: Duration) -> io::Result<()> {
        let is_due = {
            let asked = lock(&self.asked);
            let is_fresh = |at: Instant| now().saturating_duration_since(at) < max_age;
            let has_news = asked.lookup.as_ref().is_some_and(Lookup::has_ended);
            has_news || !asked.at.is_some_and(is_fresh)
        };
        if is_due { self.resolve().await } else { Ok(()) }
    }

    /// Resolves when the name leaves an address, which is looked for as often as this: for those who wait for
    /// an answer from where the server may be no more.
    pub(crate) async fn moved(&self, interval: Duration) {
        if self.name.is_none() {
            return std::future::pending().await;
        }
        let before = self.moves();
        loop {
            sleep(interval).await;
            // A lookup that fails tells nothing; the checks say so.
            let _ = self.refresh(interval).await;
            if self.moves() != before {
                return;
            }
        }
    }

    /// `address` answered: it is tried first from now on. Spares, for one, `localhost` a refusal over IPv6
    /// per session.
    pub(crate) fn prefer(&self, address: SocketAddr) {
        if self.current.load().first() == Some(&address) {
            return;
        }
        self.current.rcu(|known| first(known, address));
    }

    async fn resolve(&self) -> io::Result<()> {
        let Some((host, port)) = &self.name else {
            return Ok(());
        };
        let lookup = self.lookup(host, *port)?;
        let found = lookup.clone().found().await;
        let mut asked = lock(&self.asked);
        // Whoever is first takes it, for all who waited.
        let is_first = asked.lookup.take_if(|other| other.is(&lookup)).is_some();
        let found = found.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot resolve host name {host}: {error}"))
        })?;
        let addresses = canonical(found);
        if addresses.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("host name {host} has no address"),
            ));
        }
        if is_first {
            self.note(&addresses);
        }
        Ok(())
    }

    /// The lookup that is under way, or a new one.
    fn lookup(&self, host: &str, port: u16) -> io::Result<Lookup> {
        let mut asked = lock(&self.asked);
        if let Some(lookup) = &asked.lookup {
            return Ok(lookup.clone());
        }
        asked.at = Some(now());
        let lookup = Lookup::begin(host, port)?;
        asked.lookup = Some(lookup.clone());
        Ok(lookup)
    }

    /// A lookup has found these. Where none of them was seen lately the name has moved, and all others are
    /// given up at once.
    pub(crate) fn note(&self, found: &[SocketAddr]) {
        let mut all = lock(&self.seen);
        // Before any is given up, or what is opened instead would go there again.
        self.current.rcu(|known| match known.first() {
            Some(preferred) => first(found, *preferred),
            None => found.to_vec(),
        });
        let has_moved = !all.iter().any(|seen| found.contains(&seen.address));
        let mut is_news = false;
        for seen in all.iter_mut() {
            if found.contains(&seen.address) {
                (seen.missing, seen.gone) = (0, false);
                continue;
            }
            seen.missing += 1;
            let is_gone = has_moved || seen.missing >= MISSING_MAX;
            is_news |= is_gone && !std::mem::replace(&mut seen.gone, true);
        }
        all.retain(|seen| seen.missing <= MISSING_MAX);
        for address in found {
            if !all.iter().any(|seen| seen.address == *address) {
                all.push(Seen {
                    address: *address,
                    missing: 0,
                    gone: false,
                });
            }
        }
        drop(all);
        if is_news {
            self.moves.fetch_add(1, Ordering::Release);
        }
    }
}

/// Each of them once, in the form that connections have: IPv4 is not wrapped in IPv6.
fn canonical(found: impl IntoIterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    for address in found.into_iter().take(MAX_ADDRESSES) {
        let address = match address.ip().to_canonical() {
            IpAddr::V4(ip) => SocketAddr::from((ip, address.port())),
            // With its scope.
            IpAddr::V6(_) => address,
        };
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

/// `addresses` with this one first, if it is one of them.
fn first(addresses: &[SocketAddr], preferred: SocketAddr) -> Vec<SocketAddr> {
    let mut addresses = addresses.to_vec();
    if let Some(place) = addresses.iter().position(|address| *address == preferred) {
        addresses[..=place].rotate_right(1);
    }
    addresses
}

impl fmt::Debug for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Addresses").field(&self.current.load()).finish()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::resolver::tests::hanging;

    fn host(host: &str, port: u16) -> ServerAddress {
        ServerAddress::Host {
            host: host.to_owned(),
            port,
        }
    }

    #[tokio::test]
    async fn ip_addresses_need_no_lookup() {
        let addresses = Addresses::of(&host("::1", 3306));
        assert_eq!(
            addresses.get().await.unwrap()[..],
            ["[::1]:3306".parse().unwrap()]
        );
    }

    #[tokio::test]
    async fn names_are_looked_up_and_what_answered_comes_first() {
        let addresses = Addresses::of(&host("localhost", 3306));
        let found = addresses.get().await.unwrap();
        assert!(found.contains(&"127.0.0.1:3306".parse().unwrap()), "{found:?}");
        addresses.current.store(Arc::new(vec![
            "[::1]:3306".parse().unwrap(),
            "127.0.0.2:3306".parse().unwrap(),
            "127.0.0.1:3306".parse().unwrap(),
        ]));
        let answered = "127.0.0.1:3306".parse().unwrap();
        addresses.prefer(answered);
        assert_eq!(addresses.get().await.unwrap()[0], answered);
        addresses.refresh(Duration::ZERO).await.unwrap();
        assert_eq!(
            addresses.get().await.unwrap()[0],
            answered,
            "a lookup keeps the order"
        );
    }

    #[test]
    fn a_name_that_moves_leaves_its_address_at_once() {
        let addresses = Addresses::of(&host("db", 3306));
        let [a, b, c, d] = [1, 2, 3, 4].map(|n| SocketAddr::from(([10, 0, 0, n], 3306)));
        addresses.note(&[a, b]);
        assert!(!addresses.is_gone(a) && !addresses.is_gone(b));
        let before = addresses.moves();
        addresses.note(&[c]);
        assert!(addresses.is_gone(a) && addresses.is_gone(b) && !addresses.is_gone(c));
        assert_ne!(addresses.moves(), before);
        // Back again: a name that shows its addresses in turn. It is believed after some time.
        let before = addresses.moves();
        addresses.note(&[a, d]);
        assert!(!addresses.is_gone(a) && !addresses.is_gone(c));
        for _ in 1..MISSING_MAX {
            assert_eq!(addresses.moves(), before);
            addresses.note(&[a, d]);
        }
        assert!(addresses.is_gone(c) && !addresses.is_gone(d));
        assert_ne!(addresses.moves(), before);
    }

    #[test]
    fn who_is_given_up_is_connected_to_no_more() {
        let addresses = Addresses::of(&host("db", 3306));
        let [a, b, c] = [1, 2, 3].map(|n| SocketAddr::from(([10, 0, 0, n], 3306)));
        addresses.note(&[a, b]);
        addresses.prefer(b);
        addresses.note(&[a, b]);
        assert_eq!(addresses.current.load()[..], [b, a]);
        addresses.note(&[c]);
        assert!(addresses.is_gone(b));
        assert_eq!(addresses.current.load()[..], [c]);
    }

    #[tokio::test]
    async fn an_ipv4_address_in_ipv6_is_where_its_connections_are() {
        let addresses = Addresses::of(&host("localhost", 3306));
        let found = ["[::ffff:127.0.0.9]:3306", "127.0.0.9:3306"].map(|address| address.parse().unwrap());
        addresses.note(&canonical(found));
        let peer = "127.0.0.9:3306".parse().unwrap();
        assert_eq!(addresses.get().await.unwrap()[..], [peer]);
        assert!(!addresses.is_gone(peer));
    }

    #[test]
    fn a_name_that_shows_its_addresses_in_turn_keeps_them() {
        let addresses = Addresses::of(&host("db", 3306));
        let all: Vec<SocketAddr> = (1..=4).map(|n| SocketAddr::from(([10, 0, 0, n], 3306))).collect();
        for turn in 0..4 {
            addresses.note(&all[turn..=turn]);
        }
        addresses.note(&all[..1]);
        let before = addresses.moves();
        for turn in 1..100 {
            addresses.note(&[all[turn % 4]]);
        }
        assert_eq!(addresses.moves(), before);
        assert!(!all.iter().any(|address| addresses.is_gone(*address)));
        let fixed = Addresses::of(&host("10.0.0.9", 3306));
        assert!(!fixed.is_gone(all[0]), "no name, no move");
    }

    #[tokio::test]
    async fn whoever_comes_while_a_name_is_looked_up_waits_for_that() {
        let addresses = Addresses::of(&host("db", 3306));
        let a = SocketAddr::from(([10, 0, 0, 1], 3306));
        let (lookup, tell) = hanging();
        lock(&addresses.asked).lookup = Some(lookup);
        let waits = || timeout(Duration::from_millis(10), addresses.refresh(Duration::ZERO));
        waits().await.unwrap_err();
        assert!(
            lock(&addresses.asked).lookup.is_some(),
            "it was given up, and goes on"
        );
        tell.send(vec![a]).unwrap();
        let (one, other) = tokio::join!(addresses.get(), addresses.get());
        assert_eq!(
            (one.unwrap()[..].to_vec(), other.unwrap()[..].to_vec()),
            (vec![a], vec![a])
        );
        assert!(lock(&addresses.asked).lookup.is_none(), "taken");
        assert_eq!(lock(&addresses.seen)[0].missing, 0);
    }

    #[tokio::test]
    async fn a_move_is_told_to_those_who_wait_for_an_answer_from_there() {
        let addresses = Addresses::of(&host("db", 3306));
        let [a, b] = [1, 2].map(|n| SocketAddr::from(([10, 0, 0, n], 3306)));
        addresses.note(&[a]);
        let (lookup, tell) = hanging();
        lock(&addresses.asked).lookup = Some(lookup);
        tell.send(vec![b]).unwrap();
        timeout(Duration::from_secs(5), addresses.moved(Duration::from_millis(1)))
            .await
            .unwrap();
        assert!(addresses.is_gone(a));
    }

    #[tokio::test]
    async fn a_failed_lookup_names_the_host_and_keeps_the_addresses() {
        let addresses = Addresses::of(&host("no-such-host.invalid", 3306));
        let error = addresses.get().await.unwrap_err();
        assert!(error.to_string().contains("no-such-host.invalid"), "{error}");
        addresses
            .current
            .store(Arc::new(vec!["127.0.0.9:3306".parse().unwrap()]));
        addresses.refresh(Duration::ZERO).await.unwrap_err();
        assert_eq!(addresses.get().await.unwrap().len(), 1);
    }
}
