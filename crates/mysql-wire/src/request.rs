//! Finds where a client's command ends, and where the file data of LOAD DATA LOCAL ends.

use crate::{Command, PacketHeader, WireError};

/// Follows what a client sends, without keeping any of it.
///
/// Call [`RequestTracker::begin_command`] (or [`RequestTracker::begin_infile`]) when the client is at the start
/// of a packet, then [`RequestTracker::advance`] with the bytes as they come until it says finished.
#[derive(Debug, Clone, Copy, Default)]
pub struct RequestTracker {
    /// Payload bytes of the packet under way that have not come yet.
    skip: u32,
    /// The packet under way is continued by the next one.
    continued: bool,
    goal: Goal,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Goal {
    #[default]
    Nothing,
    /// One payload, in one packet or several.
    Payload,
    /// Payloads up to an empty one.
    EmptyPayload,
    /// The rest of a last payload.
    Rest,
}

impl RequestTracker {
    pub const fn new() -> RequestTracker {
        RequestTracker {
            skip: 0,
            continued: false,
            goal: Goal::Nothing,
        }
    }

    /// The header and the command at the start of `bytes`; `None` while fewer than five bytes are there.
    ///
    /// # Errors
    /// [`WireError::Empty`] for a packet without payload, which is no command.
    #[inline]
    pub fn peek(bytes: &[u8]) -> Result<Option<(PacketHeader, Command)>, WireError> {
        match (PacketHeader::parse(bytes), bytes.get(PacketHeader::LEN)) {
            (Some(PacketHeader { payload_len: 0, .. }), _) => Err(WireError::Empty {
                expected: "a command",
            }),
            (Some(header), Some(&byte)) => Ok(Some((header, Command(byte)))),
            _ => Ok(None),
        }
    }

    /// The next byte is the first of a command packet's header.
    pub fn begin_command(&mut self) {
        *self = RequestTracker {
            goal: Goal::Payload,
            ..RequestTracker::new()
        };
    }

    /// The next byte is the first of the answer to a LOCAL INFILE request: packets of file data, then an empty
    /// packet.
    pub fn begin_infile(&mut self) {
        *self = RequestTracker {
            goal: Goal::EmptyPayload,
            ..RequestTracker::new()
        };
    }

    /// A command or file data has begun and has not ended.
    pub fn in_progress(&self) -> bool {
        self.goal != Goal::Nothing
    }

    /// Takes bytes that start where the bytes consumed before ended. Returns how many of them belong to the
    /// command (the rest must be presented again: another command, or a header that is not complete), and
    /// whether the command ended with them.
    pub fn advance(&mut self, bytes: &[u8]) -> (usize, bool) {
        let mut at = 0;
        while self.goal != Goal::Nothing {
            let passed = (self.skip as usize).min(bytes.len() - at);
            self.skip -= passed as u32;
            at += passed;
            if self.skip > 0 {
                return (at, false);
            }
            if self.goal == Goal::Rest && !self.continued {
                self.goal = Goal::Nothing;
                return (at, true);
            }
            let Some(header) = PacketHeader::parse(&bytes[at..]) else {
                return (at, false);
            };
            at += PacketHeader::LEN;
            let is_first = !std::mem::replace(&mut self.continued, header.is_continued());
            self.skip = header.payload_len as u32;
            if self.goal == Goal::Payload || (is_first && header.payload_len == 0) {
                self.goal = Goal::Rest;
            }
        }
        (0, false)
    }
}
