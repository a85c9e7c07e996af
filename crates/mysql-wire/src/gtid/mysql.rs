//! MySQL: `uuid:1-5:7`, and since 8.3 `uuid:tag:1-5`: intervals of numbers, for each server and tag that they
//! came from.
//!
//! Source: MySQL "GTID Sets"; `sql/rpl_gtid_set.cc` for what is accepted.

use std::fmt;

use super::number;
use crate::WireError;

/// More gaps than a healthy cluster has by far.
pub const INTERVALS_MAX: usize = 1 << 16;
/// The highest number that a transaction can have.
const NUMBER_MAX: u64 = i64::MAX as u64 - 1;
/// Characters of a tag.
const TAG_MAX: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MySqlSet {
    /// In the order of their origins, each once, none empty.
    sources: Vec<Source>,
    /// Of all sources.
    intervals: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Source {
    origin: Origin,
    /// In order, with gaps between them.
    intervals: Vec<Interval>,
}

/// Where transactions come from. The tag is empty for none, which is first in order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Origin {
    uuid: [u8; 16],
    tag: Box<str>,
}

/// From the first number to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Interval {
    first: u64,
    last: u64,
}

impl MySqlSet {
    /// Reads a set; white space may be between its parts.
    pub fn parse(text: &[u8]) -> Result<MySqlSet, WireError> {
        let mut set = MySqlSet::default();
        for source in text.split(|&byte| byte == b',') {
            if !source.trim_ascii().is_empty() {
                set.read_source(source)?;
            }
        }
        Ok(set)
    }

    /// `uuid`, then tags, each with its intervals behind it.
    fn read_source(&mut self, text: &[u8]) -> Result<(), WireError> {
        const MALFORMED: WireError = WireError::Invalid { field: "GTID set" };
        let mut parts = text.split(|&byte| byte == b':').map(<[u8]>::trim_ascii);
        let uuid = parts.next().and_then(parse_uuid).ok_or(MALFORMED)?;
        let mut origin = Origin {
            uuid,
            tag: Box::default(),
        };
        // What was read last is no tag without its intervals.
        let mut is_complete = false;
        for part in parts {
            if let Some(tag) = parse_tag(part) {
                if !is_complete && !origin.tag.is_empty() {
                    return Err(MALFORMED);
                }
                origin.tag = tag;
                is_complete = false;
                continue;
            }
            is_complete = true;
            if let Some(interval) = Interval::parse(part).ok_or(MALFORMED)? {
                self.insert(&origin, &[interval]);
                if self.intervals > INTERVALS_MAX {
                    return Err(Self::TOO_LARGE);
                }
            }
        }
        is_complete.then_some(()).ok_or(MALFORMED)
    }

    const TOO_LARGE: WireError = WireError::Invalid {
        field: "number of intervals in a GTID set",
    };

    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// All of `other` is here.
    pub fn covers(&self, other: &MySqlSet) -> bool {
        other.sources.iter().all(|want| {
            let own = self.find(&want.origin);
            own.is_some_and(|own| own.covers(want))
        })
    }

    /// This transaction is here. The tag is as servers write it, empty for none.
    #[must_use]
    pub fn contains(&self, uuid: [u8; 16], tag: &str, number: u64) -> bool {
        let place = self
            .sources
            .binary_search_by(|source| (source.origin.uuid, &*source.origin.tag).cmp(&(uuid, tag)));
        let interval = Interval {
            first: number,
            last: number,
        };
        let source = place.ok().and_then(|index| self.sources.get(index));
        source.is_some_and(|source| source.has(interval))
    }

    /// What is in both.
    #[must_use]
    pub fn common(&self, other: &MySqlSet) -> MySqlSet {
        let mut common = MySqlSet::default();
        for source in &self.sources {
            let Some(theirs) = other.find(&source.origin) else {
                continue;
            };
            let intervals = source.common(theirs);
            if !intervals.is_empty() {
                common.insert(&source.origin, &intervals);
            }
        }
        common
    }

    /// Adds all of `other`.
    ///
    /// # Errors
    /// There would be too many intervals. This set is as it was.
    pub fn merge(&mut self, other: &MySqlSet) -> Result<(), WireError> {
        if self.intervals + other.intervals > INTERVALS_MAX {
            let mut merged = self.clone();
            merged.insert_all(other);
            if merged.intervals > INTERVALS_MAX {
                return Err(Self::TOO_LARGE);
            }
            *self = merged;
        } else {
            self.insert_all(other);
        }
        Ok(())
    }

