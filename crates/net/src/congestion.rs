//! The option `congestion`, on sockets.
//!
//! An algorithm is chosen before there is a connection wherever that can be: on the listening socket, which
//! hands it down to those it accepts, and in front of `connect`. A connection that has begun with BBR stays
//! marked for pacing, whoever takes over.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use config::Congestion;
use socket2::{Domain, SockRef, Socket, Type};
use tracing::warn;

/// Names that the kernel did not take: each is told once.
static REFUSED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// What is chosen for connections that are yet to come, if anything. `stays`: none of them leaves this
/// machine.
pub(crate) fn chosen(congestion: &Congestion, stays: bool) -> Option<&str> {
    match congestion {
        Congestion::Named(name) => Some(name),
        Congestion::Auto { spares_local: true } if stays => Some(Congestion::UNPACED),
        Congestion::Auto { .. } | Congestion::System => None,
    }
}

/// Whether it shows only with a connection what it gets, for which there is [`spare_local`].
pub(crate) fn shows_later(congestion: &Congestion, stays: bool) -> bool {
    !stays && matches!(congestion, Congestion::Auto { spares_local: true })
}

/// Takes a connection off the system's if it does not leave this machine.
pub(crate) fn spare_local(socket: impl AsFd, peer: SocketAddr) {
    let peer = peer.ip().to_canonical();
    let is_own = || {
        let local = SockRef::from(&socket).local_addr().ok()?.as_socket()?;
        Some(local.ip().to_canonical() == peer)
    };
    if peer.is_loopback() || is_own() == Some(true) {
        choose(&socket, Congestion::UNPACED);
    }
}

/// Where the kernel refuses it, and the answer is false, the socket goes on with what it has.
pub(crate) fn choose(socket: impl AsFd, name: &str) -> bool {
    let Err(error) = SockRef::from(&socket).set_tcp_congestion(name.as_bytes()) else {
        return true;
    };
    let mut refused = REFUSED.lock().unwrap_or_else(PoisonError::into_inner);
    if refused.insert(name.to_owned()) {
        warn!(
            congestion = name,
            %error,
            "the kernel refuses this congestion control; connections have the system's"
        );
    }
    false
}

/// For a listening socket that had a choice of its own: what is the system's at this time. A choice cannot be
/// unmade.
pub(crate) fn choose_systems(socket: impl AsFd) {
    let fresh = |domain| Socket::new(domain, Type::STREAM, None);
    let systems = fresh(Domain::IPV4)
        .or_else(|_| fresh(Domain::IPV6))
        .and_then(|fresh| fresh.tcp_congestion());
    if let Ok(name) = systems {
        let name = String::from_utf8_lossy(&name);
        choose(socket, name.trim_end_matches('\0'));
    }
}
