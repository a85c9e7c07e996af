//! Strong reads of one worker: they wait for one another's probes, for those of other workers, and for what
//! the probes said to be applied.
//!
//! A task of its own asks the primary, so that no client's end stops what others wait for. The rule is
//! [`ReadIndex`](upstream::ReadIndex)'s: a probe serves the reads that had arrived when it was sent, on all
//! workers ([`Probes`]). As soon as it is answered the next may be sent, while the reads of the first still
//! wait for the answer to be applied.
//!
//! Where many read at a time, a probe gives way to all that is ready on the worker: reads that have come and
//! were not yet looked at share it, and those that the last one has served are answered before. It does so
//! again when more came meanwhile.

mod gate;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use telemetry::Worker;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use upstream::{Arrival, Backoff, Probe};

pub use self::gate::Gate;
use self::gate::{GateInbox, Gates};
use super::NotFresh;
use super::primary_connection::{AskError, Primary, PrimaryConnection};
use super::wait_list::{WaitList, WaitPlace};
use crate::coherence::{Applied, Position};
use crate::probes::{Ended, Probes};

/// Pauses between probes that fail.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const BACKOFF: Backoff = Backoff::new(PAUSE_MIN, Duration::from_millis(200));

/// So many reads of one probe are many. Sixteen SQL sessions on two workers share a probe among 5.9 reads,
/// where eight were many among 3.4.
const MANY: u64 = 2;

/// Turns of the worker for which a probe gives way at most. With a second one a fifth more reads share it
/// where there are 4 clients, a tenth more where there are 16 or 50. Two more turns bring nothing.
const TURNS_MAX: u32 = 2;

/// Far enough for a timer that nothing waits for.
const LONG: Duration = Duration::from_secs(3600);

/// The strong reads of a worker.
pub(super) struct Index {
    probes: Arc<Probes>,
    state: RefCell<State>,
    inbox: Arc<GateInbox>,
    /// Longest wait of a read.
    limit: Duration,
    metrics: Arc<Worker>,
}

struct State {
    wait_list: WaitList,
    /// Connections whose reads wait before they are read.
    gates: Gates,
    /// The last answer that was heard is for these.
    heard: Option<Arrival>,
    /// What probes said, and whom each of them serves: all up to that arrival. Both rise.
    answered: VecDeque<(Arrival, Position)>,
    /// The driver has been told that somebody came since it looked last.
    told: bool,
    /// Reads that came so far, and those whose waits the last answer has ended.
    came: u64,
    shared: u64,
    /// Why the last probe had no answer.
    failure: Option<Arc<str>>,
}

/// For how many turns a probe has given way, and how many reads had come then.
#[derive(Default)]
struct GivenWay {
    turns: u32,
    came: u64,
}

/// A read's place among those who wait. It is given up when this is dropped.
struct Read<'i> {
    index: &'i Index,
    place: WaitPlace,
}

impl Drop for Read<'_> {
    fn drop(&mut self) {
        self.index.state.borrow_mut().wait_list.leave(self.place);
    }
}

impl Index {
    pub(super) fn new(probes: Arc<Probes>, limit: Duration, metrics: Arc<Worker>) -> Rc<Self> {
        let inbox = GateInbox::new(Arc::clone(&probes));
        Rc::new(Self {
            probes,
            state: RefCell::new(State::new(Gates::new(Arc::clone(&inbox)))),
            inbox,
            limit,
            metrics,
        })
    }

    /// Waits until all is applied that was acknowledged anywhere before this call.
    pub(super) async fn fresh(&self) -> Result<(), NotFresh> {
        let (place, told) = {
            let mut state = self.state.borrow_mut();
            let place = state.enter(self.probes.arrive(), Instant::now());
            (place, std::mem::replace(&mut state.told, true))
        };
        if !told {
            self.inbox.arrived.notify_one();
        }
        let read = Read { index: self, place };
        poll_fn(|context| self.state.borrow_mut().wait_list.poll(read.place, context)).await
    }

