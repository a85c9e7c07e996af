//! `max_concurrency` and `rate`: a statement waits for its turns, for a limited time.
//!
//! All workers share the limits, and none of them tells another that a turn has come free: a statement that
//! waits looks again. Waiting statements are therefore not served in order.

use std::time::Duration;

use routing::rules::{Turn, Verdict, Wait};
use tokio::time::Instant;

use crate::engine::client_session::{ClientSession, Refused};
use crate::error::SessionError;

/// Time until a statement looks again whether one of those before it has ended: the first time, and the
/// longest.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LONGEST_LOOK: Duration = Duration::from_millis(20);

/// The turns that the statement needs, which end when they are dropped.
pub(super) async fn take(session: &ClientSession, verdict: &Verdict) -> Result<Vec<Turn>, Refused> {
    let deadline = Instant::now() + verdict.limit_wait;
    let mut turns = Vec::with_capacity(verdict.limits.len());
    for (index, limit) in verdict.limits.iter().enumerate() {
        let mut look = FIRST_LOOK;
        loop {
            let wait = match limit.turn(session.context.worker.shared.nanoseconds()) {
                Ok(turn) => {
                    turns.push(turn);
                    break;
                }
                Err(wait) => wait,
            };
            let left = deadline.saturating_duration_since(Instant::now());
            let (time, word) = match wait {
                Wait::Concurrency => (look.min(left), "max_concurrency"),
                Wait::Rate(time) => (time, "rate"),
            };
            if left.is_zero() || time > left {
                return Err(Refused(SessionError::RuleLimit {
                    rule: session.rules.rules.name_of_limit(verdict, index).to_owned(),
                    limit: word,
                }));
            }
            super::wait(session, time).await?;
            look = (look * 2).min(LONGEST_LOOK);
        }
    }
    Ok(turns)
}
