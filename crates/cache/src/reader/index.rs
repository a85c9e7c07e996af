//! Strong reads of one worker: they wait for one another's probes, and for what the probes said to be applied.
//!
//! A task of its own asks the primary, so that no client's end stops what others wait for. The rule is
//! [`ReadIndex`]'s: a probe serves the reads that had arrived when it was sent. As soon as it is answered the next may be
//! sent, while the reads of the first still wait for the answer to be applied.
//!
//! Where many read at a time, a probe gives way to all that is ready on the worker: reads that have come and were not yet looked at
//! share it, and those that the last one has served are answered before. It does so again when more came meanwhile.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use telemetry::Worker;
use tokio::sync::{Notify, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::NotFresh;
use super::line::{AskError, Line, Primary};
use super::waiting::{Place, Waiting};
use crate::coherence::{self, Applied, Arrival, Position, Probe, ReadIndex, Verdict};

/// Pauses between probes that fail: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// So many reads of one probe are many. Sixteen SQL sessions on two workers share a probe among 5.9 reads, where eight were many
/// among 3.4.
const MANY: u64 = 2;

/// Turns of the worker for which a probe gives way at most. With a second one a fifth more reads share it where there are 4 clients, a tenth
/// more where there are 16 or 50. Two more turns bring nothing.
const TURNS_MAX: u32 = 2;

/// Far enough for a timer that nothing waits for.
const LONG: Duration = Duration::from_secs(3600);

/// The strong reads of a worker.
pub(super) struct Index {
    state: RefCell<State>,
    arrived: Notify,
    /// Longest wait of a read.
    limit: Duration,
    metrics: Arc<Worker>,
}

#[derive(Default)]
struct State {
    rule: ReadIndex,
    waiting: Waiting,
    /// What probes said, and whom each of them serves: all up to that arrival. Both rise.
    answered: VecDeque<(Arrival, Position)>,
    /// The driver has been told that somebody came since it looked last.
    told: bool,
    /// Reads that came since the last probe was sent, and those that came for that one.
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
    place: Place,
}

impl Drop for Read<'_> {
    fn drop(&mut self) {
        self.index.state.borrow_mut().waiting.leave(self.place);
    }
}

impl Index {
    pub(super) fn new(limit: Duration, metrics: Arc<Worker>) -> Rc<Self> {
        Rc::new(Self {
            state: RefCell::default(),
            arrived: Notify::new(),
            limit,
            metrics,
        })
    }

    /// Waits until all is applied that was acknowledged anywhere before this call.
    pub(super) async fn fresh(&self) -> Result<(), NotFresh> {
        let (place, told) = {
            let mut state = self.state.borrow_mut();
            let place = state.enter(Instant::now());
            (place, std::mem::replace(&mut state.told, true))
        };
        if !told {
            self.arrived.notify_one();
        }
        let read = Read { index: self, place };
        poll_fn(|context| self.state.borrow_mut().waiting.poll(read.place, context)).await
    }

