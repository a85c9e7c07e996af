//! What the process may have of memory, and when it has nearly all of it.
//!
//! Looked at once a second on the control thread: no query waits for it. It is the resident memory of this
//! process that counts, not what its cgroup has: the page cache of others there, which the kernel takes back
//! before it ends anybody, must not turn clients away. The tenth that is left is for what the kernel holds
//! for sockets, which is not resident anywhere.

/// Percent of the limit from where on memory is short, and below which it is short no longer: then no client
/// is taken.
const SHORT: (u64, u64) = (90, 85);

/// The same for where the cache takes no more rows, and gives some back: so it alone keeps out no client.
const TIGHT: (u64, u64) = (80, 75);

/// Where the kernel shows cgroups.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Version 1 of cgroups writes about so much where there is no limit.
const NO_LIMIT: u64 = 1 << 60;

/// Whether memory is short, and what was seen last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) is_short: bool,
    /// It is about to become so.
    pub(crate) is_tight: bool,
    pub(crate) used: u64,
    pub(crate) max: Option<u64>,
}

impl Memory {
    /// What comes of another look.
    pub(crate) fn looked(self, used: u64, max: Option<u64>) -> Self {
        let is_above = |was: bool, (from, until): (u64, u64)| {
            let percent = u128::from(if was { until } else { from });
            max.is_some_and(|max| u128::from(used) * 100 >= u128::from(max) * percent)
        };
        Self {
            is_short: is_above(self.is_short, SHORT),
            is_tight: is_above(self.is_tight, TIGHT),
            used,
            max,
        }
    }

    /// Why no client is to come, where that is so.
    pub(crate) fn reason(self) -> Option<String> {
        let max = self.max.filter(|_| self.is_short)?;
        Some(format!(
            "short of memory: {} MiB of {} (memory_max); clients are served again below {} %",
            self.used >> 20,
            max >> 20,
            SHORT.1
        ))
    }
}

/// The limit of this process's cgroup, or of one around it.
pub(crate) fn of_cgroup() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    smallest(&read("/proc/self/cgroup")?, read)
}

/// The smallest limit of the cgroups that `/proc/self/cgroup` names, and of those around them. In a container
/// of version 1 the path is one of the host, and only its root is to be seen.
fn smallest(cgroups: &str, read: impl Fn(&str) -> Option<String>) -> Option<u64> {
    let limits = cgroups.lines().flat_map(|line| {
        let (controllers, path) = line
            .split_once(':')
            .and_then(|(_, rest)| rest.split_once(':'))
            .unwrap_or(("none", ""));
        let (root, file) = match controllers {
            "" => (CGROUPS.to_owned(), "memory.max"),
            _ => (format!("{CGROUPS}/memory"), "memory.limit_in_bytes"),
        };
        let is_for_memory = controllers.is_empty() || controllers.split(',').any(|name| name == "memory");
        let around = std::path::Path::new(path)
            .ancestors()
            .filter(move |_| is_for_memory);
        around
            .filter_map(|path| path.to_str())
            .map(|path| format!("{root}/{}/{file}", path.trim_matches('/')))
            .collect::<Vec<_>>()
    });
    let limits = limits.filter_map(|path| read(&path)?.trim().parse::<u64>().ok());
    limits.filter(|limit| *limit < NO_LIMIT).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_short_from_nine_tenths_on_and_enough_below_85_percent() {
        let looks = [
            (899, false),
            (900, true),
            (870, true),
            (850, true),
            (849, false),
            (899, false),
        ];
        let mut memory = Memory::default();
        for (used, is_short) in looks {
            memory = memory.looked(used, Some(1000));
            assert_eq!(memory.is_short, is_short, "{used}");
            assert_eq!(memory.reason().is_some(), is_short);
        }
        let short = memory.looked(u64::MAX, Some(1000));
        assert!(short.is_short && !short.looked(u64::MAX, None).is_short);
        memory = Memory::default();
        for (used, is_tight) in [(799, false), (800, true), (750, true), (749, false)] {
            memory = memory.looked(used, Some(1000));
            assert_eq!((memory.is_tight, memory.is_short), (is_tight, false), "{used}");
        }
        let reason = memory.looked(95 << 20, Some(100 << 20)).reason().unwrap();
        assert!(reason.starts_with("short of memory: 95 MiB of 100 "), "{reason}");
    }

    #[test]
    fn the_smallest_limit_of_cgroups_around_counts() {
        let read = |path: &str| {
            let text = match path {
                "/sys/fs/cgroup/pod/box/memory.max" => "max\n",
                "/sys/fs/cgroup/pod/memory.max" => "1073741824\n",
                "/sys/fs/cgroup//memory.max" => "2147483648\n",
                "/sys/fs/cgroup/memory//memory.limit_in_bytes" => "536870912\n",
                "/sys/fs/cgroup/memory/pod/memory.limit_in_bytes" => "9223372036854771712\n",
                _ => return None,
            };
            Some(text.to_owned())
        };
        let smallest = |cgroups| smallest(cgroups, read);
        assert_eq!(smallest("0::/pod/box\n"), Some(1 << 30));
        assert_eq!(smallest("0::/\n"), Some(2 << 30));
        assert_eq!(smallest("4:memory:/pod/not/seen\n1:cpu:/\n"), Some(512 << 20));
        assert_eq!(smallest("1:cpu,cpuacct:/pod\n"), None);
        assert_eq!(smallest("nonsense\n\n"), None);
        assert_eq!(smallest(""), None);
    }
}
