//! A statement of text: what is asked of lookups and rules before it goes to a server, and where it goes.

use sql_class::{Effects, Facts};

use crate::command_head::CommandHead;
use crate::engine::begin::{begin, let_go, needs_no_priming};
use crate::engine::client_session::ClientSession;
use crate::engine::lease::LeaseAttempt;
use crate::engine::lookup::Looked;
use crate::engine::next::{Next, Query, Step};
use crate::engine::target::Target;
use crate::engine::{
    again, anywhere, choose, command, explain, explain_warning, kill, last_statement, lease, leaving, lookup,
    old_primary, pipeline, pipelined_setup, rules, transaction,
};
use crate::error::SessionError;

/// Serves a COM_QUERY.
pub(crate) fn query(session: &mut ClientSession, head: CommandHead) -> Step<'_> {
    if let Some(text) = command::text(command::payload(session, head), session.client.capabilities) {
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
    if session.binding.is_own() && lookup::owes(session, &facts, command::text_of(session, head)) {
        let next = Next::route_query(head, facts);
        return Step::wait(lookup::catch_up::catch_up(session, next));
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

pub(crate) fn rule_query(session: &mut ClientSession, Query { head, facts }: Query) -> Step<'_> {
    command::note(session, head, &facts);
    match rules::concern(session) {
        true => Step::wait(rules::query(session, head, facts)),
        false => route_query(session, head, facts),
    }
}

pub(crate) fn route_query(session: &mut ClientSession, head: CommandHead, facts: Facts) -> Step<'_> {
    if session.lease.is_some()
        && (transaction::is_ended_by_query(session, head, &facts)
            || old_primary::is_left(session, &facts)
            || let_go(session, head, Some(&facts), None))
    {
        return Step::wait(leaving::query_elsewhere(session, head, facts));
    }
    if let Some(error) = transaction::refuse_several(session, head, &facts) {
        return Next::refuse(error).into();
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

/// Effects of statements that need more than a server: see [`rare_query`].
const RARE: Effects = Effects::GATEWAY
    .with(Effects::KILL)
    .with(Effects::READS_LAST_INSERT_ID)
    .with(Effects::READS_ROW_COUNT)
    .with(Effects::READS_FOUND_ROWS)
    .with(Effects::READS_CONNECTION_ID)
    .with(Effects::READS_LAST_GTID);

/// Serves statements for the gateway itself, and those that read what the last statement left on its
/// connection, which may be somebody else's by now.
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
    if let Err(refused) = last_statement::bring_about(session, head, &facts, None).await {
        return last_statement::give_up(session, refused).await;
    }
    begin(session, head, Some(&facts));
    if let Some(changed) = last_statement::with_figures(session, head, &facts) {
        session.statement.replace(&mut session.streams.up, head, &changed);
    }
    Ok(Next::Exchange)
}

pub(crate) fn query_on_primary(session: &mut ClientSession, Query { head, facts }: Query) -> Step<'_> {
    let target = Target::Primary { for_writing: true };
    let now = lease::try_lease(session, &target);
    Step::wait(pipelined_setup::lease_and_begin(
        session, head, facts, target, now,
    ))
}
