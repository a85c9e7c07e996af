//! Figures of CPU and memory in Prometheus' text format, as the node exporter and TiDB have them.

use std::time::Duration;

/// What one answer says. Sums over all processors, in seconds; bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Reading {
    /// Seconds of all processors of the machine, and those of them that were idle.
    machine: Option<(f64, f64)>,
    /// Seconds that TiDB has computed, and how many processors it may use.
    tidb: (Option<f64>, Option<f64>),
    memory_all: Option<f64>,
    memory_free: Option<f64>,
    tidb_resident: Option<f64>,
    tidb_quota: Option<f64>,
}

impl Reading {
    pub(crate) fn of(text: &[u8]) -> Self {
        let mut reading = Self::default();
        for line in text.split(|byte| *byte == b'\n') {
            if let Some((name, labels, value)) = std::str::from_utf8(line).ok().and_then(sample) {
                reading.note(name, labels, value);
            }
        }
        // An exporter says the same names of itself.
        if reading.tidb.1.is_none() {
            (reading.tidb.0, reading.tidb_resident) = (None, None);
        }
        reading
    }

    fn note(&mut self, name: &str, labels: &str, value: f64) {
        match name {
            "node_cpu_seconds_total" => {
                let (all, idle) = self.machine.get_or_insert_default();
                // Time of guests is in that of users as well; waiting for disks is idle.
                *all += value;
                if labels.contains("mode=\"idle\"") || labels.contains("mode=\"iowait\"") {
                    *idle += value;
                }
            }
            "node_memory_MemTotal_bytes" => self.memory_all = Some(value),
            "node_memory_MemAvailable_bytes" => self.memory_free = Some(value),
            "process_cpu_seconds_total" => self.tidb.0 = Some(value),
            "tidb_server_maxprocs" => self.tidb.1 = Some(value),
            "process_resident_memory_bytes" => self.tidb_resident = Some(value),
            "tidb_server_memory_quota_bytes" => self.tidb_quota = Some(value),
            _ => {}
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.machine.is_none() && self.tidb.1.is_none() && self.memory().is_none()
    }

    /// Thousandths of all processors that were in use since an earlier reading; `None` where it cannot be
    /// told, such as after a restart.
    pub(crate) fn cpu_since(&self, before: &Self, time: Duration) -> Option<u32> {
        let share = match (self.machine, before.machine, self.tidb, before.tidb.0) {
            (Some((all, idle)), Some((all_before, idle_before)), ..) => {
                let (all, idle) = (all - all_before, idle - idle_before);
                (all > 0.0 && idle >= 0.0).then(|| 1.0 - idle / all)?
            }
            (None, _, (Some(used), Some(processors)), Some(used_before)) => {
                let there = processors * time.as_secs_f64();
                (there > 0.0 && used >= used_before).then(|| (used - used_before) / there)?
            }
            _ => return None,
        };
        permille(share)
    }

    /// Thousandths of the memory that are in use.
    pub(crate) fn memory(&self) -> Option<u32> {
        let share = match (self.memory_all, self.memory_free) {
            (Some(all), Some(free)) if all > 0.0 => 1.0 - free / all,
            _ => match (self.tidb_resident, self.tidb_quota) {
                (Some(used), Some(quota)) if quota > 0.0 => used / quota,
                _ => return None,
            },
        };
        permille(share)
    }
}

fn permille(share: f64) -> Option<u32> {
    share.is_finite().then(|| (share.clamp(0.0, 1.0) * 1000.0) as u32)
}

/// `name{labels} value [time]`. Comments have no name.
fn sample(line: &str) -> Option<(&str, &str, f64)> {
    let wanted = ["node_cpu_", "node_memory_Mem", "process_", "tidb_server_m"];
    if !wanted.iter().any(|start| line.starts_with(start)) {
        return None;
    }
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let (labels, value) = match rest.strip_prefix('{') {
        Some(rest) => rest.rsplit_once('}')?,
        None => ("", rest),
    };
    let value = value.split_ascii_whitespace().next()?;
    Some((name, labels, value.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// As node_exporter 1.8 writes it.
    fn machine(idle: f64, user: f64, free: u64) -> Reading {
        Reading::of(
            format!(
                "# HELP node_cpu_seconds_total Seconds the CPUs spent in each mode.\n\
                 # TYPE node_cpu_seconds_total counter\n\
                 node_cpu_seconds_total{{cpu=\"0\",mode=\"idle\"}} {idle}\n\
                 node_cpu_seconds_total{{cpu=\"0\",mode=\"iowait\"}} 1\n\
                 node_cpu_seconds_total{{cpu=\"0\",mode=\"user\"}} {user}\n\
                 node_memory_MemTotal_bytes 1.6e+10\n\
                 node_memory_MemAvailable_bytes {free}\n\
                 process_cpu_seconds_total 7\n\
                 process_resident_memory_bytes 2e7\n"
            )
            .as_bytes(),
        )
    }

    #[test]
    fn a_node_exporter_tells_of_its_machine() {
        let (before, after) = (
            machine(10.0, 5.0, 4_000_000_000),
            machine(10.25, 5.75, 4_000_000_000),
        );
        assert_eq!(after.cpu_since(&before, SECOND), Some(750));
        assert_eq!(after.memory(), Some(750));
        assert_eq!(
            before.cpu_since(&after, SECOND),
            None,
            "the machine was restarted"
        );
        assert_eq!(after.cpu_since(&after, SECOND), None, "no time has passed");
        assert_eq!(after.cpu_since(&Reading::default(), SECOND), None);
    }

    #[test]
    fn tidb_tells_of_itself() {
        let text = |used: f64| {
            Reading::of(
                format!(
                    "process_cpu_seconds_total {used}\nprocess_resident_memory_bytes 6e+09\n\
                     tidb_server_maxprocs 4\ntidb_server_memory_quota_bytes 8e+09\n"
                )
                .as_bytes(),
            )
        };
        assert_eq!(text(12.0).cpu_since(&text(10.0), SECOND), Some(500));
        assert_eq!(text(12.0).memory(), Some(750));
        assert_eq!(text(1.0).cpu_since(&text(10.0), SECOND), None);
    }

    #[test]
    fn what_is_neither_says_nothing() {
        let texts: [&[u8]; 5] = [
            b"",
            b"<html>\n",
            b"process_cpu_seconds_total 7\nprocess_resident_memory_bytes 2e7\n",
            b"node_cpu_seconds_total{mode=\"idle\" 7\nnode_memory_MemTotal_bytes\nnode_cpu_seconds_total{} x",
            b"\xff\xfe\nnode_memory_MemTotal_bytes 0\nnode_memory_MemAvailable_bytes 0\n",
        ];
        for text in texts {
            let reading = Reading::of(text);
            assert!(reading.is_empty(), "{reading:?}");
            assert_eq!(reading.memory(), None);
            assert_eq!(reading.cpu_since(&reading, SECOND), None);
        }
    }
}
