//! The ways to reach a running session from outside: signals, and the marks that a sweep reads to find idle
//! sessions.
//!
//! Everything here belongs to one worker thread, so the fields are `Cell`s, not atomics. A session checks its
//! signals whenever it is polled; raising a signal wakes the session.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use net::Peer;
use session::{Pin, PortableState};
use upstream::ServerId;

use crate::clock::Clock;
use crate::engine::answered::Answered;
use crate::hand_over::Stays;
use crate::record::Record;
use crate::shown::Shown;
use crate::shown::status::{PinStatus, SessionStatus};

/// A request to a session. If several are raised, the strongest counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Signal {
    /// End at the next moment outside a command and a transaction: the server is taken out of service.
    Drain,
    /// End at the next such moment, because the gateway stops.
    Shutdown,
    /// The client was silent for too long.
    ClientIdle,
    /// The client was silent for longer than the session's `wait_timeout`.
    WaitTimeout,
    /// The server does not answer the monitor. Concerns a session only while it
    /// [can move](Control::can_move).
    ServerSilent,
    /// The client did not go on with a command that it had begun.
    RequestStalled,
    /// The client did not take an answer.
    ReaderStalled,
    /// The server was silent in the middle of an answer for too long.
    ServerTimeout,
    /// The statement is over the time that a rule gives it, and its server has not ended it.
    StatementTimeout,
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
    /// All signals, the strongest first.
    const ALL: [Self; 13] = [
        Self::ShutdownNow,
        Self::DrainNow,
        Self::Kill,
        Self::ServerDown,
        Self::StatementTimeout,
        Self::ServerTimeout,
        Self::ReaderStalled,
        Self::RequestStalled,
        Self::ServerSilent,
        Self::WaitTimeout,
        Self::ClientIdle,
        Self::Shutdown,
        Self::Drain,
    ];

    fn bit(self) -> u16 {
        1 << self as u16
    }

    /// Whether the session may first finish its command and its transaction.
    pub(crate) fn waits_for_a_free_moment(self) -> bool {
        matches!(self, Self::Drain | Self::Shutdown)
    }

    /// Whether the signal concerns the server the session is on: a session that can do without that server
    /// may go on.
    pub(crate) fn is_about_a_server(self) -> bool {
        match self {
            Self::Drain
            | Self::DrainNow
            | Self::ServerSilent
            | Self::ServerTimeout
            | Self::StatementTimeout
            | Self::ServerDown => true,
            Self::Shutdown
            | Self::ShutdownNow
            | Self::ClientIdle
            | Self::WaitTimeout
            | Self::RequestStalled
            | Self::ReaderStalled
            | Self::Kill => false,
        }
    }
}

/// A server among those of all clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ServerKey {
    pub(crate) cluster: u32,
    pub(crate) server: ServerId,
}

/// Time before a move to another server that came to nothing is tried again.
pub(crate) const MOVE_PAUSE: Duration = Duration::from_secs(3);

/// Silence after which a session looks whether others want a connection that it may do without.
const SILENT_TICKS: u32 = 1;

/// The thing that a session waits for. With the tick at which the wait began, this is all that the idle sweep
/// needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// For the login, under a timer of its own.
    Login,
    /// For a connection to a server: in line for one, until a new one is open, or until rules let the
    /// statement in. The wait has a limit of its own, as the next three have.
    Seat,
    /// For a server that takes writes.
    Primary,
    /// Until a server has what the statement must see, or for the primary to say what that is.
    Position,
    /// For the end of a pause of the cluster.
    Paused,
    /// For the client's next command.
    Client,
    /// For the rest of a command that the client has begun, or of a file.
    Request,
    /// For the client to take an answer.
    Reader,
    /// For the server's answer.
    Server,
    /// Forwarding without end in both directions (mode `tcp`): either side counts as activity.
    Stream,
    /// For the rest of an answer that has no end (binlog dump): a server where nothing happens has nothing to
    /// say.
    Endless,
}

impl Waiting {
    /// Each label once.
    const LABELLED: [Self; 8] = [
        Self::Login,
        Self::Seat,
        Self::Primary,
        Self::Position,
        Self::Paused,
        Self::Client,
        Self::Server,
        Self::Stream,
    ];

