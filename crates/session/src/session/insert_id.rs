//! LAST_INSERT_ID() where an answer does not tell it: an OK packet has the id of a row also where the
//! statement gave it itself.
//!
//! A connection that is asked what its id is says the last one that its server made, and that may be of
//! another session: it is this one's if an answer to this one had it.

use mysql_wire::{Command, Outcome};
use serde::{Deserialize, Serialize};
use sql_class::{Class, Effects};

use super::Session;
use super::written_gtids::LastGtid;
use crate::PinReason;

/// Rows with new ids, of which the answer says nothing.
const MAKES_ID_UNSEEN: Effects = Effects::LOADS_DATA.with(Effects::RETURNS_INSERTED);

impl Session {
    /// `LAST_INSERT_ID()`, as far as OK packets tell.
    #[must_use]
    pub fn last_insert_id(&self) -> u64 {
        self.last.insert_id
    }

    /// False where [`Session::last_insert_id`] may be wrong: an OK packet also has the id of a row whose
    /// statement gave the id itself, and `LAST_INSERT_ID()` does not know that one (tested on both servers).
    /// A gateway that wants to be sure asks the connection before it gives it back, and calls
    /// [`Session::learn_last_insert_id`].
    #[must_use]
    pub fn knows_last_insert_id(&self) -> bool {
        self.insert_id == InsertIdSource::Known && !self.pins.has(PinReason::LastInsertId)
    }

    /// The id in the last OK packet is one that the server has made: the statement has given none itself.
    pub fn insert_id_was_made(&mut self) {
        self.insert_id = InsertIdSource::Known;
        self.last.reported_ids = ReportedIds::default();
    }

    /// So many ids were said on a connection that had another session's that it has to be asked before there
    /// is one more: see [`Session::prime`].
    #[must_use]
    pub fn has_many_insert_ids(&self) -> bool {
        // What is lost is not asked for: what is made from then on is the session's.
        self.last.reported_ids.is_full() && !self.insert_id_is_there && !self.has_lost_insert_id()
    }

    /// The connection that came to hand is known to have this id: where it is the session's nothing has to be
    /// [sent](Session::prime) for it.
    pub fn note_connection(&mut self, known: KnownConnection) {
        self.gtid_there = known.gtid;
        let is_same = known.insert_id() == Some(self.last.insert_id);
        self.insert_id_is_there = self.knows_last_insert_id() && is_same;
    }

    /// What is known of the connection that is about to be given back. `had`: when it came to hand.
    #[must_use]
    pub fn connection_left(&self, had: KnownConnection) -> KnownConnection {
        KnownConnection {
            insert_id: self.insert_id_left(had.insert_id()).unwrap_or(UNKNOWN),
            gtid: self.gtid_there,
        }
    }

    fn insert_id_left(&self, had: Option<u64>) -> Option<u64> {
        match self.insert_id_is_there {
            true => {
                let is_known = self.knows_last_insert_id() && !self.insert_id_may_differ;
                is_known.then_some(self.last.insert_id)
            }
            false => had.filter(|_| !self.insert_id_was_touched),
        }
    }

    /// What to ask the connection for the id that is not known, before it is given back: its OK goes to
    /// [`Session::observe_primed`], and where there is a row that says it, to
    /// [`Session::learn_insert_id_asked`]. None where it is known.
    #[must_use]
    pub fn ask_last_insert_id(&mut self) -> Option<Vec<u8>> {
        let asked = std::mem::take(&mut self.insert_id);
        (asked != InsertIdSource::Known).then(|| {
            self.insert_id_asked = asked;
            crate::rebuild::ask_last_insert_id(self.dialect)
        })
    }

    /// The connection is about to be [asked](Session::ask_last_insert_id), and tells by a row.
    #[must_use]
    pub fn asks_by_a_row(&self) -> bool {
        self.insert_id_asked != InsertIdSource::Known && self.dialect.is_mariadb()
    }

    /// It has told by a row, or by its OK.
    pub fn learn_insert_id_asked(&mut self, id: u64) {
        match std::mem::take(&mut self.insert_id_asked) {
            InsertIdSource::Known => self.insert_id_is_there = true,
            asked => self.insert_id = asked,
        }
        self.learn_last_insert_id(id);
    }

