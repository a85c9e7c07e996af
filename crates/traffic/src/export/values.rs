//! Parameters of prepared statements as literals that mean the same whatever `sql_mode` is.

use mysql_wire::statement::ExecuteHead;
use mysql_wire::{Capabilities, Command};

use super::{Charset, Prepared, read};
use crate::binary::{self, DATE, DOUBLE, FLOAT, TIME};
use crate::record::CommandRecord;

const UNKNOWN: &str = "its parameters make no sense";

/// Bytes in front of a parameter among which `LIMIT` is looked for.
const LIMIT_MAX: usize = 256;

/// Bytes of a part of a long parameter in front of it: its statement, and which one it is.
const LONG_DATA_HEAD: usize = 6;

impl Prepared {
    /// A part of a long parameter.
    pub(super) fn add(&mut self, body: &[u8]) {
        if let Some((head, bytes)) = body.split_first_chunk::<LONG_DATA_HEAD>() {
            let index = u16::from_le_bytes([head[4], head[5]]);
            self.long.entry(index).or_default().extend_from_slice(bytes);
        }
    }

    /// The text with the values of an execution in it. `charset`: of the strings.
    pub(super) fn with_values(
        &mut self,
        command: &CommandRecord,
        charset: Charset,
    ) -> Result<Vec<u8>, &'static str> {
        let long = std::mem::take(&mut self.long);
        if Command(command.command) != Command::STMT_EXECUTE {
            return Err("an execution with several rows");
        }
        let places = read(&self.text, true).parameters;
        let count = u16::try_from(places.len()).map_err(|_| UNKNOWN)?;
        let payload = command.payload();
        let head = ExecuteHead::decode(&payload, count, Capabilities::default()).map_err(|_| UNKNOWN)?;
        if let Some(types) = head.types() {
            self.types = types.to_vec();
        }
        if self.types.len() != places.len() * 2 {
            return Err(UNKNOWN);
        }
        let nulls = head
            .nulls()
            .and_then(|nulls| payload.get(nulls))
            .unwrap_or_default();
        let mut values = payload.get(head.len..).unwrap_or_default();
        let mut out = Vec::with_capacity(self.text.len() + values.len());
        let mut from = 0;
        for (index, place) in places.iter().enumerate() {
            out.extend_from_slice(&self.text[from..*place]);
            from = place + 1;
            let kind = [self.types[index * 2], self.types[index * 2 + 1]];
            let literal = match long.get(&(index as u16)) {
                Some(bytes) => text(bytes, kind[0], charset),
                None if binary::is_null(nulls, index) => "NULL".to_owned(),
                None => value(kind, &mut values, charset).ok_or(UNKNOWN)?,
            };
            let literal = match limits_rows(&self.text[..*place]) {
                true => unquoted_integer(literal),
                false => literal,
            };
            // A parameter is a token of its own, whatever stands beside it.
            let is_beside = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
            if is_beside(out.last()) {
                out.push(b' ');
            }
            out.extend_from_slice(literal.as_bytes());
            if is_beside(self.text.get(from)) {
                out.push(b' ');
            }
        }
        out.extend_from_slice(&self.text[from..]);
        match values.is_empty() {
            true => Ok(out),
            false => Err(UNKNOWN),
        }
    }
}

/// Whether what comes behind this text says how many rows there are to be, as `LIMIT ?, ?`.
fn limits_rows(text: &[u8]) -> bool {
    // A long text would be looked at as a whole for each of many parameters.
    let text = &text[text.len().saturating_sub(LIMIT_MAX)..];
    let mut words = text
        .rsplit(|byte| byte.is_ascii_whitespace() || *byte == b',')
        .filter(|word| !word.is_empty());
    let last = words.next().unwrap_or_default();
    let is = |word: &[u8], name: &[u8]| word.eq_ignore_ascii_case(name);
    match text.trim_ascii_end().ends_with(b",") {
        true => {
            (last == b"?" || last.iter().all(u8::is_ascii_digit))
                && words.next().is_some_and(|word| is(word, b"LIMIT"))
        }
        false => is(last, b"LIMIT") || is(last, b"OFFSET"),
    }
}

/// Servers take no text there, but one that was bound.
fn unquoted_integer(literal: String) -> String {
    let inner = literal
        .strip_prefix('\'')
        .and_then(|inner| inner.strip_suffix('\''));
    let is_integer = |inner: &&str| !inner.is_empty() && inner.bytes().all(|byte| byte.is_ascii_digit());
    inner.filter(is_integer).map(str::to_owned).unwrap_or(literal)
}

/// The next value, as a literal.
fn value([kind, flags]: [u8; 2], values: &mut &[u8], charset: Charset) -> Option<String> {
    let value = binary::take(kind, values)?;
    match (kind, value.len()) {
        (1 | 2 | 3 | 8 | 9 | 13, _) => Some(binary::integer(value, flags & 0x80 != 0)),
        (FLOAT, _) => number(f64::from(f32::from_bits(binary::little(value) as u32))),
        (DOUBLE, _) => number(f64::from_bits(binary::little(value))),
        (6, _) => Some("NULL".to_owned()),
        (7 | DATE | 12, 0 | 4 | 7 | 11) => Some(format!("'{}'", binary::date(kind == DATE, value))),
        (TIME, 0 | 8 | 12) => Some(format!("'{}'", binary::time(value))),
        (7 | DATE..=12, _) => None,
        _ => Some(text(value, kind, charset)),
    }
}

