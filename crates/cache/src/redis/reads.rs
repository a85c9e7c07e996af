//! The commands that read rows by their keys.

use config::MappingKind;
use mysql_wire::binlog::{Value, Zone, text};
use resp_wire::{Args, Version, Writer, parse_integer};

use super::command::Command;
use super::glob;
use super::refusal::Refusal;
use super::rows::{Rows, Stop, broken};
use super::scan;
use super::server::help;
use crate::mapping::{Column, Mapping};

/// Bytes of one reply.
const REPLY_MAX: usize = 64 << 20;

/// Columns that one HRANDFIELD returns at most.
const FIELDS_MAX: usize = 1 << 20;

const MEMORY_HELP: &[&str] = &[
    "MEMORY <subcommand> [<arg> ...]. Subcommands are:",
    "USAGE <key> [SAMPLES <count>]",
    "    Return the bytes that a row takes in memory, with its share of the index.",
];

const OBJECT_HELP: &[&str] = &[
    "OBJECT <subcommand> [<arg> ...]. Subcommands are:",
    "ENCODING <key>",
    "    Return how Redis would keep a value of this kind.",
    "FREQ <key>, IDLETIME <key>, REFCOUNT <key>",
    "    Return 0, 0 and 1.",
];

/// Executes a command of [`Nature::Read`](super::command::Nature::Read).
///
/// # Errors
/// Part of a reply may have been written.
#[inline]
pub(crate) fn read(
    command: Command,
    args: Args<'_>,
    rows: &mut Rows<'_>,
    out: &mut Writer<'_>,
) -> Result<(), Stop> {
    let zone = rows.zone;
    let mut reading = Reading { rows, zone, out };
    match command {
        Command::Get => reading.get(arg(args, 1)),
        Command::Hget => reading.hget(arg(args, 1), arg(args, 2)),
        Command::Mget => reading.mget(args.from(1)),
        Command::Hmget => reading.hmget(arg(args, 1), args.from(2)),
        Command::Hgetall => reading.columns(arg(args, 1), Parts::Both),
        Command::Hkeys => reading.columns(arg(args, 1), Parts::Names),
        Command::Hvals => reading.columns(arg(args, 1), Parts::Values),
        Command::Hlen => reading.hlen(arg(args, 1)),
        Command::Hexists => reading.hexists(arg(args, 1), arg(args, 2)),
        Command::Hstrlen => reading.hstrlen(arg(args, 1), arg(args, 2)),
        Command::Hrandfield => reading.hrandfield(args),
        Command::Hscan => reading.hscan(args),
        Command::Strlen => reading.strlen(arg(args, 1)),
        Command::Getrange | Command::Substr => reading.getrange(args),
        Command::Exists | Command::Touch => reading.exists(args.from(1)),
        Command::Type => reading.kind(arg(args, 1)),
        Command::Ttl | Command::Pttl | Command::Expiretime | Command::Pexpiretime => {
            reading.ttl(arg(args, 1))
        }
        Command::Memory => reading.memory(args),
        Command::Object => reading.object(args),
        Command::Scan => scan::scan(args, rows, out),
        Command::Dbsize => scan::dbsize(rows, out),
        Command::Randomkey => scan::random_key(rows, out),
        other => Err(Refusal::Other(format!("{} reads nothing", other.spec().name)).into()),
    }
}

fn arg(args: Args<'_>, at: usize) -> &[u8] {
    args.get(at).unwrap_or_default()
}

/// # Errors
/// The reply that begins at `start` has become too large: a client that wants that much at once is told so.
#[inline]
pub(crate) fn check_size(out: &Writer<'_>, start: usize) -> Result<(), Refusal> {
    if out.position() - start > REPLY_MAX {
        return Err(Refusal::ReplyTooLarge(REPLY_MAX));
    }
    Ok(())
}

/// What of a row's columns is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parts {
    Names,
    Values,
    Both,
}

struct Reading<'r, 'a, 'o> {
    rows: &'r mut Rows<'a>,
    zone: Zone,
    out: &'r mut Writer<'o>,
}

impl<'a> Reading<'_, 'a, '_> {
    #[inline]
    fn get(&mut self, key: &[u8]) -> Result<(), Stop> {
        let (mapping, found) = self.rows.find_kind(key, MappingKind::String)?;
        match mapping.values().next().filter(|_| found) {
            Some(column) => {
                let value = first_value(mapping, self.rows.row())?;
                put(&value, column, mapping, self.zone, self.out)
            }
            None => {
                self.out.null();
                Ok(())
            }
        }
    }

