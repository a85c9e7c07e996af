//! Looks at a statement's text.

/// Whether the text has this part, in whatever case.
pub(crate) fn has(text: &[u8], part: &[u8]) -> bool {
    let mut windows = text.windows(part.len());
    windows.any(|window| window.eq_ignore_ascii_case(part))
}
