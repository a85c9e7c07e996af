//! THE LOOP of a session in mode `split`: one command after the other, each through the stages that are named
//! here. All branching of the command phase is here.

use std::convert::Infallible;

use mysql_wire::Command;
use sql_class::{Effects, Facts};

use crate::engine::begin::{begin, let_go, needs_no_priming};
use crate::engine::choose;
use crate::engine::lease::LeaseAttempt;
use crate::engine::lookup::Looked;
use crate::engine::next::{Execution, Next, Query, Step};
use crate::engine::prepared::{execute, known, prepare};
use crate::engine::state::Split;
use crate::engine::target::Target;
use crate::engine::{
    again, answer, anywhere, command, exchange, explain, explain_warning, finish, forward, kill, last, lease,
    leaving, login, lookup, old_primary, pipeline, pipelined_setup, reset, rules, told, transaction,
};
use crate::error::SessionError;
use crate::finished;
use crate::session::CommandHead;

/// Serves commands until the session ends, and says why it ended.
pub(crate) async fn run(split: &mut Split) -> Result<Infallible, SessionError> {
    loop {
        command::begin_to_wait(split);
        let head = loop {
            match command::accept(split).await? {
                Some(head) => break head,
                None => Box::pin(told::put_away(split)).await,
            }
        };
        let command = head.command;
        let served = serve(split, head).await;
        finish::finish(split, command, &served);
        served?;
    }
}

/// Serves one command. An error ends the session. What is kept while it waits every session has room for.
fn serve(split: &mut Split, head: CommandHead) -> impl Future<Output = Result<(), SessionError>> {
    split.streams.traffic.commands += 1;
    split.statement = split.statement.next(head);
    finished::begin(
        &split.context.worker.observers,
        &split.control.record,
        &split.streams.traffic,
    );
    split.control.of_split.asks_primary.set(false);
    split.context.worker.metrics.commands[usize::from(head.command.0)].inc();
    let command = head.command;
    async move {
        let begins = match split.last.told.is_some() {
            true => Step::wait(told::bring_back(split, head)),
            false => first(split),
        };
        let mut next = begins.next().await?;
        loop {
            next = match next {
                Next::Exchange => {
                    let ended = exchange::exchange(split, command, None).await;
                    finish::settle(split, ended).next().await?
                }
                Next::Done => return Ok(()),
                next => stage(split, next).next().await?,
            };
        }
    }
}

/// The stage that a command begins with.
fn first(split: &mut Split) -> Step<'_> {
    let head = split.statement.head;
    match head.command {
        Command::QUERY => query(split, head),
        Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE => execution(split, head),
        command if lookup::command_owes(split, command) => Step::wait(lookup::catch_up(split, Next::Begin)),
        _ => Step::wait(rare_command(split, head)),
    }
}

/// The stage that comes next, but for the exchange.
fn stage(split: &mut Split, next: Next) -> Step<'_> {
    match next {
        Next::Begin => first(split),
        Next::RuleQuery(query) => rule_query(split, *query),
        Next::RouteQuery(query) => route_query(split, query.head, query.facts),
        Next::QueryOnPrimary(query) => query_on_primary(split, *query),
        Next::RuleExecution(execution) => rule_execution(split, *execution),
        Next::RouteExecution(execution) => route_execution(split, *execution),
        Next::Prepare => Step::wait(prepare::prepare_as_it_is(split, split.statement.head)),
        Next::Forward => Step::wait(forward::forward(split, split.statement.head)),
        Next::Refuse(error) => Step::answer(answer::refuse(split, *error)),
        Next::Settle(ended) => finish::settle(split, *ended),
        Next::Exchange | Next::Done => next.into(),
    }
}

