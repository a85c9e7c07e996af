//! THE LOOP of a session in mode `split`: one command after the other. All branching of the command phase is
//! here.

use std::convert::Infallible;
use std::pin::Pin;
use std::time::{Duration, Instant};

use mysql_wire::{Command, StatusFlags};
use session::Request;
use sql_class::{Class, Effects, Facts};

use crate::control::Signal;
use crate::error::SessionError;
use crate::relay::{self, Broken, Ended, Exchange, Exchanged};
use crate::session::CommandHead;
use crate::split::choose::{self, Target};
use crate::split::command;
use crate::split::lease::Now;
use crate::split::lookup::Looked;
use crate::split::observe::Observed;
use crate::split::prepared::Renaming;
use crate::split::prepared::{execute, prepare};
use crate::split::rules::TimeLimit;
use crate::split::state::{Refused, Split};
use crate::split::step::Step;
use crate::split::{
    again, answer, anywhere, arm, explain, kill, last, lease, login, lookup, note, old_primary, pipeline,
    pipelined_setup, reset, rules, stall, told, transaction,
};

/// Serves commands until the session ends, and says why it ended.
pub(crate) async fn run(split: &mut Split) -> Result<Infallible, SessionError> {
    loop {
        let head = command::accept(split).await?;
        split.commands += 1;
        split.statement = split.statement.next();
        split.control.of_split.asks_primary.set(false);
        split.worker.metrics.commands[usize::from(head.command.0)].inc();
        if split.told.is_some() && !Box::pin(told::bring_back(split, head)).await? {
            continue;
        }
        let step = match head.command {
            Command::QUERY => query(split, head),
            Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE => execute::execute(split, head),
            _ => {
                rare_command(split, head).await?;
                continue;
            }
        };
        if step.ready_to_relay().await? {
            relay(split, head.command).await?;
        }
    }
}

/// Commands but statements.
fn rare_command<'a>(
    split: &'a mut Split,
    head: CommandHead,
) -> Pin<Box<dyn Future<Output = Result<(), SessionError>> + 'a>> {
    Box::pin(async move {
        match head.command {
            Command::STMT_PREPARE => prepare::prepare(split, head).await,
            Command::STMT_CLOSE => execute::close(split, head).await,
            Command::STMT_RESET => execute::reset(split, head).await,
            Command::STMT_FETCH | Command::STMT_SEND_LONG_DATA => execute::go_on(split, head).await,
            Command::PING if split.lease.is_none() || transaction::is_on_replica(split) => {
                answer::ok(split).await
            }
            Command::QUIT => Err(SessionError::ClientQuit),
            Command::RESET_CONNECTION => reset::connection(split, head).await,
            Command::CHANGE_USER => login::change_user(split, head).await,
            Command::PROCESS_KILL => kill::process_kill(split, head).await,
            _ => elsewhere(split, head).await,
        }
    })
}

/// Commands by which a replica or a reader of the binary log begins: they belong together on one connection.
fn is_replication(command: Command) -> bool {
    command.starts_stream() || command == Command::REGISTER_SLAVE
}

/// COM_QUERY.
fn query(split: &mut Split, head: CommandHead) -> Step<'_> {
    let payload = command::payload_of(&split.wires.up, head);
    if let Some(text) = command::text(payload, split.capabilities) {
        split.control.shown.text(text, split.session.syntax());
    }
    if split.lookups.is_some() {
        match lookup::query(split, head) {
            Looked::Answered => return Step::Done,
            Looked::GoesOn => return Step::to_the_end(lookup::go_on(split, head, None)),
            Looked::Elsewhere => {}
        }
    }
    let facts = command::facts(split, head);
    if note::concerns(split, head) {
        return Step::to_the_end(note::query(split, head, facts));
    }
    if rules::concern(split) {
        return Step::to_the_end(rules::query(split, head, facts));
    }
    split.statement.number = pipeline::number(split, &facts);
    usual_query(split, head, facts)
}

