//! Probes of all workers: whoever needs one first asks for all. Others hear what it was told.
//!
//! What is shared is the rule, a count, and the last answer. Each worker keeps its own connection to the
//! primary, so one that hangs holds up the others for a moment only ([`OVERDUE`]).

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::coherence::{Arrival, Position, Probe, ReadIndex, SourceId};

/// Time after which another worker asks, too. Between servers that are far from each other each worker asks
/// for itself.
const OVERDUE: Duration = Duration::from_millis(10);

/// See the module.
#[derive(Default)]
pub(crate) struct Probes {
    /// That of `rule`, for reads that arrive.
    sent: AtomicU64,
    asked: Mutex<Asked>,
    ended: watch::Sender<Ended>,
    /// Whom the feed follows; 0 where that is nobody yet.
    followed: AtomicU64,
    elsewhere: Notify,
}

#[derive(Default)]
struct Asked {
    rule: ReadIndex,
    /// When the last probe was sent.
    since: Option<Instant>,
}

/// How probes have ended.
#[derive(Clone, Default)]
pub(crate) struct Ended {
    /// The last answer, and the last whom it serves.
    pub(crate) known: Option<(Arrival, Position)>,
    /// Why the last probe had no answer.
    pub(crate) failure: Option<Arc<str>>,
}

impl Probes {
    /// A read arrives.
    pub(crate) fn arrive(&self) -> Arrival {
        Arrival::after(self.sent.load(Ordering::SeqCst))
    }

    /// The right to send a probe, right now; or until when another one is waited for.
    pub(crate) fn send(&self, now: Instant) -> Result<Probe, Instant> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let overdue = asked.since.map(|since| since + OVERDUE);
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

    /// The feed follows this one from now on.
    pub(crate) fn follow(&self, source: SourceId) {
        self.followed.store(source.0, Ordering::Relaxed);
    }

    /// It follows another one.
    pub(crate) fn is_elsewhere(&self, source: SourceId) -> bool {
        let followed = self.followed.load(Ordering::Relaxed);
        followed != 0 && followed != source.0
    }

    /// Waits for an answer of another one than the feed follows.
    pub(crate) async fn elsewhere(&self) {
        self.elsewhere.notified().await;
    }

    /// The end of a probe, for all to hear.
    pub(crate) fn end(&self, probe: Probe, answer: &Result<Position, Arc<str>>) {
        if answer
            .as_ref()
            .is_ok_and(|position| self.is_elsewhere(position.source))
        {
            self.elsewhere.notify_one();
        }
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.rule.end(probe, answer.as_ref().ok().cloned());
        let ended = Ended {
            known: asked.rule.known().cloned(),
            failure: answer.as_ref().err().cloned(),
        };
        // In the order of the ends.
        self.ended.send_replace(ended);
    }

    /// How probes end, from now on.
    pub(crate) fn ended(&self) -> watch::Receiver<Ended> {
        self.ended.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coherence::Place;

    fn at(offset: u64) -> Position {
        Position {
            source: SourceId(1),
            place: Place::File { file: 1, offset },
        }
    }

    #[test]
    fn one_asks_for_all() {
        let (probes, now) = (Probes::default(), Instant::now());
        let mut others = probes.ended();
        let early = probes.arrive();
        let probe = probes.send(now).unwrap();
        let late = probes.arrive();
        assert_eq!(probes.send(now), Err(now + OVERDUE), "one at a time");
        probes.end(probe, &Ok(at(5)));
        assert!(others.has_changed().unwrap());
        assert_eq!(others.borrow_and_update().known, Some((early, at(5))));
        assert!(late > early);
        assert!(probes.send(now).is_ok(), "for who came later");
    }

    #[test]
    fn a_worker_that_hangs_is_not_waited_for() {
        let (probes, now) = (Probes::default(), Instant::now());
        let slow = probes.send(now).unwrap();
        let quick = probes.send(now + OVERDUE).unwrap();
        assert!(probes.send(now + OVERDUE).is_err());
        probes.end(quick, &Ok(at(7)));
        let known = probes.ended().borrow().known.clone();
        probes.end(slow, &Err("gone".into()));
        assert_eq!(probes.ended().borrow().known, known);
    }
}
