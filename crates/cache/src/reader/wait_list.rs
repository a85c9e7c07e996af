//! Reads that wait, in the order in which they came.
//!
//! What ends a wait ends it for all who came before a moment. So there is one queue, and ending a wait costs
//! no more than taking the read off its front. A read costs no allocation once the queue has been as long
//! before.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use tokio::time::Instant;
use upstream::Arrival;

use super::NotFresh;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct WaitList {
    queue: VecDeque<Entry>,
    slots: Vec<Slot>,
    free: Vec<usize>,
}

#[derive(Debug)]
struct Entry {
    arrival: Arrival,
    since: Instant,
    place: WaitPlace,
}

/// Where a read finds out how its wait ended. To be given to [`WaitList::leave`] in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitPlace {
    slot: usize,
    /// Slots are used again; a read whose wait was given up stays in the queue until its turn comes.
    round: u64,
}

#[derive(Debug)]
struct Slot {
    round: u64,
    waker: Option<Waker>,
    ended: Option<Result<(), NotFresh>>,
}

impl WaitList {
    pub(super) fn enter(&mut self, arrival: Arrival, since: Instant) -> WaitPlace {
        debug_assert!(self.queue.back().is_none_or(|last| last.arrival <= arrival));
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                round: 0,
                waker: None,
                ended: None,
            });
            self.slots.len() - 1
        });
        let round = self.slots[slot].round;
        let place = WaitPlace { slot, round };
        self.queue.push_back(Entry {
            arrival,
            since,
            place,
        });
        place
    }

    /// How a wait has ended, once it has.
    pub(super) fn poll(&mut self, place: WaitPlace, context: &Context<'_>) -> Poll<Result<(), NotFresh>> {
        let slot = &mut self.slots[place.slot];
        if let Some(ended) = slot.ended.take() {
            return Poll::Ready(ended);
        }
        match &mut slot.waker {
            Some(waker) => waker.clone_from(context.waker()),
            None => slot.waker = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// Who is to be woken in the end, of one that is not polled.
    pub(super) fn will_wake(&mut self, place: WaitPlace, waker: Waker) {
        self.slots[place.slot].waker = Some(waker);
    }

    /// The wait has ended, and memory is fresh enough.
    pub(super) fn has_ended_well(&self, place: WaitPlace) -> bool {
        self.slots[place.slot].ended == Some(Ok(()))
    }

    /// The read has its answer, or wants none any more.
    pub(super) fn leave(&mut self, place: WaitPlace) {
        let slot = &mut self.slots[place.slot];
        slot.round += 1;
        slot.waker = None;
        slot.ended = None;
        self.free.push(place.slot);
    }

    /// Ends the waits of all who came until `last`, and tells when each of them had come.
    pub(super) fn end(
        &mut self,
        last: Arrival,
        result: &Result<(), NotFresh>,
        mut each: impl FnMut(Instant),
    ) {
        while let Some(entry) = self.queue.pop_front_if(|entry| entry.arrival <= last) {
            self.end_one(&entry, result, &mut each);
        }
    }

    /// Ends the waits of all who came before `moment`.
    pub(super) fn expire(
        &mut self,
        moment: Instant,
        result: &Result<(), NotFresh>,
        mut each: impl FnMut(Instant),
    ) {
        while let Some(entry) = self.queue.pop_front_if(|entry| entry.since <= moment) {
            self.end_one(&entry, result, &mut each);
        }
    }

    fn end_one(&mut self, entry: &Entry, result: &Result<(), NotFresh>, each: &mut impl FnMut(Instant)) {
        let slot = &mut self.slots[entry.place.slot];
        if slot.round != entry.place.round {
            return;
        }
        slot.ended = Some(result.clone());
        if let Some(waker) = slot.waker.take() {
            waker.wake();
        }
        each(entry.since);
    }

    /// The first who still waits, and since when.
    pub(super) fn first(&mut self) -> Option<(Arrival, Instant)> {
        let slots = &self.slots;
        let has_gone = |entry: &mut Entry| slots[entry.place.slot].round != entry.place.round;
        while self.queue.pop_front_if(has_gone).is_some() {}
        self.queue.front().map(|entry| (entry.arrival, entry.since))
    }

    pub(super) fn last(&self) -> Option<Arrival> {
        self.queue.back().map(|entry| entry.arrival)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn poll(wait_list: &mut WaitList, place: WaitPlace) -> Poll<Result<(), NotFresh>> {
        wait_list.poll(place, &Context::from_waker(Waker::noop()))
    }

    #[test]
    fn waits_end_from_the_front() {
        let mut wait_list = WaitList::default();
        let now = Instant::now();
        let arrivals = [0, 0, 1, 2].map(Arrival::after);
        let places = arrivals.map(|arrival| wait_list.enter(arrival, now));
        assert_eq!(wait_list.last(), Some(arrivals[3]));
        let mut ended = 0;
        wait_list.leave(places[1]);
        wait_list.end(arrivals[2], &Ok(()), |_| ended += 1);
        assert_eq!(ended, 2, "one had gone");
        assert_eq!(poll(&mut wait_list, places[0]), Poll::Ready(Ok(())));
        assert_eq!(poll(&mut wait_list, places[2]), Poll::Ready(Ok(())));
        assert_eq!(poll(&mut wait_list, places[3]), Poll::Pending);
        assert_eq!(wait_list.first(), Some((arrivals[3], now)));
    }

    #[test]
    fn a_place_that_is_used_again_has_nothing_of_the_read_before() {
        let mut wait_list = WaitList::default();
        let now = Instant::now();
        let first = Arrival::after(0);
        let gone = wait_list.enter(first, now);
        wait_list.leave(gone);
        let second = wait_list.enter(Arrival::after(1), now);
        assert_eq!(gone.slot, second.slot);
        wait_list.end(first, &Ok(()), |_| panic!("nobody waits for this"));
        assert_eq!(poll(&mut wait_list, second), Poll::Pending);
        assert!(wait_list.first().is_some());
    }

    #[test]
    fn who_has_waited_for_too_long_is_told_why() {
        let mut wait_list = WaitList::default();
        let now = Instant::now();
        let early = wait_list.enter(Arrival::after(0), now);
        let late = wait_list.enter(Arrival::after(0), now + Duration::from_secs(2));
        let error = NotFresh {
            waited: Duration::from_secs(1),
            reason: "so".into(),
        };
        wait_list.expire(now + Duration::from_secs(1), &Err(error.clone()), |_| ());
        assert_eq!(poll(&mut wait_list, early), Poll::Ready(Err(error)));
        assert_eq!(poll(&mut wait_list, late), Poll::Pending);
    }
}