    /// A key of another kind is nil here, as in Redis.
    fn mget(&mut self, keys: Args<'_>) -> Result<(), Stop> {
        let start = self.out.position();
        self.out.array(keys.len());
        for key in keys.iter() {
            match self.get(key) {
                Err(Stop::Refused(Refusal::WrongType)) => self.out.null(),
                other => other?,
            }
            check_size(self.out, start)?;
        }
        Ok(())
    }

    #[inline]
    fn hget(&mut self, key: &[u8], name: &[u8]) -> Result<(), Stop> {
        let (mapping, found) = self.rows.find_kind(key, MappingKind::Hash)?;
        self.field(mapping, found, name)
    }

    fn hmget(&mut self, key: &[u8], names: Args<'_>) -> Result<(), Stop> {
        let (mapping, found) = self.rows.find_kind(key, MappingKind::Hash)?;
        let start = self.out.position();
        self.out.array(names.len());
        for name in names.iter() {
            self.field(mapping, found, name)?;
            check_size(self.out, start)?;
        }
        Ok(())
    }

    /// Writes a column of the row that was found.
    fn field(&mut self, mapping: &Mapping, found: bool, name: &[u8]) -> Result<(), Stop> {
        let place = mapping.value_place(name).filter(|_| found);
        match place {
            Some(place) => self.field_at(mapping, place),
            None => {
                self.out.null();
                Ok(())
            }
        }
    }

    fn columns(&mut self, key: &[u8], parts: Parts) -> Result<(), Stop> {
        let (mapping, found) = self.rows.find_kind(key, MappingKind::Hash)?;
        let count = self.count_values(mapping, found, |_| true)?;
        match parts {
            Parts::Both => self.out.map(count),
            Parts::Names | Parts::Values => self.out.array(count),
        }
        if found {
            self.each_value(mapping, |_| true, parts)?;
        }
        Ok(())
    }

