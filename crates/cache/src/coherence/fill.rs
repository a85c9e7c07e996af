//! Rows that come from the server itself: when they may be shown, and when they may be kept.
//!
//! A transaction is in the binary log before a SELECT sees it. So what is applied here may be newer than what
//! the server answers, and what it answers may be newer than what is applied.

use std::sync::Arc;

use mysql_wire::gtid::GtidSet;

use super::applied::Applied;
use super::position::{Position, SourceId};

/// What a SELECT is known to have seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Visible {
    /// `gtid_executed` of MySQL, read before the SELECT on its connection: updated after the commit is
    /// visible.
    Gtids(SourceId, GtidSet),
    /// Where its snapshot is: MariaDB's `binlog_snapshot_file` and `binlog_snapshot_position` after START
    /// TRANSACTION WITH CONSISTENT SNAPSHOT.
    Snapshot(Position),
    /// A locking read (`FOR SHARE`): it waits for transactions that are in the binary log and not yet
    /// visible.
    Everything(SourceId),
}

impl Visible {
    fn source(&self) -> SourceId {
        match self {
            Visible::Gtids(source, _) | Visible::Everything(source) => *source,
            Visible::Snapshot(position) => position.source,
        }
    }

    /// The SELECT has seen all that was applied then.
    fn includes(&self, applied: &Applied) -> bool {
        let Some(position) = &applied.position else {
            return false;
        };
        self.source() == position.source
            && match self {
                // What has no GTID is in neither set, and without any in the binary log the empty one says
                // nothing.
                Visible::Gtids(_, visible) => {
                    applied.is_numbered && !applied.gtids.is_empty() && visible.covers(&applied.gtids)
                }
                Visible::Snapshot(at) => at.covers(position),
                Visible::Everything(_) => true,
            }
    }
}

/// What to do with the server's answer as far as the store is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Give it to the store, with the ticket.
    Store,
    /// It may be newer than what is applied: look again when more is.
    Wait,
    Drop,
}

/// A question to the server for rows that are missing. The store's ticket is made for `begun.version`.
#[derive(Debug, Clone)]
pub struct Fill {
    begun: Arc<Applied>,
}

impl Fill {
    /// Before anything is sent to the server. For a strong read: when or after it arrived.
    pub fn begin(applied: Arc<Applied>) -> Fill {
        Fill { begun: applied }
    }

    /// What was applied when it began.
    pub fn begun(&self) -> &Applied {
        &self.begun
    }

    /// The answer is not older than what others were shown before. Otherwise ask again: a strong read must
    /// not show it. (The commit is under way: it is a matter of a moment, or of a replica's acknowledgement.)
    pub fn may_show(&self, visible: &Visible) -> bool {
        visible.includes(&self.begun)
    }

    /// **Fill rule**: a row may be kept when the SELECT saw all that was applied when the fill began, all
    /// that the SELECT can have seen is applied, and no event for its key came in between. The last part is
    /// the store's, by the ticket.
    ///
    /// `until` is the primary's position, read after the SELECT (or the snapshot's own).
    pub fn verdict(&self, visible: &Visible, until: &Position, now: &Applied) -> Verdict {
        let one_source =
            until.source == visible.source() && now.source().is_none_or(|source| source == until.source);
        if !one_source || !visible.includes(&self.begun) {
            return Verdict::Drop;
        }
        if now.covers(until) {
            Verdict::Store
        } else {
            Verdict::Wait
        }
    }
}

#[cfg(test)]
mod tests {
    use mysql_wire::gtid::Flavor;

    use super::super::position::Place;
    use super::*;
    use crate::store::Version;

    fn at(source: u64, offset: u64) -> Position {
        Position {
            source: SourceId(source),
            place: Place::File { file: 1, offset },
        }
    }

    fn gtids(last: u64) -> GtidSet {
        GtidSet::parse(Flavor::MariaDb, format!("0-1-{last}").as_bytes()).unwrap()
    }

    fn applied(source: u64, offset: u64) -> Arc<Applied> {
        Arc::new(Applied {
            version: Version(offset),
            position: Some(at(source, offset)),
            gtids: gtids(offset),
            is_numbered: true,
            numbered_alone: false,
        })
    }

    #[test]
    fn an_answer_that_may_lack_what_is_applied_is_neither_shown_nor_kept() {
        let fill = Fill::begin(applied(1, 10));
        let seen = |last| Visible::Gtids(SourceId(1), gtids(last));
        assert!(fill.may_show(&seen(10)) && !fill.may_show(&seen(9)));
        assert!(fill.may_show(&Visible::Snapshot(at(1, 10))) && !fill.may_show(&Visible::Snapshot(at(1, 9))));
        assert!(
            fill.may_show(&Visible::Everything(SourceId(1)))
                && !fill.may_show(&Visible::Everything(SourceId(2)))
        );
        assert_eq!(fill.verdict(&seen(9), &at(1, 12), &applied(1, 12)), Verdict::Drop);
        let fill = Fill::begin(Arc::new(Applied {
            is_numbered: false,
            numbered_alone: false,
            ..(*applied(1, 10)).clone()
        }));
        assert!(
            !fill.may_show(&seen(10)),
            "it may lack a transaction without a GTID"
        );
        assert_eq!(
            fill.verdict(&seen(10), &at(1, 12), &applied(1, 12)),
            Verdict::Drop
        );
    }

    #[test]
    fn an_answer_is_kept_when_all_that_it_can_show_is_applied() {
        let fill = Fill::begin(applied(1, 10));
        let seen = Visible::Gtids(SourceId(1), gtids(11));
        assert_eq!(fill.verdict(&seen, &at(1, 12), &applied(1, 11)), Verdict::Wait);
        assert_eq!(fill.verdict(&seen, &at(1, 12), &applied(1, 12)), Verdict::Store);
        assert_eq!(fill.verdict(&seen, &at(1, 12), &applied(2, 99)), Verdict::Drop);
        assert_eq!(fill.verdict(&seen, &at(2, 12), &applied(2, 99)), Verdict::Drop);
    }
}
