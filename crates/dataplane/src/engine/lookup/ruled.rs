//! Lookups and `[[rule]]`: which of them memory may answer, and how the others go to a server.

use std::rc::Rc;

use routing::rules::Verdict;
use session::Prepared;

use super::{PLAIN, text_of};
use crate::engine::rules;
use crate::engine::state::Split;
use crate::session::CommandHead;

/// What rules say of the lookup; `None` where a server or the gateway itself has to answer.
pub(super) fn ruled(
    split: &Split,
    head: CommandHead,
    prepared: Option<(u32, &Prepared)>,
) -> Option<Rc<Verdict>> {
    let Some((id, prepared)) = prepared else {
        let text = text_of(&split.streams.up, head, split.client.capabilities)?;
        return rules::of_lookup(split, text, &PLAIN, None);
    };
    match rules::original(split, id) {
        Some(original) => rules::of_lookup(split, &original, &prepared.facts, None),
        None => rules::of_lookup(split, &prepared.text, &prepared.facts, Some(prepared.digest)),
    }
}
