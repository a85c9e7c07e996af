//! TPC-C: nine tables, five transactions in the standard's mix without keying and thinking times, and the
//! conditions of consistency that have to hold afterwards.
//!
//! Statements are text, with the values in them. A transaction that the server gives up for a lock is run
//! again with the same input, and counted.

mod conditions;
mod load;
mod transactions;

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use hdrhistogram::Histogram;
use inputs::Random;

use self::transactions::{Kind, Terminal};
pub(crate) use self::{
    conditions::check,
    load::{TABLES, load, unload},
    transactions::KINDS,
};
use crate::client::Server;

const DISTRICTS: u64 = 10;

/// How much there is of everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub warehouses: u64,
    /// 100 000 by the standard.
    pub items: u64,
    /// Of a district, each with an order; 3000 by the standard.
    pub customers: u64,
}

impl Size {
    /// Orders of a district that are delivered from the start.
    fn delivered(self) -> u64 {
        self.customers * 7 / 10
    }
}

pub(crate) struct Done {
    pub elapsed: Duration,
    /// Microseconds of each kind's transactions.
    pub times: [Histogram<u64>; KINDS.len()],
    /// Transactions that were run again, as the server had given them up for a lock.
    pub retried: u64,
    pub delivered: u64,
}

impl Done {
    fn new() -> anyhow::Result<Self> {
        let times = || Histogram::new(3);
        Ok(Self {
            elapsed: Duration::ZERO,
            times: [times()?, times()?, times()?, times()?, times()?],
            retried: 0,
            delivered: 0,
        })
    }

    /// New orders a minute; those that are rolled back count, as the standard has it.
    pub(crate) fn tpmc(&self) -> f64 {
        self.times[Kind::NewOrder as usize].len() as f64 * 60.0 / self.elapsed.as_secs_f64()
    }

    fn add(&mut self, other: &Self) -> anyhow::Result<()> {
        for (times, others) in self.times.iter_mut().zip(&other.times) {
            times.add(others)?;
        }
        self.retried += other.retried;
        self.delivered += other.delivered;
        Ok(())
    }
}

/// Runs the mix on so many terminals. Terminals of one seed ask for the same.
pub(crate) fn run(
    server: Server,
    size: Size,
    terminals: u64,
    seconds: f64,
    seed: u64,
) -> anyhow::Result<Done> {
    let terminals: Vec<Terminal> = (0..terminals)
        .map(|number| Terminal::connect(server, size, number, seed))
        .collect::<Result<_, _>>()
        .context("connecting a terminal")?;
    let began = Instant::now();
    let until = began + Duration::from_secs_f64(seconds);
    let mut sum = Done::new()?;
    thread::scope(|scope| {
        let working: Vec<_> = terminals
            .into_iter()
            .map(|terminal| scope.spawn(move || work(terminal, until)))
            .collect();
        for terminal in working {
            sum.add(&crate::joined(terminal, "a terminal")?)?;
        }
        anyhow::Ok(())
    })?;
    sum.elapsed = began.elapsed();
    Ok(sum)
}

/// Whoever fails leaves, so that nobody waits for its locks.
fn work(mut terminal: Terminal, until: Instant) -> anyhow::Result<Done> {
    let mut done = Done::new()?;
    while Instant::now() < until {
        let began = Instant::now();
        let (kind, delivered, retried) = terminal.transaction()?;
        done.times[kind as usize].record(began.elapsed().as_micros() as u64)?;
        done.delivered += delivered;
        done.retried += retried;
    }
    Ok(done)
}

/// Both ends are among them.
fn within(random: &mut Random, low: u64, high: u64) -> u64 {
    low + random.below(high - low + 1)
}

/// The standard's NURand: some are asked for more often than others.
fn uneven(random: &mut Random, a: u64, low: u64, high: u64) -> u64 {
    let mixed = random.below(a + 1) | within(random, low, high);
    (mixed + a / 3) % (high - low + 1) + low
}

/// The last name with a number, of syllables.
fn last_name(number: u64) -> String {
    const SYLLABLES: [&str; 10] = [
        "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING",
    ];
    let digits = [number / 100 % 10, number / 10 % 10, number % 10];
    digits.map(|digit| SYLLABLES[digit as usize]).concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_of_syllables() {
        assert_eq!(last_name(371), "PRICALLYOUGHT");
    }

    #[test]
    fn numbers_stay_in_their_range() {
        let mut random = Random::new(1);
        let mut seen = [false; 7];
        for _ in 0..1000 {
            seen[(within(&mut random, 3, 9) - 3) as usize] = true;
            assert!((1..=30).contains(&uneven(&mut random, 1023, 1, 30)));
        }
        assert!(seen.iter().all(|seen| *seen));
    }
}
