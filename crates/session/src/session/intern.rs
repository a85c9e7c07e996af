//! What sessions have in common, and keep in one allocation.

use std::rc::Rc;

use sql_class::{Class, Effects};

use super::{Current, Last, Session};
use crate::{ClientTrackers, PinReason, PortableState};

impl Last {
    /// Servers forget all but the count of rows.
    pub(super) fn after_reset(self) -> Self {
        let found_rows = self.found_rows;
        Self {
            found_rows,
            ..Self::default()
        }
    }
}

impl Session {
    /// The warnings or the error that it holds its connection for were left by a statement before the last,
    /// which has kept them and was none that asks for them.
    #[must_use]
    pub fn has_old_diagnostics(&self) -> bool {
        let Current { class, effects, .. } = self.current;
        self.pins.has(PinReason::Diagnostics)
            && matches!(class, Class::Read | Class::Administration)
            && !effects.contains(Effects::READS_DIAGNOSTICS)
            && self.warning_count() == 0
    }

    /// Shares what others have in common with this session, where it is the same: equal states that are one
    /// allocation are told to be equal without looking at them.
    pub fn share_carried(&mut self, common: &Rc<PortableState>) {
        if *self.carried == **common {
            self.carried = Rc::clone(common);
        }
    }

    /// What its client sees of session state as long as it asks for nothing else.
    #[must_use]
    pub fn initial_trackers(&self) -> &Rc<ClientTrackers> {
        &self.initial_trackers
    }

    /// Shares them with others, where they are the same.
    pub fn share_trackers(&mut self, common: &Rc<ClientTrackers>) {
        for own in [&mut self.initial_trackers, &mut self.trackers] {
            if **own == **common {
                *own = Rc::clone(common);
            }
        }
    }
}
