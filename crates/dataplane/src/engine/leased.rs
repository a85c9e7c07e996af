//! A server connection that a session has borrowed.

use serde::{Deserialize, Serialize};
use upstream::Connection;

use crate::engine::connection_state::ConnectionState;

/// A server connection in the hands of a session; its stream is in the session's streams.
pub(crate) struct LeasedConnection {
    pub(crate) connection: Connection<ConnectionState>,
    /// The connection's server takes this session's writes, as of `generation`.
    pub(crate) is_primary: bool,
    /// The connection's server took them. Another does since, or none.
    pub(crate) is_demoted: bool,
    /// The server has refused a write in the transaction that is open here, because it takes none.
    pub(crate) has_refused_write: bool,
    /// The generation of the topology by which that was judged last; 0 is none.
    pub(crate) generation: u64,
    /// The transaction that was begun on it goes on to the primary with its first statement that is no plain
    /// read.
    pub(crate) moves_on: bool,
    /// The facts that the connection still tells of the session's last statement.
    pub(crate) left: Left,
    /// The connection has not got the session's state yet, which goes ahead of the statement.
    pub(crate) lacks_state: bool,
}

impl LeasedConnection {
    /// A connection with the session's state on it, as far as is known.
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

    /// Notes that the server has dropped its statements, and that its last one is not the session's.
    pub(crate) fn forget_statements(&mut self) {
        self.connection.state.statements.clear();
        self.left = Left::default();
    }
}

/// Notes that the connection that the session holds, if any, says nothing of the last statement any more.
pub(crate) fn says_nothing(lease: &mut Option<LeasedConnection>) {
    if let Some(leased) = lease {
        leased.left = Left::default();
    }
}

/// The things that the connection at hand still says of the session's last statement.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Left {
    /// The statement was executed there, and nobody else's since.
    pub(crate) is_own: bool,
    /// Nothing else was executed there since, not by the gateway either.
    pub(crate) is_untouched: bool,
    /// The session's last count of rows was made there, and nobody else's since.
    pub(crate) has_count: bool,
}

impl Left {
    pub(crate) const ALL: Self = Self {
        is_own: true,
        is_untouched: true,
        has_count: true,
    };
}
