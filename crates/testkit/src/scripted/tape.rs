//! What an end of a session records, and how it makes reading hard for its peer.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::Packet;

/// Every packet that one end sent and received, whole, in order. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Tape(Arc<Mutex<Vec<Taped>>>);

/// A packet and its direction, seen from the end whose [`Tape`] it is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taped {
    /// Written by this end.
    Sent(Packet),
    /// Read by this end.
    Received(Packet),
}

impl Tape {
    /// Takes what was recorded until now.
    pub fn take(&self) -> Vec<Taped> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn add(&self, taped: Taped) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(taped);
    }
}

/// Writes short messages in two pieces, cut one byte further on each time, so that the reader sees the cut
/// everywhere.
#[derive(Clone, Debug, Default)]
pub struct Cuts {
    next: usize,
}

impl Cuts {
    /// Longer messages are written whole.
    pub const LONGEST: usize = 512;
    /// Long enough for a reader to see the first piece alone.
    pub(super) const PAUSE: Duration = Duration::from_millis(1);

    /// The first cut is behind this many bytes.
    pub fn from(place: usize) -> Self {
        Self {
            next: place.saturating_sub(1),
        }
    }

    pub(super) fn next(&mut self, length: usize) -> usize {
        if length > Self::LONGEST {
            return length;
        }
        self.next += 1;
        self.next % length.max(1)
    }
}