    /// How many columns have a value and a name that is wanted.
    fn count_values(
        &self,
        mapping: &Mapping,
        found: bool,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> Result<usize, Stop> {
        let mut count = 0;
        if found {
            for value in values(mapping, self.rows.row()) {
                let (_, column, _) = value?;
                count += usize::from(wanted(column.name.as_bytes()));
            }
        }
        Ok(count)
    }

    /// Writes the columns that have a value and whose name is wanted.
    fn each_value(
        &mut self,
        mapping: &Mapping,
        wanted: impl Fn(&[u8]) -> bool,
        parts: Parts,
    ) -> Result<(), Stop> {
        for value in values(mapping, self.rows.row()) {
            let (_, column, value) = value?;
            let name = column.name.as_bytes();
            if !wanted(name) {
                continue;
            }
            if parts != Parts::Values {
                self.out.bulk(name);
            }
            if parts != Parts::Names {
                put(&value, column, mapping, self.zone, self.out)?;
            }
        }
        Ok(())
    }

    fn hlen(&mut self, key: &[u8]) -> Result<(), Stop> {
        let (mapping, found) = self.rows.find_kind(key, MappingKind::Hash)?;
        let count = self.count_values(mapping, found, |_| true)?;
        self.out.integer(count as i64);
        Ok(())
    }

    fn hexists(&mut self, key: &[u8], name: &[u8]) -> Result<(), Stop> {
        let (mapping, found) = self.rows.find_kind(key, MappingKind::Hash)?;
        let place = mapping.value_place(name).filter(|_| found);
        let exists = match place {
            Some(place) => value_at(mapping, self.rows.row(), place)? != Value::Null,
            None => false,
        };
        self.out.integer(i64::from(exists));
        Ok(())
    }

    fn hstrlen(&mut self, key: &[u8], name: &[u8]) -> Result<(), Stop> {
        let (mapping, found) = self.rows.find_kind(key, MappingKind::Hash)?;
        let mut text = Vec::new();
        if let Some(place) = mapping.value_place(name).filter(|_| found) {
            let value = value_at(mapping, self.rows.row(), place)?;
            self.put_text(mapping, place, &value, &mut text)?;
        }
        self.out.integer(text.len() as i64);
        Ok(())
    }

    /// `HRANDFIELD key [count [WITHVALUES]]`: so many different columns, or with a negative count any, again
    /// and again.
    fn hrandfield(&mut self, args: Args<'_>) -> Result<(), Stop> {
        let count = args
            .get(2)
            .map(|count| parse_integer(count).ok_or(Refusal::NotAnInteger));
        let count = count.transpose()?;
        let with_values = match args.get(3) {
            None => false,
            Some(word) if args.len() == 4 && word.eq_ignore_ascii_case(b"withvalues") => true,
            Some(_) => return Err(Refusal::Syntax.into()),
        };
        let (mapping, found) = self.rows.find_kind(arg(args, 1), MappingKind::Hash)?;
        let mut places = Vec::new();
        if found {
            for value in values(mapping, self.rows.row()) {
                places.push(value?.0);
            }
        }
        let Some(count) = count else {
            match self.rows.random().checked_rem(places.len() as u64) {
                Some(chosen) => self.out.bulk(name_at(mapping, places[chosen as usize])),
                None => self.out.null(),
            }
            return Ok(());
        };
        let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
        let repeats = count < 0 && !places.is_empty();
        let all = if repeats { wanted } else { wanted.min(places.len()) };
        if all > FIELDS_MAX {
            return Err(Refusal::Other(format!(
                "value is out of range, no more than {FIELDS_MAX} at once"
            ))
            .into());
        }
        let start = self.out.position();
        let in_pairs = with_values && self.out.version() == Version::V3;
        self.out
            .array(if with_values && !in_pairs { 2 * all } else { all });
        for at in 0..all {
            let left = if repeats { places.len() } else { places.len() - at };
            let chosen = (self.rows.random() % left as u64) as usize;
            let place = places[chosen];
            if !repeats {
                places.swap(chosen, left - 1);
            }
            // Where a column may come again and again, looking it up may, too.
            let work = self.rows.row().len();
            self.rows.spend(work)?;
            if in_pairs {
                self.out.array(2);
            }
            self.out.bulk(name_at(mapping, place));
            if with_values {
                self.field_at(mapping, place)?;
            }
            check_size(self.out, start)?;
        }
        Ok(())
    }

    fn field_at(&mut self, mapping: &Mapping, place: usize) -> Result<(), Stop> {
        let Some(column) = mapping.values().nth(place) else {
            self.out.null();
            return Ok(());
        };
        let value = value_at(mapping, self.rows.row(), place)?;
        put(&value, column, mapping, self.zone, self.out)
    }

    /// All columns at once, as Redis does with small hashes.
    fn hscan(&mut self, args: Args<'_>) -> Result<(), Stop> {
        let options = scan::Options::parse(args, 2, true)?;
        let (mapping, found) = self.rows.find_kind(arg(args, 1), MappingKind::Hash)?;
        let wanted = |name: &[u8]| options.pattern.is_none_or(|pattern| glob::fits(pattern, name));
        let count = self.count_values(mapping, found, wanted)?;
        self.out.array(2);
        self.out.bulk(b"0");
        let parts = if options.no_values {
            Parts::Names
        } else {
            Parts::Both
        };
        self.out.array(if options.no_values { count } else { 2 * count });
        if found {
            self.each_value(mapping, wanted, parts)?;
        }
        Ok(())
    }

    fn strlen(&mut self, key: &[u8]) -> Result<(), Stop> {
        let text = self.string(key)?;
        self.out.integer(text.len() as i64);
        Ok(())
    }

    fn getrange(&mut self, args: Args<'_>) -> Result<(), Stop> {
        let number = |at| parse_integer(arg(args, at)).ok_or(Refusal::NotAnInteger);
        let (start, end) = (number(2)?, number(3)?);
        let text = self.string(arg(args, 1))?;
        let length = text.len() as i64;
        let backwards = start < 0 && end < 0 && start > end;
        let from_start = |at: i64| {
            if at < 0 {
                at.saturating_add(length).max(0)
            } else {
                at
            }
        };
        let end = from_start(end).saturating_add(1).min(length);
        let start = if backwards {
            end
        } else {
            from_start(start).min(end)
        };
        self.out
            .bulk(text.get(start as usize..end as usize).unwrap_or_default());
        Ok(())
    }

    /// The value of a key, empty where there is none.
    fn string(&mut self, key: &[u8]) -> Result<Vec<u8>, Stop> {
        let (mapping, found) = self.rows.find_kind(key, MappingKind::String)?;
        let mut text = Vec::new();
        if found {
            let value = first_value(mapping, self.rows.row())?;
            self.put_text(mapping, 0, &value, &mut text)?;
        }
        Ok(text)
    }

    fn put_text(
        &self,
        mapping: &Mapping,
        place: usize,
        value: &Value<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        match mapping.values().nth(place) {
            Some(column) if *value != Value::Null => {
                text(value, &column.column_type, self.zone, out).map_err(|error| broken(mapping, &error))
            }
            _ => Ok(()),
        }
    }

    /// Whether a key exists to Redis clients: a string whose value is NULL does not.
    fn there_is(&mut self, key: &[u8]) -> Result<(&'a Mapping, bool), Stop> {
        let (mapping, found) = self.rows.find(key)?;
        let is_null = found
            && mapping.kind == MappingKind::String
            && first_value(mapping, self.rows.row())? == Value::Null;
        Ok((mapping, found && !is_null))
    }

    fn exists(&mut self, keys: Args<'_>) -> Result<(), Stop> {
        let mut count = 0;
        for key in keys.iter() {
            count += i64::from(self.there_is(key)?.1);
        }
        self.out.integer(count);
        Ok(())
    }

    fn kind(&mut self, key: &[u8]) -> Result<(), Stop> {
        let (mapping, exists) = self.there_is(key)?;
        self.out.simple(if exists { mapping.kind.word() } else { "none" });
        Ok(())
    }

    fn ttl(&mut self, key: &[u8]) -> Result<(), Stop> {
        let (_, exists) = self.there_is(key)?;
        self.out.integer(if exists { -1 } else { -2 });
        Ok(())
    }

    fn memory(&mut self, args: Args<'_>) -> Result<(), Stop> {
        let name = arg(args, 1).to_ascii_lowercase();
        match (name.as_slice(), args.len()) {
            (b"usage", 3) => {}
            // All of a row is counted, however much of it was asked for.
            (b"usage", 5) if arg(args, 3).eq_ignore_ascii_case(b"samples") => {
                parse_integer(arg(args, 4)).ok_or(Refusal::NotAnInteger)?;
            }
            (b"usage", 4..) => return Err(Refusal::Syntax.into()),
            (b"help", 2) => {
                help(MEMORY_HELP, self.out);
                return Ok(());
            }
            _ => return Err(Refusal::subcommand("MEMORY", args).into()),
        }
        let (mapping, exists) = self.there_is(arg(args, 2))?;
        if exists {
            self.out.integer(self.rows.row_size(mapping) as i64);
        } else {
            self.out.null();
        }
        Ok(())
    }

    fn object(&mut self, args: Args<'_>) -> Result<(), Stop> {
        let name = arg(args, 1).to_ascii_lowercase();
        let (b"encoding" | b"refcount" | b"idletime" | b"freq", 3) = (name.as_slice(), args.len()) else {
            if matches!((name.as_slice(), args.len()), (b"help", 2)) {
                help(OBJECT_HELP, self.out);
                return Ok(());
            }
            return Err(Refusal::subcommand("OBJECT", args).into());
        };
        let (mapping, exists) = self.there_is(arg(args, 2))?;
        match (exists, name.as_slice(), mapping.kind) {
            (false, ..) => self.out.null(),
            (true, b"encoding", MappingKind::String) => self.out.bulk(b"raw"),
            (true, b"encoding", MappingKind::Hash) => self.out.bulk(b"listpack"),
            (true, b"refcount", _) => self.out.integer(1),
            (true, ..) => self.out.integer(0),
        }
        Ok(())
    }
}

/// Writes a value as a reply.
#[inline]
fn put(
    value: &Value<'_>,
    column: &Column,
    mapping: &Mapping,
    zone: Zone,
    out: &mut Writer<'_>,
) -> Result<(), Stop> {
    if *value == Value::Null {
        out.null();
        return Ok(());
    }
    let written = out.bulk_with(|out| text(value, &column.column_type, zone, out));
    written.map_err(|error| broken(mapping, &error))
}

#[inline]
fn first_value<'v>(mapping: &Mapping, mut row: &'v [u8]) -> Result<Value<'v>, Stop> {
    Value::decode(&mut row).map_err(|error| broken(mapping, &error.into()))
}

fn value_at<'v>(mapping: &Mapping, mut row: &'v [u8], place: usize) -> Result<Value<'v>, Stop> {
    for _ in 0..place {
        Value::skip(&mut row).map_err(|error| broken(mapping, &error.into()))?;
    }
    first_value(mapping, row)
}

/// The columns of a row that have a value, with their places.
fn values<'v>(
    mapping: &'v Mapping,
    mut row: &'v [u8],
) -> impl Iterator<Item = Result<(usize, &'v Column, Value<'v>), Stop>> {
    let columns = mapping.values().enumerate();
    columns.filter_map(move |(place, column)| match Value::decode(&mut row) {
        Ok(Value::Null) => None,
        Ok(value) => Some(Ok((place, column, value))),
        Err(error) => Some(Err(broken(mapping, &error.into()))),
    })
}

fn name_at(mapping: &Mapping, place: usize) -> &[u8] {
    mapping
        .values()
        .nth(place)
        .map_or(&[], |column| column.name.as_bytes())
}
