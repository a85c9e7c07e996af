//! THE LOOP of a session in mode `split`: one command after the other, each through the stages that are named
//! here. All branching of the command phase is here.

use std::convert::Infallible;

use mysql_wire::Command;
use sql_class::{Effects, Facts};

use crate::command_head::CommandHead;
use crate::engine::begin::{begin, let_go, needs_no_priming};
use crate::engine::choose;
use crate::engine::client_session::ClientSession;
use crate::engine::command::Accepted;
use crate::engine::lease::LeaseAttempt;
use crate::engine::lookup::Looked;
use crate::engine::next::{Execution, Next, Query, Step};
use crate::engine::prepared::{execute, known, prepare};
use crate::engine::target::Target;
use crate::engine::{
    again, answer, anywhere, command, exchange, explain, explain_warning, finish, forward, hand_over, kill,
    last, lease, leaving, login, lookup, lost_server, moving, old_primary, paused, pipeline, pipelined_setup,
    replay, reset, rules, stashed_error, transaction, user_variables,
};
use crate::error::SessionError;
use crate::finished;

/// Serves commands until the session ends, and says why it ended.
pub(crate) async fn run(session: &mut ClientSession) -> Result<Infallible, SessionError> {
    loop {
        command::begin_to_wait(session);
        let head = loop {
            match command::accept(session).await? {
                Accepted::Command(head) => break head,
                meanwhile => Box::pin(without_command(session, meanwhile)).await?,
            }
        };
        let command = head.command;
        let served = serve(session, head).await;
        finish::finish(session, command, &served);
        served?;
    }
}

/// What is to be done between two commands.
async fn without_command(session: &mut ClientSession, what: Accepted) -> Result<(), SessionError> {
    match what {
        Accepted::Silence => {
            stashed_error::stash(session).await;
            user_variables::leave(session).await?;
        }
        Accepted::Leave => moving::leave(session).await,
        Accepted::GoAway => Box::pin(hand_over::go(session)).await?,
        Accepted::Lost if session.binding.is_own() => return lost_server::go_on_elsewhere(session).await,
        Accepted::Lost => return Box::pin(replay::go_on(session)).await,
        Accepted::Command(_) => {}
    }
    Ok(())
}

/// Brings back what the session had on a connection that it has left.
async fn restore(session: &mut ClientSession, head: CommandHead) -> Result<Next, SessionError> {
    // In this order: an error is what was said last.
    match user_variables::restore(session, head).await? {
        Next::Begin => stashed_error::restore(session, head).await,
        next => Ok(next),
    }
}

/// Serves one command. An error ends the session. What is kept while it waits every session has room for.
fn serve(session: &mut ClientSession, head: CommandHead) -> impl Future<Output = Result<(), SessionError>> {
    session.streams.traffic.commands += 1;
    session.statement = session.statement.next(head);
    finished::begin(
        &session.context.worker.observers,
        &session.control,
        &session.streams,
        head,
        false,
    );
    session.control.of_split.asks_primary.set(false);
    session.context.worker.metrics.commands[usize::from(head.command.0)].inc();
    let command = head.command;
    async move {
        let mut next = match paused::waits(session, head) {
            true => Box::pin(paused::wait(session, command)).await?,
            false => Next::Begin,
        };
        if matches!(next, Next::Begin) {
            let begins = match session.last.error.is_some() || session.last.kept_variables.is_some() {
                true => Step::wait(restore(session, head)),
                false => first(session),
            };
            next = begins.next().await?;
        }
        loop {
            next = match next {
                Next::Exchange => {
                    let ended = exchange::exchange(session, command, None).await;
                    finish::settle(session, ended).next().await?
                }
                Next::Done => return Ok(()),
                next => stage(session, next).next().await?,
            };
        }
    }
}

/// The stage that a command begins with.
fn first(session: &mut ClientSession) -> Step<'_> {
    let head = session.statement.head;
    match head.command {
        Command::QUERY => query(session, head),
        Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE => execution(session, head),
        command if lookup::command_owes(session, command) => {
            Step::wait(lookup::catch_up::catch_up(session, Next::Begin))
        }
        _ => Step::wait(rare_command(session, head)),
    }
}

