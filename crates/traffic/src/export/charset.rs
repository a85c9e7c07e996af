//! The charset of what a session sends, as far as the capture tells.

use crate::words::without_comments_in_front;

/// The name of a charset. `None`: it is UTF-8, or not known.
pub(super) type Charset = Option<&'static str>;

/// Charsets other than UTF-8, with the ids of their collations, which a login has.
const CHARSETS: [(&str, &[u8]); 35] = [
    ("armscii8", &[32, 64]),
    ("ascii", &[11, 65]),
    ("big5", &[1, 84]),
    ("binary", &[63]),
    ("cp1250", &[26, 34, 44, 66, 99]),
    ("cp1251", &[14, 23, 50, 51, 52]),
    ("cp1256", &[57, 67]),
    ("cp1257", &[29, 58, 59]),
    ("cp850", &[4, 80]),
    ("cp852", &[40, 81]),
    ("cp866", &[36, 68]),
    ("cp932", &[95, 96]),
    ("dec8", &[3, 69]),
    ("eucjpms", &[97, 98]),
    ("euckr", &[19, 85]),
    ("gb18030", &[248, 249, 250]),
    ("gb2312", &[24, 86]),
    ("gbk", &[28, 87]),
    ("geostd8", &[92, 93]),
    ("greek", &[25, 70]),
    ("hebrew", &[16, 71]),
    ("hp8", &[6, 72]),
    ("keybcs2", &[37, 73]),
    ("koi8r", &[7, 74]),
    ("koi8u", &[22, 75]),
    ("latin1", &[5, 8, 15, 31, 47, 48, 49, 94]),
    ("latin2", &[2, 9, 21, 27, 77]),
    ("latin5", &[30, 78]),
    ("latin7", &[20, 41, 42, 79]),
    ("macce", &[38, 43]),
    ("macroman", &[39, 53]),
    ("sjis", &[13, 88]),
    ("swe7", &[10, 82]),
    ("tis620", &[18, 89]),
    ("ujis", &[12, 91]),
];

/// The charset that a login names by a collation.
pub(super) fn of_collation(id: u8) -> Charset {
    let mut charsets = CHARSETS.iter();
    charsets.find(|(_, ids)| ids.contains(&id)).map(|(name, _)| *name)
}

/// The charset behind a statement that has succeeded. Only a plain `SET NAMES` is understood; whatever else
/// may set it leaves it unknown.
pub(super) fn behind(text: &[u8], before: Charset) -> Charset {
    let text = String::from_utf8_lossy(without_comments_in_front(text)).to_ascii_lowercase();
    let text = text.trim().trim_end_matches(';');
    let words: Vec<&str> = text.split_whitespace().collect();
    if let ["set", "names", name] | ["set", "names", name, "collate", _] = words[..] {
        let name = name.trim_matches(['\'', '"']);
        let mut charsets = CHARSETS.iter();
        return charsets.find(|(known, _)| *known == name).map(|(name, _)| *name);
    }
    let may_set = text.starts_with("set") || text.starts_with("/*") || text.contains(';');
    let names_one = ["names", "charset", "character"]
        .iter()
        .any(|word| text.contains(word));
    before.filter(|_| !may_set || !names_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_plain_tells_a_charset() {
        let of = |text: &str| behind(text.as_bytes(), Some("gbk"));
        for text in [
            "SET NAMES latin1",
            "/* a */ set names 'LATIN1' COLLATE latin1_bin;",
        ] {
            assert_eq!(of(text), Some("latin1"), "{text}");
        }
        for text in [
            "SET NAMES utf8mb4",
            "SET NAMES DEFAULT",
            "SET NAMES latin1, NAMES gbk",
            "SET CHARACTER SET latin1",
            "SET @@character_set_client = latin1",
            "SELECT 1; SET NAMES latin1",
            "/*!40101 SET NAMES latin1 */",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
        for text in ["SET a = 1", "UPDATE t SET names = 1", "SELECT 1; SELECT 2"] {
            assert_eq!(of(text), Some("gbk"), "{text}");
        }
        assert_eq!(
            [8, 45, 63, 255].map(of_collation),
            [Some("latin1"), None, Some("binary"), None]
        );
    }
}
