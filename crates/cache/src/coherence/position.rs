//! How far a binary log was followed.

use std::fmt;

use mysql_wire::gtid::MariaDbPosition;

/// A server and its binary log. Positions of different sources have nothing to say about each other. A server
/// whose log began anew (RESET MASTER) is another source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SourceId(pub u64);

impl SourceId {
    /// From what names the server and its log, say `server_uuid`, or on MariaDB `server_id` with the address.
    /// The same on every worker and in every process (FNV-1a).
    pub fn of(identity: &[u8]) -> SourceId {
        SourceId(identity.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        }))
    }
}

/// A place in the binary log of a source, behind the last transaction that it includes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    pub source: SourceId,
    pub place: Place,
}

/// Where in a binary log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// `file` is the number at the end of the file's name, `offset` in bytes.
    File { file: u32, offset: u64 },
    /// The last transaction of each domain. Only where `gtid_strict_mode` is on: otherwise numbers may go
    /// back.
    MariaDb(MariaDbPosition),
}

impl Position {
    /// Which of the two is later can be said: both are of one source, and of one kind.
    pub fn is_like(&self, other: &Position) -> bool {
        self.source == other.source
            && std::mem::discriminant(&self.place) == std::mem::discriminant(&other.place)
    }

    /// Whether this is by GTIDs of MariaDB, and not by a place in a file.
    pub(crate) fn is_by_gtid(&self) -> bool {
        matches!(self.place, Place::MariaDb(_))
    }

    /// All that is before `other` is before this position, too. Never said of another source's position.
    pub fn covers(&self, other: &Position) -> bool {
        self.source == other.source && self.place.covers(&other.place)
    }
}

/// Files are numbered by the end of their names.
pub(crate) fn file_number(file: &str) -> Option<u32> {
    file.rsplit('.').next()?.parse().ok()
}

impl Place {
    /// All that is before `other` is before this place, too.
    pub(crate) fn covers(&self, other: &Place) -> bool {
        match (self, other) {
            (
                Place::File { file, offset },
                Place::File {
                    file: want,
                    offset: until,
                },
            ) => (file, offset) >= (want, until),
            (Place::MariaDb(have), Place::MariaDb(want)) => have.covers(want),
            (Place::File { .. }, Place::MariaDb(_)) | (Place::MariaDb(_), Place::File { .. }) => false,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File { file, offset } => write!(f, "{file:06}:{offset}"),
            Place::MariaDb(position) => position.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(source: u64, file: u32, offset: u64) -> Position {
        let place = Place::File { file, offset };
        Position {
            source: SourceId(source),
            place,
        }
    }

    fn gtid(source: u64, text: &str) -> Position {
        let place = Place::MariaDb(MariaDbPosition::parse(text.as_bytes()).unwrap());
        Position {
            source: SourceId(source),
            place,
        }
    }

    #[test]
    fn a_later_place_covers_an_earlier_one_of_its_source() {
        assert!(file(1, 2, 4).covers(&file(1, 2, 4)));
        assert!(file(1, 2, 4).covers(&file(1, 1, 900)));
        assert!(!file(1, 2, 4).covers(&file(1, 2, 5)));
        assert!(!file(1, 2, 900).covers(&file(1, 3, 4)));
        assert!(gtid(1, "0-1-5,1-1-2").covers(&gtid(1, "0-7-5")));
        assert!(!gtid(1, "0-1-5").covers(&gtid(1, "0-1-5,1-1-2")));
    }

    #[test]
    fn sources_and_kinds_do_not_mix() {
        assert!(!file(2, 9, 9).covers(&file(1, 1, 1)));
        assert!(!gtid(2, "0-1-5").covers(&gtid(1, "0-1-5")));
        assert!(!file(1, 9, 9).covers(&gtid(1, "0-1-5")) && !gtid(1, "0-1-5").covers(&file(1, 1, 1)));
        assert_ne!(SourceId::of(b"a"), SourceId::of(b"b"));
    }
}
