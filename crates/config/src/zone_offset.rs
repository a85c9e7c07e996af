//! Time zones as a distance from UTC: `"+00:00"`, `"-05:30"`. No names: what a name means changes with a
//! file.

use std::fmt;

/// Minutes east of UTC that servers take, the furthest west and the furthest east.
const MINUTES: std::ops::RangeInclusive<i32> = -(13 * 60 + 59)..=14 * 60;

/// A distance from UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneOffset {
    /// Seconds east of UTC, a whole number of minutes.
    pub east_s: i32,
}

impl ZoneOffset {
    pub(crate) const KIND: &str = "a distance from UTC (\"+00:00\", \"-05:30\")";
    pub(crate) const UTC: Self = Self { east_s: 0 };

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (sign, rest) = match text.split_at_checked(1)? {
            ("+", rest) => (1, rest),
            ("-", rest) => (-1, rest),
            _ => return None,
        };
        let (hours, minutes) = rest.split_once(':')?;
        let two_digits = |part: &str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        if !two_digits(hours) || !two_digits(minutes) {
            return None;
        }
        let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
        let east = sign * (hours * 60 + minutes);
        (minutes < 60 && MINUTES.contains(&east)).then_some(Self { east_s: east * 60 })
    }

    pub(crate) fn hint(text: &str) -> Option<String> {
        if text.eq_ignore_ascii_case("utc") || text.eq_ignore_ascii_case("system") {
            return Some("UTC is \"+00:00\"".to_owned());
        }
        text.contains('/')
            .then(|| "names of zones are not known here: give its distance from UTC".to_owned())
    }
}

impl fmt::Display for ZoneOffset {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minutes = self.east_s.abs() / 60;
        let sign = if self.east_s < 0 { '-' } else { '+' };
        write!(out, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_read_and_shown_alike() {
        for (text, east_s) in [
            ("+00:00", 0),
            ("-05:30", -19_800),
            ("+14:00", 50_400),
            ("-13:59", -50_340),
        ] {
            assert_eq!(ZoneOffset::parse(text), Some(ZoneOffset { east_s }), "{text}");
            assert_eq!(ZoneOffset { east_s }.to_string(), text);
        }
        for text in [
            "", "+", "00:00", "+0:00", "+00:60", "+14:01", "-14:00", "UTC", "+00:00 ", "+é0:00",
        ] {
            assert_eq!(ZoneOffset::parse(text), None, "{text:?}");
        }
    }
}
