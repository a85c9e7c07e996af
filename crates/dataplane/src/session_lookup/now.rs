//! Statements for which nothing has to be waited: lookups where settings are known, the answer was learned,
//! and memory is as fresh as it has to be; and what is no lookup, where the server knows of all that was
//! before.
//!
//! Most are, and no future is made for them.

use mysql_wire::Command;
use sql_class::point_lookup;

use super::{
    ANY_OTHER, Found, OfSession, Other, Step, classify, is_for_gateway, note_answered, prepared, settings,
    step,
};
use crate::lookups::{self, Asked, Plan};
use crate::relay::{Exchanged, RelayError};
use crate::session::{CommandHead, Session};
use crate::settle;

/// What was done about a command at once.
pub(crate) enum AtOnce {
    /// Its answer is on its way to the client.
    Answered,
    /// It is to be forwarded as it is, and its outcome [noted](note_outcome).
    Forward,
    /// [`command`](super::command) goes on.
    Waits,
}

/// Does what can be done about a command without waiting.
pub(crate) fn at_once(session: &mut Session, head: CommandHead) -> AtOnce {
    let Some(mut of) = session.lookups.take() else {
        return AtOnce::Forward;
    };
    of.found = match head.command {
        Command::QUERY => query_now(session, &mut of, head),
        Command::STMT_EXECUTE => prepared::execute_now(session, &mut of, head).unwrap_or_default(),
        _ => Found::Nothing,
    };
    let done = match &of.found {
        Found::Lookup(Step::Answer(plan)) => {
            let plan = plan.clone();
            match answer_now(session, &mut of, head, &plan) {
                true => AtOnce::Answered,
                false => AtOnce::Waits,
            }
        }
        Found::Other(other)
            if !is_for_gateway(other) && (of.unknown_to_server.is_empty() || of.is_replaced_by(other)) =>
        {
            let other = std::mem::take(&mut of.found);
            if let Found::Other(other) = other {
                of.note_sent(&other, session.worker.clock.now());
            }
            AtOnce::Forward
        }
        _ => AtOnce::Waits,
    };
    session.lookups = Some(of);
    done
}

/// A command that was forwarded at once has ended.
pub(crate) fn note_outcome(session: &mut Session, exchanged: &Result<Exchanged, RelayError>) {
    if let Some(of) = &mut session.lookups {
        of.note_outcome(exchanged);
    }
}

fn query_now(session: &Session, of: &mut OfSession, head: CommandHead) -> Found {
    let payload = lookups::whole_payload(session.streams.up.unseen(), head.payload_len).unwrap_or_default();
    let lookup = lookups::text(payload, session.capabilities).and_then(|text| {
        let lookup = point_lookup(text, of.syntax)?;
        (!lookup.has_parameters()).then_some((text, lookup))
    });
    let Some((text, lookup)) = lookup else {
        return Found::Other(other_query(session, of, head));
    };
    let Some(environment) = settings::ready_now(session, of) else {
        return Found::Nothing;
    };
    let asked = Asked {
        lookup: &lookup,
        text,
        parameters: None,
        told: None,
    };
    let finding = of.lookups.find(environment, &asked, &mut of.key);
    Found::Lookup(step(session, of, finding))
}

/// COM_QUERY with something else, or that was not seen to its end.
fn other_query(session: &Session, of: &OfSession, head: CommandHead) -> Other {
    let payload = session.payload(head);
    let text = lookups::text(payload, session.capabilities).filter(|_| payload.len() == head.payload_len);
    text.map_or(ANY_OTHER, |text| classify(session, of, text))
}

fn answer_now(session: &mut Session, of: &mut OfSession, head: CommandHead, plan: &Plan) -> bool {
    if !lookups::may_put(&session.streams) {
        return false;
    }
    of.out.clear();
    let now = session.worker.clock.now();
    let definitions = of.lookups.definitions();
    let level = of.level(definitions, now);
    let is_fresh = of.gating.is_fresh(definitions);
    let answered = of
        .lookups
        .answer_now(plan, &of.key, level, None, is_fresh, &mut of.out);
    let is_answered = matches!(answered, Some(Ok(_)));
    if !is_answered || !lookups::put(&mut session.streams, &of.out) {
        return false;
    }
    of.note_waited_for(level, definitions, of.gating.began().unwrap_or(now));
    note_answered(session, of, head);
    of.out = lookups::kept(std::mem::take(&mut of.out));
    settle::command(session, head, Ok(Exchanged::Sent)).is_ok()
}
