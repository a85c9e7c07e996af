//! Whether a text may have a number in it, in whatever form: as digits, or as another kind of number.
//!
//! Wrong in one direction only: what may be the number counts as it.

use super::has;

/// In the text of a statement, or of a value.
#[must_use]
pub fn in_text(text: &[u8], id: u64) -> bool {
    has(text, id.to_string().as_bytes()) || numbers(text).any(|number| number.is(id))
}

/// Where a value comes from that is not in the statement.
#[must_use]
pub fn elsewhere(text: &[u8]) -> bool {
    let mut parts = [&b"select"[..], b"duplicate", b"@"].into_iter();
    parts.any(|part| has(text, part))
}

/// A column of integers would have the id, where it was given this.
#[must_use]
pub fn is_near(number: f64, id: u64) -> bool {
    let id = id as f64;
    // Doubles of such a size are further apart than 1.
    (number - id).abs() <= 0.5_f64.max(id * f64::EPSILON * 2.0)
}

/// What is not written in digits alone.
enum Number {
    /// `0x2a`, `x'2a'`, `0b101010`, `b'101010'`.
    Bits(u64),
    /// `4.2e1`, `41.7`.
    Approximate(f64),
}

impl Number {
    fn is(&self, id: u64) -> bool {
        match *self {
            Self::Bits(bits) => bits == id,
            Self::Approximate(number) => is_near(number, id),
        }
    }
}

/// Those that a text may have in it, wherever one may begin.
fn numbers(text: &[u8]) -> impl Iterator<Item = Number> {
    (0..text.len()).filter_map(|at| match text[at] {
        b'0' if matches!(text.get(at + 1), Some(b'x' | b'b')) => bits(text[at + 1], &text[at + 2..]),
        radix @ (b'x' | b'X' | b'b' | b'B') if text.get(at + 1) == Some(&b'\'') => {
            bits(radix, &text[at + 2..])
        }
        b'0'..=b'9' | b'.' if at == 0 || !matches!(text[at - 1], b'0'..=b'9' | b'.') => {
            approximate(&text[at..])
        }
        _ => None,
    })
}

fn bits(radix: u8, digits: &[u8]) -> Option<Number> {
    let radix = if radix.eq_ignore_ascii_case(&b'x') { 16 } else { 2 };
    let mut value = None;
    for digit in digits
        .iter()
        .map_while(|&digit| char::from(digit).to_digit(radix))
    {
        // Of more than 64 bits servers make something else.
        value = Some(value.unwrap_or(0_u64).checked_mul(radix.into())? | u64::from(digit));
    }
    value.map(Number::Bits)
}

fn approximate(text: &[u8]) -> Option<Number> {
    let digits = |at: usize| text[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits(0);
    let mut end = whole;
    if text.get(end) == Some(&b'.') {
        end += 1 + digits(end + 1);
    }
    if matches!(text.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(text.get(end + 1), Some(b'+' | b'-')));
        let exponent = text.get(end + 1 + sign..).map_or(0, |_| digits(end + 1 + sign));
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    // Digits alone were looked for as such.
    (end > whole).then(|| {
        str::from_utf8(&text[..end])
            .ok()?
            .parse()
            .ok()
            .map(Number::Approximate)
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_may_be_written_in_many_ways() {
        for text in [
            "42",
            "1423",
            "0x2A",
            "0x002a",
            "x'2A'",
            "X'2a'",
            "0b101010",
            "b'00101010'",
            "4.2e1",
            "4.2E+1",
            ".42e2",
            "420000e-4",
            "41.5",
            "41.7",
            "42.3",
            "'4.2e1'",
            "4.2e1,5",
        ] {
            let text = format!("INSERT INTO t VALUES ({text}, 'x')");
            assert!(in_text(text.as_bytes(), 42), "{text}");
        }
        for text in [
            "0x2B", "0x", "x'", "4.3e1", "4.2e", "4.2", "1e999", ".", "43.1", "0b1e2", "1.2.3",
        ] {
            let text = format!("INSERT INTO t VALUES ({text}, 'x')");
            assert!(!in_text(text.as_bytes(), 42), "{text}");
        }
        assert!(in_text(b"9.007199254740993e15", (1 << 53) + 1));
        assert!(in_text(b"0xffffffffffffffff", u64::MAX) && !in_text(b"0x1ffffffffffffffff", u64::MAX));
    }
}
