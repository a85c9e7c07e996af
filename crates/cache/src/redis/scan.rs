//! The commands that look at all rows in memory: `SCAN`, `DBSIZE`, `RANDOMKEY`.

use std::sync::Arc;

use config::MappingKind;
use mysql_wire::binlog::Value;
use resp_wire::{Args, Writer, parse_integer};

use super::glob;
use super::refusal::Refusal;
use super::rows::{Rows, Stop, broken};
use crate::mapping::Mapping;
use crate::store::{Found, MappingId, NotRead};

/// A cursor is the place within a mapping and, in its last bits, which mapping. Some clients keep it in a
/// floating point number, exact up to 2^53. The store's cursors are below 2^48, and their last bits mean
/// nothing unless a mapping has 2^41 buckets. A cursor that is kept over as many copies as there are
/// [slots](MappingId::SLOTS) may begin in the middle of another mapping.
const MAPPING_BITS: u32 = MappingId::SLOTS.ilog2();
const PLACE_SHIFT: u32 = 7;
/// Rows that one call looks at, at most.
const COUNT_MAX: i64 = 10_000;
/// Rows that are looked at before the work is looked at.
const STEP: usize = 16;
/// Bytes of a pattern. No key is longer, and what a pattern costs grows with both.
const PATTERN_MAX: usize = 4096;
/// Work after which scans of one request end early, as scans may.
const WORK_MAX: usize = 4 << 20;
/// What looking at a row takes besides its bytes, and what looking for one does where there are few.
const ROW_WORK: usize = 128;
const GAP_WORK: usize = 512;
/// So many comparisons of a byte of a pattern with one of a key take no longer than reading a byte.
const PATTERN_SHARE: usize = 16;
/// What looking into a bucket takes besides the bytes of its rows, and what choosing among the mappings does,
/// for each.
const BUCKET_WORK: usize = 32;
const CHOICE_WORK: usize = 64;

/// The options of `SCAN` and `HSCAN`.
#[derive(Debug)]
pub(crate) struct Options<'a> {
    cursor: u64,
    pub(crate) pattern: Option<&'a [u8]>,
    count: usize,
    kind: Option<&'a [u8]>,
    pub(crate) no_values: bool,
}

impl<'a> Options<'a> {
    /// From the cursor, which is argument number `at`, on.
    pub(crate) fn parse(args: Args<'a>, at: usize, of_hash: bool) -> Result<Self, Refusal> {
        let cursor = str::from_utf8(args.get(at).unwrap_or_default());
        let cursor = cursor.ok().and_then(|cursor| cursor.parse().ok());
        let mut options = Self {
            cursor: cursor.ok_or(Refusal::Cursor)?,
            pattern: None,
            count: 10,
            kind: None,
            no_values: false,
        };
        let mut rest = args.from(at + 1);
        while let Some(name) = rest.get(0) {
            let value = rest.get(1);
            let taken = match (name.to_ascii_lowercase().as_slice(), value) {
                (b"match", Some(pattern)) => {
                    if pattern.len() > PATTERN_MAX {
                        let text = format!("pattern of more than {PATTERN_MAX} bytes");
                        return Err(Refusal::Other(text));
                    }
                    options.pattern = Some(pattern);
                    2
                }
                (b"count", Some(count)) => {
                    let count = parse_integer(count).ok_or(Refusal::NotAnInteger)?;
                    if count < 1 {
                        return Err(Refusal::Syntax);
                    }
                    options.count = count.min(COUNT_MAX) as usize;
                    2
                }
                (b"type", Some(kind)) if !of_hash => {
                    options.kind = Some(kind);
                    2
                }
                (b"novalues", _) if of_hash => {
                    options.no_values = true;
                    1
                }
                _ => return Err(Refusal::Syntax),
            };
            rest = rest.from(taken);
        }
        Ok(options)
    }
}

/// The mappings that one may look through, in the order of their names, which they keep when they are copied
/// again.
fn readable<'a>(rows: &Rows<'a>) -> Result<Vec<&'a Arc<Mapping>>, Stop> {
    let mut all: Vec<_> = rows.mappings.all().iter().collect();
    all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    if let Some(mapping) = all.iter().find(|mapping| rows.rights.of(mapping).is_none()) {
        return Err(Stop::Right(Arc::clone(mapping)));
    }
    all.retain(|mapping| rows.rights.of(mapping) == Some(true));
    Ok(all)
}

