//! Dates and times: as they are stored in the binary log, and as text.
//!
//! Source: MySQL "Date and Time Data Type Representation"; `sql-common/my_time.cc`.

use super::BinlogError;

/// A day. Servers store zero for the year, month or day that is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Date {
    pub year: u16,
    pub month: u8,
    pub day: u8,
}

/// A time of day or a duration, up to 838 hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Time {
    pub negative: bool,
    pub hours: u16,
    pub minutes: u8,
    pub seconds: u8,
    pub micros: u32,
}

/// A day and a time of day, of no time zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct DateTime {
    pub date: Date,
    pub hour: u8,
    pub minute: u8,
    pub second: u8,
    pub micros: u32,
}

/// Seconds since 1970-01-01 00:00:00 UTC. Zero is the servers' `0000-00-00 00:00:00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Timestamp {
    pub seconds: u32,
    pub micros: u32,
}

/// In which TIMESTAMP values are printed: seconds east of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Zone(i32);

const DAY_SECONDS: i64 = 86_400;

impl Zone {
    pub const UTC: Zone = Zone(0);

    /// `+hh:mm` or `-hh:mm` from -13:59 to +14:00, `UTC` or `Z`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Zone> {
        if text.eq_ignore_ascii_case("utc") || text.eq_ignore_ascii_case("z") {
            return Some(Zone::UTC);
        }
        let (sign, text) = match text.split_at_checked(1)? {
            ("+", text) => (1, text),
            ("-", text) => (-1, text),
            _ => return None,
        };
        let (hours, minutes) = text.split_once(':')?;
        let number = |digits: &str| {
            let plain = matches!(digits.len(), 1 | 2) && digits.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| digits.parse::<i32>().ok()).flatten()
        };
        let (hours, minutes) = (number(hours)?, number(minutes).filter(|&minutes| minutes < 60)?);
        let seconds = sign * (hours * 3600 + minutes * 60);
        (-(14 * 3600 - 60)..=14 * 3600)
            .contains(&seconds)
            .then_some(Zone(seconds))
    }
}

impl Date {
    pub(super) fn from_packed(packed: u32) -> Date {
        Date {
            year: (packed >> 9) as u16 & 0x7fff,
            month: (packed >> 5) as u8 & 15,
            day: packed as u8 & 31,
        }
    }

    pub(super) fn packed(self) -> u32 {
        u32::from(self.year & 0x7fff) << 9 | u32::from(self.month & 15) << 5 | u32::from(self.day & 31)
    }

    /// Days since 1970-01-01 in the Gregorian calendar, also where it was not in use.
    #[must_use]
    pub fn days(self) -> i64 {
        let shifted = i64::from(self.year) - i64::from(self.month <= 2);
        let era = shifted.div_euclid(400);
        let year_of_era = shifted.rem_euclid(400);
        let month = (i64::from(self.month) + 9) % 12;
        let day_of_year = (153 * month + 2) / 5 + i64::from(self.day) - 1;
        era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
    }

    /// The day so many days after 1970-01-01; years go up to 65535.
    #[must_use]
    pub fn from_days(days: i64) -> Date {
        let days = days + 719_468;
        let era = days.div_euclid(146_097);
        let day_of_era = days.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let month = if shifted_month < 10 {
            shifted_month + 3
        } else {
            shifted_month - 9
        };
        Date {
            year: (era * 400 + year_of_era + i64::from(month <= 2)) as u16,
            month: month as u8,
            day: (day_of_year - (153 * shifted_month + 2) / 5 + 1) as u8,
        }
    }

    pub(super) fn put(self, out: &mut Vec<u8>) {
        put_number(out, u32::from(self.year), 4);
        out.push(b'-');
        put_number(out, u32::from(self.month), 2);
        out.push(b'-');
        put_number(out, u32::from(self.day), 2);
    }

    /// `YYYY-MM-DD`, nothing before and after it.
    pub(super) fn read(text: &[u8]) -> Option<Date> {
        let mut scan = Scan(text);
        let date = scan.date()?;
        scan.0.is_empty().then_some(date)
    }
}

impl Time {
    /// From `hours << 12 | minutes << 6 | seconds`, and what is above that.
    pub(super) fn from_packed(negative: bool, packed: u32, micros: u32) -> Time {
        Time {
            negative,
            hours: (packed >> 12) as u16 & 0x3ff,
            minutes: (packed >> 6) as u8 & 63,
            seconds: packed as u8 & 63,
            micros,
        }
    }

