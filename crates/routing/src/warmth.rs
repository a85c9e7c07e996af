//! Slow start: a server that has just come up has cold caches and takes its share of new sessions step by
//! step.

use std::time::Duration;

/// The warmth of a server that takes its whole share.
pub const WARM: u32 = 1000;

/// How warm a server is that came up `up_for` ago, in thousandths: rises evenly over `slow_start`, and is at
/// least 1 so that the first sessions can warm it.
#[must_use]
pub fn warmth_permille(up_for: Duration, slow_start: Duration) -> u32 {
    if up_for >= slow_start {
        return WARM;
    }
    let permille = up_for.as_nanos() * u128::from(WARM) / slow_start.as_nanos();
    u32::try_from(permille).unwrap_or(WARM).clamp(1, WARM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rises_evenly() {
        let seconds = Duration::from_secs;
        assert_eq!(warmth_permille(seconds(0), seconds(10)), 1);
        assert_eq!(warmth_permille(seconds(1), seconds(10)), 100);
        assert_eq!(warmth_permille(Duration::from_millis(9_999), seconds(10)), 999);
        assert_eq!(warmth_permille(seconds(10), seconds(10)), WARM);
    }

    #[test]
    fn without_slow_start_a_server_is_warm_at_once() {
        assert_eq!(warmth_permille(Duration::ZERO, Duration::ZERO), WARM);
    }
}
