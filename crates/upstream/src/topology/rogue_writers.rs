//! Servers that take writes beside the primary, and when that is sure enough to be told: each is told once.

use std::time::Instant;

use crate::server::ServerId;

#[derive(Debug, Default)]
pub(super) struct RogueWriters {
    known: Vec<Known>,
    /// To be told.
    news: Vec<ServerId>,
}

#[derive(Debug)]
struct Known {
    server: ServerId,
    since: Instant,
    told: bool,
}

impl RogueWriters {
    /// These are so now. `last_look` says when the last look began by which one of them, and the primary,
    /// were still so.
    pub(super) fn note(
        &mut self,
        servers: &[ServerId],
        now: Instant,
        last_look: impl Fn(ServerId) -> Option<Instant>,
    ) {
        self.known.retain(|known| servers.contains(&known.server));
        self.news.retain(|server| servers.contains(server));
        for server in servers {
            if !self.known.iter().any(|known| known.server == *server) {
                self.known.push(Known {
                    server: *server,
                    since: now,
                    told: false,
                });
            }
        }
        for known in self.known.iter_mut().filter(|known| !known.told) {
            if last_look(known.server).is_some_and(|at| at >= known.since) {
                known.told = true;
                self.news.push(known.server);
            }
        }
    }

    /// Those that have not been told yet.
    pub(super) fn take(&mut self) -> Vec<ServerId> {
        std::mem::take(&mut self.news)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_is_told_once_when_it_is_sure() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let [a, b] = [ServerId(1), ServerId(2)];
        let mut rogue_writers = RogueWriters::default();
        let mut told = |servers: &[ServerId], now, looked: Option<Instant>| {
            rogue_writers.note(servers, now, |_| looked);
            rogue_writers.take()
        };
        assert_eq!(told(&[a], at(1), Some(at(0))), [], "one may replace the other");
        assert_eq!(told(&[a], at(2), None), []);
        assert_eq!(told(&[a], at(3), Some(at(2))), [a]);
        assert_eq!(told(&[a, b], at(4), Some(at(3))), []);
        assert_eq!(told(&[a, b], at(5), Some(at(4))), [b]);
        assert_eq!(told(&[b], at(6), Some(at(5))), []);
        assert_eq!(told(&[a, b], at(7), Some(at(6))), [], "it is so again");
        assert_eq!(told(&[a, b], at(8), Some(at(7))), [a]);
    }
}
