//! Waits for freshness that are known to be in vain: a replica that was waited for and did not come that far
//! lacks it for the next read, too. Until it is seen to have come there one read at a time waits for it, and
//! all others go to the primary at once.
//!
//! The monitor says what a replica has applied, as it does for reads that need not wait. Each worker keeps
//! one position a server.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use mysql_wire::gtid::GtidSet;
use upstream::{Server, ServerId};

/// Servers that are kept; of more the oldest is forgotten.
const KEPT_MAX: usize = 64;

/// How long a replica is believed to be behind where nothing is heard of it: a position may be one that no
/// server ever has.
const BELIEVED: Duration = Duration::from_secs(5);

/// The replicas of a cluster that one worker knows to be behind.
#[derive(Default)]
pub(crate) struct VainWaits(RefCell<Vec<Behind>>);

struct Behind {
    server: ServerId,
    /// The position that the server lacked after the wait; `None` while a read tries again.
    lacks: Option<GtidSet>,
    since: Instant,
}

impl VainWaits {
    /// Whether a wait for this server is known to be in vain. A read that hears that it is not may wait.
    pub(crate) fn has(&self, server: &Server) -> bool {
        self.judge(server.id(), Instant::now(), |position| {
            server.applied().is_some_and(|applied| applied.covers(position))
        })
    }

    fn judge(&self, server: ServerId, now: Instant, has: impl FnOnce(&GtidSet) -> bool) -> bool {
        let mut all = self.0.borrow_mut();
        let Some(behind) = all.iter_mut().find(|behind| behind.server == server) else {
            return false;
        };
        let is_over = now.saturating_duration_since(behind.since) >= BELIEVED;
        let is_there = behind.lacks.as_ref().is_some_and(has);
        if is_over || is_there {
            (behind.lacks, behind.since) = (None, now);
        }
        !(is_over || is_there)
    }

    /// Notes the end of a wait for this server.
    pub(crate) fn note(&self, server: ServerId, position: &GtidSet, was_in_vain: bool) {
        let mut all = self.0.borrow_mut();
        all.retain(|behind| behind.server != server);
        if was_in_vain {
            if all.len() >= KEPT_MAX {
                all.remove(0);
            }
            all.push(Behind {
                server,
                lacks: Some(position.clone()),
                since: Instant::now(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use mysql_wire::gtid::Flavor;

    use super::*;

    #[test]
    fn one_read_at_a_time_waits_for_a_replica_that_is_behind() {
        let position = GtidSet::parse(Flavor::MariaDb, b"0-1-5").unwrap();
        let (waits, server, now) = (VainWaits::default(), ServerId(1), Instant::now());
        let is_vain = |after, has| waits.judge(server, now + Duration::from_secs(after), |_| has);
        assert!(!is_vain(0, false), "nothing is known of it");
        waits.note(server, &position, true);
        assert!(is_vain(0, false) && is_vain(1, false));
        assert!(!waits.judge(ServerId(2), now, |_| false), "another one");
        assert!(!is_vain(2, true), "it has come there");
        assert!(is_vain(2, true), "somebody waits for it");
        waits.note(server, &position, true);
        assert!(is_vain(0, false));
        assert!(!is_vain(6, false), "for so long nothing is believed");
        waits.note(server, &position, false);
        assert!(!is_vain(0, false) && !is_vain(0, false), "it keeps up");
    }

    #[test]
    fn few_are_kept() {
        let position = GtidSet::parse(Flavor::MariaDb, b"0-1-5").unwrap();
        let waits = VainWaits::default();
        for server in 0..200 {
            waits.note(ServerId(server), &position, true);
        }
        assert_eq!(waits.0.borrow().len(), KEPT_MAX);
    }
}