    fn label(self) -> &'static str {
        match self {
            Self::Login => "login",
            Self::Seat => "seat",
            Self::Primary => "primary",
            Self::Position => "position",
            Self::Paused => "pause",
            Self::Client | Self::Request | Self::Reader => "client",
            Self::Server => "server",
            Self::Stream | Self::Endless => "stream",
        }
    }
}

/// The owner of a session, as operators see it.
#[derive(Debug)]
struct About {
    listener: Box<str>,
    /// Empty before the login.
    user: Rc<str>,
    client: Box<str>,
    /// The schema that the client named when it logged in.
    schema: Option<Rc<[u8]>>,
}

/// A session as its worker sees it.
pub(crate) struct Control {
    pub(crate) id: u32,
    /// The bits of the signals that were raised.
    raised: Cell<u16>,
    waker: OnceCell<Waker>,
    waiting: Cell<Waiting>,
    since_tick: Cell<u32>,
    server: Cell<Option<ServerKey>>,
    /// The id that the server gave the connection, in mode `split` the one of the statement under way.
    thread_id: Cell<u32>,
    /// Number of [`Aim`]s at the statement under way.
    aims: Cell<u32>,
    /// The owner of the session, for operators.
    about: RefCell<Option<Box<About>>>,
    login_collation: Cell<u8>,
    /// Whether the session may do without the server connection that it holds.
    leaving: Cell<Leaving>,
    /// The session is among those that may leave their connection: see
    /// [`Leavers`](crate::engine::leavers::Leavers).
    pub(crate) is_among_leavers: Cell<bool>,
    /// The session is in line to leave its server: see [`Moves`](crate::frontend::moves::Moves).
    pub(crate) waits_to_move: Cell<bool>,
    /// The statement under way can be executed on another server, and nothing of its answer has come yet.
    can_move: Cell<bool>,
    pub(crate) of_split: OfSplit,
    /// Reasons why the session holds its server connection between two statements, in mode `split`.
    pins: Cell<Vec<Pin>>,
    limits: Cell<IdleLimits>,
    /// The session is to look whether it can go to the process that has taken over.
    goes: Cell<bool>,
    /// The reason why the session has not gone there.
    stays: Cell<Stays>,
    /// The time at which the client came.
    pub(crate) began: Instant,
    /// Logins on this connection that have failed, for `login_failures_max`.
    failed_logins: Cell<u16>,
    /// In mode `split`: the state that the session had set when the limits of its client were found.
    pub(crate) limits_by: Cell<Option<Rc<PortableState>>>,
    /// In mode `split`: connections whose login began before this say nothing of the rights of the session's
    /// account. See [`oldest_login`](upstream::Cluster::oldest_login).
    pub(crate) oldest_login: Cell<Instant>,
    /// The state and the statement of a session of mode `split`, for operators.
    pub(crate) shown: Shown,
    /// Notes on the command under way, for observers of commands.
    pub(crate) record: Record,
    clock: Rc<Clock>,
}

/// Notes of a session of mode `split` on its statements, which the session itself has no room for.
#[derive(Default)]
pub(crate) struct OfSplit {
    /// The origin of the answer to the last statement.
    pub(crate) answered: Cell<Answered>,
    /// Time, in the worker's milliseconds, before which the session does not try to leave its connection with
    /// its user variables.
    pub(crate) leaves_from: Cell<u64>,
}

/// Whether a session that is silent may do without the server connection that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaving {
    No,
    May,
    /// The session has been silent for a while: it is to look whether others want the connection.
    Due,
}

/// Limits of silence, in ticks of the worker's coarse clock; 0 means no limit.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct IdleLimits {
    pub(crate) client_ticks: u32,
    /// Limit between two commands, by the session's own `wait_timeout`.
    pub(crate) silence_ticks: u32,
    pub(crate) server_ticks: u32,
    /// Limit within a command that the client sends.
    pub(crate) request_ticks: u32,
    /// Limit of a client that does not take its answer.
    pub(crate) reader_ticks: u32,
}

impl Control {
    pub(crate) fn new(id: u32, clock: Rc<Clock>) -> Self {
        Self::since(id, clock, Instant::now())
    }

