//! How far the binary log was followed.

use mysql_wire::gtid::{Flavor, GtidSet};

use super::preflight::FilePosition;
use crate::coherence::{Applied, Place, Position, SourceId, file_number};
use crate::store::Version;

/// What is applied, with what is needed to go on from there.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    /// Whose `file` it is; `None` until its stream has said where it is.
    source: Option<SourceId>,
    /// Behind the last transaction, or what else is between two.
    file: FilePosition,
    /// Behind the last event of the transaction that has begun.
    reading: u64,
    /// Behind the last transaction of this stream.
    transaction: Option<FilePosition>,
    gtids: GtidSet,
    /// All that is applied is in `gtids`, from the first transaction on, and other servers number it alike.
    numbered: bool,
    /// All that is applied is in `gtids`, or known to be shown by the server.
    shown_by_gtid: bool,
    /// Transactions that came without a GTID.
    unnumbered: u64,
    /// The stream leaves out what is applied, of which there may be some behind `file`.
    skipping: bool,
    /// Positions are GTIDs of MariaDB.
    strict: bool,
    /// A transaction has begun and not ended.
    in_transaction: bool,
    /// The server that was followed last, and its number.
    last: Option<(SourceId, u32)>,
    /// The file that was described last, and when it was begun, in seconds since 1970.
    described: Option<(String, u32)>,
}

impl Progress {
    pub(super) fn nowhere() -> Self {
        Self {
            source: None,
            file: FilePosition {
                file: String::new(),
                offset: 0,
            },
            reading: 0,
            transaction: None,
            gtids: GtidSet::empty(Flavor::MySql),
            numbered: true,
            shown_by_gtid: true,
            unnumbered: 0,
            skipping: false,
            strict: false,
            in_transaction: false,
            last: None,
            described: None,
        }
    }

    pub(super) fn follow(&mut self, source: SourceId, server_id: u32) {
        self.last = Some((source, server_id));
    }

    /// Another server than the one that was followed has its number: the two never replicated from one
    /// another, so equal GTIDs of MariaDB may be of different transactions.
    pub(super) fn is_namesake(&self, source: SourceId, server_id: u32) -> bool {
        self.last
            .is_some_and(|(last, number)| number == server_id && last != source)
    }

    /// A stream begins of which `file` is not known yet: what it leaves out is in `gtids`.
    pub(super) fn begin(&mut self, gtids: GtidSet, strict: bool) {
        *self = Self {
            gtids,
            strict,
            skipping: true,
            last: self.last,
            ..Self::nowhere()
        };
    }

    /// A stream begins, or goes on, right here. Of MySQL it is one whose transactions have no GTIDs, or not
    /// all of them.
    pub(super) fn begin_at(&mut self, source: SourceId, file: FilePosition, gtids: GtidSet, strict: bool) {
        *self = Self {
            source: Some(source),
            transaction: Some(file.clone()),
            reading: file.offset,
            file,
            numbered: gtids.flavor() == Flavor::MariaDb,
            shown_by_gtid: gtids.flavor() == Flavor::MariaDb,
            gtids,
            strict,
            last: self.last,
            ..Self::nowhere()
        };
    }

    /// The stream goes on in another file.
    pub(super) fn rotate(&mut self, source: SourceId, file: &[u8], offset: u64) {
        let file = String::from_utf8_lossy(file);
        // A stream that goes on in the middle of a file repeats what is known.
        if self.source != Some(source) || self.file.file != file {
            self.file = FilePosition {
                file: file.into_owned(),
                offset,
            };
        } else {
            self.file.offset = self.file.offset.max(offset);
        }
        self.source = Some(source);
        self.reading = self.file.offset;
    }

    /// The file that is read was begun then. False: it is not the one of this name that was read before, of a
    /// log that has begun anew since.
    pub(super) fn describe(&mut self, begun: u32) -> bool {
        let file = &self.file.file;
        let known = self.described.as_ref().filter(|(known, _)| known == file);
        let is_same = known.is_none_or(|(_, known)| *known == begun);
        self.described = Some((file.clone(), begun));
        is_same
    }

    /// All before `next` has come: the low 32 bits of an offset, 0 for what is in no file.
    pub(super) fn reach(&mut self, next: u32) {
        if next == 0 || self.source.is_none() {
            return;
        }
        let known = self.reading.max(self.file.offset);
        let mut offset = known & !u64::from(u32::MAX) | u64::from(next);
        if offset < known && known - offset > u64::from(u32::MAX / 2) {
            offset += 1 << 32;
        }
        self.reading = known.max(offset);
        if !self.in_transaction {
            self.file.offset = self.reading;
        }
    }

    pub(super) fn enter_transaction(&mut self) {
        self.in_transaction = true;
    }