/// The stage that comes next, but for the exchange.
fn stage(session: &mut ClientSession, next: Next) -> Step<'_> {
    match next {
        Next::Begin => first(session),
        Next::RuleQuery(query) => rule_query(session, *query),
        Next::RouteQuery(query) => route_query(session, query.head, query.facts),
        Next::QueryOnPrimary(query) => query_on_primary(session, *query),
        Next::RuleExecution(execution) => rule_execution(session, *execution),
        Next::RouteExecution(execution) => route_execution(session, *execution),
        Next::Prepare => Step::wait(prepare::prepare_as_it_is(session, session.statement.head)),
        Next::Forward => Step::wait(forward::forward(session, session.statement.head)),
        Next::Refuse(error) => Step::answer(answer::refuse(session, *error)),
        Next::Settle(ended) => finish::settle(session, *ended),
        Next::Exchange | Next::Done => next.into(),
    }
}

/// Commands but statements.
async fn rare_command(session: &mut ClientSession, head: CommandHead) -> Result<Next, SessionError> {
    match head.command {
        Command::STMT_PREPARE => {
            prepare::begin_to_prepare(session);
            match rules::concern(session) {
                true => rules::prepare(session, head).await,
                false => Ok(Next::Prepare),
            }
        }
        Command::STMT_CLOSE => execute::close(session, head).await,
        Command::STMT_RESET => execute::reset(session, head).await,
        Command::STMT_FETCH | Command::STMT_SEND_LONG_DATA => execute::go_on(session, head).await,
        Command::PING if session.lease.is_none() || transaction::is_on_replica(session) => {
            answer::ok(session).await.map(|()| Next::Done)
        }
        Command::QUIT => Err(SessionError::ClientQuit),
        Command::RESET_CONNECTION => reset::connection(session, head).await,
        Command::CHANGE_USER => login::change_user(session, head).await.map(|()| Next::Done),
        Command::PROCESS_KILL => kill::process_kill(session, head).await,
        _ => Ok(Next::Forward),
    }
}

/// COM_QUERY.
fn query(session: &mut ClientSession, head: CommandHead) -> Step<'_> {
    let payload = command::payload_of(&session.streams.up, head);
    if let Some(text) = command::text(payload, session.client.capabilities) {
        session.control.shown.text(text, session.state.syntax());
    }
    if session.lookups.is_some() {
        match lookup::query(session, head) {
            Looked::Answered => return Next::Done.into(),
            Looked::GoesOn => return Step::wait(lookup::go_on(session, head, None)),
            Looked::Elsewhere => {}
        }
    }
    let facts = command::facts(session, head);
    command::note(session, head, &facts);
    if session.binding.is_own() {
        let payload = command::payload_of(&session.streams.up, head);
        let text = command::text(payload, session.client.capabilities).unwrap_or_default();
        if lookup::owes(session, &facts, text) {
            return Step::wait(lookup::catch_up::catch_up(
                session,
                Next::route_query(head, facts),
            ));
        }
    }
    if command::may_ask_why(session, head) {
        return Step::wait(explain_warning::query(session, head, facts));
    }
    if rules::concern(session) {
        return Step::wait(rules::query(session, head, facts));
    }
    session.statement.number = pipeline::number(session, &facts);
    route_query(session, head, facts)
}

fn rule_query(session: &mut ClientSession, Query { head, facts }: Query) -> Step<'_> {
    command::note(session, head, &facts);
    match rules::concern(session) {
        true => Step::wait(rules::query(session, head, facts)),
        false => route_query(session, head, facts),
    }
}