/// COM_QUERY, about which everything is said that rules have to say.
pub(crate) async fn plain_query(
    split: &mut Split,
    head: CommandHead,
    facts: Facts,
) -> Result<(), SessionError> {
    if usual_query(split, head, facts).ready_to_relay().await? {
        relay(split, head.command).await?;
    }
    Ok(())
}

/// The same, up to the command itself.
fn usual_query(split: &mut Split, head: CommandHead, facts: Facts) -> Step<'_> {
    if split.lease.is_some()
        && (transaction::is_ended_by(split, &facts)
            || old_primary::is_left(split, &facts)
            || let_go(split, head, Some(&facts), None))
    {
        return Step::to_the_end(transaction::query_elsewhere(split, head, facts));
    }
    if facts.effects.intersects(RARE) {
        return Step::to_the_end(rare_query(split, head, facts));
    }
    if transaction::begins(split, head, &facts) {
        return Step::Wait(Box::pin(transaction::begin_on_replica(split, head, facts)));
    }
    let target = transaction::end(split, head, &facts)
        .or_else(|| anywhere::target(split, head, &facts))
        .unwrap_or_else(|| choose::target(split, &facts));
    again::keep_to_send_again(split, head, &facts);
    if target == Target::Anywhere {
        again::keep_for_any(split, head);
    }
    match lease::at_once(split, &target) {
        Now::Leased if needs_no_priming(split, &facts) => {
            begin(split, head, Some(&facts));
            Step::Relay
        }
        Now::Wait(Some(on)) if pipeline::takes(split, &on.0) => {
            Step::Wait(Box::pin(pipeline::query(split, head, facts, on, target)))
        }
        now => Step::Wait(Box::pin(pipelined_setup::lease_and_begin(
            split, head, facts, target, now,
        ))),
    }
}

/// Nothing has to be so on the connection before the statement.
pub(crate) fn needs_no_priming(split: &Split, facts: &Facts) -> bool {
    let is_plain = facts.effects == Effects::NONE && facts.class != Class::Unknown;
    let several = facts.statements > 1 && facts.class >= Class::Write;
    let one_more = facts.class == Class::Write && split.session.has_many_insert_ids();
    is_plain && !several && !one_more
}

/// Relays a command that is ready for it, and its answer.
pub(crate) async fn relay(split: &mut Split, command: Command) -> Result<(), SessionError> {
    let ended = exchange(split, command, None).await;
    settle(split, ended).await
}

/// What needs more than a server: see [`rare_query`].
const RARE: Effects = Effects::GATEWAY
    .with(Effects::KILL)
    .with(Effects::READS_LAST_INSERT_ID)
    .with(Effects::READS_ROW_COUNT)
    .with(Effects::READS_FOUND_ROWS)
    .with(Effects::READS_CONNECTION_ID)
    .with(Effects::READS_LAST_GTID);

/// Statements for the gateway itself, and those that read what the last statement left on its connection,
/// which may be somebody else's by now.
async fn rare_query(split: &mut Split, head: CommandHead, facts: Facts) -> Result<(), SessionError> {
    if facts.effects.contains(Effects::GATEWAY) {
        return explain::statement(split, head).await;
    }
    if facts.effects.contains(Effects::KILL)
        && let Some(kill) = command::kill(split, head)
    {
        return kill::statement(split, head, kill, &facts).await;
    }
    let target = choose::target(split, &facts);
    if let Err(refused) = lease::lease(split, &target).await {
        return answer::refuse(split, refused).await;
    }
    if let Err(refused) = last::bring_about(split, head, &facts, None).await {
        return last::give_up(split, refused).await;
    }
    begin(split, head, Some(&facts));
    last::put_values(split, head, &facts, lease::left(split));
    let ended = exchange(split, head.command, None).await;
    settle(split, ended).await
}

