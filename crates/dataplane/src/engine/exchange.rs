//! A command goes over the leased connection, and its answer to the client.

use std::time::{Duration, Instant};

use mysql_wire::Command;

use crate::control::Control;
use crate::engine::client_session::{ClientSession, Context};
use crate::engine::leased::LeasedConnection;
use crate::engine::observe::Observed;
use crate::engine::prepared::Renaming;
use crate::engine::replay::noted;
use crate::engine::rules::TimeLimit;
use crate::engine::{anywhere, last_statement, lookup, stashed_error};
use crate::forwarded::process_list::{Numbers, Translated};
use crate::relay::{Exchange, RelayOutcome, Streams};

/// Sends the command that the client sent, or that was put in its place, and relays the answer.
pub(crate) fn exchange<'a>(
    session: &'a mut ClientSession,
    command: Command,
    renaming: Option<&'a mut Renaming>,
) -> impl Future<Output = RelayOutcome> + 'a {
    exchange_since(session, command, renaming, || None)
}

/// Relays an answer that is there already, to a command that was sent at `since`.
pub(crate) async fn exchange_arrived(
    session: &mut ClientSession,
    command: Command,
    since: Instant,
) -> RelayOutcome {
    session.statement.is_ours = true;
    exchange_since(session, command, None, || Some(since)).await
}

/// Sends a command and relays the answer. `arrived`: when the command was sent, if its answer is there
/// already; a function, since every session has room for it.
async fn exchange_since(
    session: &mut ClientSession,
    command: Command,
    renaming: Option<&mut Renaming>,
    arrived: impl Fn() -> Option<Instant>,
) -> RelayOutcome {
    if let Err(broken) = session.streams.begin_command() {
        return RelayOutcome {
            result: Err(broken),
            error_sequence: None,
            request_done: false,
            said: 0,
            client_at_end: false,
            took: Duration::ZERO,
        };
    }
    session
        .control
        .record
        .note_sent(|| arrived().unwrap_or_else(Instant::now));
    last_statement::note_sent(session, command);
    session.answer.shape.begin(command, session.lasting_status());
    let (cursor, infile) = (session.statement.asks_for_cursor, session.statement.may_load_file);
    session.answer.shape.allow(cursor, infile);
    if session.statement.executes_call {
        session.answer.shape.expect_more();
    }
    // A command of the gateway's own is one packet and waits in the flow.
    let request_done = session.statement.is_ours;
    let limit = TimeLimit::begin(session);
    lookup::note_sent(session, command);
    let on_primary = session.lease.as_ref().is_some_and(|leased| leased.is_primary);
    let can_move = session.statement.copy.is_some()
        && !session.binding.is_own()
        && anywhere::can_move(session, on_primary);
    let mut observed = Observed {
        shape: &mut session.answer.shape,
        session: &mut session.state,
        client: session.client.capabilities,
        server: session.client.key.capabilities,
        renaming,
        may_go_elsewhere: session.statement.may_go_elsewhere,
        is_second_hand: session.statement.asks_primary && !on_primary,
        took_no_writes: None,
        limit: limit.as_ref(),
        recorder: lookup::recorder(&mut session.lookups, on_primary),
        reported: false,
        error: None,
    };
    session.control.can_move(can_move);
    let ended = match session.statement.lists_processes {
        // Boxed: few sessions ask for a list.
        true => {
            let numbers = numbers(&session.context, session.lease.as_ref(), session.control.id);
            let streams = &mut session.streams;
            Box::pin(list(
                &mut observed,
                numbers,
                &session.control,
                streams,
                request_done,
            ))
            .await
        }
        false
            if let Some(replay) = &mut session.replay
                && replay.has_command()
                && arrived().is_none() =>
        {
            let (control, streams) = (&session.control, &mut session.streams);
            Box::pin(noted::relay(
                &mut observed,
                replay,
                control,
                streams,
                request_done,
            ))
            .await
        }
        false => {
            let exchange = match arrived() {
                None => {
                    let mut exchange = Exchange::new(&mut observed, &session.control, request_done);
                    exchange.look_again = !session.streams.down.is_empty();
                    exchange
                }
                Some(since) => Exchange::of_whole_answer(&mut observed, &session.control, since),
            };
            exchange.run(&mut session.streams).await
        }
    };
    session.control.can_move(false);
    let (reported, refusal) = (observed.reported, observed.took_no_writes.take());
    let error = observed.error.take();
    session.statement.took_no_writes = refusal.is_some();
    if let Some(refusal) = refusal {
        *session.context.cluster.refusal.borrow_mut() = String::from_utf8_lossy(&refusal.message).into();
    }
    stashed_error::renew(&mut session.last.error, &session.state, &ended, error);
    let cluster = &session.context.cluster;
    if arrived().is_none()
        && let Some(number) = session.statement.number
    {
        cluster.pipelines.quick.note_alone(number, &ended, reported);
    }
    if let Some(leased) = &session.lease
        && cluster.by_latency.get()
    {
        cluster.note_answer(leased.connection.server.id(), ended.took);
    }
    if let Some(limit) = limit {
        limit.end(&session.control).await;
    }
    ended
}

/// Relays a list of processes.
async fn list(
    observed: &mut Observed<'_>,
    numbers: Numbers,
    control: &Control,
    streams: &mut Streams,
    request_done: bool,
) -> RelayOutcome {
    let client = observed.client;
    let mut answer = Translated::new(observed, numbers, client);
    let mut exchange = Exchange::new(&mut answer, control, request_done);
    exchange.look_again = !streams.down.is_empty();
    exchange.run(streams).await
}

/// The connection ids that clients know, by those that the server lists.
fn numbers(context: &Context, leased: Option<&LeasedConnection>, own: u32) -> Numbers {
    let Some(leased) = leased else {
        return Numbers::new();
    };
    let server = context.listener.key(&leased.connection.server);
    let mut numbers = context.worker.shared.registry.numbers_on(server);
    numbers.insert(leased.connection.thread_id, own);
    numbers
}
