//! What is kept of a result: two hashes over each column, and over whole rows.
//!
//! The answer is read as its client got it. Values are hashed as they came, but for floating-point numbers,
//! of which six digits count: servers print and compute the others in different ways. The width
//! of binary integers does not count: servers give expressions types of different widths. A result that is
//! not read (cut, without definitions of its columns, too many columns) has no checks, and says so.

use std::fmt::Write as _;

use mysql_wire::statement::PrepareOk;
use mysql_wire::{Capabilities, Command, OkPacket, PacketHeader, StatusFlags, text_values};
use smallvec::SmallVec;

use crate::binary::{self, DOUBLE, FLOAT};
use crate::codec::Senseless;
use crate::hash;
use crate::kept::Kept;
use crate::record::{CHECKS_MAX, Check, Checks};

/// How far the type is from the end of a column's definition.
const TYPE_FROM_END: usize = 6;
/// The flag of a column that is unsigned, in the low byte, which is behind the type.
const UNSIGNED: u8 = 32;
/// The first byte of a text value that is NULL.
const NULL: u8 = 0xfb;

/// What an answer says beyond its figures.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// See [`CommandRecord::checks`](crate::record::CommandRecord::checks).
    pub checks: Checks,
    /// Rows of all results.
    pub rows: u64,
    /// COM_STMT_PREPARE: the statement's number and how many parameters it has.
    pub prepared: Option<(u32, u16)>,
    /// The columns of a prepared statement, whose definitions may be lacking later: of its prepare, or of an
    /// execution's last result, where that had them. None at all where nobody knows which ones the server
    /// will not repeat.
    pub(crate) columns: Option<Box<[Column]>>,
    pub is_whole: bool,
    /// The first rows, where they are to be kept.
    pub(crate) kept: Option<Kept>,
}

/// Reads an answer. `packets`: with their headers. `capabilities`: in which form they are.
#[must_use]
pub fn read(command: Command, capabilities: Capabilities, packets: &[u8]) -> Read {
    read_into(Read::default(), command, capabilities, &[], packets)
}

/// Reads an answer as [`read`] does; there are no packets where the command has none. The last result of an
/// execution may lack its definitions: `known` are its columns then.
pub(crate) fn read_with(
    command: Command,
    capabilities: Capabilities,
    known: &[Column],
    packets: &[u8],
) -> Read {
    let nothing = Read {
        is_whole: packets.is_empty(),
        ..Read::default()
    };
    match packets {
        [] => nothing,
        _ => read_into(nothing, command, capabilities, known, packets),
    }
}

/// Reads an answer as [`read`] does, and keeps the first rows.
pub(crate) fn read_and_keep(command: Command, capabilities: Capabilities, packets: &[u8]) -> Read {
    let read = Read {
        kept: Some(Kept::default()),
        ..Read::default()
    };
    read_into(read, command, capabilities, &[], packets)
}

fn read_into(
    mut read: Read,
    command: Command,
    capabilities: Capabilities,
    known: &[Column],
    packets: &[u8],
) -> Read {
    let mut packets = Packets(packets);
    let result = match command {
        Command::STMT_PREPARE => prepared(&mut packets, capabilities, &mut read),
        Command::QUERY | Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE => {
            let is_binary = command != Command::QUERY;
            let ended = results(&mut packets, capabilities, is_binary, known, &mut read);
            if !matches!(ended, Ok(true)) {
                // The columns may be those of a procedure's result, which a server always repeats.
                read.columns = read.columns.map(|_| Box::default());
            }
            ended.map(|_| ())
        }
        // Rows of a cursor come without definitions.
        Command::STMT_FETCH => Err(Senseless("rows of a cursor")),
        _ => Ok(()),
    };
    read.is_whole = result.is_ok();
    if !read.is_whole {
        read.checks.clear();
    }
    read
}

/// The part of a column's definition that says how its values are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Column {
    kind: u8,
    is_unsigned: bool,
}

/// Payloads of packets, one after the other. One of 16 MiB is none: what belongs to it comes in others.
struct Packets<'a>(&'a [u8]);

impl<'a> Packets<'a> {
    fn next(&mut self) -> Result<&'a [u8], Senseless> {
        const SHORT: Senseless = Senseless("an answer that is cut");
        let header = PacketHeader::parse(self.0).ok_or(SHORT)?;
        if header.is_continued() {
            return Err(Senseless("a packet of 16 MiB"));
        }
        let len = PacketHeader::LEN + header.payload_len;
        let (packet, rest) = self.0.split_at_checked(len).ok_or(SHORT)?;
        self.0 = rest;
        Ok(&packet[PacketHeader::LEN..])
    }
}

