//! Which rows of a copy may be kept: those that no event has touched since the copy could not have seen it.
//!
//! A chunk of rows comes from one SELECT. An event for one of its rows may be applied before the chunk
//! arrives; then the event's row is the newer one, or the newer ones are still to come, and the chunk's row
//! must go. Before a chunk is asked for, a [mark](CopyWindow::mark) is made: what is applied until then the
//! SELECT sees (the copier waits for that), what is applied later is remembered here until the chunk has been
//! put into the store.
//!
//! What a transaction touches counts when it is committed. Neither a mark is made nor a row of a chunk kept
//! before that.

use std::collections::{HashSet, VecDeque};

/// Keys that were touched while chunks were under way. Marks have ascending numbers, one a chunk.
#[derive(Debug, Default)]
pub(super) struct CopyWindow {
    /// Number of the first of `touched`.
    first: u64,
    touched: VecDeque<HashSet<Box<[u8]>>>,
    /// By the transaction that is being read.
    open: HashSet<Box<[u8]>>,
}

impl CopyWindow {
    /// A chunk will be asked for. Returns its number.
    pub(super) fn mark(&mut self) -> u64 {
        debug_assert!(self.open.is_empty(), "within a transaction");
        self.touched.push_back(HashSet::new());
        self.first + self.touched.len() as u64 - 1
    }

    /// An event has changed the row of `key`, or there is none any more.
    pub(super) fn touch(&mut self, key: &[u8]) {
        let is_known = |last: &HashSet<Box<[u8]>>| last.contains(key) || self.open.contains(key);
        if self.touched.back().is_some_and(|last| !is_known(last)) {
            self.open.insert(key.into());
        }
    }

    pub(super) fn commit(&mut self) {
        let open = std::mem::take(&mut self.open);
        if let Some(last) = self.touched.back_mut() {
            last.extend(open);
        }
    }

    /// The transaction has changed nothing.
    pub(super) fn rollback(&mut self) {
        self.open = HashSet::new();
    }

    /// Whether a row of chunk `mark` may be kept.
    pub(super) fn admits(&self, mark: u64, key: &[u8]) -> bool {
        debug_assert!(mark >= self.first, "a chunk that is done");
        debug_assert!(self.open.is_empty(), "within a transaction");
        let skipped = mark.saturating_sub(self.first) as usize;
        !self
            .touched
            .iter()
            .skip(skipped)
            .any(|touched| touched.contains(key))
    }

    /// Chunk `mark` and all before it are in the store.
    pub(super) fn done(&mut self, mark: u64) {
        while self.first <= mark && self.touched.pop_front().is_some() {
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transaction(window: &mut CopyWindow, key: &[u8]) {
        window.touch(key);
        window.commit();
    }

    #[test]
    fn a_row_is_kept_unless_it_was_touched_after_its_mark() {
        let mut window = CopyWindow::default();
        transaction(&mut window, b"before any chunk");
        let first = window.mark();
        assert!(window.admits(first, b"before any chunk"));
        transaction(&mut window, b"a");
        let second = window.mark();
        transaction(&mut window, b"b");
        assert!(!window.admits(first, b"a") && !window.admits(first, b"b"));
        assert!(window.admits(second, b"a") && !window.admits(second, b"b"));
        window.done(first);
        assert!(window.admits(second, b"a") && !window.admits(second, b"b"));
        window.done(second);
        let third = window.mark();
        assert_eq!((first, second, third), (0, 1, 2));
        assert!(window.admits(third, b"b"));
    }

    #[test]
    fn what_is_rolled_back_was_not_touched() {
        let mut window = CopyWindow::default();
        let mark = window.mark();
        transaction(&mut window, b"a");
        window.touch(b"a");
        window.touch(b"b");
        window.rollback();
        assert!(!window.admits(mark, b"a") && window.admits(mark, b"b"));
        transaction(&mut window, b"b");
        assert!(!window.admits(mark, b"b"));
    }
}
