//! A model of a cluster whose servers come and go, and of sessions that arrive, leave and move as they are
//! told: whatever happens, the promises of the module hold.

use std::collections::BTreeMap;

use inputs::Random;

use super::*;
use crate::{Choice, WARM, choose_server};

const STEP: Duration = Duration::from_secs(1);

fn policy(policy: RebalancePolicy) -> Policy {
    Policy {
        policy,
        within: Duration::from_secs(120),
        balance: Balance::LeastConnections,
    }
}

pub(super) fn figures(id: u32, sessions: u32) -> Figures {
    Figures {
        id,
        candidate: Candidate {
            weight: 1,
            backup: false,
            available: true,
            sessions,
            max_connections: 0,
            warmth_permille: WARM,
        },
        is_near: false,
        attempts: Attempts::default(),
        cpu: None,
        memory: None,
    }
}

/// Looks once a second, and has done at once what is asked for, until nothing has moved for a while. Returns
/// when the last one has moved.
fn until_quiet(rebalancer: &mut Rebalancer, policy: &Policy, servers: &mut [Figures]) -> Duration {
    let mut last = Duration::ZERO;
    let mut now = Duration::ZERO;
    while now < last + Duration::from_secs(300) {
        for of in rebalancer.look(now, policy, servers, &[], now.as_secs()) {
            last = now;
            server(servers, of.from).candidate.sessions -= of.sessions;
            server(servers, of.to).candidate.sessions += of.sessions;
        }
        now += STEP;
    }
    last
}

fn server(servers: &mut [Figures], id: u32) -> &mut Figures {
    servers.iter_mut().find(|server| server.id == id).unwrap()
}

fn sessions(servers: &[Figures]) -> Vec<u32> {
    servers.iter().map(|server| server.candidate.sessions).collect()
}

#[test]
fn a_server_that_is_back_gets_its_share_within_the_time() {
    let by_connections = policy(RebalancePolicy::Connections);
    for (had, weights, has) in [
        (vec![600, 0], [1, 1], vec![300, 300]),
        (vec![600, 0], [2, 1], vec![400, 200]),
        (vec![5, 0], [1, 1], vec![3, 2]),
    ] {
        let mut servers: Vec<_> = (0..).zip(had).map(|(id, had)| figures(id, had)).collect();
        for (server, weight) in servers.iter_mut().zip(weights) {
            server.candidate.weight = weight;
        }
        let last = until_quiet(&mut Rebalancer::default(), &by_connections, &mut servers);
        assert_eq!(sessions(&servers), has);
        assert!(last <= Duration::from_secs(130), "{last:?}");
        assert!(last >= Duration::from_secs(40), "not in a heap: {last:?}");
    }
}

#[test]
fn what_says_nothing_moves_nobody() {
    let by_connections = policy(RebalancePolicy::Connections);
    for had in [vec![4, 0], vec![11, 9], vec![110, 100], vec![2, 2, 1]] {
        let mut servers: Vec<_> = (0..).zip(&had).map(|(id, had)| figures(id, *had)).collect();
        until_quiet(&mut Rebalancer::default(), &by_connections, &mut servers);
        assert_eq!(sessions(&servers), had);
    }
    let mut servers = vec![figures(0, 100), figures(1, 0)];
    until_quiet(
        &mut Rebalancer::default(),
        &policy(RebalancePolicy::Off),
        &mut servers,
    );
    assert_eq!(sessions(&servers), [100, 0]);
}

#[test]
fn a_rush_is_left_to_itself() {
    let by_connections = policy(RebalancePolicy::Connections);
    let mut rebalancer = Rebalancer::default();
    for second in 0..60 {
        let there = [100, 10][usize::from(second % 4 == 3)];
        let servers = [figures(0, there), figures(1, 10)];
        let moves = rebalancer.look(STEP * second, &by_connections, &servers, &[], 0);
        assert_eq!(moves, [], "at {second}");
    }
}

#[test]
fn a_backup_gives_back_what_it_has() {
    let mut servers = vec![figures(0, 0), figures(1, 0), figures(2, 3)];
    servers[2].candidate.backup = true;
    until_quiet(
        &mut Rebalancer::default(),
        &policy(RebalancePolicy::Connections),
        &mut servers,
    );
    assert_eq!(servers[2].candidate.sessions, 0);
}