fn prepared(packets: &mut Packets<'_>, capabilities: Capabilities, read: &mut Read) -> Result<(), Senseless> {
    let first = packets.next()?;
    if first.first() != Some(&0) {
        return Ok(());
    }
    let ok = PrepareOk::decode(first).map_err(|_| Senseless("answer to a prepare"))?;
    read.prepared = Some((ok.statement_id, ok.parameters));
    if capabilities.contains(Capabilities::MARIADB_CACHE_METADATA) {
        for (count, is_of_result) in [(ok.parameters, false), (ok.columns, true)] {
            let columns = definitions(packets, u64::from(count), &mut None)?;
            if count > 0 && !capabilities.contains(Capabilities::DEPRECATE_EOF) {
                packets.next()?;
            }
            read.columns = is_of_result.then(|| columns.into_boxed_slice());
        }
    }
    Ok(())
}

fn definitions(
    packets: &mut Packets<'_>,
    count: u64,
    kept: &mut Option<Kept>,
) -> Result<SmallVec<[Column; 16]>, Senseless> {
    let mut columns = SmallVec::new();
    for _ in 0..count {
        let end = packets.next()?.last_chunk::<TYPE_FROM_END>();
        let &[kind, flags, ..] = end.ok_or(Senseless("a column's definition"))?;
        if let Some(kept) = kept {
            kept.column(kind, flags);
        }
        columns.push(Column {
            kind,
            is_unsigned: flags & UNSIGNED != 0,
        });
    }
    Ok(columns)
}

/// Reads all results of an answer. False where an error is their end.
fn results(
    packets: &mut Packets<'_>,
    capabilities: Capabilities,
    is_binary: bool,
    known: &[Column],
    read: &mut Read,
) -> Result<bool, Senseless> {
    let status_of = |payload: &[u8]| {
        let ok = OkPacket::decode(payload, capabilities);
        ok.map(|ok| ok.status).map_err(|_| Senseless("an OK packet"))
    };
    loop {
        let first = packets.next()?;
        let status = match first {
            [] => return Err(Senseless("an empty packet")),
            [0, ..] => status_of(first)?,
            [0xff, ..] => return Ok(false),
            [NULL, ..] => return Err(Senseless("a file that the client sends")),
            _ => match rows(packets, first, capabilities, is_binary, known, read)? {
                Some(status) => status,
                None => return Ok(false),
            },
        };
        if !status.contains(StatusFlags::MORE_RESULTS) {
            return Ok(true);
        }
    }
}

/// A result with rows: their status at the end, or `None` where an error is that.
fn rows(
    packets: &mut Packets<'_>,
    first: &[u8],
    capabilities: Capabilities,
    is_binary: bool,
    known: &[Column],
    read: &mut Read,
) -> Result<Option<StatusFlags>, Senseless> {
    let mut first = first;
    let columns = binary::length(&mut first).ok_or(Senseless("count of columns"))?;
    // Whether definitions follow comes behind the count, on both kinds of server.
    let may_lack_definitions =
        Capabilities::OPTIONAL_RESULTSET_METADATA | Capabilities::MARIADB_CACHE_METADATA;
    let lacks_definitions = capabilities.intersects(may_lack_definitions) && first.first() == Some(&0);
    if lacks_definitions && columns != known.len() as u64 {
        return Err(Senseless("a result without definitions"));
    }
    if columns == 0 || columns.saturating_add(1 + read.checks.len() as u64) > CHECKS_MAX as u64 {
        return Err(Senseless("count of columns"));
    }
    if let Some(kept) = &mut read.kept {
        kept.begin();
    }
    let base = read.checks.len();
    let types = match lacks_definitions {
        true => known.into(),
        false => definitions(packets, columns, &mut read.kept)?,
    };
    let may_lack_them_later = is_binary && capabilities.contains(Capabilities::MARIADB_CACHE_METADATA);
    read.columns = (may_lack_them_later && !lacks_definitions).then(|| types[..].into());
    let is_old = !capabilities.contains(Capabilities::DEPRECATE_EOF);
    if is_old {
        let eof = packets.next()?;
        // What comes behind are rows of a cursor, which are fetched.
        if eof.len() != 5 || eof[0] != 0xfe {
            return Err(Senseless("the end of definitions"));
        }
        let status = StatusFlags(u16::from_le_bytes([eof[3], eof[4]]));
        if status.contains(StatusFlags::CURSOR_EXISTS) {
            return Err(Senseless("rows of a cursor"));
        }
    }
    read.checks.resize(base + types.len() + 1, Check::default());
    let mut digits = String::new();
    loop {
        let row = packets.next()?;
        match row {
            [0xff, ..] => return Ok(None),
            [0xfe, ..] if is_old && row.len() == 5 => {
                return Ok(Some(StatusFlags(u16::from_le_bytes([row[3], row[4]]))));
            }
            [0xfe, ..] if !is_old && row.len() < PacketHeader::MAX_PAYLOAD => {
                let ok = OkPacket::decode(row, capabilities).map_err(|_| Senseless("an OK packet"))?;
                if ok.status.contains(StatusFlags::CURSOR_EXISTS) && read.rows == 0 {
                    return Err(Senseless("rows of a cursor"));
                }
                return Ok(Some(ok.status));
            }
            _ => {}
        }
        read.rows += 1;
        if let Some(kept) = &mut read.kept {
            kept.row(row, is_binary);
        }
        let checks = &mut read.checks[base..];
        match is_binary {
            true => binary_row(row, &types, checks, &mut digits)?,
            false => text_row(row, &types, checks, &mut digits)?,
        }
    }
}

