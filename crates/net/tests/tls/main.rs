//! TLS on real sockets, with certificates made for the occasion.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test's own helpers is a failure of the test"
)]

mod authority;
mod handshake;
mod pair;
mod reload;
mod trust;
