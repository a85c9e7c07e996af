//! A text without its values: statements that differ in nothing else have one fingerprint, and are the same
//! to [`facts`](crate::facts()).
//!
//! Much cheaper than a digest, since no token is looked at: what stands between two quotes is dropped, a
//! number is `0`, all else stays as it is. A text that is not cut at its quotes and digits for certain
//! (comments, backslashes, `"`, characters beyond ASCII outside of strings) has none. A fingerprint is a text
//! itself, and its own fingerprint.

/// Fingerprints are not longer than this.
const FINGERPRINT_MAX: usize = 1024;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// Stays as it is.
    Plain,
    /// The same, and a digit behind it is no number.
    Letter,
    Digit,
    /// `'`
    Quote,
    /// `` ` ``
    Backquote,
    /// May begin a comment together with the byte after it.
    Comment,
    /// There is no fingerprint.
    Unsure,
}

const MARKS: [Mark; 256] = {
    let mut marks = [Mark::Plain; 256];
    let mut at = 0;
    while at < 256 {
        marks[at] = match at as u8 {
            b'0'..=b'9' => Mark::Digit,
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$' => Mark::Letter,
            b'\'' => Mark::Quote,
            b'`' => Mark::Backquote,
            b'/' | b'-' => Mark::Comment,
            b'\\' | b'"' | b'#' | 0x80..=0xff => Mark::Unsure,
            _ => Mark::Plain,
        };
        at += 1;
    }
    marks
};

/// What is neither plain nor a letter.
const STOPS: [bool; 256] = {
    let mut stops = [false; 256];
    let mut at = 0;
    while at < 256 {
        stops[at] = !matches!(MARKS[at], Mark::Plain | Mark::Letter);
        at += 1;
    }
    stops
};

fn mark(byte: u8) -> Mark {
    MARKS[usize::from(byte)]
}

/// Writes the fingerprint of a text. False where it has none.
pub(crate) fn fingerprint(sql: &[u8], out: &mut Vec<u8>) -> bool {
    out.clear();
    // What is before `kept` was written.
    let (mut at, mut kept) = (0, 0);
    while let Some(len) = sql[at..].iter().position(|byte| STOPS[usize::from(*byte)]) {
        at += len;
        match mark(sql[at]) {
            Mark::Digit => {
                let end = word_end(sql, at);
                if is_number(sql, at, end) {
                    if !keep(&sql[kept..at], out) {
                        return false;
                    }
                    out.push(b'0');
                    kept = end;
                }
                at = end;
            }
            Mark::Quote => {
                let Some(end) = string_end(sql, at + 1) else {
                    return false;
                };
                if !keep(&sql[kept..=at], out) {
                    return false;
                }
                (at, kept) = (end + 1, end);
            }
            Mark::Backquote => match name_end(sql, at + 1) {
                Some(end) => at = end + 1,
                None => return false,
            },
            Mark::Comment => match (sql[at], sql.get(at + 1)) {
                (b'/', Some(b'*')) | (b'-', Some(b'-')) => return false,
                _ => at += 1,
            },
            Mark::Plain | Mark::Letter => at += 1,
            Mark::Unsure => return false,
        }
    }
    keep(&sql[kept..], out)
}

/// False where the fingerprint would become too long.
#[inline]
fn keep(piece: &[u8], out: &mut Vec<u8>) -> bool {
    if out.len() + piece.len() > FINGERPRINT_MAX {
        return false;
    }
    out.extend_from_slice(piece);
    true
}

fn word_end(sql: &[u8], from: usize) -> usize {
    let rest = &sql[from..];
    let len = rest
        .iter()
        .position(|byte| !matches!(mark(*byte), Mark::Letter | Mark::Digit));
    from + len.unwrap_or(rest.len())
}

/// Whether digits are a whole number: no part of a name, of a variable, or of a number with a dot. `end`: of
/// the word that goes on or begins with them.
fn is_number(sql: &[u8], start: usize, end: usize) -> bool {
    let before = start.checked_sub(1).map(|before| sql[before]);
    let joins = before.is_some_and(|byte| matches!(byte, b'.' | b'@') || mark(byte) == Mark::Letter)
        || sql.get(end) == Some(&b'.');
    !joins && sql[start..end].iter().all(u8::is_ascii_digit)
}

/// Where the quote is that ends a string. Two of them are one that does not end it: to the fingerprint they
/// end one string and begin another.
fn string_end(sql: &[u8], from: usize) -> Option<usize> {
    let rest = sql.get(from..)?;
    let len = rest.iter().position(|byte| matches!(byte, b'\'' | b'\\'))?;
    (rest[len] == b'\'').then_some(from + len)
}

fn name_end(sql: &[u8], from: usize) -> Option<usize> {
    let rest = sql.get(from..)?;
    let len = rest.iter().position(|byte| *byte == b'`' || *byte >= 0x80)?;
    (rest[len] == b'`').then_some(from + len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sql: &str) -> Option<String> {
        let mut out = Vec::new();
        fingerprint(sql.as_bytes(), &mut out).then(|| String::from_utf8(out).unwrap())
    }

    #[test]
    fn values_are_dropped() {
        for (sql, expected) in [
            ("SELECT c FROM t1 WHERE id=12345", "SELECT c FROM t1 WHERE id=0"),
            (
                "SELECT `a'1` FROM t WHERE b IN ('x','',12)",
                "SELECT `a'1` FROM t WHERE b IN ('','',0)",
            ),
            (
                "SELECT 'it''s ü', -5, 1.5, 1e3, 0x1F",
                "SELECT '''', -0, 1.5, 1e3, 0x1F",
            ),
            (
                "SELECT @1, @@x, t.1, 1a, a1 FROM 2b",
                "SELECT @1, @@x, t.1, 1a, a1 FROM 2b",
            ),
            ("", ""),
        ] {
            assert_eq!(of(sql).as_deref(), Some(expected), "{sql}");
        }
    }

    #[test]
    fn what_is_not_cut_for_certain_has_none() {
        for sql in [
            "SELECT /* 1 */ 1",
            "SELECT 1 -- x",
            "SELECT 1 # x",
            r"SELECT 'it\'s'",
            r"SELECT \N",
            "SELECT \"a\"",
            "SELECT é",
            "SELECT `é`",
            "SELECT 1é",
            "SELECT 'open",
            "SELECT `open",
        ] {
            assert_eq!(of(sql), None, "{sql}");
        }
        assert_eq!(of(&"x".repeat(FINGERPRINT_MAX + 1)), None);
        assert!(of(&format!("'{}'", "x".repeat(5000))).is_some());
    }
}
