//! Durations as operators write them: a whole number and a unit, `"500ms"`, `"2s"`, `"5m"`, `"8h"`, `"1d"`.
//!
//! One number and one unit only: `"1h30m"` is `"90m"`. That keeps every duration readable at a glance and
//! writable in exactly one way.

use std::time::Duration;

/// Units from the largest; the number is milliseconds.
const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// What a duration looks like, for error messages and the reference.
pub(crate) const KIND: &str = "a duration (\"500ms\", \"2s\", \"5m\", \"8h\")";

pub(crate) const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub(crate) const fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub(crate) const fn minutes(count: u64) -> Duration {
    Duration::from_secs(count * 60)
}

pub(crate) const fn hours(count: u64) -> Duration {
    Duration::from_secs(count * 3600)
}

pub(crate) const fn days(count: u64) -> Duration {
    Duration::from_secs(count * 86_400)
}

/// Reads `"2s"`. `None` for anything else, also for a number that does not fit.
#[must_use]
pub fn parse(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit)?;
    number
        .parse::<u64>()
        .ok()?
        .checked_mul(*scale)
        .map(Duration::from_millis)
}

/// A duration as a file has it: the shortest text that is read back as the same one. Precision below a
/// millisecond is dropped.
#[must_use]
pub fn show(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis == 0 {
        return "0s".to_owned();
    }
    for (name, scale) in UNITS {
        let scale = u128::from(scale);
        if millis.is_multiple_of(scale) {
            return format!("{}{name}", millis / scale);
        }
    }
    format!("{millis}ms")
}

/// The right way to write what somebody probably meant.
pub(crate) fn hint(text: &str) -> Option<String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return None;
    }
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "" => return Some(format!("give the unit: \"{number}s\" or \"{number}ms\"")),
        "ms" | "msec" | "millis" | "milliseconds" => "ms",
        "s" | "sec" | "secs" | "second" | "seconds" => "s",
        "m" | "min" | "mins" | "minute" | "minutes" => "m",
        "h" | "hr" | "hrs" | "hour" | "hours" => "h",
        "d" | "day" | "days" => "d",
        _ => return Some("one number and one unit: ms, s, m, h, d".to_owned()),
    };
    let right = format!("{number}{unit}");
    // A number that is too large is one in any way of writing.
    parse(&right).map(|_| format!("write \"{right}\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_forms_of_the_guide_are_read() {
        assert_eq!(parse("500ms"), Some(ms(500)));
        assert_eq!(parse("2s"), Some(secs(2)));
        assert_eq!(parse("5m"), Some(minutes(5)));
        assert_eq!(parse("8h"), Some(hours(8)));
        assert_eq!(parse("1d"), Some(days(1)));
        assert_eq!(parse("0s"), Some(Duration::ZERO));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "5",
            "s",
            "-1s",
            "1.5s",
            " 1s",
            "1s ",
            "1 s",
            "1h30m",
            "1µs",
            "5min",
            "99999999999999999999s",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
        assert_eq!(parse(&format!("{}d", u64::MAX)), None);
    }

    #[test]
    fn a_duration_is_shown_in_its_largest_whole_unit() {
        assert_eq!(show(ms(1500)), "1500ms");
        assert_eq!(show(secs(90)), "90s");
        assert_eq!(show(hours(24)), "1d");
        assert_eq!(show(Duration::ZERO), "0s");
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(millis in any::<u64>()) {
            prop_assert_eq!(parse(&show(ms(millis))), Some(ms(millis)));
        }

        #[test]
        fn any_text_is_answered(text in ".*") {
            let _ = (parse(&text), hint(&text));
        }
    }
}
