//! The rule: which question to the primary serves which read. It has no clock, no sockets and no tasks, so
//! that simulators can drive it.

/// When a read arrived, as against probes: how many had been sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrival(u64);

impl Arrival {
    /// When `sent` probes had been sent. Whoever counts must count a probe before it is sent, and a read must
    /// arrive before the count is read.
    #[must_use]
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
    #[must_use]
    pub fn serves(&self) -> Arrival {
        self.serves
    }
}

/// The state of all workers. `P` is what the primary answers.
#[derive(Debug)]
pub struct ReadIndex<P> {
    sent: u64,
    /// Whom the probe serves that was sent last, while it is under way.
    under_way: Option<Arrival>,
    /// The last answer, and whom it serves: all up to that arrival.
    known: Option<(Arrival, P)>,
}

impl<P> Default for ReadIndex<P> {
    fn default() -> Self {
        Self {
            sent: 0,
            under_way: None,
            known: None,
        }
    }
}

impl<P> ReadIndex<P> {
    /// A read arrives.
    #[must_use]
    pub fn arrive(&self) -> Arrival {
        Arrival(self.sent)
    }

    #[must_use]
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
    pub fn end(&mut self, probe: Probe, answer: Option<P>) {
        if self.under_way == Some(probe.serves) {
            self.under_way = None;
        }
        let is_later = self
            .known
            .as_ref()
            .is_none_or(|(served, _)| *served < probe.serves);
        if let Some(answer) = answer.filter(|_| is_later) {
            self.known = Some((probe.serves, answer));
        }
    }

    /// The last answer, and the last whom it serves.
    #[must_use]
    pub fn known(&self) -> Option<&(Arrival, P)> {
        self.known.as_ref()
    }
    #[must_use]
    pub fn is_asking(&self) -> bool {
        self.under_way.is_some()
    }

    /// **Read index rule**: a read is served by a probe that was sent after it arrived. What that was told,
    /// if there was one.
    #[must_use]
    pub fn answer(&self, arrival: Arrival) -> Option<&P> {
        served_by(self.known.as_ref(), arrival)
    }
}

/// `known`: the last answer, and the last whom it serves.
pub(super) fn served_by<P>(known: Option<&(Arrival, P)>, arrival: Arrival) -> Option<&P> {
    let (serves, answer) = known?;
    (arrival <= *serves).then_some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_serves_those_who_came_before_it_was_sent() {
        let mut index = ReadIndex::default();
        let first = index.arrive();
        assert_eq!(index.answer(first), None);
        let probe = index.send(false).unwrap();
        assert_eq!(index.send(false), None, "one at a time");
        let second = index.arrive();
        index.end(probe, Some(5));
        assert_eq!((index.answer(first), index.answer(second)), (Some(&5), None));
    }

    #[test]
    fn a_later_probe_serves_earlier_reads_too() {
        let mut index = ReadIndex::default();
        let first = index.arrive();
        let probe = index.send(false).unwrap();
        index.end(probe, None);
        assert_eq!((index.answer(first), index.is_asking()), (None, false));
        let second = index.arrive();
        let probe = index.send(false).unwrap();
        index.end(probe, Some(7));
        assert_eq!((index.answer(first), index.answer(second)), (Some(&7), Some(&7)));
    }

    #[test]
    fn a_probe_that_takes_too_long_is_overtaken() {
        let mut index = ReadIndex::default();
        let early = index.arrive();
        let slow = index.send(false).unwrap();
        let late = index.arrive();
        let quick = index.send(true).unwrap();
        assert_eq!((slow.serves(), quick.serves()), (early, late));
        index.end(slow, Some(5));
        assert!(index.is_asking());
        assert_eq!((index.answer(early), index.answer(late)), (Some(&5), None));
        index.end(quick, Some(7));
        assert_eq!(index.answer(late), Some(&7));
    }

    #[test]
    fn what_a_probe_says_that_was_overtaken_serves_nobody_who_came_later() {
        let mut index = ReadIndex::default();
        let slow = index.send(false).unwrap();
        let late = index.arrive();
        let quick = index.send(true).unwrap();
        index.end(quick, Some(7));
        index.end(slow, Some(5));
        assert_eq!(index.known(), Some(&(late, 7)));
        assert_eq!(index.answer(index.arrive()), None);
    }
}
