//! What rules match with: regular expressions, names with wildcards, digests of statements.

use std::fmt;
use std::sync::LazyLock;

use regex::bytes::{Regex, RegexBuilder};

/// Longest expression or name with wildcards, in bytes.
const LENGTH_MAX: usize = 10_000;

/// Memory that one compiled expression may take, and as much again for what it caches while it runs.
const REGEX_SIZE_MAX: usize = 1 << 20;

/// A regular expression, compiled. Searches in time proportional to the text: there is no looking back,
/// neither with `\1` nor around. Case is ignored unless it says `(?-i)`, and `.` is any byte, newlines too: a
/// statement may have several lines, and be in any charset.
#[derive(Clone)]
pub struct Pattern {
    text: String,
    regex: Regex,
}

impl Pattern {
    /// What an expression looks like, for error messages and the reference.
    pub(crate) const KIND: &str = "a regular expression (\"^SELECT .* FROM orders\")";

    /// Compiles an expression.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.len() > LENGTH_MAX {
            return Err(format!("more than {LENGTH_MAX} bytes"));
        }
        RegexBuilder::new(text)
            .unicode(false)
            .case_insensitive(true)
            .dot_matches_new_line(true)
            .size_limit(REGEX_SIZE_MAX)
            .dfa_size_limit(REGEX_SIZE_MAX)
            .build()
            .map(|regex| Self {
                text: text.to_owned(),
                regex,
            })
            .map_err(|error| last_line(&error.to_string()))
    }

    /// What is found everywhere.
    pub(crate) fn empty() -> Self {
        static EMPTY: LazyLock<Regex> = LazyLock::new(|| match Regex::new("") {
            Ok(regex) => regex,
            Err(error) => unreachable!("the empty expression is none: {error}"),
        });
        Self {
            text: String::new(),
            regex: EMPTY.clone(),
        }
    }

    /// The expression as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it is found in `text`.
    #[must_use]
    pub fn is_in(&self, text: &[u8]) -> bool {
        self.regex.is_match(text)
    }

    /// `text` with the first match, or every match, replaced; `None` where there is no match or where the
    /// result would have more than `max` bytes.
    #[must_use]
    pub fn replace(&self, text: &[u8], replacement: &str, all: bool, max: usize) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let mut rest = 0;
        for captures in self
            .regex
            .captures_iter(text)
            .take(if all { usize::MAX } else { 1 })
        {
            let whole = captures.get(0)?;
            out.extend_from_slice(&text[rest..whole.start()]);
            captures.expand(replacement.as_bytes(), &mut out);
            rest = whole.end();
            if out.len() > max {
                return None;
            }
        }
        out.extend_from_slice(&text[rest..]);
        (out.len() <= max && self.regex.is_match(text)).then_some(out)
    }

    /// The first group that `replacement` asks for and the expression does not have.
    pub(crate) fn missing_group<'r>(&self, replacement: &'r str) -> Option<&'r str> {
        groups(replacement).find(|group| match group.parse::<usize>() {
            Ok(number) => number >= self.regex.captures_len(),
            Err(_) => self.regex.capture_names().all(|name| name != Some(*group)),
        })
    }
}

/// The groups that a replacement asks for: `$1`, `$name`, `${name}`; `$$` is none.
fn groups(replacement: &str) -> impl Iterator<Item = &str> {
    let mut rest = replacement;
    std::iter::from_fn(move || {
        loop {
            let after = &rest[rest.find('$')? + 1..];
            if let Some(after) = after.strip_prefix('$') {
                rest = after;
                continue;
            }
            if let Some((name, after)) = after.strip_prefix('{').and_then(|after| after.split_once('}')) {
                rest = after;
                return Some(name);
            }
            let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let (name, after) = after.split_at(end.unwrap_or(after.len()));
            rest = after;
            if !name.is_empty() {
                return Some(name);
            }
        }
    })
}

/// The crate's messages draw the place in several lines and say what is wrong in the last one.
fn last_line(message: &str) -> String {
    let line = message.lines().last().unwrap_or_default().trim();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, out)
    }
}

/// A name in which `*` stands for any text and `?` for one character.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Glob(String);

impl Glob {
    /// What one looks like, for error messages and the reference.
    pub(crate) const KIND: &str = "a name, with `*` for any text and `?` for one character (\"report_*\")";

    /// `None` where the text is too long.
    pub fn new(text: &str) -> Option<Self> {
        (text.len() <= LENGTH_MAX).then(|| Self(text.to_owned()))
    }

    /// Every name.
    pub(crate) fn any() -> Self {
        Self("*".to_owned())
    }