    pub(super) fn put(self, decimals: u8, out: &mut Vec<u8>) {
        if self.negative {
            out.push(b'-');
        }
        put_number(out, u32::from(self.hours), 2);
        out.push(b':');
        put_number(out, u32::from(self.minutes), 2);
        out.push(b':');
        put_number(out, u32::from(self.seconds), 2);
        put_fraction(out, self.micros, decimals);
    }

    /// `[-]HH:MM:SS[.ffffff]`.
    pub(super) fn read(text: &[u8]) -> Option<Time> {
        let (negative, text) = match text {
            [b'-', text @ ..] => (true, text),
            _ => (false, text),
        };
        let mut scan = Scan(text);
        let hours = scan.number(2, 3).filter(|&hours| hours <= 838)?;
        let (minutes, seconds, micros) = scan.minutes()?;
        let zero = hours == 0 && minutes == 0 && seconds == 0 && micros == 0;
        scan.0.is_empty().then_some(Time {
            negative: negative && !zero,
            hours: hours as u16,
            minutes,
            seconds,
            micros,
        })
    }
}

impl DateTime {
    /// From `((year * 13 + month) << 5 | day) << 17 | hour << 12 | minute << 6 | second`.
    pub(super) fn from_packed(packed: u64, micros: u32) -> DateTime {
        let (day, months) = ((packed >> 17) as u8 & 31, packed >> 22 & 0x1_ffff);
        DateTime {
            date: Date {
                year: (months / 13) as u16,
                month: (months % 13) as u8,
                day,
            },
            hour: (packed >> 12) as u8 & 31,
            minute: (packed >> 6) as u8 & 63,
            second: packed as u8 & 63,
            micros,
        }
    }

    pub(super) fn put(self, decimals: u8, out: &mut Vec<u8>) {
        self.date.put(out);
        out.push(b' ');
        put_number(out, u32::from(self.hour), 2);
        out.push(b':');
        put_number(out, u32::from(self.minute), 2);
        out.push(b':');
        put_number(out, u32::from(self.second), 2);
        put_fraction(out, self.micros, decimals);
    }

    /// `YYYY-MM-DD HH:MM:SS[.ffffff]`.
    pub(super) fn read(text: &[u8]) -> Option<DateTime> {
        let mut scan = Scan(text);
        let date = scan.date()?;
        scan.byte(b' ')?;
        let hour = scan.number(2, 2).filter(|&hour| hour < 24)?;
        let (minute, second, micros) = scan.minutes()?;
        scan.0.is_empty().then_some(DateTime {
            date,
            hour: hour as u8,
            minute,
            second,
            micros,
        })
    }

    /// The instant, if the time is one of `zone`. None for what no TIMESTAMP can be.
    pub(super) fn timestamp(self, zone: Zone) -> Option<Timestamp> {
        if self == DateTime::default() {
            return Some(Timestamp::default());
        }
        let clock = i64::from(self.hour) * 3600 + i64::from(self.minute) * 60 + i64::from(self.second);
        let seconds = self.date.days() * DAY_SECONDS + clock - i64::from(zone.0);
        let seconds = u32::try_from(seconds).ok()?;
        (self.date.month > 0 && self.date.day > 0 && (seconds > 0 || self.micros > 0)).then_some(Timestamp {
            seconds,
            micros: self.micros,
        })
    }
}

impl Timestamp {
    /// What clocks of `zone` show.
    pub(super) fn in_zone(self, zone: Zone) -> DateTime {
        if self == Timestamp::default() {
            return DateTime::default();
        }
        let seconds = i64::from(self.seconds) + i64::from(zone.0);
        let clock = seconds.rem_euclid(DAY_SECONDS);
        DateTime {
            date: Date::from_days(seconds.div_euclid(DAY_SECONDS)),
            hour: (clock / 3600) as u8,
            minute: (clock / 60 % 60) as u8,
            second: (clock % 60) as u8,
            micros: self.micros,
        }
    }
}

/// Checked before they get into a value, so that it can be encoded.
pub(super) fn micros(micros: u32) -> Result<u32, BinlogError> {
    let valid = (micros < 1_000_000).then_some(micros);
    valid.ok_or(BinlogError::Value { kind: "temporal" })
}

