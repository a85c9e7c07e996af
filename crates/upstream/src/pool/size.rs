//! How many connections to a server are of use: a size that a pool finds by itself.
//!
//! A server that has more statements at a time than it has cores and disks for answers none of them sooner,
//! and statements that wait in our line for one of a few connections go together. So a pool opens connections
//! only while they bring something. Its size counts what is in use for a short time; what a transaction or a
//! long statement holds, and what lies idle for other accounts, comes on top. It grows
//! - at once, twice as much each time, where connections are held and none has come free for a while
//!   ([`Stall`]);
//! - in a trial, while more statements are answered with more connections ([`Climb`]); it shrinks in a trial
//!   where as many are answered with fewer.
//!
//! `max_connections` of the server, and what it says of its own limits, hold all the same.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::backoff::Backoff;
use crate::server::ServerId;

/// The size before anything is known of a server.
const FIRST: u32 = 8;

/// No size is below this.
const LEAST: u32 = 2;

/// That of one server, for all workers and accounts.
#[derive(Debug)]
pub(crate) struct Size {
    /// Connections in use for a short time; 0 where the pool is to have no size of its own.
    bound: AtomicU32,
    /// Connections that come on top as of the last look: held for long, or unused, or without a pool.
    beside: AtomicU32,
    /// Of these, the pools' own.
    pooled: AtomicU32,
    /// Connections that are to be closed as they come back.
    surplus: AtomicU32,
    pub(crate) grown: AtomicU64,
    pub(crate) shrunk: AtomicU64,
}

impl Default for Size {
    fn default() -> Self {
        Self {
            bound: FIRST.into(),
            beside: 0.into(),
            pooled: 0.into(),
            surplus: 0.into(),
            grown: 0.into(),
            shrunk: 0.into(),
        }
    }
}

impl Size {
    /// Whether more connections than these are of no use, as far as is known.
    #[inline]
    pub(crate) fn is_reached(&self, sessions: u32) -> bool {
        let bound = self.bound();
        bound > 0 && sessions >= bound.saturating_add(self.beside.load(Ordering::Relaxed))
    }

    /// Whether one of these that has come back is to be closed. Each yes counts.
    pub(super) fn is_surplus(&self, sessions: u32) -> bool {
        if self.surplus.load(Ordering::Relaxed) == 0 || sessions == 0 || !self.is_reached(sessions - 1) {
            return false;
        }
        let taken = self
            .surplus
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        taken.is_ok()
    }

    /// Connections in use for a short time, at most; 0 for any number.
    pub(crate) fn bound(&self) -> u32 {
        self.bound.load(Ordering::SeqCst)
    }

    /// See [`Server::learned_size`](crate::Server::learned_size).
    pub(crate) fn learned(&self) -> u32 {
        match self.bound() {
            0 => 0,
            bound => bound.saturating_add(self.pooled.load(Ordering::Relaxed)),
        }
    }

    /// See [`Server::begin_with_size`](crate::Server::begin_with_size).
    pub(crate) fn begin_with(&self, learned: u32) {
        let bound = self.bound();
        if bound > 0 && learned > bound {
            self.set(learned);
        }
    }

    /// Sets it, and how many connections may be closed at once to come down to it.
    fn set(&self, bound: u32) {
        let before = self.bound.swap(bound, Ordering::SeqCst);
        if bound > before {
            self.grown.fetch_add((bound - before).into(), Ordering::Relaxed);
        } else {
            self.shrunk.fetch_add((before - bound).into(), Ordering::Relaxed);
        }
        self.surplus
            .store(before.saturating_sub(bound), Ordering::Relaxed);
    }

    /// All connections of the server are held: so many more are of use.
    fn add(&self, more: u32) {
        self.set(self.bound().saturating_add(more));
    }

    /// Fewer and fewer, while nobody needs them. Those that are open too many go one by one.
    pub(super) fn drift(&self, used: u32, waited: bool) {
        let bound = self.bound();
        if !waited && bound > FIRST && used.saturating_mul(2) < bound {
            self.set(bound - 1);
        }
        if bound > 0 && used > self.bound() {
            self.surplus.fetch_max(1, Ordering::Relaxed);
        }
    }