    /// The control of a session that began at `began`, maybe in another process.
    pub(crate) fn since(id: u32, clock: Rc<Clock>, began: Instant) -> Self {
        Self {
            id,
            raised: Cell::new(0),
            waker: OnceCell::new(),
            waiting: Cell::new(Waiting::Login),
            since_tick: Cell::new(clock.now()),
            server: Cell::new(None),
            thread_id: Cell::new(0),
            aims: Cell::new(0),
            about: RefCell::default(),
            login_collation: Cell::new(0),
            leaving: Cell::new(Leaving::No),
            is_among_leavers: Cell::new(false),
            waits_to_move: Cell::new(false),
            can_move: Cell::new(false),
            of_split: OfSplit::default(),
            pins: Cell::default(),
            limits: Cell::new(IdleLimits::default()),
            goes: Cell::new(false),
            stays: Cell::default(),
            began,
            failed_logins: Cell::new(0),
            limits_by: Cell::default(),
            oldest_login: Cell::new(Instant::now()),
            shown: Shown::default(),
            record: Record::default(),
            clock,
        }
    }

    /// Has the session look, at its next free moment, whether it can go to the process that has taken over.
    /// False where the session never can, or has been told before.
    pub(crate) fn is_to_go_now(&self) -> bool {
        if self.stays.get().is_for_good() || self.goes.replace(true) {
            return false;
        }
        self.stays.set(Stays::Busy);
        self.wake();
        true
    }

    /// Whether the session is to look: see [`is_to_go_now`](Self::is_to_go_now).
    #[inline]
    pub(crate) fn is_to_go(&self) -> bool {
        self.goes.get()
    }

    /// Notes that the session has looked, and does not go for this reason. The session is told when it is to
    /// look again.
    pub(crate) fn has_looked(&self, why: Stays) {
        self.goes.set(false);
        self.stays.set(why);
    }

    /// Notes why the session does not go.
    pub(crate) fn stays(&self, why: Stays) {
        self.stays.set(why);
    }

    /// Remembers how to wake the session. Called once, from its own task: a task's waker stays the same.
    pub(crate) fn remember_waker(&self, cx: &Context<'_>) {
        self.waker.get_or_init(|| cx.waker().clone());
    }

    /// Says which server the session is on.
    pub(crate) fn attach(&self, server: ServerKey) {
        self.server.set(Some(server));
    }

    /// Says where the session came in, and who is at the other end.
    pub(crate) fn introduce(&self, listener: &str, client: &Peer) {
        *self.about.borrow_mut() = Some(Box::new(About {
            listener: listener.into(),
            user: "".into(),
            client: client.to_string().into(),
            schema: None,
        }));
    }

    /// Notes that a login on a connection that may try again has failed. Returns how many have.
    pub(crate) fn login_failed(&self) -> u32 {
        self.failed_logins.set(self.failed_logins.get().saturating_add(1));
        self.failed_logins()
    }

    /// Sets how many logins have failed in the process before this one.
    pub(crate) fn set_failed_logins(&self, count: u16) {
        self.failed_logins.set(count);
    }

    pub(crate) fn failed_logins(&self) -> u32 {
        self.failed_logins.get().into()
    }

    /// Says which user's the session is from here on.
    pub(crate) fn name_user(&self, user: &str) {
        if let Some(about) = self.about.borrow_mut().as_mut() {
            about.user = user.into();
        }
    }

    /// Says which schema the client has named at its login, and which collation, if it has.
    pub(crate) fn name_login(&self, schema: Option<&[u8]>, collation: Option<u8>) {
        if let Some(about) = self.about.borrow_mut().as_mut() {
            about.schema = schema.filter(|name| !name.is_empty()).map(Rc::from);
        }
        if let Some(collation) = collation {
            self.login_collation.set(collation);
        }
    }

    /// The low byte of the collation that the client has named at its login; 0 where that is not known.
    pub(crate) fn login_collation(&self) -> u8 {
        self.login_collation.get()
    }

    /// The schema that the client has named at its login.
    pub(crate) fn login_schema(&self) -> Option<Rc<[u8]>> {
        self.about.borrow().as_ref()?.schema.clone()
    }

    /// The user's name; empty before it is known.
    pub(crate) fn user(&self) -> Option<Rc<str>> {
        self.about.borrow().as_ref().map(|about| Rc::clone(&about.user))
    }

