//! Tables whose load is our own: TPC-C, updates of many rows, a join and a dependent subquery.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use inputs::Random;

use super::{Plan, Stop, Violation, measure::Rounds, results::Section, stand::Stand};
use crate::{
    client::{Client, Server},
    tpcc::{self, KINDS, Size},
};

const UPDATED: &str = "rows_of_lab";
/// Rows of one statement, as long as the table has them.
const SIZES: [u64; 5] = [10, 100, 1000, 10_000, 100_000];
/// What each server is asked, over the table twice.
const QUESTIONS: [(&str, &str); 2] = [
    (
        "inner join",
        "SELECT COUNT(*), SUM(b.other) FROM rows_of_lab a INNER JOIN rows_of_lab b ON b.id = a.other",
    ),
    (
        "dependent subquery",
        "SELECT COUNT(*) FROM rows_of_lab a WHERE a.other < \
         (SELECT MAX(b.other) FROM rows_of_lab b WHERE b.id = a.id + 1)",
    ),
];

/// New orders a minute through everybody in turns; the conditions hold after each turn, or it ends.
pub(super) fn tpcc(stand: &Stand, plan: &Plan, stop: &Stop, section: &mut Section) -> anyhow::Result<()> {
    let size = Size {
        warehouses: if plan.quick { 1 } else { 2 },
        items: plan.rows.min(100_000),
        customers: (plan.rows / 30).clamp(10, 3000),
    };
    let terminals: &[u64] = if plan.quick { &[4] } else { &[1, 8, 32] };
    let primary = stand.primary();
    tpcc::load(primary, size).context("loading TPC-C")?;
    let whole = new_orders(stand, (size, terminals), plan, stop, section);
    let gone = tpcc::unload(primary);
    section.notes.push(format!(
        "warehouses: {}, items: {}, customers of a district: {}; terminals without keying and thinking times; statements are text",
        size.warehouses, size.items, size.customers
    ));
    compare_racers(stand, plan, section, &["tpmC"]);
    whole?;
    section
        .notes
        .push("conditions 3.3.2.1 to 3.3.2.12 hold after every turn".to_owned());
    gone.context("removing the tables of TPC-C")?;
    Ok(())
}

fn new_orders(
    stand: &Stand,
    (size, terminals): (Size, &[u64]),
    plan: &Plan,
    stop: &Stop,
    section: &mut Section,
) -> anyhow::Result<()> {
    let racers = stand.racers(&[]);
    let primary = stand.primary();
    let holds = |delivered| {
        let broken = tpcc::check(primary, size, delivered)?;
        if !broken.is_empty() {
            return Err(anyhow::Error::new(Violation(broken.join("; "))));
        }
        Ok(())
    };
    holds(0).context("as loaded")?;
    let mut delivered = 0;
    for racer in &racers {
        delivered += tpcc::run(stand.at(racer.address), size, terminals[0], 0.5, 0)?.delivered;
    }
    let mut rounds = Rounds::new(plan, stop, terminals.len() * racers.len());
    let mut seed = 0;
    while rounds.next()? {
        for count in terminals {
            seed += 1;
            for racer in &racers {
                let parameter = format!("{count} terminals");
                rounds.tell(&parameter, &racer.name)?;
                let done = tpcc::run(stand.at(racer.address), size, *count, plan.seconds, seed)
                    .with_context(|| format!("{parameter}, {}", racer.name))?;
                delivered += done.delivered;
                let at = (&parameter[..], &racer.name[..]);
                section.record(at, "tpmC", "1/min", done.tpmc());
                for (kind, times) in KINDS.iter().zip(&done.times) {
                    if !times.is_empty() {
                        let p95 = times.value_at_quantile(0.95) as f64 / 1000.0;
                        section.record(at, &format!("p95 {kind}"), "ms", p95);
                    }
                }
                section.record(at, "run again for a lock", "", done.retried as f64);
                holds(delivered).with_context(|| format!("after {parameter}, {}", racer.name))?;
                rounds.bar.inc(1);
            }
        }
    }
    Ok(())
}

/// Updates of more and more rows through everybody in turns: the best rate of some numbers of clients.
pub(super) fn updates(stand: &Stand, plan: &Plan, stop: &Stop, section: &mut Section) -> anyhow::Result<()> {
    let rows = fill(stand, plan)?;
    let clients: &[u64] = if plan.quick { &[1, 8] } else { &[1, 2, 4, 8, 16] };
    let seconds = if plan.quick {
        plan.seconds.min(0.5)
    } else {
        plan.seconds
    };
    let sizes: Vec<u64> = SIZES.into_iter().filter(|size| *size <= rows).collect();
    let racers = stand.racers(&[]);
    let mut rounds = Rounds::new(plan, stop, sizes.len() * racers.len());
    let mut seed = 0;
    while rounds.next()? {
        for size in &sizes {
            seed += 1;
            for racer in &racers {
                let parameter = format!("{size} rows");
                rounds.tell(&parameter, &racer.name)?;
                let mut best: f64 = 0.0;
                for count in clients {
                    let rate = update(stand.at(racer.address), (rows, *size), *count, seconds, seed)
                        .with_context(|| format!("{parameter}, {}", racer.name))?;
                    best = best.max(rate);
                }
                section.record((&parameter, &racer.name), "qps", "query/s", best);
                rounds.bar.inc(1);
            }
        }
    }
    section.notes.push(format!(
        "a table of {rows} rows; the best of {clients:?} clients, each {seconds} s; rounds: {}",
        rounds.done
    ));
    compare_racers(stand, plan, section, &["qps"]);
    Ok(())
}