    /// Asks the primary on behalf of all who wait. Ends with the feed.
    pub(super) async fn drive(
        self: Rc<Self>,
        primary: Rc<Primary>,
        mut applied: watch::Receiver<Arc<Applied>>,
    ) {
        let mut prober = Some(Prober {
            primary,
            line: None,
            pause: PAUSE_MIN,
        });
        let mut asking: Option<Asking> = None;
        let mut pause_until = Instant::now();
        let mut timer = Box::pin(sleep_until(Instant::now() + LONG));
        let mut given_way = GivenWay::default();
        loop {
            let now = Instant::now();
            let known = Arc::clone(&applied.borrow_and_update());
            let (wants_probe, waits_for_feed) = self.settle(&known, now);
            let asks_now = wants_probe && asking.is_none() && pause_until <= now;
            if asks_now && self.gives_way(&mut given_way) {
                yield_now().await;
                continue;
            }
            given_way = GivenWay::default();
            if asks_now
                && let Some((probe, serves)) = self.send()
                && let Some(prober) = prober.take()
            {
                let by_gtid = matches!(
                    known.position,
                    Some(Position {
                        place: coherence::Place::MariaDb(_),
                        ..
                    })
                );
                asking = Some(Asking {
                    probe,
                    serves,
                    sent: now,
                    applied: Arc::clone(&known),
                    answer: Box::pin(prober.ask(by_gtid, self.limit)),
                });
            }
            self.set_timer(
                timer.as_mut(),
                (wants_probe && asking.is_none()).then_some(pause_until),
            );
            tokio::select! {
                biased;
                (back, answer) = answered(&mut asking), if asking.is_some() => {
                    if let Some(asked) = asking.take() {
                        let answer = counted(answer, &asked.applied);
                        pause_until = self.end(asked.probe, asked.serves, asked.sent, &answer, &applied, back.pause);
                    }
                    prober = Some(back);
                }
                changed = applied.changed(), if waits_for_feed => {
                    if changed.is_err() {
                        return self.give_up();
                    }
                }
                () = self.arrived.notified(), if asking.is_none() => {}
                () = timer.as_mut() => {}
            }
        }
    }

    /// The timer rings when the first read has waited for too long, or when a pause is over.
    fn set_timer(&self, timer: Pin<&mut Sleep>, pause_until: Option<Instant>) {
        let first = self.state.borrow_mut().waiting.first();
        let deadline = first.map(|(_, since)| since + self.limit);
        let wanted = deadline.into_iter().chain(pause_until).min();
        let wanted = wanted.unwrap_or_else(|| Instant::now() + LONG);
        // Moments only move on; a timer that rings too early is set anew.
        if timer.is_elapsed() || wanted < timer.deadline() {
            timer.reset(wanted);
        }
    }

    /// Ends the waits that have come to their end. Tells whether somebody waits for a probe to be sent, and whether somebody waits for
    /// more to be applied.
    fn settle(&self, applied: &Applied, now: Instant) -> (bool, bool) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        state.told = false;
        while let Some((serves, position)) = state.answered.front() {
            let other_source = applied.source().is_some_and(|source| source != position.source);
            if applied.covers(position) {
                let waited = |since: Instant| self.metrics.cache.wait_seconds.record(now - since);
                state.waiting.end(*serves, &Ok(()), waited);
            } else if !other_source {
                break;
            }
            state.answered.pop_front();
        }
        if let Some(moment) = now.checked_sub(self.limit)
            && state.waiting.first().is_some_and(|(_, since)| since <= moment)
        {
            let error = Err(NotFresh {
                waited: self.limit,
                reason: state.reason(applied),
            });
            state.waiting.expire(moment, &error, |since| {
                self.metrics.cache.not_fresh.inc();
                self.metrics.cache.wait_seconds.record(now - since);
            });
        }
        let first = state.waiting.first();
        while let Some((serves, _)) = state.answered.front()
            && first.is_none_or(|(arrival, _)| *serves < arrival)
        {
            state.answered.pop_front();
        }
        let served = state.answered.back().map(|(serves, _)| *serves);
        let wants_probe = first.is_some() && state.waiting.last() > served;
        (wants_probe, !state.answered.is_empty())
    }

    fn send(&self) -> Option<(Probe, Arrival)> {
        let mut state = self.state.borrow_mut();
        let serves = state.waiting.last()?;
        let probe = state.rule.send()?;
        state.shared = std::mem::take(&mut state.came);
        Some((probe, serves))
    }

    /// Whether a probe that may be sent waits for another turn of the worker: many will share it, as far as the last one tells, and the
    /// turn before brought more.
    fn gives_way(&self, given_way: &mut GivenWay) -> bool {
        let state = self.state.borrow();
        let brought = given_way.turns == 0 || state.came > given_way.came;
        let gives_way = state.shared >= MANY && brought && given_way.turns < TURNS_MAX;
        given_way.turns += 1;
        given_way.came = state.came;
        gives_way
    }

    /// Takes the end of a probe, and tells until when to wait with the next.
    fn end(
        &self,
        probe: Probe,
        serves: Arrival,
        sent: Instant,
        answer: &Result<Position, Arc<str>>,
        applied: &watch::Receiver<Arc<Applied>>,
        pause: Duration,
    ) -> Instant {
        let now = Instant::now();
        let cache = &self.metrics.cache;
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        state.rule.end(probe, answer.as_ref().ok().cloned());
        match answer {
            Ok(_) => {
                cache.probes.inc();
                cache.probe_seconds.record(now - sent);
                state.failure = None;
                let known = Arc::clone(&applied.borrow());
                match state.rule.verdict(serves, &known) {
                    Verdict::Serve => {
                        let waited = |since: Instant| cache.wait_seconds.record(now - since);
                        state.waiting.end(serves, &Ok(()), waited);
                    }
                    Verdict::WaitApplied(position) => state.answered.push_back((serves, position.clone())),
                    // The feed follows another server: ask again.
                    Verdict::WaitProbe | Verdict::Send => return now + pause,
                }
                now
            }
            Err(reason) => {
                cache.probes_failed.inc();
                state.failure = Some(Arc::clone(reason));
                now + pause
            }
        }
    }

    fn give_up(&self) {
        let mut state = self.state.borrow_mut();
        let error = Err(NotFresh {
            waited: Duration::ZERO,
            reason: "the cache has ended".into(),
        });
        if let Some(last) = state.waiting.last() {
            state.waiting.end(last, &error, |_| ());
        }
    }
}