fn text_row(
    row: &[u8],
    types: &[Column],
    checks: &mut [Check],
    digits: &mut String,
) -> Result<(), Senseless> {
    let mut values = text_values(row);
    note_row(types, checks, |_, column| {
        let value = values.next()?.ok()?;
        Some(match (value, column.kind) {
            (None, _) => hash::NULL,
            (Some(value), FLOAT | DOUBLE) => {
                let number = str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                number.map_or_else(|| hash::bytes(value), |number| float(number, digits))
            }
            (Some(value), _) => hash::bytes(value),
        })
    })
}

fn binary_row(
    row: &[u8],
    types: &[Column],
    checks: &mut [Check],
    digits: &mut String,
) -> Result<(), Senseless> {
    let nulls = (types.len() + 2).div_ceil(8);
    let bits = row.get(1..1 + nulls).ok_or(Senseless("a row"))?;
    let mut rest = &row[1 + nulls..];
    note_row(types, checks, |index, column| {
        if binary::is_null(bits, index + 2) {
            return Some(hash::NULL);
        }
        let value = binary::take(column.kind, &mut rest)?;
        Some(match (column.kind, value) {
            (1 | 2 | 3 | 8 | 9 | 13, _) => integer(value, column.is_unsigned),
            (FLOAT, &[a, b, c, d]) => float(f64::from(f32::from_le_bytes([a, b, c, d])), digits),
            (DOUBLE, &[a, b, c, d, e, f, g, h]) => {
                float(f64::from_le_bytes([a, b, c, d, e, f, g, h]), digits)
            }
            _ => hash::bytes(value),
        })
    })
}

/// Notes the hash of each value of a row, and that of the row. `next`: the hash of the next value, by its
/// place and its column.
fn note_row(
    types: &[Column],
    checks: &mut [Check],
    mut next: impl FnMut(usize, &Column) -> Option<u64>,
) -> Result<(), Senseless> {
    let mut whole = 0;
    for (index, (column, check)) in types.iter().zip(checks.iter_mut()).enumerate() {
        let hash = next(index, column).ok_or(Senseless("a value"))?;
        note(check, hash);
        whole = hash::chain(whole, hash);
    }
    if let Some(check) = checks.last_mut() {
        note(check, whole);
    }
    Ok(())
}

fn note(check: &mut Check, hash: u64) {
    check.sum = check.sum.wrapping_add(hash);
    check.chain = hash::chain(check.chain, hash);
}

