//! The truth: what each primary had in its log, and what a read may have seen of it.

use mysql_wire::gtid::{Flavor, GtidSet};

use super::readers::Read;
use super::{Level, Violation};
use crate::coherence::{Place, Position, SourceId};

#[derive(Clone)]
pub(super) struct Transaction {
    pub(super) change: Change,
    session: usize,
    gtid: GtidSet,
    acknowledged: Option<u64>,
}

#[derive(Clone, Copy)]
pub(super) enum Change {
    /// Both keys of the group have this value, or are gone.
    Set {
        group: u64,
        value: Option<u64>,
    },
    Truncate,
}

/// A server while it is the primary.
pub(super) struct Server {
    number: usize,
    pub(super) log: Vec<Transaction>,
    /// The transactions of each prefix of the log.
    pub(super) sets: Vec<GtidSet>,
    /// How many of the log SELECT sees.
    pub(super) visible: usize,
    acknowledged: usize,
    /// How many it had when it became the primary.
    base: usize,
    /// When it was the primary.
    since: u64,
    until: u64,
    /// What strong reads have shown: when they ended, and the shortest log that fits.
    shown: Vec<(u64, usize)>,
}

impl Server {
    pub(super) fn is_fenced(&self) -> bool {
        self.until != u64::MAX
    }

    pub(super) fn source(&self) -> SourceId {
        SourceId(self.number as u64)
    }

    /// The place behind so many transactions.
    pub(super) fn position(&self, offset: usize) -> Position {
        let place = Place::File {
            file: 1,
            offset: offset as u64,
        };
        Position {
            source: self.source(),
            place,
        }
    }

    pub(super) fn write(&mut self, group: u64, session: usize, kind: usize) {
        let number = self.log.len() as u64 + 1;
        let change = match kind {
            0 => Change::Truncate,
            1..8 => Change::Set { group, value: None },
            _ => Change::Set {
                group,
                value: Some(number * 100 + self.number as u64),
            },
        };
        let text = format!("00000000-0000-0000-0000-{:012}:{number}", self.number);
        let gtid = GtidSet::parse(Flavor::MySql, text.as_bytes()).unwrap();
        let mut set = self.sets[self.log.len()].clone();
        set.merge(&gtid).unwrap();
        self.sets.push(set);
        self.log.push(Transaction {
            change,
            session,
            gtid,
            acknowledged: None,
        });
    }

    /// The next transaction is visible to SELECT.
    pub(super) fn show(&mut self) {
        self.visible = (self.visible + 1).min(self.log.len());
    }

    pub(super) fn acknowledge(&mut self, now: u64) -> Option<(usize, GtidSet)> {
        if self.acknowledged == self.visible {
            return None;
        }
        let transaction = &mut self.log[self.acknowledged];
        self.acknowledged += 1;
        transaction.acknowledged = Some(now);
        Some((transaction.session, transaction.gtid.clone()))
    }

    /// The value of a group behind so many transactions.
    pub(super) fn value(&self, group: u64, offset: usize) -> Option<u64> {
        let change = self.log[..offset]
            .iter()
            .rev()
            .find_map(|transaction| match transaction.change {
                Change::Set { group: of, value } => (of == group).then_some(value),
                Change::Truncate => Some(None),
            });
        change.flatten()
    }

    /// The shortest log that a read may have seen.
    fn least(&self, level: Level, session: usize, arrived: u64) -> usize {
        let before = |transaction: &Transaction| transaction.acknowledged.is_some_and(|at| at < arrived);
        let last =
            |wanted: &dyn Fn(&Transaction) -> bool| self.log.iter().rposition(wanted).map_or(0, |at| at + 1);
        match level {
            Level::Eventual => 0,
            Level::Session => last(&|transaction| transaction.session == session && before(transaction)),
            Level::Strong => {
                let base = if arrived >= self.since { self.base } else { 0 };
                let shown = self
                    .shown
                    .iter()
                    .filter(|(ended, _)| *ended < arrived)
                    .map(|(_, least)| *least);
                last(&before).max(base).max(shown.max().unwrap_or(0))
            }
        }
    }
}

/// One primary after the other.
pub(super) struct Timelines(Vec<Server>);

impl Timelines {
    pub(super) fn new() -> Timelines {
        Timelines(vec![Server {
            number: 1,
            log: Vec::new(),
            sets: vec![GtidSet::empty(Flavor::MySql)],
            visible: 0,
            acknowledged: 0,
            base: 0,
            since: 0,
            until: u64::MAX,
            shown: Vec::new(),
        }])
    }

    pub(super) fn last(&self) -> usize {
        self.0.len() - 1
    }

    pub(super) fn current(&mut self) -> &mut Server {
        let last = self.last();
        &mut self.0[last]
    }

    pub(super) fn get(&self, number: usize) -> &Server {
        &self.0[number]
    }

    pub(super) fn fail_over(&mut self, now: u64, lost: usize) {
        let number = self.0.len() + 1;
        let old = self.current();
        old.until = now;
        let base = old.log.len().saturating_sub(lost);
        let new = Server {
            number,
            log: old.log[..base].to_vec(),
            sets: old.sets[..=base].to_vec(),
            visible: base,
            acknowledged: base,
            base,
            since: now,
            until: u64::MAX,
            shown: Vec::new(),
        };
        self.0.push(new);
    }

    /// Whether a read may have had this value, at its level.
    pub(super) fn check(&mut self, read: &Read, now: u64, value: Option<u64>) -> Result<(), Violation> {
        let Read {
            level,
            session,
            group,
            arrived,
            ref wants,
            ..
        } = *read;
        let mut wanted = Vec::new();
        for server in &mut self.0 {
            if level == Level::Strong && (server.until < arrived || server.since > now) {
                continue;
            }
            if level == Level::Session && !server.sets[server.log.len()].covers(wants) {
                continue;
            }
            let least = server.least(level, session, arrived);
            let fits = (least..=server.log.len()).find(|&offset| server.value(group, offset) == value);
            match fits {
                Some(offset) if level == Level::Strong => {
                    server.shown.push((now, offset));
                    return Ok(());
                }
                Some(_) => return Ok(()),
                None => wanted.push((server.number, least, server.value(group, least))),
            }
        }
        Err(format!(
            "{level:?} read of group {group} since {arrived} got {value:?}; wanted {wanted:?}"
        ))
    }
}
