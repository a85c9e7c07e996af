//! Finds where a client's command ends, and where the file data of LOAD DATA LOCAL ends.

use crate::{Command, PacketHeader, WireError};

/// Follows what a client sends, without keeping any of it.
///
/// Call [`RequestTracker::begin_command`] (or [`RequestTracker::begin_infile`]) when the client is at the
/// start of a packet, then [`RequestTracker::advance`] with the bytes as they come until it says finished.
#[derive(Debug, Clone, Copy, Default)]
pub struct RequestTracker {
    /// Payload bytes of the packet under way that have not come yet.
    skip: u32,
    /// The packet under way is continued by the next one.
    continued: bool,
    /// Of the last packet that began.
    sequence: u8,
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

/// What was passed.
enum RequestStep {
    /// A header, which is here.
    Header(usize),
    NeedMore,
    Finished,
}

impl RequestTracker {
    pub const fn new() -> RequestTracker {
        RequestTracker {
            skip: 0,
            continued: false,
            sequence: 0,
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

    /// The next byte is the first of the answer to a LOCAL INFILE request: packets of file data, then an
    /// empty packet.
    pub fn begin_infile(&mut self) {
        *self = RequestTracker {
            goal: Goal::EmptyPayload,
            ..RequestTracker::new()
        };
    }

    /// The sequence number of the last packet that began; 0 before the first.
    pub fn sequence(&self) -> u8 {
        self.sequence
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
        loop {
            match self.step(bytes, &mut at) {
                RequestStep::Header(_) => {}
                RequestStep::NeedMore => return (at, false),
                RequestStep::Finished => return (at, true),
            }
        }
    }

    /// Numbers the packets anew, from `next` on, whose headers [`advance`](Self::advance) would pass in
    /// `bytes`. To be called before it, with the same bytes.
    ///
    /// Clients under compression number the packets inside the frames loosely, and servers ignore those
    /// numbers; on a link without compression a server does not.
    pub fn renumber(&self, bytes: &mut [u8], next: &mut u8) {
        let (mut tracker, mut at) = (*self, 0);
        while let RequestStep::Header(header) = tracker.step(bytes, &mut at) {
            if let Some(sequence) = bytes.get_mut(header + PacketHeader::LEN - 1) {
                *sequence = *next;
            }
            *next = next.wrapping_add(1);
        }
    }

    /// Passes a payload, and the header behind it.
    fn step(&mut self, bytes: &[u8], at: &mut usize) -> RequestStep {
        if self.goal == Goal::Nothing {
            *at = 0;
            return RequestStep::NeedMore;
        }
        let passed = (self.skip as usize).min(bytes.len() - *at);
        self.skip -= passed as u32;
        *at += passed;
        if self.skip > 0 {
            return RequestStep::NeedMore;
        }
        if self.goal == Goal::Rest && !self.continued {
            self.goal = Goal::Nothing;
            return RequestStep::Finished;
        }
        let header_at = *at;
        let Some(header) = bytes.get(header_at..).and_then(PacketHeader::parse) else {
            return RequestStep::NeedMore;
        };
        *at += PacketHeader::LEN;
        self.sequence = header.sequence;
        let is_first = !std::mem::replace(&mut self.continued, header.is_continued());
        self.skip = header.payload_len as u32;
        if self.goal == Goal::Payload || (is_first && header.payload_len == 0) {
            self.goal = Goal::Rest;
        }
        RequestStep::Header(header_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write_packet;

    fn packets(payloads: &[&[u8]]) -> Vec<u8> {
        let (mut out, mut sequence) = (Vec::new(), 0);
        for payload in payloads {
            write_packet(&mut out, &mut sequence, payload);
        }
        out
    }

    /// Feeds `bytes` in two pieces; the end that was found.
    fn end(mut tracker: RequestTracker, bytes: &[u8], cut: usize) -> Option<usize> {
        let (first, finished) = tracker.advance(&bytes[..cut]);
        if finished {
            return Some(first);
        }
        let (second, finished) = tracker.advance(&bytes[first..]);
        finished.then_some(first + second)
    }

    #[test]
    fn a_command_ends_with_its_packet_and_the_next_one_stays() {
        let bytes = packets(&[b"\x03select 1", b"\x0e"]);
        assert_eq!(RequestTracker::peek(&bytes[..4]), Ok(None));
        let header = PacketHeader {
            payload_len: 9,
            sequence: 0,
        };
        assert_eq!(RequestTracker::peek(&bytes), Ok(Some((header, Command::QUERY))));
        let mut tracker = RequestTracker::new();
        assert!(!tracker.in_progress());
        tracker.begin_command();
        for cut in 0..=bytes.len() {
            assert_eq!(end(tracker, &bytes, cut), Some(13), "cut at {cut}");
        }
        assert_eq!(tracker.advance(&bytes[..12]), (12, false));
        assert!(tracker.in_progress());
        assert_eq!(tracker.advance(&bytes[12..]), (1, true));
        assert!(!tracker.in_progress());
        assert_eq!(tracker.advance(&bytes[13..]), (0, false));
    }

    #[test]
    fn a_command_over_16_mib_ends_with_its_last_packet() {
        for len in [PacketHeader::MAX_PAYLOAD, PacketHeader::MAX_PAYLOAD + 10] {
            let mut bytes = packets(&[&vec![3; len]]);
            let expected = bytes.len();
            bytes.extend_from_slice(&packets(&[b"\x0e"]));
            let mut tracker = RequestTracker::new();
            tracker.begin_command();
            for cut in [
                0,
                3,
                4,
                100,
                PacketHeader::MAX_PAYLOAD + 3,
                PacketHeader::MAX_PAYLOAD + 4,
                expected,
            ] {
                assert_eq!(end(tracker, &bytes, cut), Some(expected), "{len} cut at {cut}");
            }
        }
    }

    #[test]
    fn file_data_ends_with_an_empty_packet() {
        let bytes = packets(&[b"1,2\n", b"3,4\n", b"", b"\x0e"]);
        let mut tracker = RequestTracker::new();
        tracker.begin_infile();
        for cut in 0..=bytes.len() {
            assert_eq!(end(tracker, &bytes, cut), Some(20), "cut at {cut}");
        }
        assert_eq!(end(tracker, &packets(&[b""]), 2), Some(4));
    }

    #[test]
    fn the_empty_packet_after_16_mib_of_file_data_is_not_the_end_yet() {
        let full = vec![b'x'; PacketHeader::MAX_PAYLOAD];
        let bytes = packets(&[&full, b""]);
        let mut tracker = RequestTracker::new();
        tracker.begin_infile();
        assert_eq!(end(tracker, &bytes, 10), Some(bytes.len()));
    }

    #[test]
    fn an_empty_packet_is_no_command() {
        assert_eq!(
            RequestTracker::peek(&[0, 0, 0, 0]),
            Err(WireError::Empty {
                expected: "a command"
            })
        );
    }
}
