//! Inputs for tests: random ones that a seed repeats, and those that fuzzing has kept.
//!
//! It uses nothing, so that the tests of every crate may use it, also of those that `testkit` stands on.

#![allow(clippy::unwrap_used, reason = "code of tests")]

use std::path::Path;
use std::time::{Duration, Instant, UNIX_EPOCH};

/// SplitMix64 (Steele, Lea, Flood 2014): small, and good enough to choose statements and loads. What follows
/// a seed never changes: tests name those that found something.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to `end`, which is not among them.
    ///
    /// # Panics
    /// When that leaves none.
    pub fn below<N: TryInto<u64> + TryFrom<u64>>(&mut self, end: N) -> N {
        let end = end.try_into().ok().filter(|&end| end > 0);
        let below = end.map(|end| self.number() % end);
        below.and_then(|number| N::try_from(number).ok()).unwrap()
    }

    /// Both ends are among them.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// True so often of a hundred times.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.number() as u8).collect()
    }
}

/// The number that the environment asks for.
///
/// # Panics
/// When it is none.
pub fn asked(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable}={text}: a number was expected")))
}

/// The seed that `variable` asks for, or one that nobody has seen.
pub fn seed_of(variable: &str) -> u64 {
    asked(variable).unwrap_or_else(|| UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64)
}

/// The first `usual` seeds, as many as `FOREBAY_SEEDS` says, or the one of `FOREBAY_SEED`, each printed.
pub fn seeds(usual: u64) -> impl Iterator<Item = u64> {
    let many = 0..asked("FOREBAY_SEEDS").unwrap_or(usual);
    let seeds = asked("FOREBAY_SEED").map_or(many, |one| one..one + 1);
    seeds.inspect(|seed| println!("FOREBAY_SEED={seed}"))
}

/// Runs the body of a fuzz target on its corpus, so that what once failed is a test on every machine. Then it
/// takes random changes of the corpus, for one second or as many as `FOREBAY_FUZZ_SECONDS` says.
/// `script/fuzz` is led by the code that an input reaches, and finds more.
///
/// # Panics
/// When there is no corpus, and where the body does: the input is kept in `fuzz/artifacts` then.
pub fn replay(target: &str, body: fn(&[u8])) {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let inputs = std::fs::read_dir(fuzz.join("corpus").join(target)).unwrap();
    let mut paths: Vec<_> = inputs.map(|input| input.unwrap().path()).collect();
    paths.sort(); // a seed chooses the same ones everywhere
    let mut corpus = Vec::new();
    for path in paths {
        let data = std::fs::read(&path).unwrap();
        println!("{}", path.display());
        // Every beginning of an input is an input as well.
        (0..data.len().min(400)).for_each(|end| body(&data[..end]));
        body(&data);
        corpus.push(data);
    }
    assert!(!corpus.is_empty(), "{target} has no corpus");

    let seed = seed_of("FOREBAY_SEED");
    println!("FOREBAY_SEED={seed}");
    let mut random = Random::new(seed);
    let end = Instant::now() + Duration::from_secs(asked("FOREBAY_FUZZ_SECONDS").unwrap_or(1));
    while Instant::now() < end {
        let data = changed(&mut random, &corpus);
        let Err(panic) = std::panic::catch_unwind(|| body(&data)) else {
            continue;
        };
        let artifacts = fuzz.join("artifacts").join(target);
        std::fs::create_dir_all(&artifacts).unwrap();
        let path = artifacts.join(format!("seed-{seed}"));
        std::fs::write(&path, &data).unwrap();
        println!("The input is {}: {}", path.display(), data.escape_ascii());
        std::panic::resume_unwind(panic);
    }
}

/// An input of the corpus with up to four changes.
fn changed(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    /// First bytes of lengths and ends of numbers' ranges.
    const EDGES: [u8; 10] = [0, 1, 0x7f, 0x80, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe, 0xff];
    let mut data = corpus[random.below(corpus.len())].clone();
    for _ in 0..random.between(1, 4) {
        let at = random.below(data.len() + 1);
        let end = at + random.between(0, 32.min(data.len() - at));
        let new = match random.below(6) {
            0 => random.bytes(end - at),
            1 => vec![random.pick(&EDGES); end - at],
            2 => data[at..end].repeat(2),
            3 => random.bytes(4),
            4 => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len() + 1);
                other[from..].iter().copied().take(4096).collect()
            }
            _ => Vec::new(),
        };
        data.splice(at..end, new);
    }
    data
}
