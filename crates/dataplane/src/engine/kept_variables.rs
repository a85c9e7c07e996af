//! The user variables of a session that has left its connection with them.

use session::Pin;

/// The user variables of such a session. Few sessions have any, and the others have room for a pointer.
pub(crate) struct KeptVariables {
    /// The command that sets the variables on a connection that has none; `None` where none was set.
    pub(crate) set: Option<Box<[u8]>>,
    /// The reason why the session would hold its connection.
    pub(crate) pin: Pin,
}