/// Commands but statements.
async fn rare_command(split: &mut Split, head: CommandHead) -> Result<Next, SessionError> {
    match head.command {
        Command::STMT_PREPARE => {
            prepare::begin_to_prepare(split);
            match rules::concern(split) {
                true => rules::prepare(split, head).await,
                false => Ok(Next::Prepare),
            }
        }
        Command::STMT_CLOSE => execute::close(split, head).await,
        Command::STMT_RESET => execute::reset(split, head).await,
        Command::STMT_FETCH | Command::STMT_SEND_LONG_DATA => execute::go_on(split, head).await,
        Command::PING if split.lease.is_none() || transaction::is_on_replica(split) => {
            answer::ok(split).await.map(|()| Next::Done)
        }
        Command::QUIT => Err(SessionError::ClientQuit),
        Command::RESET_CONNECTION => reset::connection(split, head).await,
        Command::CHANGE_USER => login::change_user(split, head).await.map(|()| Next::Done),
        Command::PROCESS_KILL => kill::process_kill(split, head).await,
        _ => Ok(Next::Forward),
    }
}

/// COM_QUERY.
fn query(split: &mut Split, head: CommandHead) -> Step<'_> {
    let payload = command::payload_of(&split.streams.up, head);
    if let Some(text) = command::text(payload, split.client.capabilities) {
        split.control.shown.text(text, split.session.syntax());
    }
    if split.lookups.is_some() {
        match lookup::query(split, head) {
            Looked::Answered => return Next::Done.into(),
            Looked::GoesOn => return Step::wait(lookup::go_on(split, head, None)),
            Looked::Elsewhere => {}
        }
    }
    let facts = command::facts(split, head);
    command::note(split, head, &facts);
    if split.binding.is_own() {
        let payload = command::payload_of(&split.streams.up, head);
        let text = command::text(payload, split.client.capabilities).unwrap_or_default();
        if lookup::owes(split, &facts, text) {
            return Step::wait(lookup::catch_up(split, Next::route_query(head, facts)));
        }
    }
    if explain_warning::concerns(split, head) {
        return Step::wait(explain_warning::query(split, head, facts));
    }
    if rules::concern(split) {
        return Step::wait(rules::query(split, head, facts));
    }
    split.statement.number = pipeline::number(split, &facts);
    route_query(split, head, facts)
}

fn rule_query(split: &mut Split, Query { head, facts }: Query) -> Step<'_> {
    command::note(split, head, &facts);
    match rules::concern(split) {
        true => Step::wait(rules::query(split, head, facts)),
        false => route_query(split, head, facts),
    }
}

fn route_query(split: &mut Split, head: CommandHead, facts: Facts) -> Step<'_> {
    if split.lease.is_some()
        && (transaction::is_ended_by(split, &facts)
            || old_primary::is_left(split, &facts)
            || let_go(split, head, Some(&facts), None))
    {
        return Step::wait(leaving::query_elsewhere(split, head, facts));
    }
    if facts.effects.intersects(RARE) {
        return Step::wait(rare_query(split, head, facts));
    }
    if transaction::begins(split, head, &facts) {
        return Step::wait(transaction::begin_on_replica(split, head, facts));
    }
    let target = transaction::end(split, head, &facts)
        .or_else(|| anywhere::target(split, head, &facts))
        .unwrap_or_else(|| choose::target(split, &facts));
    again::keep_to_send_again(split, head, &facts);
    if target == Target::Anywhere {
        again::keep_for_any(split, head);
    }
    match lease::try_lease(split, &target) {
        LeaseAttempt::Leased if needs_no_priming(split, &facts) => {
            begin(split, head, Some(&facts));
            Next::Exchange.into()
        }
        LeaseAttempt::Wait(Some(on)) if pipeline::takes(split, &on.0) => {
            Step::wait(pipeline::query(split, head, facts, on, target))
        }
        now => Step::wait(pipelined_setup::lease_and_begin(split, head, facts, target, now)),
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
async fn rare_query(split: &mut Split, head: CommandHead, facts: Facts) -> Result<Next, SessionError> {
    if facts.effects.contains(Effects::GATEWAY) {
        return explain::statement(split, head).await;
    }
    if facts.effects.contains(Effects::KILL)
        && let Some(kill) = command::kill(split, head)
    {
        return kill::statement(split, head, kill, facts).await;
    }
    let target = choose::target(split, &facts);
    if let Err(refused) = lease::lease(split, &target).await {
        return Ok(refused.into());
    }
    if let Err(refused) = last::bring_about(split, head, &facts, None).await {
        return last::give_up(split, refused).await;
    }
    begin(split, head, Some(&facts));
    last::put_values(split, head, &facts, lease::left(split));
    Ok(Next::Exchange)
}

fn query_on_primary(split: &mut Split, Query { head, facts }: Query) -> Step<'_> {
    let target = Target::Primary { for_writing: true };
    let now = lease::try_lease(split, &target);
    Step::wait(pipelined_setup::lease_and_begin(split, head, facts, target, now))
}

