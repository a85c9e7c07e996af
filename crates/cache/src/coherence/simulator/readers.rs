//! Workers: their probes, reads, questions to the primary, and fills.

use std::sync::Arc;

use mysql_wire::gtid::GtidSet;
use upstream::{Arrival, Probe};

use super::feed::key;
use super::verdict::{Verdict, verdict};
use super::{Level, Mutant, Simulator, T, Violation, WORKERS};
use crate::coherence::{Fill, FillVerdict, Position, SourceId, Visible};
use crate::store::{FillTicket, Found};

#[derive(Default)]
pub(super) struct Worker {
    probe: Option<(Probe, Sent)>,
    pub(super) reads: Vec<Read>,
    /// Who it takes for the primary.
    pub(super) believes: usize,
}

enum Sent {
    Under { to: usize },
    Answered(Option<Position>),
}

pub(super) struct Read {
    pub(super) level: Level,
    pub(super) session: usize,
    pub(super) group: u64,
    pub(super) arrived: u64,
    pub(super) arrival: Arrival,
    /// What the session was told of.
    pub(super) wants: GtidSet,
    pub(super) fetch: Option<Fetch>,
    /// When a request came that stands behind it in the same bytes: it is looked at once this one is
    /// answered.
    pub(super) behind: Option<u64>,
}

/// A question to the primary, step by step.
pub(super) struct Fetch {
    fill: Fill,
    ticket: Option<FillTicket>,
    to: usize,
    visible: Option<Visible>,
    /// What SELECT saw.
    value: Option<Option<u64>>,
}

/// Rows of the primary that are to be kept.
pub(super) struct Pending {
    fill: Fill,
    ticket: FillTicket,
    visible: Visible,
    until: Position,
    group: u64,
    value: Option<u64>,
}

impl Simulator {
    /// A worker does something for its probe, and for some of its reads.
    pub(super) fn advance_worker(&mut self) -> Result<(), Violation> {
        let worker = self.random.below(WORKERS);
        if self.random.below(2) == 0 {
            self.advance_probe(worker);
        }
        for read in (0..self.workers[worker].reads.len()).rev() {
            if self.random.below(2) == 0 {
                let read = self.workers[worker].reads.swap_remove(read);
                self.advance_read(worker, read)?;
            }
        }
        Ok(())
    }

    fn advance_read(&mut self, worker: usize, mut read: Read) -> Result<(), Violation> {
        let ended = if read.fetch.is_some() {
            self.advance_fetch(&mut read)
        } else if self.may_read(&read) {
            self.look(worker, &mut read)?
        } else {
            None
        };
        match ended {
            Some(value) => {
                self.done[read.level as usize] += 1;
                self.truth.check(&read, self.now, value)?;
                if let Some(arrived) = read.behind {
                    self.read_behind(worker, &read, arrived);
                }
                Ok(())
            }
            None => {
                self.workers[worker].reads.push(read);
                Ok(())
            }
        }
    }

    /// The next request of a connection whose first waited before it was read: it may have come after the
    /// probe was sent that served the first.
    fn read_behind(&mut self, worker: usize, first: &Read, arrived: u64) {
        let arrival = match self.is(Mutant::FirstIsWaitedForOnly) {
            true => first.arrival,
            false => self.index.arrive(),
        };
        self.workers[worker].reads.push(Read {
            level: first.level,
            session: first.session,
            group: first.group,
            arrived,
            arrival,
            wants: first.wants.clone(),
            fetch: None,
            behind: None,
        });
    }

    fn advance_probe(&mut self, worker: usize) {
        let unchecked = self.is(Mutant::FencedPrimaryAnswers);
        match self.workers[worker].probe.take() {
            Some((sent, Sent::Under { to })) => {
                let server = self.truth.get(to);
                let counts = !server.is_fenced() || unchecked;
                let answer = counts.then(|| server.position(server.log.len()));
                self.workers[worker].probe = Some((sent, Sent::Answered(answer)));
            }
            // It may be slow, so that another one overtakes it.
            Some(slow) if self.random.below(2) == 0 => self.workers[worker].probe = Some(slow),
            Some((sent, Sent::Answered(answer))) => self.end_probe(worker, sent, answer),
            None => self.send_probe(worker),
        }
    }

    fn end_probe(&mut self, worker: usize, mut sent: Probe, answer: Option<Position>) {
        let answer = answer.map(|position| self.of_source(position));
        if answer.is_none() {
            self.workers[worker].believes = self.truth.last();
        }
        if self.is(Mutant::AnswersMixed)
            && let Some((other, _)) = self.workers.iter_mut().find_map(|worker| worker.probe.as_mut())
        {
            std::mem::swap(other, &mut sent);
        }
        if answer.is_some() && self.is(Mutant::ProbeServesLateReads) {
            self.index.end(sent, None);
            if let Some(sent) = self.index.send(true) {
                self.index.end(sent, answer);
            }
        } else {
            self.index.end(sent, answer);
        }
    }

