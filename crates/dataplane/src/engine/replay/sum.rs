//! A checksum of a server's answer, over what its client learns from it.
//!
//! These are the rows, and of the packet that ends the answer the counts, the id, the warnings, the words and
//! the error. Parts that belong to the connection are left out: sequence numbers, reported session state, and
//! definitions of columns, which MariaDB leaves out itself where it has sent them before.

use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};

use mysql_wire::{Capabilities, ErrPacket, Event, OkPacket, PacketHeader, StatusFlags, WireError};

use crate::relay::Answer;
use crate::relay::flow::Flow;

/// The longest packet that is looked into. Rows are not.
const KEPT_MAX: usize = 64 * 1024;

/// The flags of the status that a client goes by.
const STATUS: StatusFlags = StatusFlags(
    StatusFlags::IN_TRANS.0
        | StatusFlags::AUTOCOMMIT.0
        | StatusFlags::IN_TRANS_READONLY.0
        | StatusFlags::MORE_RESULTS.0,
);

/// The kind of the next packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    First,
    /// The first of so many definitions of columns.
    Definitions(u64),
    Row,
    /// Nothing: the answer has ended.
    Nothing,
}

/// The use that is made of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Skip,
    Hash,
    Keep,
}

/// The checksum of one answer, which comes in any pieces.
pub(crate) struct Sum {
    hasher: DefaultHasher,
    capabilities: Capabilities,
    next: Next,
    doing: Doing,
    head: [u8; PacketHeader::LEN],
    head_len: usize,
    /// Bytes that are left of the payload under way.
    left: usize,
    is_continued: bool,
    /// Nothing of the payload has been seen.
    is_new: bool,
    kept: Vec<u8>,
    bytes: usize,
    /// The answer is none that this can tell from another one.
    is_odd: bool,
}

impl Sum {
    pub(crate) fn new(keys: &RandomState, capabilities: Capabilities) -> Self {
        Self {
            hasher: keys.build_hasher(),
            capabilities,
            next: Next::First,
            doing: Doing::Keep,
            head: [0; PacketHeader::LEN],
            head_len: 0,
            left: 0,
            is_continued: false,
            is_new: false,
            kept: Vec::new(),
            bytes: 0,
            is_odd: false,
        }
    }

    /// The checksum; `None` where the answer has not ended, or has more than one result.
    pub(crate) fn finish(&self) -> Option<u64> {
        (self.next == Next::Nothing && !self.is_odd).then(|| self.hasher.finish())
    }

