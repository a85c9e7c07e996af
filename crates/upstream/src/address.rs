//! Where a server is: its configured address, resolved again and again.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use config::ServerAddress;

use crate::server::now;

/// Most addresses of one name that are kept. A name with more is a mistake or somebody else's load balancer.
const MAX_ADDRESSES: usize = 16;

/// The addresses behind a server's configured address.
pub(crate) struct Addresses {
    /// Host and port to look up; `None` for IP addresses and Unix sockets.
    name: Option<(String, u16)>,
    current: ArcSwap<Vec<SocketAddr>>,
    /// When a lookup was last begun.
    asked: Mutex<Option<Instant>>,
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
            asked: Mutex::new(None),
        }
    }

    /// The addresses to try, in order. Looked up here and now only if that never succeeded before.
    pub(crate) async fn get(&self) -> io::Result<Arc<Vec<SocketAddr>>> {
        if self.current.load().is_empty() {
            self.resolve().await?;
        }
        Ok(self.current.load_full())
    }

    /// Looks the name up again if the last lookup is older than `max_age`. On failure the old addresses stay.
    pub(crate) async fn refresh(&self, max_age: Duration) -> io::Result<()> {
        let asked = *self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = asked.is_some_and(|at| now().saturating_duration_since(at) < max_age);
        if fresh { Ok(()) } else { self.resolve().await }
    }

    /// `address` answered: it is tried first from now on. Spares, for one, `localhost` a refusal over IPv6 per session.
    pub(crate) fn prefer(&self, address: SocketAddr) {
        if self.current.load().first() == Some(&address) {
            return;
        }
        let mut addresses = self.current.load().as_ref().clone();
        // A lookup on another thread may put its answer in between; then this one is lost, and comes with the next.
        if let Some(place) = addresses.iter().position(|other| *other == address) {
            addresses[..=place].rotate_right(1);
            self.current.store(Arc::new(addresses));
        }
    }

    async fn resolve(&self) -> io::Result<()> {
        let Some((host, port)) = &self.name else {
            return Ok(());
        };
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(now());
        let found = tokio::net::lookup_host((host.as_str(), *port))
            .await
            .map_err(|error| {
                io::Error::new(error.kind(), format!("cannot resolve host name {host}: {error}"))
            })?;
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for address in found.take(MAX_ADDRESSES) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        if addresses.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("host name {host} has no address"),
            ));
        }
        if let Some(preferred) = self.current.load().first()
            && let Some(place) = addresses.iter().position(|address| address == preferred)
        {
            addresses[..=place].rotate_right(1);
        }
        if **self.current.load() != addresses {
            self.current.store(Arc::new(addresses));
        }
        Ok(())
    }
}

impl fmt::Debug for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Addresses").field(&self.current.load()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
