//! Where the values of a statement stand in its text.

use std::ops::Range;

use crate::syntax::Syntax;
use crate::token::{Kind, Tokenizer};

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Literal {
    /// A text in quotes, with what stands in front of them: `'…'`, `N'…'`, `x'…'`.
    Text,
    Number,
    /// No value: a word, a name, a variable, an operator.
    None,
}

/// The tokens of a text in their order. What is between them is space and comments. `None` where nobody can
/// be sure of them.
#[must_use]
pub fn literals(sql: &[u8], syntax: Syntax) -> Option<Vec<(Literal, Range<usize>)>> {
    let mut tokens = Tokenizer::new(sql, syntax);
    let mut found = Vec::new();
    loop {
        let token = tokens.next();
        let literal = match token.kind {
            Kind::End => return (!tokens.doubtful).then_some(found),
            Kind::String => Literal::Text,
            Kind::Number => Literal::Number,
            _ => Literal::None,
        };
        found.push((literal, token.start..token.end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_told_from_names() {
        let of = |sql: &'static str| -> Option<Vec<&str>> {
            let found = literals(sql.as_bytes(), Syntax::default())?;
            let values = found.into_iter().filter(|(literal, _)| *literal != Literal::None);
            Some(values.map(|(_, place)| &sql[place]).collect())
        };
        assert_eq!(
            of("SELECT a1, `2`, 'x''y' /* 'no' */, x'0a', 12.5 FROM t3 WHERE b = -7"),
            Some(vec!["'x''y'", "x'0a'", "12.5", "7"])
        );
        assert_eq!(of("SELECT 'open"), None);
    }
}