/// An integer of whichever width.
fn integer(bytes: &[u8], is_unsigned: bool) -> u64 {
    let is_negative = !is_unsigned && bytes.last().is_some_and(|last| *last >= 0x80);
    let mut wide = [if is_negative { 0xff } else { 0 }; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    hash::bytes(&wide)
}

/// Six digits of it. The last digits of a sum depend on the order in which it was added up, and would round
/// half a unit of the sixth one, as of 12345.65, up or down: the edge is moved to where no short decimal
/// stands.
fn float(number: f64, digits: &mut String) -> u64 {
    const MOVED: f64 = 1.0 + 1e-9;
    digits.clear();
    // Zero has a sign that nobody sees. Writing to a String cannot fail.
    let _ = write!(digits, "{:.5e}", if number == 0.0 { 0.0 } else { number * MOVED });
    hash::bytes(digits.as_bytes())
}

#[cfg(test)]
mod tests {
    use mysql_wire::write_packet;

    use super::*;

    const MODERN: Capabilities = Capabilities(Capabilities::PROTOCOL_41.0 | Capabilities::DEPRECATE_EOF.0);
    const OLD: Capabilities = Capabilities::PROTOCOL_41;

    fn definition(kind: u8) -> Vec<u8> {
        let mut definition = vec![3, b'd', b'e', b'f', 0, 0, 0, 1, b'c', 0, 12, 45, 0, 0, 0, 0, 0];
        definition.extend_from_slice(&[kind, 0, 0, 0, 0, 0]);
        definition
    }

    fn text(values: &[Option<&str>]) -> Vec<u8> {
        let mut row = Vec::new();
        for value in values {
            match value {
                None => row.push(NULL),
                Some(value) => {
                    row.push(value.len() as u8);
                    row.extend_from_slice(value.as_bytes());
                }
            }
        }
        row
    }

    fn answer(capabilities: Capabilities, types: &[u8], rows: &[Vec<u8>], status: u16) -> Vec<u8> {
        let (mut packets, mut sequence) = (Vec::new(), 1);
        write_packet(&mut packets, &mut sequence, &[types.len() as u8]);
        for kind in types {
            write_packet(&mut packets, &mut sequence, &definition(*kind));
        }
        let [low, high] = status.to_le_bytes();
        let is_old = !capabilities.contains(Capabilities::DEPRECATE_EOF);
        if is_old {
            write_packet(&mut packets, &mut sequence, &[0xfe, 0, 0, low, high]);
        }
        for row in rows {
            write_packet(&mut packets, &mut sequence, row);
        }
        match is_old {
            true => write_packet(&mut packets, &mut sequence, &[0xfe, 0, 0, low, high]),
            false => write_packet(&mut packets, &mut sequence, &[0xfe, 0, 0, low, high, 0, 0]),
        }
        packets
    }

    fn checks(rows: &[&[Option<&str>]]) -> Read {
        let types = vec![253; rows[0].len()];
        let rows: Vec<_> = rows.iter().map(|row| text(row)).collect();
        read(Command::QUERY, MODERN, &answer(MODERN, &types, &rows, 2))
    }

    #[test]
    fn rows_in_another_order_have_the_same_sums_and_other_chains() {
        let one = checks(&[&[Some("1"), Some("a")], &[Some("2"), None]]);
        let other = checks(&[&[Some("2"), None], &[Some("1"), Some("a")]]);
        assert!(one.is_whole && one.rows == 2 && one.checks.len() == 3, "{one:?}");
        for (one, other) in one.checks.iter().zip(&other.checks) {
            assert_eq!(one.sum, other.sum);
            assert_ne!(one.chain, other.chain);
        }
    }

    #[test]
    fn a_count_of_columns_that_nobody_has_is_refused() {
        const COUNT: [u8; 9] = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        let (mut packets, mut sequence) = (Vec::new(), 1);
        write_packet(&mut packets, &mut sequence, &COUNT);
        let read = read(Command::QUERY, MODERN, &packets);
        assert!(!read.is_whole && read.checks.is_empty());
    }

    #[test]
    fn values_that_have_changed_places_between_rows_are_found() {
        let one = checks(&[&[Some("1"), Some("a")], &[Some("2"), Some("b")]]);
        let other = checks(&[&[Some("1"), Some("b")], &[Some("2"), Some("a")]]);
        assert_eq!(one.checks[0].sum, other.checks[0].sum);
        assert_eq!(one.checks[1].sum, other.checks[1].sum);
        assert_ne!(one.checks[2].sum, other.checks[2].sum, "of whole rows");
    }

    #[test]
    fn an_empty_text_is_not_null() {
        assert_ne!(checks(&[&[Some("")]]).checks, checks(&[&[None]]).checks);
    }

    #[test]
    fn six_digits_of_a_float_count() {
        let of = |value: &str| {
            let rows = [text(&[Some(value)])];
            read(Command::QUERY, MODERN, &answer(MODERN, &[DOUBLE], &rows, 2)).checks
        };
        assert_eq!(of("1234567.1"), of("1234567.9"));
        assert_eq!(of("0.1"), of("1e-1"));
        assert_eq!(of("0"), of("-0"));
        assert_ne!(of("1.23456"), of("1.23457"));
    }

    #[test]
    fn the_last_digits_of_a_float_round_no_half() {
        let of = |value: &str| {
            let rows = [text(&[Some(value)])];
            read(Command::QUERY, MODERN, &answer(MODERN, &[DOUBLE], &rows, 2)).checks
        };
        assert_eq!(of("0.1234565"), of("0.12345649999"));
        assert_eq!(of("12345.65"), of("12345.649999999998"));
        assert_eq!(of("-12345.65"), of("-12345.650000000001"));
        assert_eq!(of("12345.65"), of("12345.7"), "up");
    }

    #[test]
    fn a_binary_row_is_read_by_the_types_of_its_columns() {
        // LONG, DOUBLE, VARCHAR, DATETIME, and one that is NULL.
        let types = [3, DOUBLE, 253, 12, 253];
        let mut row = vec![0, 0b0100_0000];
        row.extend_from_slice(&7_i32.to_le_bytes());
        row.extend_from_slice(&1.5_f64.to_le_bytes());
        row.extend_from_slice(b"\x02ab");
        row.extend_from_slice(&[4, 0xea, 7, 11, 27]);
        for capabilities in [MODERN, OLD] {
            let packets = answer(capabilities, &types, std::slice::from_ref(&row), 2);
            let read = read(Command::STMT_EXECUTE, capabilities, &packets);
            assert!(read.is_whole && read.rows == 1, "{read:?}");
            assert_eq!(read.checks[0].sum, hash::bytes(&7_i64.to_le_bytes()));
            assert_eq!(read.checks[2].sum, hash::bytes(b"ab"));
            assert_eq!(read.checks[4].sum, hash::NULL);
        }
    }

    #[test]
    fn the_width_of_a_binary_integer_does_not_count() {
        let of = |kind: u8, flags: u8, value: &[u8]| {
            let mut definition = definition(kind);
            let at = definition.len() - TYPE_FROM_END + 1;
            definition[at] = flags;
            let row = [&[0_u8, 0][..], value].concat();
            let (mut packets, mut sequence) = (Vec::new(), 1);
            for packet in [&[1_u8][..], &definition, &row, &[0xfe, 0, 0, 2, 0, 0, 0]] {
                write_packet(&mut packets, &mut sequence, packet);
            }
            let read = read(Command::STMT_EXECUTE, MODERN, &packets);
            assert!(read.is_whole && read.rows == 1, "{read:?}");
            read.checks
        };
        let big = |number: i64| of(8, 0, &number.to_le_bytes());
        for number in [-7_i8, 0, 7] {
            assert_eq!(of(1, 0, &number.to_le_bytes()), big(i64::from(number)));
            assert_eq!(of(2, 0, &i16::from(number).to_le_bytes()), big(i64::from(number)));
            assert_eq!(of(3, 0, &i32::from(number).to_le_bytes()), big(i64::from(number)));
        }
        assert_eq!(of(1, UNSIGNED, &[200]), big(200));
        assert_ne!(of(1, 0, &[200]), big(200));
    }

    #[test]
    fn rows_that_are_kept_are_checked_as_others_are() {
        let rows = [text(&[Some("a"), None]), text(&[Some("b"), Some("c")])];
        for capabilities in [MODERN, OLD] {
            let packets = answer(capabilities, &[253, 253], &rows, 2);
            let mut kept = read_and_keep(Command::QUERY, capabilities, &packets);
            let text = kept.kept.take().unwrap().text(kept.is_whole);
            assert_eq!(text.as_deref(), Some("a\t\\N\nb\tc\n"));
            assert_eq!(kept, read(Command::QUERY, capabilities, &packets));
        }
        let ok = [7, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0];
        let kept = read_and_keep(Command::QUERY, MODERN, &ok);
        assert_eq!(kept.kept.unwrap().text(kept.is_whole), None);
    }

    #[test]
    fn columns_of_a_prepared_statement_are_known_where_an_execution_lacks_them() {
        for form in [MODERN, OLD] {
            let capabilities = form | Capabilities::MARIADB_CACHE_METADATA;
            let is_old = form == OLD;
            let packets = |payloads: &[&[u8]]| {
                let (mut packets, mut sequence) = (Vec::new(), 1);
                for payload in payloads.iter().filter(|payload| is_old || **payload != EOF) {
                    write_packet(&mut packets, &mut sequence, payload);
                }
                packets
            };
            let (number, text) = (definition(3), definition(253));
            let ok = [0, 7, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0];
            let prepared = read(
                Command::STMT_PREPARE,
                capabilities,
                &packets(&[&ok, &text, EOF, &number, EOF]),
            );
            assert!(prepared.is_whole && prepared.prepared == Some((7, 1)));
            let columns = prepared.columns.unwrap();
            let of_parameters = read(Command::STMT_PREPARE, capabilities, &packets(&[&ok, &text, EOF]));
            assert!(!of_parameters.is_whole && of_parameters.columns.is_none());
            let row = [0, 0, 7, 0, 0, 0];
            let end: &[u8] = if is_old {
                &[0xfe, 0, 0, 2, 0]
            } else {
                &[0xfe, 0, 0, 2, 0, 0, 0]
            };
            let execution = |known: &[Column], payloads: &[&[u8]]| {
                read_with(Command::STMT_EXECUTE, capabilities, known, &packets(payloads))
            };
            let (full, short) = (
                [&[1, 1], &number[..], EOF, &row, end],
                [&[1, 0], EOF, &row[..], end],
            );
            let with = execution(&[], &full);
            assert!(with.is_whole && with.rows == 1 && with.columns.as_ref() == Some(&columns));
            let without = execution(&columns, &short);
            assert!(without.is_whole && without.checks == with.checks, "{without:?}");
            assert!(!execution(&[], &short).is_whole && !execution(&columns[..0], &short).is_whole);
        }
    }

    #[test]
    fn columns_of_a_procedures_results_are_not_those_of_its_parameters() {
        let capabilities = MODERN | Capabilities::MARIADB_CACHE_METADATA;
        let execution = |known: &[Column], payloads: &[&[u8]]| {
            let (mut packets, mut sequence) = (Vec::new(), 1);
            for payload in payloads {
                write_packet(&mut packets, &mut sequence, payload);
            }
            read_with(Command::STMT_EXECUTE, capabilities, known, &packets)
        };
        let (text, number) = (definition(253), definition(3));
        let more: &[u8] = &[0xfe, 0, 0, StatusFlags::MORE_RESULTS.0 as u8, 0, 0, 0];
        let of_text: [&[u8]; 4] = [&[1, 1], &text, &[0, 0, 1, b'x'], more];
        let row: &[u8] = &[0, 0, 7, 0, 0, 0];
        let ok: &[u8] = &[0, 0, 0, 2, 0, 0, 0];
        let full: [&[u8]; 5] = [&[1, 1], &number, row, more, ok];
        let with = execution(&[], &[&of_text[..], &full].concat());
        let columns = with.columns.unwrap();
        assert_eq!((with.is_whole, columns.len(), columns[0].kind), (true, 1, 3));
        let short: [&[u8]; 4] = [&[1, 0], row, more, ok];
        let without = execution(&columns, &[&of_text[..], &short].concat());
        assert!(without.is_whole && without.checks == with.checks && without.columns.is_none());
        let error: [&[u8]; 1] = [b"\xff\x28\x04#42000no"];
        let failed = execution(&columns, &[&of_text[..], &error].concat());
        assert!(failed.is_whole && failed.columns.unwrap().is_empty());
    }

    /// Behind definitions, for clients that know no other end.
    const EOF: &[u8] = &[0xfe, 0, 0, 0, 0];

    #[test]
    fn results_that_follow_one_another_are_all_read() {
        let more = StatusFlags::MORE_RESULTS.0;
        let mut packets = answer(MODERN, &[253], &[text(&[Some("a")])], more);
        packets.extend(answer(MODERN, &[253], &[text(&[Some("b")])], 0));
        let read = read(Command::QUERY, MODERN, &packets);
        assert!(read.is_whole);
        assert_eq!((read.rows, read.checks.len()), (2, 4));
    }

    #[test]
    fn an_answer_that_is_cut_anywhere_has_no_checks() {
        let rows = [text(&[Some("abc")]), text(&[Some("def")])];
        let packets = answer(OLD, &[253], &rows, 2);
        for cut in 0..packets.len() {
            let read = read(Command::QUERY, OLD, &packets[..cut]);
            assert!(!read.is_whole && read.checks.is_empty(), "{cut}");
        }
    }
}