impl State {
    fn enter(&mut self, now: Instant) -> Place {
        self.came += 1;
        let arrival = self.rule.arrive();
        self.waiting.enter(arrival, now)
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

type Answer = (Prober, Result<Position, Arc<str>>);

/// A probe that is under way.
struct Asking {
    probe: Probe,
    serves: Arrival,
    sent: Instant,
    /// When it was sent.
    applied: Arc<Applied>,
    answer: Pin<Box<dyn Future<Output = Answer>>>,
}

/// An answer, unless it is behind what was applied when the probe was sent: then the binary log is not the one that was followed.
fn counted(answer: Result<Position, Arc<str>>, applied: &Applied) -> Result<Position, Arc<str>> {
    let position = answer?;
    match &applied.position {
        Some(before) if before.source == position.source && !position.covers(before) => {
            Err("the primary's binary log began anew".into())
        }
        _ => Ok(position),
    }
}

/// Its answer. To be polled only while there is one.
async fn answered(asking: &mut Option<Asking>) -> Answer {
    match asking {
        Some(asking) => asking.answer.as_mut().await,
        None => std::future::pending().await,
    }
}

/// Asks the primary where it is, over one connection that it keeps.
struct Prober {
    primary: Rc<Primary>,
    line: Option<Line>,
    /// After the next failure.
    pause: Duration,
}

impl Prober {
    async fn ask(mut self, by_gtid: bool, limit: Duration) -> Answer {
        let answer = timeout(limit, self.position(by_gtid)).await;
        let answer = answer.unwrap_or(Err(AskError::Timeout(limit)));
        match answer {
            Ok(position) => {
                self.pause = PAUSE_MIN;
                (self, Ok(position))
            }
            Err(error) => {
                self.line = None;
                self.pause = PAUSE_MAX.min(self.pause * 2);
                (self, Err(error.to_string().into()))
            }
        }
    }

    async fn position(&mut self, by_gtid: bool) -> Result<Position, AskError> {
        let current = self.line.take().filter(|line| self.primary.is_current(line));
        let line = match current {
            Some(line) => line,
            None => self.primary.connect().await?,
        };
        let line = self.line.insert(line);
        line.position(by_gtid).await
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use telemetry::Telemetry;

    use super::*;
    use crate::coherence::SourceId;
    use crate::store::Version;

    /// An index, and what is applied.
    struct Worker {
        index: Rc<Index>,
        feed: watch::Sender<Arc<Applied>>,
        now: Instant,
    }

    fn at(source: u64, offset: u64) -> Position {
        let place = coherence::Place::File { file: 1, offset };
        Position {
            source: SourceId(source),
            place,
        }
    }

    fn applied(position: Position) -> Arc<Applied> {
        Arc::new(Applied {
            version: Version(0),
            position: Some(position),
            gtids: mysql_wire::gtid::GtidSet::empty(mysql_wire::gtid::Flavor::MySql),
        })
    }

    impl Worker {
        fn new() -> Self {
            Self {
                index: Index::new(Duration::from_secs(1), Telemetry::new(1, |_| "").worker(0)),
                feed: watch::Sender::new(applied(at(1, 0))),
                now: Instant::now(),
            }
        }

        fn arrive(&self) -> Read<'_> {
            let place = self.index.state.borrow_mut().enter(self.now);
            Read {
                index: &self.index,
                place,
            }
        }

        fn apply(&self, position: Position) -> (bool, bool) {
            self.feed.send_replace(applied(position));
            self.settle(Duration::ZERO)
        }

        fn settle(&self, after: Duration) -> (bool, bool) {
            let known = Arc::clone(&self.feed.borrow());
            self.index.settle(&known, self.now + after)
        }

        fn answer(&self, (probe, serves): (Probe, Arrival), answer: Result<Position, Arc<str>>) {
            self.index.end(
                probe,
                serves,
                self.now,
                &answer,
                &self.feed.subscribe(),
                PAUSE_MIN,
            );
        }
    }

    impl Read<'_> {
        fn poll(&self) -> Poll<Result<(), NotFresh>> {
            let context = Context::from_waker(Waker::noop());
            self.index.state.borrow_mut().waiting.poll(self.place, &context)
        }
    }

    #[test]
    fn a_read_that_comes_while_a_probe_is_under_way_waits_for_the_next() {
        let worker = Worker::new();
        let early = worker.arrive();
        assert_eq!(worker.settle(Duration::ZERO), (true, false));
        let probe = worker.index.send().unwrap();
        let late = worker.arrive();
        assert!(worker.index.send().is_none(), "one at a time");
        worker.answer(probe, Ok(at(1, 5)));
        assert_eq!(worker.apply(at(1, 9)), (true, false));
        assert_eq!((early.poll(), late.poll()), (Poll::Ready(Ok(())), Poll::Pending));
        let probe = worker.index.send().unwrap();
        worker.answer(probe, Ok(at(1, 9)));
        assert_eq!(late.poll(), Poll::Ready(Ok(())), "applied already");
    }

    #[test]
    fn a_probe_gives_way_where_the_last_one_served_many() {
        let worker = Worker::new();
        let mut round = |reads: u64| {
            let reads: Vec<_> = (0..reads).map(|_| worker.arrive()).collect();
            let probe = worker.index.send().unwrap();
            worker.answer(probe, Ok(at(1, 0)));
            assert!(reads.iter().all(|read| read.poll().is_ready()));
            worker.index.gives_way(&mut GivenWay::default())
        };
        assert_eq!(
            [1, MANY - 1, MANY, 3 * MANY, 1].map(&mut round),
            [false, false, true, true, false]
        );
    }

    #[test]
    fn a_probe_gives_way_again_when_more_came_and_not_for_ever() {
        let worker = Worker::new();
        let _served: Vec<_> = (0..MANY).map(|_| worker.arrive()).collect();
        let probe = worker.index.send().unwrap();
        worker.answer(probe, Ok(at(1, 0)));
        let _first = worker.arrive();
        let mut alone = GivenWay::default();
        assert!(worker.index.gives_way(&mut alone));
        assert!(!worker.index.gives_way(&mut alone), "nobody came");
        let mut joined = GivenWay::default();
        let mut reads = Vec::new();
        let turns = (0..10).take_while(|_| {
            reads.push(worker.arrive());
            worker.index.gives_way(&mut joined)
        });
        let turns = turns.count() as u32;
        assert_eq!(turns, TURNS_MAX);
    }

    #[test]
    fn reads_do_not_wait_for_what_later_probes_say() {
        let worker = Worker::new();
        let first = worker.arrive();
        let probe = worker.index.send().unwrap();
        worker.answer(probe, Ok(at(1, 5)));
        let second = worker.arrive();
        assert_eq!(worker.settle(Duration::ZERO), (true, true));
        let probe = worker.index.send().unwrap();
        worker.answer(probe, Ok(at(1, 50)));
        assert_eq!(worker.apply(at(1, 4)), (false, true));
        assert_eq!(first.poll(), Poll::Pending);
        assert_eq!(worker.apply(at(1, 5)), (false, true));
        assert_eq!(
            (first.poll(), second.poll()),
            (Poll::Ready(Ok(())), Poll::Pending)
        );
        assert_eq!(worker.apply(at(1, 50)), (false, false));
        assert_eq!(second.poll(), Poll::Ready(Ok(())));
    }

    #[test]
    fn an_answer_behind_what_was_applied_is_none() {
        let answer = |position| counted(Ok(position), &applied(at(1, 7)));
        assert_eq!(answer(at(1, 7)), Ok(at(1, 7)));
        assert_eq!(answer(at(1, 9)), Ok(at(1, 9)));
        assert_eq!(answer(at(2, 4)), Ok(at(2, 4)), "of another server");
        assert_eq!(
            answer(at(1, 6)).unwrap_err(),
            "the primary's binary log began anew".into()
        );
        let mut nowhere = (*applied(at(1, 7))).clone();
        nowhere.position = None;
        assert_eq!(counted(Ok(at(1, 6)), &nowhere), Ok(at(1, 6)));
        assert!(counted(Err("gone".into()), &nowhere).is_err());
    }

    #[test]
    fn another_source_is_asked_anew() {
        let worker = Worker::new();
        let read = worker.arrive();
        let probe = worker.index.send().unwrap();
        worker.answer(probe, Ok(at(1, 5)));
        assert_eq!(worker.apply(at(2, 900)), (true, false));
        assert_eq!(read.poll(), Poll::Pending);
        let probe = worker.index.send().unwrap();
        worker.answer(probe, Ok(at(1, 950)));
        assert_eq!(worker.settle(Duration::ZERO), (true, false));
        let probe = worker.index.send().unwrap();
        worker.answer(probe, Ok(at(2, 900)));
        assert_eq!(read.poll(), Poll::Ready(Ok(())));
    }

    #[test]
    fn who_waits_in_vain_is_told_why() {
        let reason = |answer: Option<Result<Position, Arc<str>>>| {
            let worker = Worker::new();
            let read = worker.arrive();
            if let Some(answer) = answer {
                let probe = worker.index.send().unwrap();
                worker.answer(probe, answer);
            }
            assert_eq!(read.poll(), Poll::Pending);
            worker.settle(Duration::from_secs(2));
            match read.poll() {
                Poll::Ready(Err(error)) => error.to_string(),
                other => panic!("{other:?}"),
            }
        };
        let begin = "memory was not as new as the read demands within 1000 ms: ";
        assert_eq!(reason(Some(Err("gone".into()))), format!("{begin}gone"));
        assert_eq!(
            reason(Some(Ok(at(1, 7)))),
            format!("{begin}the binary log is applied up to 000001:0, and the primary is at 000001:7")
        );
        assert_eq!(reason(None), format!("{begin}no answer from the primary"));
    }
}
