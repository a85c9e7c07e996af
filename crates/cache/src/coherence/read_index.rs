//! Strong reads: the primary's position, asked for once for all reads that wait for it, on whatever worker.
//!
//! To use it: [`arrive`](ReadIndex::arrive) when the read arrives, then do what
//! [`verdict`](ReadIndex::verdict) says, until it is [`Verdict::Serve`] or the read has waited for too long.

use super::applied::Applied;
use super::position::Position;

/// When a read arrived, as against probes: how many had been sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrival(u64);

impl Arrival {
    /// When `sent` probes had been sent. Whoever counts must count a probe before it is sent, and a read must
    /// arrive before the count is read.
    pub fn after(sent: u64) -> Self {
        Self(sent)
    }
}

/// A question for the primary's position that is under way. It serves all who had arrived when it was made.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "tell the index how it ended"]
pub struct Probe {
    serves: Arrival,
}

impl Probe {
    /// The last whom it serves.
    pub fn serves(&self) -> Arrival {
        self.serves
    }
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

/// The state of all workers.
#[derive(Debug, Default)]
pub struct ReadIndex {
    sent: u64,
    /// Whom the probe serves that was sent last, while it is under way.
    under_way: Option<Arrival>,
    /// The last answer, and whom it serves: all up to that arrival.
    known: Option<(Arrival, Position)>,
}

impl ReadIndex {
    pub fn arrive(&self) -> Arrival {
        Arrival(self.sent)
    }

    /// Probes that were sent.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// The right to ask from now on: who arrives after this is not served. `None` while a probe is under way,
    /// unless that takes too long (`overdue`).
    pub fn send(&mut self, overdue: bool) -> Option<Probe> {
        if self.under_way.is_some() && !overdue {
            return None;
        }
        let serves = Arrival(self.sent);
        self.sent += 1;
        self.under_way = Some(serves);
        Some(Probe { serves })
    }

    /// The end of a probe. `None` where there is no answer, or one that does not count: from a server that is
    /// read-only or not the one it was.
    pub fn end(&mut self, probe: Probe, answer: Option<Position>) {
        if self.under_way == Some(probe.serves) {
            self.under_way = None;
        }
        let is_later = self
            .known
            .as_ref()
            .is_none_or(|(served, _)| *served < probe.serves);
        if let Some(position) = answer.filter(|_| is_later) {
            self.known = Some((probe.serves, position));
        }
    }

    /// The last answer, and the last whom it serves.
    pub fn known(&self) -> Option<&(Arrival, Position)> {
        self.known.as_ref()
    }

    /// **Read index rule**: a read is served by a probe that was sent after it arrived, when what the probe
    /// said is applied.
    pub fn verdict(&self, arrival: Arrival, applied: &Applied) -> Verdict<'_> {
        if let Some((serves, position)) = &self.known
            && arrival <= *serves
        {
            if applied.covers(position) {
                return Verdict::Serve;
            }
            // Another source will never get there.
            if applied.may_cover(position) {
                return Verdict::WaitApplied(position);
            }
        }
        if self.under_way.is_some() {
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
            is_numbered: true,
        }
    }

    #[test]
    fn a_probe_serves_those_who_came_before_it_was_sent() {
        let mut index = ReadIndex::default();
        let first = index.arrive();
        assert_eq!(index.verdict(first, &applied(1, 9)), Verdict::Send);
        let probe = index.send(false).unwrap();
        assert_eq!(index.send(false), None);
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
        let probe = index.send(false).unwrap();
        index.end(probe, None);
        assert_eq!(index.verdict(first, &applied(1, 9)), Verdict::Send);
        let second = index.arrive();
        let probe = index.send(false).unwrap();
        index.end(probe, Some(at(1, 7)));
        for read in [first, second] {
            assert_eq!(index.verdict(read, &applied(1, 7)), Verdict::Serve);
        }
    }

    #[test]
    fn another_source_is_asked_anew() {
        let mut index = ReadIndex::default();
        let read = index.arrive();
        let probe = index.send(false).unwrap();
        index.end(probe, Some(at(1, 5)));
        let mut now = applied(2, 900);
        assert_eq!(index.verdict(read, &now), Verdict::Send);
        now.position = None;
        assert_eq!(index.verdict(read, &now), Verdict::WaitApplied(&at(1, 5)));
    }

    #[test]
    fn a_probe_that_takes_too_long_is_overtaken() {
        let mut index = ReadIndex::default();
        let early = index.arrive();
        let slow = index.send(false).unwrap();
        let late = index.arrive();
        let quick = index.send(true).unwrap();
        assert_eq!((slow.serves(), quick.serves()), (early, late));
        index.end(slow, Some(at(1, 5)));
        assert_eq!(index.verdict(late, &applied(1, 9)), Verdict::WaitProbe);
        assert_eq!(index.verdict(early, &applied(1, 9)), Verdict::Serve);
        index.end(quick, Some(at(1, 7)));
        assert_eq!(
            index.verdict(late, &applied(1, 6)),
            Verdict::WaitApplied(&at(1, 7))
        );
        assert_eq!(index.verdict(late, &applied(1, 7)), Verdict::Serve);
    }

    #[test]
    fn what_a_probe_says_that_was_overtaken_serves_nobody_who_came_later() {
        let mut index = ReadIndex::default();
        let slow = index.send(false).unwrap();
        let late = index.arrive();
        let quick = index.send(true).unwrap();
        index.end(quick, Some(at(1, 7)));
        index.end(slow, Some(at(1, 5)));
        assert_eq!(index.known(), Some(&(late, at(1, 7))));
        assert_eq!(index.verdict(index.arrive(), &applied(1, 9)), Verdict::Send);
    }
}
