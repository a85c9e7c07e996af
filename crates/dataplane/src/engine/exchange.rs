//! A command goes over the leased connection, and its answer to the client.

use std::time::{Duration, Instant};

use mysql_wire::Command;

use crate::engine::observe::Observed;
use crate::engine::prepared::Renaming;
use crate::engine::rules::TimeLimit;
use crate::engine::state::Split;
use crate::engine::{anywhere, last, lookup, stall, told};
use crate::relay::{Exchange, RelayOutcome};

/// Sends the command that the client sent, or that was put in its place, and relays the answer.
pub(crate) fn exchange<'a>(
    split: &'a mut Split,
    command: Command,
    renaming: Option<&'a mut Renaming>,
) -> impl Future<Output = RelayOutcome> + 'a {
    exchange_since(split, command, renaming, || None)
}

/// Relays an answer that is there already, to a command that was sent then.
pub(crate) async fn exchange_arrived(split: &mut Split, command: Command, since: Instant) -> RelayOutcome {
    split.statement.is_ours = true;
    exchange_since(split, command, None, || Some(since)).await
}

/// `arrived`: when the command was sent whose answer is there already. A function, since every session has
/// room for it.
async fn exchange_since(
    split: &mut Split,
    command: Command,
    renaming: Option<&mut Renaming>,
    arrived: impl Fn() -> Option<Instant>,
) -> RelayOutcome {
    if let Err(broken) = split.streams.begin_command() {
        return RelayOutcome {
            result: Err(broken),
            error_sequence: None,
            request_done: false,
            said: 0,
            client_at_end: false,
            took: Duration::ZERO,
        };
    }
    stall::renew(split);
    split
        .control
        .record
        .note_sent(|| arrived().unwrap_or_else(Instant::now));
    last::note_sent(split, command);
    split.answer.shape.begin(command, split.lasting_status());
    let (cursor, infile) = (split.statement.asks_for_cursor, split.statement.may_load_file);
    split.answer.shape.allow(cursor, infile);
    if split.statement.executes_call {
        split.answer.shape.expect_more();
    }
    // What the gateway says instead is one packet and waits in the flow.
    let request_done = std::mem::take(&mut split.statement.is_ours);
    let limit = TimeLimit::begin(split);
    lookup::note_sent(split, command);
    let on_primary = split.lease.as_ref().is_some_and(|leased| leased.is_primary);
    let can_move = split.statement.copy.is_some() && anywhere::can_move(split, on_primary);
    let mut observed = Observed {
        shape: &mut split.answer.shape,
        session: &mut split.session,
        client: split.client.capabilities,
        server: split.client.key.capabilities,
        renaming,
        may_go_elsewhere: split.statement.may_go_elsewhere,
        is_second_hand: split.control.of_split.asks_primary.get() && !on_primary,
        took_no_writes: None,
        limit: limit.as_ref(),
        recorder: lookup::recorder(&mut split.lookups, on_primary),
        reported: false,
        told: None,
    };
    split.control.can_move(can_move);
    let exchange = match arrived() {
        None => {
            let mut exchange = Exchange::new(&mut observed, &split.control, request_done);
            exchange.look_again = !split.streams.down.is_empty();
            exchange
        }
        Some(since) => Exchange::of_whole_answer(&mut observed, &split.control, since),
    };
    let ended = exchange.run(&mut split.streams).await;
    split.control.can_move(false);
    let (reported, refusal) = (observed.reported, observed.took_no_writes.take());
    let told = observed.told.take();
    split.note_refusal(refusal);
    told::renew(split, &ended, told);
    if arrived().is_none()
        && let Some(number) = split.statement.number
    {
        split
            .context
            .cluster
            .pipelines
            .note_alone(number, &ended, reported);
    }
    if let Some(leased) = &split.lease
        && split.context.cluster.by_latency.get()
    {
        split
            .context
            .cluster
            .note_answer(leased.connection.server.id(), ended.took);
    }
    if let Some(limit) = limit {
        limit.end().await;
    }
    ended
}
