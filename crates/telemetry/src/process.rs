//! The process as the kernel sees it, read from `/proc/self` at scrape time. Sources of fact: proc(5),
//! getauxval(3).
//!
//! What cannot be read (no `/proc` in a sandbox) is left out; a scrape never fails for it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};

use crate::{Samples, catalog};

/// Threads whose CPU time is read one by one; a gateway has a handful.
const MAX_THREADS: usize = 512;

/// Adds the process metrics.
pub(crate) fn collect(out: &mut Samples) {
    let ticks_per_s = clock_ticks_per_second();
    if let Some(stat) = fs::read_to_string("/proc/self/stat")
        .ok()
        .as_deref()
        .and_then(Stat::parse)
    {
        out.float(
            &catalog::PROCESS_CPU,
            &[],
            (stat.user_ticks + stat.system_ticks) as f64 / ticks_per_s,
        );
        out.gauge(&catalog::PROCESS_VIRTUAL, &[], stat.virtual_bytes as i64);
        if let Some(boot_s) = boot_time_s() {
            out.float(
                &catalog::PROCESS_START,
                &[],
                boot_s as f64 + stat.start_ticks as f64 / ticks_per_s,
            );
        }
    }
    if let Some(bytes) = resident_memory() {
        out.gauge(&catalog::PROCESS_RESIDENT, &[], bytes as i64);
    }
    if let Some(open) = open_fds() {
        out.gauge(&catalog::PROCESS_OPEN_FDS, &[], open as i64);
    }
    if let Some(max) = fs::read_to_string("/proc/self/limits")
        .ok()
        .as_deref()
        .and_then(soft_nofile)
    {
        out.gauge(&catalog::PROCESS_MAX_FDS, &[], max);
    }
    for (name, (user, system)) in thread_cpu_ticks() {
        out.float(&catalog::CPU, &[&name, "user"], user as f64 / ticks_per_s);
        out.float(&catalog::CPU, &[&name, "system"], system as f64 / ticks_per_s);
    }
}

/// Memory of this process that is in RAM, in bytes.
#[must_use]
pub fn resident_memory() -> Option<u64> {
    resident_bytes(&fs::read_to_string("/proc/self/status").ok()?)
}

/// The fields of `/proc/*/stat` that are of use.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    name: String,
    user_ticks: u64,
    system_ticks: u64,
    start_ticks: u64,
    virtual_bytes: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name is in parentheses and may itself hold spaces and parentheses.
        let (before, after) = text.rsplit_once(')')?;
        let (_, name) = before.split_once('(')?;
        let fields: Vec<&str> = after.split_ascii_whitespace().collect();
        // Field numbers as in proc(5), where the first one after the name is number 3.
        let field = |number: usize| fields.get(number - 3)?.parse().ok();
        Some(Self {
            name: name.to_owned(),
            user_ticks: field(14)?,
            system_ticks: field(15)?,
            start_ticks: field(22)?,
            virtual_bytes: field(23)?,
        })
    }
}

/// User and system ticks, added up over the threads of each name.
fn thread_cpu_ticks() -> BTreeMap<String, (u64, u64)> {
    let mut by_name = BTreeMap::<String, (u64, u64)>::new();
    let tasks = fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten()
        .take(MAX_THREADS);
    for stat in tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok()) {
        if let Some(stat) = Stat::parse(&stat) {
            let ticks = by_name.entry(stat.name).or_default();
            ticks.0 += stat.user_ticks;
            ticks.1 += stat.system_ticks;
        }
    }
    by_name
}

/// Number of open file descriptors. Since Linux 6.2 that is the size of the folder; before, its entries are
/// counted.
fn open_fds() -> Option<u64> {
    match fs::metadata("/proc/self/fd").ok()?.len() {
        0 => Some(fs::read_dir("/proc/self/fd").ok()?.count() as u64 - 1),
        open => Some(open),
    }
}

/// `VmRSS` of `/proc/self/status`, in bytes.
fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Soft limit of `Max open files` in `/proc/self/limits`.
fn soft_nofile(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_ascii_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

/// When the machine started, in seconds since 1970.
fn boot_time_s() -> Option<u64> {
    let stat = BufReader::new(fs::File::open("/proc/stat").ok()?);
    stat.lines()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("btime ")?.parse().ok())
}

/// `AT_CLKTCK` of the auxiliary vector, which is what `sysconf(_SC_CLK_TCK)` returns, without a foreign
/// function.
fn clock_ticks_per_second() -> f64 {
    const AT_CLKTCK: usize = 17;
    let vector = fs::read("/proc/self/auxv").unwrap_or_default();
    let mut words = vector
        .chunks_exact(size_of::<usize>())
        .map(|word| word.try_into().map(usize::from_ne_bytes));
    while let (Some(Ok(kind)), Some(Ok(value))) = (words.next(), words.next()) {
        if kind == AT_CLKTCK {
            return value as f64;
        }
    }
    100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let text =
            "4242 (a) b (c) S 1 4242 4242 0 -1 4194304 1 0 0 0 731 269 0 0 20 0 5 0 8765 104857600 900 1\n";
        assert_eq!(
            Stat::parse(text),
            Some(Stat {
                name: "a) b (c".to_owned(),
                user_ticks: 731,
                system_ticks: 269,
                start_ticks: 8765,
                virtual_bytes: 104_857_600,
            })
        );
        assert_eq!(Stat::parse("4242 (x) S 1"), None);
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn limits_and_memory_are_found() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 524288               files\n";
        assert_eq!(soft_nofile(limits), Some(1024));
        assert_eq!(
            soft_nofile("Max open files            unlimited            unlimited            files"),
            Some(u64::MAX)
        );
        assert_eq!(
            resident_bytes("VmPeak:\t  10 kB\nVmRSS:\t    2048 kB\n"),
            Some(2_097_152)
        );
    }

    #[test]
    fn the_kernel_of_this_machine_is_understood() {
        assert!(
            Stat::parse(&fs::read_to_string("/proc/self/stat").unwrap())
                .unwrap()
                .virtual_bytes
                > 0
        );
        assert!(open_fds().unwrap() >= 3);
        assert!(boot_time_s().unwrap() > 1_500_000_000);
        assert!(clock_ticks_per_second() >= 1.0);
        assert!(!thread_cpu_ticks().is_empty());
    }
}
