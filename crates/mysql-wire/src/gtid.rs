//! Global transaction ids: which transactions a server has, and whether those are all that a session has to
//! see.
//!
//! The two flavors have little in common. MySQL names a transaction by the server it came from and a number,
//! and a server may have any set of them ([`MySqlSet`]). MariaDB numbers all transactions of a domain in the
//! order in which they are applied, so that the last one says it all ([`MariaDbPosition`]).
//!
//! Sizes are bounded: text of more than [`INTERVALS_MAX`] intervals or [`DOMAINS_MAX`] domains is refused.

mod mariadb;
mod mysql;

use std::fmt;

pub use mariadb::{DOMAINS_MAX, MariaDbPosition};
pub(crate) use mysql::parse_uuid;
pub use mysql::{INTERVALS_MAX, MySqlSet};

use crate::WireError;

/// Whose GTIDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flavor {
    MySql,
    MariaDb,
}

/// The transactions that a server has, or that a session wants to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GtidSet {
    MySql(MySqlSet),
    MariaDb(MariaDbPosition),
}

impl GtidSet {
    pub fn empty(flavor: Flavor) -> GtidSet {
        match flavor {
            Flavor::MySql => GtidSet::MySql(MySqlSet::default()),
            Flavor::MariaDb => GtidSet::MariaDb(MariaDbPosition::default()),
        }
    }

    /// Reads what servers write: a single GTID, or a set of them (`gtid_executed`, `gtid_binlog_pos`, session
    /// trackers).
    pub fn parse(flavor: Flavor, text: &[u8]) -> Result<GtidSet, WireError> {
        match flavor {
            Flavor::MySql => MySqlSet::parse(text).map(GtidSet::MySql),
            Flavor::MariaDb => MariaDbPosition::parse(text).map(GtidSet::MariaDb),
        }
    }

    pub fn flavor(&self) -> Flavor {
        match self {
            GtidSet::MySql(_) => Flavor::MySql,
            GtidSet::MariaDb(_) => Flavor::MariaDb,
        }
    }

    pub fn is_empty(&self) -> bool {
        match self {
            GtidSet::MySql(set) => set.is_empty(),
            GtidSet::MariaDb(position) => position.is_empty(),
        }
    }

    /// All of `other` is here. Nothing but nothing is covered by a set of the other flavor.
    pub fn covers(&self, other: &GtidSet) -> bool {
        match (self, other) {
            (GtidSet::MySql(have), GtidSet::MySql(want)) => have.covers(want),
            (GtidSet::MariaDb(have), GtidSet::MariaDb(want)) => have.covers(want),
            (_, want) => want.is_empty(),
        }
    }

    /// What of this is in `other`, too. Of MariaDB that is how far both are in each domain.
    #[must_use]
    pub fn common(&self, other: &GtidSet) -> GtidSet {
        match (self, other) {
            (GtidSet::MySql(set), GtidSet::MySql(other)) => GtidSet::MySql(set.common(other)),
            (GtidSet::MariaDb(position), GtidSet::MariaDb(other)) => GtidSet::MariaDb(position.common(other)),
            _ => GtidSet::empty(self.flavor()),
        }
    }

    /// Adds all of `other`.
    ///
    /// # Errors
    /// `other` is of the other flavor, or the result would be too large. This set is as it was.
    pub fn merge(&mut self, other: &GtidSet) -> Result<(), WireError> {
        match (self, other) {
            (GtidSet::MySql(set), GtidSet::MySql(more)) => set.merge(more),
            (GtidSet::MariaDb(position), GtidSet::MariaDb(more)) => position.merge(more),
            _ => Err(WireError::Invalid {
                field: "flavor of a GTID set",
            }),
        }
    }
}

/// As servers read it, in the form that they write.
impl fmt::Display for GtidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GtidSet::MySql(set) => set.fmt(f),
            GtidSet::MariaDb(position) => position.fmt(f),
        }
    }
}

/// A decimal number as servers write it: digits only, up to `max`.
fn number(digits: &[u8], max: u64) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let value = digits.iter().try_fold(0_u64, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })?;
    (value <= max).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(flavor: Flavor, text: &str) -> GtidSet {
        GtidSet::parse(flavor, text.as_bytes()).unwrap()
    }

    #[test]
    fn flavors_do_not_mix() {
        let mysql = set(Flavor::MySql, "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5");
        let mut mariadb = set(Flavor::MariaDb, "0-1-5");
        assert!(!mysql.covers(&mariadb) && !mariadb.covers(&mysql));
        assert!(mysql.covers(&GtidSet::empty(Flavor::MariaDb)));
        assert!(mariadb.merge(&mysql).is_err());
        assert_eq!(mariadb, set(Flavor::MariaDb, "0-1-5"));
        assert!(GtidSet::parse(Flavor::MySql, b"0-1-5").is_err());
        assert!(GtidSet::parse(Flavor::MariaDb, b"3e11fa47-71ca-11e1-9e33-c80aa9429562:1").is_err());
    }

    #[test]
    fn numbers_are_digits() {
        assert_eq!(number(b"0018", 20), Some(18));
        for bad in [&b""[..], b"+1", b" 1", b"21", b"18446744073709551616", b"1a"] {
            assert_eq!(number(bad, 20), None);
        }
    }
}
