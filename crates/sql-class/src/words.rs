//! Words of a text, where its tokens are not needed.

/// Whether the word is one of these, in whatever case.
#[must_use]
pub fn is_one_of(word: &[u8], known: &[&str]) -> bool {
    known
        .iter()
        .any(|known| word.eq_ignore_ascii_case(known.as_bytes()))
}

/// The words that blanks separate.
pub(crate) fn plain_words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let words = text.split(u8::is_ascii_whitespace);
    words.filter(|word| !word.is_empty())
}

/// The words of nothing but letters, digits and `_`.
pub(crate) fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let words = text.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
    words.filter(|word| !word.is_empty())
}
