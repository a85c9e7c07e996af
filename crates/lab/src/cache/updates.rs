//! Writers beside the reads: updates of random rows, so many a second, each committed by itself.

use std::{
    io::Write,
    process::{Child, ChildStdin, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::Context;
use sandbox::Sandbox;

/// Connections that write.
const WRITERS: u32 = 8;
/// How often a writer gets its share of statements.
const TICK: Duration = Duration::from_millis(5);

/// Running writers; dropping it ends them.
pub(super) struct Writers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    children: Vec<Child>,
}

impl Writers {
    /// Starts writing `rate` updates a second, or as many as the server manages.
    pub(super) fn start(server: &Sandbox, table: &str, rows: u64, rate: u32) -> anyhow::Result<Self> {
        let mut writers = Self {
            stop: Arc::default(),
            threads: Vec::new(),
            children: Vec::new(),
        };
        if rate == 0 {
            return Ok(writers);
        }
        for seed in 1..=u64::from(WRITERS) {
            let mut command = server.primary().client();
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let mut child = command.spawn().context("starting the client program")?;
            let input = child.stdin.take().context("a client without input")?;
            let pace = Pace {
                table: table.to_owned(),
                rows,
                each_tick: f64::from(rate) / f64::from(WRITERS) * TICK.as_secs_f64(),
                random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15),
                stop: Arc::clone(&writers.stop),
            };
            writers.children.push(child);
            writers.threads.push(thread::spawn(move || pace.write(input)));
        }
        Ok(writers)
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

struct Pace {
    table: String,
    rows: u64,
    each_tick: f64,
    random: u64,
    stop: Arc<AtomicBool>,
}

impl Pace {
    /// A pipe takes some thousand statements more than were run, so one that is behind stays behind by little.
    fn write(mut self, mut input: ChildStdin) {
        let mut next = Instant::now();
        let mut due = 0.0;
        while !self.stop.load(Ordering::Relaxed) {
            due += self.each_tick;
            let mut statements = String::new();
            while due >= 1.0 {
                due -= 1.0;
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                let id = self.random % self.rows + 1;
                statements += &format!("UPDATE sbtest.{} SET k = k + 1 WHERE id = {id};\n", self.table);
            }
            if input.write_all(statements.as_bytes()).is_err() {
                return; // it was killed
            }
            next += TICK;
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }
}

/// Updates that the server has run.
pub(super) fn updates_run(server: &Sandbox) -> anyhow::Result<f64> {
    let text = server.primary().sql("SHOW GLOBAL STATUS LIKE 'Com_update'")?;
    let count = text.split_ascii_whitespace().last().context("no Com_update")?;
    Ok(count.parse()?)
}