    /// Adds one transaction. The tag is empty for none.
    ///
    /// # Errors
    /// There is no such number or tag, or there would be too many intervals.
    pub fn add(&mut self, uuid: [u8; 16], tag: &str, number: u64) -> Result<(), WireError> {
        const INVALID: WireError = WireError::Invalid { field: "GTID" };
        let tag = match tag {
            "" => Box::default(),
            tag => parse_tag(tag.as_bytes()).ok_or(INVALID)?,
        };
        if number == 0 || number > NUMBER_MAX {
            return Err(INVALID);
        }
        if self.intervals >= INTERVALS_MAX {
            return Err(Self::TOO_LARGE);
        }
        let interval = Interval {
            first: number,
            last: number,
        };
        self.insert(&Origin { uuid, tag }, &[interval]);
        Ok(())
    }

    /// As COM_BINLOG_DUMP_GTID wants it: the number of origins, and for each its UUID, the number of its
    /// intervals, and the first number of each and the one after its last. Where there are tags, each origin
    /// has one behind its UUID, and the first number says so in its lowest and its highest byte.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        const TAGGED: u64 = 1 << 56 | 1;
        let count = self.sources.len() as u64;
        let has_tags = self.sources.iter().any(|source| !source.origin.tag.is_empty());
        let head = if has_tags { TAGGED | count << 8 } else { count };
        out.extend_from_slice(&head.to_le_bytes());
        for Source { origin, intervals } in &self.sources {
            out.extend_from_slice(&origin.uuid);
            if has_tags {
                out.push((origin.tag.len() as u8) << 1);
                out.extend_from_slice(origin.tag.as_bytes());
            }
            out.extend_from_slice(&(intervals.len() as u64).to_le_bytes());
            for interval in intervals {
                out.extend_from_slice(&interval.first.to_le_bytes());
                out.extend_from_slice(&(interval.last + 1).to_le_bytes());
            }
        }
    }

    fn insert_all(&mut self, other: &MySqlSet) {
        for source in &other.sources {
            self.insert(&source.origin, &source.intervals);
        }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "a source was found at this index, or has just been put there"
    )]
    fn insert(&mut self, origin: &Origin, intervals: &[Interval]) {
        let index = self.place(origin).unwrap_or_else(|index| {
            let source = Source {
                origin: origin.clone(),
                intervals: Vec::new(),
            };
            self.sources.insert(index, source);
            index
        });
        let source = &mut self.sources[index];
        let before = source.intervals.len();
        intervals.iter().for_each(|&interval| source.insert(interval));
        self.intervals = self.intervals - before + source.intervals.len();
    }

    fn find(&self, origin: &Origin) -> Option<&Source> {
        self.sources.get(self.place(origin).ok()?)
    }

    fn place(&self, origin: &Origin) -> Result<usize, usize> {
        self.sources.binary_search_by(|source| source.origin.cmp(origin))
    }
}

impl Source {
    fn common(&self, other: &Source) -> Vec<Interval> {
        let mut common = Vec::new();
        let (mut own, mut theirs) = (self.intervals.iter(), other.intervals.iter());
        let (mut next_own, mut next_theirs) = (own.next(), theirs.next());
        while let (Some(one), Some(another)) = (next_own, next_theirs) {
            let (first, last) = (one.first.max(another.first), one.last.min(another.last));
            if first <= last {
                common.push(Interval { first, last });
            }
            match one.last < another.last {
                true => next_own = own.next(),
                false => next_theirs = theirs.next(),
            }
        }
        common
    }

    fn covers(&self, want: &Source) -> bool {
        want.intervals.iter().all(|&want| self.has(want))
    }

    fn has(&self, want: Interval) -> bool {
        let index = self.intervals.partition_point(|have| have.last < want.first);
        let have = self.intervals.get(index);
        have.is_some_and(|have| have.first <= want.first && want.last <= have.last)
    }

    /// Joins the interval with those that it touches.
    #[expect(
        clippy::indexing_slicing,
        reason = "an interval that ends before this one also begins before it: `from` is not over `to`"
    )]
    fn insert(&mut self, interval: Interval) {
        let from = self
            .intervals
            .partition_point(|known| known.last + 1 < interval.first);
        let to = self
            .intervals
            .partition_point(|known| known.first <= interval.last + 1);
        let touched = &self.intervals[from..to];
        let joined = Interval {
            first: touched
                .first()
                .map_or(interval.first, |known| known.first.min(interval.first)),
            last: touched
                .last()
                .map_or(interval.last, |known| known.last.max(interval.last)),
        };
        self.intervals.splice(from..to, [joined]);
    }
}

