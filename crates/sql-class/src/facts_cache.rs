//! Facts of statements that were seen before with other values.

use std::hash::BuildHasher;

use crate::facts::{Class, Effects, Facts};
use crate::fingerprint::fingerprint;
use crate::syntax::{Dialect, Syntax};

/// Says what [`facts`](crate::facts()) says, sooner where it was asked before of a statement that differs in
/// its values only.
///
/// A bounded number of statements, each at the place that its hash names: another one takes it. They are
/// compared as a whole, so none is taken for another.
#[derive(Debug, Default)]
pub struct FactsCache<S> {
    hasher: S,
    /// None until it is asked first.
    places: Vec<Known>,
    fingerprint: Vec<u8>,
    number: Option<u64>,
}

#[derive(Debug, Clone)]
struct Known {
    fingerprint: Vec<u8>,
    dialect: Dialect,
    class: Class,
    effects: Effects,
    statements: u32,
}

/// A power of two: 20 KiB, and what the statements need that are there, 1 KiB each at most.
const PLACES: usize = 256;

const NOTHING: Known = Known {
    fingerprint: Vec::new(),
    dialect: Dialect::MySql { version: 0 },
    class: Class::Unknown,
    effects: Effects::INCOMPLETE,
    statements: 0,
};

impl<S: BuildHasher> FactsCache<S> {
    /// See [`facts`](crate::facts()).
    pub fn facts(&mut self, sql: &[u8], syntax: Syntax) -> Facts {
        self.certain_facts(sql, syntax).0
    }

    /// A number that the statement asked for last has in common with those that differ from it in values
    /// only, and in all likelihood with no other; `None` where such are not told apart.
    pub fn number(&self) -> Option<u64> {
        self.number
    }

    /// What [`facts`](Self::facts) says, and whether that is certain not to depend on anything of the syntax
    /// but the dialect.
    pub fn certain_facts(&mut self, sql: &[u8], syntax: Syntax) -> (Facts, bool) {
        self.number = None;
        match fingerprint(sql, &mut self.fingerprint) && !self.fingerprint.is_empty() {
            true => (self.of_fingerprint(sql, syntax), true),
            false => (crate::facts(sql, syntax), false),
        }
    }

    fn of_fingerprint(&mut self, sql: &[u8], syntax: Syntax) -> Facts {
        if self.places.is_empty() {
            self.places.resize(PLACES, NOTHING);
        }
        let number = self.hasher.hash_one(self.fingerprint.as_slice());
        self.number = Some(number);
        let place = number as usize & (PLACES - 1);
        let known = &mut self.places[place];
        if known.fingerprint != self.fingerprint || known.dialect != syntax.dialect {
            let found = crate::facts(sql, syntax);
            known.fingerprint.clear();
            if found.hint.is_some() {
                return found;
            }
            known.fingerprint.extend_from_slice(&self.fingerprint);
            known.dialect = syntax.dialect;
            (known.class, known.effects, known.statements) = (found.class, found.effects, found.statements);
            return found;
        }
        Facts {
            class: known.class,
            effects: known.effects,
            statements: known.statements,
            hint: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::hash::RandomState;

    use super::*;

    #[test]
    fn what_is_known_is_what_would_be_found() {
        let mut known = FactsCache::<RandomState>::default();
        let texts = [
            "SELECT c FROM t WHERE id=1",
            "SELECT c FROM t WHERE id=22",
            "SELECT c FROM t WHERE id=1 FOR UPDATE",
            "SELECT c FROM t WHERE id='FOR UPDATE'",
            "SELECT NEXT VALUE FOR s",
            "SELECT /* forebay: primary */ 1",
            "UPDATE t SET c='1'",
            "",
        ];
        for dialect in [
            Dialect::MySql { version: 90_704 },
            Dialect::MariaDb { version: 110_809 },
            Dialect::MySql { version: 90_704 },
        ] {
            let syntax = Syntax {
                dialect,
                ..Syntax::default()
            };
            for text in texts.iter().chain(&texts) {
                let found = crate::facts(text.as_bytes(), syntax);
                assert_eq!(known.facts(text.as_bytes(), syntax), found, "{text}");
            }
        }
    }

    #[test]
    fn there_is_room_for_so_many() {
        let mut known = FactsCache::<RandomState>::default();
        for number in 0..10 * PLACES {
            let text = format!("SELECT c{number} FROM t");
            known.facts(text.as_bytes(), Syntax::default());
        }
        assert_eq!(known.places.len(), PLACES);
    }
}
