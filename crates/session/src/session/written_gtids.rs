//! What a session has written, as one set of GTIDs.
//!
//! The set is kept as text in the form of the servers, for the text is short. The text is parsed once for all
//! reads until the next write. The end of the text is the session's last write. The last transaction alone is
//! not enough to know: a replica that applies in parallel may have the last one and not the one before.
//!
//! The set does not grow with each write. Of each origin so many intervals are kept, and the smallest gaps
//! between them are taken for the session's own: others' transactions that were committed before its last
//! one, which replicas have by then as a rule.

use std::cell::OnceCell;
use std::num::NonZeroU64;
use std::rc::Rc;

use mysql_wire::WireError;
use mysql_wire::gtid::{Flavor, GtidSet};
use serde::{Deserialize, Serialize};
use sql_class::Dialect;

use super::Session;

/// Most intervals that are kept of one origin.
const INTERVALS_MAX: usize = 4;
/// Most origins that are kept: more than primaries that one session sees.
const ORIGINS_MAX: usize = 8;

/// More than can be told. Nobody can read it, and so no position has it.
const TOO_MUCH: &[u8] = b"*";

/// The writes of a session as text, which goes to another process with the session, and as a set.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct WrittenGtids {
    pub(super) text: Box<[u8]>,
    /// Empty until the first read after a write.
    #[serde(skip)]
    set: OnceCell<Result<Rc<GtidSet>, WireError>>,
}

impl Session {
    pub(super) fn set_gtid(&mut self, text: Box<[u8]>) {
        let set = OnceCell::new();
        self.gtid = Some(Box::new(WrittenGtids { text, set }));
    }

    /// The text of [`Session::gtid`] as the set that is compared with those of servers.
    ///
    /// # Errors
    /// The text names too many GTIDs, or is not a list of GTIDs.
    pub fn written(&self) -> Result<Option<&Rc<GtidSet>>, WireError> {
        let Some(WrittenGtids { text, set }) = self.gtid.as_deref() else {
            return Ok(None);
        };
        let set = set.get_or_init(|| GtidSet::parse(self.flavor(), text).map(Rc::new));
        set.as_ref().map(Some).map_err(|error| *error)
    }

    /// The kind of GTIDs that the session's servers report.
    #[must_use]
    pub fn flavor(&self) -> Flavor {
        match self.dialect {
            Dialect::MySql { .. } => Flavor::MySql,
            Dialect::MariaDb { .. } => Flavor::MariaDb,
        }
    }

    /// Of its writes these alone are there: the others were lost with the server that had them, and nobody
    /// will ever have them.
    pub fn keep_gtids(&mut self, kept: &[u8]) {
        // Some, be there none: the server reports its writes.
        self.set_gtid(kept.into());
    }

    /// The answer to something that it may have written was lost. What its later writes were reported as does
    /// not tell who has that.
    #[must_use]
    pub fn has_lost_writes(&self) -> bool {
        self.lost_writes
    }

    /// Its last write alone, of what [`Session::gtid`] gives. `None` where that cannot be told.
    #[must_use]
    pub fn last_gtid(&self) -> Option<Vec<u8>> {
        last_of(self.gtid()?)
    }
}

/// Which transaction a MariaDB connection has told as its last. It tells one again with other things that are
/// set there, and that one may be another session's, and older than what this one has written elsewhere: it
/// is a new one only where it is another than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LastGtid(Option<NonZeroU64>);

/// What a report of a GTID is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Report {
    New,
    /// The same as before, or none at all.
    Old,
    /// The connection had written what nobody has looked at.
    Unclear,
}

impl LastGtid {
    /// None yet.
    pub(super) const NONE: Self = Self(None);
    /// Something was written whose report nobody has read.
    pub(super) const UNKNOWN: Self = Self(Some(NonZeroU64::MAX));

    pub(super) fn note(&mut self, gtid: &[u8]) -> Report {
        let Some(told) = folded(gtid) else {
            return Report::Old;
        };
        match std::mem::replace(self, Self(Some(told))) {
            before if before == *self => Report::Old,
            Self::UNKNOWN => Report::Unclear,
            _ => Report::New,
        }
    }
}

impl Report {
    /// `may_repeat`: with a statement that usually writes nothing.
    pub(super) fn is_news(self, may_repeat: bool) -> bool {
        self == Self::New || self == Self::Unclear && !may_repeat
    }
}

/// A position of MariaDB has this transaction's domain, and what was written there last is beyond it.
pub(super) fn is_beyond(known: Option<&[u8]>, gtid: &[u8]) -> bool {
    let of_domain = |known: &&[u8]| domain(known) == domain(gtid);
    let last = gtids(known.unwrap_or_default()).filter(of_domain).last();
    last.is_some_and(|last| number(last) > number(gtid))
}

