//! What a statement is to a session of which nothing is known but what was seen here.

use mysql_wire::StatusFlags;
use sql_class::{Class, Effects, Facts, Syntax, set_targets};

use super::{OfSession, Standing};
use crate::session::Session;

/// A statement that goes to the server like any other.
#[derive(Debug, Clone)]
pub(super) struct Other {
    pub(super) facts: Facts,
    pub(super) is_select: bool,
    /// Variables that it sets.
    pub(super) sets: Vec<Box<[u8]>>,
}

/// A statement of which nothing is known.
const ANYTHING: Facts = Facts {
    class: Class::Unknown,
    effects: Effects::INCOMPLETE,
    statements: 1,
    hint: None,
};

pub(super) const ANY_OTHER: Other = Other {
    facts: ANYTHING,
    is_select: false,
    sets: Vec::new(),
};

/// What a server refuses.
pub(super) const NOTHING: Other = Other {
    facts: Facts {
        class: Class::Read,
        effects: Effects::NONE,
        statements: 1,
        hint: None,
    },
    is_select: false,
    sets: Vec::new(),
};

/// Collations of character sets in which a part of a character can be a backslash or a quote: of big5, sjis,
/// gbk, cp932, gb18030.
pub(super) const TRAILING_QUOTES: [u8; 11] = [1, 13, 28, 84, 87, 88, 95, 96, 248, 249, 250];
/// Those character sets.
const TRAILING_QUOTES_SETS: [&[u8]; 5] = [b"big5", b"sjis", b"gbk", b"cp932", b"gb18030"];

/// Looks at a statement, however the settings are that were not asked for.
pub(super) fn classify(session: &Session, of: &OfSession, text: &[u8]) -> Other {
    let syntax = |ansi_quotes| Syntax {
        ansi_quotes,
        no_backslash_escapes: session.status.contains(StatusFlags::NO_BACKSLASH_ESCAPES),
        ..of.syntax
    };
    let mut facts_cache = session.worker.facts_cache.borrow_mut();
    let (facts, is_certain) = facts_cache.certain_facts(text, syntax(of.syntax.ansi_quotes));
    let mut found = Other {
        facts,
        is_select: begins_with_select(text),
        sets: Vec::new(),
    };
    if !is_certain && matches!(of.standing, Standing::Changed) && text.contains(&b'"') {
        let other = facts_cache.facts(text, syntax(!of.syntax.ansi_quotes));
        found.facts.class = found.facts.class.max(other.class);
        found.facts.effects = found.facts.effects.with(other.effects);
        found.facts.statements = found.facts.statements.max(other.statements);
    }
    let names = |set: &[u8]| text.windows(set.len()).any(|word| word.eq_ignore_ascii_case(set));
    match found.facts.class {
        _ if found.facts.effects.contains(Effects::GATEWAY) && found.facts.statements == 1 => {}
        Class::Session if TRAILING_QUOTES_SETS.iter().any(|set| names(set)) => return ANY_OTHER,
        Class::Session | Class::Administration => match set_targets(text, syntax(of.syntax.ansi_quotes)) {
            Some(sets) => found.sets = sets,
            None => return ANY_OTHER,
        },
        _ => {}
    }
    found
}

fn begins_with_select(text: &[u8]) -> bool {
    let text = text.trim_ascii_start();
    text.get(..6)
        .is_some_and(|word| word.eq_ignore_ascii_case(b"SELECT"))
}
