//! What a process has used, read from `/proc`.

use std::{fs, io, ops::Sub, path::Path, time::Duration};

use anyhow::Context;

/// CPU time of a process: all threads that are alive.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTime {
    /// To the nanosecond, from every thread's `schedstat`. Includes the network work the kernel does on the
    /// thread's behalf, unless the kernel was built to account interrupts apart (CONFIG_IRQ_TIME_ACCOUNTING).
    pub total: Duration,
    user_ticks: u64,
    system_ticks: u64,
}

impl CpuTime {
    pub fn of(pid: u32) -> anyhow::Result<Self> {
        let root = Path::new("/proc").join(pid.to_string());
        let total = threads_ns(&root.join("task")).with_context(|| format!("CPU time of process {pid}"))?;
        let stat = fs::read_to_string(root.join("stat"))?;
        let (user_ticks, system_ticks) =
            fields(&stat, 13).with_context(|| format!("/proc/{pid}/stat: {stat:?}"))?;
        Ok(Self {
            total: Duration::from_nanos(total),
            user_ticks,
            system_ticks,
        })
    }

    /// That of the children of this process that have ended: in clock ticks, of which there are a hundred a
    /// second.
    pub fn of_ended_children() -> anyhow::Result<Duration> {
        let stat = fs::read_to_string("/proc/self/stat")?;
        let ticks = fields(&stat, 15).with_context(|| format!("/proc/self/stat: {stat:?}"))?;
        Ok((ticks.0 + ticks.1) as u32 * Duration::from_millis(10))
    }

    /// The same in clock ticks, of which there are a hundred a second, threads that have ended included.
    pub fn in_ticks(&self) -> Duration {
        Duration::from_millis(10 * (self.user_ticks + self.system_ticks))
    }

    /// The part spent outside the kernel, between 0 and 1: what the clock ticks sampled, so it needs some
    /// seconds of work to mean anything.
    pub fn user_share(&self) -> f64 {
        let ticks = self.user_ticks + self.system_ticks;
        if ticks == 0 {
            0.0
        } else {
            self.user_ticks as f64 / ticks as f64
        }
    }
}

impl Sub for CpuTime {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            total: self.total.saturating_sub(earlier.total),
            user_ticks: self.user_ticks.saturating_sub(earlier.user_ticks),
            system_ticks: self.system_ticks.saturating_sub(earlier.system_ticks),
        }
    }
}

/// CPU time of the whole machine, whoever used it, in clock ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineTime {
    idle: u64,
    total: u64,
}

impl MachineTime {
    /// Reads what has gone by until now, of all cores together.
    pub fn now() -> anyhow::Result<Self> {
        let stat = fs::read_to_string("/proc/stat")?;
        Self::read(&stat).with_context(|| format!("/proc/stat: {:?}", stat.lines().next()))
    }

    /// The part between 0 and 1 that nobody used since then. What waits for a disk uses none, either.
    pub fn idle_since(self, earlier: Self) -> f64 {
        let total = self.total.saturating_sub(earlier.total).max(1);
        self.idle.saturating_sub(earlier.idle) as f64 / total as f64
    }

    /// `cpu  user nice system idle iowait irq softirq steal guest …`, of which guests are in `user` already.
    fn read(stat: &str) -> Option<Self> {
        let words = stat
            .lines()
            .next()?
            .strip_prefix("cpu ")?
            .split_ascii_whitespace();
        let ticks: Vec<u64> = words.take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
        let [_, _, _, idle, waits, ..] = ticks[..] else {
            return None;
        };
        Some(Self {
            idle: idle + waits,
            total: ticks.iter().sum(),
        })
    }
}

/// Memory of a process, in bytes, from `smaps_rollup`.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Memory {
    pub rss: u64,
    /// Resident pages, those shared with other processes counted in part.
    pub pss: u64,
}

impl Memory {
    pub fn of(pid: u32) -> anyhow::Result<Self> {
        let path = format!("/proc/{pid}/smaps_rollup");
        let text = fs::read_to_string(&path).with_context(|| path.clone())?;
        let field = |name| kilobytes(&text, name).with_context(|| format!("no {name} in {path}"));
        Ok(Self {
            rss: field("Rss:")? * 1024,
            pss: field("Pss:")? * 1024,
        })
    }
}

/// What reading a file of a thread that has ended fails with (errno 3, "No such process").
const ESRCH: i32 = 3;

fn threads_ns(tasks: &Path) -> anyhow::Result<u64> {
    let mut total = 0;
    for task in fs::read_dir(tasks)? {
        let text = match fs::read_to_string(task?.path().join("schedstat")) {
            Ok(text) => text,
            // The thread has ended meanwhile: before the file was opened, or before it was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ESRCH) => {
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let first = text.split(' ').next().and_then(|word| word.parse::<u64>().ok());
        total += first.with_context(|| format!("schedstat: {text:?}"))?;
    }
    Ok(total)
}

/// The two fields behind the first so many, counted after the command name, which may itself hold spaces and
/// parentheses.
fn fields(stat: &str, before: usize) -> Option<(u64, u64)> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(before - 2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::{process, time::Instant};

    use super::*;

    #[test]
    fn cpu_time_of_this_process_grows_with_work() {
        let before = CpuTime::of(process::id()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        let spent = loop {
            let spent = CpuTime::of(process::id()).unwrap() - before;
            if spent.total > Duration::from_millis(20) || Instant::now() > deadline {
                break spent;
            }
        };
        assert!(spent.total > Duration::from_millis(20));
        assert!((0.0..=1.0).contains(&spent.user_share()));
    }

    #[test]
    fn the_machine_is_idle_where_nobody_runs_or_something_waits_for_a_disk() {
        let read = |words: &str| MachineTime::read(&format!("cpu  {words}\ncpu0 1 1 1 1 1 1 1 1 1 1\n"));
        let before = read("100 10 50 1000 40 5 5 0 30 0").unwrap();
        assert_eq!((before.idle, before.total), (1040, 1210));
        let after = read("120 10 60 1050 50 5 5 10 40 0").unwrap();
        assert_eq!(after.idle_since(before), 0.6);
        assert_eq!(before.idle_since(before), 0.0, "no tick has gone by");
        assert_eq!(read("1 2 3"), None);
        assert!(MachineTime::now().unwrap().total > 0);
    }

    #[test]
    fn a_command_name_may_hold_parentheses() {
        let stat = "7 (a) b) c) S 1 7 7 0 -1 4194560 100 0 0 0 42 17 0 0 20 0 1 0 100 1 1";
        assert_eq!(fields(stat, 13), Some((42, 17)));
        assert_eq!(fields(stat, 15), Some((0, 0)));
    }

    #[test]
    fn children_that_have_ended_count() {
        let deadline = Instant::now() + Duration::from_secs(20);
        let before = CpuTime::of_ended_children().unwrap();
        let spent = || CpuTime::of_ended_children().unwrap() - before;
        while spent() < Duration::from_millis(20) && Instant::now() < deadline {
            let counts = "i=0; while [ $i -lt 30000 ]; do i=$((i + 1)); done";
            let mut child = process::Command::new("sh").args(["-c", counts]).spawn().unwrap();
            child.wait().unwrap();
        }
        assert!(spent() >= Duration::from_millis(20));
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let memory = Memory::of(process::id()).unwrap();
        assert!(memory.rss > 100 << 10 && memory.pss <= memory.rss);
        assert_eq!(kilobytes("x\nRss:     2328 kB\n", "Rss:"), Some(2328));
    }
}
