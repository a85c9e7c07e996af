//! Host names to addresses, by the system's resolver.
//!
//! It blocks, for half a minute where no name server answers, and cannot be stopped. A runtime would wait for
//! that when it ends, and so a thread of a lookup's own does it, for which nobody waits: neither whoever has
//! given it up, nor the end of the process. The threads are bounded, and [`crate::address`] lets nobody ask
//! for a name that is being asked for.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::sync::watch;

/// Lookups at the same time. More than that are never of use: there are not as many names.
const UNDER_WAY_MAX: usize = 256;

static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

type Found = Result<Vec<SocketAddr>, (io::ErrorKind, String)>;

/// A lookup that was begun, for any number of those who wait for it.
#[derive(Clone, Debug)]
pub(crate) struct Lookup(watch::Receiver<Option<Found>>);

/// Counts a lookup as long as it lasts.
struct Counted;

impl Lookup {
    pub(crate) fn begin(host: &str, port: u16) -> io::Result<Self> {
        let host = host.to_owned();
        Self::of(move || Ok((host.as_str(), port).to_socket_addrs()?.collect()))
    }

    fn of(resolver: impl FnOnce() -> io::Result<Vec<SocketAddr>> + Send + 'static) -> io::Result<Self> {
        let counted = Counted::begin()?;
        let (tell, told) = watch::channel(None);
        thread::Builder::new().name("dns".to_owned()).spawn(move || {
            let found = resolver().map_err(|error| (error.kind(), error.to_string()));
            drop(counted);
            // Nobody may wait for it any more.
            let _ = tell.send(Some(found));
        })?;
        Ok(Self(told))
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.0.borrow().is_some() || self.0.has_changed().is_err()
    }

    /// Whether it is this one.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }

    /// Waits for what it finds. May be given up, and begun again.
    pub(crate) async fn found(mut self) -> io::Result<Vec<SocketAddr>> {
        match self.0.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(Ok(found))) => Ok(found.clone()),
            Ok(Some(Err((kind, reason)))) => Err(io::Error::new(*kind, reason.clone())),
            Ok(None) | Err(_) => Err(io::Error::other("its lookup was broken off")),
        }
    }
}

impl Counted {
    fn begin() -> io::Result<Self> {
        let more = |count: usize| (count < UNDER_WAY_MAX).then_some(count + 1);
        match UNDER_WAY.try_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Self),
            Err(count) => Err(io::Error::other(format!(
                "{count} names are being looked up, and none is found"
            ))),
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Looks a name up. An address is found without a thread, for which a busy machine may take a while.
pub(crate) async fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    match host.parse() {
        Ok(ip) => Ok(vec![SocketAddr::new(ip, port)]),
        Err(_) => Lookup::begin(host, port)?.found().await,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use super::*;

    /// A lookup that ends when it is told what it finds.
    pub(crate) fn hanging() -> (Lookup, mpsc::Sender<Vec<SocketAddr>>) {
        let (tell, told) = mpsc::channel();
        let lookup = Lookup::of(move || told.recv().map_err(io::Error::other));
        (lookup.unwrap(), tell)
    }

    #[test]
    fn nobody_waits_for_a_lookup_that_was_given_up() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (lookup, tell) = hanging();
        let begun = Instant::now();
        runtime.block_on(async {
            let waited = tokio::time::timeout(Duration::from_millis(10), lookup.clone().found());
            waited.await.unwrap_err();
        });
        drop(runtime);
        assert!(begun.elapsed() < Duration::from_secs(5), "the end of the runtime");
        assert!(!lookup.has_ended());
        tell.send(Vec::new()).unwrap();
    }

    #[tokio::test]
    async fn a_lookup_that_fails_says_why() {
        let found = look_up("::1", 7).await.unwrap();
        assert_eq!(found, ["[::1]:7".parse().unwrap()]);
        let error = look_up("no-such-host.invalid", 1).await.unwrap_err();
        assert!(!error.to_string().is_empty());
        let (lookup, tell) = hanging();
        drop(tell);
        lookup.clone().found().await.unwrap_err();
        assert!(lookup.has_ended());
    }
}
