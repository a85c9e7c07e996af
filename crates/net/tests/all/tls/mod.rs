//! TLS on real sockets, with certificates made for the occasion.

pub(crate) mod authority;
mod handshake;
pub(crate) mod pair;
mod reload;
mod trust;