    /// Says why the session holds its server connection.
    pub(crate) fn show_pins<'p>(&self, pins: impl Iterator<Item = &'p Pin>) {
        let mut shown = self.pins.take();
        shown.clear();
        shown.extend(pins);
        self.pins.set(shown);
    }

    /// The session as operators see it. `now_ms` is the present time on the clock of the pins.
    pub(crate) fn describe(
        &self,
        worker: usize,
        now_ms: u64,
        tick: Duration,
    ) -> (SessionStatus, Option<ServerKey>) {
        let about = self.about.borrow();
        let told = |part: fn(&About) -> &str| {
            about
                .as_ref()
                .map_or_else(String::new, |about| part(about).to_owned())
        };
        let ticks = self.clock.now().wrapping_sub(self.since_tick.get());
        let pins = self.pins.take();
        let shown = pins.iter().map(|pin| PinStatus {
            reason: pin.reason.label(),
            digest: format!("{:016x}", pin.digest),
            since_seconds: now_ms.saturating_sub(pin.since_ms) as f64 / 1000.0,
        });
        let status = SessionStatus {
            id: self.id,
            worker,
            listener: told(|about| &about.listener),
            user: told(|about| &about.user),
            client: told(|about| &about.client),
            waits_for: self.waiting.get().label(),
            waiting_seconds: tick.as_secs_f64() * f64::from(ticks),
            server: None,
            server_connection_id: self.server_connection().map(|(_, id)| id).filter(|id| *id != 0),
            schema: self.shown.schema(),
            digest: self.shown.digest(),
            pins: shown.collect(),
        };
        self.pins.set(pins);
        (status, self.server.get())
    }

    /// Says whether the session may do without the connection that it holds, while its client is silent.
    pub(crate) fn may_leave(&self, may: bool) {
        self.leaving.set(if may { Leaving::May } else { Leaving::No });
    }

    /// Says that the session may do without its connection, and is to look whether others want it as soon as
    /// its client is silent.
    pub(crate) fn leaves_now(&self) {
        self.leaving.set(Leaving::Due);
    }

    /// Has the session look at once whether others want its connection, if it may do without and its client
    /// is silent. Returns whether that is so.
    pub(crate) fn leaves_if_silent(&self) -> bool {
        let is_silent = self.waiting.get() == Waiting::Client && self.leaving.get() == Leaving::May;
        if is_silent {
            self.leaves_now();
            self.wake();
        }
        is_silent
    }

    /// Whether the session is to look now whether others want its connection. After a while the answer is yes
    /// again.
    pub(crate) fn is_to_leave(&self) -> bool {
        let is_due = self.leaving.get() == Leaving::Due;
        if is_due {
            self.leaving.set(Leaving::May);
        }
        is_due
    }

    /// Says whether the statement under way can be executed on another server.
    #[inline]
    pub(crate) fn can_move(&self, can: bool) {
        self.can_move.set(can);
    }

    /// Says which server the session is on, and which id that server gave the connection.
    pub(crate) fn attach_connection(&self, server: ServerKey, thread_id: u32) {
        self.attach(server);
        self.thread_id.set(thread_id);
    }

    /// The server connection that the session holds, in mode `split`.
    pub(crate) fn server_connection(&self) -> Option<(ServerKey, u32)> {
        Some((self.server.get()?, self.thread_id.get()))
    }

    /// Aims at the statement under way, until the answer is dropped.
    pub(crate) fn aim(self: &Rc<Self>) -> Aim {
        self.aims.set(self.aims.get() + 1);
        Aim(Rc::clone(self))
    }

    /// Whether somebody aims at the statement under way on the connection.
    pub(crate) fn is_aimed_at(&self) -> bool {
        self.aims.get() > 0
    }

    /// Takes the session off its server. Signals that were raised because of that server do not concern the
    /// session any more.
    pub(crate) fn detach(&self) {
        self.server.set(None);
        self.leaving.set(Leaving::No);
        self.pins.take();
        if self.raised.get() != 0 {
            let of_server = Signal::ALL
                .into_iter()
                .filter(|signal| signal.is_about_a_server());
            let of_server = of_server.fold(0, |bits, signal| bits | signal.bit());
            self.raised.set(self.raised.get() & !of_server);
        }
    }

    /// How long the session may be silent.
    pub(crate) fn limits(&self) -> IdleLimits {
        self.limits.get()
    }

    /// Says how long the session may be silent.
    pub(crate) fn set_limits(&self, limits: IdleLimits) {
        self.limits.set(limits);
    }

    pub(crate) fn server(&self) -> Option<ServerKey> {
        self.server.get()
    }

    pub(crate) fn raise(&self, signal: Signal) {
        let before = self.raised.get();
        if before & signal.bit() == 0 {
            self.raised.set(before | signal.bit());
            self.wake();
        }
    }

    /// Takes back a signal whose reason is gone.
    pub(crate) fn take_back(&self, signal: Signal) {
        self.raised.set(self.raised.get() & !signal.bit());
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }

    #[cfg(test)]
    fn signal(&self) -> Option<Signal> {
        self.due(true)
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.raised.get() & Signal::Kill.bit() != 0
    }

    /// The signal that ends the session now, given whether it is at a free moment.
    #[inline]
    pub(crate) fn due(&self, free: bool) -> Option<Signal> {
        let raised = self.raised.get();
        if raised == 0 {
            return None;
        }
        let is_due = |signal: &Signal| {
            raised & signal.bit() != 0
                && (free || !signal.waits_for_a_free_moment())
                && (*signal != Signal::ServerSilent || self.can_move.get())
        };
        Signal::ALL.into_iter().find(is_due)
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

    /// Notes that the server's answer has begun or goes on: the statement stays where it is.
    #[inline]
    pub(crate) fn mark_answer(&self) {
        self.mark(Waiting::Server);
        self.can_move.set(false);
        self.record.note_answer();
    }

    /// Marks the session like [`mark`](Self::mark), unless it waits for that already: the wait goes on.
    #[inline]
    pub(crate) fn mark_if_new(&self, waiting: Waiting) {
        if self.waiting.get() != waiting {
            self.mark(waiting);
        }
    }

    /// The wait under way, and the tick at which it began.
    pub(crate) fn wait_so_far(&self) -> (Waiting, u32) {
        (self.waiting.get(), self.since_tick.get())
    }

    /// Goes on with that wait, whatever was waited for meanwhile.
    pub(crate) fn goes_on_waiting(&self, (waiting, since): (Waiting, u32)) {
        self.waiting.set(waiting);
        self.since_tick.set(since);
    }

    /// Raises the timeout whose limit has passed.
    pub(crate) fn check_idle(&self) {
        let limits = self.limits.get();
        let silent_for = self.clock.now().wrapping_sub(self.since_tick.get());
        let over = |limit: u32| limit > 0 && silent_for > limit;
        let is_silent = self.waiting.get() == Waiting::Client && over(SILENT_TICKS);
        if is_silent && self.leaving.get() == Leaving::May {
            self.leaving.set(Leaving::Due);
            self.wake();
        }
        match self.waiting.get() {
            Waiting::Request if over(limits.request_ticks) => self.raise(Signal::RequestStalled),
            Waiting::Reader if over(limits.reader_ticks) => self.raise(Signal::ReaderStalled),
            Waiting::Client if over(limits.silence_ticks) => self.raise(Signal::WaitTimeout),
            Waiting::Client | Waiting::Request | Waiting::Reader if over(limits.client_ticks) => {
                self.raise(Signal::ClientIdle);
            }
            Waiting::Stream if over(limits.client_ticks) => self.raise(Signal::ClientIdle),
            Waiting::Server if over(limits.server_ticks) => self.raise(Signal::ServerTimeout),
            _ => {}
        }
    }
}

