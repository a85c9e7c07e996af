//! What a worker knows of a server connection that its sessions share.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use session::{Baseline, PackedState, PortableState};
use telemetry::ServerMetrics;
use upstream::Travel;

use crate::engine::prepared::{OnServer, StatementsLuggage};

/// What is known of a server connection beside what the pool knows.
pub(crate) struct ConnectionState {
    /// What is set on it. The same allocation as the session's that used it last, unless either has changed
    /// since.
    pub(crate) carried: Rc<PortableState>,
    pub(crate) baseline: Rc<Baseline>,
    pub(crate) statements: OnServer,
    /// The session whose statement was the last on it, with nothing of anybody else's since.
    pub(crate) last_session: Option<u32>,
    /// Which of its turns that session had on it.
    pub(crate) last_turn: u32,
    /// Nothing was executed on it since, not by the gateway either.
    pub(crate) is_untouched: bool,
    /// What FOUND_ROWS() says on it is that session's.
    pub(crate) has_count: bool,
    /// What LAST_INSERT_ID() says on it, and what it has reported as its last transaction.
    pub(crate) known: session::KnownConnection,
    /// Galera: reads on it wait for what other nodes have written.
    pub(crate) syncs_reads: bool,
    /// Its session is in a schema that is gone, and this connection in none: it is not for others then.
    pub(crate) lacks_schema: bool,
    /// See [`Opened::login_began`](upstream::Opened::login_began).
    pub(crate) login_began: Instant,
    pub(crate) metrics: Arc<ServerMetrics>,
}

impl ConnectionState {
    /// What it costs to make the connection that of a session which wants that and whose logins are no older
    /// than that: [`CANNOT`](session::CANNOT) where it cannot be made so.
    pub(crate) fn cost(&self, want: &PortableState, oldest_login: Instant) -> u32 {
        match session::cost(want, &self.carried) {
            session::CANNOT => session::CANNOT,
            _ if self.login_began < oldest_login => upstream::OUTDATED,
            cost => cost,
        }
    }
}

/// [`ConnectionState`] on its way to another worker.
pub(crate) struct Luggage {
    carried: PackedState,
    statements: StatementsLuggage,
    known: session::KnownConnection,
    syncs_reads: bool,
    lacks_schema: bool,
}

/// Whose last statement was on it is of no use elsewhere.
impl Travel for ConnectionState {
    type Luggage = Luggage;

    fn pack(self) -> Luggage {
        Luggage {
            carried: PackedState::of(&self.carried),
            statements: self.statements.pack(),
            known: self.known,
            syncs_reads: self.syncs_reads,
            lacks_schema: self.lacks_schema,
        }
    }

    fn unpack(mut self, luggage: Luggage) -> Self {
        self.statements.unpack(luggage.statements);
        Self {
            carried: Rc::new(luggage.carried.unpack()),
            known: luggage.known,
            syncs_reads: luggage.syncs_reads,
            lacks_schema: luggage.lacks_schema,
            ..self
        }
    }
}
