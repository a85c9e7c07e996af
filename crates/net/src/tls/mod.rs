//! TLS 1.2 and 1.3 on both sides, by rustls with aws-lc-rs.
//!
//! [`TlsAcceptor`] speaks to clients, [`TlsConnector`] to servers. Both hold their certificates in a snapshot
//! that is swapped whole when the files change, so a connection in its handshake is never disturbed, and
//! files that turn out to be broken leave the working ones in place. Nothing here decides whether TLS is
//! wanted: that is said in the MySQL handshake, before the first byte of TLS.

mod acceptor;
mod connector;
mod files;
mod reload;
mod stream;
mod validity;
mod verify;

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};

pub use acceptor::TlsAcceptor;
pub use connector::{TlsConnector, TlsRefusal, trusting_client};
pub use stream::TlsStream;
pub use validity::{Validity, certificate_validities};

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}
