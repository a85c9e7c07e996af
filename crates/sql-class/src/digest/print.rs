//! Pieces as text.

use super::Piece;

/// MySQL prints a keyword by one of its synonyms.
const SYNONYMS: &[(&str, &str)] = &[
    ("ANY", "SOME"),
    ("BIGINT", "INT8"),
    ("CHAR", "CHARACTER"),
    ("COLUMNS", "FIELDS"),
    ("CURRENT_DATE", "CURDATE"),
    ("CURRENT_TIME", "CURTIME"),
    ("CURRENT_TIMESTAMP", "NOW"),
    ("DATABASE", "SCHEMA"),
    ("DATABASES", "SCHEMAS"),
    ("DAY", "SQL_TSI_DAY"),
    ("DEC", "DECIMAL"),
    ("DESCRIBE", "EXPLAIN"),
    ("DISTINCT", "DISTINCTROW"),
    ("DOUBLE", "FLOAT8"),
    ("FLOAT", "FLOAT4"),
    ("GEOMCOLLECTION", "GEOMETRYCOLLECTION"),
    ("HOUR", "SQL_TSI_HOUR"),
    ("INT", "INTEGER"),
    ("INT1", "TINYINT"),
    ("INT2", "SMALLINT"),
    ("INT3", "MIDDLEINT"),
    ("INT4", "INTEGER"),
    ("IO_THREAD", "RELAY_THREAD"),
    ("LOCALTIME", "NOW"),
    ("LOCALTIMESTAMP", "NOW"),
    ("MEDIUMINT", "MIDDLEINT"),
    ("MID", "SUBSTRING"),
    ("MINUTE", "SQL_TSI_MINUTE"),
    ("MONTH", "SQL_TSI_MONTH"),
    ("NDB", "NDBCLUSTER"),
    ("QUARTER", "SQL_TSI_QUARTER"),
    ("REGEXP", "RLIKE"),
    ("SECOND", "SQL_TSI_SECOND"),
    ("SESSION_USER", "SYSTEM_USER"),
    ("SQL_TSI_WEEK", "WEEK"),
    ("SQL_TSI_YEAR", "YEAR"),
    ("STD", "STDDEV_POP"),
    ("STDDEV", "STDDEV_POP"),
    ("SUBSTR", "SUBSTRING"),
    ("USER", "SYSTEM_USER"),
    ("VARCHAR", "VARCHARACTER"),
    ("VARIANCE", "VAR_POP"),
];

/// The synonym that normalised texts have in the place of a keyword, which is in capitals.
#[must_use]
pub fn synonym(keyword: &str) -> Option<&'static str> {
    let index = SYNONYMS.binary_search_by(|&(word, _)| word.cmp(keyword)).ok()?;
    Some(SYNONYMS[index].1)
}

/// The synonym, or the keyword itself.
pub(super) fn printed_as(keyword: &'static str) -> &'static str {
    synonym(keyword).unwrap_or(keyword)
}

pub(super) fn text(pieces: &[Piece<'_>]) -> String {
    let mut out = Vec::with_capacity(pieces.len() * 8);
    for piece in pieces {
        if !out.is_empty() {
            out.push(b' ');
        }
        print(*piece, &mut out);
    }
    match String::from_utf8(out) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    }
}

fn print(piece: Piece<'_>, out: &mut Vec<u8>) {
    let mut quoted = |before: &[u8], name: &[u8]| {
        out.extend_from_slice(before);
        out.push(b'`');
        undoubled(name, out);
        out.push(b'`');
    };
    let plain: &[u8] = match piece {
        Piece::Name(name) => return quoted(b"", name),
        Piece::QuotedVariable(name) => return quoted(b"@", name),
        Piece::System(name) => return quoted(b"@@", name),
        Piece::Value => b"?",
        Piece::Values => b"?, ...",
        Piece::Row => b"(?)",
        Piece::Rows => b"(?) /* , ... */",
        Piece::WideRow => b"(...)",
        Piece::WideRows => b"(...) /* , ... */",
        Piece::InValues => b"IN (...)",
        Piece::Variable => b"@?",
        Piece::Variables => b"@?, ...",
        Piece::Charset => b"(_charset)",
        Piece::Cut => b"...",
        Piece::Keyword(keyword) => keyword.as_bytes(),
        Piece::SystemScope(keyword) => {
            out.extend_from_slice(b"@@");
            keyword.as_bytes()
        }
        Piece::Position(text) | Piece::Operator(text) => text,
    };
    out.extend_from_slice(plain);
}

/// MySQL writes a quote in a name once.
fn undoubled(name: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(&byte) = name.get(at) {
        out.push(byte);
        at += if byte == b'`' && name.get(at + 1) == Some(&b'`') {
            2
        } else {
            1
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synonyms_are_in_order() {
        assert!(SYNONYMS.is_sorted_by_key(|&(word, _)| word));
        assert_eq!(printed_as("INT"), "INTEGER");
        assert_eq!(printed_as("SELECT"), "SELECT");
    }
}