/// COM_STMT_EXECUTE and MariaDB's bulk execution.
fn execution(split: &mut Split, head: CommandHead) -> Step<'_> {
    let (id, prepared) = match execute::requested(split, head) {
        Ok(requested) => requested,
        Err(refused) => return Next::from(refused).into(),
    };
    split.last.explain_warning = None;
    split
        .control
        .record
        .note_statement(prepared.facts.class, prepared.digest);
    let asks_why = explain_warning::concerns_execution(split, head, &prepared);
    if split.lookups.is_some() && !asks_why {
        match lookup::execute(split, head, id, &prepared) {
            Looked::Answered => return Next::Done.into(),
            Looked::GoesOn => return Step::wait(lookup::go_on(split, head, Some((id, prepared)))),
            Looked::Elsewhere => {}
        }
    }
    let execution = Execution { head, id, prepared };
    if split.binding.is_own() && lookup::owes(split, &execution.prepared.facts, &execution.prepared.text) {
        let next = Next::RouteExecution(Box::new(execution));
        return Step::wait(lookup::catch_up(split, next));
    }
    if asks_why {
        return Step::wait(explain_warning::execute(split, execution));
    }
    if rules::concern(split) {
        return Step::wait(rules::execute(split, execution));
    }
    route_execution(split, execution)
}

fn rule_execution(split: &mut Split, execution: Execution) -> Step<'_> {
    match rules::concern(split) {
        true => Step::wait(rules::execute(split, execution)),
        false => route_execution(split, execution),
    }
}

fn route_execution(split: &mut Split, execution: Execution) -> Step<'_> {
    let Execution { head, id, prepared } = &execution;
    let (head, id) = (*head, *id);
    if !known::is_kept(prepared) && !known::is_known_here(split, prepared) {
        return Next::refuse(SessionError::StatementChanged).into();
    }
    again::keep_to_send_again(split, head, &prepared.facts);
    split.statement.number = pipeline::number_of_execution(split, head, prepared);
    split.control.shown.prepared(prepared.digest);
    let about = Some((id, prepared.digest));
    if split.lease.is_some()
        && (transaction::is_ended_by(split, &prepared.facts)
            || old_primary::is_left(split, &prepared.facts)
            || let_go(split, head, Some(&prepared.facts), about))
    {
        return Step::wait(leaving::execution_elsewhere(split, execution));
    }
    let target = choose::target_of_execution(split, head, &prepared.facts);
    let now = lease::try_lease(split, &target);
    if matches!(now, LeaseAttempt::Leased) && execute::begin_at_once(split, head, id, prepared) {
        return Next::Exchange.into();
    }
    match now {
        LeaseAttempt::Wait(Some(on)) if pipeline::takes(split, &on.0) => {
            Step::wait(pipeline::execute(split, execution, on, target))
        }
        now => Step::wait(execute::lease_and_execute(split, execution, target, now)),
    }
}
