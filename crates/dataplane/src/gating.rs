//! Sessions whose next command is a strong lookup, most likely: they wait until memory is fresh enough before they read it from
//! their client, instead of reading it, waiting, and answering.
//!
//! Another command than a lookup waits in vain, for as long as a question to the primary takes. So it is done only behind many
//! lookups in a row, of which each has waited as long, and after one such command it is given up for as many.

use std::io;
use std::task::{Context, Poll, ready};

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
    /// See [`is_fresh`](Self::is_fresh).
    is_fresh: bool,
}

impl Gating {
    /// The session waits for its next command.
    #[inline]
    pub(crate) fn next_command(&mut self) {
        self.in_a_row = match std::mem::take(&mut self.is_lookup) {
            true => GATED_AFTER.min(self.in_a_row + 1),
            false => 0,
        };
        self.is_fresh = false;
    }

    /// The command is a strong lookup that is answered from memory.
    #[inline]
    pub(crate) fn note_lookup(&mut self) {
        self.is_lookup = true;
    }

    /// Memory is as fresh as the command demands.
    #[inline]
    pub(crate) fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    /// Reads what the client sends. To be called for the command that is waited for, until it is there: what came behind another
    /// may have come later. What TLS or compression bring need not be bytes of a command.
    #[inline]
    pub(crate) fn poll_read(
        &mut self,
        lookups: &dyn Lookups,
        cx: &mut Context<'_>,
        wires: &mut Wires,
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
        let (n, is_fresh) = ready!(gate.poll_read(cx, &mut |cx| up.poll_read(cx, client)))?;
        self.is_fresh |= is_fresh;
        Poll::Ready(Ok(n))
    }
}