/// A statement as it is, on the primary.
pub(crate) async fn on_primary(
    split: &mut Split,
    head: CommandHead,
    facts: &Facts,
) -> Result<(), SessionError> {
    let target = Target::Primary { for_writing: true };
    let now = lease::at_once(split, &target);
    if pipelined_setup::lease_and_begin(split, head, facts.clone(), target, now).await? {
        relay(split, head.command).await?;
    }
    Ok(())
}

/// Gives back a connection that is held only for warnings that nobody asks for. True where it is to be
/// [asked](last::learn_insert_id) first.
pub(crate) fn let_go(
    split: &mut Split,
    head: CommandHead,
    facts: Option<&Facts>,
    prepared: Option<(u32, u64)>,
) -> bool {
    if split.lease.is_none() || split.keeps_connection || !split.session.is_pinned() {
        return false;
    }
    let needs = with_statement(split, head, facts, prepared, |session, statement| {
        session.needs_its_connection(statement)
    });
    let is_to_be_asked = !needs && !split.session.knows_last_insert_id();
    let leaves = needs && lease::may_leave_replica(split);
    let leaves = leaves && facts.is_some_and(|facts| rules::binds_for_long(split, facts));
    let is_to_be_asked = is_to_be_asked || leaves && last::has_count_alone(split);
    if !is_to_be_asked && (!needs || leaves) {
        lease::give_back(split);
    }
    is_to_be_asked
}

/// Tells the session what is about to be sent.
pub(crate) fn begin(split: &mut Split, head: CommandHead, facts: Option<&Facts>) {
    split.statement.may_load_file = facts.is_some_and(|facts| command::may_load_file(split, facts));
    with_statement(split, head, facts, None, |session, statement| {
        session.begin(statement)
    });
}

/// Asks or tells the session something about a command. `prepared`: the id and the digest of the statement
/// that it executes.
pub(crate) fn with_statement<T>(
    split: &mut Split,
    head: CommandHead,
    facts: Option<&Facts>,
    prepared: Option<(u32, u64)>,
    tell: impl FnOnce(&mut session::Session, &Request<'_>) -> T,
) -> T {
    let overlooked = facts.and_then(|facts| rules::overlooked(split, facts));
    let facts = overlooked.as_ref().or(facts);
    let syntax = split.session.syntax();
    let payload = command::payload_of(&split.wires.up, head);
    let text = match head.command {
        Command::QUERY => command::text(payload, split.capabilities).unwrap_or_default(),
        _ => &[],
    };
    let (argument, digest) = prepared.unwrap_or_else(|| {
        let option = match (head.command, payload) {
            (Command::SET_OPTION, [_, low, high, ..]) => u32::from(u16::from_le_bytes([*low, *high])),
            // MariaDB finds a zero behind the end of the packet.
            (Command::SET_OPTION, [_, low]) => u32::from(*low),
            _ => 0,
        };
        // A plain read pins nothing: no digest is made of it.
        let plain = facts.is_none_or(|facts| facts.effects == Effects::NONE && facts.class == Class::Read);
        let digest = if plain {
            0
        } else {
            sql_class::digest(text, syntax).hash
        };
        (option, digest)
    });
    let statement = Request {
        command: head.command,
        facts,
        argument,
        digest,
        text,
        now_ms: split.worker.now_ms(),
    };
    tell(&mut split.session, &statement)
}

/// Sends the command that the client sent, or that was put in its place, and relays the answer.
pub(crate) fn exchange<'a>(
    split: &'a mut Split,
    command: Command,
    renaming: Option<&'a mut Renaming>,
) -> impl Future<Output = Ended> + 'a {
    exchange_since(split, command, renaming, || None)
}

