//! How the world outside reaches a running session: a signal, and the marks a sweep reads to find idle ones.
//!
//! Everything here belongs to one worker thread, so it is `Cell`s, not atomics. A session checks its signal
//! whenever it is polled; raising one wakes it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use upstream::ServerId;

/// What a session is asked to do. A later, stronger one replaces an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Signal {
    /// End at the next moment outside a command and a transaction: the server is taken out of service.
    Drain,
    /// The same, because the gateway stops.
    Shutdown,
    /// The client was silent for too long.
    ClientIdle,
    /// The server was silent in the middle of an answer for too long.
    ServerTimeout,
    /// Health checks found the server down.
    ServerDown,
    /// Somebody killed this session.
    Kill,
    /// The deadline of a drain has passed: end now.
    DrainNow,
    /// The deadline of the shutdown has passed: end now.
    ShutdownNow,
}

impl Signal {
    /// Whether the session may first finish its command and its transaction.
    pub(crate) fn waits_for_a_free_moment(self) -> bool {
        matches!(self, Self::Drain | Self::Shutdown)
    }
}

/// A server among those of all clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerKey {
    pub(crate) cluster: u32,
    pub(crate) server: ServerId,
}

/// What a session waits for; with the tick at which it began to, this is all the idle sweep needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// Logging in: its own timer runs.
    Login,
    /// For the client's next command.
    Client,
    /// For the server's answer.
    Server,
    /// Forwarding without end in both directions (mode `tcp`, binlog dump): either side counts as activity.
    Stream,
}

/// One session as its worker sees it.
pub(crate) struct Control {
    pub(crate) id: u32,
    signal: Cell<Option<Signal>>,
    waker: RefCell<Option<Waker>>,
    waiting: Cell<Waiting>,
    since_tick: Cell<u32>,
    server: Cell<Option<ServerKey>>,
    limits: Cell<IdleLimits>,
    clock: Rc<Clock>,
}

/// The worker's coarse clock: ticks since it started, moved on by its sweep, so that no command reads a timer.
#[derive(Debug, Default)]
pub(crate) struct Clock(Cell<u32>);

impl Clock {
    pub(crate) fn now(&self) -> u32 {
        self.0.get()
    }

    pub(crate) fn advance(&self) {
        self.0.set(self.0.get().wrapping_add(1));
    }
}

/// In ticks of the worker's coarse clock; 0 means no limit.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct IdleLimits {
    pub(crate) client_ticks: u32,
    pub(crate) server_ticks: u32,
}

impl Control {
    pub(crate) fn new(id: u32, clock: Rc<Clock>) -> Self {
        Self {
            id,
            signal: Cell::new(None),
            waker: RefCell::new(None),
            waiting: Cell::new(Waiting::Login),
            since_tick: Cell::new(0),
            server: Cell::new(None),
            limits: Cell::new(IdleLimits::default()),
            clock,
        }
    }

    /// Remembers how to wake the session. Called once, from its own task: a task's waker stays the same.
    pub(crate) fn remember_waker(&self, cx: &Context<'_>) {
        *self.waker.borrow_mut() = Some(cx.waker().clone());
    }

    /// Says which server the session is on.
    pub(crate) fn attach(&self, server: ServerKey) {
        self.server.set(Some(server));
    }

    /// Says how long the session may be silent.
    pub(crate) fn set_limits(&self, limits: IdleLimits) {
        self.limits.set(limits);
    }

    pub(crate) fn server(&self) -> Option<ServerKey> {
        self.server.get()
    }

    pub(crate) fn raise(&self, signal: Signal) {
        if self.signal.get().is_none_or(|present| present < signal) {
            self.signal.set(Some(signal));
            if let Some(waker) = self.waker.borrow().as_ref() {
                waker.wake_by_ref();
            }
        }
    }

    #[cfg(test)]
    fn signal(&self) -> Option<Signal> {
        self.signal.get()
    }

    /// The signal that ends the session now, given whether it is at a free moment.
    #[inline]
    pub(crate) fn due(&self, free: bool) -> Option<Signal> {
        self.signal
            .get()
            .filter(|signal| free || !signal.waits_for_a_free_moment())
    }