/// Domain and number of one GTID in one word. Two that a connection tells one after the other are as good as
/// never the same: in a domain numbers grow.
fn folded(gtid: &[u8]) -> Option<NonZeroU64> {
    let mut parts = str::from_utf8(gtid).ok()?.split('-');
    let domain: u32 = parts.next()?.parse().ok()?;
    let _server: u32 = parts.next()?.parse().ok()?;
    let number: u64 = parts.next()?.parse().ok()?;
    let folded = number ^ u64::from(domain).rotate_right(32);
    parts
        .next()
        .is_none()
        .then(|| NonZeroU64::new(folded).unwrap_or(NonZeroU64::MIN))
}

/// What was known, and what was written last: a GTID, or a set of them.
pub(super) fn with(known: Option<&[u8]>, last: &[u8]) -> Box<[u8]> {
    match known {
        None | Some([]) => last.into(),
        Some(known) => merged(known, last).unwrap_or_else(|| TOO_MUCH.into()),
    }
}

fn merged(known: &[u8], last: &[u8]) -> Option<Box<[u8]>> {
    if known == TOO_MUCH {
        return None;
    }
    if !last.contains(&b':') {
        return positions(known, last);
    }
    if let Some(next) = next_in_line(known, last) {
        return Some(next);
    }
    let mut origins = Vec::new();
    read(known, &mut origins)?;
    let number = read(last, &mut origins)?;
    (origins.len() <= ORIGINS_MAX).then(|| write(&origins, number))
}

/// MariaDB: in a domain transactions are applied in their order, and the last one stands for those before it.
/// A server that is behind gives what is written there a smaller number than the session has from another
/// one, and then both are kept.
fn positions(known: &[u8], last: &[u8]) -> Option<Box<[u8]>> {
    let is_other = |gtid: &&[u8]| {
        let stands_for_it = |new: &[u8]| domain(new) == domain(gtid) && number(new) >= number(gtid);
        !gtids(last).any(stands_for_it)
    };
    let others = gtids(known).filter(is_other).count();
    if others == 0 {
        return Some(last.into());
    }
    let all: Vec<&[u8]> = gtids(known).filter(is_other).chain([last]).collect();
    (others < ORIGINS_MAX).then(|| all.join(&b","[..]).into())
}

fn gtids(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

fn domain(gtid: &[u8]) -> Option<&[u8]> {
    gtid.split(|&byte| byte == b'-').next()
}

/// The number of one GTID of MariaDB.
fn number(gtid: &[u8]) -> Option<u64> {
    let text = gtid.rsplit(|&byte| byte == b'-').next()?;
    str::from_utf8(text).ok()?.parse().ok()
}

/// The usual case: one interval, and the number that comes after it.
fn next_in_line(known: &[u8], last: &[u8]) -> Option<Box<[u8]>> {
    let split = |text: &[u8]| text.iter().rposition(|&byte| byte == b':');
    let (at, at_last) = (split(known)?, split(last)?);
    if known[..at] != last[..at_last] {
        return None;
    }
    let (first, end) = interval(&known[at + 1..])?;
    let (number, number_end) = interval(&last[at_last + 1..])?;
    if Some(number) != end.checked_add(1) {
        return None;
    }
    let mut text = Vec::with_capacity(known.len() + 1 + last.len() - at_last);
    text.extend_from_slice(&known[..at]);
    text.extend_from_slice(format!(":{first}-{number_end}").as_bytes());
    Some(text.into())
}

/// Where transactions come from.
struct Origin<'t> {
    uuid: &'t [u8],
    /// Empty for none.
    tag: &'t [u8],
    /// In order, with gaps between them.
    intervals: Vec<(u64, u64)>,
}

/// Adds a set. The origin that it names last is the last then; gives back its last number.
fn read<'t>(text: &'t [u8], origins: &mut Vec<Origin<'t>>) -> Option<u64> {
    let mut number = None;
    for set in text.split(|&byte| byte == b',') {
        let mut parts = set.split(|&byte| byte == b':').map(<[u8]>::trim_ascii);
        let uuid = parts.next()?;
        let mut tag: &[u8] = b"";
        for part in parts {
            if !part.first()?.is_ascii_digit() {
                tag = part;
                continue;
            }
            let interval = interval(part)?;
            number = Some(interval.1);
            let known = origins
                .iter()
                .position(|origin| (origin.uuid, origin.tag) == (uuid, tag));
            let mut origin = match known {
                Some(at) => origins.remove(at),
                None => Origin {
                    uuid,
                    tag,
                    intervals: Vec::with_capacity(INTERVALS_MAX + 1),
                },
            };
            insert(&mut origin.intervals, interval);
            origins.push(origin);
        }
    }
    number
}

