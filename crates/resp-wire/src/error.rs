//! What makes the rest of a connection unreadable.

/// A client broke the protocol: it is told and the connection ends, because nobody knows where its next
/// request begins. The words are those of Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A line of an inline request without an end.
    #[error("Protocol error: too big inline request")]
    InlineTooBig,
    /// A quote without its other half.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// The line with the number of arguments has no end.
    #[error("Protocol error: too big mbulk count string")]
    CountLineTooBig,
    /// That number is none, or too large.
    #[error("Protocol error: invalid multibulk length")]
    InvalidCount,
    /// More arguments than a client may send that has not logged in.
    #[error("Protocol error: unauthenticated multibulk length")]
    UnauthenticatedCount,
    /// The line with the length of an argument has no end.
    #[error("Protocol error: too big bulk count string")]
    LengthLineTooBig,
    /// An argument is something else than a bulk string; arrays do not nest in requests.
    #[error("Protocol error: expected '$', got '{}'", shown(*.0))]
    ExpectedBulk(u8),
    /// The length of an argument is no number, or too large.
    #[error("Protocol error: invalid bulk length")]
    InvalidLength,
    /// A longer argument than a client may send that has not logged in.
    #[error("Protocol error: unauthenticated bulk length")]
    UnauthenticatedLength,
    /// An argument does not end where its length says.
    #[error("Protocol error: expected CRLF after an argument")]
    MissingLineEnd,
}

/// A byte as Redis shows it: no line ends in an error.
fn shown(byte: u8) -> String {
    match byte {
        b'\r' | b'\n' => " ".to_owned(),
        _ => byte.escape_ascii().to_string(),
    }
}