/// Somebody is about to kill the statement under way: the connection must not be lent to anybody else.
pub(crate) struct Aim(Rc<Control>);

impl Drop for Aim {
    fn drop(&mut self) {
        self.0.aims.set(self.0.aims.get() - 1);
    }
}

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

    pub(crate) fn all(&self) -> Vec<Rc<Control>> {
        self.by_id.borrow().values().cloned().collect()
    }

    /// The reason why each session has not gone to the process that has taken over.
    pub(crate) fn staying(&self) -> Vec<Stays> {
        let by_id = self.by_id.borrow();
        by_id.values().map(|control| control.stays.get()).collect()
    }

    pub(crate) fn find(&self, id: u32) -> Option<Rc<Control>> {
        self.by_id.borrow().get(&id).cloned()
    }

    /// At most `limit` sessions, as operators see them.
    pub(crate) fn describe(
        &self,
        worker: usize,
        now_ms: u64,
        tick: Duration,
        limit: usize,
    ) -> Vec<(SessionStatus, Option<ServerKey>)> {
        let by_id = self.by_id.borrow();
        let controls = by_id.values().take(limit);
        controls
            .map(|control| control.describe(worker, now_ms, tick))
            .collect()
    }

    /// Raises a signal in a session. False where the session is not on this worker.
    pub(crate) fn raise(&self, id: u32, signal: Signal) -> bool {
        let control = self.find(id);
        if let Some(control) = &control {
            control.raise(signal);
        }
        control.is_some()
    }

    pub(crate) fn raise_all(&self, signal: Signal) {
        self.by_id
            .borrow()
            .values()
            .for_each(|control| control.raise(signal));
    }

    /// Does `act` for each session on a server.
    pub(crate) fn on_server(&self, server: ServerKey, act: impl Fn(&Control)) {
        let by_id = self.by_id.borrow();
        let there = by_id.values().filter(|control| control.server() == Some(server));
        there.for_each(|control| act(control));
    }

    /// Has `count` of the sessions on a server look whether they may leave it: any of them, since those that
    /// were woken before may be held there.
    pub(crate) fn wake_some(&self, server: ServerKey, count: u32) {
        let by_id = self.by_id.borrow();
        let there = || by_id.values().filter(|control| control.server() == Some(server));
        let all = there().count();
        if all == 0 {
            return;
        }
        let begin = RandomState::new().hash_one(server.server) as usize % all;
        let next = there().chain(there()).skip(begin);
        let count = all.min(count as usize);
        next.take(count).for_each(|control| control.wake());
    }

    pub(crate) fn check_idle(&self) {
        self.by_id
            .borrow()
            .values()
            .for_each(|control| control.check_idle());
    }

    /// The number of sessions in each kind of wait.
    pub(crate) fn count_waiting(&self) -> impl Iterator<Item = (&'static str, i64)> {
        let mut counts = [0; Waiting::LABELLED.len()];
        for control in self.by_id.borrow().values() {
            let label = control.waiting.get().label();
            let place = Waiting::LABELLED.iter().position(|of| of.label() == label);
            if let Some(count) = place.and_then(|place| counts.get_mut(place)) {
                *count += 1;
            }
        }
        Waiting::LABELLED.into_iter().map(Waiting::label).zip(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control() -> Control {
        Control::new(1, Rc::default())
    }

    #[test]
    fn the_strongest_signal_counts() {
        let control = control();
        control.raise(Signal::Drain);
        control.raise(Signal::Kill);
        control.raise(Signal::Drain);
        assert_eq!(control.signal(), Some(Signal::Kill));
        assert!(Signal::ALL.is_sorted_by(|a, b| a > b));
    }

    #[test]
    fn what_is_about_the_session_stays_when_its_server_is_left() {
        for own in [Signal::Shutdown, Signal::Kill, Signal::ClientIdle] {
            let control = control();
            control.raise(Signal::ServerDown);
            control.raise(own);
            control.raise(Signal::DrainNow);
            control.detach();
            assert_eq!(control.signal(), Some(own));
        }
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
            ..IdleLimits::default()
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

    #[test]
    fn a_stall_within_a_command_counts_and_silence_between_two_does_not() {
        let control = control();
        let pass = |ticks: u32| (0..ticks).for_each(|_| control.clock.advance());
        control.set_limits(IdleLimits {
            request_ticks: 4,
            reader_ticks: 8,
            ..IdleLimits::default()
        });
        for waiting in [
            Waiting::Client,
            Waiting::Server,
            Waiting::Request,
            Waiting::Reader,
        ] {
            control.mark(waiting);
            pass(9);
            control.check_idle();
            let expected = match waiting {
                Waiting::Request => Some(Signal::RequestStalled),
                Waiting::Reader => Some(Signal::ReaderStalled),
                _ => None,
            };
            assert_eq!(control.signal(), expected, "{waiting:?}");
        }
    }

    #[test]
    fn a_session_shows_who_it_is_and_waits_from_its_beginning_on() {
        let clock: Rc<Clock> = Rc::default();
        (0..1000).for_each(|_| clock.advance());
        let control = Control::new(1, Rc::clone(&clock));
        control.introduce("front", &Peer::Unix);
        (0..4).for_each(|_| clock.advance());
        let described = || control.describe(0, 0, Duration::from_millis(250)).0;
        let session = described();
        assert_eq!((session.waits_for, session.waiting_seconds), ("login", 1.0));
        assert_eq!((session.listener.as_str(), session.user.as_str()), ("front", ""));
        control.name_user("app");
        assert_eq!(
            (described().user.as_str(), described().listener.as_str()),
            ("app", "front")
        );
    }
}
