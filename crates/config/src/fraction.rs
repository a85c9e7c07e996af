//! A part of something, from nothing to all of it: `0.1`, `1`.

use std::fmt;

/// From nothing to all, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fraction {
    millionths: u32,
}

impl Fraction {
    pub(crate) const KIND: &str = "a share from 0 to 1 (0.1)";
    pub(crate) const NONE: Self = Self { millionths: 0 };
    const WHOLE: u32 = 1_000_000;

    /// Reads a number as TOML writes it.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let number: f64 = text.replace('_', "").parse().ok()?;
        (0.0..=1.0).contains(&number).then(|| Self {
            millionths: (number * f64::from(Self::WHOLE)).round() as u32,
        })
    }

    /// Whether the part has this one of many that are counted from 0 on. It has one after the other as evenly
    /// as can be, also of every second, or every third.
    #[must_use]
    pub fn has(self, number: u64) -> bool {
        // The golden section of 2^64: its multiples are spread over all numbers.
        let place = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        (place * u64::from(Self::WHOLE)) >> 32 < u64::from(self.millionths)
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (f64::from(self.millionths) / f64::from(Self::WHOLE)).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_number_from_0_to_1() {
        let shown = |text: &str| Fraction::parse(text).map(|fraction| fraction.to_string());
        for (text, expected) in [
            ("0", "0"),
            ("1", "1"),
            ("1.0", "1"),
            ("0.1", "0.1"),
            ("1e-3", "0.001"),
        ] {
            assert_eq!(shown(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["1.1", "-0.1", "nan", "inf", "10%", ""] {
            assert_eq!(shown(text), None, "{text}");
        }
    }

    #[test]
    fn the_share_is_spread_evenly() {
        for (text, share) in [("0", 0), ("0.1", 1_000), ("0.5", 5_000), ("1", 10_000)] {
            let fraction = Fraction::parse(text).expect("a share");
            for step in 1..=3 {
                let taken = (0..10_000).filter(|number| fraction.has(number * step)).count();
                assert!(taken.abs_diff(share) <= 10, "{text} of every {step}: {taken}");
            }
        }
    }
}
