//! Which rows of a copy may be kept: those that no event has touched since the copy could not have seen it.
//!
//! A chunk of rows comes from one SELECT. An event for one of its rows may be applied before the chunk arrives; then the
//! event's row is the newer one, or the newer ones are still to come, and the chunk's row must go. Before a
//! chunk is asked for, a [mark](Window::mark) is made: what is applied until then the SELECT sees (the copier waits for that),
//! what is applied later is remembered here until the chunk has been put into the store.

use std::collections::{HashSet, VecDeque};

/// Keys that were touched while chunks were under way. Marks have ascending numbers, one a chunk.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Number of the first of `touched`.
    first: u64,
    touched: VecDeque<HashSet<Box<[u8]>>>,
}

impl Window {
    /// A chunk will be asked for. Returns its number.
    pub(super) fn mark(&mut self) -> u64 {
        self.touched.push_back(HashSet::new());
        self.first + self.touched.len() as u64 - 1
    }

    /// An event has changed the row of `key`, or there is none any more.
    pub(super) fn touch(&mut self, key: &[u8]) {
        if let Some(last) = self.touched.back_mut()
            && !last.contains(key)
        {
            last.insert(key.into());
        }
    }

    /// Whether a row of chunk `mark` may be kept.
    pub(super) fn admits(&self, mark: u64, key: &[u8]) -> bool {
        debug_assert!(mark >= self.first, "a chunk that is done");
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

    #[test]
    fn a_row_is_kept_unless_it_was_touched_after_its_mark() {
        let mut window = Window::default();
        window.touch(b"before any chunk");
        let first = window.mark();
        assert!(window.admits(first, b"before any chunk"));
        window.touch(b"a");
        let second = window.mark();
        window.touch(b"b");
        assert!(!window.admits(first, b"a") && !window.admits(first, b"b"));
        assert!(window.admits(second, b"a") && !window.admits(second, b"b"));
        window.done(first);
        assert!(window.admits(second, b"a") && !window.admits(second, b"b"));
        window.done(second);
        let third = window.mark();
        assert_eq!((first, second, third), (0, 1, 2));
        assert!(window.admits(third, b"b"));
    }
}
