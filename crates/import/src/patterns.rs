//! Conditions of ProxySQL's rules in our words: expressions, addresses with `%`, replacements.

use std::net::Ipv4Addr;

use config::Pattern;

/// An expression of `match_pattern`, or of `match_digest` where `is_digest`.
///
/// # Errors
/// Why it is none here: looking around and back is not possible, and normalised texts do not have the case of
/// the statement.
pub(crate) fn expression(text: &str, ignores_case: bool, is_digest: bool) -> Result<String, String> {
    if is_digest && !ignores_case {
        return Err(
            "without CASELESS case counts, and our normalised text has keywords in capitals".to_owned(),
        );
    }
    if is_digest && names_a_list(text) {
        return Err("lists of literals are (...) in our normalised text".to_owned());
    }
    let text = with_plain_angles(text);
    let text = if is_digest { loosened(&text) } else { text };
    let text = if ignores_case {
        text
    } else {
        format!("(?-i){text}")
    };
    Pattern::new(&text).map(|_| text)
}

/// Whether an expression for normalised texts is about several literals in a row, or about a list after `IN`.
fn names_a_list(pattern: &str) -> bool {
    let plain = pattern.to_ascii_lowercase();
    let plain = plain.replace(r"\s*", "").replace(r"\s+", "").replace(' ', "");
    [r"\?,", r"(,\?", r":,\?", r"in\(\?"]
        .iter()
        .any(|list| plain.contains(list))
}

/// `\<` and `\>` are the characters themselves there, and the ends of a word here.
fn with_plain_angles(pattern: &str) -> String {
    let mut out = String::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match (c, chars.clone().next()) {
            ('\\', Some('<' | '>')) => out.extend(chars.next()),
            ('\\', _) => out.extend(std::iter::once(c).chain(chars.next())),
            _ => out.push(c),
        }
    }
    out
}

/// An expression for normalised texts that have other spaces, other words for some keywords and no backticks:
/// ProxySQL keeps `id=?` and `DISTINCT` as they were written, ours are `id = ?` and `DISTINCTROW`.
fn loosened(pattern: &str) -> String {
    let mut out = String::new();
    let mut chars = pattern.chars().peekable();
    let mut before = ' ';
    while let Some(c) = chars.next() {
        let is_repeated = |chars: &mut std::iter::Peekable<std::str::Chars<'_>>, skip: usize| {
            chars
                .clone()
                .nth(skip)
                .is_some_and(|next| matches!(next, '*' | '+' | '?' | '{'))
        };
        match c {
            '\\' => {
                let Some(escaped) = chars.peek().copied() else {
                    out.push(c);
                    break;
                };
                if escaped.is_ascii_punctuation() {
                    let repeated = is_repeated(&mut chars, 1);
                    spaced(&format!("\\{escaped}"), repeated, &mut out);
                } else {
                    out.extend([c, escaped]);
                }
                chars.next();
            }
            '[' => {
                out.push(c);
                copy_class(&mut chars, &mut out);
            }
            '{' => {
                out.push(c);
                copy_through(&mut chars, &['}'], &mut out);
            }
            '(' if chars.peek() == Some(&'?') => {
                out.push(c);
                copy_through(&mut chars, &[':', ')', '>', '=', '!'], &mut out);
            }
            ' ' => {
                let joins_words = is_word(before) && chars.peek().copied().is_some_and(is_word);
                let repeated = is_repeated(&mut chars, 0);
                out.push_str(match (joins_words, repeated) {
                    (true, _) => "\\s",
                    (false, false) => "\\s*",
                    (false, true) => "(?:\\s*)",
                });
                if joins_words {
                    out.push('+');
                }
            }
            // What repeats a backtick goes with it.
            '`' if is_repeated(&mut chars, 0) && chars.peek() != Some(&'{') => {
                chars.next();
            }
            '`' => {}
            '<' if chars.next_if_eq(&'>').is_some() => out.push_str("\\s*(?:!=|<>)\\s*"),
            // Between two names it is the dot of `schema.table`, with spaces around.
            '.' if is_name(before) && chars.peek().copied().is_some_and(is_name) => {
                spaced(".", false, &mut out);
            }
            ',' | '=' | '<' | '>' | '!' | '/' | '-' | ';' | ':' => {
                let repeated = is_repeated(&mut chars, 0);
                spaced(&c.to_string(), repeated, &mut out);
            }
            letter if is_word(letter) => {
                let mut word = String::from(letter);
                while let Some(next) = chars.next_if(|next| is_word(*next)) {
                    word.push(next);
                }
                // What repeats is the last letter alone.
                let last = if is_repeated(&mut chars, 0) {
                    word.pop()
                } else {
                    None
                };
                out.push_str(&in_our_words(&word));
                out.extend(last);
            }
            other => out.push(other),
        }
        before = c;
    }
    out
}

