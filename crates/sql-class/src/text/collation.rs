//! The collation that `SET NAMES` chooses.
//!
//! `SET NAMES x COLLATE y` is reported as three charsets, on both servers: the collation is not. So it is
//! read from the text where the text is as plain as can be.

use serde::{Deserialize, Serialize};

use super::{LOOK_MAX, contains, find_all, keyword};

/// What `collation_connection` is after a statement that set the charset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Collation {
    /// The charset's own.
    OfCharset,
    /// This one.
    Named(Box<[u8]>),
    /// Not to be told from the text.
    Unclear,
}

impl Collation {
    #[must_use]
    pub fn of(text: &[u8]) -> Self {
        if text.is_empty() || text.len() > LOOK_MAX {
            return Self::Unclear;
        }
        let text = text.to_ascii_lowercase();
        // `SET CHARACTER SET` takes the schema's collation, and `SET NAMES DEFAULT` the global one.
        let others: [&[u8]; 3] = [b"collat", b"charset", b"default"];
        let character_set = find_all(&text, b"character").any(|at| text.get(at + 9) != Some(&b'_'));
        // By its number MySQL sets a collation.
        let may_be_number =
            find_all(&text, b"character_set_connection").any(|at| !is_set_to_name(&text[at..]));
        if !character_set && !may_be_number && !others.iter().any(|word| contains(&text, word)) {
            return Self::OfCharset;
        }
        named(&text).map_or(Self::Unclear, |name| Self::Named(name.into()))
    }
}

/// Whether what follows is `variable = name`.
fn is_set_to_name(text: &[u8]) -> bool {
    let mut words = text.splitn(2, |byte| *byte == b'=');
    let value = words.nth(1).unwrap_or_default().trim_ascii_start();
    let value = value.strip_prefix(b"'").unwrap_or(value);
    value.first().is_some_and(u8::is_ascii_alphabetic)
}

/// The collation of `set names X collate Y`, with nothing else but a list of assignments that are not about
/// charsets.
fn named(text: &[u8]) -> Option<&[u8]> {
    let rest = keyword(text, b"set")?;
    let rest = keyword(rest, b"names")?;
    let (_, rest) = name(rest)?;
    let rest = keyword(rest, b"collate")?;
    let (collation, rest) = name(rest)?;
    let rest = rest.trim_ascii_start();
    let ends = matches!(rest, b"" | b";");
    let about_others: [&[u8]; 6] = [b"names", b"collat", b"char", b"/*", b"--", b"#"];
    let goes_on = rest.starts_with(b",") && !about_others.iter().any(|word| contains(rest, word));
    (ends || goes_on).then_some(collation)
}

/// A name, quoted or not, and what follows it.
fn name(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start();
    let quote = text.first().copied().filter(|byte| matches!(byte, b'\'' | b'"'));
    let text = &text[quote.iter().len()..];
    let len = text
        .iter()
        .take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_')
        .count();
    let (name, rest) = text.split_at(len);
    let rest = match quote {
        Some(quote) => rest.strip_prefix(&[quote])?,
        None => rest,
    };
    (!name.is_empty()).then_some((name, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_collation_is_read_from_plain_texts_only() {
        let of = |text: &str| Collation::of(text.as_bytes());
        let utf8mb4_bin = || Collation::Named(Box::from(&b"utf8mb4_bin"[..]));
        assert_eq!(of("SET NAMES utf8mb4"), Collation::OfCharset);
        assert_eq!(of("set names 'utf8mb4', sql_mode=''"), Collation::OfCharset);
        assert_eq!(of("SET character_set_connection=latin1"), Collation::OfCharset);
        assert_eq!(
            of("SET @@character_set_connection := 'latin1'"),
            Collation::OfCharset
        );
        assert_eq!(of("SET NAMES utf8mb4 COLLATE utf8mb4_bin"), utf8mb4_bin());
        assert_eq!(of("set names 'utf8mb4' collate 'utf8mb4_bin';"), utf8mb4_bin());
        assert_eq!(
            of("SET NAMES utf8mb4 COLLATE utf8mb4_bin, time_zone='+00:00'"),
            utf8mb4_bin()
        );
        for unclear in [
            "",
            "SET NAMES DEFAULT",
            "SET CHARACTER SET utf8mb4",
            "SET character/**/set utf8mb4",
            "SET CHARSET utf8mb4",
            "SET NAMES utf8mb4 /* */ COLLATE utf8mb4_bin",
            "SET NAMES utf8mb4 COLLATE utf8mb4_bin; SET NAMES latin1 COLLATE latin1_bin",
            "SET NAMES utf8mb4 COLLATE utf8mb4_bin, NAMES latin1",
            "SET NAMES utf8mb4, time_zone='+00:00' COLLATE utf8mb4_bin",
            "SET NAMES 'utf8mb4 COLLATE utf8mb4_bin",
            "SET character_set_connection=46",
            "SET @@session.character_set_connection := @charset",
        ] {
            assert_eq!(of(unclear), Collation::Unclear, "{unclear}");
        }
    }
}
