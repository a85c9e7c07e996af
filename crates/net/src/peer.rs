//! One end of a connection.

use std::fmt;
use std::net::SocketAddr;

/// The address of one end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// TCP over IPv4 or IPv6. IPv4 addresses that reached a dual-stack IPv6 socket are stored as IPv4, so
    /// that they compare with networks as written by people.
    Tcp(SocketAddr),
    /// A Unix socket; its clients have no names.
    Unix,
}

impl Peer {
    /// The IP address and port, unless this is a Unix socket.
    pub fn socket_addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix => None,
        }
    }
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(SocketAddr::new(address.ip().to_canonical(), address.port()))
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(out),
            Self::Unix => out.write_str("unix"),
        }
    }
}
