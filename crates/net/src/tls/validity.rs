//! When certificates end, and how long they live. What else they say is for rustls; these dates it keeps to
//! itself.

use std::path::Path;

use mysql_wire::binlog::Date;

use super::files;
use crate::NetError;

/// Tags of DER (X.690, 8.1.2) that stand before and in the validity (RFC 5280, 4.1).
const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// From when to when a certificate is good, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub begin: i64,
    pub end: i64,
}

/// When the certificates in a PEM file are good, in the order of the file. Those whose dates cannot be read
/// are left out.
///
/// # Errors
/// A file that cannot be read, or has no certificate.
pub fn certificate_validities(path: &Path) -> Result<Vec<Validity>, NetError> {
    let certificates = files::certificate_chain(path)?;
    Ok(certificates.iter().filter_map(|der| validity_of(der)).collect())
}

/// `notBefore` and `notAfter` of a certificate in DER.
fn validity_of(der: &[u8]) -> Option<Validity> {
    let mut certificate = Der(der).inside(SEQUENCE)?;
    let mut signed = certificate.inside(SEQUENCE)?;
    if signed.0.first() == Some(&VERSION) {
        signed.inside(VERSION)?;
    }
    signed.inside(INTEGER)?;
    for _algorithm_and_issuer in 0..2 {
        signed.inside(SEQUENCE)?;
    }
    let mut validity = signed.inside(SEQUENCE)?;
    let mut date = || validity.next().and_then(|(tag, date)| seconds(tag, date));
    Some(Validity {
        begin: date()?,
        end: date()?,
    })
}

/// What is left to be read.
struct Der<'d>(&'d [u8]);

impl<'d> Der<'d> {
    /// The next value with its tag.
    fn next(&mut self) -> Option<(u8, &'d [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match usize::from(first) {
            length @ 0..=0x7f => (length, rest),
            // More than four bytes of length are no certificate.
            form @ 0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(form - 0x80)?;
                let length = digits
                    .iter()
                    .fold(0, |length, byte| length << 8 | usize::from(*byte));
                (length, rest)
            }
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, value))
    }

    /// The inside of the next value, which must have this tag.
    fn inside(&mut self, expected: u8) -> Option<Self> {
        let (tag, value) = self.next()?;
        (tag == expected).then_some(Self(value))
    }
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`, the only forms that a certificate may have (RFC 5280, 4.1.2.5).
fn seconds(tag: u8, date: &[u8]) -> Option<i64> {
    let digits = date.strip_suffix(b"Z")?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |digits: &[u8]| {
        digits
            .iter()
            .fold(0, |number, digit| number * 10 + i64::from(digit - b'0'))
    };
    let (year, rest) = match (tag, digits.len()) {
        // 1950 to 2049.
        (UTC_TIME, 12) => {
            let (year, rest) = digits.split_at(2);
            let year = number(year);
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        (GENERALIZED_TIME, 14) => {
            let (year, rest) = digits.split_at(4);
            (number(year), rest)
        }
        _ => return None,
    };
    let parts: Vec<i64> = rest.chunks(2).map(number).collect();
    let [month, day, hour, minute, second] = parts[..] else {
        return None;
    };
    let in_range =
        (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second < 61;
    in_range.then(|| ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second)
}

/// Days from 1970-01-01.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month, day) = (year as u16, month as u8, day as u8);
    Date { year, month, day }.days()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn certificate(year: i32, month: u8, day: u8) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["gateway".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(year, month, day);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn the_end_is_read_from_both_forms_of_a_date() {
        let good = |year, month, day| validity_of(&certificate(year, month, day));
        let until = |end| {
            Some(Validity {
                begin: 1_577_836_800,
                end,
            })
        };
        // 2050 and later are generalized times.
        assert_eq!(good(2026, 11, 23), until(1_795_392_000));
        assert_eq!(good(2049, 12, 31), until(2_524_521_600));
        assert_eq!(good(2100, 2, 28), until(4_107_456_000));
    }

    #[test]
    fn the_calendar_has_its_leap_years() {
        assert_eq!(days(1970, 1, 1), 0);
        assert_eq!(days(2000, 2, 29), 11_016);
        assert_eq!(days(2000, 3, 1), 11_017);
        assert_eq!(days(2100, 3, 1), 47_541);
        assert_eq!(days(1969, 12, 31), -1);
    }

    #[test]
    fn what_is_cut_off_has_no_end() {
        let der = certificate(2030, 1, 1);
        let whole = validity_of(&der);
        assert!(whole.is_some());
        for length in 0..100 {
            assert_eq!(validity_of(&der[..length]), None);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = validity_of(&bytes);
        }
    }
}
