//! Sockets: listeners, byte streams (plain, TLS, compressed), their buffers, and the PROXY header.
//!
//! Everything here moves bytes and knows nothing of MySQL packets. [`Stream`] is what the data plane reads
//! and writes, [`buffer::Buffer`] is where it reads into, [`Listener`] is where client connections come from.
//! This is the only crate that may hold `unsafe` code; it does so in `sys` alone.
//!
//! It does not decide when to read, whom to connect to, or how long to wait: no call here has a time limit of
//! its own.

mod compressed;
mod congestion;
mod error;
mod listener;
mod peer;
mod plain;
mod stream;
mod sys;
mod tls;
mod unix_path;

pub mod arp;
pub mod buffer;
pub mod handover;
pub mod interface;
pub mod limits;
pub mod proxy_header;

pub use compressed::{CompressedStream, Toward, compressed};
pub use error::NetError;
pub use listener::{Accepted, Listener};
pub use peer::Peer;
pub use plain::{Plain, Watched};
pub use stream::{Stream, poll_read_into, poll_read_pooled};
pub use tls::{
    TlsAcceptor, TlsConnector, TlsRefusal, TlsStream, Validity, certificate_validities, trusting_client,
};
