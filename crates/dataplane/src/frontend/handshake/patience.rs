//! How long servers that take a connection may keep one client waiting for their greeting, one after the
//! other.

use std::time::Duration;

/// The first server has `login_timeout`, as any server has. Once that is used up, all others share as much
/// once more. The client therefore hears within twice the time that no server greets, however many there are.
pub(crate) struct Patience {
    limit: Duration,
    waited: Duration,
}

impl Patience {
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            limit,
            waited: Duration::ZERO,
        }
    }

    /// The time for the next server, one of `untried`.
    pub(crate) fn next(&self, untried: usize) -> Duration {
        let left = (2 * self.limit).saturating_sub(self.waited);
        match self.waited < self.limit {
            true => self.limit,
            false => left / u32::try_from(untried.max(1)).unwrap_or(u32::MAX),
        }
    }

    /// Notes for how long a server was waited for in vain.
    pub(crate) fn waited(&mut self, time: Duration) {
        self.waited += time;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(6);

    #[test]
    fn all_servers_together_have_twice_the_time_of_one() {
        let mut patience = Patience::new(LIMIT);
        let times: Vec<u64> = (1..=4)
            .rev()
            .map(|untried| {
                let next = patience.next(untried);
                patience.waited(next);
                next.as_secs()
            })
            .collect();
        assert_eq!(times, [6, 2, 2, 2]);
    }

    #[test]
    fn a_server_that_says_no_at_once_takes_no_time_from_others() {
        let mut patience = Patience::new(LIMIT);
        patience.waited(Duration::from_millis(3));
        assert_eq!(patience.next(2), LIMIT);
    }
}
