//! What the sessions of a worker share of reads that go together.

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

/// The batches of one worker and cluster that wait for a connection, and what it knows of statements.
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
    /// Of those that differ in values only.
    pub(super) number: NonZeroU64,
    /// `None` for one of text.
    pub(super) execution: Option<BatchedExecution>,
    pub(super) answer: oneshot::Sender<Result<Answered, WentAlone>>,
}

/// A whole answer, as the server has sent it.
pub(super) struct Answered {
    pub(super) bytes: Box<[u8]>,
    /// When its statement was.
    pub(super) sent: Instant,
    pub(super) from: Rc<Answering>,
}

/// Who has answered a batch.
pub(super) struct Answering {
    pub(super) server: Arc<Server>,
    pub(super) metrics: Arc<ServerMetrics>,
}

/// The batches of a worker and a cluster that have not left yet.
#[derive(Default)]
pub(super) struct WaitingBatches(pub(super) RefCell<Vec<Rc<Batch>>>);

/// What a connection has to have prepared for it.
pub(super) struct BatchedExecution {
    pub(super) prepared: Prepared,
    /// Of the parameters; none where there are no parameters.
    pub(super) types: Option<Rc<[u8]>>,
}
