//! Puts the streams of TCP connections together again, each from its first packet on.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use super::talk::Talk;
use super::{ImportError, Importer};

/// Bytes of a direction that may wait for those in front of them. What is still missing then was not
/// captured.
const HELD_MAX: usize = 4 << 20;
/// Connections at a time, beyond which none is begun.
const CONNECTIONS_MAX: usize = 100_000;

pub(super) type End = (IpAddr, u16);

/// What a packet says.
pub(super) struct Segment<'a> {
    pub(super) from: End,
    pub(super) to: End,
    pub(super) sequence: u32,
    pub(super) is_syn: bool,
    pub(super) is_ack: bool,
    /// Nothing more comes from there.
    pub(super) is_end: bool,
    pub(super) is_reset: bool,
    /// Only its beginning was captured.
    pub(super) is_cut: bool,
    pub(super) bytes: &'a [u8],
}

/// All connections, by their client and their server.
#[derive(Default)]
pub(super) struct Streams {
    connections: HashMap<(End, End), Connection>,
    /// So many have begun.
    begun: u32,
    /// The time of the last packet.
    last_us: u64,
    /// Connections of which it was said already that their beginning is not there.
    unknown: HashMap<(End, End), ()>,
}

struct Connection {
    talk: Talk,
    /// From the client, from the server.
    ways: [Way; 2],
}

#[derive(Default)]
struct Way {
    /// The number of the byte that comes next; `None` before the first packet.
    next: Option<u32>,
    held: BTreeMap<u32, Vec<u8>>,
    held_len: usize,
    /// The number behind the last byte, once that is known.
    end: Option<u32>,
}

impl Streams {
    pub(super) fn segment(
        &mut self,
        importer: &mut Importer,
        at_us: u64,
        segment: &Segment<'_>,
    ) -> Result<(), ImportError> {
        let from_client = (segment.from, segment.to);
        let from_server = (segment.to, segment.from);
        if segment.is_syn {
            let (key, way) = if segment.is_ack {
                (from_server, 1)
            } else {
                (from_client, 0)
            };
            let start = Some(segment.sequence.wrapping_add(1));
            let known = self.connections.get(&key).and_then(|known| known.ways[way].next);
            let is_again =
                self.connections.contains_key(&key) && (way == 1 && known.is_some() || known == start);
            if is_again {
                return Ok(());
            }
            if way == 0
                && let Some(before) = self.connections.remove(&key)
            {
                before.talk.end(importer, at_us)?;
            }
            let is_new = !self.connections.contains_key(&key);
            if is_new && self.connections.len() < CONNECTIONS_MAX {
                self.begun += 1;
                let connection = Connection {
                    talk: Talk::new(self.begun),
                    ways: Default::default(),
                };
                self.connections.insert(key, connection);
            }
            if let Some(connection) = self.connections.get_mut(&key) {
                connection.ways[way].next = start;
            }
            return Ok(());
        }
        let (key, way) = match self.connections.contains_key(&from_client) {
            true => (from_client, 0),
            false => (from_server, 1),
        };
        let Some(connection) = self.connections.get_mut(&key) else {
            let is_told = self.unknown.contains_key(&key) || self.unknown.contains_key(&from_client);
            if !is_told && !segment.bytes.is_empty() && self.unknown.len() < CONNECTIONS_MAX {
                self.unknown.insert(key, ());
                importer.leave_out("connections that were there before the capture");
            }
            return Ok(());
        };
        if segment.is_cut {
            connection.talk.give_up(
                importer,
                "connections of which only the beginnings of packets are there",
            );
        }
        let is_whole = connection.ways[way].add(segment, |bytes| {
            connection.talk.bytes(importer, at_us, way == 1, bytes)
        })?;
        if !is_whole {
            connection
                .talk
                .give_up(importer, "connections of which packets are missing");
        }
        if segment.is_end {
            connection.ways[way].end = Some(segment.sequence.wrapping_add(segment.bytes.len() as u32));
        }
        if (segment.is_reset || connection.ways.iter().all(Way::is_over))
            && let Some(connection) = self.connections.remove(&key)
        {
            connection.talk.end(importer, at_us)?;
        }
        self.last_us = at_us;
        Ok(())
    }

    /// Nothing more comes.
    pub(super) fn end(self, importer: &mut Importer) -> Result<(), ImportError> {
        let mut connections: Vec<_> = self.connections.into_values().collect();
        connections.sort_by_key(|connection| connection.talk.thread());
        connections
            .into_iter()
            .try_for_each(|connection| connection.talk.end(importer, self.last_us))
    }
}

impl Way {
    /// All that the one side has sent was handed over.
    fn is_over(&self) -> bool {
        let behind = |end: u32| {
            self.next
                .is_some_and(|next| end.wrapping_sub(next).cast_signed() <= 0)
        };
        self.end.is_some_and(behind)
    }

    /// Hands over what comes next, as far as it is there. False: something is missing for good.
    fn add(
        &mut self,
        segment: &Segment<'_>,
        mut take: impl FnMut(&[u8]) -> Result<(), ImportError>,
    ) -> Result<bool, ImportError> {
        let next = self.next.get_or_insert(segment.sequence);
        let is_next = |sequence: u32, next: u32| sequence.wrapping_sub(next).cast_signed() <= 0;
        if segment.bytes.is_empty() {
            return Ok(true);
        }
        if !is_next(segment.sequence, *next) {
            self.held_len += segment.bytes.len();
            let held = self.held.entry(segment.sequence).or_default();
            if held.len() < segment.bytes.len() {
                *held = segment.bytes.to_vec();
            }
            return Ok(self.held_len <= HELD_MAX);
        }
        let mut give = |sequence: u32, bytes: &[u8], next: &mut u32| {
            // What was sent twice is passed over.
            let known = next.wrapping_sub(sequence) as usize;
            let new = bytes.get(known..).unwrap_or_default();
            *next = next.wrapping_add(new.len() as u32);
            take(new)
        };
        give(segment.sequence, segment.bytes, next)?;
        while let Some(sequence) = self
            .held
            .keys()
            .copied()
            .find(|sequence| is_next(*sequence, *next))
        {
            let bytes = self.held.remove(&sequence).unwrap_or_default();
            give(sequence, &bytes, next)?;
        }
        if self.held.is_empty() {
            self.held_len = 0;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(sequence: u32, bytes: &[u8]) -> Segment<'_> {
        let end = ([127, 0, 0, 1].into(), 1);
        Segment {
            from: end,
            to: end,
            sequence,
            is_syn: false,
            is_ack: true,
            is_end: false,
            is_reset: false,
            is_cut: false,
            bytes,
        }
    }

    #[test]
    fn a_way_is_over_once_all_in_front_of_its_end_is_there() {
        let mut got = Vec::new();
        let mut way = Way {
            next: Some(u32::MAX),
            end: Some(5),
            ..Way::default()
        };
        for (sequence, bytes) in [(2, &b"def"[..]), (u32::MAX, b"abc")] {
            assert!(!way.is_over());
            let mut take = |bytes: &[u8]| {
                got.extend_from_slice(bytes);
                Ok(())
            };
            assert!(way.add(&segment(sequence, bytes), &mut take).unwrap());
        }
        assert!(way.is_over());
        assert_eq!(got, b"abcdef");
    }
}
