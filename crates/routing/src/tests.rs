//! Properties of all methods, and the proportions of each.

use proptest::prelude::*;

use super::*;

const METHODS: [Balance; 4] = [
    Balance::LeastConnections,
    Balance::Weighted,
    Balance::RoundRobin,
    Balance::RandomTwo,
];

fn server(weight: u32) -> Candidate {
    Candidate {
        weight,
        backup: false,
        available: true,
        sessions: 0,
        max_connections: 0,
        warmth_permille: WARM,
    }
}

/// Chooses `count` times, adding each session to its server, and returns sessions by server.
fn fill(balance: Balance, candidates: &mut [Candidate], count: u64) -> Vec<u32> {
    let before: Vec<u32> = candidates.iter().map(|candidate| candidate.sessions).collect();
    for turn in 0..count {
        match choose_server(
            balance,
            candidates,
            Draw {
                turn,
                seed: mix(turn),
            },
        ) {
            Choice::Server(place) => candidates[place].sessions += 1,
            other => panic!("{balance:?}: {other:?} from {candidates:?}"),
        }
    }
    candidates
        .iter()
        .zip(before)
        .map(|(candidate, before)| candidate.sessions - before)
        .collect()
}

fn any_candidate() -> impl Strategy<Value = Candidate> {
    (
        0..5_u32,
        any::<bool>(),
        any::<bool>(),
        0..4_u32,
        0..4_u32,
        0..=WARM,
    )
        .prop_map(
            |(weight, backup, available, sessions, max_connections, warmth_permille)| Candidate {
                weight,
                backup,
                available,
                sessions,
                max_connections,
                warmth_permille,
            },
        )
}

proptest! {
    #[test]
    fn never_picks_a_server_that_must_not_be_picked(
        candidates in prop::collection::vec(any_candidate(), 0..8),
        turn in any::<u64>(),
        seed in any::<u64>(),
    ) {
        let takes = |c: &Candidate| c.available && c.weight > 0;
        let normal = candidates.iter().any(|c| takes(c) && !c.backup);
        let backup = !normal;
        let open = candidates.iter().any(|c| takes(c) && c.backup == backup);
        let room = candidates.iter().any(|c| takes(c) && c.backup == backup && !c.is_full());
        for balance in METHODS {
            match choose_server(balance, &candidates, Draw { turn, seed }) {
                Choice::Server(place) => {
                    let chosen = candidates[place];
                    prop_assert!(takes(&chosen) && !chosen.is_full() && chosen.backup == backup, "{chosen:?}");
                }
                Choice::AllFull => prop_assert!(open && !room),
                Choice::NoneAvailable => prop_assert!(!open),
            }
        }
    }

    #[test]
    fn extreme_figures_do_not_overflow(
        weights in prop::collection::vec(1..=u32::MAX, 1..6),
        sessions in any::<u32>(),
        turn in any::<u64>(),
        seed in any::<u64>(),
    ) {
        let candidates: Vec<_> = weights.iter().map(|&w| Candidate { sessions, ..server(w) }).collect();
        for balance in METHODS {
            let choice = choose_server(balance, &candidates, Draw { turn, seed });
            prop_assert!(matches!(choice, Choice::Server(_)));
        }
    }

    #[test]
    fn weighted_gives_exactly_the_weights_over_a_cycle(weights in prop::collection::vec(0..7_u32, 1..6)) {
        prop_assume!(weights.iter().any(|&w| w > 0));
        // All equally cold, which makes the cycle a thousand times shorter.
        let mut candidates: Vec<_> =
            weights.iter().map(|&w| Candidate { warmth_permille: 1, ..server(w) }).collect();
        let total: u32 = weights.iter().sum();
        let got = fill(Balance::Weighted, &mut candidates, u64::from(total));
        prop_assert_eq!(got, weights);
    }

    #[test]
    fn weighted_is_never_far_from_the_proportion(weights in prop::collection::vec(1..7_u32, 1..6), count in 1..500_u64) {
        let mut candidates: Vec<_> = weights.iter().map(|&w| server(w)).collect();
        let total: u32 = weights.iter().sum();
        let got = fill(Balance::Weighted, &mut candidates, count);
        for (got, weight) in got.iter().zip(&weights) {
            let fair = count as f64 * f64::from(*weight) / f64::from(total);
            prop_assert!((f64::from(*got) - fair).abs() <= weights.len() as f64, "{got} for {fair}");
        }
    }

    #[test]
    fn least_connections_fills_in_proportion_to_weight(weights in prop::collection::vec(1..9_u32, 1..6)) {
        let mut candidates: Vec<_> = weights.iter().map(|&w| server(w)).collect();
        let total: u32 = weights.iter().sum();
        let got = fill(Balance::LeastConnections, &mut candidates, u64::from(total) * 10);
        for (got, weight) in got.iter().zip(&weights) {
            prop_assert!(got.abs_diff(weight * 10) <= 1, "{got} for {}", weight * 10);
        }
    }

    #[test]
    fn round_robin_gives_equal_turns_whatever_the_weights(weights in prop::collection::vec(1..9_u32, 1..8)) {
        let mut candidates: Vec<_> = weights.iter().map(|&w| server(w)).collect();
        let got = fill(Balance::RoundRobin, &mut candidates, weights.len() as u64 * 7);
        prop_assert!(got.iter().all(|&got| got == 7), "{got:?}");
    }

    #[test]
    fn nobody_starves_and_limits_hold(
        limits in prop::collection::vec((1..5_u32, 1..6_u32), 1..6),
    ) {
        for balance in METHODS {
            let mut candidates: Vec<_> =
                limits.iter().map(|&(w, max_connections)| Candidate { max_connections, ..server(w) }).collect();
            let seats: u32 = limits.iter().map(|&(_, max)| max).sum();
            let got = fill(balance, &mut candidates, u64::from(seats));
            prop_assert_eq!(got, limits.iter().map(|&(_, max)| max).collect::<Vec<_>>());
            let draw = Draw { turn: 0, seed: 0 };
            prop_assert_eq!(choose_server(balance, &candidates, draw), Choice::AllFull);
        }
    }
}