    /// A gate for the connection that this task serves.
    pub(super) fn gate(self: &Rc<Self>, task: &Waker) -> Gate {
        let (number, gate_waker) = self.state.borrow_mut().gates.add(task);
        Gate::new(Rc::clone(self), number, gate_waker)
    }

    /// See [`Gates::pass`].
    #[inline]
    pub(super) fn pass(&self, gate: usize, task: &Waker) -> bool {
        self.state.borrow_mut().gates.pass(gate, task)
    }

    pub(super) fn remove_gate(&self, gate: usize) {
        self.state.borrow_mut().gates.remove(gate);
    }

    /// Asks the primary on behalf of all who wait. Goes on until its task is aborted.
    pub(super) async fn drive(
        self: Rc<Self>,
        primary: Rc<Primary>,
        mut applied: watch::Receiver<Arc<Applied>>,
    ) {
        let mut prober = Some(Prober {
            primary,
            connection: None,
            backoff: BACKOFF,
        });
        let mut ended = self.probes.ended();
        let mut asking: Option<Asking> = None;
        let mut pause_until = Instant::now();
        let mut timer = Box::pin(sleep_until(Instant::now() + LONG));
        let mut given_way = GivenWay::default();
        loop {
            let now = Instant::now();
            let heard = ended.borrow_and_update();
            let known = Arc::clone(&applied.borrow_and_update());
            // Who has rung before may be served by it.
            self.admit();
            if !self.hear(&heard, &known) {
                pause_until = pause_until.max(now + PAUSE_MIN);
            }
            drop(heard);
            let (wants_probe, waits_for_feed) = self.settle(&known, now);
            let asks_now = wants_probe && asking.is_none() && pause_until <= now;
            if asks_now && self.gives_way(&mut given_way) {
                yield_now().await;
                continue;
            }
            given_way = GivenWay::default();
            let mut look_again = (wants_probe && asking.is_none()).then_some(pause_until);
            // Another worker asks.
            let mut is_asked = false;
            if asks_now && let Some(own) = prober.take() {
                match self.probes.send(now) {
                    Ok(probe) => {
                        asking = Some(Asking::new(probe, now, &known, own, self.limit));
                        look_again = None;
                    }
                    Err(until) => {
                        prober = Some(own);
                        (is_asked, look_again) = (true, Some(until));
                    }
                }
            }
            self.set_timer(timer.as_mut(), look_again, asking.is_some());
            tokio::select! {
                biased;
                (mut back, answer) = answered(&mut asking), if asking.is_some() => {
                    if let Some(asked) = asking.take() {
                        pause_until = self.end(asked, answer, &mut back.backoff);
                    }
                    prober = Some(back);
                }
                // Its other end is the board's, which the primary holds.
                Ok(()) = applied.changed(), if waits_for_feed => {}
                _ = ended.changed(), if wants_probe => {}
                () = self.inbox.arrived.notified(), if !wants_probe || (asking.is_none() && !is_asked) => {}
                () = timer.as_mut() => {}
            }
        }
    }

