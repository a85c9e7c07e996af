//! A model of servers whose sessions cost them different amounts of CPU, with figures that are wrong, late or
//! missing; and what each factor of a server's own state does alone.

use std::collections::BTreeMap;

use inputs::Random;

use super::tests::figures;
use super::*;

fn policy() -> Policy {
    Policy {
        policy: RebalancePolicy::Resource,
        within: Duration::from_secs(120),
        balance: Balance::LeastConnections,
    }
}

/// Does at once what is asked for, and counts it by factor.
fn step(
    rebalancer: &mut Rebalancer,
    second: u64,
    servers: &mut [Figures],
    moved: &mut BTreeMap<&'static str, u32>,
) -> Vec<Move> {
    let now = Duration::from_secs(second);
    let moves = rebalancer.look(now, &policy(), servers, &[], second);
    for of in &moves {
        for server in &mut *servers {
            if server.id == of.from {
                server.candidate.sessions -= of.sessions;
            } else if server.id == of.to {
                server.candidate.sessions += of.sessions;
            }
        }
        *moved.entry(of.factor.label()).or_default() += of.sessions;
    }
    moves
}

fn at(second: u64, permille: u32) -> Option<Sample> {
    Some(Sample {
        permille,
        at: Duration::from_secs(second),
    })
}

#[test]
fn a_server_whose_connections_fail_is_left_within_a_minute() {
    let mut servers = [figures(0, 100), figures(1, 100), figures(2, 100)];
    let (mut rebalancer, mut moved) = (Rebalancer::default(), BTreeMap::new());
    let mut left = None;
    for second in 0..200 {
        for server in &mut servers {
            server.attempts.made += 2;
            // Two of three, and of the others one of twenty.
            let fails = (server.id == 0 && second % 3 > 0) || second % 20 == 0;
            server.attempts.failed += 2 * u64::from(fails);
        }
        step(&mut rebalancer, second, &mut servers, &mut moved);
        if servers[0].candidate.sessions == 0 {
            left.get_or_insert(second);
        }
    }
    let left = left.unwrap();
    assert!((40..100).contains(&left), "{left}");
    assert_eq!(moved.keys().copied().collect::<Vec<_>>(), ["health"]);
}

/// A connection that fails has its server suspected: it takes no sessions until its next check, and nobody
/// tries it.
#[test]
fn a_server_that_is_suspected_again_and_again_is_left_as_well() {
    let mut servers = [figures(0, 100), figures(1, 100), figures(2, 100)];
    let (mut rebalancer, mut moved) = (Rebalancer::default(), BTreeMap::new());
    let mut left = None;
    for second in 0..300 {
        for server in &mut servers {
            let fails = server.id == 0 && second % 4 > 0;
            server.candidate.available = !fails || second % 4 != 2;
            if server.candidate.available {
                server.attempts.made += 2;
                server.attempts.failed += 2 * u64::from(fails);
            }
        }
        step(&mut rebalancer, second, &mut servers, &mut moved);
        if servers[0].candidate.sessions == 0 {
            left.get_or_insert(second);
        }
    }
    let left = left.expect("it is left");
    assert!((40..120).contains(&left), "{left}");
    assert_eq!(moved.keys().copied().collect::<Vec<_>>(), ["health"]);
}

/// Few try a server that was left, and each of them fails.
#[test]
fn and_is_left_alone_until_somebody_succeeds() {
    let mut servers = [figures(0, 100), figures(1, 100), figures(2, 100)];
    let (mut rebalancer, mut moved) = (Rebalancer::default(), BTreeMap::new());
    for second in 0..600 {
        for server in &mut servers {
            server.attempts.made += if second < 100 { 2 } else { second % 10 / 9 };
            if server.id == 0 {
                server.attempts.failed = server.attempts.made;
            }
        }
        step(&mut rebalancer, second, &mut servers, &mut moved);
    }
    assert_eq!(servers[0].candidate.sessions, 0);
    assert_eq!(moved.keys().copied().collect::<Vec<_>>(), ["health"]);
    for second in 600..900 {
        servers.iter_mut().for_each(|server| server.attempts.made += 1);
        step(&mut rebalancer, second, &mut servers, &mut moved);
    }
    assert!(
        servers[0].candidate.sessions > 90,
        "it gets its share again: {servers:?}"
    );
}

#[test]
fn where_most_fail_it_is_the_gateways_network() {
    for failing in [2, 3] {
        let mut servers = [figures(0, 100), figures(1, 100), figures(2, 100)];
        let (mut rebalancer, mut moved) = (Rebalancer::default(), BTreeMap::new());
        for second in 0..200 {
            for server in &mut servers {
                server.attempts.made += 2;
                server.attempts.failed += 2 * u64::from(server.id < failing);
            }
            step(&mut rebalancer, second, &mut servers, &mut moved);
        }
        assert_eq!(moved, BTreeMap::new());
    }
}

#[test]
fn a_server_is_left_before_its_memory_is_full() {
    // Used at the beginning, more in a second, and the time in which all leave.
    for (used, more, within) in [
        (800, 0, 5..20),
        (650, 0, 50..70),
        (200, 5, 60..160),
        (500, 0, 0..0),
    ] {
        let mut servers = [figures(0, 60), figures(1, 60), figures(2, 60)];
        let (mut rebalancer, mut moved) = (Rebalancer::default(), BTreeMap::new());
        let mut left = None;
        for second in 0..160_u64 {
            for server in &mut servers {
                let full = used + more * second as u32;
                server.memory = at(second / 5 * 5, if server.id == 0 { full } else { 300 });
            }
            step(&mut rebalancer, second, &mut servers, &mut moved);
            if servers[0].candidate.sessions == 0 {
                left.get_or_insert(second);
            }
        }
        match left {
            Some(left) => assert!(within.contains(&left), "{used} {more}: {left}"),
            None => assert!(within.is_empty(), "{used} {more}: {servers:?}"),
        }
    }
}

