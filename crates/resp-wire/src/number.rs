//! Integers as Redis reads them.

/// A decimal integer: an optional `-`, no leading zeros, no blanks, nothing behind it. `None` for all else,
/// and for what does not fit.
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let canonical = match digits {
        [] => false,
        [b'0'] => !negative,
        [b'0', ..] => false,
        _ => true,
    };
    if !canonical {
        return None;
    }
    digits.iter().try_fold(0_i64, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| i64::from(digit - b'0'))?;
        let value = value.checked_mul(10)?;
        if negative {
            value.checked_sub(digit)
        } else {
            value.checked_add(digit)
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_usual_form_is_a_number() {
        for text in [
            "",
            "-",
            "+1",
            "01",
            "-0",
            " 1",
            "1 ",
            "1x",
            "0x1",
            "9223372036854775808",
        ] {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse_integer(b"0"), Some(0));
        assert_eq!(parse_integer(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(parse_integer(b"-9223372036854775809"), None);
    }

    proptest! {
        #[test]
        fn every_number_is_read_back(number: i64) {
            prop_assert_eq!(parse_integer(number.to_string().as_bytes()), Some(number));
        }
    }
}
