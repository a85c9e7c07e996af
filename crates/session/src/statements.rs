//! The client's prepared statements: which id it knows each by, and what is needed to prepare it again
//! elsewhere.

use std::rc::Rc;

use serde::{Deserialize, Serialize};
use sql_class::Facts;

use crate::PortableState;

/// One prepared statement as its client knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    pub text: Rc<[u8]>,
    pub facts: Rc<Facts>,
    pub digest: u64,
    pub params: u16,
    /// The session's state when it was prepared: what names without a schema, quotes and literals in it mean,
    /// for [`crate::Session::excursion`].
    pub context: Rc<PortableState>,
    /// The parameter types that the client sent last: it sends them once, and each server connection needs
    /// them.
    pub types: Option<Rc<[u8]>>,
    /// COM_STMT_SEND_LONG_DATA came and no execute since.
    pub long_data: bool,
    /// An execute opened a cursor that has rows left.
    pub cursor: bool,
    /// Nobody else has a clone of it but who is executing the statement: once its last clone is gone, what
    /// servers have prepared for this statement is of no use any more.
    pub owner: Rc<()>,
}

impl Prepared {
    #[must_use]
    pub fn new(text: Rc<[u8]>, facts: Rc<Facts>, digest: u64, params: u16) -> Self {
        Self {
            text,
            facts,
            digest,
            params,
            context: Rc::default(),
            types: None,
            long_data: false,
            cursor: false,
            owner: Rc::default(),
        }
    }
}

/// The table is full: what a server answers with error 1461 (ER_MAX_PREPARED_STMT_COUNT_REACHED).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyStatements {
    pub limit: usize,
}

/// Prepared statements of one session by the client's id. An id comes back after 2^32 others at the earliest:
/// a client that uses one it has closed gets the error that it would get from a server, not another
/// statement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Statements {
    next_id: u32,
    limit: usize,
    /// In the order of their ids.
    entries: Vec<(u32, Prepared)>,
}

/// MariaDB's clients mean "the last one prepared" by it.
const LAST_PREPARED: u32 = u32::MAX;

impl Statements {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            next_id: 1,
            limit,
            entries: Vec::new(),
        }
    }

    /// Keeps a statement and gives it an id.
    pub fn insert(&mut self, prepared: Prepared) -> Result<u32, TooManyStatements> {
        if self.entries.len() >= self.limit {
            return Err(TooManyStatements { limit: self.limit });
        }
        let (id, at) = loop {
            let id = self.next_id;
            self.next_id = self.next_id.wrapping_add(1);
            match self.place(id) {
                Err(at) if id != 0 && id != LAST_PREPARED => break (id, at),
                _ => {}
            }
        };
        self.entries.insert(at, (id, prepared));
        Ok(id)
    }

    #[must_use]
    pub fn get(&self, id: u32) -> Option<&Prepared> {
        let at = self.place(id).ok()?;
        Some(&self.entries[at].1)
    }

    pub fn get_mut(&mut self, id: u32) -> Option<&mut Prepared> {
        let at = self.place(id).ok()?;
        Some(&mut self.entries[at].1)
    }

    /// Forgets a statement, as COM_STMT_CLOSE does.
    pub fn remove(&mut self, id: u32) -> Option<Prepared> {
        let at = self.place(id).ok()?;
        Some(self.entries.remove(at).1)
    }

    /// By id.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, &Prepared)> {
        self.entries.iter().map(|(id, prepared)| (*id, prepared))
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets all of them; their ids are not given again.
    pub(crate) fn clear(&mut self) {
        self.entries = Vec::new();
    }

    /// A new session on the same client connection: another limit, and ids go on.
    pub(crate) fn start_over(&mut self, limit: usize) {
        self.clear();
        self.limit = limit;
    }

    pub(crate) fn any_cursor(&self) -> bool {
        self.entries.iter().any(|(_, prepared)| prepared.cursor)
    }

    pub(crate) fn any_long_data(&self) -> bool {
        self.entries.iter().any(|(_, prepared)| prepared.long_data)
    }

    /// The server connection is gone, and with it what it held for these statements.
    pub(crate) fn forget_server_side(&mut self) {
        for (_, prepared) in &mut self.entries {
            prepared.long_data = false;
            prepared.cursor = false;
        }
    }

    fn place(&self, id: u32) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&id, |(id, _)| *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sql_class::{Class, Effects};

    fn prepared(text: &str) -> Prepared {
        let facts = Facts {
            class: Class::Read,
            effects: Effects::NONE,
            statements: 1,
            hint: None,
        };
        Prepared::new(Rc::from(text.as_bytes()), Rc::new(facts), 7, 0)
    }

    #[test]
    fn an_id_is_not_given_twice() {
        let mut table = Statements::new(2);
        let first = table.insert(prepared("SELECT 1")).unwrap();
        assert!(table.remove(first).is_some());
        let second = table.insert(prepared("SELECT 2")).unwrap();
        assert_ne!(first, second);
        assert!(table.get(first).is_none());
        table.clear();
        assert!(table.insert(prepared("SELECT 3")).unwrap() > second);
    }

    #[test]
    fn the_table_is_bounded() {
        let mut table = Statements::new(2);
        table.insert(prepared("SELECT 1")).unwrap();
        table.insert(prepared("SELECT 2")).unwrap();
        assert_eq!(
            table.insert(prepared("SELECT 3")),
            Err(TooManyStatements { limit: 2 })
        );
    }

    #[test]
    fn ids_go_round_past_those_in_use_and_those_with_a_meaning() {
        let mut table = Statements::new(8);
        let first = table.insert(prepared("SELECT 1")).unwrap();
        assert_eq!(first, 1);
        table.next_id = u32::MAX - 1;
        assert_eq!(table.insert(prepared("SELECT 2")), Ok(u32::MAX - 1));
        assert_eq!(table.insert(prepared("SELECT 3")), Ok(2));
        assert_eq!(
            table.iter().map(|(id, _)| id).collect::<Vec<_>>(),
            [1, 2, u32::MAX - 1]
        );
    }
}
