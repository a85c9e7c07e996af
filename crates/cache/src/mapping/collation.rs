//! Which texts are the same key.
//!
//! A unique index compares by the column's collation, and so must we. Binary collations compare bytes. Of the
//! others those are taken whose rule for printable ASCII is known: every character is itself, or letters are
//! the same in upper and lower case. What their rule for other characters is (accents, ignorable characters,
//! expansions) only the server knows: it is asked. Collations of languages are refused, since some of them
//! have rules for ASCII, too (`LL` of traditional Spanish, the `I` of Turkish).
//!
//! Source: `information_schema.COLLATIONS` and `strings/ctype-*` of both servers; the tests compare with
//! servers.

/// How texts of a column are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    pub texts: Texts,
    /// Blanks at the end do not count (PAD SPACE).
    pub pad: bool,
}

/// Which texts differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Texts {
    /// All that are not the same characters.
    Exact,
    /// Of printable ASCII, all that are not the same characters; about others only the server knows.
    AsciiExact,
    /// As [`AsciiExact`](Self::AsciiExact), but letters are the same in upper and lower case.
    AsciiFolded,
}

/// Rules that every Unicode character set has, and `latin1` and `ascii` in part; without `nopad`.
const FOLDED: [&str; 9] = [
    "general_ci",
    "general_mysql500_ci",
    "unicode_ci",
    "unicode_520_ci",
    "0900_ai_ci",
    "0900_as_ci",
    "uca1400_ai_ci",
    "uca1400_as_ci",
    "general1400_as_ci",
];
const EXACT: [&str; 4] = ["0900_as_cs", "uca1400_as_cs", "uca1400_ai_cs", "general_cs"];

/// The rule of a collation by its full name. `None` for one that is not known well enough.
#[must_use]
pub fn comparison(collation: &str) -> Option<Comparison> {
    let collation = collation.to_ascii_lowercase();
    if collation == "binary" {
        return Some(Comparison {
            texts: Texts::Exact,
            pad: false,
        });
    }
    let rule = match collation.split_once('_') {
        Some(("uca1400", _)) => &collation,
        Some((_, rule)) => rule,
        None => return None,
    };
    let pad = !rule.contains("nopad") && !rule.starts_with("0900_");
    let rule = rule.replace("nopad_", "");
    let texts = if rule == "bin" || rule == "0900_bin" {
        Texts::Exact
    } else if FOLDED.contains(&rule.as_str()) || rule == "swedish_ci" && collation.starts_with("latin1_") {
        Texts::AsciiFolded
    } else if EXACT.contains(&rule.as_str()) {
        Texts::AsciiExact
    } else {
        return None;
    };
    Some(Comparison { texts, pad })
}

impl Comparison {
    /// The part of a text that counts.
    pub(super) fn counting(self, text: &[u8]) -> &[u8] {
        if self.pad { without_blanks(text) } else { text }
    }

    /// Turns the part of a text that counts into the one form of all texts that are the same. False where
    /// only the server knows which these are: it stays as it is.
    pub(super) fn fold(self, text: &mut [u8]) -> bool {
        let known = self.texts == Texts::Exact || text.iter().all(|byte| matches!(byte, b' '..=b'~'));
        if known && self.texts == Texts::AsciiFolded {
            text.make_ascii_lowercase();
        }
        known
    }
}

/// Text without the blanks at its end.
pub(super) fn without_blanks(text: &[u8]) -> &[u8] {
    let blanks = text.iter().rev().take_while(|&&byte| byte == b' ').count();
    &text[..text.len() - blanks]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(collation: &str) -> Option<(Texts, bool)> {
        comparison(collation).map(|found| (found.texts, found.pad))
    }

    #[test]
    fn collations_are_known_by_name() {
        for (collation, expected) in [
            ("binary", (Texts::Exact, false)),
            ("utf8mb4_bin", (Texts::Exact, true)),
            ("utf8mb4_0900_bin", (Texts::Exact, false)),
            ("utf8mb4_nopad_bin", (Texts::Exact, false)),
            ("utf8mb4_general_ci", (Texts::AsciiFolded, true)),
            ("utf8mb4_general_nopad_ci", (Texts::AsciiFolded, false)),
            ("utf8mb3_unicode_ci", (Texts::AsciiFolded, true)),
            ("utf8mb4_0900_ai_ci", (Texts::AsciiFolded, false)),
            ("utf8mb4_0900_as_cs", (Texts::AsciiExact, false)),
            ("utf8mb4_uca1400_ai_ci", (Texts::AsciiFolded, true)),
            ("uca1400_nopad_ai_ci", (Texts::AsciiFolded, false)),
            ("utf8mb4_unicode_520_nopad_ci", (Texts::AsciiFolded, false)),
            ("latin1_swedish_ci", (Texts::AsciiFolded, true)),
            ("latin1_general_cs", (Texts::AsciiExact, true)),
        ] {
            assert_eq!(rule(collation), Some(expected), "{collation}");
        }
    }

    #[test]
    fn collations_of_languages_are_not() {
        for collation in [
            "utf8mb4_swedish_ci",
            "utf8mb4_turkish_ci",
            "utf8mb4_tr_0900_ai_ci",
            "utf8mb4_es_trad_0900_ai_ci",
            "latin1_german1_ci",
            "utf8mb4_ja_0900_as_cs_ks",
            "utf8mb4_uca1400_spanish2_ai_ci",
            "gbk_chinese_ci",
            "",
        ] {
            assert_eq!(rule(collation), None, "{collation}");
        }
    }

    #[test]
    fn one_form_stands_for_all_texts_that_are_the_same() {
        let form = |collation: &str, text: &str| {
            let comparison = comparison(collation).unwrap();
            let mut form = comparison.counting(text.as_bytes()).to_vec();
            let known = comparison.fold(&mut form);
            (String::from_utf8(form).unwrap(), known)
        };
        let is = |text: &str, known| (text.to_owned(), known);
        assert_eq!(form("utf8mb4_general_ci", "Ab c  "), is("ab c", true));
        assert_eq!(form("utf8mb4_0900_ai_ci", "Ab "), is("ab ", true));
        assert_eq!(form("utf8mb4_0900_as_cs", "Ab"), is("Ab", true));
        assert_eq!(form("utf8mb4_bin", "Äb "), is("Äb", true));
        assert_eq!(form("utf8mb4_general_ci", "ÄB "), is("ÄB", false));
        assert_eq!(form("utf8mb4_0900_as_cs", "a\t"), is("a\t", false));
    }
}
