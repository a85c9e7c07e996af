//! Reads: who may serve them, who comes first, and that the reasons agree with the choice.

use std::time::Duration;

use config::ReadBalance;
use proptest::prelude::*;

use super::*;

const METHODS: [ReadBalance; 3] = [
    ReadBalance::LeastOutstanding,
    ReadBalance::Latency,
    ReadBalance::Weighted,
];

fn primary() -> ReadCandidate {
    ReadCandidate::new(Role::Primary)
}

fn replica() -> ReadCandidate {
    ReadCandidate::new(Role::Replica)
}

fn draw(turn: u64) -> Draw {
    Draw {
        turn,
        seed: mix(turn),
    }
}

/// Chooses `count` times with nothing under way in between, and counts.
fn count(candidates: &[ReadCandidate], policy: &ReadPolicy, count: u64) -> Vec<u32> {
    let mut chosen = vec![0; candidates.len()];
    for turn in 0..count {
        chosen[choose_replica(candidates, policy, draw(turn)).unwrap()] += 1;
    }
    chosen
}

fn any_role() -> impl Strategy<Value = Role> {
    prop_oneof![Just(Role::Primary), Just(Role::Replica), Just(Role::Unusable)]
}

fn any_candidate() -> impl Strategy<Value = ReadCandidate> {
    let flags = (
        prop::bool::weighted(0.9),
        prop::bool::weighted(0.9),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    );
    let figures = (
        (prop::option::of(0..30_u64), 0..30_u32),
        0..4_u32,
        0..=WARM,
        0..4_u32,
        0..5_u64,
    );
    (any_role(), flags, figures).prop_map(|(role, flags, figures)| {
        let (admitted, available, full, backup, other_zone, applied) = flags;
        let ((lag, transactions_behind), weight, warmth_permille, outstanding, latency_us) = figures;
        ReadCandidate {
            role,
            admitted,
            available,
            full,
            backup,
            other_zone,
            applied,
            lag: lag.map(Duration::from_secs),
            transactions_behind,
            weight,
            warmth_permille,
            outstanding,
            latency_us,
        }
    })
}

fn any_policy() -> impl Strategy<Value = ReadPolicy> {
    let limits = (0..20_u64, prop_oneof![Just(u32::MAX), 0..20_u32]);
    (0..METHODS.len(), limits, any::<bool>(), any::<bool>()).prop_map(
        |(method, (max_lag, max_transactions_behind), primary_reads, last_resort)| ReadPolicy {
            balance: METHODS[method],
            max_lag: Duration::from_secs(max_lag),
            max_transactions_behind,
            primary_reads,
            last_resort,
        },
    )
}

/// What the documentation says, without any of the code that does it.
fn may_serve(candidate: &ReadCandidate, policy: &ReadPolicy) -> bool {
    let lag_ok = policy.max_lag.is_zero() || candidate.lag.is_none_or(|lag| lag <= policy.max_lag);
    let behind_ok = candidate.transactions_behind <= policy.max_transactions_behind;
    candidate.admitted
        && candidate.available
        && match candidate.role {
            Role::Primary => policy.last_resort || policy.primary_reads && candidate.weight > 0,
            Role::Replica => candidate.weight > 0 && candidate.applied && lag_ok && behind_ok,
            Role::Unusable => false,
        }
}

