//! What the store shows.

use mysql_wire::gtid::GtidSet;

use super::position::{Position, SourceId};
use crate::store::Version;

/// What the store shows: published after every commit to it, by the feed, in this order: commit, then this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The store's last transaction that is part of this.
    pub version: Version,
    /// How far the source's binary log was followed. It also advances over what changes no row (rotations,
    /// other events between two transactions), or reads would wait for a position that never comes. `None`
    /// while nothing is known: no read is served.
    pub position: Option<Position>,
    /// The transactions that are applied, for sessions and for other sources. Empty where the servers have no
    /// GTIDs.
    pub gtids: GtidSet,
    /// That is all of them that the source may not show yet: none has come that has no GTID, or those are
    /// known to be visible.
    pub is_numbered: bool,
    /// The source numbers transactions by itself, as a node of MariaDB's Galera does: a session's numbers may
    /// be those of another node.
    pub numbered_alone: bool,
}

impl Applied {
    /// All that the position includes is applied.
    pub fn covers(&self, position: &Position) -> bool {
        self.position
            .as_ref()
            .is_some_and(|applied| applied.covers(position))
    }

    /// It may be covered once more is applied: never so where it is of another source, or of another kind, as
    /// those of MariaDB are once `gtid_strict_mode` was switched.
    pub(crate) fn may_cover(&self, position: &Position) -> bool {
        self.position
            .as_ref()
            .is_none_or(|applied| applied.is_like(position))
    }

    /// **Session rule**: a session may read when all transactions that it was told about are applied. Never
    /// said where the source's numbers are its own.
    pub fn has(&self, session: &GtidSet) -> bool {
        self.position.is_some() && !self.numbered_alone && self.gtids.covers(session)
    }

    pub(crate) fn source(&self) -> Option<SourceId> {
        self.position.as_ref().map(|position| position.source)
    }
}

/// **Failover rule**: rows may stay only if the source has all that is applied. `has` is `gtid_executed`, or
/// `gtid_binlog_pos` on MariaDB, read from the source itself.
///
/// `Position::source` of [`Applied`] becomes the new source's with its first position, not before; until then
/// it is `None`.
///
/// MariaDB's numbers do not tell whether a lost tail was replaced by other transactions with the same
/// numbers. There the stream must be asked for with `@slave_gtid_strict_mode = 1`, and its refusal
/// (error 1236) means that they go.
pub fn may_stay(applied: &Applied, source: SourceId, has: &GtidSet) -> bool {
    let same = applied.source() == Some(source);
    has.covers(&applied.gtids) && (same || !applied.gtids.is_empty())
}

#[cfg(test)]
mod tests {
    use mysql_wire::gtid::Flavor;

    use super::super::position::Place;
    use super::*;

    fn gtids(text: &str) -> GtidSet {
        GtidSet::parse(Flavor::MariaDb, text.as_bytes()).unwrap()
    }

    fn applied(text: &str) -> Applied {
        let place = Place::File { file: 1, offset: 100 };
        let source = SourceId(1);
        Applied {
            version: Version(7),
            position: Some(Position { source, place }),
            gtids: gtids(text),
            is_numbered: true,
            numbered_alone: false,
        }
    }

    #[test]
    fn rows_stay_where_the_source_has_all_that_is_applied() {
        let (old, new) = (SourceId(1), SourceId(2));
        let had = applied("0-1-5");
        assert!(may_stay(&had, new, &gtids("0-1-5")));
        assert!(!may_stay(&had, new, &gtids("0-1-4")));
        assert!(!may_stay(&had, old, &gtids("0-1-4")));
        assert!(!may_stay(&applied(""), new, &gtids("0-1-4")));
        assert!(may_stay(&applied(""), old, &gtids("0-1-4")));
    }

    #[test]
    fn nothing_is_covered_while_nothing_is_known() {
        let mut had = applied("0-1-5");
        let position = had.position.clone().unwrap();
        assert!(had.covers(&position) && had.has(&gtids("0-1-4")) && !had.has(&gtids("0-1-6")));
        had.numbered_alone = true;
        assert!(had.covers(&position) && !had.has(&gtids("0-1-4")));
        had.numbered_alone = false;
        had.position = None;
        assert!(!had.covers(&position) && !had.has(&gtids("")));
    }
}