#[test]
fn weighted_spaces_turns_evenly() {
    let candidates = [server(5), server(1), server(1)];
    let order: Vec<Choice> = (0..7 * u64::from(WARM))
        .map(|turn| choose_server(Balance::Weighted, &candidates, Draw { turn, seed: 0 }))
        .collect();
    let longest_run = order.chunk_by(|a, b| a == b).map(<[_]>::len).max();
    // The two light servers have two of seven turns, and not next to each other.
    assert!(longest_run <= Some(4), "{longest_run:?}");
}

#[test]
fn random_two_follows_weights_and_evens_out_load() {
    let mut candidates = [server(1), server(2), server(3)];
    let got = fill(Balance::RandomTwo, &mut candidates, 6_000);
    for (got, want) in got.iter().zip([1_000, 2_000, 3_000_u32]) {
        assert!(got.abs_diff(want) < 60, "{got} for {want}");
    }
    let mut uneven = [
        Candidate {
            sessions: 500,
            ..server(1)
        },
        server(1),
    ];
    assert_eq!(
        fill(Balance::RandomTwo, &mut uneven, 400),
        [0, 400],
        "of two, always the emptier"
    );
}

#[test]
fn ties_are_broken_by_the_seed() {
    let candidates = [server(1); 4];
    let mut got = [0_u32; 4];
    for seed in 0..4_000 {
        let Choice::Server(place) =
            choose_server(Balance::LeastConnections, &candidates, Draw { turn: 0, seed })
        else {
            panic!("four servers are available")
        };
        got[place] += 1;
    }
    assert!(got.iter().all(|&got| got.abs_diff(1_000) < 120), "{got:?}");
}

#[test]
fn a_cold_server_takes_its_share_by_warmth() {
    for balance in METHODS {
        let cold = Candidate {
            warmth_permille: 100,
            ..server(1)
        };
        let mut candidates = [server(1), cold];
        let got = fill(balance, &mut candidates, 11_000);
        // One part in eleven; round robin gives it a tenth of every second turn. Random of two compares loads
        // and lands near the same share.
        assert!((400..=1_300).contains(&got[1]), "{balance:?}: {got:?}");
    }
}

#[test]
fn a_cold_server_alone_takes_everything() {
    for balance in METHODS {
        let mut candidates = [Candidate {
            warmth_permille: 0,
            ..server(1)
        }];
        assert_eq!(fill(balance, &mut candidates, 10), [10]);
    }
}

#[test]
fn backups_wait_for_failures_and_not_for_rush_hours() {
    let full = Candidate {
        sessions: 1,
        max_connections: 1,
        ..server(1)
    };
    let backup = Candidate {
        backup: true,
        ..server(1)
    };
    let draw = Draw { turn: 3, seed: 7 };
    for balance in METHODS {
        assert_eq!(choose_server(balance, &[full, backup], draw), Choice::AllFull);
        let gone = Candidate {
            available: false,
            ..full
        };
        assert_eq!(choose_server(balance, &[gone, backup], draw), Choice::Server(1));
        let drained = Candidate {
            weight: 0,
            ..server(1)
        };
        assert_eq!(
            choose_server(balance, &[drained, backup], draw),
            Choice::Server(1)
        );
        assert_eq!(
            choose_server(balance, &[drained, gone], draw),
            Choice::NoneAvailable
        );
    }
}
