//! Runs many histories of a simulated world, each from a seed of its own.

use std::collections::BTreeMap;
use std::panic::{RefUnwindSafe, catch_unwind};

/// Runs histories until they have had so many steps together: `variable`, or `steps`. `FOREBAY_SEED` repeats
/// one. What each has come to is counted by words; all of `wanted` have to be among them.
pub(crate) fn run(
    (variable, steps): (&str, u64),
    of_each: u64,
    history: impl Fn(u64) -> BTreeMap<&'static str, u64> + RefUnwindSafe,
    wanted: &[&str],
) {
    let steps = inputs::asked(variable).unwrap_or(steps);
    let one = inputs::asked("FOREBAY_SEED");
    let mut ends: BTreeMap<&str, u64> = BTreeMap::new();
    let mut done = 0;
    for seed in one.unwrap_or(1).. {
        let of_this = catch_unwind(|| history(seed)).unwrap_or_else(|_| panic!("FOREBAY_SEED={seed}"));
        for (word, count) in of_this {
            *ends.entry(word).or_default() += count;
        }
        done += of_each;
        if one.is_some() || done >= steps {
            break;
        }
    }
    println!("{done} steps: {ends:?}");
    for word in wanted.iter().filter(|_| one.is_none()) {
        let is_there = ends.get(word).is_some_and(|count| *count > 0);
        assert!(is_there, "none is {word}: {ends:?}");
    }
}