    pub(super) fn leave_transaction(&mut self) {
        self.in_transaction = false;
        self.file.offset = self.reading.max(self.file.offset);
        self.transaction = self.source.map(|_| self.file.clone());
    }

    /// The stream was cut: what of a transaction had come is forgotten.
    pub(super) fn cut(&mut self) {
        self.in_transaction = false;
        self.reading = self.file.offset;
    }

    /// Whether GTIDs stand for places, as the server has it now.
    pub(super) fn set_strict(&mut self, strict: bool) {
        self.strict = strict;
    }

    pub(super) fn is_in_transaction(&self) -> bool {
        self.in_transaction
    }

    /// A transaction has come that has no GTID.
    pub(super) fn note_unnumbered(&mut self) {
        (self.numbered, self.shown_by_gtid) = (false, false);
        self.unnumbered += 1;
    }

    /// GTIDs are those of the server that is followed alone.
    pub(super) fn note_numbered_alone(&mut self) {
        self.numbered = false;
    }

    /// How many have come.
    pub(super) fn unnumbered(&self) -> u64 {
        self.unnumbered
    }

    /// GTIDs say of the server that is followed whether it shows all that is applied. Not so of another one,
    /// which may lack what has none.
    pub(super) fn is_shown_by_gtid(&self) -> bool {
        self.shown_by_gtid
    }

    /// The server shows all that had come when so many had come without a GTID, and is not in `gtids`. An
    /// empty set says nothing.
    pub(super) fn note_shown(&mut self, unnumbered: u64) {
        if self.unnumbered == unnumbered && !self.gtids.is_empty() {
            self.shown_by_gtid = true;
        }
    }

    /// GTIDs say of another server whether it has all that is applied.
    pub(super) fn is_numbered(&self) -> bool {
        self.numbered
    }

    /// Between what has come and `start` in the same file is something that does not come. Low 32 bits of an
    /// offset.
    pub(super) fn leaves_out(&self, start: u32) -> bool {
        let gap = start.wrapping_sub(self.reading as u32);
        self.source.is_some() && (1..u32::MAX / 2).contains(&gap)
    }

    /// The file that is read now.
    pub(super) fn is_in(&self, file: &[u8]) -> bool {
        self.file.file.as_bytes() == file
    }

    pub(super) fn gtids(&self) -> &GtidSet {
        &self.gtids
    }

    pub(super) fn gtids_mut(&mut self) -> &mut GtidSet {
        &mut self.gtids
    }

    /// Where to go on in the files of `source`, where it is known, and nothing behind it is applied.
    pub(super) fn place_in(&self, source: SourceId) -> Option<&FilePosition> {
        (self.source == Some(source) && !self.skipping).then_some(&self.file)
    }

    /// Nothing behind this is applied.
    pub(super) fn note_new(&mut self) {
        self.skipping = false;
    }

    /// All before `place` in the files of the stream has come, or is left out.
    pub(super) fn has_passed(&self, place: &FilePosition) -> bool {
        self.source.is_some() && self.file.covers(place)
    }

    /// Behind the last transaction, where its place is known.
    pub(super) fn transaction(&self) -> Option<&FilePosition> {
        self.transaction.as_ref()
    }

    pub(super) fn position(&self) -> Option<Position> {
        let source = self.source?;
        let place = match &self.gtids {
            GtidSet::MariaDb(gtids) if self.strict => Place::MariaDb(gtids.clone()),
            _ => self.file.place(),
        };
        Some(Position { source, place })
    }

    /// Whether positions are GTIDs, and not places in files.
    pub(super) fn is_by_gtid(&self) -> bool {
        self.strict && matches!(self.gtids, GtidSet::MariaDb(_))
    }

    pub(super) fn applied(&self, version: Version) -> Applied {
        Applied {
            version,
            position: self.position(),
            gtids: self.gtids.clone(),
            is_numbered: self.shown_by_gtid,
            numbered_alone: !self.numbered && self.gtids.flavor() == Flavor::MariaDb,
        }
    }
}

impl FilePosition {
    /// A command can say that a stream is to begin here.
    pub(super) fn fits(&self) -> bool {
        u32::try_from(self.offset).is_ok()
    }

    pub(super) fn place(&self) -> Place {
        Place::File {
            file: file_number(&self.file).unwrap_or(0),
            offset: self.offset,
        }
    }