    /// `pooled`: held for long, or unused; `foreign`: without a pool.
    pub(super) fn set_beside(&self, pooled: u32, foreign: u32) {
        self.pooled.store(pooled, Ordering::Relaxed);
        self.beside
            .store(pooled.saturating_add(foreign), Ordering::Relaxed);
    }

    /// Switches it off, or on again from the beginning.
    pub(super) fn switch(&self, is_on: bool) {
        match (is_on, self.bound()) {
            (false, 1..) => self.bound.store(0, Ordering::SeqCst),
            (true, 0) => self.bound.store(FIRST, Ordering::SeqCst),
            _ => {}
        }
    }
}

/// No connection has come free for so long although somebody waits for one: those who have them hold them.
/// Where a line has moved again by itself after such a pause, it takes twice as long a one: a machine on
/// which everything is slow has no use for more connections.
const STALLS_AFTER: Duration = Duration::from_millis(10);

/// But never a longer one than this.
const STALLS_AFTER_MOST: Duration = Duration::from_millis(50);

/// How long such a pause is remembered.
const REMEMBERS: Duration = Duration::from_secs(1);

/// What a stall has brought is being opened for so long before it counts as too little.
const OPENS_WITHIN: Duration = Duration::from_millis(30);

/// A stall so soon after the one before asks for twice as much.
const AGAIN_WITHIN: Duration = Duration::from_millis(100);

/// What is seen of a line that does not move.
#[derive(Debug, Default)]
pub(super) struct Stall {
    /// When the line has moved last, or has begun.
    moved: Option<Instant>,
    /// The last stall, and what it has brought.
    last: Option<(Instant, u32)>,
    /// The longest pause after which the line has moved by itself of late, and when that was.
    longest: Option<(Duration, Instant)>,
}

impl Stall {
    /// Somebody who has waited since `since` has been given a connection that has come free.
    pub(super) fn moved(&mut self, since: Instant, now: Instant) {
        let pause = now.saturating_duration_since(self.still(since));
        let is_longest = |(longest, at): (Duration, Instant)| {
            pause >= longest || now.saturating_duration_since(at) > REMEMBERS
        };
        if self.longest.is_none_or(is_longest) {
            self.longest = Some((pause, now));
        }
        self.moved = Some(now);
    }

    /// Since when nothing has moved, where somebody has waited since `since`.
    fn still(&self, since: Instant) -> Instant {
        self.moved.map_or(since, |moved| moved.max(since))
    }

    /// How long a pause has to be until those who have the connections are taken to hold them.
    fn stalls_after(&self, now: Instant) -> Duration {
        let of_late = self
            .longest
            .filter(|(_, at)| now.saturating_duration_since(*at) <= REMEMBERS);
        of_late.map_or(STALLS_AFTER, |(longest, _)| {
            (longest * 2).clamp(STALLS_AFTER, STALLS_AFTER_MOST)
        })
    }

    /// Looks at a line whose first has waited since `since`, and in which so many wait that have a use for a
    /// new connection. True where the size has grown: then the caller serves the line.
    pub(super) fn look(
        &mut self,
        since: Instant,
        wanted: u32,
        is_opening: bool,
        size: &Size,
        now: Instant,
    ) -> bool {
        let last = self.last.map(|(at, _)| now.saturating_duration_since(at));
        if size.bound() == 0
            || wanted == 0
            || now.saturating_duration_since(self.still(since)) < self.stalls_after(now)
            || last.is_some_and(|ago| ago < STALLS_AFTER || is_opening && ago < OPENS_WITHIN)
        {
            return false;
        }
        let more = match self.last {
            Some((_, more)) if last.is_some_and(|ago| ago < AGAIN_WITHIN) => more.saturating_mul(2),
            _ => 1,
        };
        let more = more.min(wanted);
        self.last = Some((now, more));
        size.add(more);
        true
    }
}

/// Looks that one half of a trial takes.
const LOOKS: u32 = 4;

/// Looks until what a trial has changed is in effect.
const SETTLES: u32 = 1;

/// More connections are kept that bring so much, as a part of what their server answers.
const WORTH: f64 = 0.1;

/// Fewer are kept that cost no more than this.
const COST: f64 = 0.02;

/// Time between two trials after one that has brought nothing.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// Statements a second that differ by more are another load.
const OTHER_LOAD: f64 = 1.5;