#[test]
fn servers_whose_sessions_are_held_keep_nobody_else_from_moving() {
    let by_connections = policy(RebalancePolicy::Connections);
    let mut rebalancer = Rebalancer::default();
    // Nobody can leave the first one.
    let mut servers = vec![figures(0, 100), figures(1, 80), figures(2, 0)];
    let mut untaken = Vec::new();
    let mut phases = Vec::new();
    for second in 0..400 {
        let moves = rebalancer.look(STEP * second, &by_connections, &servers, &untaken, 0);
        phases.push(rebalancer.phase());
        let (held, moved): (Vec<_>, Vec<_>) = moves.into_iter().partition(|of| of.from == 0);
        untaken = held;
        for of in moved {
            server(&mut servers, of.from).candidate.sessions -= of.sessions;
            server(&mut servers, of.to).candidate.sessions += of.sessions;
        }
    }
    assert_eq!(sessions(&servers), [100, 40, 40]);
    assert!(phases.contains(&Phase::Stuck) && phases.contains(&Phase::Uneven));
}

#[test]
fn sessions_come_to_the_own_zone_while_it_has_room() {
    let mut servers = vec![figures(0, 0), figures(1, 0), figures(2, 200), figures(3, 50)];
    for near in &mut servers[..2] {
        near.is_near = true;
        near.candidate.max_connections = 100;
    }
    let by_location = policy(RebalancePolicy::Location);
    let last = until_quiet(&mut Rebalancer::default(), &by_location, &mut servers);
    assert_eq!(sessions(&servers)[..2], [90, 90]);
    assert!(last >= Duration::from_secs(179), "one a second: {last:?}");
    // Where none of it is up the others even out among themselves.
    servers[..2]
        .iter_mut()
        .for_each(|near| near.candidate.available = false);
    servers[2].candidate.sessions = 200;
    servers[3].candidate.sessions = 50;
    until_quiet(&mut Rebalancer::default(), &by_location, &mut servers);
    assert_eq!(sessions(&servers)[2..], [125, 125]);
}

/// A session of the model.
#[derive(Clone, Copy)]
struct Session {
    server: u32,
    moved: Option<Duration>,
    /// Something holds it on its server.
    held: bool,
}

/// A server of the model.
struct ModelServer {
    id: u32,
    weight: u32,
    max: u32,
    up: bool,
    drains: bool,
    /// Since when, and for how long.
    warms: Option<(Duration, Duration)>,
}