impl Interval {
    /// `first-last` or a single number; `Some(None)` where the last comes before the first, which servers
    /// take for no transactions at all.
    fn parse(text: &[u8]) -> Option<Option<Interval>> {
        let mut ends = text.splitn(2, |&byte| byte == b'-').map(<[u8]>::trim_ascii);
        let first = number(ends.next()?, NUMBER_MAX).filter(|&first| first > 0)?;
        let last = match ends.next() {
            Some(last) => number(last, NUMBER_MAX)?,
            None => first,
        };
        Some((first <= last).then_some(Interval { first, last }))
    }
}

/// 32 hexadecimal digits, with or without dashes in their four places.
pub(crate) fn parse_uuid(text: &[u8]) -> Option<[u8; 16]> {
    const DASHES: [usize; 4] = [8, 13, 18, 23];
    let has_dashes = text.len() == 36 && DASHES.iter().all(|&at| text.get(at) == Some(&b'-'));
    if !has_dashes && text.len() != 32 {
        return None;
    }
    let mut digits = text
        .iter()
        .enumerate()
        .filter(|(at, _)| !has_dashes || !DASHES.contains(at))
        .map(|(_, &digit)| (digit as char).to_digit(16));
    let mut uuid = [0; 16];
    for byte in &mut uuid {
        *byte = (digits.next()?? << 4 | digits.next()??) as u8;
    }
    Some(uuid)
}

/// A letter or `_`, then letters, digits and `_`. Case does not matter.
fn parse_tag(text: &[u8]) -> Option<Box<str>> {
    let starts = text
        .first()
        .is_some_and(|&byte| byte.is_ascii_alphabetic() || byte == b'_');
    let is_tag = text
        .iter()
        .all(|&byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !starts || !is_tag || text.len() > TAG_MAX {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?;
    Some(text.to_ascii_lowercase().into_boxed_str())
}

impl fmt::Display for MySqlSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut known: Option<&[u8; 16]> = None;
        for Source { origin, intervals } in &self.sources {
            if known != Some(&origin.uuid) {
                f.write_str(if known.is_some() { "," } else { "" })?;
                fmt_uuid(&origin.uuid, f)?;
                known = Some(&origin.uuid);
            }
            if !origin.tag.is_empty() {
                write!(f, ":{}", origin.tag)?;
            }
            for &Interval { first, last } in intervals {
                write!(f, ":{first}")?;
                if first < last {
                    write!(f, "-{last}")?;
                }
            }
        }
        Ok(())
    }
}