    /// Waits for the signal that ends the session now. For waits that do not look at signals by themselves.
    pub(crate) async fn signalled(&self, free: bool) -> Signal {
        // No waker is left here: raising a signal wakes the task, whatever it waits for.
        poll_fn(|_| self.due(free).map_or(Poll::Pending, Poll::Ready)).await
    }

    #[inline]
    pub(crate) fn mark(&self, waiting: Waiting) {
        self.waiting.set(waiting);
        self.since_tick.set(self.clock.now());
    }

    /// The same, unless that is already what the session waits for: the wait goes on.
    #[inline]
    pub(crate) fn mark_if_new(&self, waiting: Waiting) {
        if self.waiting.get() != waiting {
            self.mark(waiting);
        }
    }

    /// Raises the timeout whose limit has passed.
    pub(crate) fn check_idle(&self) {
        let limits = self.limits.get();
        let silent_for = self.clock.now().wrapping_sub(self.since_tick.get());
        let over = |limit: u32| limit > 0 && silent_for > limit;
        match self.waiting.get() {
            Waiting::Client if over(limits.client_ticks) => self.raise(Signal::ClientIdle),
            Waiting::Stream if over(limits.client_ticks) => self.raise(Signal::ClientIdle),
            Waiting::Server if over(limits.server_ticks) => self.raise(Signal::ServerTimeout),
            Waiting::Login | Waiting::Client | Waiting::Server | Waiting::Stream => {}
        }
    }
}

/// All sessions of a worker.
#[derive(Default)]
pub(crate) struct Sessions {
    by_id: RefCell<HashMap<u32, Rc<Control>>>,
}

impl Sessions {
    pub(crate) fn insert(&self, control: &Rc<Control>) {
        self.by_id.borrow_mut().insert(control.id, Rc::clone(control));
    }

    pub(crate) fn remove(&self, id: u32) {
        self.by_id.borrow_mut().remove(&id);
    }

    pub(crate) fn raise(&self, id: u32, signal: Signal) {
        if let Some(control) = self.by_id.borrow().get(&id) {
            control.raise(signal);
        }
    }

    pub(crate) fn raise_all(&self, signal: Signal) {
        self.by_id
            .borrow()
            .values()
            .for_each(|control| control.raise(signal));
    }

    pub(crate) fn raise_on_server(&self, server: ServerKey, signal: Signal) {
        let by_id = self.by_id.borrow();
        by_id
            .values()
            .filter(|control| control.server() == Some(server))
            .for_each(|control| control.raise(signal));
    }

    pub(crate) fn check_idle(&self) {
        self.by_id
            .borrow()
            .values()
            .for_each(|control| control.check_idle());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control() -> Control {
        Control::new(1, Rc::default())
    }

    #[test]
    fn a_stronger_signal_replaces_a_weaker_one_and_never_the_reverse() {
        let control = control();
        control.raise(Signal::Drain);
        control.raise(Signal::Kill);
        control.raise(Signal::Drain);
        assert_eq!(control.signal(), Some(Signal::Kill));
    }

    #[test]
    fn a_drain_waits_for_a_free_moment_and_a_kill_does_not() {
        let control = control();
        control.raise(Signal::Drain);
        assert_eq!(control.due(false), None);
        assert_eq!(control.due(true), Some(Signal::Drain));
        control.raise(Signal::Kill);
        assert_eq!(control.due(false), Some(Signal::Kill));
    }

    #[test]
    fn idle_limits_count_only_while_that_side_is_waited_for() {
        let control = control();
        let pass = |ticks: u32| (0..ticks).for_each(|_| control.clock.advance());
        control.set_limits(IdleLimits {
            client_ticks: 10,
            server_ticks: 0,
        });
        control.mark(Waiting::Server);
        pass(1000);
        control.check_idle();
        assert_eq!(control.signal(), None);
        control.mark(Waiting::Client);
        pass(10);
        control.check_idle();
        assert_eq!(control.signal(), None);
        pass(1);
        control.check_idle();
        assert_eq!(control.signal(), Some(Signal::ClientIdle));
    }
}
