//! How many sessions of a server may leave it so that the load evens out, where to and why: one word that
//! they look at between two commands.

use std::sync::atomic::{AtomicU64, Ordering};

use routing::rebalance::{Factor, Move};

/// In the order of the bits: the other server's number, the factor, and the count. No tickets are 0.
#[derive(Debug, Default)]
pub(crate) struct Tickets(AtomicU64);

impl Tickets {
    const COUNT_BITS: u32 = 24;
    const COUNT: u64 = (1 << Self::COUNT_BITS) - 1;

    #[inline]
    pub(crate) fn are_there(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn give(&self, of: &Move) {
        let factor = Factor::ALL.iter().position(|factor| *factor == of.factor);
        let factor = (factor.unwrap_or(0) as u64) << Self::COUNT_BITS;
        let word = u64::from(of.to) << 32 | factor | u64::from(of.sessions).min(Self::COUNT);
        self.0.store(word, Ordering::Relaxed);
    }

    /// The number of the server that it is for, and the reason.
    pub(crate) fn take(&self) -> Option<(u32, Factor)> {
        let less = |word: u64| match word & Self::COUNT {
            0 => None,
            1 => Some(0),
            _ => Some(word - 1),
        };
        let word = self
            .0
            .try_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .ok()?;
        let factor = word as u32 >> Self::COUNT_BITS;
        Some(((word >> 32) as u32, *Factor::ALL.get(factor as usize)?))
    }

    /// Returns how many nobody has taken.
    pub(crate) fn withdraw(&self) -> u32 {
        (self.0.swap(0, Ordering::Relaxed) & Self::COUNT) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_leave_than_have_a_ticket() {
        let tickets = Tickets::default();
        assert!(!tickets.are_there());
        assert_eq!(tickets.take(), None);
        for factor in Factor::ALL {
            tickets.give(&Move {
                from: 1,
                to: u32::MAX,
                sessions: 3,
                factor,
            });
            assert_eq!(tickets.take(), Some((u32::MAX, factor)));
            assert_eq!(tickets.take(), Some((u32::MAX, factor)));
            assert!(tickets.are_there());
            assert_eq!(tickets.withdraw(), 1);
            assert!(!tickets.are_there());
            assert_eq!(tickets.take(), None);
        }
    }
}