    /// The name as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `name` is one of those that are meant. Case counts.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let (glob, name): (&[u8], &[u8]) = (self.0.as_bytes(), name.as_bytes());
        let (mut at, mut place) = (0, 0);
        // Where to go on when what follows the last `*` does not fit here: the `*` takes one byte more.
        let mut again: Option<(usize, usize)> = None;
        while place < name.len() {
            match glob.get(at) {
                Some(b'*') => {
                    again = Some((at + 1, place));
                    at += 1;
                }
                Some(b'?') => {
                    at += 1;
                    place += character(&name[place..]);
                }
                Some(byte) if *byte == name[place] => {
                    at += 1;
                    place += 1;
                }
                _ => {
                    let Some((after_star, taken)) = again else {
                        return false;
                    };
                    again = Some((after_star, taken + 1));
                    (at, place) = (after_star, taken + 1);
                }
            }
        }
        glob[at..].iter().all(|byte| *byte == b'*')
    }
}

/// Bytes of the UTF-8 character that `text` begins with.
fn character(text: &[u8]) -> usize {
    1 + text
        .iter()
        .skip(1)
        .take_while(|byte| **byte & 0xc0 == 0x80)
        .count()
}

/// The 64-bit digest of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DigestHash(pub u64);

impl DigestHash {
    /// What one looks like, for error messages and the reference.
    pub(crate) const KIND: &str = "16 hexadecimal digits (\"5f0c27b1a9e3d846\")";

    /// Reads 16 hexadecimal digits, also after `0x`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        let is_hash = digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hash
            .then(|| u64::from_str_radix(digits, 16).ok())
            .flatten()
            .map(Self)
    }
}

impl fmt::Display for DigestHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_glob_means_what_a_shell_means() {
        let matches = |glob: &str, name: &str| Glob::new(glob).unwrap().matches(name);
        for (glob, name) in [
            ("app", "app"),
            ("*", ""),
            ("*", "anything"),
            ("app_*", "app_1"),
            ("*_ro", "app_ro_ro"),
            ("a?c", "abc"),
            ("a?c", "aéc"),
            ("*a*b*", "xaxbx"),
            ("shop.tmp_*", "shop.tmp_1"),
        ] {
            assert!(matches(glob, name), "{glob} {name}");
        }
        for (glob, name) in [
            ("app", "App"),
            ("app", "app1"),
            ("", "a"),
            ("a?c", "ac"),
            ("*ab", "aba"),
        ] {
            assert!(!matches(glob, name), "{glob} {name}");
        }
    }

    #[test]
    fn an_expression_ignores_case_until_it_says_otherwise() {
        let found = |pattern: &str, text: &str| Pattern::new(pattern).unwrap().is_in(text.as_bytes());
        assert!(found("^select.*for update$", "SELECT 1\nFOR UPDATE"));
        assert!(!found("(?-i)^select", "SELECT 1"));
        assert!(Pattern::new("a.c").unwrap().is_in(b"a\xffc"), "any charset");
    }

    #[test]
    fn a_wrong_expression_is_explained_in_a_line() {
        let why = |pattern: &str| Pattern::new(pattern).unwrap_err();
        assert_eq!(why("a(b"), "unclosed group");
        assert!(!why("(?=x)").contains('\n'));
        assert!(!why("((a{100}){100}){100}").contains('\n'));
    }

    #[test]
    fn matches_are_replaced_up_to_a_size() {
        let pattern = Pattern::new(r"from (?<table>\w+)_old").unwrap();
        let replace = |all, max| pattern.replace(b"from a_old, from b_old", "FROM ${table}$$", all, max);
        assert_eq!(replace(false, 100).unwrap(), b"FROM a$, from b_old");
        assert_eq!(replace(true, 100).unwrap(), b"FROM a$, FROM b$");
        assert_eq!(replace(true, 10), None);
        assert_eq!(pattern.replace(b"select 1", "x", true, 100), None);
        assert_eq!(pattern.missing_group("$1 ${table} $$9"), None);
        assert_eq!(pattern.missing_group("${other}"), Some("other"));
        assert_eq!(pattern.missing_group("$2"), Some("2"));
    }

    #[test]
    fn digests_are_read_and_shown() {
        let digest = DigestHash::parse("00ff00ff00ff00ff").unwrap();
        assert_eq!(DigestHash::parse(&format!("0x{digest}")), Some(digest));
        for text in ["", "ff", "+0ff00ff00ff00ff", "g0ff00ff00ff00ff"] {
            assert_eq!(DigestHash::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_glob_agrees_with_the_obvious_definition(glob in "[ab*?]{0,6}", name in "[abé]{0,8}") {
            fn obvious(glob: &[char], name: &[char]) -> bool {
                match glob {
                    [] => name.is_empty(),
                    ['*', rest @ ..] => (0..=name.len()).any(|cut| obvious(rest, &name[cut..])),
                    ['?', rest @ ..] => !name.is_empty() && obvious(rest, &name[1..]),
                    [c, rest @ ..] => name.first() == Some(c) && obvious(rest, &name[1..]),
                }
            }
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(Glob::new(&glob).unwrap().matches(&name), obvious(&chars(&glob), &chars(&name)));
        }

        #[test]
        fn any_replacement_is_answered(replacement in ".*") {
            let pattern = Pattern::new("(a)").unwrap();
            let _ = (pattern.missing_group(&replacement), pattern.replace(b"bab", &replacement, true, 50));
        }
    }
}
