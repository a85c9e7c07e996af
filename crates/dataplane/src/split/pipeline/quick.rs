//! Statements that were quick when they ran alone.

use std::cell::{Cell, OnceCell};
use std::time::Duration;

use super::answers;
use crate::relay::{Ended, Exchanged};

/// A statement that takes no longer, from the command to the end of its answer, may go with others.
const QUICK: Duration = Duration::from_millis(2);

/// Bytes of the answer of such a statement.
const SHORT: u64 = 16 * 1024;

/// A power of two: 8 KiB.
const PLACES: usize = 1024;

/// The numbers of so many statements, each at the place that it names: another one takes it.
#[derive(Default)]
pub(super) struct QuickStatements {
    places: OnceCell<Box<[Cell<u64>]>>,
}

impl QuickStatements {
    pub(super) fn contains(&self, number: u64) -> bool {
        self.places
            .get()
            .is_some_and(|places| places[place(number)].get() == number)
    }

    /// It has run alone. `reported`: the server has said that something of the session has changed.
    pub(super) fn note(&self, number: u64, ended: &Ended, reported: bool) {
        let leaves_nothing = matches!(
            &ended.result,
            Ok(Exchanged::Done(outcome)) if !reported && answers::leaves_nothing(outcome)
        );
        if leaves_nothing && ended.took <= QUICK && ended.said <= SHORT {
            let places = self.places.get_or_init(|| vec![Cell::new(0); PLACES].into());
            places[place(number)].set(number);
        } else {
            self.forget(number);
        }
    }

    /// It was answered with others, which took so long.
    pub(super) fn note_with_others(&self, number: u64, took: Duration) {
        if took > QUICK {
            self.forget(number);
        }
    }

    /// It is not what it was.
    pub(super) fn forget(&self, number: u64) {
        if self.contains(number)
            && let Some(places) = self.places.get()
        {
            places[place(number)].set(0);
        }
    }
}

fn place(number: u64) -> usize {
    number as usize & (PLACES - 1)
}