    /// Also where another worker's probe is under way that takes too long.
    fn send_probe(&mut self, worker: usize) {
        let overdue = self.random.below(2) == 0;
        let wants = [Some(Verdict::Send), overdue.then_some(Verdict::WaitProbe)];
        let Worker { reads, believes, .. } = &self.workers[worker];
        let wanted = reads.iter().any(|read| {
            let verdict = verdict(&self.index, read.arrival, &self.applied);
            read.level == Level::Strong && wants.contains(&Some(verdict))
        });
        let to = *believes;
        if wanted && let Some(sent) = self.index.send(overdue) {
            self.workers[worker].probe = Some((sent, Sent::Under { to }));
        }
    }

    fn of_source(&self, position: Position) -> Position {
        let source = self.applied.position.as_ref().map(|position| position.source);
        match (self.is(Mutant::SourcesMixed), source) {
            (true, Some(source)) => Position { source, ..position },
            _ => position,
        }
    }

    fn may_read(&self, read: &Read) -> bool {
        match read.level {
            Level::Strong => match verdict(&self.index, read.arrival, &self.applied) {
                Verdict::Serve => true,
                Verdict::WaitApplied(_) => self.is(Mutant::NoWaitForApplied),
                Verdict::WaitProbe | Verdict::Send => false,
            },
            Level::Session => self.applied.has(&read.wants) || self.is(Mutant::SessionDoesNotWait),
            Level::Eventual => true,
        }
    }

    /// Reads both keys from the store, or begins to ask the primary.
    fn look(&mut self, worker: usize, read: &mut Read) -> Result<Option<Option<u64>>, Violation> {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        let found = self.store.snapshot(|view| {
            [
                view.get(T, &key(read.group, false), &mut first),
                view.get(T, &key(read.group, true), &mut second),
            ]
        });
        let Ok(found) = found else {
            return Ok(None);
        };
        if found.contains(&Found::Missing) {
            read.fetch = Some(self.begin_fetch(worker));
            return Ok(None);
        }
        let value = |found, row: &[u8]| match found {
            Found::Row => Some(Some(u64::from_le_bytes(row.try_into().unwrap()))),
            Found::Absent => Some(None),
            _ => None,
        };
        let (first, second) = (value(found[0], &first), value(found[1], &second));
        if first != second {
            return Err(format!(
                "half a transaction of group {}: {first:?} {second:?}",
                read.group
            ));
        }
        Ok(first)
    }

    fn begin_fetch(&mut self, worker: usize) -> Fetch {
        let fill = Fill::begin(Arc::clone(&self.applied));
        let newer = self.is(Mutant::TicketNewerThanApplied);
        let version = if newer {
            self.store.version()
        } else {
            fill.begun().version
        };
        let ticket = self.store.fill_begin(T, version);
        Fetch {
            fill,
            ticket,
            to: self.workers[worker].believes,
            visible: None,
            value: None,
        }
    }

    /// What the read ends with, if the primary's answer may be shown.
    fn advance_fetch(&mut self, read: &mut Read) -> Option<Option<u64>> {
        let mut fetch = read.fetch.take()?;
        let server = self.truth.get(fetch.to);
        if server.is_fenced() {
            let last = self.truth.last();
            self.workers.iter_mut().for_each(|worker| worker.believes = last);
            return None;
        }
        let Some(visible) = fetch.visible.take() else {
            let visible = Visible::Gtids(server.source(), server.sets[server.visible].clone());
            read.fetch = Some(Fetch {
                visible: Some(visible),
                ..fetch
            });
            return None;
        };
        let Some(value) = fetch.value else {
            let value = server.value(read.group, server.visible);
            read.fetch = Some(Fetch {
                visible: Some(visible),
                value: Some(value),
                ..fetch
            });
            return None;
        };
        let shown = fetch.fill.may_show(&visible) || self.is(Mutant::OldAnswerShown);
        if !shown && !self.is(Mutant::FillOfOldAnswer) {
            return None;
        }
        let ticket = if self.is(Mutant::TicketAfterSelect) {
            self.store.fill_begin(T, self.store.version())
        } else {
            fetch.ticket
        };
        if let Some(ticket) = ticket {
            let until = server.position(server.log.len());
            let (fill, group) = (fetch.fill, read.group);
            self.pending.push(Pending {
                fill,
                ticket,
                visible,
                until,
                group,
                value,
            });
        }
        shown.then_some(value)
    }

    pub(super) fn try_fills(&mut self) {
        for pending in std::mem::take(&mut self.pending) {
            self.try_fill(pending);
        }
    }

    fn try_fill(&mut self, pending: Pending) {
        let everything = Visible::Everything(match &pending.visible {
            Visible::Gtids(source, _) => *source,
            _ => SourceId(0),
        });
        let visible = if self.is(Mutant::FillOfOldAnswer) {
            &everything
        } else {
            &pending.visible
        };
        let until = match &pending.fill.begun().position {
            Some(begun) if self.is(Mutant::FillOfNewAnswer) => begun,
            _ => &pending.until,
        };
        match pending.fill.verdict(visible, until, &self.applied) {
            FillVerdict::Wait => self.pending.push(pending),
            FillVerdict::Drop => {}
            FillVerdict::Store => {
                let row = pending.value.map(u64::to_le_bytes);
                for second in [false, true] {
                    let row = row.as_ref().map(|row| &row[..]);
                    let filled = self
                        .writer
                        .fill(&pending.ticket, &key(pending.group, second), row);
                    self.kept += u64::from(filled);
                }
            }
        }
    }
}