fn insert(intervals: &mut Vec<(u64, u64)>, new: (u64, u64)) {
    intervals.push(new);
    intervals.sort_unstable();
    intervals.dedup_by(|next, kept| {
        let touches = next.0 <= kept.1.saturating_add(1);
        if touches {
            kept.1 = kept.1.max(next.1);
        }
        touches
    });
    while intervals.len() > INTERVALS_MAX {
        let gap = |at: &usize| intervals[at + 1].0 - intervals[*at].1;
        let Some(at) = (0..intervals.len() - 1).min_by_key(gap) else {
            return;
        };
        intervals[at].1 = intervals[at + 1].1;
        intervals.remove(at + 1);
    }
}

fn write(origins: &[Origin<'_>], number: u64) -> Box<[u8]> {
    let mut text = Vec::new();
    let name = |text: &mut Vec<u8>, origin: &Origin<'_>| {
        if !text.is_empty() {
            text.push(b',');
        }
        text.extend_from_slice(origin.uuid);
        if !origin.tag.is_empty() {
            text.push(b':');
            text.extend_from_slice(origin.tag);
        }
    };
    for origin in origins {
        name(&mut text, origin);
        for &(first, last) in &origin.intervals {
            let interval = match first == last {
                true => format!(":{first}"),
                false => format!(":{first}-{last}"),
            };
            text.extend_from_slice(interval.as_bytes());
        }
    }
    if let Some(origin) = origins.last()
        && origin.intervals.last().is_none_or(|(_, last)| *last != number)
    {
        name(&mut text, origin);
        text.extend_from_slice(format!(":{number}").as_bytes());
    }
    text.into()
}

fn last_of(text: &[u8]) -> Option<Vec<u8>> {
    if text == TOO_MUCH {
        return None;
    }
    let last = text.rsplit(|&byte| byte == b',').next()?;
    if !text.contains(&b':') {
        return Some(last.into());
    }
    let mut origins = Vec::new();
    let number = read(last, &mut origins)?;
    let mut origin = origins.pop()?;
    origin.intervals = vec![(number, number)];
    Some(write(&[origin], number).into())
}