/// A keyword with the synonym that our normalised texts have in its place.
fn in_our_words(word: &str) -> String {
    match sql_class::synonym(&word.to_ascii_uppercase()) {
        Some(synonym) => format!("(?:{word}|{synonym})"),
        None => word.to_owned(),
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_name(c: char) -> bool {
    is_word(c) || c == '`'
}

fn spaced(symbol: &str, is_repeated: bool, out: &mut String) {
    let before = if out.ends_with("\\s*") { "" } else { "\\s*" };
    out.push_str(&if is_repeated {
        format!("(?:\\s*{symbol}\\s*)")
    } else {
        format!("{before}{symbol}\\s*")
    });
}

/// Copies what is left of `[…]`. A `]` right after the opening belongs to the class.
fn copy_class(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) {
    let mut is_first = true;
    while let Some(c) = chars.next() {
        out.push(c);
        match c {
            '^' if is_first => continue,
            '\\' => out.extend(chars.next()),
            ']' if !is_first => return,
            _ => {}
        }
        is_first = false;
    }
}

fn copy_through(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, ends: &[char], out: &mut String) {
    for c in chars.by_ref() {
        out.push(c);
        if ends.contains(&c) {
            return;
        }
    }
}

/// The network of a `client_addr`: an address, or one whose last parts are `%`. `Some(None)` is every
/// address; `None` is something that no network is.
pub(crate) fn network(address: &str) -> Option<Option<String>> {
    if address == "%" {
        return Some(None);
    }
    if address.parse::<std::net::IpAddr>().is_ok() {
        return Some(Some(address.to_owned()));
    }
    let start = address
        .strip_suffix(".%")
        .map(|start| start.trim_end_matches(".%"))?;
    let octets: Vec<u8> = start.split('.').map(str::parse).collect::<Result<_, _>>().ok()?;
    let bits = octets.len() * 8;
    if octets.is_empty() || octets.len() > 3 {
        return None;
    }
    let part = |index: usize| octets.get(index).copied().unwrap_or(0);
    Some(Some(format!(
        "{}/{bits}",
        Ipv4Addr::new(part(0), part(1), part(2), part(3))
    )))
}

/// A replacement: groups are `\1` there and `${1}` here.
pub(crate) fn replacement(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '$' => out.push_str("$$"),
            '\\' => match chars.next() {
                Some(digit) if digit.is_ascii_digit() => out.extend(["${", &digit.to_string(), "}"]),
                Some('\\') => out.push('\\'),
                Some(other) => out.extend(['\\', other]),
                None => out.push('\\'),
            },
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_digest_is_matched_whatever_its_spaces() {
        for (theirs, ours) in [
            (
                r"^SELECT c FROM sbtest1 WHERE id=\?$",
                "SELECT c FROM sbtest1 WHERE id = ?",
            ),
            (
                r"^SELECT DISTINCT c FROM `t` WHERE id BETWEEN \? AND \? ORDER BY c$",
                "SELECT DISTINCTROW c FROM t WHERE id BETWEEN ? AND ? ORDER BY c",
            ),
            ("FROM `?shop`?.`?t`? ", "SELECT a FROM shop . t WHERE id = ?"),
            ("FROM shop.t$", "SELECT a FROM shop . t"),
            (r"a <> \? AND b \<= \?", "SELECT a FROM t WHERE a != ? AND b <= ?"),
            (r"^SELECT.*FOR UPDATE$", "SELECT a FROM t FOR UPDATE"),
            (r"COUNT\(\*\)", "SELECT COUNT ( * ) FROM t"),
            (r"a,b,? ?c", "SELECT a , b , c FROM t"),
            (
                r"(?:insert|replace) into [a-z, ]+\(a,b\)",
                "INSERT INTO t ( a , b ) VALUES (...)",
            ),
            (r"x{1,2} >=\?", "SELECT xx >= ?"),
        ] {
            let pattern = Pattern::new(&expression(theirs, true, true).unwrap()).unwrap();
            assert!(pattern.is_in(ours.as_bytes()), "{theirs} {}", pattern.as_str());
        }
        let pattern = Pattern::new(&expression("^SELECT a", true, true).unwrap()).unwrap();
        assert!(!pattern.is_in(b"SELECTa"));
        assert_eq!(expression("^SELECT", false, false).unwrap(), "(?-i)^SELECT");
        assert!(expression("^SELECT", false, true).is_err());
        assert!(expression(r"^(?!SELECT)", true, false).is_err());
    }

    #[test]
    fn addresses_with_a_percent_sign_are_networks() {
        assert_eq!(network("10.1.2.3"), Some(Some("10.1.2.3".to_owned())));
        assert_eq!(network("10.1.%"), Some(Some("10.1.0.0/16".to_owned())));
        assert_eq!(network("10.1.2.%"), Some(Some("10.1.2.0/24".to_owned())));
        assert_eq!(network("10.%.%.%"), Some(Some("10.0.0.0/8".to_owned())));
        assert_eq!(network("fd00::1"), Some(Some("fd00::1".to_owned())));
        assert_eq!(network("%"), Some(None));
        for other in ["10.1.2%", "db%", "10.1.2.3.%", "%.1.2.3", ".%"] {
            assert_eq!(network(other), None, "{other}");
        }
    }

    #[test]
    fn replacements_name_their_groups_our_way() {
        assert_eq!(
            replacement(r"SELECT \1 FROM t_\2 /* $5 \\ */"),
            r"SELECT ${1} FROM t_${2} /* $$5 \ */"
        );
    }

    proptest! {
        #[test]
        fn any_condition_is_answered(text in "(a| |\\\\|\\?|\\(|\\)|\\[|\\]|\\{|,|=|`|\\^|é|1){0,20}") {
            let _ = (expression(&text, true, true), network(&text), replacement(&text));
        }
    }
}