/// Statements a second, of all clients.
fn update(
    server: Server,
    (rows, size): (u64, u64),
    clients: u64,
    seconds: f64,
    seed: u64,
) -> anyhow::Result<f64> {
    let connected: Vec<Client> = (0..clients).map(|_| server.connect()).collect::<Result<_, _>>()?;
    let began = Instant::now();
    let until = began + Duration::from_secs_f64(seconds);
    let work = |mut client: Client, mut random: Random| {
        let mut done = 0u64;
        while Instant::now() < until {
            let first = 1 + random.below(rows - size + 1);
            let last = first + size - 1;
            let statement = format!("UPDATE {UPDATED} SET k = k + 1 WHERE id BETWEEN {first} AND {last}");
            match client.query(&statement) {
                Ok(answer) if answer.affected == size => done += 1,
                Ok(answer) => bail!("{} of {size} rows were updated", answer.affected),
                Err(error) if error.is_of_lock() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(done)
    };
    let work = &work;
    let done = thread::scope(|scope| {
        let working: Vec<_> = (0..)
            .zip(connected)
            .map(|(number, client)| scope.spawn(move || work(client, Random::new(seed << 32 | number << 16))))
            .collect();
        let mut done = 0;
        for client in working {
            done += crate::joined(client, "a client")?;
        }
        anyhow::Ok(done)
    })?;
    Ok(done as f64 / began.elapsed().as_secs_f64())
}

/// One client asks what takes the server long, through everybody in turns.
pub(super) fn joins(stand: &Stand, plan: &Plan, stop: &Stop, section: &mut Section) -> anyhow::Result<()> {
    let rows = fill(stand, plan)?;
    let racers = stand.racers(&[]);
    let mut rounds = Rounds::new(plan, stop, QUESTIONS.len() * racers.len());
    let mut answers = [None, None];
    while rounds.next()? {
        for ((parameter, statement), answer) in QUESTIONS.into_iter().zip(&mut answers) {
            for racer in &racers {
                rounds.tell(parameter, &racer.name)?;
                let mut client = stand.at(racer.address).connect()?;
                let began = Instant::now();
                let found = client.query(statement)?.rows;
                let elapsed = began.elapsed().as_secs_f64() * 1000.0;
                section.record((parameter, &racer.name), "time", "ms", elapsed);
                let expected = answer.get_or_insert_with(|| found.clone());
                ensure!(
                    *expected == found,
                    "{parameter}: {} answers {found:?}, not {expected:?}",
                    racer.name
                );
                rounds.bar.inc(1);
            }
        }
    }
    section
        .notes
        .push(format!("a table of {rows} rows; rounds: {}", rounds.done));
    compare_racers(stand, plan, section, &["time"]);
    Ok(())
}

/// A table of ten times as many rows as those of sysbench; with `--quick` of as many.
fn fill(stand: &Stand, plan: &Plan) -> anyhow::Result<u64> {
    let rows = if plan.quick { plan.rows } else { plan.rows * 10 };
    let mut client = stand.primary().connect()?;
    client.query(&format!("DROP TABLE IF EXISTS {UPDATED}"))?;
    client.query(&format!(
        "CREATE TABLE {UPDATED} (id INT PRIMARY KEY, k INT NOT NULL, other INT NOT NULL, c CHAR(60) NOT NULL)"
    ))?;
    client.query(&format!(
        "INSERT INTO {UPDATED} VALUES (1, 0, 1, REPEAT('c', 60))"
    ))?;
    let mut filled = 1;
    while filled < rows {
        // Every row has another one for its partner, far away: 7919 is a prime.
        client.query(&format!(
            "INSERT INTO {UPDATED} SELECT id + {filled}, 0, 1 + (id + {filled}) * 7919 % {rows}, c FROM {UPDATED} \
             WHERE id + {filled} <= {rows}"
        ))?;
        filled = (filled * 2).min(rows);
    }
    Ok(rows)
}

fn compare_racers(stand: &Stand, plan: &Plan, section: &mut Section, metrics: &[&str]) {
    for racer in stand.racers(&[]) {
        for metric in metrics.iter().filter(|_| racer.name != "direct") {
            section.compare(&racer.name, "direct", metric);
        }
    }
    for metric in metrics {
        section.compare_with(&plan.foreign(), metric);
    }
}
