//! Why a statement went alone after all.

use upstream::LeaseError;

/// Why a statement got no answer with the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WentAlone {
    /// There was no connection in time, nor room in the line, and there is none for a statement that goes
    /// alone.
    NoConnection(LeaseError),
    /// There was no connection, or it was lost.
    Lost,
    /// The statement, or one before it, took long.
    Slow,
    /// The statement left something on the connection that its session may ask for (an error, a warning), or
    /// changed the session.
    Unclean,
    /// The answer is longer than a buffer.
    Long,
    /// The statement is not prepared on the connection.
    Unprepared,
}
