//! The machine the figures were made on: they mean nothing without it.

use std::fs;

use serde::{Deserialize, Serialize};

/// What a reader of the results must know about the machine.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Machine {
    /// Model name of the first CPU.
    pub cpu: String,
    /// Number of CPUs online.
    pub cpus: usize,
    pub memory: u64,
    /// `uname -sr`.
    pub kernel: String,
    /// Load average over the last minute when the run began: anything above the run's own weight disturbs it.
    pub load_average: f64,
}

/// A load average above which other programs are likely to disturb the figures, for each core.
const BUSY: f64 = 0.35;

impl Machine {
    /// Whether something else was running when the run began.
    pub fn is_busy(&self) -> bool {
        self.load_average > BUSY * self.cpus as f64
    }

    /// Describes this machine; what cannot be read is empty or 0.
    pub fn describe() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            cpu: value_after(&cpuinfo, "model name").unwrap_or_default(),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            memory: memory_total(),
            kernel: format!("Linux {}", release.trim()),
            load_average: load_average().unwrap_or_default(),
        }
    }
}

fn value_after(text: &str, key: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn memory_total() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = value_after(&text, "MemTotal");
    total
        .and_then(|value| value.split(' ').next()?.parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}

fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg")
        .ok()?
        .split(' ')
        .next()?
        .parse()
        .ok()
}