    /// Bytes of the answer so far.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn feed(&mut self, mut bytes: &[u8]) {
        self.bytes += bytes.len();
        while !bytes.is_empty() && !self.is_odd {
            if self.left == 0 && self.head_len < PacketHeader::LEN {
                let (head, rest) = bytes.split_at(bytes.len().min(PacketHeader::LEN - self.head_len));
                self.head[self.head_len..][..head.len()].copy_from_slice(head);
                self.head_len += head.len();
                bytes = rest;
                match PacketHeader::parse(&self.head[..self.head_len]) {
                    Some(header) => self.begin(header),
                    None => return,
                }
                continue;
            }
            let (part, rest) = bytes.split_at(bytes.len().min(self.left));
            bytes = rest;
            self.left -= part.len();
            self.take(part);
            if self.left == 0 {
                self.end();
            }
        }
    }

    fn begin(&mut self, header: PacketHeader) {
        self.left = header.payload_len;
        if !std::mem::replace(&mut self.is_continued, header.is_continued()) {
            self.doing = match self.next {
                Next::First => Doing::Keep,
                Next::Definitions(_) => Doing::Skip,
                Next::Row => Doing::Hash,
                Next::Nothing => return self.is_odd = true,
            };
            self.is_new = true;
        }
        if self.doing == Doing::Hash && !self.is_new {
            self.hasher.write_usize(self.left);
        }
        if self.left == 0 {
            self.end();
        }
    }

    fn take(&mut self, part: &[u8]) {
        if std::mem::take(&mut self.is_new) && self.doing == Doing::Hash {
            // A row cannot begin so, unless it takes several packets.
            let ends = match part.first() {
                Some(&OkPacket::HEADER_AS_EOF) => !self.is_continued,
                first => first == Some(&ErrPacket::HEADER),
            };
            match ends {
                true => self.doing = Doing::Keep,
                false => self.hasher.write_usize(self.left + part.len()),
            }
        }
        match self.doing {
            Doing::Skip => {}
            Doing::Hash => self.hasher.write(part),
            Doing::Keep if self.kept.len() + part.len() > KEPT_MAX => self.is_odd = true,
            Doing::Keep => self.kept.extend_from_slice(part),
        }
    }

    /// Ends the payload of a packet.
    fn end(&mut self) {
        self.head_len = 0;
        if self.is_continued {
            self.is_odd |= self.doing == Doing::Keep;
            return;
        }
        let kept = std::mem::take(&mut self.kept);
        self.next = match (self.next, self.doing) {
            (Next::Definitions(left @ 2..), _) => Next::Definitions(left - 1),
            (Next::Definitions(_), _) => Next::Row,
            (next, Doing::Keep) => match self.look(next, &kept) {
                Some(next) => next,
                None => {
                    self.is_odd = true;
                    Next::Nothing
                }
            },
            (next, _) => next,
        };
    }

    /// The kind of the packet behind one that begins or ends an answer.
    fn look(&mut self, next: Next, packet: &[u8]) -> Option<Next> {
        /// MariaDB tells in such a packet how far it is.
        const PROGRESS: u16 = u16::MAX;
        let first = *packet.first()?;
        if first == ErrPacket::HEADER {
            let error = ErrPacket::decode(packet, self.capabilities).ok()?;
            if error.code == PROGRESS {
                return Some(next);
            }
            self.hasher.write(packet);
            return Some(Next::Nothing);
        }
        if next == Next::Row || first == OkPacket::HEADER {
            let ok = OkPacket::decode(packet, self.capabilities).ok()?;
            for count in [ok.affected_rows, ok.last_insert_id, u64::from(ok.warnings)] {
                self.hasher.write_u64(count);
            }
            self.hasher.write_u16((ok.status & STATUS).0);
            self.hasher.write(&ok.info);
            return (!ok.status.contains(StatusFlags::MORE_RESULTS)).then_some(Next::Nothing);
        }
        let columns = match *packet {
            [count @ 1..=250, ..] => u64::from(count),
            [0xfc, low, high, ..] => u64::from(u16::from_le_bytes([low, high])),
            _ => return None,
        };
        self.hasher.write_u64(columns);
        // The byte behind the count says whether definitions follow.
        let may_lack = Capabilities::OPTIONAL_RESULTSET_METADATA | Capabilities::MARIADB_CACHE_METADATA;
        let has_definitions = !self.capabilities.intersects(may_lack) || packet.last() != Some(&0);
        Some(match has_definitions {
            true => Next::Definitions(columns),
            false => Next::Row,
        })
    }
}

/// An answer on its way to the client of which a checksum is made.
pub(crate) struct Summed<'a, A> {
    answer: &'a mut A,
    pub(crate) sum: Sum,
    /// Bytes that were taken in and are not approved yet.
    ahead: usize,
}

impl<'a, A: Answer> Summed<'a, A> {
    pub(crate) fn new(answer: &'a mut A, sum: Sum) -> Self {
        Self {
            answer,
            sum,
            ahead: 0,
        }
    }
}

impl<A: Answer> Answer for Summed<'_, A> {
    fn advance(&mut self, down: &mut Flow) -> Result<(usize, Event), WireError> {
        self.sum.feed(down.unseen().get(self.ahead..).unwrap_or_default());
        let advanced = self.answer.advance(down)?;
        self.ahead = down.unseen().len();
        Ok(advanced)
    }

    fn in_progress(&self) -> bool {
        self.answer.in_progress()
    }

    fn error_sequence(&self) -> Option<u8> {
        self.answer.error_sequence()
    }

    fn sequence(&self) -> u8 {
        self.answer.sequence()
    }

    fn renumbers(&self) -> bool {
        self.answer.renumbers()
    }

    fn resume_after_local_infile(&mut self) {
        self.answer.resume_after_local_infile();
    }
}

#[cfg(test)]
mod tests {
    use mysql_wire::write_packet;

