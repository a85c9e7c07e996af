//! Sessions whose next command is a strong lookup, most likely: they wait until memory is fresh enough before they read it from
//! their client, instead of reading it, waiting, and answering.
//!
//! Another command than a lookup waits in vain, for as long as a question to the primary takes. So it is done only behind many
//! lookups in a row, of which each has waited as long, and after one such command it is given up for as many.

use std::io;
use std::task::{Context, Poll};

use net::Stream;

use crate::lookups::{Gate, Lookups};
use crate::relay::Wires;

/// So many strong lookups are followed by another one, most likely.
const GATED_AFTER: u8 = 16;

/// See the module.
#[derive(Default)]
pub(crate) struct Gating {
    gate: Option<Box<dyn Gate>>,
    in_a_row: u8,
    /// The command under way was answered as a strong lookup.
    is_lookup: bool,
    /// The definitions that memory had when the wait at the gate began, and the tick of the worker's clock.
    began: Option<(u64, u32)>,
    /// See [`is_fresh`](Self::is_fresh).
    is_fresh: bool,
    /// The wait at the gate has brought nothing: the primary is too far away, or memory behind. The lookup waits once more.
    was_in_vain: bool,
}

impl Gating {
    /// The session waits for its next command.
    #[inline]
    pub(crate) fn next_command(&mut self) {
        self.in_a_row = match std::mem::take(&mut self.is_lookup) {
            true => GATED_AFTER.min(self.in_a_row + 1),
            false => 0,
        };
        (self.began, self.is_fresh, self.was_in_vain) = (None, false, false);
    }

    /// The command is a strong lookup that is answered from memory.
    #[inline]
    pub(crate) fn note_lookup(&mut self) {
        self.is_lookup = !self.was_in_vain;
    }

    /// Memory is as fresh as the command demands, if it has these definitions. Memory that was begun anew since has others.
    #[inline]
    pub(crate) fn is_fresh(&self, definitions: u64) -> bool {
        self.is_fresh && self.began.is_some_and(|(began, _)| began == definitions)
    }

    /// When the wait at the gate began, in ticks of the worker's clock.
    #[inline]
    pub(crate) fn began(&self) -> Option<u32> {
        self.began.map(|(_, tick)| tick)
    }

    /// Reads what the client sends. To be called for the command that is waited for, until it is there: what came behind another
    /// may have come later. What TLS or compression bring need not be bytes of a command.
    #[inline]
    pub(crate) fn poll_read(
        &mut self,
        lookups: &dyn Lookups,
        cx: &mut Context<'_>,
        wires: &mut Wires,
        now: u32,
    ) -> Poll<io::Result<usize>> {
        let Wires { up, client, .. } = wires;
        if self.in_a_row < GATED_AFTER || !matches!(client, Stream::Tcp(_) | Stream::Unix(_)) {
            return up.poll_read(cx, client);
        }
        let Some(gate) = &mut self.gate else {
            self.gate = lookups.gate(cx.waker());
            // From the next command on.
            return up.poll_read(cx, client);
        };
        let Poll::Ready(read) = gate.poll_read(cx, &mut |cx| up.poll_read(cx, client)) else {
            self.began.get_or_insert_with(|| (lookups.definitions(), now));
            return Poll::Pending;
        };
        let (n, is_fresh) = read?;
        self.is_fresh |= is_fresh;
        self.was_in_vain = self.began.is_some() && !self.is_fresh;
        Poll::Ready(Ok(n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_waited_for_is_of_the_memory_of_then() {
        let gating = Gating {
            began: Some((7, 0)),
            is_fresh: true,
            ..Gating::default()
        };
        assert!(gating.is_fresh(7) && !gating.is_fresh(8));
    }

    #[test]
    fn who_waits_in_vain_goes_on_without_a_gate() {
        let mut gating = Gating::default();
        for _ in 0..GATED_AFTER {
            gating.note_lookup();
            gating.next_command();
        }
        assert_eq!(gating.in_a_row, GATED_AFTER);
        gating.was_in_vain = true;
        gating.note_lookup();
        gating.next_command();
        assert_eq!((gating.in_a_row, gating.was_in_vain), (0, false));
    }
}