fn fmt_uuid(uuid: &[u8; 16], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (index, byte) in uuid.iter().enumerate() {
        let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
        write!(f, "{dash}{byte:02x}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    const B: &str = "4e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn set(text: &str) -> MySqlSet {
        let text = text.replace('A', A).replace('B', B);
        MySqlSet::parse(text.as_bytes()).unwrap()
    }

    fn text(set: &MySqlSet) -> String {
        set.to_string().replace(A, "A").replace(B, "B")
    }

    #[test]
    fn one_transaction_is_in_a_set_or_not() {
        let set = set("A:2-4:7,B:x:5");
        let [a, b] = [A, B].map(|uuid| parse_uuid(uuid.as_bytes()).unwrap());
        let found: Vec<u64> = (1..=8).filter(|&number| set.contains(a, "", number)).collect();
        assert_eq!(found, [2, 3, 4, 7]);
        assert!(set.contains(b, "x", 5) && !set.contains(b, "", 5) && !set.contains(a, "x", 2));
    }

    #[test]
    fn two_sets_have_in_common_what_is_in_both() {
        for (one, another, common) in [
            ("A:1-5:8:10-20", "A:4-9:12:14-30,B:3", "A:4-5:8:12:14-20"),
            ("A:1-5,B:3", "A:6-9,B:x:3", ""),
            ("A:7,B:x:1-3", "A:1-9,B:x:2-9", "A:7,B:x:2-3"),
            ("", "A:1", ""),
        ] {
            for (one, another) in [(one, another), (another, one)] {
                assert_eq!(
                    text(&set(one).common(&set(another))),
                    common,
                    "{one} and {another}"
                );
            }
        }
    }

    #[test]
    fn sets_are_written_as_servers_write_them() {
        for (read, written) in [
            ("", ""),
            (" \n, ", ""),
            ("A:5", "A:5"),
            ("B:1-3,\nA:7:1-5", "A:1-5:7,B:1-3"),
            ("A:1:2:3-4:6,A:5", "A:1-6"),
            ("A:tag:1-5:1-3", "A:tag:1-5"),
            ("A:1-3:tag_1:1-5:7:_t:9", "A:1-3:_t:9:tag_1:1-5:7"),
            ("A:Tag:1,A:taG:2", "A:tag:1-2"),
            (" A : 1 - 3 : 5 , B : t : 1 ", "A:1-3:5,B:t:1"),
            ("A:5-3", ""),
            ("A:9223372036854775806", "A:9223372036854775806"),
        ] {
            assert_eq!(text(&set(read)), written, "{read}");
        }
        let upper = A.to_ascii_uppercase().replace('-', "");
        let plain = MySqlSet::parse(format!("{upper}:1").as_bytes()).unwrap();
        assert_eq!(plain, set("A:1"));
    }

    #[test]
    fn a_set_covers_its_subsets_alone() {
        let have = set("A:1-10:20-30:tag:1-5,B:7");
        for covered in [
            "",
            "A:1",
            "A:10:20",
            "A:2-9:25,B:7",
            "A:tag:5",
            "A:1-10:20-30:tag:1-5,B:7",
        ] {
            assert!(have.covers(&set(covered)), "{covered}");
        }
        for missing in [
            "A:11",
            "A:10-20",
            "A:1-11",
            "A:30-31",
            "B:tag:7",
            "B:6",
            "A:tag:6",
            "A:other:1",
        ] {
            assert!(!have.covers(&set(missing)), "{missing}");
        }
    }

    #[test]
    fn what_is_no_set_is_refused() {
        for text in [
            "x",
            "A",
            "A:",
            "A:0",
            "A:1-",
            "A:-1",
            "A:1-2-3",
            "A:tag",
            "A:1:tag",
            "A:tag:tag:1",
            "A:1x",
            "A:t g:1",
            "A:9223372036854775807",
            "A:abcdefghijklmnopqrstuvwxyzabcdefg:1",
            "1:A",
            "A;1",
            "Ax:1",
        ] {
            let text = text.replace('A', A);
            assert!(MySqlSet::parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn the_number_of_intervals_is_bounded() {
        let many = |from: usize| {
            let odd: Vec<String> = (0..INTERVALS_MAX).map(|n| (2 * n + from).to_string()).collect();
            format!("A:{}", odd.join(":"))
        };
        let mut full = set(&many(1));
        assert!(MySqlSet::parse(format!("{},{B}:1", many(1).replace('A', A)).as_bytes()).is_err());
        let before = full.clone();
        assert!(full.merge(&set("B:1")).is_err());
        assert_eq!(full, before);
        full.merge(&set(&many(2))).unwrap();
        assert_eq!(text(&full), format!("A:1-{}", 2 * INTERVALS_MAX));
    }

    type Model = BTreeSet<(bool, u8, u64)>;

    /// The set and the transactions in it, one by one.
    fn any_set() -> impl Strategy<Value = (MySqlSet, Model)> {
        let interval = (any::<bool>(), 0..3_u8, 1..40_u64, 0..6_u64);
        proptest::collection::vec(interval, 0..12).prop_map(|intervals| {
            let (mut text, mut model) = (String::new(), Model::new());
            for (uuid, tag, first, len) in intervals {
                let name = ["", ":a", ":b"][usize::from(tag)];
                let uuid_text = if uuid { A } else { B };
                text += &format!("{uuid_text}{name}:{first}-{},", first + len);
                model.extend((first..=first + len).map(|number| (uuid, tag, number)));
            }
            (MySqlSet::parse(text.as_bytes()).unwrap(), model)
        })
    }

    fn check_invariants(set: &MySqlSet) {
        assert!(set.sources.is_sorted_by(|a, b| a.origin < b.origin));
        for source in &set.sources {
            assert!(!source.intervals.is_empty());
            assert!(
                source
                    .intervals
                    .iter()
                    .all(|interval| interval.first <= interval.last)
            );
            assert!(source.intervals.is_sorted_by(|a, b| a.last + 1 < b.first));
        }
        let intervals: usize = set.sources.iter().map(|source| source.intervals.len()).sum();
        assert_eq!(set.intervals, intervals);
        assert_eq!(MySqlSet::parse(set.to_string().as_bytes()).as_ref(), Ok(set));
    }

    proptest! {
        #[test]
        fn sets_are_sets((mut a, in_a) in any_set(), (b, in_b) in any_set()) {
            check_invariants(&a);
            prop_assert_eq!(a == b, in_a == in_b);
            prop_assert_eq!(a.covers(&b), in_a.is_superset(&in_b));
            prop_assert_eq!(a.is_empty(), in_a.is_empty());
            a.merge(&b).unwrap();
            check_invariants(&a);
            prop_assert!(a.covers(&b));
            let numbers = a.sources.iter().flat_map(|source| &source.intervals);
            let count: u64 = numbers.map(|interval| interval.last - interval.first + 1).sum();
            prop_assert_eq!(count, in_a.union(&in_b).count() as u64);
        }
    }
}
