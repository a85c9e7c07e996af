//! Comments that are addressed to the gateway: `/* forebay: primary */`.

use crate::facts::Hint;

/// Of several comments, and of several words in one (`/* forebay: replica, tag=report */`), the first that
/// names a place counts; a tag counts where none does.
pub(crate) fn choose<'a>(comments: impl Iterator<Item = &'a [u8]>) -> Option<Hint> {
    let mut tag = None;
    for comment in comments {
        for word in words(comment) {
            match read(word) {
                Some(hint @ Hint::Tag(_)) => tag = tag.or(Some(hint)),
                Some(place) => return Some(place),
                None => {}
            }
        }
    }
    tag
}

/// What comes after `forebay:`.
fn words(comment: &[u8]) -> impl Iterator<Item = &[u8]> {
    let comment = comment.trim_ascii();
    let named = comment
        .get(..7)
        .is_some_and(|name| name.eq_ignore_ascii_case(b"forebay"));
    let rest = if named {
        comment[7..].trim_ascii_start()
    } else {
        &[]
    };
    let rest = rest.strip_prefix(b":").unwrap_or_default();
    rest.split(|byte| byte.is_ascii_whitespace() || *byte == b',')
        .filter(|word| !word.is_empty())
}

fn read(word: &[u8]) -> Option<Hint> {
    if word.eq_ignore_ascii_case(b"primary") {
        return Some(Hint::Primary);
    }
    if word.eq_ignore_ascii_case(b"replica") {
        return Some(Hint::Replica);
    }
    let equals = word.iter().position(|&byte| byte == b'=')?;
    let (name, value) = (&word[..equals], std::str::from_utf8(&word[equals + 1..]).ok()?);
    if value.is_empty() {
        return None;
    }
    match name.to_ascii_lowercase().as_slice() {
        b"server" => Some(Hint::Server(value.into())),
        b"tag" => Some(Hint::Tag(value.into())),
        _ => None,
    }
}
