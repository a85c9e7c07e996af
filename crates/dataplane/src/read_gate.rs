//! Waits of sessions whose next command is a strong lookup, most likely. Such a session waits until memory is
//! fresh enough before it reads the command from its client, instead of reading it, waiting, and answering.
//!
//! A command that is no lookup waits in vain, for as long as a question to the primary takes. Sessions
//! therefore wait only behind many lookups in a row, of which each has waited as long, and after one such
//! command they wait behind as many again.

use std::io;
use std::task::{Context, Poll, Waker};

use net::Stream;

use crate::lookups::{Gate, Lookups};
use crate::relay::Streams;

/// Number of strong lookups in a row behind which another one is likely.
const GATED_AFTER: u16 = 16;
/// Largest such number, where waits were in vain: each makes the number twice as large, since such a wait
/// comes on top of the lookup's own.
const GATED_AFTER_MAX: u16 = 1024;

/// The gate of a session: see the module. `M`: what a session wants to know of the moment at which its wait
/// began.
pub struct Gating<M = u32> {
    gate: Option<Box<dyn Gate>>,
    in_a_row: u16,
    /// Number of lookups in a row behind which the session waits.
    gated_after: u16,
    /// The command under way was answered as a strong lookup.
    is_lookup: bool,
    /// The definitions that memory had when the wait at the gate began, and the moment.
    began: Option<(u64, M)>,
    /// See [`is_fresh`](Self::is_fresh).
    is_fresh: bool,
    /// The wait at the gate has brought nothing: the primary is too far away, or memory behind. The lookup
    /// waits once more.
    was_in_vain: bool,
}

/// The memory that a session reads.
pub trait Gated<M> {
    /// A gate for the session of this task, where there are any.
    fn gate(&self, task: &Waker) -> Option<Box<dyn Gate>>;

    /// The definitions that memory has, which change where it is begun anew; and the moment.
    fn now(&self) -> (u64, M);
}

impl<M> Default for Gating<M> {
    fn default() -> Self {
        Self {
            gate: None,
            in_a_row: 0,
            gated_after: GATED_AFTER,
            is_lookup: false,
            began: None,
            is_fresh: false,
            was_in_vain: false,
        }
    }
}

impl<M: Copy> Gating<M> {
    /// Notes that the session waits for its next command.
    #[inline]
    pub fn next_command(&mut self) {
        if self.was_in_vain {
            self.gated_after = GATED_AFTER_MAX.min(self.gated_after * 2);
        } else if self.is_fresh {
            self.gated_after = GATED_AFTER;
        }
        self.in_a_row = match std::mem::take(&mut self.is_lookup) {
            true => self.gated_after.min(self.in_a_row + 1),
            false => 0,
        };
        (self.began, self.is_fresh, self.was_in_vain) = (None, false, false);
    }

    /// Notes that the command is a strong lookup that is answered from memory.
    #[inline]
    pub fn note_lookup(&mut self) {
        self.is_lookup = !self.was_in_vain;
    }

    /// Whether memory is as fresh as the command demands, if it has these definitions. Memory that was begun
    /// anew since then has others.
    #[inline]
    pub fn is_fresh(&self, definitions: u64) -> bool {
        self.is_fresh && self.began.is_some_and(|(began, _)| began == definitions)
    }

    /// The moment at which the wait at the gate began.
    #[inline]
    pub(crate) fn began(&self) -> Option<M> {
        self.began.map(|(_, moment)| moment)
    }

    /// Reads what the client sends with `read`. To be called for the command that is waited for, until it is
    /// there: bytes behind another command may have come later. `is_plain`: bytes at the socket are bytes of
    /// commands, which those of TLS or compression need not be.
    #[inline]
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        memory: &impl Gated<M>,
        is_plain: bool,
        mut read: impl FnMut(&mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if self.in_a_row < self.gated_after || !is_plain {
            return read(cx);
        }
        let Some(gate) = &mut self.gate else {
            self.gate = memory.gate(cx.waker());
            // The gate is of use from the next look on.
            return read(cx);
        };
        let Poll::Ready(read) = gate.poll_read(cx, &mut read) else {
            self.began.get_or_insert_with(|| memory.now());
            return Poll::Pending;
        };
        let (n, is_fresh) = read?;
        self.is_fresh |= is_fresh;
        self.was_in_vain = self.began.is_some() && !self.is_fresh;
        Poll::Ready(Ok(n))
    }
}

/// The lookups of a SQL session, and the tick of its worker's clock.
struct SessionGate<'l>(&'l dyn Lookups, u32);

impl Gated<u32> for SessionGate<'_> {
    fn gate(&self, task: &Waker) -> Option<Box<dyn Gate>> {
        self.0.gate(task)
    }

    fn now(&self) -> (u64, u32) {
        (self.0.definitions(), self.1)
    }
}

/// Reads what the client of a SQL session sends.
#[inline]
pub(crate) fn poll_read(
    cx: &mut Context<'_>,
    gating: &mut Gating,
    lookups: &dyn Lookups,
    streams: &mut Streams,
    now: u32,
) -> Poll<io::Result<usize>> {
    let Streams { up, client, .. } = streams;
    let is_plain = is_plain(client);
    gating.poll_read(cx, &SessionGate(lookups, now), is_plain, |cx| {
        up.poll_read(cx, client)
    })
}

/// See [`Gating::poll_read`].
#[inline]
pub fn is_plain(client: &Stream) -> bool {
    matches!(client, Stream::Tcp(_) | Stream::Unix(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_waited_for_is_of_the_memory_of_then() {
        let gating = Gating {
            began: Some((7, 0_u32)),
            is_fresh: true,
            ..Gating::default()
        };
        assert!(gating.is_fresh(7) && !gating.is_fresh(8));
    }

    #[test]
    fn who_waits_in_vain_goes_on_without_a_gate() {
        let mut gating = Gating::<()>::default();
        for _ in 0..GATED_AFTER {
            gating.note_lookup();
            gating.next_command();
        }
        assert_eq!(gating.in_a_row, GATED_AFTER);
        gating.was_in_vain = true;
        gating.note_lookup();
        gating.next_command();
        assert_eq!((gating.in_a_row, gating.was_in_vain), (0, false));
        // The session waits behind twice as many from here on, until a wait is of use again.
        for _ in 0..3 * GATED_AFTER {
            gating.note_lookup();
            gating.next_command();
        }
        assert_eq!(gating.in_a_row, 2 * GATED_AFTER);
        gating.is_fresh = true;
        gating.note_lookup();
        gating.next_command();
        assert_eq!(gating.in_a_row, GATED_AFTER);
    }
}
