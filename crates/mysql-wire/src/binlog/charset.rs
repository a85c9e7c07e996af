//! Character sets of columns, and their text as UTF-8.
//!
//! Sources: `mysys/charset-def.c` and `strings/ctype-*.c` of both servers. The servers' `latin1` is
//! Windows-1252, whose five unused bytes they take for the control characters of ISO 8859-1.

use std::borrow::Cow;

use super::BinlogError;
use crate::codec::{big_endian, little_endian};

/// How a column's text is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Charset {
    Binary,
    Ascii,
    Latin1,
    /// `utf8`, `utf8mb3` and `utf8mb4`.
    Utf8,
    Ucs2,
    Utf16,
    Utf16Le,
    Utf32,
}

const WINDOWS_1252: [char; 32] = [
    '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}', '\u{90}',
    '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
];

impl Charset {
    /// By the server's name of the character set; None for those that cannot be turned into UTF-8 here.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Charset> {
        Some(match name.to_ascii_lowercase().as_str() {
            "binary" => Charset::Binary,
            "ascii" => Charset::Ascii,
            "latin1" => Charset::Latin1,
            "utf8" | "utf8mb3" | "utf8mb4" => Charset::Utf8,
            "ucs2" => Charset::Ucs2,
            "utf16" => Charset::Utf16,
            "utf16le" => Charset::Utf16Le,
            "utf32" => Charset::Utf32,
            _ => return None,
        })
    }

    /// Stored text as UTF-8; bytes of [`Charset::Binary`] as they are.
    pub(super) fn to_utf8(self, text: &[u8]) -> Result<Cow<'_, [u8]>, BinlogError> {
        const INVALID: BinlogError = BinlogError::Value { kind: "text" };
        let units = |size: usize| {
            text.len()
                .is_multiple_of(size)
                .then(|| text.chunks_exact(size))
                .ok_or(INVALID)
        };
        let scalar = |code: u32| char::from_u32(code).ok_or(INVALID);
        match self {
            Charset::Binary | Charset::Utf8 => Ok(text.into()),
            Charset::Ascii | Charset::Latin1 if text.is_ascii() => Ok(text.into()),
            Charset::Ascii => Ok(text
                .iter()
                .map(|&byte| if byte < 0x80 { byte } else { b'?' })
                .collect()),
            Charset::Latin1 => Ok(text
                .iter()
                .map(|&byte| latin1(byte))
                .collect::<String>()
                .into_bytes()
                .into()),
            Charset::Ucs2 => {
                let chars = units(2)?.map(|unit| scalar(big_endian(unit) as u32));
                Ok(chars.collect::<Result<String, _>>()?.into_bytes().into())
            }
            Charset::Utf16 => utf16(units(2)?.map(|unit| big_endian(unit) as u16)).ok_or(INVALID),
            Charset::Utf16Le => utf16(units(2)?.map(|unit| little_endian(unit) as u16)).ok_or(INVALID),
            Charset::Utf32 => {
                let chars = units(4)?.map(|unit| scalar(big_endian(unit) as u32));
                Ok(chars.collect::<Result<String, _>>()?.into_bytes().into())
            }
        }
    }
}

fn latin1(byte: u8) -> char {
    let at = byte.checked_sub(0x80).map(usize::from);
    let special = at.and_then(|at| WINDOWS_1252.get(at));
    special.copied().unwrap_or(char::from(byte))
}

fn utf16(units: impl Iterator<Item = u16>) -> Option<Cow<'static, [u8]>> {
    let text: Result<String, _> = char::decode_utf16(units).collect();
    Some(text.ok()?.into_bytes().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_becomes_utf8() {
        for (charset, stored, text) in [
            ("latin1", &b"gr\xfc\xdf \x80 \x81"[..], "grüß € \u{81}"),
            ("ascii", b"a\xff", "a?"),
            ("ucs2", b"\x00a\x20\xac", "a€"),
            ("utf16", b"\x00a\xd8\x3d\xde\x00", "a😀"),
            ("utf16le", b"a\x00\x3d\xd8\x00\xde", "a😀"),
            ("utf32", b"\0\0\0a\x00\x01\xf6\x00", "a😀"),
            ("utf8mb4", "a😀".as_bytes(), "a😀"),
        ] {
            let charset = Charset::by_name(charset).unwrap();
            assert_eq!(charset.to_utf8(stored).unwrap(), text.as_bytes(), "{charset:?}");
        }
        assert_eq!(Charset::by_name("gb18030"), None);
    }

    #[test]
    fn what_is_no_text_is_an_error() {
        for (charset, stored) in [
            (Charset::Utf16, &b"a"[..]),
            (Charset::Utf16, b"\xd8\x3d"),
            (Charset::Ucs2, b"\xd8\x3d"),
            (Charset::Utf32, b"\xff\0\0\0"),
        ] {
            assert!(charset.to_utf8(stored).is_err(), "{charset:?}");
        }
    }
}