struct Model {
    random: Random,
    now: Duration,
    servers: Vec<ModelServer>,
    sessions: Vec<Session>,
    untaken: Vec<Move>,
    rebalancer: Rebalancer,
    policy: Policy,
    /// Figures may be wrong by so many percent.
    noise: u64,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let balances = [Balance::LeastConnections, Balance::RandomTwo];
        let policies = [RebalancePolicy::Connections, RebalancePolicy::Location];
        let servers = (0..random.between(2, 6) as u32).map(|id| ModelServer {
            id,
            weight: 1,
            max: 0,
            up: true,
            drains: false,
            warms: None,
        });
        let mut servers: Vec<_> = servers.collect();
        for server in &mut servers {
            server.weight = random.between(1, 3) as u32;
            server.max = [0, 0, 60][random.below(3_usize)];
        }
        Self {
            policy: Policy {
                policy: random.pick(&policies),
                within: Duration::from_secs(random.between(10, 240) as u64),
                balance: random.pick(&balances),
            },
            noise: [0, 10][random.below(2_usize)],
            random,
            now: Duration::ZERO,
            servers,
            sessions: Vec::new(),
            untaken: Vec::new(),
            rebalancer: Rebalancer::default(),
        }
    }

    fn counts(&self) -> BTreeMap<u32, u32> {
        let mut counts: BTreeMap<_, _> = self.servers.iter().map(|server| (server.id, 0)).collect();
        for session in &self.sessions {
            *counts.entry(session.server).or_default() += 1;
        }
        counts
    }

    /// The figures as they are.
    fn figures(&self) -> Vec<Figures> {
        let counts = self.counts();
        let of = |server: &ModelServer| Figures {
            id: server.id,
            candidate: Candidate {
                weight: server.weight,
                backup: false,
                available: server.up && !server.drains,
                sessions: counts[&server.id],
                max_connections: server.max,
                warmth_permille: server.warms.map_or(WARM, |(since, slow_start)| {
                    crate::warmth_permille(self.now - since, slow_start)
                }),
            },
            is_near: server.id < 2,
            attempts: Attempts::default(),
            cpu: None,
            memory: None,
        };
        self.servers.iter().map(of).collect()
    }

    /// A session comes, and is sent where new sessions are.
    fn arrive(&mut self) {
        let candidates: Vec<_> = self.figures().iter().map(|server| server.candidate).collect();
        let draw = Draw {
            turn: 0,
            seed: self.random.number(),
        };
        if let Choice::Server(at) = choose_server(self.policy.balance, &candidates, draw) {
            self.sessions.push(Session {
                server: self.servers[at].id,
                moved: None,
                held: self.random.chance(5),
            });
        }
    }

    fn leave(&mut self) {
        if !self.sessions.is_empty() {
            let at = self.random.below(self.sessions.len());
            self.sessions.swap_remove(at);
        }
    }

    /// A server goes down or drains, and its sessions with it; or it comes back.
    fn something_happens(&mut self) {
        let at = self.random.below(self.servers.len());
        let others = self.servers.iter().enumerate();
        let mut others = others.filter(|(other, server)| *other != at && server.up && !server.drains);
        if others.next().is_none() {
            return;
        }
        let id = self.servers[at].id;
        let here = |session: &&mut Session| session.server == id;
        match self.random.below(3) {
            0 if self.servers[at].up => {
                self.servers[at].up = false;
                self.sessions.retain(|session| session.server != id);
            }
            1 if self.servers[at].up && !self.servers[at].drains => {
                self.servers[at].drains = true;
                let figures = self.figures();
                let to = figures
                    .iter()
                    .find(|server| server.candidate.available)
                    .unwrap()
                    .id;
                // They leave for a reason of their own.
                self.sessions
                    .iter_mut()
                    .filter(here)
                    .for_each(|session| session.server = to);
            }
            _ if !self.servers[at].up => {
                self.servers[at].up = true;
                let slow_start = Duration::from_secs(self.random.pick(&[1, 30, 300]));
                self.servers[at].warms = Some((self.now, slow_start));
            }
            _ => self.servers[at].drains = false,
        }
    }

    /// Looks, and has sessions do what is asked for, as far as they can. Returns how many have moved.
    fn look(&mut self) -> u32 {
        let true_figures = self.figures();
        let mut seen = true_figures.clone();
        for server in &mut seen {
            let of_noise = u64::from(server.candidate.sessions) * self.noise / 100;
            let wrong = self.random.below(2 * of_noise + 1);
            let count = u64::from(server.candidate.sessions) + wrong - of_noise;
            // Whether it is full is known for certain.
            if !server.candidate.is_full() {
                let below = server.candidate.max_connections.wrapping_sub(1);
                server.candidate.sessions = below.min(count as u32);
            }
        }
        let seed = self.random.number();
        let moves = self
            .rebalancer
            .look(self.now, &self.policy, &seen, &self.untaken, seed);
        let mut moved = 0;
        self.untaken.clear();
        let mut givers: Vec<_> = moves.iter().map(|of| of.from).collect();
        givers.dedup();
        assert_eq!(givers.len(), moves.len(), "one way for each server: {moves:?}");
        for of in &moves {
            self.check(of, &seen, &moves);
            let to = self.servers.iter().find(|server| server.id == of.to).unwrap();
            let room = match to.max {
                0 => u32::MAX,
                max => max.saturating_sub(self.counts()[&of.to]),
            };
            let (now, mut left) = (self.now, of.sessions.min(room));
            let kept = of.sessions - left;
            for session in &mut self.sessions {
                let rests = session.moved.is_some_and(|moved| now - moved < SESSION_RESTS);
                if left == 0 || session.server != of.from || session.held || rests {
                    continue;
                }
                session.server = of.to;
                session.moved = Some(now);
                (left, moved) = (left - 1, moved + 1);
            }
            let sessions = left + kept;
            if sessions > 0 {
                self.untaken.push(Move { sessions, ..*of });
            }
        }
        moved
    }

    fn check(&self, of: &Move, seen: &[Figures], moves: &[Move]) {
        let find = |id| seen.iter().find(|server| server.id == id).unwrap();
        let (from, to) = (find(of.from), find(of.to));
        assert!(from.candidate.available && to.candidate.available, "{of:?}");
        assert!(of.sessions <= from.candidate.sessions, "{of:?} {from:?}");
        let coming: u32 = moves
            .iter()
            .filter(|other| other.to == of.to)
            .map(|of| of.sessions)
            .sum();
        let there = to.candidate.sessions + coming;
        assert!(to.candidate.max_connections == 0 || there <= to.candidate.max_connections);
        if to.candidate.warmth_permille < WARM {
            let taking = seen.iter().filter(|server| server.candidate.available);
            let of_zone = taking.clone().filter(|server| server.is_near == to.is_near);
            let all: u64 = taking.map(|server| u64::from(server.candidate.sessions)).sum();
            let weight: u64 = of_zone.map(|server| server.candidate.effective_weight()).sum();
            let share = (all * to.candidate.effective_weight()).div_ceil(weight);
            assert!(
                u64::from(there) <= share,
                "{to:?} has {there} of {all}, {share} are its share"
            );
        }
    }

    /// Whether no server that may take one has fewer sessions for its weight than another whose sessions can
    /// move.
    fn is_balanced(&self) -> bool {
        let figures = self.figures();
        let near_takes = self.policy.policy == RebalancePolicy::Location
            && figures
                .iter()
                .any(|server| server.is_near && server.candidate.available);
        let taking = || {
            let available = figures.iter().filter(|server| server.candidate.available);
            available.filter(move |server| server.is_near || !near_takes)
        };
        let ratio = |server: &Figures, more: u32| {
            f64::from(server.candidate.sessions + more) / f64::from(server.candidate.weight)
        };
        let can_leave = |server: &Figures| {
            let here = self.sessions.iter().filter(|session| session.server == server.id);
            let mut free = here.filter(|session| !session.held);
            free.any(|session| {
                session
                    .moved
                    .is_none_or(|moved| self.now - moved >= SESSION_RESTS)
            })
        };
        // Figures that are wrong by a tenth on both sides may hide as much.
        let hidden = 1.2 * (1.0 + self.noise as f64 / 100.0) / (1.0 - self.noise as f64 / 100.0);
        taking().all(|from| {
            let is_below = |to: &Figures| !to.candidate.is_full() && ratio(from, 0) > hidden * ratio(to, 1);
            !taking().any(is_below) || !can_leave(from) || self.sessions.len() < 8
        })
    }
}

