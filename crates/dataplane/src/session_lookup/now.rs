//! Lookups for which nothing has to be waited: settings are known, the answer was learned, and memory is as fresh as it has to be.
//!
//! Most are, and no future is made for them.

use mysql_wire::Command;
use sql_class::point_lookup;

use super::{Found, OfSession, Step, note_answered, prepared, settings, step};
use crate::lookups::{self, Asked, Plan};
use crate::relay::Exchanged;
use crate::session::{CommandHead, Session};
use crate::settle;

/// Answers a lookup for which nothing has to be waited: the answer is then on its way to the client. False: [`command`](super::command) goes on.
pub(crate) fn at_once(session: &mut Session, head: CommandHead) -> bool {
    let Some(mut of) = session.lookups.take() else {
        return false;
    };
    of.found = match head.command {
        Command::QUERY => query_now(session, &mut of, head),
        Command::STMT_EXECUTE => prepared::execute_now(session, &mut of, head).unwrap_or_default(),
        _ => Found::Nothing,
    };
    let is_answered = match &of.found {
        Found::Lookup(Step::Answer(plan)) => {
            let plan = plan.clone();
            answer_now(session, &mut of, head, &plan)
        }
        _ => false,
    };
    session.lookups = Some(of);
    is_answered
}

fn query_now(session: &Session, of: &mut OfSession, head: CommandHead) -> Found {
    let payload = lookups::whole_payload(session.wires.up.unseen(), head.payload_len).unwrap_or_default();
    let lookup = lookups::text(payload, session.capabilities).and_then(|text| {
        let lookup = point_lookup(text, of.syntax)?;
        (!lookup.has_parameters()).then_some((text, lookup))
    });
    let Some((text, lookup)) = lookup else {
        return Found::NoLookup;
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

fn answer_now(session: &mut Session, of: &mut OfSession, head: CommandHead, plan: &Plan) -> bool {
    of.out.clear();
    let answered = of
        .lookups
        .answer_now(plan, &of.key, of.consistency, None, &mut of.out);
    let is_answered = matches!(answered, Some(Ok(_)));
    if !is_answered || !lookups::put(&mut session.wires, &of.out) {
        return false;
    }
    of.note_fresh(session.worker.clock.now());
    note_answered(session, of, head);
    of.out = lookups::kept(std::mem::take(&mut of.out));
    settle::command(session, head, Ok(Exchanged::Sent)).is_ok()
}
