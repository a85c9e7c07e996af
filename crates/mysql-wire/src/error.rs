//! The crate's one error: bytes that do not follow the protocol.

/// Bytes from a peer that do not follow the protocol. After one of these the connection cannot be understood
/// any more and has to be closed: whose fault it was depends on which peer sent the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The packet ended before a field that it must have.
    #[error("the packet ends before its {field}")]
    Truncated { field: &'static str },
    /// A field holds a value that the protocol does not have.
    #[error("the packet's {field} is not valid")]
    Invalid { field: &'static str },
    /// A packet without payload where a reply or a command must be.
    #[error("an empty packet where {expected} was expected")]
    Empty { expected: &'static str },
    /// A packet of another kind than the ones that may come here.
    #[error("a packet starting with byte {found:#04x} where {expected} was expected")]
    Unexpected { expected: &'static str, found: u8 },
    /// The server sent bytes although no command waits for a response.
    #[error("the server sent bytes while no command was waiting for a response")]
    NotAsked,
    /// The server asks for a file of the client, who has sent nothing that could load one.
    #[error(
        "the server asks for a file of the client's that the client has not offered (LOAD DATA LOCAL INFILE)"
    )]
    FileNotOffered,
    /// The peer does not speak the protocol of MySQL 4.1 and later.
    #[error("the peer does not speak the 4.1 protocol")]
    OldProtocol,
    /// A compressed frame whose content does not have the length that its header claims.
    #[error("a compressed frame does not unpack to the {claimed} bytes that it claims")]
    FrameLength { claimed: usize },
    /// The compressed data of a frame is damaged.
    #[error("the compressed data of a frame is damaged")]
    FrameData,
}