#[test]
fn whatever_happens_it_ends_even_and_nobody_goes_to_and_fro() {
    for seed in inputs::seeds(12) {
        let mut model = Model::new(seed);
        for _ in 0..model.random.between(0, 300) {
            model.arrive();
        }
        for _ in 0..4 {
            for _ in 0..model.random.between(50, 400) {
                model.now += STEP;
                (0..model.random.below(4)).for_each(|_| model.arrive());
                (0..model.random.below(4)).for_each(|_| model.leave());
                if model.random.one_in(60) {
                    model.something_happens();
                }
                model.look();
            }
            // Nothing happens any more, and nobody comes or goes: it comes to an end, and that is even.
            let was = model.counts().values().max().copied().unwrap_or(0);
            let mut moved = 0;
            let hour = SESSION_RESTS.as_secs();
            for _ in 0..hour + 1500 {
                model.now += STEP;
                moved += model.look();
            }
            let near_and_far = model.sessions.len() as u32;
            assert!(
                moved <= near_and_far,
                "{moved} of {near_and_far} sessions, {was} on one server"
            );
            assert!(
                model.is_balanced(),
                "{:?} {:?}",
                model.figures(),
                model.rebalancer
            );
            let later: u32 = (0..600)
                .map(|_| {
                    model.now += STEP;
                    model.look()
                })
                .sum();
            let stays = match model.noise {
                0 => later == 0,
                _ => later <= 2 + model.sessions.len() as u32 / 20,
            };
            assert!(
                stays,
                "{later} of {} sessions move although nothing happens: {:?} {} {:?}",
                model.sessions.len(),
                model.policy,
                model.noise,
                model.figures()
            );
            // All of them may move again by now.
            assert!(
                model
                    .sessions
                    .iter()
                    .all(|session| session.moved.is_none_or(|moved| model.now - moved > STEP * 600))
            );
        }
    }
}

#[test]
fn sessions_of_another_zone_that_are_held_keep_nobody_else_there() {
    let by_location = policy(RebalancePolicy::Location);
    let mut rebalancer = Rebalancer::default();
    let mut servers = vec![figures(0, 10), figures(1, 40), figures(2, 20)];
    servers[0].is_near = true;
    let mut untaken = Vec::new();
    let mut phases = Vec::new();
    for second in 0..120 {
        let moves = rebalancer.look(STEP * second, &by_location, &servers, &untaken, 0);
        phases.push(rebalancer.phase());
        // Nobody can leave the one with the most.
        let (held, moved): (Vec<_>, Vec<_>) = moves.into_iter().partition(|of| of.from == 1);
        untaken = held;
        for of in moved {
            server(&mut servers, of.from).candidate.sessions -= of.sessions;
            server(&mut servers, of.to).candidate.sessions += of.sessions;
        }
    }
    assert_eq!(sessions(&servers), [30, 40, 0]);
    assert_eq!((phases[0], phases[119]), (Phase::Moving, Phase::Even));
}
