//! Words, names and comments of a statement's text, whatever it is.

/// Whether a text begins with these letters, capital or small.
pub(crate) fn begins_with(text: &[u8], word: &str) -> bool {
    let begin = text.get(..word.len());
    begin.is_some_and(|begin| begin.eq_ignore_ascii_case(word.as_bytes()))
}

/// Whether a text is one statement, as far as its semicolons tell.
pub(crate) fn is_alone(text: &[u8]) -> bool {
    !without_semicolon(text.trim_ascii_end()).contains(&b';')
}

pub(crate) fn without_semicolon(text: &[u8]) -> &[u8] {
    text.strip_suffix(b";").unwrap_or(text)
}

/// The name between backticks; a name without them as it is.
pub(crate) fn without_backticks(name: &[u8]) -> &[u8] {
    let inner = name.strip_prefix(b"`").and_then(|name| name.strip_suffix(b"`"));
    inner.unwrap_or(name)
}

/// The text behind the comments with which it begins. A comment that servers execute is none of them, nor is
/// one without an end.
pub(crate) fn without_comments_in_front(text: &[u8]) -> &[u8] {
    let mut rest = text.trim_ascii_start();
    loop {
        let len = match rest {
            [b'#', ..] | [b'-', b'-', b'\t'..=b'\r' | b' ', ..] => {
                rest.iter().position(|byte| *byte == b'\n')
            }
            [b'/', b'*', b'!' | b'M', ..] => return rest,
            [b'/', b'*', ..] => comment_len(rest),
            _ => return rest,
        };
        let Some(behind) = len.and_then(|len| rest.get(len..)) else {
            return rest;
        };
        rest = behind.trim_ascii_start();
    }
}

/// How long the comment is with which a text begins (`/* … */`); `None` where it has no end.
pub(crate) fn comment_len(text: &[u8]) -> Option<usize> {
    let end = text.windows(2).skip(2).position(|part| part == b"*/");
    end.map(|end| end + 4)
}
