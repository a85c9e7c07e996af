//! The machine that a stream comes from, and further connections to it. Its address may lead to another one
//! meanwhile: behind a proxy, a service of Kubernetes or an address that moves, a stream that is open stays
//! where it was, while new connections go elsewhere.

use std::sync::Arc;

use upstream::conversation::QueryError;
use upstream::{Cluster, DirectError, Server};

use super::account::Replica;
use super::dump::source_id;
use super::link::Link;
use super::preflight::{self, Primary};
use crate::coherence::SourceId;

/// Why there is no further connection to it.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    #[error(transparent)]
    Connect(#[from] DirectError),
    #[error(transparent)]
    Link(#[from] QueryError),
    /// What it says is of no use to whoever follows this one.
    #[error("another machine answers at its address")]
    Another,
}

/// See the module.
#[derive(Clone)]
pub(super) struct SourceServer {
    pub(super) replica: Replica,
    pub(super) cluster: Arc<Cluster>,
    pub(super) server: Arc<Server>,
    pub(super) primary: Primary,
    pub(super) source: SourceId,
}

impl SourceServer {
    /// Connects to its address, and makes sure that it is this one that answers.
    pub(super) async fn connect(&self) -> Result<Link, SourceError> {
        let (mut link, flavor) = self.replica.connect(&self.cluster, &self.server).await?;
        let (uuid, server_id) = preflight::identity(&mut link, flavor).await?;
        let address = self.server.address().to_string();
        if source_id(flavor, &uuid, server_id, &address) == self.source {
            Ok(link)
        } else {
            Err(SourceError::Another)
        }
    }
}
