//! The answer to a command that was noted, on its way to the client.

use crate::control::Control;
use crate::engine::observe::Observed;
use crate::engine::replay::kept::Replay;
use crate::engine::replay::sum::Summed;
use crate::engine::replay::why::Why;
use crate::relay::{Exchange, Exchanged, RelayOutcome, Streams};

/// The longest answer that is read again.
const ANSWER_MAX: usize = 1 << 20;

/// Errors by which a server may have rolled back a transaction: a deadlock, and a lock that was waited for
/// too long.
const ROLL_BACK: [u16; 2] = [1213, 1205];

/// Relays the answer to the command that was noted, and notes that.
pub(crate) async fn relay(
    observed: &mut Observed<'_>,
    replay: &mut Replay,
    control: &Control,
    streams: &mut Streams,
    request_done: bool,
) -> RelayOutcome {
    let sum = replay.sum(observed.server);
    let mut answer = Summed::new(observed, sum);
    let mut exchange = Exchange::new(&mut answer, control, request_done);
    exchange.look_again = !streams.down.is_empty();
    let ended = exchange.run(streams).await;
    if let Ok(Exchanged::Done(outcome)) = &ended.result {
        let sum = answer.sum.finish();
        match outcome.error {
            Some(code) if ROLL_BACK.contains(&code) => replay.leave(Why::RolledBack),
            _ => replay.is_answered(sum.filter(|_| answer.sum.bytes() <= ANSWER_MAX)),
        }
    }
    ended
}