#[test]
fn figures_that_are_missing_are_neither_nothing_nor_all() {
    // One server says nothing of itself, or two of three.
    for missing in [1, 2] {
        let mut servers = [figures(0, 50), figures(1, 50), figures(2, 50)];
        let (mut rebalancer, mut moved) = (Rebalancer::default(), BTreeMap::new());
        for second in 0..600_u64 {
            for server in &mut servers[missing..] {
                let used = if server.id == 2 { 900 } else { 100 };
                (server.cpu, server.memory) = (at(second / 5 * 5, used), at(second / 5 * 5, 400));
            }
            let moves = step(&mut rebalancer, second, &mut servers, &mut moved);
            let mut by_cpu = moves.iter().filter(|of| of.factor == Factor::Cpu);
            assert!(by_cpu.all(|of| (of.from, of.to) == (2, 1)), "{moves:?}");
        }
        match missing {
            1 => assert!(moved["cpu"] > 10, "{moved:?} {servers:?}"),
            _ => assert_eq!(moved, BTreeMap::new()),
        }
    }
}

/// Sessions that each cost a server something.
struct Model {
    random: Random,
    /// Thousandths of a server's CPU, the server, and when it has moved.
    sessions: Vec<(u32, u32, Option<Duration>)>,
    servers: u32,
    rebalancer: Rebalancer,
    noise: u32,
    /// No figures come until then.
    silent_until: u64,
    /// The figures that were heard last.
    heard: BTreeMap<u32, Sample>,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let servers = random.between(2, 5) as u32;
        let mut sessions = Vec::new();
        for _ in 0..random.between(20, 200) {
            // Most of them go to one server, and few are heavy.
            let cost = match random.below(12_usize) {
                0 => random.between(5, 60) as u32,
                _ => random.between(0, 4) as u32,
            };
            let server = [0, random.below(servers as usize) as u32][random.below(2_usize)];
            sessions.push((cost, server, None));
        }
        Self {
            noise: [0, 10][random.below(2_usize)],
            random,
            sessions,
            servers,
            rebalancer: Rebalancer::default(),
            silent_until: 0,
            heard: BTreeMap::new(),
        }
    }

    fn cpu(&self, id: u32) -> u32 {
        let here = self.sessions.iter().filter(|(_, server, _)| *server == id);
        here.map(|(cost, ..)| cost).sum::<u32>().min(1000)
    }

    fn look(&mut self, second: u64) -> u32 {
        let now = Duration::from_secs(second);
        if second.is_multiple_of(5) && second >= self.silent_until {
            for id in 0..self.servers {
                let of_noise = self.cpu(id) * self.noise / 100;
                let wrong = self.random.below(2 * u64::from(of_noise) + 1) as u32;
                let permille = self.cpu(id) + wrong - of_noise;
                self.heard.insert(id, Sample { permille, at: now });
            }
        }
        let fresh = Duration::from_secs(16);
        let servers: Vec<_> = (0..self.servers)
            .map(|id| {
                let here = self.sessions.iter().filter(|(_, server, _)| *server == id);
                Figures {
                    cpu: self
                        .heard
                        .get(&id)
                        .copied()
                        .filter(|sample| now - sample.at < fresh),
                    ..figures(id, here.count() as u32)
                }
            })
            .collect();
        let mut moved = 0;
        for of in self.rebalancer.look(now, &policy(), &servers, &[], second) {
            let mut left = of.sessions;
            let start = self.random.below(self.sessions.len());
            let count = self.sessions.len();
            for at in (start..count).chain(0..start) {
                let (_, server, last) = &mut self.sessions[at];
                let rests = last.is_some_and(|last| now - last < SESSION_RESTS);
                if left > 0 && *server == of.from && !rests {
                    (*server, *last) = (of.to, Some(now));
                    (left, moved) = (left - 1, moved + 1);
                }
            }
        }
        moved
    }
}

#[test]
fn servers_that_compute_much_give_sessions_and_come_to_rest() {
    for seed in inputs::seeds(12) {
        let mut model = Model::new(seed);
        let before: Vec<_> = (0..model.servers).map(|id| model.cpu(id)).collect();
        let mut second = 0;
        let mut moved = 0;
        // Within an hour nobody moves twice. For a while nothing is heard.
        while second < 3500 {
            if second == 900 {
                model.silent_until = 1200;
            }
            moved += model.look(second);
            second += 1;
        }
        let after: Vec<_> = (0..model.servers).map(|id| model.cpu(id)).collect();
        let (most_before, most) = (before.iter().max().unwrap(), after.iter().max().unwrap());
        assert!(most <= &(most_before + 60), "{before:?} {after:?}");
        assert!(moved as usize <= model.sessions.len());
        // Nothing happens any more: hardly anybody moves.
        let later: u32 = (0..3600).map(|more| model.look(second + more)).sum();
        let few = 4 + model.sessions.len() as u32 * (2 + model.noise) / 20;
        assert!(
            later <= few,
            "{later} of {} in an hour: {before:?} {after:?}",
            model.sessions.len()
        );
    }
}

#[test]
fn a_single_heavy_session_does_not_go_to_and_fro() {
    let mut model = Model::new(1);
    (model.servers, model.noise) = (2, 10);
    model.sessions = vec![(0, 1, None); 10];
    model.sessions.push((500, 0, None));
    let moved: u32 = (0..3 * 3600).map(|second| model.look(second)).sum();
    let heavy = model.sessions[10];
    assert!(moved <= 20, "{moved}");
    assert!(heavy.2.is_none(), "{heavy:?}");
}
