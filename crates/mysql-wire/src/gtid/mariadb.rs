//! MariaDB: `domain-server-sequence`, the last one of each domain.
//!
//! Source: MariaDB "Global Transaction ID".

use std::fmt;

use super::number;
use crate::WireError;

/// More domains than anybody has: each is a stream of changes of its own.
pub const DOMAINS_MAX: usize = 4096;

/// The last transaction of each domain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MariaDbPosition {
    /// In the order of their domains, each domain once.
    last: Vec<Gtid>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Gtid {
    domain: u32,
    server: u32,
    sequence: u64,
}

impl MariaDbPosition {
    /// Reads GTIDs with commas between them. Of several in one domain (`gtid_binlog_state`) the highest
    /// counts.
    pub fn parse(text: &[u8]) -> Result<MariaDbPosition, WireError> {
        let mut position = MariaDbPosition::default();
        for gtid in Gtid::parse_all(text) {
            position.raise(gtid?);
            if position.last.len() > DOMAINS_MAX {
                return Err(Self::TOO_LARGE);
            }
        }
        Ok(position)
    }

    const TOO_LARGE: WireError = WireError::Invalid {
        field: "number of GTID domains",
    };

    pub fn is_empty(&self) -> bool {
        self.last.is_empty()
    }

    /// What is here is as far as `other`, or farther, in each of its domains.
    pub fn covers(&self, other: &MariaDbPosition) -> bool {
        other.last.iter().all(|want| {
            let own = self.find(want.domain);
            own.is_some_and(|own| own.sequence >= want.sequence)
        })
    }

    /// A server with this `gtid_binlog_state`, the last of each server in each domain, lacks some of the
    /// position for certain, however large its own numbers are: it has logged fewer of the server that made
    /// it. A maker of whom it has logged nothing says nothing.
    pub fn is_beyond(&self, logged: &[u8]) -> Result<bool, WireError> {
        let mut is_beyond = false;
        for known in Gtid::parse_all(logged) {
            let known = known?;
            let of_same = |own: &&Gtid| (own.domain, own.server) == (known.domain, known.server);
            let own = self.last.iter().find(of_same);
            is_beyond |= own.is_some_and(|own| own.sequence > known.sequence);
        }
        Ok(is_beyond)
    }

    /// The nearer of both, in the domains that both have.
    #[must_use]
    pub fn common(&self, other: &MariaDbPosition) -> MariaDbPosition {
        let nearer = |own: &Gtid| {
            let theirs = *other.find(own.domain)?;
            Some(if theirs.sequence < own.sequence {
                theirs
            } else {
                *own
            })
        };
        MariaDbPosition {
            last: self.last.iter().filter_map(nearer).collect(),
        }
    }

    /// Goes on to `other`, in the domains where it is farther.
    ///
    /// # Errors
    /// There would be too many domains. This position is as it was.
    pub fn merge(&mut self, other: &MariaDbPosition) -> Result<(), WireError> {
        if self.last.len() + other.last.len() > DOMAINS_MAX {
            let mut merged = self.clone();
            other.last.iter().for_each(|&gtid| merged.raise(gtid));
            if merged.last.len() > DOMAINS_MAX {
                return Err(Self::TOO_LARGE);
            }
            *self = merged;
        } else {
            other.last.iter().for_each(|&gtid| self.raise(gtid));
        }
        Ok(())
    }

    /// Goes on to one transaction, if it is farther in its domain.
    ///
    /// # Errors
    /// There would be too many domains.
    pub fn add(&mut self, domain: u32, server: u32, sequence: u64) -> Result<(), WireError> {
        if self.place(domain).is_err() && self.last.len() >= DOMAINS_MAX {
            return Err(Self::TOO_LARGE);
        }
        self.raise(Gtid {
            domain,
            server,
            sequence,
        });
        Ok(())
    }

    fn place(&self, domain: u32) -> Result<usize, usize> {
        self.last.binary_search_by_key(&domain, |gtid| gtid.domain)
    }

    fn find(&self, domain: u32) -> Option<&Gtid> {
        self.last.get(self.place(domain).ok()?)
    }

    fn raise(&mut self, gtid: Gtid) {
        match self.place(gtid.domain) {
            Ok(index) => {
                let known = self.last.get_mut(index);
                if let Some(known) = known.filter(|known| known.sequence < gtid.sequence) {
                    *known = gtid;
                }
            }
            Err(index) => self.last.insert(index, gtid),
        }
    }
}

