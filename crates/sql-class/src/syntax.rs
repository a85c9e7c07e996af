//! What of a session decides how its text is cut into tokens.

use serde::{Deserialize, Serialize};

/// How the server will read a text: part of the session's state, and of which server it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Syntax {
    /// `sql_mode` has ANSI_QUOTES: `"` quotes a name, not a string.
    pub ansi_quotes: bool,
    /// `sql_mode` has NO_BACKSLASH_ESCAPES: a backslash in a string is a backslash.
    pub no_backslash_escapes: bool,
    /// `character_set_client`.
    pub charset: Charset,
    pub dialect: Dialect,
}

/// Whose grammar, and of which version: it decides what comments are executed and which functions are the
/// server's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Dialect {
    /// As in `/*!80400 … */`: 90704 is 9.7.4.
    MySql { version: u32 },
    /// As in `/*M!101100 … */`: 101119 is 10.11.19.
    MariaDb { version: u32 },
}

impl Default for Dialect {
    fn default() -> Self {
        Self::MySql { version: 90_000 }
    }
}

impl Dialect {
    #[must_use]
    pub const fn is_mariadb(self) -> bool {
        matches!(self, Self::MariaDb { .. })
    }
}

/// What a byte of 0x80 and more can mean in a text. Character sets that are alike in this are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Charset {
    /// Every byte of a character beyond ASCII has its highest bit set and none of them is a space: utf8,
    /// ujis, euckr, gb2312, ascii, binary.
    #[default]
    Utf8,
    /// One byte a character. Some of them have a byte beyond ASCII that separates words: 0xA0 in latin1.
    SingleByte,
    /// The second byte of a character can be a backslash or a backquote.
    Gbk,
    /// Like [`Charset::Gbk`], and characters of four bytes.
    Gb18030,
    /// sjis, cp932.
    Sjis,
    Big5,
}

impl Charset {
    /// By its name in `character_set_client`. A name that is not known is taken for one byte a character,
    /// which is the reading that trusts the least.
    #[must_use]
    pub fn named(name: &[u8]) -> Self {
        Self::known(name).unwrap_or(Self::SingleByte)
    }

    /// By a name that the servers have.
    pub(crate) fn known(name: &[u8]) -> Option<Self> {
        const NAMES: [(&str, Charset); 14] = [
            ("utf8mb4", Charset::Utf8),
            ("utf8mb3", Charset::Utf8),
            ("utf8", Charset::Utf8),
            ("ascii", Charset::Utf8),
            ("binary", Charset::Utf8),
            ("ujis", Charset::Utf8),
            ("eucjpms", Charset::Utf8),
            ("euckr", Charset::Utf8),
            ("gb2312", Charset::Utf8),
            ("gbk", Charset::Gbk),
            ("gb18030", Charset::Gb18030),
            ("sjis", Charset::Sjis),
            ("cp932", Charset::Sjis),
            ("big5", Charset::Big5),
        ];
        const OF_ONE_BYTE: &str = "latin1 latin2 latin5 latin7 cp1250 cp1251 cp1256 cp1257 cp850 cp852 cp866 koi8r koi8u \
             hebrew greek tis620 swe7 dec8 hp8 armscii8 geostd8 keybcs2 macce macroman";
        let found = NAMES
            .iter()
            .find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name));
        let one_byte = || {
            let mut names = OF_ONE_BYTE.split_ascii_whitespace();
            names.any(|known| known.as_bytes().eq_ignore_ascii_case(name))
        };
        let found = found.map(|&(_, charset)| charset);
        found.or_else(|| one_byte().then_some(Self::SingleByte))
    }

    /// Bytes of the character at the start of `text`, of which there is at least one. What is no character of
    /// this set is one byte, as it is for the servers.
    pub(crate) fn width(self, text: &[u8]) -> usize {
        let (Some(&lead), Some(&trail)) = (text.first(), text.get(1)) else {
            return 1;
        };
        let pair = match self {
            Self::Utf8 | Self::SingleByte => false,
            Self::Gbk | Self::Gb18030 => {
                (0x81..=0xFE).contains(&lead) && matches!(trail, 0x40..=0x7E | 0x80..=0xFE)
            }
            Self::Sjis => {
                matches!(lead, 0x81..=0x9F | 0xE0..=0xFC) && matches!(trail, 0x40..=0x7E | 0x80..=0xFC)
            }
            Self::Big5 => (0xA1..=0xF9).contains(&lead) && matches!(trail, 0x40..=0x7E | 0xA1..=0xFE),
        };
        if pair {
            return 2;
        }
        let four =
            self == Self::Gb18030 && matches!(text, [0x81..=0xFE, 0x30..=0x39, 0x81..=0xFE, 0x30..=0x39, ..]);
        if four { 4 } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_byte_belongs_to_its_character() {
        assert_eq!(Charset::Gbk.width(b"\xBF\x5C'"), 2);
        assert_eq!(Charset::Gbk.width(b"\xBF\x27"), 1);
        assert_eq!(Charset::Sjis.width(b"\x83\x5C"), 2);
        assert_eq!(Charset::Sjis.width(b"\xB1\x5C"), 1, "half-width katakana");
        assert_eq!(Charset::Big5.width(b"\xA5\x5C"), 2);
        assert_eq!(Charset::Gb18030.width(b"\x81\x30\x81\x30"), 4);
        assert_eq!(Charset::Gb18030.width(b"\x81\x30\x81"), 1);
        assert_eq!(Charset::Utf8.width(b"\xC3\xA9"), 1);
    }

    #[test]
    fn names_in_any_case() {
        assert_eq!(Charset::named(b"UTF8MB4"), Charset::Utf8);
        assert_eq!(Charset::named(b"cp932"), Charset::Sjis);
        assert_eq!(Charset::named(b"latin1"), Charset::SingleByte);
        assert_eq!(Charset::named(b"klingon"), Charset::SingleByte);
    }
}
