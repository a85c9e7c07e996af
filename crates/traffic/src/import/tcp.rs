//! Puts the streams of TCP connections together again, each from its first packet on.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use super::talk::Talk;
use super::{ImportError, Importer};

/// Bytes of a direction that may wait for those in front of them. What is still missing then was not
/// captured.
const HELD_MAX: usize = 4 << 20;
/// What a piece that waits costs beside its bytes.
const HELD_COST: usize = 64;
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
    unknown: HashSet<(End, End)>,
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
    /// How many bytes were handed over.
    given: u64,
    /// By how many bytes there are in front of them.
    held: BTreeMap<u64, Vec<u8>>,
    held_len: usize,
    /// Something is missing for good.
    is_lost: bool,
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
            let is_told = self.unknown.contains(&key) || self.unknown.contains(&from_client);
            if !is_told && !segment.bytes.is_empty() && self.unknown.len() < CONNECTIONS_MAX {
                self.unknown.insert(key);
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
        self.end.is_some_and(|end| self.is_lost || behind(end))
    }

    /// Hands over what comes next, as far as it is there. False: something is missing for good.
    fn add(
        &mut self,
        segment: &Segment<'_>,
        mut take: impl FnMut(&[u8]) -> Result<(), ImportError>,
    ) -> Result<bool, ImportError> {
        let next = self.next.get_or_insert(segment.sequence);
        if segment.bytes.is_empty() || self.is_lost {
            return Ok(true);
        }
        let ahead = segment.sequence.wrapping_sub(*next).cast_signed();
        if ahead > 0 {
            let held = self.held.entry(self.given + u64::from(ahead.unsigned_abs()));
            let held = held.or_insert_with(|| {
                self.held_len += HELD_COST;
                Vec::new()
            });
            if held.len() < segment.bytes.len() {
                self.held_len += segment.bytes.len() - held.len();
                *held = segment.bytes.to_vec();
            }
            self.is_lost = self.held_len > HELD_MAX;
            if self.is_lost {
                self.held.clear();
            }
            return Ok(!self.is_lost);
        }
        let before = self.given;
        // What was sent twice is passed over.
        let known = ahead.unsigned_abs() as usize;
        let new = segment.bytes.get(known..).unwrap_or_default();
        self.given += new.len() as u64;
        take(new)?;
        while let Some(first) = self.held.first_entry().filter(|first| *first.key() <= self.given) {
            let (place, bytes) = first.remove_entry();
            self.held_len -= HELD_COST + bytes.len();
            let new = bytes.get((self.given - place) as usize..).unwrap_or_default();
            self.given += new.len() as u64;
            take(new)?;
        }
        *next = next.wrapping_add((self.given - before) as u32);
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

    /// Each counts once, however often it comes, and what waits does not grow without end.
    #[test]
    fn pieces_that_wait_are_counted_once() {
        let mut way = Way {
            next: Some(1),
            ..Way::default()
        };
        let bytes = vec![7; 1000];
        let mut got = 0;
        for _ in 0..2 * HELD_MAX / bytes.len() {
            let is_whole = way.add(&segment(11, &bytes), |bytes| {
                got += bytes.len();
                Ok(())
            });
            assert!(is_whole.unwrap());
        }
        assert_eq!(way.held_len, bytes.len() + HELD_COST);
        let mut take = |bytes: &[u8]| {
            got += bytes.len();
            Ok(())
        };
        assert!(way.add(&segment(1, &bytes[..10]), &mut take).unwrap());
        assert_eq!((got, way.held_len), (1010, 0));
        // Many small ones, backwards, are done in no time, and given up.
        let mut refused = 0;
        for sequence in (2000..200_000_u32).rev().step_by(2) {
            refused += u32::from(!way.add(&segment(sequence, b"x"), |_| Ok(())).unwrap());
        }
        assert!(refused == 1 && way.held.is_empty());
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