proptest! {
    #[test]
    fn somebody_serves_the_read_if_and_only_if_somebody_may(
        candidates in prop::collection::vec(any_candidate(), 0..7),
        policy in any_policy(),
        turn in any::<u64>(),
    ) {
        let chosen = choose_replica(&candidates, &policy, draw(turn));
        prop_assert_eq!(chosen.is_some(), candidates.iter().any(|candidate| may_serve(candidate, &policy)));
        if let Some(place) = chosen {
            prop_assert!(may_serve(&candidates[place], &policy));
        }
    }

    #[test]
    fn the_primary_is_left_alone_while_a_replica_can(
        candidates in prop::collection::vec(any_candidate(), 0..7),
        policy in any_policy(),
        turn in any::<u64>(),
    ) {
        let policy = ReadPolicy { primary_reads: false, ..policy };
        let replica_can = candidates.iter().any(|c| c.role == Role::Replica && may_serve(c, &policy));
        if let Some(place) = choose_replica(&candidates, &policy, draw(turn)) {
            prop_assert_eq!(candidates[place].role == Role::Replica, replica_can);
        }
    }

    #[test]
    fn nobody_of_the_chosen_ones_line_is_nearer_or_freer(
        candidates in prop::collection::vec(any_candidate(), 0..7),
        policy in any_policy(),
        turn in any::<u64>(),
    ) {
        let Some(place) = choose_replica(&candidates, &policy, draw(turn)) else { return Ok(()) };
        let chosen = &candidates[place];
        for other in candidates.iter().filter(|other| may_serve(other, &policy)) {
            if other.role == Role::Replica && chosen.role == Role::Replica {
                prop_assert!(!chosen.backup || other.backup, "{:?} before {:?}", chosen, other);
                if chosen.backup == other.backup {
                    prop_assert!((chosen.full, chosen.other_zone) <= (other.full, other.other_zone));
                }
            }
        }
    }

    #[test]
    fn the_reasons_agree_with_the_choice(
        candidates in prop::collection::vec(any_candidate(), 0..7),
        policy in any_policy(),
        turn in any::<u64>(),
    ) {
        let chosen = choose_replica(&candidates, &policy, draw(turn));
        let reasons = explain_replica(&candidates, &policy, draw(turn));
        prop_assert_eq!(reasons.len(), candidates.len());
        prop_assert_eq!(reasons.iter().position(|reason| reason.is_chosen()), chosen);
        for (place, (reason, candidate)) in reasons.iter().zip(&candidates).enumerate() {
            prop_assert_eq!(reason.is_chosen(), Some(place) == chosen);
            let barred = matches!(
                reason,
                Explanation::NotAdmitted
                    | Explanation::Unusable
                    | Explanation::Unavailable
                    | Explanation::NoWeight
                    | Explanation::Lagging { .. }
                    | Explanation::Behind { .. }
                    | Explanation::Stale
            ) || *reason == Explanation::Primary && !policy.last_resort;
            prop_assert_eq!(barred, !may_serve(candidate, &policy), "{:?}: {}", candidate, reason);
            prop_assert!(!reason.to_string().is_empty());
        }
    }

    #[test]
    fn the_one_to_wait_on_is_a_replica_that_lacks_nothing_else(
        candidates in prop::collection::vec(any_candidate(), 0..7),
        policy in any_policy(),
        turn in any::<u64>(),
    ) {
        let lacks_nothing_else = |c: &ReadCandidate| {
            c.role == Role::Replica && may_serve(&ReadCandidate { applied: true, ..*c }, &policy)
        };
        let awaited = choose_to_wait_for(&candidates, &policy, draw(turn));
        prop_assert_eq!(awaited.is_some(), candidates.iter().any(lacks_nothing_else));
        prop_assert!(awaited.is_none_or(|place| lacks_nothing_else(&candidates[place])));
    }

    #[test]
    fn weighted_reads_follow_the_weights(weights in prop::collection::vec(1..6_u32, 1..5)) {
        let candidates: Vec<_> =
            weights.iter().map(|&weight| ReadCandidate { weight, warmth_permille: 1, ..replica() }).collect();
        let policy = ReadPolicy { balance: ReadBalance::Weighted, ..ReadPolicy::default() };
        prop_assert_eq!(count(&candidates, &policy, weights.iter().copied().map(u64::from).sum()), weights);
    }

    #[test]
    fn statements_under_way_are_spread_by_weight(weights in prop::collection::vec(1..6_u32, 1..5)) {
        let mut candidates: Vec<_> =
            weights.iter().map(|&weight| ReadCandidate { weight, ..replica() }).collect();
        for turn in 0..weights.iter().copied().map(u64::from).sum::<u64>() * 4 {
            let place = choose_replica(&candidates, &ReadPolicy::default(), draw(turn)).unwrap();
            candidates[place].outstanding += 1;
        }
        for (candidate, weight) in candidates.iter().zip(&weights) {
            prop_assert!(candidate.outstanding.abs_diff(weight * 4) <= 1);
        }
    }

    #[test]
    fn extreme_figures_of_reads_do_not_overflow(
        outstanding in any::<u32>(),
        latency_us in any::<u64>(),
        weight in any::<u32>(),
        turn in any::<u64>(),
    ) {
        let busy = ReadCandidate { outstanding, latency_us, weight: weight.max(1), ..replica() };
        for balance in METHODS {
            let policy = ReadPolicy { balance, ..ReadPolicy::default() };
            prop_assert!(choose_replica(&[busy, replica(), busy], &policy, draw(turn)).is_some());
        }
    }

    #[test]
    fn an_average_stays_between_its_answers(
        answers in prop::collection::vec((0..1_000_000_u64, 0..100_000_000_u64), 1..50),
    ) {
        let mut average = PeakEwma::default();
        let mut now = 0;
        for &(took_us, pause_us) in &answers {
            now += pause_us;
            average.note(Duration::from_micros(took_us), now);
            let longest = answers.iter().map(|(took, _)| *took).max().unwrap_or_default();
            prop_assert!(average.expected_us(now) >= took_us.saturating_sub(1), "a peak counts in full");
            prop_assert!(average.expected_us(now) <= longest);
            prop_assert!(average.expected_us(now + 1_000_000) <= average.expected_us(now));
        }
    }
}