fn route_query(session: &mut ClientSession, head: CommandHead, facts: Facts) -> Step<'_> {
    if session.lease.is_some()
        && (transaction::is_ended_by(session, &facts)
            || old_primary::is_left(session, &facts)
            || let_go(session, head, Some(&facts), None))
    {
        return Step::wait(leaving::query_elsewhere(session, head, facts));
    }
    if facts.effects.intersects(RARE) {
        return Step::wait(rare_query(session, head, facts));
    }
    if transaction::begins(session, head, &facts) {
        return Step::wait(transaction::begin_on_replica(session, head, facts));
    }
    let target = transaction::end(session, head, &facts)
        .or_else(|| anywhere::target(session, head, &facts))
        .unwrap_or_else(|| choose::target(session, &facts));
    again::keep_to_send_again(session, head, &facts);
    if target == Target::Anywhere {
        again::keep_for_any(session, head);
    }
    match lease::try_lease(session, &target) {
        LeaseAttempt::Leased if needs_no_priming(session, &facts) => {
            begin(session, head, Some(&facts));
            Next::Exchange.into()
        }
        LeaseAttempt::Wait(Some(on)) if pipeline::takes(session, &on.0) => {
            Step::wait(pipeline::query(session, head, facts, on, target))
        }
        now => Step::wait(pipelined_setup::lease_and_begin(
            session, head, facts, target, now,
        )),
    }
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
async fn rare_query(
    session: &mut ClientSession,
    head: CommandHead,
    facts: Facts,
) -> Result<Next, SessionError> {
    if facts.effects.contains(Effects::GATEWAY) {
        return explain::statement(session, head).await;
    }
    if facts.effects.contains(Effects::KILL)
        && let Some(kill) = command::kill(session, head)
    {
        return kill::statement(session, head, kill, facts).await;
    }
    let target = choose::target(session, &facts);
    if let Err(refused) = lease::lease(session, &target).await {
        return Ok(refused.into());
    }
    if let Err(refused) = last::bring_about(session, head, &facts, None).await {
        return last::give_up(session, refused).await;
    }
    begin(session, head, Some(&facts));
    last::put_values(session, head, &facts, lease::left(session));
    Ok(Next::Exchange)
}

fn query_on_primary(session: &mut ClientSession, Query { head, facts }: Query) -> Step<'_> {
    let target = Target::Primary { for_writing: true };
    let now = lease::try_lease(session, &target);
    Step::wait(pipelined_setup::lease_and_begin(
        session, head, facts, target, now,
    ))
}

/// COM_STMT_EXECUTE and MariaDB's bulk execution.
fn execution(session: &mut ClientSession, head: CommandHead) -> Step<'_> {
    let (id, prepared) = match execute::requested(session, head) {
        Ok(requested) => requested,
        Err(refused) => return Next::from(refused).into(),
    };
    session.last.explain_warning = None;
    session
        .control
        .record
        .note_statement(prepared.facts.class, prepared.digest);
    let asks_why = explain_warning::concerns_execution(session, head, &prepared);
    if session.lookups.is_some() && !asks_why {
        match lookup::execute(session, head, id, &prepared) {
            Looked::Answered => return Next::Done.into(),
            Looked::GoesOn => return Step::wait(lookup::go_on(session, head, Some((id, prepared)))),
            Looked::Elsewhere => {}
        }
    }
    let execution = Execution { head, id, prepared };
    if session.binding.is_own() && lookup::owes(session, &execution.prepared.facts, &execution.prepared.text)
    {
        let next = Next::RouteExecution(Box::new(execution));
        return Step::wait(lookup::catch_up::catch_up(session, next));
    }
    if asks_why {
        return Step::wait(explain_warning::execute(session, execution));
    }
    if rules::concern(session) {
        return Step::wait(rules::execute(session, execution));
    }
    route_execution(session, execution)
}

fn rule_execution(session: &mut ClientSession, execution: Execution) -> Step<'_> {
    match rules::concern(session) {
        true => Step::wait(rules::execute(session, execution)),
        false => route_execution(session, execution),
    }
}

fn route_execution(session: &mut ClientSession, execution: Execution) -> Step<'_> {
    let Execution { head, id, prepared } = &execution;
    let (head, id) = (*head, *id);
    if !known::is_kept(prepared) && !known::is_known_here(session, prepared) {
        return Next::refuse(SessionError::StatementChanged).into();
    }
    again::keep_to_send_again(session, head, &prepared.facts);
    session.statement.number = pipeline::number_of_execution(session, head, prepared);
    session.control.shown.prepared(prepared.digest);
    let about = Some((id, prepared.digest));
    if session.lease.is_some()
        && (transaction::is_ended_by(session, &prepared.facts)
            || old_primary::is_left(session, &prepared.facts)
            || let_go(session, head, Some(&prepared.facts), about))
    {
        return Step::wait(leaving::execution_elsewhere(session, execution));
    }
    let target = choose::target_of_execution(session, head, &prepared.facts);
    let now = lease::try_lease(session, &target);
    if matches!(now, LeaseAttempt::Leased) && execute::begin_at_once(session, head, id, prepared) {
        return Next::Exchange.into();
    }
    match now {
        LeaseAttempt::Wait(Some(on)) if pipeline::takes(session, &on.0) => {
            Step::wait(pipeline::execute(session, execution, on, target))
        }
        now => Step::wait(execute::lease_and_execute(session, execution, target, now)),
    }
}
