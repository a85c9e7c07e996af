//! Connections whose next request is a strong read, most likely: their tasks run when memory is fresh enough
//! for it, and not before. So a read costs one turn of its connection's task instead of two.
//!
//! While such a connection waits for its client, the readiness of its socket wakes a [`GateWaker`] instead of
//! waking its task. The worker's index asks the primary for all that have rung, and wakes their tasks once
//! what the answer says is applied. The first request that is read then is fresh: its first byte was there
//! when that woke, so it was sent before the probe was. What comes behind it in the same bytes may have come
//! later, and waits by itself.
//!
//! That holds while nothing rings but bytes at the socket, and whoever reads them is the first who does
//! since:
//!
//! - a task that looks for bytes for any other reason takes back that its waker was woken;
//! - tokio ends polls of a task that has done much, and wakes what was given to it: reads at a gate are
//!   exempt from that;
//! - bytes of TLS need be none of a request: only plain sockets have gates.
//!
//! Nobody waits here for longer than [`WAIT_MAX`]. Who has goes on as if there were no gate.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::coop::unconstrained;
use tokio::time::Instant;
use upstream::Arrival;

use super::Index;
use crate::probes::Probes;
use crate::reader::wait_list::{WaitList, WaitPlace};

/// Longest wait at a gate: other commands than reads wait, too.
pub(super) const WAIT_MAX: Duration = Duration::from_millis(10);

pub struct Gate {
    index: Rc<Index>,
    number: usize,
    gate_waker: Waker,
}

impl Gate {
    pub(super) fn new(index: Rc<Index>, number: usize, gate_waker: Waker) -> Self {
        Self {
            index,
            number,
            gate_waker,
        }
    }

    /// Reads from a plain socket with `read`. With the bytes comes whether memory is as fresh as a strong
    /// read demands that is the first in them, or that has begun before.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        mut read: impl FnMut(&mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<(usize, bool)>> {
        let is_fresh = self.index.pass(self.number, cx.waker());
        let mut at_gate_waker = Context::from_waker(&self.gate_waker);
        let read = pin!(unconstrained(poll_fn(|_| read(&mut at_gate_waker)))).poll(cx);
        read.map_ok(|n| (n, is_fresh))
    }
}

impl dataplane::extension::Gate for Gate {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        read: &mut dyn FnMut(&mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<(usize, bool)>> {
        Self::poll_read(self, cx, read)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.index.remove_gate(self.number);
    }
}

/// Where wakers of the gates of a worker say that they were woken.
pub(super) struct GateInbox {
    probes: Arc<Probes>,
    /// Somebody has come.
    pub(super) arrived: Notify,
    rings: Mutex<Rings>,
}

#[derive(Default)]
struct Rings {
    /// When the first of them rang.
    since: Option<Instant>,
    all: Vec<Ring>,
}

struct Ring {
    gate: usize,
    round: u64,
    arrival: Arrival,
}

/// What the readiness of a socket wakes.
struct GateWaker {
    inbox: Arc<GateInbox>,
    gate: usize,
    /// No two waits at gates have the same.
    round: AtomicU64,
}

impl Wake for GateWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let ring = Ring {
            gate: self.gate,
            round: self.round.load(Ordering::Acquire),
            arrival: self.inbox.probes.arrive(),
        };
        let mut rings = self.inbox.rings();
        rings.all.push(ring);
        if rings.since.is_none() {
            rings.since = Some(Instant::now());
            drop(rings);
            self.inbox.arrived.notify_one();
        }
    }
}

impl GateInbox {
    pub(super) fn new(probes: Arc<Probes>) -> Arc<Self> {
        Arc::new(Self {
            probes,
            arrived: Notify::new(),
            rings: Mutex::default(),
        })
    }

    fn rings(&self) -> MutexGuard<'_, Rings> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct Gates {
    inbox: Arc<GateInbox>,
    all: Vec<Option<Keeper>>,
    free: Vec<usize>,
    round: u64,
    /// Those that have rung.
    pub(super) wait_list: WaitList,
}

struct Keeper {
    gate_waker: Arc<GateWaker>,
    task: Waker,
    /// Since it has rung.
    place: Option<WaitPlace>,
}

impl Gates {
    pub(super) fn new(inbox: Arc<GateInbox>) -> Self {
        Self {
            inbox,
            all: Vec::new(),
            free: Vec::new(),
            round: 0,
            wait_list: WaitList::default(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.len() == self.free.len()
    }

    /// A gate for the connection of this task: its number, and its waker.
    pub(super) fn add(&mut self, task: &Waker) -> (usize, Waker) {
        let number = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() - 1
        });
        self.round += 1;
        let gate_waker = Arc::new(GateWaker {
            inbox: Arc::clone(&self.inbox),
            gate: number,
            round: AtomicU64::new(self.round),
        });
        let rings = Waker::from(Arc::clone(&gate_waker));
        self.all[number] = Some(Keeper {
            gate_waker,
            task: task.clone(),
            place: None,
        });
        (number, rings)
    }

    pub(super) fn remove(&mut self, number: usize) {
        if let Some(keeper) = self.all[number].take() {
            self.free.push(number);
            if let Some(place) = keeper.place {
                self.wait_list.leave(place);
            }
        }
    }

    /// Takes up who has rung, and tells how many they are.
    pub(super) fn admit(&mut self) -> u64 {
        let mut rings = self.inbox.rings();
        let Some(since) = rings.since.take() else { return 0 };
        let mut came = 0;
        for ring in rings.all.drain(..) {
            // It may have been passed since.
            if let Some(keeper) = &mut self.all[ring.gate]
                && keeper.gate_waker.round.load(Ordering::Acquire) == ring.round
                && keeper.place.is_none()
            {
                let place = self.wait_list.enter(ring.arrival, since);
                self.wait_list.will_wake(place, keeper.task.clone());
                keeper.place = Some(place);
                came += 1;
            }
        }
        came
    }

    /// A task goes through its gate: whether memory is fresh enough for what rang. Whatever has rung counts
    /// no more.
    pub(super) fn pass(&mut self, number: usize, task: &Waker) -> bool {
        let Some(keeper) = &mut self.all[number] else {
            return false;
        };
        self.round += 1;
        keeper.gate_waker.round.store(self.round, Ordering::Release);
        keeper.task.clone_from(task);
        let Some(place) = keeper.place.take() else {
            return false;
        };
        let is_fresh = self.wait_list.has_ended_well(place);
        self.wait_list.leave(place);
        is_fresh
    }
}

#[cfg(test)]
mod tests;
