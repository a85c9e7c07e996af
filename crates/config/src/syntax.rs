//! A text as TOML, and what is told of one that is none.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::report::Report;

/// The text as TOML; `None` after its mistakes were told. What a parser makes of the rest of a broken text is
/// a guess, and mistakes in a guess mislead.
pub(crate) fn root<'t>(text: &'t str, report: &mut Report<'_>) -> Option<Spanned<DeValue<'t>>> {
    let (root, broken) = DeTable::parse_recoverable(text);
    // Behind a bracket that is not closed everything is wrong, down to the end of the file.
    let begins = |words: [&'static str; 3]| {
        move |error: &toml::de::Error| words.iter().any(|word| error.message().starts_with(word))
    };
    let is_open = broken.iter().any(begins([
        "unclosed array,",
        "unclosed inline table",
        "missing key for inline table",
    ]));
    let first = broken.iter().position(begins([
        "unclosed",
        "missing comma",
        "missing key for inline table",
    ]));
    let last = first.filter(|_| is_open).unwrap_or(broken.len());
    for (index, error) in broken.iter().enumerate().take(last.saturating_add(1)) {
        let span = error.span().unwrap_or(0..0);
        let found = match (error.message(), text.get(span.clone())) {
            ("duplicate key", Some(key)) => format!("`{key}` a second time"),
            (message, _) if message.starts_with("string values must be quoted") => {
                "a text without quotes, or no value at all".to_owned()
            }
            (message, _) => message.to_owned(),
        };
        let hint = match index == last {
            true => bracket_hint(text, span.start),
            false => syntax_hint(error.message(), text, span.start),
        };
        report.wrong_at(span, "", "", found).hint(hint);
    }
    let span = root.span();
    broken
        .is_empty()
        .then(|| Spanned::new(span, DeValue::Table(root.into_inner())))
}

/// Where the bracket stands that has no counterpart, as far as that can be told by looking back for the last
/// one.
fn bracket_hint(text: &str, at: usize) -> Option<String> {
    let before = text.get(..at)?;
    let bracket = before.rfind(['[', '{'])?;
    let line = before[..bracket].matches('\n').count() + 1;
    Some(format!(
        "the `{}` in line {line} may not be closed",
        &before[bracket..=bracket]
    ))
}

/// What is probably meant, where the parser's words leave whoever reads them alone. Never the value, which
/// may be a password.
fn syntax_hint(message: &str, text: &str, at: usize) -> Option<String> {
    let before = text.get(..at).unwrap_or_default();
    let begin = before.rfind(['\n', '=', '[', ',']).map_or(0, |place| place + 1);
    let rest = text.get(begin..).unwrap_or_default();
    let value = rest
        .split([',', ']', '}', '#', '\n'])
        .next()
        .unwrap_or_default()
        .trim();
    let hint = match message.split(',').next().unwrap_or_default() {
        _ if matches!(
            value.to_ascii_lowercase().as_str(),
            "true" | "false" | "yes" | "no" | "on" | "off"
        ) =>
        {
            "write true or false, in small letters"
        }
        "invalid basic string" if message.ends_with("expected `\"`") => "the quote at its end is missing",
        // Another language, mostly, or a colon.
        "key with no value" | "invalid unquoted key" | "unquoted keys cannot be empty" => {
            "an option is written NAME = VALUE, a section [NAME]"
        }
        "missing escaped value" => "a backslash stands for itself in single quotes: '\\d+'",
        "string values must be quoted" => "text goes in quotes: \"...\"",
        // An address or a duration that begins like a number.
        "invalid float" | "invalid integer" | "unexpected leading zero" => {
            "what is no plain number goes in quotes: \"...\""
        }
        _ => return None,
    };
    Some(hint.to_owned())
}
