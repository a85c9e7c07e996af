//! Strong reads: the primary's position, asked for once for all reads of a worker that wait for it.
//!
//! To use it: [`arrive`](ReadIndex::arrive) when the read arrives, then do what [`verdict`](ReadIndex::verdict) says, until it is
//! [`Verdict::Serve`] or the read has waited for too long.

use super::applied::Applied;
use super::position::Position;

/// When a read arrived, as against probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrival(u64);

/// A question for the primary's position that is under way. It serves all who had arrived when it was made.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "tell the index how it ended"]
pub struct Probe {
    serves: Arrival,
}

/// What a read has to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict<'i> {
    /// Read: all that was acknowledged before it arrived is applied.
    Serve,
    /// Wait until this is applied.
    WaitApplied(&'i Position),
    /// Wait until the probe that is under way ends, then look again.
    WaitProbe,
    /// Nobody asks: [`send`](ReadIndex::send) a probe.
    Send,
}

/// The state of one worker.
#[derive(Debug, Default)]
pub struct ReadIndex {
    arrived: u64,
    in_flight: bool,
    /// The last answer, and whom it serves: all up to that arrival.
    known: Option<(Arrival, Position)>,
}

impl ReadIndex {
    pub fn arrive(&mut self) -> Arrival {
        self.arrived += 1;
        Arrival(self.arrived)
    }

    /// The right to ask, right now, before anything else happens on this worker. `None` while a probe is under way.
    pub fn send(&mut self) -> Option<Probe> {
        if self.in_flight {
            return None;
        }
        self.in_flight = true;
        Some(Probe {
            serves: Arrival(self.arrived),
        })
    }

    /// The end of a probe. `None` where there is no answer, or one that does not count: from a server that is read-only or not the
    /// one it was.
    pub fn end(&mut self, probe: Probe, answer: Option<Position>) {
        self.in_flight = false;
        if let Some(position) = answer {
            debug_assert!(
                self.known
                    .as_ref()
                    .is_none_or(|(served, _)| *served <= probe.serves)
            );
            self.known = Some((probe.serves, position));
        }
    }

    /// **Read index rule**: a read is served by a probe that was sent after it arrived, when what the probe said is applied.
    pub fn verdict(&self, arrival: Arrival, applied: &Applied) -> Verdict<'_> {
        if let Some((serves, position)) = &self.known
            && arrival <= *serves
        {
            if applied.covers(position) {
                return Verdict::Serve;
            }
            // Another source will never get there.
            if applied.source().is_none_or(|source| source == position.source) {
                return Verdict::WaitApplied(position);
            }
        }
        if self.in_flight {
            Verdict::WaitProbe
        } else {
            Verdict::Send
        }
    }
}

#[cfg(test)]
mod tests {
    use mysql_wire::gtid::{Flavor, GtidSet};

    use super::super::position::{Place, SourceId};
    use super::*;
    use crate::store::Version;

    fn at(source: u64, offset: u64) -> Position {
        Position {
            source: SourceId(source),
            place: Place::File { file: 1, offset },
        }
    }

    fn applied(source: u64, offset: u64) -> Applied {
        Applied {
            version: Version(0),
            position: Some(at(source, offset)),
            gtids: GtidSet::empty(Flavor::MySql),
        }
    }

    #[test]
    fn a_probe_serves_those_who_came_before_it_was_sent() {
        let mut index = ReadIndex::default();
        let first = index.arrive();
        assert_eq!(index.verdict(first, &applied(1, 9)), Verdict::Send);
        let probe = index.send().unwrap();
        assert_eq!(index.send(), None);
        let second = index.arrive();
        assert_eq!(index.verdict(second, &applied(1, 9)), Verdict::WaitProbe);
        index.end(probe, Some(at(1, 5)));
        assert_eq!(
            index.verdict(first, &applied(1, 4)),
            Verdict::WaitApplied(&at(1, 5))
        );
        assert_eq!(index.verdict(first, &applied(1, 5)), Verdict::Serve);
        assert_eq!(index.verdict(second, &applied(1, 9)), Verdict::Send);
    }

    #[test]
    fn a_later_probe_serves_earlier_reads_too() {
        let mut index = ReadIndex::default();
        let first = index.arrive();
        let probe = index.send().unwrap();
        index.end(probe, None);
        assert_eq!(index.verdict(first, &applied(1, 9)), Verdict::Send);
        let second = index.arrive();
        let probe = index.send().unwrap();
        index.end(probe, Some(at(1, 7)));
        for read in [first, second] {
            assert_eq!(index.verdict(read, &applied(1, 7)), Verdict::Serve);
        }
    }

    #[test]
    fn another_source_is_asked_anew() {
        let mut index = ReadIndex::default();
        let read = index.arrive();
        let probe = index.send().unwrap();
        index.end(probe, Some(at(1, 5)));
        let mut now = applied(2, 900);
        assert_eq!(index.verdict(read, &now), Verdict::Send);
        now.position = None;
        assert_eq!(index.verdict(read, &now), Verdict::WaitApplied(&at(1, 5)));
    }
}
