//! A server connection that a session has borrowed.

use serde::{Deserialize, Serialize};
use upstream::Connection;

use crate::engine::connection_state::ConnectionState;

/// A server connection in the hands of a session; its stream is in the session's streams.
pub(crate) struct LeasedConnection {
    pub(crate) connection: Connection<ConnectionState>,
    /// Its server takes this session's writes, as of `generation`.
    pub(crate) is_primary: bool,
    /// Its server did, and another does now, or none.
    pub(crate) is_demoted: bool,
    /// In the transaction that is open on it, it has refused a write because it takes none.
    pub(crate) has_refused_write: bool,
    /// Of the topology by which that was judged last; 0 is none.
    pub(crate) generation: u64,
    /// The transaction that was begun on it goes on to the primary with its first statement that is no plain
    /// read.
    pub(crate) moves_on: bool,
    /// What it still says of the session's last statement.
    pub(crate) left: Left,
    /// It has not got the session's state yet, which goes ahead of the statement.
    pub(crate) lacks_state: bool,
}

impl LeasedConnection {
    /// With the session's state on it, as far as is known.
    pub(crate) fn new(connection: Connection<ConnectionState>, is_primary: bool, left: Left) -> Self {
        Self {
            connection,
            is_primary,
            is_demoted: false,
            has_refused_write: false,
            generation: 0,
            moves_on: false,
            left,
            lacks_state: false,
        }
    }

    /// The server has dropped its statements, and its last one is not the session's.
    pub(crate) fn forget_statements(&mut self) {
        self.connection.state.statements.clear();
        self.left = Left::default();
    }
}

/// The connection that the session holds, if any, says nothing of the last statement any more.
pub(crate) fn says_nothing(lease: &mut Option<LeasedConnection>) {
    if let Some(leased) = lease {
        leased.left = Left::default();
    }
}

/// What the connection at hand still says of the session's last statement.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Left {
    /// It was executed there, and nobody else's since.
    pub(crate) is_own: bool,
    /// And nothing else was executed there, not by the gateway either.
    pub(crate) is_untouched: bool,
    /// It was there that the session has counted rows last, and nobody else since.
    pub(crate) has_count: bool,
}

impl Left {
    pub(crate) const ALL: Self = Self {
        is_own: true,
        is_untouched: true,
        has_count: true,
    };
}
