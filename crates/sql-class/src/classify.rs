//! A text to what is known of it.

use crate::facts::{Class, Effects, Facts};
use crate::hint;
use crate::reader::Reader;
use crate::syntax::Syntax;

/// What is known of a text with one statement or several. One pass over its tokens; it allocates only for a
/// hint with a name in it.
#[must_use]
pub fn facts(sql: &[u8], syntax: Syntax) -> Facts {
    let mut reader = Reader::new(sql, syntax);
    let (mut class, mut statements) = (Class::Read, 0_u32);
    let mut changed_from = None;
    while reader.next_statement() {
        let within_program = reader.program;
        let of_statement = reader.statement();
        // What comes after a stored program's first semicolon is most likely its own, and is only looked
        // through for what it would do to the session if it were not.
        if !within_program {
            class = class.max(of_statement);
            statements = statements.saturating_add(1);
        }
        if reader.change.is_any() {
            changed_from.get_or_insert(reader.next.start);
        }
    }
    let change = reader.change;
    let is_read_otherwise = changed_from.is_some_and(|from| change.matters(sql, syntax, from));
    let mut effects = reader.effects;
    let tokens = reader.tokens();
    if tokens.doubtful || is_read_otherwise {
        effects = effects.with(Effects::INCOMPLETE);
        if class < Class::Write {
            class = Class::Unknown;
        }
    }
    Facts {
        class,
        effects,
        statements,
        hint: hint::choose(tokens.hints()),
    }
}
