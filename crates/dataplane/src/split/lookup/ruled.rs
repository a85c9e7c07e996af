//! Lookups and `[[rule]]`: which of them memory may answer, and how the others go to a server.

use std::rc::Rc;

use routing::rules::Verdict;
use session::Prepared;

use super::{PLAIN, text_of};
use crate::error::SessionError;
use crate::session::CommandHead;
use crate::split::prepared::execute;
use crate::split::state::Split;
use crate::split::{rules, run};

/// What rules say of the lookup; `None` where a server or the gateway itself has to answer.
pub(super) fn ruled(
    split: &Split,
    head: CommandHead,
    prepared: Option<(u32, &Prepared)>,
) -> Option<Rc<Verdict>> {
    let Some((id, prepared)) = prepared else {
        let text = text_of(&split.wires.up, head, split.capabilities)?;
        return rules::of_lookup(split, text, &PLAIN, None);
    };
    match rules::original(split, id) {
        Some(original) => rules::of_lookup(split, &original, &prepared.facts, None),
        None => rules::of_lookup(split, &prepared.text, &prepared.facts, Some(prepared.digest)),
    }
}

/// Sends the lookup to a server, as rules have it.
pub(super) async fn to_server(
    split: &mut Split,
    head: CommandHead,
    prepared: Option<(u32, Prepared)>,
) -> Result<(), SessionError> {
    let has_rules = rules::concern(split);
    match prepared {
        Some((id, prepared)) if has_rules => rules::execute(split, head, id, prepared).await,
        None if has_rules => rules::query(split, head, PLAIN).await,
        Some((id, prepared)) => execute::execute_prepared(split, head, id, prepared).await,
        None => run::plain_query(split, head, PLAIN).await,
    }
}