/// The same within a trial, which adds half as many connections at most, and so half as many statements.
const OTHER_LOAD_IN_TRIAL: f64 = 2.0;

/// What was seen of one server since the last look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) id: ServerId,
    /// See [`Size::bound`].
    pub(super) bound: u32,
    /// What the operator has set; 0 for no limit.
    pub(super) most: u32,
    /// Connections in use for a short time.
    pub(super) used: u32,
    /// Statements that it has answered since the last look.
    pub(super) done: u64,
    /// Sessions had to wait.
    pub(super) waited: bool,
}

impl Look {
    /// Nobody waits, and most of the connections are in use: fewer may do.
    fn is_well_filled(&self) -> bool {
        self.bound > FIRST && self.used.saturating_mul(2) >= self.bound
    }
}

/// Trials with the size of one server after the other. What counts is how many statements all servers of the
/// cluster answer together: one that is given more connections may only take from the others.
#[derive(Debug, Default)]
pub(super) struct Climb {
    climbers: Vec<Climber>,
    trial: Option<Trial>,
    /// Whose trial was the last.
    turn: usize,
}

#[derive(Debug)]
struct Climber {
    id: ServerId,
    grows: bool,
    /// The trial before this one was in the other direction, and brought nothing.
    failed: bool,
    backoff: Backoff,
    not_before: Instant,
    /// Statements of a look, when it was decided last.
    usual: f64,
}

#[derive(Debug)]
struct Trial {
    id: ServerId,
    from: u32,
    to: u32,
    stage: Stage,
    looks: u32,
    /// Statements in this stage, of all servers.
    done: u64,
    before: u64,
    /// Those of this server before.
    own: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Before,
    Settles,
    After,
}

/// A new size of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) id: ServerId,
    pub(super) bound: u32,
}

impl Change {
    pub(super) fn make(self, size: &Size) {
        size.set(self.bound);
    }
}

impl Climb {
    /// To be called at every look.
    pub(super) fn step(&mut self, now: Instant, looks: &[Look]) -> Option<Change> {
        let done = looks.iter().map(|look| look.done).sum();
        self.climbers
            .retain(|climber| looks.iter().any(|look| look.id == climber.id));
        let Some(mut trial) = self.trial.take() else {
            self.trial = self.next(now, done, looks);
            return None;
        };
        let look = looks.iter().find(|look| look.id == trial.id)?;
        let expected = if trial.stage == Stage::Before {
            trial.from
        } else {
            trial.to
        };
        // Nobody waits: the size is of no effect. Or something else has changed it.
        if look.bound != expected || trial.stage == Stage::Before && trial.to > trial.from && !look.waited {
            return None;
        }
        trial.looks += 1;
        trial.done += done;
        if trial.stage == Stage::Before {
            trial.own += look.done;
        }
        match trial.stage {
            Stage::Before if trial.looks == LOOKS => {
                trial.before = trial.done;
                let change = Change {
                    id: trial.id,
                    bound: trial.to,
                };
                self.trial = Some(trial.next(Stage::Settles));
                Some(change)
            }
            Stage::Settles if trial.looks == SETTLES => {
                self.trial = Some(trial.next(Stage::After));
                None
            }
            Stage::After if trial.looks == LOOKS => self.decide(&trial, now),
            _ => {
                self.trial = Some(trial);
                None
            }
        }
    }

    /// The next trial, if one is due.
    fn next(&mut self, now: Instant, done: u64, looks: &[Look]) -> Option<Trial> {
        for offset in 1..=looks.len() {
            let at = (self.turn + offset) % looks.len();
            let look = looks.get(at)?;
            if look.bound == 0 || !look.waited && !look.is_well_filled() {
                continue;
            }
            let climber = match self.climbers.iter().position(|climber| climber.id == look.id) {
                Some(at) => &mut self.climbers[at],
                None => self.climbers.push_mut(Climber::new(look.id, now)),
            };
            if climber.is_another_load(done) {
                (climber.backoff, climber.not_before) = (BACKOFF, now);
                climber.usual = 0.0;
            }
            if now < climber.not_before {
                continue;
            }
            let most = if look.most == 0 { u32::MAX } else { look.most };
            climber.grows = match look.bound {
                bound if bound >= most => false,
                _ if !look.waited => false,
                ..=LEAST => true,
                _ => climber.grows,
            };
            let to = match climber.grows {
                true => (look.bound + (look.bound / 2).max(1)).min(most),
                false => (look.bound - (look.bound / 3).max(1)).max(LEAST).min(most),
            };
            if to == look.bound {
                continue;
            }
            self.turn = at;
            return Some(Trial {
                id: look.id,
                from: look.bound,
                to,
                stage: Stage::Before,
                looks: 0,
                done: 0,
                before: 0,
                own: 0,
            });
        }
        None
    }

