//! Times as servers write them into their logs, in microseconds since 1970.

use mysql_wire::binlog::Date;

/// `2026-11-28T03:19:05.262204Z`, also with `+02:00` or fewer digits, or a space instead of `T`.
pub(super) fn iso(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let (date, time) = text.split_once(['T', ' '])?;
    let mut parts = date.splitn(3, '-').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let at = time.find(['Z', '+', '-']).unwrap_or(time.len());
    let (time, zone) = time.split_at(at);
    let offset = match zone {
        "" | "Z" => 0,
        zone => {
            let (hours, minutes) = zone[1..].split_once(':')?;
            let below = |text: &str, end: i64| text.parse().ok().filter(|number| (0..end).contains(number));
            let seconds = below(hours, 24)? * 3600 + below(minutes, 60)? * 60;
            if zone.starts_with('-') { -seconds } else { seconds }
        }
    };
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let seconds = civil(year, month, day)? + of_day(time)?;
    let fraction = format!("{fraction:0<6}");
    let micros: u64 = fraction.get(..6)?.parse().ok()?;
    seconds
        .checked_add_signed(-offset)?
        .checked_mul(1_000_000)?
        .checked_add(micros)
}

/// `261128  3:19:05`, as if it were UTC: nobody says where that was.
pub(super) fn short(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let (date, time) = text.split_once(' ')?;
    if date.len() != 6 || !date.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let part = |at: usize| date[at..at + 2].parse::<u64>().ok();
    let seconds = civil(2000 + part(0)?, part(2)?, part(4)?)? + of_day(time.trim_start())?;
    Some(seconds * 1_000_000)
}

/// Seconds with digits behind a point, as `0.000125` or `1795835941.25`, in microseconds.
pub(super) fn seconds(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction = format!("{fraction:0<6}");
    let micros: u64 = fraction.get(..6)?.parse().ok()?;
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000)?
        .checked_add(micros)
}

/// `03:19:05`, in seconds.
fn of_day(text: &str) -> Option<u64> {
    let mut parts = text.splitn(3, ':').map(|part| part.parse::<u64>().ok());
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    (hours < 24 && minutes < 60 && seconds <= 60).then_some(hours * 3600 + minutes * 60 + seconds)
}

/// Seconds from 1970 to the beginning of a day.
fn civil(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let (year, month, day) = (year as u16, month as u8, day as u8);
    let days = Date { year, month, day }.days();
    Some(days.cast_unsigned() * 86_400)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_both_kinds_of_servers_are_read() {
        assert_eq!(iso(b"1970-01-01T00:00:00.000001Z"), Some(1));
        assert_eq!(iso(b"2024-02-29T12:34:56Z"), Some(1_709_210_096_000_000));
        assert_eq!(iso(b"2024-02-29T14:34:56.5+02:00"), Some(1_709_210_096_500_000));
        assert_eq!(
            iso(b"2024-02-29T10:34:56.123456789-02:00"),
            Some(1_709_210_096_123_456)
        );
        assert_eq!(short(b"240229 12:34:56"), Some(1_709_210_096_000_000));
        assert_eq!(short(b"240229  2:34:56"), Some(1_709_174_096_000_000));
        assert_eq!(seconds(b"1.25"), Some(1_250_000));
        for wrong in [
            "",
            "x",
            "2024-02-29",
            "2024-13-01T00:00:00Z",
            "1-1-1T1:1:1Z",
            "2024-02-29T25:00:00Z",
            "2024-02-29T12:34:56+9223372036854775807:00",
            "2024-02-29T12:34:56--9223372036854775808:00",
            "2024-02-29T12:34:56+00:9223372036854775807",
        ] {
            assert_eq!(iso(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(
            (
                short(b"24022 1:1:1"),
                seconds(b"-1"),
                seconds("1.é234567".as_bytes())
            ),
            (None, None, None)
        );
    }
}
