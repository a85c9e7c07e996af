//! Statements that differ in nothing but their values have one shape: their columns are the same to the
//! server.

use std::hash::{BuildHasher, Hasher};

use dataplane::extension::Asked;
use foldhash::fast::RandomState;

/// What is left of a statement without the values of its conditions.
pub(super) struct Shape<'a> {
    asked: &'a Asked<'a>,
    environment: u64,
}

impl<'a> Shape<'a> {
    pub(super) fn new(asked: &'a Asked<'a>, environment: u64) -> Self {
        Self { asked, environment }
    }

    /// The pieces of the text between the values. Comments around it are none: some applications say in them
    /// who asks, and in which request.
    fn pieces(&self) -> impl Iterator<Item = &'a [u8]> {
        let (text, lookup) = (self.asked.text, self.asked.lookup);
        let conditions = lookup.conditions();
        let starts = std::iter::once(lookup.start).chain(conditions.iter().map(|condition| condition.end));
        let ends = conditions
            .iter()
            .map(|condition| condition.start)
            .chain([lookup.end]);
        starts.zip(ends).map(move |(start, end)| &text[start..end])
    }

    pub(super) fn hash(&self, state: &RandomState) -> u64 {
        let mut hasher = state.build_hasher();
        hasher.write_u64(self.environment);
        hasher.write_u8(u8::from(self.asked.parameters.is_some()));
        for piece in self.pieces() {
            hasher.write(piece);
            hasher.write_u8(0);
        }
        hasher.finish()
    }

    pub(super) fn kept(&self) -> Kept {
        let mut text = Vec::with_capacity(self.asked.text.len());
        for piece in self.pieces() {
            text.extend_from_slice(piece);
            // Stands in no statement that is a lookup.
            text.push(0);
        }
        Kept {
            environment: self.environment,
            is_binary: self.asked.parameters.is_some(),
            text: text.into(),
        }
    }

    pub(super) fn is(&self, kept: &Kept) -> bool {
        if self.environment != kept.environment || self.asked.parameters.is_some() != kept.is_binary {
            return false;
        }
        let mut rest = &*kept.text;
        for piece in self.pieces() {
            match rest.strip_prefix(piece).and_then(|rest| rest.strip_prefix(&[0])) {
                Some(behind) => rest = behind,
                None => return false,
            }
        }
        rest.is_empty()
    }
}

impl Kept {
    /// Bytes of its text.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }
}

/// A shape without its statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    environment: u64,
    pub(super) is_binary: bool,
    text: Box<[u8]>,
}

#[cfg(test)]
mod tests {
    use sql_class::{Syntax, point_lookup};

    use super::*;

    fn with<T>(text: &str, environment: u64, what: impl FnOnce(Shape<'_>) -> T) -> T {
        let lookup = point_lookup(text.as_bytes(), Syntax::default()).unwrap();
        let asked = Asked {
            lookup: &lookup,
            text: text.as_bytes(),
            parameters: None,
        };
        what(Shape::new(&asked, environment))
    }

    #[test]
    fn values_are_no_part_of_it_and_all_else_is() {
        let state = RandomState::default();
        let of = |text, environment| with(text, environment, |shape| (shape.hash(&state), shape.kept()));
        let (hash, kept) = of("SELECT a FROM t WHERE k=1 AND l='x' LIMIT 1", 7);
        for same in [
            "/* request 7 */ SELECT a FROM t WHERE k=1 AND l='x' LIMIT 1",
            "SELECT a FROM t WHERE k=1 AND l='x' LIMIT 1 /* request 8 */;",
            "SELECT a FROM t WHERE k=12345 AND l='' LIMIT 1",
            "SELECT a FROM t WHERE k='k=1 AND l=' AND l=-5 LIMIT 1",
        ] {
            assert!(with(same, 7, |shape| shape.is(&kept)), "{same}");
            assert_eq!(of(same, 7).0, hash);
        }
        for (other, environment) in [
            ("SELECT a FROM t WHERE k=1 AND l='x' LIMIT 1", 8),
            ("SELECT a FROM t WHERE k=1 AND l='x' LIMIT 2", 7),
            ("SELECT b FROM t WHERE k=1 AND l='x' LIMIT 1", 7),
            ("SELECT a FROM t WHERE k=1 AND l='x'", 7),
            ("SELECT a FROM t WHERE k=1", 7),
        ] {
            assert!(!with(other, environment, |shape| shape.is(&kept)), "{other}");
            assert_ne!(of(other, environment).0, hash, "{other}");
        }
    }
}
