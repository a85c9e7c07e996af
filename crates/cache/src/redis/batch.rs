//! Requests that came together.

use std::rc::Rc;
use std::time::Instant;

use config::ReadConsistency;
use dataplane::extension::ProtocolSession;

use super::ahead;
use super::command::Command;
use super::execute::Execution;
use super::rows::Space;
use super::session::Session;
use super::{MappingSnapshot, Service};

/// See the module.
pub(super) struct Batch {
    pub(super) began: Instant,
    pub(super) mappings: Rc<MappingSnapshot>,
    /// Whether the store is fresh enough for them; or why not.
    pub(super) fresh: Option<Result<(), String>>,
    /// That is so for the first request only, which was waited for at a gate.
    is_for_first: bool,
    pub(super) last: Option<Command>,
    pub(super) commands: u32,
    /// The last of them wanted rows.
    last_reads: bool,
    /// Bytes have come that are no request.
    passed_over: bool,
    /// What is asked for rows is to be this fresh.
    pub(super) level: ReadConsistency,
    /// Commands of this level that wanted rows and have not waited by themselves.
    pub(super) reads: u32,
    /// What the server said for the requests that come next.
    pub(super) ahead: Option<Box<ahead::Fetched>>,
}

impl Batch {
    /// `first_is_fresh`: the store is fresh enough for the first of them.
    pub(super) fn new(mappings: Rc<MappingSnapshot>, level: ReadConsistency, first_is_fresh: bool) -> Self {
        Self {
            began: Instant::now(),
            mappings,
            fresh: first_is_fresh.then_some(Ok(())),
            is_for_first: first_is_fresh,
            last: None,
            commands: 0,
            last_reads: false,
            passed_over: false,
            level,
            reads: 0,
            ahead: None,
        }
    }

    /// A command was executed, or refused. `reads`: it wanted rows. `waited`: until the store was fresh
    /// enough.
    pub(super) fn end_command(&mut self, reads: bool, waited: bool) {
        self.commands += 1;
        self.last_reads = reads;
        self.reads += u32::from(reads && !waited);
        self.end_first(waited);
    }

    /// Bytes were dropped that are no request, or none that is executed. What was waited for is them: a
    /// request behind them may have come later.
    pub(super) fn pass_over(&mut self) {
        self.passed_over = true;
        self.end_first(false);
    }

    /// What was fresh enough may not be so at another level.
    pub(super) fn change_level(&mut self, level: ReadConsistency) {
        (self.level, self.fresh) = (level, None);
    }

    fn end_first(&mut self, waited: bool) {
        if std::mem::take(&mut self.is_for_first) && !waited {
            self.fresh = None;
        }
    }

    /// Something has come to its end that a wait at a gate was for.
    pub(super) fn has_begun(&self) -> bool {
        self.commands > 0 || self.passed_over
    }

    /// It was a single command, which reads.
    pub(super) fn is_one_read(&self) -> bool {
        self.commands == 1 && self.last_reads && !self.passed_over
    }
}

pub(super) fn execution<'e>(
    service: &'e Service,
    control: &'e ProtocolSession,
    session: &'e mut Session,
    batch: &'e Batch,
    space: &'e mut Space,
) -> Execution<'e> {
    Execution {
        service,
        control,
        session,
        mappings: &batch.mappings.0,
        space,
        fresh: batch.fresh.as_ref(),
        last: None,
        reads: false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::mapping::MappingSet;

    fn batch(first_is_fresh: bool) -> Batch {
        Batch::new(
            Rc::new(MappingSnapshot(Arc::new(MappingSet::new([], [])))),
            ReadConsistency::Strong,
            first_is_fresh,
        )
    }

    #[test]
    fn what_was_waited_for_at_a_gate_is_the_first_request() {
        let mut batch = batch(true);
        assert_eq!(batch.fresh, Some(Ok(())));
        batch.end_command(true, false);
        assert!(batch.fresh.is_none() && batch.is_one_read());
        // All that is there now was there when this wait began.
        batch.fresh = Some(Ok(()));
        batch.end_command(true, true);
        batch.end_command(true, false);
        assert_eq!((&batch.fresh, batch.reads), (&Some(Ok(())), 2));
        assert!(!batch.is_one_read());
    }

    #[test]
    fn or_what_is_no_request() {
        let mut batch = batch(true);
        assert!(!batch.has_begun());
        batch.pass_over();
        assert!(batch.fresh.is_none() && batch.has_begun());
        batch.end_command(true, true);
        assert!(!batch.is_one_read());
    }

    #[test]
    fn another_level_has_to_be_waited_for() {
        let mut batch = batch(false);
        batch.fresh = Some(Ok(()));
        batch.change_level(ReadConsistency::Session);
        assert!(batch.fresh.is_none());
    }
}