/// With an exponent it is a floating-point number for servers, too.
fn number(number: f64) -> Option<String> {
    number.is_finite().then(|| format!("{number:e}"))
}

/// Digits, with a point between them and a sign in front at most. Anything else would be an expression.
fn is_decimal(bytes: &[u8]) -> bool {
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let mut parts = digits.splitn(2, |byte| *byte == b'.');
    parts.all(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit))
}

/// Letters of which nobody has an opinion stand as they are; all others as hexadecimal digits.
fn text(bytes: &[u8], kind: u8, charset: Charset) -> String {
    const DECIMAL: [u8; 2] = [0, 246];
    if DECIMAL.contains(&kind) && is_decimal(bytes) {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    let is_blob = matches!(kind, 249..=252);
    let is_plain = |byte: &u8| (b' '..=b'~').contains(byte) && !matches!(byte, b'\'' | b'\\');
    if !is_blob && bytes.iter().all(is_plain) {
        return format!("'{}'", String::from_utf8_lossy(bytes));
    }
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let is_utf8 = std::str::from_utf8(bytes).is_ok();
    match charset.or(is_utf8.then_some("utf8mb4")) {
        Some(charset) if !is_blob => format!("_{charset} x'{digits}'"),
        _ => format!("x'{digits}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: [u8; 2], bytes: &[u8]) -> Option<String> {
        let mut values = bytes;
        value(kind, &mut values, None).filter(|_| values.is_empty())
    }

    #[test]
    fn a_count_of_rows_has_no_quotes() {
        for text in ["… LIMIT ", "… limit 5, ", "… LIMIT ?,", "… LIMIT ? OFFSET "] {
            assert!(limits_rows(text.as_bytes()), "{text}");
        }
        for text in [
            "",
            "… (1, ",
            "… IN (?,",
            "WHERE a = ",
            "LIMITS ",
            "… ('-', offset, ",
        ] {
            assert!(!limits_rows(text.as_bytes()), "{text}");
        }
        assert_eq!(unquoted_integer("'10'".to_owned()), "10");
        for other in ["'1 0'", "''", "NULL", "x'31'"] {
            assert_eq!(unquoted_integer(other.to_owned()), other);
        }
    }

    #[test]
    fn many_parameters_take_no_time() {
        let began = std::time::Instant::now();
        let count = usize::from(u16::MAX);
        let mut prepared = Prepared {
            text: [
                &b"SELECT "[..],
                &b"+".repeat(900_000)[..],
                &b"?".repeat(count)[..],
            ]
            .concat(),
            types: [6, 0].repeat(count),
            ..Prepared::default()
        };
        let nulls = vec![0; count.div_ceil(8)];
        let command = CommandRecord {
            command: Command::STMT_EXECUTE.0,
            body: [&[1, 0, 0, 0, 0, 1, 0, 0, 0][..], &nulls[..], &[0]].concat(),
            ..CommandRecord::default()
        };
        let text = prepared.with_values(&command, None).unwrap();
        assert!(text.ends_with(b"NULL NULL") && text.len() > 900_000 + 4 * count);
        assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    }

    #[test]
    fn values_become_literals() {
        let known: [(u8, u8, &[u8], &str); 15] = [
            (1, 0, &[0xff], "-1"),
            (1, 0x80, &[0xff], "255"),
            (3, 0, &[0xfe, 0xff, 0xff, 0xff], "-2"),
            (8, 0x80, &[0xff; 8], "18446744073709551615"),
            (5, 0, &13.25_f64.to_le_bytes(), "1.325e1"),
            (10, 0, &[4, 0xea, 7, 11, 28], "'2026-11-28'"),
            (
                12,
                0,
                &[11, 0xea, 7, 11, 28, 3, 4, 5, 6, 0, 0, 0],
                "'2026-11-28 03:04:05.000006'",
            ),
            (11, 0, &[8, 1, 1, 0, 0, 0, 2, 3, 4], "'-26:03:04'"),
            (246, 0, b"\x0512.50", "12.50"),
            (246, 0, b"\x02-7", "-7"),
            (246, 0, b"\x031-2", "'1-2'"),
            (253, 0, b"\x05a b;c", "'a b;c'"),
            (253, 0, b"\x04it's", "_utf8mb4 x'69742773'"),
            (253, 0, b"\x02a\\", "_utf8mb4 x'615c'"),
            (252, 0, b"\x02a\xff", "x'61ff'"),
        ];
        for (kind, flags, bytes, literal) in known {
            assert_eq!(of([kind, flags], bytes).as_deref(), Some(literal));
            assert_eq!(
                of([kind, flags], &bytes[..bytes.len() - 1]),
                None,
                "cut: {literal}"
            );
        }
        assert_eq!(of([5, 0], &f64::NAN.to_le_bytes()), None);
    }

    #[test]
    fn strings_have_the_charset_of_their_session() {
        let of = |bytes: &[u8], kind| text(bytes, kind, Some("latin1"));
        assert_eq!(of(b"a\xe9", 253), "_latin1 x'61e9'");
        assert_eq!(of("é".as_bytes(), 253), "_latin1 x'c3a9'");
        assert_eq!(of(b"plain", 253), "'plain'");
        assert_eq!(of(b"\xe9", 252), "x'e9'");
    }
}