/// Relays an answer that is there already, to a command that was sent then.
pub(crate) async fn exchange_arrived(split: &mut Split, command: Command, since: Instant) -> Ended {
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
) -> Ended {
    if let Err(broken) = split.wires.begin_command() {
        return Ended {
            result: Err(broken),
            error_sequence: None,
            request_done: false,
            said: 0,
            client_at_end: false,
            took: Duration::ZERO,
        };
    }
    stall::renew(split);
    last::note_sent(split, command);
    split.shape.begin(command, split.lasting_status());
    let (cursor, infile) = (split.statement.asks_for_cursor, split.statement.may_load_file);
    split.shape.allow(cursor, infile);
    if split.statement.executes_call {
        split.shape.expect_more();
    }
    // What the gateway says instead is one packet and waits in the flow.
    let request_done = std::mem::take(&mut split.statement.is_ours);
    let limit = TimeLimit::begin(split);
    lookup::note_sent(split, command);
    let on_primary = split.lease.as_ref().is_some_and(|leased| leased.is_primary);
    let can_move = split.statement.copy.is_some() && anywhere::can_move(split, on_primary);
    let mut observed = Observed {
        shape: &mut split.shape,
        session: &mut split.session,
        client: split.capabilities,
        server: split.key.capabilities,
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
            exchange.look_again = !split.wires.down.is_empty();
            exchange
        }
        Some(since) => Exchange::of_whole_answer(&mut observed, &split.control, since),
    };
    let ended = exchange.run_to_end(&mut split.wires).await;
    split.control.can_move(false);
    let (reported, refusal) = (observed.reported, observed.took_no_writes.take());
    let told = observed.told.take();
    split.note_refusal(refusal);
    told::renew(split, &ended, told);
    if arrived().is_none()
        && let Some(number) = split.statement.number
    {
        pipeline::note_alone(split, number, &ended, reported);
    }
    if let Some(leased) = &split.lease
        && split.shared.by_latency.get()
    {
        split
            .shared
            .note_answer(leased.connection.server.id(), ended.took);
    }
    if let Some(limit) = limit {
        limit.end().await;
    }
    ended
}

/// What a command leaves behind: the session's state, and whose the server connection is now.
pub(crate) async fn settle(split: &mut Split, ended: Ended) -> Result<(), SessionError> {
    if ended.client_at_end && ended.result.is_ok() {
        return Err(SessionError::ClientGone);
    }
    match ended.result {
        Ok(Exchanged::Done(outcome)) if split.statement.took_no_writes => {
            split.session.end(&outcome);
            match split.control.of_split.asks_primary.get() {
                true => Box::pin(anywhere::ask_primary(split)).await,
                false => Box::pin(again::go_elsewhere(split)).await,
            }
        }
        Ok(Exchanged::Done(outcome)) => {
            let sent = split.statement.copy.take();
            if outcome.has_status {
                split.status = outcome.status;
            } else if outcome.error.is_some() && !split.session.in_transaction() {
                split.status.remove(StatusFlags::IN_TRANS);
            }
            if let Some(code) = outcome.error {
                split.worker.metrics.error_passed_on(code);
                old_primary::note_error(split, code);
            }
            split.session.end(&outcome);
            last::note_answered(split, &outcome);
            split.note_written();
            last::note_made(split, &outcome, sent.as_deref());
            release(split).await
        }
        // The session knows of it, and there is no answer that could end it.
        Ok(Exchanged::Sent) => release(split).await,
        Ok(Exchanged::Streaming) => Box::pin(stream(split)).await,
        Err(broken) => {
            // Nobody knows what has become of a write.
            let may_send_again = split.statement.leaves_nothing && ended.request_done && ended.said == 0;
            let again = split.statement.copy.take().filter(|_| may_send_again);
            Box::pin(lost(
                split,
                broken,
                ended.error_sequence,
                ended.request_done,
                again,
            ))
            .await
        }
    }
}