#[test]
fn a_replica_that_stalls_loses_its_reads_and_gets_a_trial_later() {
    let second = 1_000_000;
    let mut averages = [PeakEwma::default(); 2];
    averages[0].note(Duration::from_millis(2), second);
    averages[1].note(Duration::from_millis(2), second);
    averages[0].note(Duration::from_millis(100), 2 * second);
    let at = |now: u64| {
        averages.map(|average| ReadCandidate {
            latency_us: average.expected_us(now),
            ..replica()
        })
    };
    let policy = ReadPolicy {
        balance: ReadBalance::Latency,
        ..ReadPolicy::default()
    };
    assert_eq!(count(&at(2 * second), &policy, 100), [0, 100]);
    // The other one goes on answering; what is expected of the stalled one has sunk below that meanwhile.
    averages[1].note(Duration::from_millis(2), 60 * second);
    let at = |now: u64| {
        averages.map(|average| ReadCandidate {
            latency_us: average.expected_us(now),
            ..replica()
        })
    };
    assert_eq!(count(&at(60 * second), &policy, 100), [100, 0]);
}

#[test]
fn the_faster_replica_takes_more_but_not_everything() {
    let fast = ReadCandidate {
        latency_us: 100,
        outstanding: 5,
        ..replica()
    };
    let slow = ReadCandidate {
        latency_us: 300,
        outstanding: 0,
        ..replica()
    };
    let policy = ReadPolicy {
        balance: ReadBalance::Latency,
        ..ReadPolicy::default()
    };
    assert_eq!(count(&[fast, slow], &policy, 10), [0, 10]);
    let relieved = ReadCandidate {
        outstanding: 1,
        ..fast
    };
    assert_eq!(count(&[relieved, slow], &policy, 10), [10, 0]);
}

#[test]
fn idle_replicas_share_reads_evenly() {
    let got = count(&[primary(), replica(), replica()], &ReadPolicy::default(), 4_000);
    assert_eq!(got[0], 0);
    assert!(got[1].abs_diff(got[2]) < 300, "{got:?}");
}

#[test]
fn a_lagging_replica_is_no_choice_and_says_so() {
    let lagging = ReadCandidate {
        lag: Some(Duration::from_secs(12)),
        ..replica()
    };
    let policy = ReadPolicy {
        max_lag: Duration::from_secs(10),
        ..ReadPolicy::default()
    };
    let reasons = explain_replica(&[primary(), lagging], &policy, draw(1));
    assert_eq!(reasons[0], Explanation::ChosenAsLastResort);
    assert_eq!(reasons[1].to_string(), "12000 ms behind, of 10000 ms allowed");
    let nobody = ReadPolicy {
        last_resort: false,
        ..policy
    };
    assert_eq!(choose_replica(&[primary(), lagging], &nobody, draw(1)), None);
}

#[test]
fn a_replica_with_too_much_to_apply_is_no_choice_and_says_so() {
    let busy = ReadCandidate {
        transactions_behind: 12,
        ..replica()
    };
    let policy = |max_transactions_behind| ReadPolicy {
        max_transactions_behind,
        ..ReadPolicy::default()
    };
    for (limit, reads) in [(u32::MAX, [0, 10]), (12, [0, 10]), (11, [10, 0])] {
        assert_eq!(count(&[primary(), busy], &policy(limit), 10), reads, "{limit}");
    }
    let reasons = explain_replica(&[primary(), busy], &policy(11), draw(1));
    assert_eq!(
        reasons[1].to_string(),
        "has 12 transactions to apply, of 11 allowed"
    );
}

#[test]
fn our_zone_comes_first_until_it_is_full() {
    let far = ReadCandidate {
        other_zone: true,
        ..replica()
    };
    let busy = ReadCandidate {
        outstanding: 100,
        ..replica()
    };
    assert_eq!(count(&[far, busy], &ReadPolicy::default(), 10), [0, 10]);
    let full = ReadCandidate { full: true, ..busy };
    assert_eq!(count(&[far, full], &ReadPolicy::default(), 10), [10, 0]);
    let reasons = explain_replica(&[far, full], &ReadPolicy::default(), draw(0));
    assert_eq!(reasons, [Explanation::Chosen, Explanation::Full]);
}

#[test]
fn a_drained_primary_still_serves_what_nobody_else_can() {
    let drained = ReadCandidate {
        weight: 0,
        ..primary()
    };
    let gone = ReadCandidate {
        available: false,
        ..replica()
    };
    let policy = ReadPolicy {
        primary_reads: true,
        ..ReadPolicy::default()
    };
    assert_eq!(choose_replica(&[drained, gone], &policy, draw(0)), Some(0));
    assert_eq!(count(&[drained, replica()], &policy, 10), [0, 10]);
}
