//! The feed: copies, follows the log, loses its connection, turns to another primary.

use std::sync::Arc;

use mysql_wire::gtid::{Flavor, GtidSet};

use super::servers::Change;
use super::{GROUPS, Mutant, Simulator, T};
use crate::coherence::{Applied, may_stay};
use crate::store::Mode;

pub(super) struct Feed {
    /// Whose log.
    timeline: usize,
    /// How many transactions of the log are applied.
    at: usize,
    gtids: GtidSet,
    stage: Stage,
    /// Served from there on.
    serve_at: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// So many keys are copied.
    Copying(u64),
    Between,
    /// The first key of a transaction is there.
    Half,
    /// The other, too.
    Whole,
    Committed,
}

impl Feed {
    pub(super) fn new() -> Feed {
        Feed {
            timeline: 0,
            at: 0,
            gtids: GtidSet::empty(Flavor::MySql),
            stage: Stage::Between,
            serve_at: None,
        }
    }
}

pub(super) fn key(group: u64, second: bool) -> [u8; 2] {
    [group as u8, second.into()]
}

impl Simulator {
    /// Drops all rows, and begins to copy them from the primary.
    pub(super) fn begin_copy(&mut self) {
        self.writer.rollback();
        self.writer.open(T, self.mode);
        self.feed.timeline = self.truth.last();
        let from_end = self.is(Mutant::CopyFromEndOfLog);
        let server = self.primary();
        let start = if from_end {
            server.log.len()
        } else {
            server.visible
        };
        self.feed.gtids = self.truth.get(self.feed.timeline).sets[start].clone();
        self.feed.at = start;
        self.feed.serve_at = None;
        self.feed.stage = Stage::Copying(0);
        self.publish(None);
    }

    /// The row of one key, and at last what comes after a copy. A bounded mapping copies nothing.
    fn copy(&mut self, keys: u64) {
        let server = self.truth.get(self.feed.timeline);
        let (group, second) = (keys / 2, keys % 2 == 1);
        if self.mode == Mode::Whole && group < GROUPS {
            self.writer.begin();
            if let Some(value) = server.value(group, server.visible) {
                self.writer
                    .put(T, &key(group, second), &value.to_le_bytes())
                    .unwrap();
            }
            self.writer.commit();
            self.feed.stage = Stage::Copying(keys + 1);
            return;
        }
        let at_once = self.mode == Mode::Bounded || self.is(Mutant::CopyServedAtOnce);
        self.feed.serve_at = Some(if at_once { self.feed.at } else { server.log.len() });
        self.feed.stage = Stage::Between;
        self.publish(Some(self.feed.at));
    }

    /// What is applied, as far as the feed has followed; `None` while no position of its source is known.
    fn publish(&mut self, at: Option<usize>) {
        let server = self.truth.get(self.feed.timeline);
        let position = at.map(|at| server.position(at));
        let gtids = at.map_or(&self.feed.gtids, |at| &server.sets[at]).clone();
        self.applied = Arc::new(Applied {
            version: self.store.version(),
            position,
            gtids,
            is_numbered: true,
            numbered_alone: false,
        });
        if at.is_some()
            && self
                .feed
                .serve_at
                .is_some_and(|serve_at| self.feed.at >= serve_at)
        {
            self.feed.serve_at = None;
            self.writer.serve(T, true);
        }
    }

    /// The next thing that comes of the stream, or happens to it.
    pub(super) fn deliver(&mut self) {
        let server = self.truth.get(self.feed.timeline);
        match self.feed.stage {
            Stage::Copying(keys) => self.copy(keys),
            Stage::Between if self.feed.at < server.log.len() => self.apply(false),
            Stage::Between => {}
            Stage::Half => self.apply(true),
            Stage::Whole => {
                if self.is(Mutant::PublishedBeforeCommit) && self.random.below(2) == 0 {
                    self.publish(Some(self.feed.at + 1));
                } else {
                    self.writer.commit();
                    self.feed.stage = Stage::Committed;
                }
            }
            Stage::Committed => {
                self.feed.at += 1;
                self.feed.gtids = server.sets[self.feed.at].clone();
                self.feed.stage = Stage::Between;
                self.publish(Some(self.feed.at));
            }
        }
    }

    fn apply(&mut self, second: bool) {
        let change = self.truth.get(self.feed.timeline).log[self.feed.at].change;
        let Change::Set { group, value } = change else {
            if !self.is(Mutant::TruncateMissed) {
                self.writer.commit();
                self.writer.open(T, self.mode);
                self.writer.serve(T, self.feed.serve_at.is_none());
            }
            self.feed.stage = Stage::Committed;
            return;
        };
        if !second {
            self.writer.begin();
        }
        let changed = match value {
            Some(value) => self.writer.put(T, &key(group, second), &value.to_le_bytes()),
            None => self.writer.remove(T, &key(group, second)),
        };
        changed.unwrap();
        if !second && self.is(Mutant::HalfCommitted) {
            self.writer.commit();
        }
        self.feed.stage = if second { Stage::Whole } else { Stage::Half };
    }

    /// An event that changes nothing: the position of the source is known.
    pub(super) fn heartbeat(&mut self) {
        if self.feed.stage == Stage::Between {
            self.publish(Some(self.feed.at));
        }
    }

    /// The stream ends, and begins again behind the last transaction.
    pub(super) fn cut(&mut self) {
        if matches!(self.feed.stage, Stage::Half | Stage::Whole) {
            if self.is(Mutant::CutCommits) {
                self.writer.commit();
            } else {
                self.writer.rollback();
            }
            self.feed.stage = Stage::Between;
        }
    }

    /// The feed finds out that there is another primary.
    pub(super) fn turn_to_primary(&mut self) {
        let last = self.truth.last();
        if self.feed.timeline == last {
            return;
        }
        if self.feed.stage == Stage::Committed {
            self.deliver();
        }
        let applied = Applied {
            gtids: self.feed.gtids.clone(),
            ..(*self.applied).clone()
        };
        let server = self.truth.get(last);
        let has = &server.sets[server.visible];
        let may_stay = may_stay(&applied, server.source(), has);
        let copying = matches!(self.feed.stage, Stage::Copying(_));
        let lost_tail_kept = self.is(Mutant::LostTailKept) && !copying;
        // A copy that was not complete is of no use anywhere else.
        let complete = !copying && self.feed.serve_at.is_none();
        let stays = lost_tail_kept || may_stay && complete;
        if !stays {
            return self.begin_copy();
        }
        let sets = &server.sets;
        self.feed.at = (0..sets.len())
            .rev()
            .find(|&at| self.feed.gtids.covers(&sets[at]))
            .unwrap_or(0);
        self.writer.rollback();
        self.feed.timeline = last;
        self.feed.stage = Stage::Between;
        self.publish(None);
    }
}
