//! FLOAT and DOUBLE as the servers print them.
//!
//! Source: `strings/dtoa.cc` of MySQL: numbers whose first digit is up to 15 places before or behind the
//! point are printed plainly, others with an exponent.

/// Farther from the point, numbers have an exponent.
const PLAIN_MAX: i32 = 15;
/// With fewer digits no DOUBLE is half way between two numbers that are read as itself.
const TIE_DIGITS: usize = 15;
/// Significant digits of a FLOAT.
const FLOAT_DIGITS: usize = 6;

/// The shortest digits that are read as the same number again.
pub(super) fn put_double(number: f64, out: &mut Vec<u8>) {
    put(&shortest(number), out);
}

/// As Rust writes it, but for numbers half way between two shortest ones: of those the servers print the even
/// one (1594374757768783.25 as `….2`), and Rust the larger.
fn shortest(number: f64) -> String {
    let shortest = format!("{number:e}");
    let digits = shortest
        .bytes()
        .take_while(|&byte| byte != b'e')
        .filter(u8::is_ascii_digit)
        .count();
    if digits < TIE_DIGITS {
        return shortest;
    }
    let even = format!("{number:.*e}", digits - 1);
    if even.parse() == Ok(number) {
        even
    } else {
        shortest
    }
}

/// Six digits, rounded from what the number is exactly.
pub(super) fn put_float(number: f32, out: &mut Vec<u8>) {
    let shortest = format!("{:e}", f64::from(number));
    let digits = shortest
        .bytes()
        .take_while(|&byte| byte != b'e')
        .filter(u8::is_ascii_digit);
    if digits.count() <= FLOAT_DIGITS {
        return put(&shortest, out);
    }
    put(&format!("{:.*e}", FLOAT_DIGITS - 1, f64::from(number)), out);
}

/// A fixed number of digits after the point: those of the shortest number, zeros behind them.
pub(super) fn put_fixed(number: f64, decimals: u8, out: &mut Vec<u8>) {
    let decimals = usize::from(decimals);
    let shortest = format!("{number}");
    let fraction = shortest.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    // Of two that are as near, the even one: see `shortest`. Whole numbers are never half way.
    let even = format!("{number:.fraction$}");
    let shortest = if fraction > 0 && even.parse() == Ok(number) {
        even
    } else {
        shortest
    };
    if fraction > decimals {
        out.extend_from_slice(format!("{number:.decimals$}").as_bytes());
        return;
    }
    out.extend_from_slice(shortest.as_bytes());
    if decimals > 0 {
        if fraction == 0 {
            out.push(b'.');
        }
        out.resize(out.len() + decimals - fraction, b'0');
    }
}

/// Prints what Rust writes as `-d.ddde-nn`.
fn put(scientific: &str, out: &mut Vec<u8>) {
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        // Not a number or infinite, which no column can be.
        out.push(b'0');
        return;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let digits = match digits.trim_end_matches('0').as_bytes() {
        [] => b"0",
        digits => digits,
    };
    if mantissa.starts_with('-') {
        out.push(b'-');
    }
    // Digits before the point.
    let point = exponent + 1;
    let is_plain = point > -PLAIN_MAX && (point <= PLAIN_MAX || digits.len() as i32 > point);
    match point {
        _ if !is_plain => {
            let (first, behind) = digits.split_at(1);
            out.extend_from_slice(first);
            if !behind.is_empty() {
                out.push(b'.');
                out.extend_from_slice(behind);
            }
            out.extend_from_slice(format!("e{exponent}").as_bytes());
        }
        ..=0 => {
            out.extend_from_slice(b"0.");
            out.resize(out.len() + point.unsigned_abs() as usize, b'0');
            out.extend_from_slice(digits);
        }
        _ => {
            let point = point as usize;
            let (whole, fraction) = digits.split_at(digits.len().min(point));
            out.extend_from_slice(whole);
            out.resize(out.len() + point - whole.len(), b'0');
            if !fraction.is_empty() {
                out.push(b'.');
                out.extend_from_slice(fraction);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(put: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        put(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn doubles_are_printed_as_servers_do() {
        for (number, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.5, "1.5"),
            (1e14, "100000000000000"),
            (1e15, "1e15"),
            (1_234_567_890_123_456.5, "1234567890123456.5"),
            (0.1, "0.1"),
            (1e-14, "0.00000000000001"),
            (1e-15, "0.000000000000001"),
            (1e-16, "1e-16"),
            (f64::MAX, "1.7976931348623157e308"),
            (5e-324, "5e-324"),
            (-123.456e20, "-1.23456e22"),
            (6_377_499_031_075_133.0 / 4.0, "1594374757768783.2"),
            (6_377_499_031_075_135.0 / 4.0, "1594374757768783.8"),
            (2_f64.powi(-44), "0.00000000000005684341886080802"),
        ] {
            assert_eq!(shown(|out| put_double(number, out)), text);
        }
    }

    #[test]
    fn floats_have_six_digits() {
        for (number, text) in [
            (0.1_f32, "0.1"),
            (1.0 / 3.0, "0.333333"),
            (16_777_216.0, "16777200"),
            (3.402_823_5e38, "3.40282e38"),
            (1_048_576.5, "1048580"),
        ] {
            assert_eq!(shown(|out| put_float(number, out)), text);
        }
    }

    #[test]
    fn fixed_decimals_are_filled_with_zeros() {
        for (number, decimals, text) in [
            (0.1, 10, "0.1000000000"),
            (f64::from(0.1_f32), 10, "0.1000000015"),
            (1.0, 0, "1"),
            (-2.5, 2, "-2.50"),
            (655_773_926_862_805.0 / 8.0, 5, "81971740857850.62000"),
            (1e30, 0, "1000000000000000000000000000000"),
            (1e22, 1, "10000000000000000000000.0"),
        ] {
            assert_eq!(shown(|out| put_fixed(number, decimals, out)), text);
        }
    }
}
