//! Why the data plane does not start.

use net::NetError;
use thiserror::Error;
use upstream::UpstreamError;

use crate::frontend::rsa_key::KeyError;

/// Why the data plane cannot start, or cannot take over a configuration. Nothing has changed then.
#[derive(Debug, Error)]
pub enum GatewayError {
    #[error("{0}")]
    Listener(#[from] NetError),
    #[error("{0}")]
    Upstream(#[from] UpstreamError),
    #[error("listener {listener}: rsa_key {path}: {cause}")]
    RsaKey {
        listener: String,
        path: String,
        cause: String,
    },
    #[error("cannot make an RSA key: {0}")]
    MakeRsaKey(KeyError),
    #[error("the gateway is shutting down")]
    Draining,
    #[error("{0}")]
    Extension(String),
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    #[error("listener {listener} names the cluster {cluster}, which does not exist")]
    UnknownCluster { listener: String, cluster: String },
}
