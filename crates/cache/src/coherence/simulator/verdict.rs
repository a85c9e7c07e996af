//! What a strong read waits for: the primary's position, and that it is applied.
//!
//! To use it: [`arrive`](ReadIndex::arrive) when the read arrives, then do what [`verdict`] says, until it is
//! [`Verdict::Serve`] or the read has waited for too long.

use upstream::{Arrival, ReadIndex};

use crate::coherence::{Applied, Position};

/// What a read has to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict<'i> {
    /// Read: all that was acknowledged before it arrived is applied.
    Serve,
    /// Wait until this is applied.
    WaitApplied(&'i Position),
    /// Wait until the probe that is under way ends, then look again.
    WaitProbe,
    /// Nobody asks: [`send`](ReadIndex::send) a probe.
    Send,
}

/// A read is served by a probe that was sent after it arrived, when what the probe said is applied.
pub(super) fn verdict<'i>(
    index: &'i ReadIndex<Position>,
    arrival: Arrival,
    applied: &Applied,
) -> Verdict<'i> {
    match index.answer(arrival) {
        Some(position) if applied.covers(position) => Verdict::Serve,
        Some(position) if applied.may_cover(position) => Verdict::WaitApplied(position),
        // Another source will never get there.
        _ if index.is_asking() => Verdict::WaitProbe,
        _ => Verdict::Send,
    }
}

#[cfg(test)]
mod tests {
    use mysql_wire::gtid::{Flavor, GtidSet};

    use super::*;
    use crate::coherence::{Place, SourceId};
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
            numbered_alone: false,
        }
    }

    #[test]
    fn a_probe_serves_those_who_came_before_it_was_sent() {
        let mut index = ReadIndex::default();
        let first = index.arrive();
        assert_eq!(verdict(&index, first, &applied(1, 9)), Verdict::Send);
        let probe = index.send(false).unwrap();
        assert_eq!(index.send(false), None);
        let second = index.arrive();
        assert_eq!(verdict(&index, second, &applied(1, 9)), Verdict::WaitProbe);
        index.end(probe, Some(at(1, 5)));
        assert_eq!(
            verdict(&index, first, &applied(1, 4)),
            Verdict::WaitApplied(&at(1, 5))
        );
        assert_eq!(verdict(&index, first, &applied(1, 5)), Verdict::Serve);
        assert_eq!(verdict(&index, second, &applied(1, 9)), Verdict::Send);
    }

    #[test]
    fn a_later_probe_serves_earlier_reads_too() {
        let mut index = ReadIndex::default();
        let first = index.arrive();
        let probe = index.send(false).unwrap();
        index.end(probe, None);
        assert_eq!(verdict(&index, first, &applied(1, 9)), Verdict::Send);
        let second = index.arrive();
        let probe = index.send(false).unwrap();
        index.end(probe, Some(at(1, 7)));
        for read in [first, second] {
            assert_eq!(verdict(&index, read, &applied(1, 7)), Verdict::Serve);
        }
    }

    #[test]
    fn another_source_is_asked_anew() {
        let mut index = ReadIndex::default();
        let read = index.arrive();
        let probe = index.send(false).unwrap();
        index.end(probe, Some(at(1, 5)));
        let mut now = applied(2, 900);
        assert_eq!(verdict(&index, read, &now), Verdict::Send);
        now.position = None;
        assert_eq!(verdict(&index, read, &now), Verdict::WaitApplied(&at(1, 5)));
    }
}
