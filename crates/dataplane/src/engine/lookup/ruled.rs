//! Lookups and `[[rule]]`: which of them memory may answer, and how the others go to a server.

use std::rc::Rc;

use routing::rules::Verdict;
use session::Prepared;

use super::{PLAIN, text_of};
use crate::command_head::CommandHead;
use crate::engine::client_session::ClientSession;
use crate::engine::rules;

/// The verdict of rules on the lookup; `None` where a server or the gateway itself has to answer.
pub(super) fn ruled(
    session: &ClientSession,
    head: CommandHead,
    prepared: Option<(u32, &Prepared)>,
) -> Option<Rc<Verdict>> {
    let Some((id, prepared)) = prepared else {
        let text = text_of(&session.streams.up, head, session.client.capabilities)?;
        return rules::of_lookup(session, text, &PLAIN, None);
    };
    match rules::original(session, id) {
        Some(original) => rules::of_lookup(session, &original, &prepared.facts, None),
        None => rules::of_lookup(session, &prepared.text, &prepared.facts, Some(prepared.digest)),
    }
}
