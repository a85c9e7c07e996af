//! The read index: the primary's position, asked for once for all reads that wait for it, on whatever worker.
//!
//! A strong read must see every write that was acknowledged before it began. So it takes a position that the
//! primary was asked for after that moment: not one that is on its way already, but the next.
//!
//! To use [`Probes`]: [`arrive`](Probes::arrive) when the read arrives. It is served by what an
//! [`Ended`] knows for it ([`Ended::answer`]); as long as there is none, whoever gets the right to
//! ([`send`](Probes::send)) asks for all, and the others wait until it [`ended`](Probes::ended).

mod rule;

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mysql_wire::gtid::GtidSet;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::lock::lock;

pub use rule::{Arrival, Probe, ReadIndex};

/// Probes of all workers: whoever needs one first asks for all. Others hear what it was told.
///
/// What is shared is the rule, a count, and the last answer. Each asks over a connection of its own, so one
/// that hangs holds up the others only until it is overdue.
#[derive(Debug)]
pub struct Probes<P> {
    /// That of `rule`, for reads that arrive.
    sent: AtomicU64,
    /// Time after which another one asks, too.
    overdue: Duration,
    asked: Mutex<Asked<P>>,
    ended: watch::Sender<Ended<P>>,
}

#[derive(Debug)]
struct Asked<P> {
    rule: ReadIndex<P>,
    /// When the last probe was sent.
    since: Option<Instant>,
}

/// How probes have ended.
#[derive(Clone, Debug)]
pub struct Ended<P> {
    /// The last answer, and the last whom it serves.
    pub known: Option<(Arrival, P)>,
    /// Why the last probe had no answer.
    pub failure: Option<Arc<str>>,
}

impl<P> Ended<P> {
    /// The answer that serves a read which arrived then.
    #[must_use]
    pub fn answer(&self, arrival: Arrival) -> Option<&P> {
        rule::served_by(self.known.as_ref(), arrival)
    }
}

impl<P: Clone> Probes<P> {
    #[must_use]
    pub fn new(overdue: Duration) -> Self {
        Self {
            sent: AtomicU64::new(0),
            overdue,
            asked: Mutex::new(Asked {
                rule: ReadIndex::default(),
                since: None,
            }),
            ended: watch::Sender::new(Ended {
                known: None,
                failure: None,
            }),
        }
    }

    /// A read arrives.
    pub fn arrive(&self) -> Arrival {
        Arrival::after(self.sent.load(Ordering::SeqCst))
    }

    /// The right to send a probe, right now.
    ///
    /// # Errors
    /// One is under way: until when it is waited for.
    pub fn send(&self, now: Instant) -> Result<Probe, Instant> {
        let mut asked = lock(&self.asked);
        let overdue = asked.since.map(|since| since + self.overdue);
        let is_overdue = overdue.is_none_or(|overdue| overdue <= now);
        match (asked.rule.send(is_overdue), overdue) {
            (Some(probe), _) => {
                asked.since = Some(now);
                self.sent.store(asked.rule.sent(), Ordering::SeqCst);
                // Nobody who reads the old count arrives after this.
                fence(Ordering::SeqCst);
                Ok(probe)
            }
            (None, overdue) => Err(overdue.unwrap_or(now)),
        }
    }

    /// The end of a probe, for all to hear.
    pub fn end(&self, probe: Probe, answer: &Result<P, Arc<str>>) {
        let mut asked = lock(&self.asked);
        asked.rule.end(probe, answer.as_ref().ok().cloned());
        let ended = Ended {
            known: asked.rule.known().cloned(),
            failure: answer.as_ref().err().cloned(),
        };
        // In the order of the ends.
        self.ended.send_replace(ended);
    }

    /// How probes end, from now on.
    #[must_use]
    pub fn ended(&self) -> watch::Receiver<Ended<P>> {
        self.ended.subscribe()
    }
}

/// What comes of asking the primary where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrimaryPosition {
    /// It has all of these.
    At(GtidSet),
    /// It is the primary, and has no GTIDs.
    WithoutGtids,
    /// Whoever was asked is not the primary any more, or cannot say.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    const OVERDUE: Duration = Duration::from_millis(10);

    #[test]
    fn one_asks_for_all() {
        let (probes, now) = (Probes::new(OVERDUE), Instant::now());
        let mut others = probes.ended();
        let early = probes.arrive();
        let probe = probes.send(now).unwrap();
        let late = probes.arrive();
        assert_eq!(probes.send(now), Err(now + OVERDUE), "one at a time");
        probes.end(probe, &Ok(5));
        assert!(others.has_changed().unwrap());
        let ended = others.borrow_and_update();
        assert_eq!((ended.answer(early), ended.answer(late)), (Some(&5), None));
        assert!(probes.send(now).is_ok(), "for who came later");
    }

    #[test]
    fn a_worker_that_hangs_is_not_waited_for() {
        let (probes, now) = (Probes::new(OVERDUE), Instant::now());
        let slow = probes.send(now).unwrap();
        let quick = probes.send(now + OVERDUE).unwrap();
        assert!(probes.send(now + OVERDUE).is_err());
        probes.end(quick, &Ok(7));
        let known = probes.ended().borrow().known;
        probes.end(slow, &Err("gone".into()));
        assert_eq!(probes.ended().borrow().known, known);
    }
}