    /// The connection has said what its LAST_INSERT_ID() is.
    pub fn learn_last_insert_id(&mut self, id: u64) {
        let made = std::mem::take(&mut self.insert_id);
        let is_certain = matches!(made, InsertIdSource::Unseen | InsertIdSource::Lost);
        let was_said = self.last.reported_ids.has(id);
        if made == InsertIdSource::Lost && id == 0 {
            self.insert_id = made;
        } else if self.insert_id_is_there || is_certain || was_said || id == self.last.insert_id {
            self.last.insert_id = id;
            self.insert_id_is_there = true;
        } else if made == InsertIdSource::Reported {
            // Another session's: this one's statements have made none, but given ids themselves.
            self.last.insert_id = self.last.insert_id_before;
        }
        self.pins.remove(PinReason::LastInsertId);
    }

    /// Rows with new ids, of which the answer says nothing that is told from other rows.
    fn makes_id_unseen(&self, outcome: &Outcome) -> bool {
        // MariaDB's results row by row (`BULK_UNIT_RESULTS`).
        let has_units = self.current.command == Command::STMT_BULK_EXECUTE && outcome.is_result_set;
        has_units || self.current.effects.intersects(MAKES_ID_UNSEEN)
    }

    fn insert_id_is_unseen(&mut self) {
        if self.insert_id != InsertIdSource::Lost {
            self.insert_id = InsertIdSource::Unseen;
        }
    }

    /// What LAST_INSERT_ID() was a connection knew that is gone, and its own one has made none since.
    #[must_use]
    pub fn has_lost_insert_id(&self) -> bool {
        self.insert_id == InsertIdSource::Lost
    }

    pub(super) fn settle_insert_id(&mut self, outcome: &Outcome) {
        // The id of a row that was taken back stays on the connection, and no error tells it.
        self.insert_id_may_differ |= outcome.error.is_some() && self.current.class >= Class::Write;
        if self.insert_id == InsertIdSource::Known {
            self.last.insert_id_before = self.last.insert_id;
            self.last.reported_ids = ReportedIds::default();
        }
        if outcome.last_insert_id != 0 {
            self.last.insert_id = outcome.last_insert_id;
            self.last.reported_ids.add(outcome.last_insert_id);
            if self.insert_id == InsertIdSource::Known {
                self.insert_id = InsertIdSource::Reported;
            }
            self.pins.remove(PinReason::LastInsertId);
        } else if outcome.error.is_none() && self.makes_id_unseen(outcome) {
            self.insert_id_is_unseen();
        }
        if self.current.effects.contains(Effects::LEAVES_NOTHING) {
            // Nor does an error of a procedure: what it has inserted before that stays.
            self.insert_id_is_unseen();
        }
    }
}

/// What a connection says of statements that were executed on it, as far as it is known.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct KnownConnection {
    insert_id: u64,
    gtid: LastGtid,
}

const UNKNOWN: u64 = u64::MAX;

impl KnownConnection {
    /// Nothing was executed since its login.
    pub const FRESH: Self = Self {
        insert_id: 0,
        gtid: LastGtid::NONE,
    };
    pub const UNKNOWN: Self = Self {
        insert_id: UNKNOWN,
        gtid: LastGtid::UNKNOWN,
    };

    /// LAST_INSERT_ID().
    #[must_use]
    pub fn insert_id(self) -> Option<u64> {
        Some(self.insert_id).filter(|id| *id != UNKNOWN)
    }
}

/// What is known of it after the last statements on the connection at hand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum InsertIdSource {
    /// What it is.
    #[default]
    Known,
    /// It is one that an OK packet said, or it was not changed.
    Reported,
    /// A statement may have made one of which no packet tells.
    Unseen,
    /// Only a connection that is gone knew it. The one that has taken its place is the session's own: an id
    /// that was made there is the session's, and where there is none nobody knows.
    Lost,
}

/// Ids that OK packets said, the newest first; 0 is none. There is room for few: before one more is said the
/// connection is asked, and has the session's own from then on.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct ReportedIds([u64; 4]);

impl ReportedIds {
    pub(super) fn add(&mut self, id: u64) {
        if !self.0.contains(&id) {
            self.0.rotate_right(1);
            self.0[0] = id;
        }
    }

    pub(super) fn has(&self, id: u64) -> bool {
        id != 0 && self.0.contains(&id)
    }

    pub(super) fn is_full(&self) -> bool {
        !self.0.contains(&0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_is_known_and_nothing_else() {
        let mut said = ReportedIds::default();
        let known = |said: &ReportedIds| (0..1000).filter(|&id| said.has(id)).collect::<Vec<u64>>();
        for id in [7, 500, 7, 600] {
            said.add(id);
        }
        assert_eq!((known(&said), said.is_full()), (vec![7, 500, 600], false));
        said.add(8);
        assert_eq!((known(&said), said.is_full()), (vec![7, 8, 500, 600], true));
    }
}
