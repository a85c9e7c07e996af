//! THE LOOP of a session in mode `split`: one command after the other, each through the stages that are named
//! here. All branching by commands is here.

use std::convert::Infallible;

use mysql_wire::Command;

use crate::command_head::CommandHead;
use crate::engine::client_session::ClientSession;
use crate::engine::command::Accepted;
use crate::engine::execution::{execution, route_execution, rule_execution};
use crate::engine::next::{Next, Step};
use crate::engine::prepared::{execute, prepare};
use crate::engine::query::{query, query_on_primary, route_query, rule_query};
use crate::engine::{
    answer, command, exchange, finish, forward, hand_over, kill, login, lookup, lost_server, moving, paused,
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

/// Does what comes up between two commands.
async fn without_command(session: &mut ClientSession, what: Accepted) -> Result<(), SessionError> {
    match what {
        Accepted::Silence => {
            stashed_error::stash(session).await;
            user_variables::leave(session).await?;
        }
        Accepted::Leave => moving::leave(session).await?,
        Accepted::GoAway => Box::pin(hand_over::go(session)).await?,
        Accepted::Lost if session.binding.is_own() => return lost_server::go_on_elsewhere(session).await,
        Accepted::Lost => return Box::pin(replay::go_on(session)).await,
        Accepted::Command(_) => {}
    }
    Ok(())
}

/// Brings back what the session had on a connection that it has left.
async fn restore(session: &mut ClientSession, head: CommandHead) -> Result<Next, SessionError> {
    // The error comes second, since it is what was said last.
    match user_variables::restore(session, head).await? {
        Next::Begin => stashed_error::restore(session, head).await,
        next => Ok(next),
    }
}

/// Serves one command. An error ends the session. Every session has room for what this keeps while it waits.
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
        Next::Refuse(error) => Step::wait(answer::refuse(session, *error)),
        Next::Settle(ended) => finish::settle(session, *ended),
        Next::Exchange | Next::Done => next.into(),
    }
}

/// Serves commands that execute no statement.
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
            answer::ok(session).await
        }
        Command::QUIT => Err(SessionError::ClientQuit),
        Command::RESET_CONNECTION => reset::connection(session, head).await,
        Command::CHANGE_USER => login::change_user(session, head).await.map(|()| Next::Done),
        Command::PROCESS_KILL => kill::process_kill(session, head).await,
        _ => Ok(Next::Forward),
    }
}