impl Gtid {
    /// GTIDs with commas between them.
    fn parse_all(text: &[u8]) -> impl Iterator<Item = Result<Gtid, WireError>> {
        let is_empty = text.trim_ascii().is_empty();
        let gtids = text.split(|&byte| byte == b',').filter(move |_| !is_empty);
        gtids.map(|gtid| Gtid::parse(gtid.trim_ascii()).ok_or(WireError::Invalid { field: "GTID" }))
    }

    fn parse(text: &[u8]) -> Option<Gtid> {
        let mut parts = text.split(|&byte| byte == b'-');
        let mut part = |max| number(parts.next()?, max);
        let gtid = Gtid {
            domain: part(u64::from(u32::MAX))? as u32,
            server: part(u64::from(u32::MAX))? as u32,
            sequence: part(u64::MAX)?,
        };
        parts.next().is_none().then_some(gtid)
    }
}

impl fmt::Display for MariaDbPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for Gtid {
            domain,
            server,
            sequence,
        } in &self.last
        {
            write!(f, "{separator}{domain}-{server}-{sequence}")?;
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(text: &str) -> MariaDbPosition {
        MariaDbPosition::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn the_highest_of_each_domain_is_kept() {
        assert_eq!(
            position("1-7-20, 0-1-5,0-2-9,\n0-3-8").to_string(),
            "0-2-9,1-7-20"
        );
        assert_eq!(position(" ").to_string(), "");
        assert!(position("").is_empty());
        let max = "4294967295-4294967295-18446744073709551615";
        assert_eq!(position(max).to_string(), max);
    }

    #[test]
    fn the_nearer_of_two_positions_is_what_they_have_in_common() {
        let own = position("0-1-7,1-1-3,2-1-5");
        let theirs = position("0-2-6,1-2-9");
        assert_eq!(own.common(&theirs).to_string(), "0-2-6,1-1-3");
    }

    #[test]
    fn a_position_covers_what_is_before_it_in_every_domain() {
        let here = position("0-1-10,5-1-3");
        for covered in ["", "0-9-10", "0-1-1", "5-1-3,0-1-10"] {
            assert!(here.covers(&position(covered)), "{covered}");
        }
        for missing in ["0-1-11", "1-1-1", "0-1-10,5-1-4", "0-1-1,6-1-1"] {
            assert!(!here.covers(&position(missing)), "{missing}");
        }
    }

    #[test]
    fn who_has_logged_less_of_its_maker_lacks_a_transaction() {
        let wanted = position("0-1-103,5-2-4");
        for (logged, lacks) in [
            ("", false),
            ("0-1-103,0-2-150,5-2-4", false),
            ("0-1-104", false),
            ("0-2-150,5-1-1", false),
            ("0-1-100,0-2-150", true),
            ("0-2-150, 0-1-103,\n5-2-3", true),
        ] {
            assert_eq!(wanted.is_beyond(logged.as_bytes()), Ok(lacks), "{logged}");
        }
        assert!(wanted.is_beyond(b"0-1").is_err());
    }

    #[test]
    fn a_merged_position_is_the_farther_one_in_every_domain() {
        let mut merged = position("0-1-10,5-1-3");
        merged.merge(&position("0-2-9,5-2-4,7-1-1")).unwrap();
        assert_eq!(merged, position("0-1-10,5-2-4,7-1-1"));
    }

    #[test]
    fn what_is_no_gtid_is_refused() {
        for text in [
            "0-1",
            "0-1-2-3",
            "0-1-",
            "-1-2",
            "a-1-2",
            "0-1-2,",
            ",",
            "0-1-2 0-1-3",
            "0-4294967296-1",
            "0-1-18446744073709551616",
            "0--1-2",
        ] {
            assert!(MariaDbPosition::parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn the_number_of_domains_is_bounded() {
        let many = |from: usize| {
            let gtids: Vec<String> = (from..from + DOMAINS_MAX)
                .map(|domain| format!("{domain}-1-1"))
                .collect();
            gtids.join(",")
        };
        let mut full = position(&many(0));
        assert!(MariaDbPosition::parse(format!("{},99999-1-1", many(0)).as_bytes()).is_err());
        full.merge(&full.clone()).unwrap();
        let before = full.clone();
        assert!(full.merge(&position(&many(1))).is_err());
        assert_eq!(full, before);
    }
}
