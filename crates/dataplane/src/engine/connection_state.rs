//! The state of a server connection that the sessions of a worker share.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use session::{Baseline, PackedState, PortableState};
use telemetry::ServerMetrics;
use upstream::Travel;

use crate::engine::prepared::{OnServer, StatementsLuggage};

/// The facts of a server connection that the pool does not know.
pub(crate) struct ConnectionState {
    /// The state that is set on the connection, in the allocation of the session that used it last, unless
    /// either has changed since.
    pub(crate) carried: Rc<PortableState>,
    pub(crate) baseline: Rc<Baseline>,
    pub(crate) statements: OnServer,
    /// The session whose statement was the last on the connection, with nothing of anybody else's since.
    pub(crate) last_session: Option<u32>,
    /// The session's turn of that statement.
    pub(crate) last_turn: u32,
    /// Nothing was executed on the connection since, not by the gateway either.
    pub(crate) is_untouched: bool,
    /// FOUND_ROWS() on the connection is that session's.
    pub(crate) has_count: bool,
    /// LAST_INSERT_ID() on the connection, and the transaction that it has reported last.
    pub(crate) known: session::KnownConnection,
    /// Galera: reads on the connection wait for what other nodes have written.
    pub(crate) syncs_reads: bool,
    /// The session is in a schema that is gone, and this connection in none: it is not for others then.
    pub(crate) lacks_schema: bool,
    /// See [`Opened::login_began`](upstream::Opened::login_began).
    pub(crate) login_began: Instant,
    pub(crate) metrics: Arc<ServerMetrics>,
}

impl ConnectionState {
    /// The cost of making the connection that of a session which wants `want`, and no login before
    /// `oldest_login`: [`CANNOT`](session::CANNOT) where that is impossible.
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

/// The facts of the last statement are of no use elsewhere.
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
