//! Statements that were quick when they ran alone.

use std::cell::{Cell, OnceCell};
use std::num::NonZeroU64;
use std::time::Duration;

use super::answers;
use crate::relay::{Exchanged, RelayOutcome};

/// A statement that takes no longer, from the command to the end of its answer, may go with others.
const QUICK: Duration = Duration::from_millis(2);

/// Bytes of the answer of such a statement.
const SHORT: u64 = 16 * 1024;

/// Number of places, a power of two: 8 KiB.
const PLACES: usize = 1024;

/// The numbers of some statements, each at the place that it names: another one with that place displaces it.
#[derive(Default)]
pub(crate) struct QuickStatements {
    places: OnceCell<Box<[Cell<Option<NonZeroU64>>]>>,
}

impl QuickStatements {
    pub(super) fn contains(&self, number: NonZeroU64) -> bool {
        self.places
            .get()
            .is_some_and(|places| places[place(number)].get() == Some(number))
    }

    /// Notes of a statement that has run alone whether it may go with others the next time. `reported`: the
    /// server has said that something of the session has changed.
    pub(crate) fn note_alone(&self, number: NonZeroU64, ended: &RelayOutcome, reported: bool) {
        let leaves_nothing = matches!(
            &ended.result,
            Ok(Exchanged::Done(outcome)) if !reported && answers::leaves_nothing(outcome)
        );
        if leaves_nothing && ended.took <= QUICK && ended.said <= SHORT {
            let places = self.places.get_or_init(|| vec![Cell::new(None); PLACES].into());
            places[place(number)].set(Some(number));
        } else {
            self.forget(number);
        }
    }

    /// Notes how long a statement took that was answered with others.
    pub(super) fn note_with_others(&self, number: NonZeroU64, took: Duration) {
        if took > QUICK {
            self.forget(number);
        }
    }

    /// Forgets a statement, which is to go alone the next time.
    pub(super) fn forget(&self, number: NonZeroU64) {
        if self.contains(number)
            && let Some(places) = self.places.get()
        {
            places[place(number)].set(None);
        }
    }
}

fn place(number: NonZeroU64) -> usize {
    number.get() as usize & (PLACES - 1)
}