    fn decide(&mut self, trial: &Trial, now: Instant) -> Option<Change> {
        let climber = self.climbers.iter_mut().find(|climber| climber.id == trial.id)?;
        let (before, after, own) = (trial.before as f64, trial.done as f64, trial.own as f64);
        if differ(before, after, OTHER_LOAD_IN_TRIAL) {
            // Clients came or went meanwhile, which says nothing of the size.
            climber.not_before = now;
            return Some(Change {
                id: trial.id,
                bound: trial.from,
            });
        }
        let wanted = before + if trial.to > trial.from { WORTH } else { -COST } * own;
        if after >= wanted {
            climber.usual = after / f64::from(LOOKS);
            (climber.backoff, climber.failed, climber.not_before) = (BACKOFF, false, now);
            return None;
        }
        climber.usual = before / f64::from(LOOKS);
        climber.not_before = now;
        if climber.failed {
            climber.not_before += climber.backoff.pause();
        }
        climber.failed = true;
        climber.grows = !climber.grows;
        Some(Change {
            id: trial.id,
            bound: trial.from,
        })
    }
}

impl Climber {
    const fn new(id: ServerId, now: Instant) -> Self {
        Self {
            id,
            grows: true,
            failed: false,
            backoff: BACKOFF,
            not_before: now,
            usual: 0.0,
        }
    }

    fn is_another_load(&self, done: u64) -> bool {
        self.usual > 0.0 && differ(self.usual, done as f64, OTHER_LOAD)
    }
}

/// By more than this factor.
fn differ(before: f64, after: f64, factor: f64) -> bool {
    after > before * factor || after < before / factor
}

