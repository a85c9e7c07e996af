//! State of reads that go together, which the sessions of a worker share.

use std::cell::{Cell, RefCell};
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;

use session::{PortableState, Prepared};
use telemetry::ServerMetrics;
use tokio::sync::oneshot;
use tokio::time::Instant;
use upstream::{Credential, Key, Server};

use super::quick::QuickStatements;
use super::went_alone::WentAlone;

/// The batches of one worker and cluster that wait for a connection, and the statements that are known to be
/// quick.
#[derive(Default)]
pub(crate) struct Pipelines {
    pub(super) waiting: WaitingBatches,
    pub(crate) quick: QuickStatements,
}

/// Statements that wait for a connection to one server, for one account, with one state.
pub(super) struct Batch {
    pub(super) key: Rc<Key>,
    pub(super) carried: Rc<PortableState>,
    /// The latest of its sessions' [`oldest_login`](crate::control::Control::oldest_login).
    pub(super) oldest_login: Cell<std::time::Instant>,
    pub(super) server: Arc<Server>,
    pub(super) credential: Credential,
    pub(super) members: RefCell<Vec<Member>>,
}

pub(super) struct Member {
    /// The whole packet.
    pub(super) command: Box<[u8]>,
    /// The number that the statement has in common with those that differ in values only.
    pub(super) number: NonZeroU64,
    /// `None` for a statement of text.
    pub(super) execution: Option<BatchedExecution>,
    pub(super) answer: oneshot::Sender<Result<Answered, WentAlone>>,
}

/// A whole answer, as the server has sent it.
pub(super) struct Answered {
    pub(super) bytes: Box<[u8]>,
    /// Time at which the statement was sent.
    pub(super) sent: Instant,
    pub(super) from: Rc<Answering>,
}

/// The server that has answered a batch.
pub(super) struct Answering {
    pub(super) server: Arc<Server>,
    pub(super) metrics: Arc<ServerMetrics>,
}

/// The batches of a worker and a cluster that have not left yet.
#[derive(Default)]
pub(super) struct WaitingBatches(pub(super) RefCell<Vec<Rc<Batch>>>);

/// An execution whose statement the connection has to have prepared.
pub(super) struct BatchedExecution {
    pub(super) prepared: Prepared,
    /// The types of the parameters; `None` where there are no parameters.
    pub(super) types: Option<Rc<[u8]>>,
}
