//! Statements whose ids (`AUTO_INCREMENT`) the server has made.
//!
//! An OK packet has the id of a row also where a trigger or an expression gave it, of which LAST_INSERT_ID()
//! knows nothing. Neither can be seen in a statement. A connection that is about to be given back is
//! therefore asked. If the answer is what the packet has said, statements that differ in values only are
//! believed for a while: whatever gives ids does so as a rule or never.

use std::cell::{Cell, OnceCell};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Time for which a statement is believed, in milliseconds. A trigger that is made in the meantime is noticed
/// after that time.
const BELIEVED_MS: u64 = 60_000;

/// Number of places, a power of two: 16 KiB.
const PLACES: usize = 1024;

/// Some statements, each at the place that its key names: another one with that place displaces it.
#[derive(Default)]
pub(crate) struct GeneratedIds {
    places: OnceCell<Box<[GeneratedPlace]>>,
}

/// A statement, and the time at which its id was found right.
type GeneratedPlace = Cell<(Key, u64)>;

/// A statement in a schema. 0 is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Key(u64);

impl Key {
    /// `digest`: of the statement.
    pub(crate) fn new(digest: u64, schema: Option<&[u8]>) -> Self {
        let mut hasher = DefaultHasher::new();
        (digest, schema).hash(&mut hasher);
        Self(hasher.finish().max(1))
    }

    fn place(self) -> usize {
        self.0 as usize & (PLACES - 1)
    }
}

impl GeneratedIds {
    /// Whether the id in the answer to such a statement is one that the server has made.
    pub(crate) fn contain(&self, key: Key, now_ms: u64) -> bool {
        let found = self.places.get().map(|places| places[key.place()].get());
        found.is_some_and(|(known, since)| known == key && now_ms < since.saturating_add(BELIEVED_MS))
    }

    /// Believes no statement any more.
    pub(crate) fn clear(&self) {
        let places = self.places.get();
        places
            .iter()
            .for_each(|places| places.iter().for_each(|place| place.set(Default::default())));
    }

    /// Notes that the id in the answer to such a statement was one that the server has made.
    pub(crate) fn add(&self, key: Key, now_ms: u64) {
        let places = self.places.get_or_init(|| vec![Cell::default(); PLACES].into());
        places[key.place()].set((key, now_ms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_believed_for_a_while_in_its_schema() {
        let generated_ids = GeneratedIds::default();
        let key = Key::new(7, Some(b"shop"));
        assert!(!generated_ids.contain(key, 0) && !generated_ids.contain(Key::default(), 0));
        generated_ids.add(key, 5);
        assert!(generated_ids.contain(key, 5 + BELIEVED_MS - 1));
        assert!(!generated_ids.contain(key, 5 + BELIEVED_MS));
        generated_ids.clear();
        assert!(!generated_ids.contain(key, 5));
        generated_ids.add(key, 5);
        assert!(
            !generated_ids.contain(Key::new(7, Some(b"other")), 5)
                && !generated_ids.contain(Key::new(7, None), 5)
        );
    }
}