/// Gives the connection back, unless the session needs it on.
async fn release(split: &mut Split) -> Result<(), SessionError> {
    if last::is_in_doubt(split) {
        Box::pin(last::learn_insert_id(split)).await;
    }
    rules::overlook_change(split);
    if split.session.has_unseen() {
        Box::pin(arm::learn_unseen(split)).await?;
    }
    if split.session.needs_rearming() {
        Box::pin(arm::again(split)).await?;
        if split.lease.is_none() {
            return Ok(());
        }
    }
    let keeps = split.keeps_connection || split.account.user.config.pooling == config::Pooling::Session;
    if keeps || split.session.is_pinned() {
        keep(split);
        return Ok(());
    }
    lease::give_back(split);
    Ok(())
}

/// The session holds its connection on; said in the metrics where that is news.
pub(crate) fn keep(split: &mut Split) {
    transaction::note_kept(split);
    split.control.show_pins(&split.shown_pins());
    split.control.may_leave(told::is_all(split));
    if split.counted_as_pinned {
        return;
    }
    split.counted_as_pinned = true;
    split.series().pinned.inc();
    let pins = split.shown_pins();
    pins.iter().for_each(|pin| split.series().pin(pin.reason));
}

/// The connection was lost in the middle of a command, or the session was told to end.
async fn lost(
    split: &mut Split,
    broken: Broken,
    error_sequence: Option<u8>,
    request_done: bool,
    again: Option<Box<[u8]>>,
) -> Result<(), SessionError> {
    let is_the_servers = match &broken {
        Broken::Server | Broken::ServerProtocol(_) => true,
        Broken::Signal(signal) => signal.is_about_a_server(),
        Broken::Client(_) => false,
    };
    let took_too_long = matches!(broken, Broken::Signal(Signal::StatementTimeout));
    let mut error = split.broken(broken);
    if split.session.lost_answer() && took_too_long {
        // It was not to be interrupted.
        error = lease::lost_with_its_server(split.server_name());
    }
    split.error_sequence = error_sequence;
    if let Some(command) = again.filter(|_| is_the_servers && !took_too_long)
        && again::send_again(split, &command)
    {
        return Ok(());
    }
    let nothing_else_is_lost = !split.session.was_pinned() && !split.keeps_connection;
    let Some(sequence) = error_sequence else {
        return Err(error);
    };
    if !is_the_servers || !nothing_else_is_lost || !request_done {
        return Err(error);
    }
    // The client has what was between two rows before it gets the error.
    answer::flush(split).await?;
    lease::abandon(split);
    split.status.remove(StatusFlags::IN_TRANS);
    split.shape.reset(split.key.capabilities, split.capabilities);
    answer::end_with(split, sequence, error).await
}

/// The answer has no end: the session is a stream from here on.
async fn stream(split: &mut Split) -> Result<(), SessionError> {
    let ended = relay::endless(&mut split.wires, &split.control).await;
    split.error_sequence = None;
    Err(match ended {
        Ok(()) => SessionError::ClientGone,
        Err(broken) => split.broken(broken),
    })
}

/// A command that is no statement: to the primary, or to where the session is.
pub(crate) async fn elsewhere(split: &mut Split, head: CommandHead) -> Result<(), SessionError> {
    let_go(split, head, None, None);
    let target = anywhere::target_of_command(split, head);
    if target.is_some() {
        again::keep_for_any(split, head);
    }
    let target = target.unwrap_or(Target::Primary { for_writing: false });
    if let Err(refused) = lease::lease(split, &target).await {
        return answer::refuse(split, refused).await;
    }
    begin(split, head, None);
    let ended = exchange(split, head.command, None).await;
    // A refused one has left nothing behind, or its server closes the connection.
    let is_refused = matches!(&ended.result, Ok(Exchanged::Done(outcome)) if outcome.error.is_some());
    split.keeps_connection |= is_replication(head.command) && !is_refused;
    settle(split, ended).await
}

/// Answers a command that cannot be executed as it is.
pub(crate) async fn refuse(split: &mut Split, error: SessionError) -> Result<(), SessionError> {
    answer::refuse(split, Refused(error)).await
}