impl Trial {
    fn next(self, stage: Stage) -> Self {
        Self {
            stage,
            looks: 0,
            done: 0,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = Duration::from_millis(100);

    /// A server that answers `rate` statements of a look on each connection, and `most` of them at the most;
    /// beyond `knee` connections each one costs a hundredth of that.
    struct Model {
        rate: f64,
        most: f64,
        knee: u32,
        clients: u32,
    }

    impl Model {
        fn done(&self, connections: u32) -> f64 {
            let connections = connections.min(self.clients);
            let too_many = f64::from(connections.saturating_sub(self.knee));
            (self.rate * f64::from(connections)).min(self.most) / (1.0 + too_many / 100.0)
        }
    }

    /// Runs so many looks at servers of their own and gives the sizes, and how much they have changed in the
    /// last half.
    fn run(models: &[Model], looks: u32) -> (Vec<u32>, u32) {
        let start = Instant::now();
        let (mut climb, mut changed) = (Climb::default(), 0);
        let mut sizes = vec![FIRST; models.len()];
        for number in 0..looks {
            let seen: Vec<Look> = (0..)
                .zip(models.iter().zip(&sizes))
                .map(|(id, (model, &bound))| Look {
                    id: ServerId(id),
                    bound,
                    most: 0,
                    used: bound.min(model.clients),
                    done: model.done(bound) as u64,
                    waited: model.clients > bound,
                })
                .collect();
            let change = climb.step(start + number * LOOK, &seen);
            if let Some(Change { id, bound }) = change {
                let size = &mut sizes[id.0 as usize];
                if number > looks / 2 {
                    changed += size.abs_diff(bound);
                }
                *size = bound;
            }
        }
        (sizes, changed)
    }

    #[test]
    fn a_size_is_found_that_answers_nearly_as_many_as_the_best_one() {
        for clients in [16, 64, 200, 500] {
            for knee in [2, 8, 20, 60, 150] {
                let model = Model {
                    rate: 100.0,
                    most: 100.0 * f64::from(knee),
                    knee,
                    clients,
                };
                let best = model.done(knee.min(clients));
                let models = [model];
                let (sizes, changed) = run(&models, 1200);
                let found = models[0].done(sizes[0]);
                assert!(found >= 0.9 * best, "{clients} clients, knee {knee}: {sizes:?}");
                // A minute: trials that bring nothing become rare.
                assert!(changed <= 4 * sizes[0].max(8), "{clients}, {knee}: {changed}");
            }
        }
    }

    #[test]
    fn a_load_that_begins_or_ends_during_a_trial_changes_no_size() {
        let start = Instant::now();
        for (before, after) in [(0, 1000), (400, 1000), (1000, 0), (1000, 400)] {
            let (mut climb, mut bound) = (Climb::default(), FIRST);
            // The look that begins the trial, the first half, the one that settles, the second half.
            for number in 0..(1 + LOOKS + SETTLES + LOOKS) {
                let look = Look {
                    id: ServerId(1),
                    bound,
                    most: 0,
                    used: bound,
                    done: if number <= LOOKS { before } else { after },
                    waited: true,
                };
                let change = climb.step(start + number * LOOK, &[look]);
                bound = change.map_or(bound, |change| change.bound);
                assert_eq!(
                    bound > FIRST,
                    (LOOKS..2 * LOOKS + SETTLES).contains(&number),
                    "{number}"
                );
            }
        }
    }

    #[test]
    fn servers_find_theirs_one_after_the_other() {
        let model = |knee| Model {
            rate: 50.0,
            most: 50.0 * f64::from(knee),
            knee,
            clients: 100,
        };
        let models = [model(4), model(40), model(12)];
        let (sizes, _) = run(&models, 1200);
        for (model, size) in models.iter().zip(&sizes) {
            assert!(model.done(*size) >= 0.85 * model.done(model.knee), "{sizes:?}");
        }
    }

    #[test]
    fn connections_that_are_held_are_added_faster_and_faster() {
        let (size, mut stall, start) = (Size::default(), Stall::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let mut bounds = Vec::new();
        for ms in (0..80).step_by(5) {
            stall.look(start, 100, false, &size, at(ms));
            bounds.push(size.bound());
        }
        assert_eq!(bounds[..5], [8, 8, 9, 9, 11]);
        assert!(bounds[15] >= 8 + 100, "{bounds:?}");
        // While connections come free it is no stall, however long the line is.
        let before = size.bound();
        for ms in (100..500).step_by(5) {
            stall.moved(start, at(ms));
            assert!(!stall.look(start, 100, false, &size, at(ms + 4)));
        }
        assert_eq!(size.bound(), before);
        // What was granted is still being opened.
        assert!(stall.look(start, 1, true, &size, at(600)));
        assert!(!stall.look(start, 1, true, &size, at(620)) && stall.look(start, 1, true, &size, at(630)));
    }

    #[test]
    fn where_all_is_slow_a_pause_is_no_stall() {
        let (size, mut stall, start) = (Size::default(), Stall::default(), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        // Connections come free together, every 15 ms, as where the processor has other things to do.
        assert!(
            stall.look(start, 100, false, &size, at(12)),
            "nothing is known yet"
        );
        for ms in (15..3000).step_by(15) {
            (0..8).for_each(|_| stall.moved(start, at(ms)));
            assert!(!stall.look(start, 100, false, &size, at(ms + 14)), "{ms}");
        }
        assert_eq!(size.bound(), FIRST + 1);
        // Now they are held.
        let held = (2985..4985).find(|ms| stall.look(start, 100, false, &size, at(*ms)));
        assert_eq!(held, Some(2985 + 30));
    }

    #[test]
    fn what_nobody_needs_goes_in_small_steps() {
        let size = Size::default();
        size.set(40);
        assert!(!size.is_surplus(41), "it has grown");
        size.set(30);
        let closed = (31..=40)
            .rev()
            .filter(|sessions| size.is_surplus(*sessions))
            .count();
        assert_eq!((closed, size.is_surplus(31)), (10, false));
        for _ in 0..100 {
            size.drift(3, false);
        }
        assert_eq!(size.bound(), FIRST);
        size.drift(12, true);
        assert!(size.is_surplus(12) && !size.is_surplus(12), "one for each look");
        size.switch(false);
        assert!(!size.is_reached(u32::MAX) && size.bound() == 0);
    }
}
