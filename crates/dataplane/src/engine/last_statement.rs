//! What the session's last statement has left with the gateway.

use std::num::NonZeroU64;
use std::sync::Arc;

use upstream::Server;

use crate::engine::generated_ids;
use crate::engine::kept_variables::KeptVariables;
use crate::engine::last_error::LastError;

#[derive(Default)]
pub(crate) struct LastStatement {
    /// The server that had it, for the log.
    pub(crate) server: Option<Arc<Server>>,
    /// How many statements the session has had executed.
    pub(crate) turn: u32,
    /// The last statement in whose answer there was an id that nothing in it could have given, and that id,
    /// while it is not known that the server has made it.
    pub(crate) generated: Option<(generated_ids::Key, NonZeroU64)>,
    /// Why the statement of a `turn` went where it went, where its client has asked for that. Each statement
    /// drops that of the one before where it begins: a statement that reaches no server has no turn.
    pub(crate) explain_warning: Option<Box<ExplainWarning>>,
    /// The error that its client was told last, where that may be raised again.
    pub(crate) error: Option<Box<LastError>>,
    /// The session's user variables, where it has left its connection with them.
    pub(crate) kept_variables: Option<Box<KeptVariables>>,
}

/// Why a statement went where it went. Few sessions have one, and the others have room for a pointer.
pub(crate) struct ExplainWarning {
    pub(super) words: Box<str>,
    /// [`LastStatement::turn`] when the statement was over. Behind a reset or a change of the user the
    /// session has another one, and nothing is shown.
    pub(super) turn: u32,
}