    /// All before `other` is before this.
    pub(super) fn covers(&self, other: &Self) -> bool {
        self.place().covers(&other.place())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(file: &str, offset: u64) -> FilePosition {
        FilePosition {
            file: file.to_owned(),
            offset,
        }
    }

    #[test]
    fn offsets_go_on_behind_four_gigabytes() {
        let mut progress = Progress::nowhere();
        assert_eq!(progress.position(), None);
        progress.reach(700);
        let source = SourceId(1);
        progress.rotate(source, b"bin.000002", 4);
        progress.reach(1000);
        assert_eq!(progress.place_in(source), Some(&at("bin.000002", 1000)));
        progress.reach(900);
        assert_eq!(
            progress.place_in(source),
            Some(&at("bin.000002", 1000)),
            "never back"
        );
        progress.reach(u32::MAX - 5);
        progress.reach(20);
        assert_eq!(progress.place_in(source), Some(&at("bin.000002", (1 << 32) + 20)));
        progress.rotate(source, b"bin.000003", 4);
        assert_eq!(progress.place_in(source), Some(&at("bin.000003", 4)));
        assert_eq!(progress.place_in(SourceId(2)), None);
    }

    #[test]
    fn a_stream_that_goes_on_repeats_where_it_is() {
        let mut progress = Progress::nowhere();
        let source = SourceId(1);
        progress.begin_at(
            source,
            at("bin.000002", 700),
            GtidSet::empty(Flavor::MySql),
            false,
        );
        progress.rotate(source, b"bin.000002", 4);
        assert_eq!(progress.place_in(source), Some(&at("bin.000002", 700)));
    }

    #[test]
    fn a_file_of_the_same_name_that_was_begun_at_another_time_is_another_one() {
        let (mut progress, source) = (Progress::nowhere(), SourceId(1));
        progress.rotate(source, b"bin.000002", 4);
        assert!(progress.describe(70) && progress.describe(70));
        progress.rotate(source, b"bin.000003", 4);
        assert!(progress.describe(90));
        progress.cut();
        assert!(progress.describe(90) && !progress.describe(95));
        // Of another server.
        progress.begin_at(
            SourceId(2),
            at("bin.000003", 4),
            GtidSet::empty(Flavor::MySql),
            false,
        );
        assert!(progress.describe(70));
    }

    #[test]
    fn a_transaction_that_is_cut_begins_again() {
        let mut progress = Progress::nowhere();
        let source = SourceId(1);
        progress.rotate(source, b"bin.000002", 4);
        progress.enter_transaction();
        progress.reach(300);
        progress.reach(500);
        assert_eq!(progress.place_in(source), Some(&at("bin.000002", 4)));
        progress.cut();
        progress.enter_transaction();
        progress.reach(300);
        progress.reach(500);
        progress.leave_transaction();
        assert_eq!(progress.place_in(source), Some(&at("bin.000002", 500)));
        assert_eq!(progress.transaction(), Some(&at("bin.000002", 500)));
        progress.reach(600);
        assert_eq!(progress.place_in(source), Some(&at("bin.000002", 600)));
    }

    #[test]
    fn what_does_not_come_is_noticed() {
        let mut progress = Progress::nowhere();
        assert!(!progress.leaves_out(700), "nothing is known");
        assert!(!progress.has_passed(&at("bin.000001", 4)));
        progress.rotate(SourceId(1), b"bin.000002", 4);
        progress.reach(700);
        assert!(progress.is_in(b"bin.000002") && !progress.is_in(b"bin.000003"));
        assert!(!progress.leaves_out(700) && progress.leaves_out(701) && !progress.leaves_out(600));
        assert!(progress.has_passed(&at("bin.000002", 700)) && !progress.has_passed(&at("bin.000002", 701)));
        progress.reach(u32::MAX);
        progress.reach(20);
        assert!(!progress.leaves_out(20) && progress.leaves_out(40));
    }

    #[test]
    fn a_stream_that_leaves_things_out_goes_on_by_gtid_until_something_new_has_come() {
        let (mut progress, source) = (Progress::nowhere(), SourceId(1));
        progress.begin(GtidSet::empty(Flavor::MySql), false);
        progress.rotate(source, b"bin.000002", 4);
        progress.reach(700);
        assert_eq!(progress.place_in(source), None);
        progress.note_new();
        assert_eq!(progress.place_in(source), Some(&at("bin.000002", 700)));
    }

    #[test]
    fn without_gtids_of_all_transactions_servers_are_not_compared() {
        let is_numbered = |flavor: Flavor| {
            let mut progress = Progress::nowhere();
            progress.begin_at(SourceId(1), at("bin.000001", 4), GtidSet::empty(flavor), false);
            progress.is_numbered()
        };
        assert!(is_numbered(Flavor::MariaDb) && !is_numbered(Flavor::MySql));
        let mut progress = Progress::nowhere();
        progress.begin(GtidSet::empty(Flavor::MySql), false);
        assert!(progress.is_numbered());
        progress.note_unnumbered();
        assert!(!progress.is_numbered());
    }

    #[test]
    fn files_are_compared_by_number() {
        assert!(at("bin.000010", 4).covers(&at("bin.000009", 900)));
        assert!(at("bin.1000000", 4).covers(&at("bin.999999", 900)));
        assert!(!at("bin.000010", 4).covers(&at("bin.000010", 5)));
    }
}
