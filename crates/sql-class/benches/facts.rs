//! What it costs to know what a statement is: `cargo bench -p sql-class`.
//!
//! Best of many rounds, because the machine has other things to do as well.

use std::hash::RandomState;
use std::hint::black_box;
use std::time::{Duration, Instant};

use sql_class::{FactsCache, Syntax, digest, facts, point_lookup};

const POINT_SELECT: &str = "SELECT c FROM sbtest1 WHERE id=12345";
const RANGE: &str = "SELECT DISTINCT c FROM sbtest1 WHERE id BETWEEN 1000 AND 1099 ORDER BY c";
const UPDATE: &str = "UPDATE sbtest1 SET c='83868641912-28773972837-60736120486-75162659906-27563526494-20381887404' WHERE id=5";
const FUNCTIONS: &str =
    "SELECT COUNT(*), MAX(a), CONCAT(b, 'x'), IFNULL(c, NOW()) FROM t WHERE f IN (1, 2, 3) GROUP BY d";
const COMMENTED: &str =
    "SELECT /* forebay: replica */ c FROM sbtest1 WHERE id=12345 /* trace 00-4bf92f3577b34da6 */";

fn best_round<T>(mut once: impl FnMut() -> T) -> f64 {
    const TIMES: u32 = 1000;
    let rounds = (0..2000).map(|_| {
        let start = Instant::now();
        for _ in 0..TIMES {
            black_box(once());
        }
        start.elapsed()
    });
    rounds.min().unwrap_or(Duration::ZERO).as_secs_f64() * 1e9 / f64::from(TIMES)
}

fn main() {
    let syntax = Syntax::default();
    let mut known = FactsCache::<RandomState>::default();
    for (name, sql) in [
        ("point select", POINT_SELECT),
        ("range", RANGE),
        ("update", UPDATE),
        ("functions", FUNCTIONS),
        ("comments", COMMENTED),
    ] {
        let of_facts = best_round(|| facts(black_box(sql.as_bytes()), syntax));
        let of_known = best_round(|| known.facts(black_box(sql.as_bytes()), syntax));
        let of_digest = best_round(|| digest(black_box(sql.as_bytes()), syntax));
        let of_lookup = best_round(|| point_lookup(black_box(sql.as_bytes()), syntax));
        println!(
            "{name:12} {:4} bytes: facts {of_facts:5.0} ns, known {of_known:5.0} ns, digest {of_digest:5.0} ns, point lookup {of_lookup:5.0} ns",
            sql.len()
        );
    }
}