/// A number, or the first and the last one with a `-` between them.
fn interval(text: &[u8]) -> Option<(u64, u64)> {
    let number = |digits: &[u8]| str::from_utf8(digits).ok()?.parse::<u64>().ok();
    let mut ends = text.splitn(2, |&byte| byte == b'-');
    let first = number(ends.next()?)?;
    let last = match ends.next() {
        Some(last) => number(last)?,
        None => first,
    };
    (first <= last).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use mysql_wire::gtid::MySqlSet;
    use proptest::prelude::*;

    use super::*;

    const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    const B: &str = "4e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn long(text: &str) -> String {
        text.replace('A', A).replace('B', B)
    }

    /// What is known after all of these, and the last of it.
    fn after(reports: &[&str]) -> (String, Option<String>) {
        let mut known: Option<Box<[u8]>> = None;
        for report in reports {
            known = Some(with(known.as_deref(), long(report).as_bytes()));
        }
        let text = known.unwrap();
        let short = |text: &[u8]| String::from_utf8_lossy(text).replace(A, "A").replace(B, "B");
        (short(&text), last_of(&text).map(|last| short(&last)))
    }

    #[test]
    fn writes_are_kept_together() {
        for (reports, set, last) in [
            (&["A:56"][..], "A:56", "A:56"),
            (&["A:56", "A:57"], "A:56-57", "A:57"),
            (&["A:56", "A:57", "A:58", "A:58"], "A:56-58", "A:58"),
            (&["A:56", "A:57-59"], "A:56-59", "A:59"),
            (&["A:56", "A:60", "A:57"], "A:56-57:60,A:57", "A:57"),
            (&["A:56", "A:60", "A:57", "A:61"], "A:56-57:60-61", "A:61"),
            (&["A:1", "B:7", "B:8"], "A:1,B:7-8", "B:8"),
            (&["A:1", "B:7", "A:2"], "B:7,A:1-2", "A:2"),
            (&["A:1", "A:tag:1", "A:tag:2"], "A:1,A:tag:1-2", "A:tag:2"),
            (&["A:1:3:tag:5,\nB:9", "B:10"], "A:1:3,A:tag:5,B:9-10", "B:10"),
            (&["0-1-7", "0-1-9"], "0-1-9", "0-1-9"),
            (&["0-1-7", "1-2-3", "0-2-8"], "1-2-3,0-2-8", "0-2-8"),
            (&["0-1-150", "0-3-120"], "0-1-150,0-3-120", "0-3-120"),
            (&["0-1-150", "0-3-120", "0-3-121"], "0-1-150,0-3-121", "0-3-121"),
            (&["0-1-150", "0-3-120", "0-1-151"], "0-1-151", "0-1-151"),
        ] {
            let expected = (set.to_owned(), Some(last.to_owned()));
            assert_eq!(after(reports), expected, "{reports:?}");
        }
    }

    #[test]
    fn a_connection_tells_a_transaction_again() {
        use Report::{New, Old, Unclear};
        let mut there = LastGtid::NONE;
        for (told, report) in [
            ("", Old),
            ("0-1-7", New),
            ("0-1-7", Old),
            ("0-1-8", New),
            ("1-1-8", New),
            ("", Old),
            ("1-1-8", Old),
            ("7", Old),
            ("0-1", Old),
            ("0-1-9-2", Old),
            ("0-1-x", Old),
            ("0-1-9,1-1-1", Old),
            ("0-1-9", New),
        ] {
            assert_eq!(there.note(told.as_bytes()), report, "{told}");
        }
        there = LastGtid::UNKNOWN;
        assert_eq!(there.note(b""), Old);
        assert_eq!(there.note(b"0-1-9"), Unclear);
        assert_eq!(there.note(b"0-1-9"), Old);
        assert!(Unclear.is_news(false) && !Unclear.is_news(true) && New.is_news(true));
        let known = Some(&b"1-2-3,0-2-8"[..]);
        assert!(is_beyond(known, b"0-1-7") && is_beyond(known, b"1-1-2"));
        assert!(!is_beyond(known, b"0-1-8") && !is_beyond(known, b"0-1-10") && !is_beyond(known, b"2-1-1"));
        assert!(!is_beyond(None, b"0-1-1"));
        let of_two = Some(&b"0-1-150,0-3-120"[..]);
        assert!(!is_beyond(of_two, b"0-3-121") && is_beyond(of_two, b"0-3-119"));
    }

    #[test]
    fn after_all_was_lost_it_begins_anew() {
        for last in [A, "0-1-7"] {
            let last = if last == A { long("A:7") } else { last.to_owned() };
            assert_eq!(*with(Some(b""), last.as_bytes()), *last.as_bytes());
        }
    }

    #[test]
    fn the_smallest_gaps_are_filled_where_there_are_too_many() {
        let reports = ["A:10", "A:20", "A:1000000", "A:40", "A:43", "A:41"];
        assert_eq!(after(&reports).0, "A:10:20:40-43:1000000,A:41");
        assert_eq!(
            after(&["A:10", "A:20", "A:50", "A:90", "A:95"]).0,
            "A:10:20:50:90-95"
        );
    }

    #[test]
    fn too_much_is_never_forgotten() {
        let mut reports: Vec<String> = (0..=ORIGINS_MAX).map(|at| format!("A:t{at}:1")).collect();
        let all = |reports: &[String]| after(&reports.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(all(&reports), ("*".to_owned(), None));
        reports.push("A:1".to_owned());
        assert_eq!(all(&reports), ("*".to_owned(), None));
        assert!(MySqlSet::parse(TOO_MUCH).is_err());
        assert_eq!(
            after(&["A:1", "A:x:y"]).0,
            "*",
            "what cannot be read may be anything"
        );
        let domains: Vec<String> = (0..=ORIGINS_MAX).map(|at| format!("{at}-1-1")).collect();
        assert_eq!(all(&domains).0, "*");
    }

    proptest! {
        #[test]
        fn all_that_was_written_is_there_and_it_stays_small(
            writes in proptest::collection::vec((any::<bool>(), 1..60_u64), 1..60),
        ) {
            let mut known: Option<Box<[u8]>> = None;
            let mut written = MySqlSet::default();
            let mut origins = BTreeSet::new();
            for (is_a, number) in writes {
                let gtid = format!("{}:{number}", if is_a { A } else { B });
                known = Some(with(known.as_deref(), gtid.as_bytes()));
                written.merge(&MySqlSet::parse(gtid.as_bytes()).unwrap()).unwrap();
                origins.insert(is_a);
                let text = known.as_deref().unwrap();
                prop_assert!(MySqlSet::parse(text).unwrap().covers(&written));
                prop_assert!(text.len() <= (origins.len() + 1) * A.len() + 2 * 6 * INTERVALS_MAX + 8);
                prop_assert_eq!(last_of(text), Some(gtid.into_bytes()));
            }
        }
    }
}