    use super::*;

    const ROWS: [&[u8]; 5] = [b"\x01", b"\x03def1", b"\x011", b"\xfb", b"\xfe\0\0\x03\0\0\0"];

    fn capabilities() -> Capabilities {
        Capabilities::PROTOCOL_41 | Capabilities::DEPRECATE_EOF | Capabilities::SESSION_TRACK
    }

    fn answer(payloads: &[&[u8]]) -> Vec<u8> {
        let (mut bytes, mut sequence) = (Vec::new(), 1);
        for payload in payloads {
            write_packet(&mut bytes, &mut sequence, payload);
        }
        bytes
    }

    struct Keys(RandomState);

    impl Keys {
        fn of(&self, payloads: &[&[u8]], piece: usize) -> Option<u64> {
            self.with(capabilities(), payloads, piece)
        }

        fn with(&self, capabilities: Capabilities, payloads: &[&[u8]], piece: usize) -> Option<u64> {
            let mut sum = Sum::new(&self.0, capabilities);
            answer(payloads).chunks(piece).for_each(|part| sum.feed(part));
            sum.finish()
        }
    }

    #[test]
    fn pieces_make_no_difference_and_every_value_does() {
        let keys = Keys(RandomState::new());
        let whole = keys.of(&ROWS, 1000).unwrap();
        for piece in 1..30 {
            assert_eq!(keys.of(&ROWS, piece), Some(whole), "{piece}");
        }
        let others: [&[&[u8]]; 6] = [
            &[ROWS[0], ROWS[1], b"\x012", ROWS[3], ROWS[4]],
            &[ROWS[0], ROWS[1], ROWS[2], ROWS[2], ROWS[4]],
            &[ROWS[0], ROWS[1], ROWS[2], ROWS[4]],
            &[ROWS[0], ROWS[1], ROWS[2], ROWS[3], b"\xfe\0\0\x03\0\x01\0"],
            &[ROWS[0], ROWS[1], ROWS[2], ROWS[3], b"\xfe\0\0\x02\0\0\0"],
            &[ROWS[0], ROWS[1], ROWS[2], b"\xff\x28\x04#42000no"],
        ];
        for other in others {
            assert!(keys.of(other, 3).is_some_and(|sum| sum != whole), "{other:?}");
        }
        let ok = keys.of(&[b"\0\x01\0\x03\0\0\0"], 2).unwrap();
        for other in [
            b"\0\x02\0\x03\0\0\0",
            b"\0\x01\x05\x03\0\0\0",
            b"\0\x01\0\x03\0\x01\0",
        ] {
            assert!(keys.of(&[other], 2).is_some_and(|sum| sum != ok), "{other:?}");
        }
    }

    #[test]
    fn what_is_of_the_connection_makes_none() {
        let keys = Keys(RandomState::new());
        // A schema, and a status flag that says nothing of the answer.
        let plain = keys.of(&[b"\0\x01\0\x03\0\0\0"], 100);
        let state = b"\0\x01\0\x13\x40\0\0\0\x04\x01\x02\x01a";
        assert_eq!(keys.of(&[state], 4), plain);
        // Definitions that the client has.
        let may_lack = capabilities() | Capabilities::MARIADB_CACHE_METADATA;
        let with: [&[u8]; 4] = [b"\x01\x01", b"\x03def1", b"\x011", ROWS[4]];
        let without: [&[u8]; 3] = [b"\x01\0", b"\x011", ROWS[4]];
        let sum = keys.with(may_lack, &with, 5);
        assert!(sum.is_some());
        assert_eq!(keys.with(may_lack, &without, 5), sum);
    }

    #[test]
    fn an_answer_that_has_not_ended_or_goes_on_has_none() {
        let keys = Keys(RandomState::new());
        assert_eq!(keys.of(&ROWS[..4], 7), None);
        assert_eq!(keys.of(&[b"\0\0\0\x0b\0\0\0"], 7), None, "more results");
        assert_eq!(keys.of(&[b"\0\0\0\x03\0\0\0", b"\0\0\0\x03\0\0\0"], 7), None);
        assert_eq!(keys.of(&[b"\xfb/a"], 7), None, "a file of the client's");
    }
}