pub(super) fn put_number(out: &mut Vec<u8>, number: u32, width: usize) {
    let mut digits = [b'0'; 10];
    let (mut left, mut len) = (number, 0);
    for digit in digits.iter_mut().rev() {
        if left == 0 {
            break;
        }
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
        len += 1;
    }
    let (_, shown) = digits.split_at(digits.len().saturating_sub(len.max(width)));
    out.extend_from_slice(shown);
}

fn put_fraction(out: &mut Vec<u8>, micros: u32, decimals: u8) {
    if let 1..=6 = decimals {
        out.push(b'.');
        let width = usize::from(decimals);
        put_number(out, micros / 10_u32.pow(6 - u32::from(decimals)), width);
    }
}

/// What is left of a text.
struct Scan<'a>(&'a [u8]);

impl Scan<'_> {
    fn byte(&mut self, want: u8) -> Option<()> {
        let (&found, rest) = self.0.split_first()?;
        self.0 = rest;
        (found == want).then_some(())
    }

    fn number(&mut self, min: usize, max: usize) -> Option<u32> {
        let digits = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.0.split_at(digits);
        self.0 = rest;
        let value = |value, digit: &u8| value * 10 + u32::from(digit - b'0');
        (min..=max)
            .contains(&digits.len())
            .then(|| digits.iter().fold(0, value))
    }

    fn date(&mut self) -> Option<Date> {
        let year = self.number(4, 4)? as u16;
        self.byte(b'-')?;
        let month = self.number(2, 2).filter(|&month| month <= 12)? as u8;
        self.byte(b'-')?;
        let day = self.number(2, 2).filter(|&day| day <= 31)? as u8;
        Some(Date { year, month, day })
    }

    /// `:MM:SS[.ffffff]`.
    fn minutes(&mut self) -> Option<(u8, u8, u32)> {
        self.byte(b':')?;
        let minutes = self.number(2, 2).filter(|&minutes| minutes < 60)?;
        self.byte(b':')?;
        let seconds = self.number(2, 2).filter(|&seconds| seconds < 60)?;
        let mut micros = 0;
        if let [b'.', fraction @ ..] = self.0 {
            self.0 = fraction;
            let before = self.0.len();
            let fraction = self.number(1, 6)?;
            micros = fraction * 10_u32.pow(6 - (before - self.0.len()) as u32);
        }
        Some((minutes as u8, seconds as u8, micros))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(put: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        put(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        for (days, text) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (49_709, "2106-02-06"),
        ] {
            let date = Date::from_days(days);
            assert_eq!(shown(|out| date.put(out)), text);
            assert_eq!(date.days(), days);
        }
    }

    #[test]
    fn zones_are_read() {
        assert_eq!(Zone::parse("+05:30"), Some(Zone(19_800)));
        assert_eq!(Zone::parse("-08:00"), Some(Zone(-28_800)));
        assert_eq!(Zone::parse("utc"), Some(Zone::UTC));
        for bad in [
            "",
            "+",
            "5:30",
            "+14:01",
            "-14:00",
            "+5:60",
            "+005:00",
            "Europe/Berlin",
            "+-1:00",
        ] {
            assert_eq!(Zone::parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn instants_round_trip_in_every_zone(seconds in 50_401_u32.., micros in 0..1_000_000_u32, zone in -50_000..50_000_i32) {
            let instant = Timestamp { seconds, micros };
            let there = instant.in_zone(Zone(zone));
            prop_assert_eq!(there.timestamp(Zone(zone)), Some(instant));
            let text = shown(|out| there.put(6, out));
            prop_assert_eq!(DateTime::read(text.as_bytes()), Some(there));
        }

        #[test]
        fn text_of_any_bytes_does_not_panic(text: Vec<u8>) {
            let _ = (Date::read(&text), Time::read(&text), DateTime::read(&text));
        }
    }

    #[test]
    fn fractions_are_cut_to_the_columns_digits() {
        let time = Time::read(b"-838:59:58.120").unwrap();
        assert_eq!(time.micros, 120_000);
        assert_eq!(shown(|out| time.put(2, out)), "-838:59:58.12");
        assert_eq!(shown(|out| time.put(0, out)), "-838:59:58");
        assert!(!Time::read(b"-00:00:00").unwrap().negative);
    }
}