    /// The timer rings when the first read has waited for too long, or when a pause is over. While a probe is
    /// under way nobody looks who has come to the gates.
    fn set_timer(&self, timer: Pin<&mut Sleep>, look_again: Option<Instant>, is_asking: bool) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let deadline = state.wait_list.first().map(|(_, since)| since + self.limit);
        let at_gates = match state.gates.wait_list.first() {
            Some((_, since)) => Some(since + self.limit.min(gate::WAIT_MAX)),
            None if is_asking && !state.gates.is_empty() => Some(Instant::now() + gate::WAIT_MAX),
            None => None,
        };
        let wanted = [deadline, at_gates, look_again].into_iter().flatten().min();
        let wanted = wanted.unwrap_or_else(|| Instant::now() + LONG);
        // Moments only move on; a timer that rings too early is set anew.
        if timer.is_elapsed() || wanted < timer.deadline() {
            timer.reset(wanted);
        }
    }

    /// Takes up connections that wait at their gates.
    fn admit(&self) {
        let mut state = self.state.borrow_mut();
        let came = state.gates.admit();
        state.came += came;
    }

    /// Hears how the last probe has ended, whoever sent it. False: it says nothing about what the feed
    /// follows.
    fn hear(&self, ended: &Ended, applied: &Applied) -> bool {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        state.failure.clone_from(&ended.failure);
        let Some((serves, position)) = &ended.known else {
            return true;
        };
        if state.heard >= Some(*serves) {
            return true;
        }
        state.heard = Some(*serves);
        let may_be_reached = applied.may_cover(position);
        if may_be_reached && state.first().is_some() {
            // Where the log began anew an earlier answer may be of a place that never comes. Whom it serves
            // this one serves, too.
            while state
                .answered
                .pop_back_if(|(_, earlier)| !position.covers(earlier))
                .is_some()
            {}
            state.answered.push_back((*serves, position.clone()));
        }
        may_be_reached
    }

    /// Ends the waits that have come to their end. Tells whether somebody waits for a probe to be sent, and
    /// whether somebody waits for more to be applied.
    fn settle(&self, applied: &Applied, now: Instant) -> (bool, bool) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        state.told = false;
        while let Some((serves, position)) = state.answered.front() {
            if applied.covers(position) {
                state.shared = 0;
                let shared = &mut state.shared;
                let mut waited = |since: Instant| {
                    *shared += 1;
                    self.metrics.cache.wait_seconds.record(now - since);
                };
                state.wait_list.end(*serves, &Ok(()), &mut waited);
                state.gates.wait_list.end(*serves, &Ok(()), waited);
            } else if applied.may_cover(position) {
                break;
            }
            state.answered.pop_front();
        }
        if let Some(moment) = now.checked_sub(self.limit)
            && state.wait_list.first().is_some_and(|(_, since)| since <= moment)
        {
            let error = Err(NotFresh {
                waited: self.limit,
                reason: state.reason(applied),
            });
            state.wait_list.expire(moment, &error, |since| {
                self.metrics.cache.not_fresh.inc();
                self.metrics.cache.wait_seconds.record(now - since);
            });
        }
        // They go on, and wait as others do.
        if let Some(moment) = now.checked_sub(self.limit.min(gate::WAIT_MAX))
            && state
                .gates
                .wait_list
                .first()
                .is_some_and(|(_, since)| since <= moment)
        {
            let error = Err(NotFresh {
                waited: gate::WAIT_MAX,
                reason: state.reason(applied),
            });
            state.gates.wait_list.expire(moment, &error, |_| ());
        }
        let first = state.first();
        while let Some((serves, _)) = state.answered.front()
            && first.is_none_or(|arrival| *serves < arrival)
        {
            state.answered.pop_front();
        }
        let served = state.answered.back().map(|(serves, _)| *serves);
        let last = state.wait_list.last().max(state.gates.wait_list.last());
        let wants_probe = first.is_some() && last > served;
        (wants_probe, !state.answered.is_empty())
    }

    /// Whether a probe that may be sent waits for another turn of the worker: many will share it, as far as
    /// the last one tells, and the turn before brought more.
    fn gives_way(&self, given_way: &mut GivenWay) -> bool {
        let state = self.state.borrow();
        let brought = given_way.turns == 0 || state.came > given_way.came;
        let gives_way = state.shared >= MANY && brought && given_way.turns < TURNS_MAX;
        given_way.turns += 1;
        given_way.came = state.came;
        gives_way
    }

    /// Takes the end of a probe, and tells until when to wait with the next.
    fn end(&self, asked: Asking, answer: Result<Position, Arc<str>>, backoff: &mut Backoff) -> Instant {
        let now = Instant::now();
        let cache = &self.metrics.cache;
        let answer = counted(answer, &asked.applied);
        self.probes.end(asked.probe, &answer);
        match answer {
            Ok(_) => {
                cache.probes.inc();
                cache.probe_seconds.record(now - asked.sent);
                now
            }
            Err(_) => {
                cache.probes_failed.inc();
                now + backoff.pause()
            }
        }
    }
}

