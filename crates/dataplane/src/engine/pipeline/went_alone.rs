//! Why a statement went alone after all.

use upstream::LeaseError;

/// Why a statement got no answer with the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WentAlone {
    /// There was no connection in time, nor room in the line: it is the same for who would go alone.
    NoConnection(LeaseError),
    /// No connection, or it was lost.
    Lost,
    /// It, or one before it, took long.
    Slow,
    /// It left something on the connection that its session may ask for (an error, a warning), or changed the
    /// session.
    Unclean,
    /// Its answer is longer than a buffer.
    Long,
    /// It is not prepared on the connection.
    Unprepared,
}