/// `SCAN cursor [MATCH pattern] [COUNT count] [TYPE kind]`: one mapping after the other. Where the cursor's
/// mapping is not there any more, it begins anew: a key may be returned twice, and none is left out that is
/// there all the time.
pub(crate) fn scan(args: Args<'_>, rows: &mut Rows<'_>, out: &mut Writer<'_>) -> Result<(), Stop> {
    let options = Options::parse(args, 1, false)?;
    let mut mappings = readable(rows)?;
    if let Some(prefix) = options.pattern.map(glob::literal_prefix) {
        mappings.retain(|mapping| mapping.keys_may_begin(&prefix));
    }
    if let Some(kind) = options.kind {
        mappings.retain(|mapping| kind.eq_ignore_ascii_case(mapping.kind.word().as_bytes()));
    }
    let slot = options.cursor & ((1 << MAPPING_BITS) - 1);
    let of = |mapping: &Mapping| u64::from(mapping.id.slot());
    let (mut at, mut place) = match mappings.iter().position(|mapping| of(mapping) == slot) {
        Some(at) => (at, options.cursor >> MAPPING_BITS << PLACE_SHIFT),
        None => (0, 0),
    };
    let mut found = Seen::default();
    while let Some(mapping) = mappings.get(at) {
        let step = if rows.work() < WORK_MAX { STEP } else { 1 };
        let left = options.count.saturating_sub(found.looked_at).clamp(1, step);
        place = found.look(mapping, rows, place, left, options.pattern)?;
        if place == 0 {
            at += 1;
        }
        if found.looked_at >= options.count || rows.work() >= WORK_MAX {
            break;
        }
    }
    // No mapping has slot 0.
    let cursor = mappings
        .get(at)
        .map_or(0, |mapping| (place >> PLACE_SHIFT << MAPPING_BITS) | of(mapping));
    out.array(2);
    out.bulk(cursor.to_string().as_bytes());
    out.array(found.keys.len());
    found.keys.iter().for_each(|key| out.bulk(key));
    Ok(())
}

/// `DBSIZE`: the rows in memory.
pub(crate) fn dbsize(rows: &Rows<'_>, out: &mut Writer<'_>) -> Result<(), Stop> {
    let mappings = readable(rows)?;
    let sizes = mappings.iter().filter_map(|mapping| rows.store.len(mapping.id));
    out.integer(sizes.sum::<u64>() as i64);
    Ok(())
}

/// `RANDOMKEY`: some key that has a row in memory, each mapping as likely as it is large.
pub(crate) fn random_key(rows: &mut Rows<'_>, out: &mut Writer<'_>) -> Result<(), Stop> {
    let mappings = readable(rows)?;
    let sizes = mappings
        .iter()
        .map(|mapping| rows.store.len(mapping.id).unwrap_or(0));
    let sizes: Vec<u64> = sizes.collect();
    let mut left = rows.random().checked_rem(sizes.iter().sum()).unwrap_or(0);
    let chosen = mappings.iter().zip(&sizes).find(|(_, size)| {
        let is_here = left < **size;
        left = left.saturating_sub(**size);
        is_here
    });
    let Some((mapping, _)) = chosen else {
        out.null();
        return Ok(());
    };
    rows.spend(ROW_WORK + sizes.len() * CHOICE_WORK)?;
    let (store, random, mut key) = (rows.store, rows.random(), Vec::new());
    let mut spent = Ok(());
    let found = store.random_key(mapping.id, random, &mut key, |bytes| {
        spent = rows.spend(BUCKET_WORK + bytes);
        spent.is_ok()
    });
    match found {
        Found::Row => {
            let key = mapping.redis_key(&key);
            out.bulk(&key.map_err(|error| broken(mapping, &error))?);
            Ok(())
        }
        Found::Busy => Err(Stop::Busy),
        // There is one, and to find it would take too long.
        Found::Missing => Ok(spent?),
        Found::Absent | Found::Closed => {
            out.null();
            Ok(())
        }
    }
}

/// What a scan has come by.
#[derive(Default)]
struct Seen {
    keys: Vec<Vec<u8>>,
    looked_at: usize,
}

impl Seen {
    /// Looks at about `count` rows of a mapping and says where to go on, 0 at its end.
    fn look(
        &mut self,
        mapping: &Mapping,
        rows: &mut Rows<'_>,
        place: u64,
        count: usize,
        pattern: Option<&[u8]>,
    ) -> Result<u64, Stop> {
        let (mut failed, mut bytes, before) = (None, 0, self.looked_at);
        let next = rows.store.scan(mapping.id, place, count, |key, row| {
            self.looked_at += 1;
            bytes += ROW_WORK + key.len() + row.len();
            bytes += pattern.map_or(0, |pattern| pattern.len() * key.len() / PATTERN_SHARE);
            if mapping.kind == MappingKind::String && Value::decode(&mut &*row) == Ok(Value::Null) {
                return;
            }
            match mapping.redis_key(key) {
                Ok(key) if pattern.is_none_or(|pattern| glob::fits(pattern, &key)) => self.keys.push(key),
                Ok(_) => {}
                Err(error) => failed = Some(broken(mapping, &error)),
            }
        });
        let gaps = count.saturating_sub(self.looked_at - before);
        rows.spend(bytes + gaps * GAP_WORK)?;
        match (next, failed) {
            (_, Some(failed)) => Err(failed),
            (Ok(next), None) => Ok(next),
            // It is not served now: it has no rows.
            (Err(NotRead::Closed), None) => Ok(0),
            (Err(NotRead::Busy), None) => Err(Stop::Busy),
        }
    }
}
