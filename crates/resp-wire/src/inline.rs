//! Requests typed by hand: words on a line.

use crate::error::ProtocolError;

/// Splits a line into words as Redis does: blanks part them, `"…"` holds escapes, `'…'` only `\'`. Appends
/// the bytes of the words to `words` and says through `add` where each of them is.
pub(crate) fn split(
    line: &[u8],
    words: &mut Vec<u8>,
    mut add: impl FnMut(usize, usize),
) -> Result<(), ProtocolError> {
    let mut rest = line;
    while let Some((&first, behind)) = rest.split_first() {
        if is_blank(first) {
            rest = behind;
            continue;
        }
        let start = words.len();
        rest = word(rest, words)?;
        add(start, words.len());
    }
    Ok(())
}

/// Takes one word off the line and returns what is behind it.
fn word<'a>(mut rest: &'a [u8], words: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    while let Some((&byte, behind)) = rest.split_first() {
        rest = match byte {
            b'"' => return closed(double_quoted(behind, words)?),
            b'\'' => return closed(single_quoted(behind, words)?),
            byte if is_blank(byte) => return Ok(rest),
            byte => {
                words.push(byte);
                behind
            }
        };
    }
    Ok(rest)
}

/// A closing quote ends its word: a blank or the end of the line follows.
fn closed(rest: &[u8]) -> Result<&[u8], ProtocolError> {
    match rest.first() {
        Some(&byte) if !is_blank(byte) => Err(ProtocolError::UnbalancedQuotes),
        _ => Ok(rest),
    }
}

fn double_quoted<'a>(mut rest: &'a [u8], words: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        rest = match rest {
            [b'\\', b'x', high, low, behind @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                words.push(hex(*high) << 4 | hex(*low));
                behind
            }
            [b'\\', escaped, behind @ ..] => {
                words.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                behind
            }
            [b'"', behind @ ..] => return Ok(behind),
            [byte, behind @ ..] => {
                words.push(*byte);
                behind
            }
            [] => return Err(ProtocolError::UnbalancedQuotes),
        };
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], words: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        rest = match rest {
            [b'\\', b'\'', behind @ ..] => {
                words.push(b'\'');
                behind
            }
            [b'\'', behind @ ..] => return Ok(behind),
            [byte, behind @ ..] => {
                words.push(*byte);
                behind
            }
            [] => return Err(ProtocolError::UnbalancedQuotes),
        };
    }
}

fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || matches!(byte, 0 | 11)
}

/// The value of a hexadecimal digit.
fn hex(digit: u8) -> u8 {
    char::from(digit).to_digit(16).unwrap_or_default() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Vec<String>, ProtocolError> {
        let (mut bytes, mut spans) = (Vec::new(), Vec::new());
        split(line.as_bytes(), &mut bytes, |start, end| spans.push((start, end)))?;
        let word = |(start, end): (usize, usize)| bytes[start..end].escape_ascii().to_string();
        Ok(spans.into_iter().map(word).collect())
    }

    #[test]
    fn blanks_part_words() {
        assert_eq!(
            words("get   a@1\tb\0c\x0bd").unwrap(),
            ["get", "a@1", "b", "c", "d"]
        );
        assert_eq!(words("   ").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn quotes_hold_words_together() {
        assert_eq!(words(r#"get "a b" 'c d'"#).unwrap(), ["get", "a b", "c d"]);
        assert_eq!(
            words(r#""\x41\n\q" '\'\n' ""  x"y""#).unwrap(),
            ["A\\nq", "\\'\\\\n", "", "xy"]
        );
    }

    #[test]
    fn half_a_quote_is_an_error() {
        for line in ["\"a", "'a", "\"a\"b", "'a'b", "\"a\\", "'a\\'"] {
            assert_eq!(words(line), Err(ProtocolError::UnbalancedQuotes), "{line}");
        }
    }
}
