//! Sizes as operators write them: a whole number and a unit, `"512MiB"`, `"4GiB"`. Units are powers of 1024,
//! and say so.

use std::fmt;

/// Units from the largest.
const UNITS: [(&str, u64); 5] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl ByteSize {
    pub(crate) const KIND: &str = "a size (\"512MiB\", \"4GiB\")";

    pub(crate) const fn kibibytes(count: u64) -> Self {
        Self(count << 10)
    }

    pub(crate) const fn mebibytes(count: u64) -> Self {
        Self(count << 20)
    }

    pub(crate) const fn gibibytes(count: u64) -> Self {
        Self(count << 30)
    }

    /// Reads `"4GiB"`. `None` for anything else, also for a number that does not fit.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.find(|c: char| !c.is_ascii_digit())?;
        let (number, unit) = text.split_at(digits);
        let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit)?;
        number.parse::<u64>().ok()?.checked_mul(*scale).map(Self)
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
            "" => return Some(format!("give the unit: \"{number}MiB\" or \"{number}GiB\"")),
            "b" | "byte" | "bytes" => "B",
            "k" | "kb" | "kib" => "KiB",
            "m" | "mb" | "mib" => "MiB",
            "g" | "gb" | "gib" => "GiB",
            "t" | "tb" | "tib" => "TiB",
            _ => return Some("one number and one unit: B, KiB, MiB, GiB, TiB".to_owned()),
        };
        let right = format!("{number}{unit}");
        // A number that is too large is one in any way of writing.
        Self::parse(&right).map(|_| format!("write \"{right}\""))
    }
}

/// The shortest text that is read back as the same size.
impl fmt::Display for ByteSize {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = UNITS.iter().find(|(_, scale)| self.0.is_multiple_of(*scale));
        match exact.filter(|_| self.0 > 0) {
            Some((unit, scale)) => write!(out, "{}{unit}", self.0 / scale),
            None => write!(out, "{}B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_with_a_unit_are_read() {
        assert_eq!(ByteSize::parse("4GiB"), Some(ByteSize::gibibytes(4)));
        assert_eq!(ByteSize::parse("512MiB"), Some(ByteSize::mebibytes(512)));
        assert_eq!(ByteSize::parse("1KiB"), Some(ByteSize(1024)));
        assert_eq!(ByteSize::parse("7B"), Some(ByteSize(7)));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "4",
            "GiB",
            "4GB",
            "4 GiB",
            "-1GiB",
            "1.5GiB",
            "4gib",
            "99999999TiB",
        ] {
            assert_eq!(ByteSize::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_hint_says_what_was_meant() {
        assert_eq!(ByteSize::hint("4 gb").as_deref(), Some("write \"4GiB\""));
        assert_eq!(
            ByteSize::hint("4").as_deref(),
            Some("give the unit: \"4MiB\" or \"4GiB\"")
        );
        assert_eq!(ByteSize::hint("much"), None);
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(bytes in any::<u64>()) {
            prop_assert_eq!(ByteSize::parse(&ByteSize(bytes).to_string()), Some(ByteSize(bytes)));
        }

        #[test]
        fn any_text_is_answered(text in ".*") {
            let _ = (ByteSize::parse(&text), ByteSize::hint(&text));
        }
    }
}
