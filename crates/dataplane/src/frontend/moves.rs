//! How many sessions of a worker go to other servers at the same time. The others go on where they are until
//! their turn comes: if a session stopped to wait for it, its client would wait as well.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use crate::control::Control;

/// Sessions of a worker that move at the same time: some, since most of a move is waiting for servers; few,
/// so that each is done soon.
const AT_ONCE: usize = 2;

#[derive(Default)]
pub(crate) struct Moves {
    under_way: Cell<usize>,
    /// Sessions that wait for their turn, in the order in which they are woken. Each is in it at most once.
    waiting: RefCell<VecDeque<Rc<Control>>>,
}

/// A move that is under way until this is dropped.
pub(crate) struct Turn<'m>(&'m Moves);

impl Moves {
    /// Whether the session may go now. If not, the session is woken when it may.
    pub(crate) fn has_turn(&self, control: &Rc<Control>) -> bool {
        let has = self.under_way.get() < AT_ONCE;
        if !has && !control.waits_to_move.replace(true) {
            self.waiting.borrow_mut().push_back(Rc::clone(control));
        }
        has
    }

    pub(crate) fn begin(&self) -> Turn<'_> {
        self.under_way.set(self.under_way.get() + 1);
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.under_way.set(self.0.under_way.get() - 1);
        // Two sessions are woken for each move that ends, since some are busy. All are woken where no move is
        // left to wake the others.
        let mut left = match self.0.under_way.get() {
            0 => usize::MAX,
            _ => 2,
        };
        while left > 0 {
            let Some(next) = self.0.waiting.borrow_mut().pop_front() else {
                return;
            };
            next.waits_to_move.set(false);
            next.wake();
            // A control that nobody else holds is of a session that has ended.
            left -= usize::from(Rc::strong_count(&next) > 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_wait_are_woken_in_their_order_and_once() {
        let moves = Moves::default();
        let control = |id| Rc::new(Control::new(id, Rc::default()));
        let turns: Vec<_> = (0..AT_ONCE).map(|_| moves.begin()).collect();
        let [first, second, third] = [1, 2, 3].map(control);
        for session in [&first, &second, &third, &first] {
            assert!(!moves.has_turn(session));
        }
        let ids = || {
            moves
                .waiting
                .borrow()
                .iter()
                .map(|control| control.id)
                .collect::<Vec<_>>()
        };
        assert_eq!(ids(), [1, 2, 3]);
        drop(turns);
        assert_eq!(ids(), [0; 0]);
        assert!(moves.has_turn(&third) && !third.waits_to_move.get());
    }
}
