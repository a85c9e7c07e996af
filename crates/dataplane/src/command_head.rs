//! A command as far as its first bytes tell.

/// The header and first byte of a client's command.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CommandHead {
    pub(crate) command: mysql_wire::Command,
    pub(crate) payload_len: usize,
}
