//! What a `GET DIAGNOSTICS` asks about a statement as a whole.

use std::ops::Range;

use crate::syntax::Syntax;
use crate::token::{Kind, Token, Tokenizer};

/// An item of the statement information.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatementItem {
    /// How many conditions there are.
    Number,
    RowCount,
}

/// The user variables of `GET DIAGNOSTICS @a = NUMBER, @b = ROW_COUNT`, where they are written, and what each
/// is set to. `None` for any other text.
#[must_use]
pub fn statement_items(sql: &[u8], syntax: Syntax) -> Option<Vec<(Range<usize>, StatementItem)>> {
    let mut tokens = Tokenizer::new(sql, syntax);
    let mut word = next_word(&mut tokens, b"GET")?;
    word = match tokens.text(word).eq_ignore_ascii_case(b"CURRENT") {
        true => tokens.next(),
        false => word,
    };
    if !tokens.text(word).eq_ignore_ascii_case(b"DIAGNOSTICS") {
        return None;
    }
    let mut items = Vec::new();
    loop {
        let variable = tokens.next();
        let sign = tokens.next();
        let item = tokens.next();
        let is_assignment = variable.kind == Kind::Variable && tokens.text(sign) == b"=";
        let item = match tokens.text(item) {
            name if name.eq_ignore_ascii_case(b"NUMBER") => StatementItem::Number,
            name if name.eq_ignore_ascii_case(b"ROW_COUNT") => StatementItem::RowCount,
            _ => return None,
        };
        items.push((variable.start..variable.end, item));
        match tokens.next().kind {
            _ if !is_assignment => return None,
            Kind::Comma => {}
            Kind::Semicolon if tokens.next().kind != Kind::End => return None,
            Kind::Semicolon | Kind::End => break,
            _ => return None,
        }
    }
    (!tokens.doubtful).then_some(items)
}

/// The token after this word.
fn next_word(tokens: &mut Tokenizer<'_>, word: &[u8]) -> Option<Token> {
    let first = tokens.next();
    let is_it = first.kind == Kind::Word && tokens.text(first).eq_ignore_ascii_case(word);
    is_it.then(|| tokens.next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_the_statement_alone() {
        let items = |sql: &str| {
            let items = statement_items(sql.as_bytes(), Syntax::default())?;
            let written = |(place, item): (Range<usize>, StatementItem)| (sql[place].to_owned(), item);
            Some(items.into_iter().map(written).collect::<Vec<_>>())
        };
        let (rows, number) = (StatementItem::RowCount, StatementItem::Number);
        let one = |name: &str, item| Some(vec![(name.to_owned(), item)]);
        assert_eq!(items("GET DIAGNOSTICS @n = ROW_COUNT"), one("@n", rows));
        assert_eq!(
            items("get current diagnostics @`a b`=number;"),
            one("@`a b`", number)
        );
        let two = vec![("@n".to_owned(), number), ("@r".to_owned(), rows)];
        assert_eq!(items("GET DIAGNOSTICS @n = NUMBER, @r = ROW_COUNT"), Some(two));
        for other in [
            "GET DIAGNOSTICS CONDITION 1 @m = MESSAGE_TEXT",
            "GET STACKED DIAGNOSTICS @n = NUMBER",
            "GET DIAGNOSTICS n = NUMBER",
            "GET DIAGNOSTICS @n = NUMBER; SELECT 1",
            "GET DIAGNOSTICS @n = NUMBER,",
            "GET DIAGNOSTICS",
            "SELECT 1",
            "",
        ] {
            assert_eq!(items(other), None, "{other}");
        }
    }
}
