//! The execution of a prepared statement: what is asked of lookups and rules before, and where it goes.

use crate::command_head::CommandHead;
use crate::engine::begin::let_go;
use crate::engine::client_session::ClientSession;
use crate::engine::lease::LeaseAttempt;
use crate::engine::lookup::Looked;
use crate::engine::next::{Execution, Next, Step};
use crate::engine::prepared::{execute, known};
use crate::engine::{
    again, choose, explain_warning, lease, leaving, lookup, old_primary, pipeline, rules, transaction,
};
use crate::error::SessionError;

/// Serves COM_STMT_EXECUTE and MariaDB's bulk execution.
pub(crate) fn execution(session: &mut ClientSession, head: CommandHead) -> Step<'_> {
    session.last.explain_warning = None;
    let (id, prepared) = match execute::requested(session, head) {
        Ok(requested) => requested,
        Err(refused) => return Next::from(refused).into(),
    };
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
    rule_execution(session, execution)
}

pub(crate) fn rule_execution(session: &mut ClientSession, execution: Execution) -> Step<'_> {
    match rules::concern(session) {
        true => Step::wait(rules::execute(session, execution)),
        false => route_execution(session, execution),
    }
}

pub(crate) fn route_execution(session: &mut ClientSession, execution: Execution) -> Step<'_> {
    let Execution { head, id, prepared } = &execution;
    let (head, id) = (*head, *id);
    if !known::is_kept(prepared) && !known::is_known_here(session, prepared) {
        return Next::refuse(SessionError::StatementChanged).into();
    }
    let number = pipeline::number_of_execution(head, prepared);
    session.statement.number = number.filter(|_| !rules::concern(session));
    session.control.shown.prepared(prepared.digest);
    let about = Some((id, prepared.digest));
    if session.lease.is_some()
        && (transaction::is_ended_by(session, &prepared.facts)
            || old_primary::is_left(session, &prepared.facts)
            || let_go(session, head, Some(&prepared.facts), about))
    {
        return Step::wait(leaving::execution_elsewhere(session, execution));
    }
    again::keep_to_send_again(session, head, &prepared.facts);
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