impl State {
    fn new(gates: Gates) -> Self {
        Self {
            wait_list: WaitList::default(),
            gates,
            heard: None,
            answered: VecDeque::new(),
            told: false,
            came: 0,
            shared: 0,
            failure: None,
        }
    }

    /// The first who still waits.
    fn first(&mut self) -> Option<Arrival> {
        let (read, gate) = (self.wait_list.first(), self.gates.wait_list.first());
        let arrivals = [read, gate].into_iter().flatten();
        arrivals.map(|(arrival, _)| arrival).min()
    }

    fn enter(&mut self, arrival: Arrival, now: Instant) -> WaitPlace {
        self.came += 1;
        self.wait_list.enter(arrival, now)
    }

    /// Why reads wait.
    fn reason(&self, applied: &Applied) -> Arc<str> {
        match (&self.failure, &applied.position, self.answered.front()) {
            (Some(failure), ..) => Arc::clone(failure),
            (None, None, _) => "the binary log is not followed yet".into(),
            (None, Some(at), Some((_, until))) => format!(
                "the binary log is applied up to {}, and the primary is at {}",
                at.place, until.place
            )
            .into(),
            (None, Some(_), None) => "no answer from the primary".into(),
        }
    }
}

type ProbeAnswer = (Prober, Result<Position, Arc<str>>);

/// A probe that is under way.
struct Asking {
    probe: Probe,
    sent: Instant,
    /// When it was sent.
    applied: Arc<Applied>,
    answer: Pin<Box<dyn Future<Output = ProbeAnswer>>>,
}

impl Asking {
    fn new(probe: Probe, sent: Instant, applied: &Arc<Applied>, prober: Prober, limit: Duration) -> Self {
        let by_gtid = applied.position.as_ref().is_some_and(Position::is_by_gtid);
        Self {
            probe,
            sent,
            applied: Arc::clone(applied),
            answer: Box::pin(prober.ask(by_gtid, limit)),
        }
    }
}

/// An answer, unless it is behind what was applied when the probe was sent: then the binary log is not the
/// one that was followed.
fn counted(answer: Result<Position, Arc<str>>, applied: &Applied) -> Result<Position, Arc<str>> {
    let position = answer?;
    match &applied.position {
        Some(before) if before.is_like(&position) && !position.covers(before) => {
            Err("the primary's binary log began anew".into())
        }
        _ => Ok(position),
    }
}

/// Its answer. To be polled only while there is one.
async fn answered(asking: &mut Option<Asking>) -> ProbeAnswer {
    match asking {
        Some(asking) => asking.answer.as_mut().await,
        None => std::future::pending().await,
    }
}

/// Asks the primary where it is, over one connection that it keeps.
struct Prober {
    primary: Rc<Primary>,
    connection: Option<PrimaryConnection>,
    backoff: Backoff,
}

impl Prober {
    async fn ask(mut self, by_gtid: bool, limit: Duration) -> ProbeAnswer {
        let primary = Rc::clone(&self.primary);
        let asked = primary.cluster.topology();
        let answer = tokio::select! {
            biased;
            answer = timeout(limit, self.position(by_gtid)) => answer.unwrap_or(Err(AskError::Timeout(limit))),
            // One that was cut off may never answer.
            () = primary.superseded(asked) => Err(AskError::Superseded),
        };
        match answer {
            Ok(position) => {
                self.backoff = BACKOFF;
                (self, Ok(position))
            }
            Err(error) => {
                self.connection = None;
                (self, Err(error.to_string().into()))
            }
        }
    }

    async fn position(&mut self, by_gtid: bool) -> Result<Position, AskError> {
        let current = self
            .connection
            .take()
            .filter(|connection| self.primary.is_current(connection));
        if let Some(connection) = current {
            return self.connection.insert(connection).position(by_gtid).await;
        }
        let connection = self.connection.insert(self.primary.connect().await?);
        let position = connection.position(by_gtid).await?;
        self.primary.note_first_answer(connection);
        Ok(position)
    }
}

#[cfg(test)]
mod tests;
