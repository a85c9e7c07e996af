//! LAST_INSERT_ID() where an answer does not tell it: an OK packet has the id of a row also where the statement gave it itself.
//!
//! A connection that is asked what its id is says the last one that its server made, and that may be of another session: it is this
//! one's if an answer to this one had it.

/// What is known of it after the last statements on the connection at hand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Made {
    /// What it is.
    #[default]
    Known,
    /// It is one that an OK packet said, or it was not changed.
    Said,
    /// A statement may have made one of which no packet tells.
    Unseen,
}

/// Ids that OK packets said.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Said {
    /// The last ones, the newest first; 0 is none.
    last: [u64; 3],
    /// The others, a bit each, which some have in common.
    others: u64,
}

impl Said {
    pub(super) fn add(&mut self, id: u64) {
        if self.last.contains(&id) {
            return;
        }
        let [first, second, third] = self.last;
        if third != 0 {
            self.others |= bit(third);
        }
        self.last = [id, first, second];
    }

    pub(super) fn has(&self, id: u64) -> bool {
        id != 0 && (self.last.contains(&id) || self.others & bit(id) != 0)
    }
}

const fn bit(id: u64) -> u64 {
    1 << (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_is_known_and_of_few_nothing_else() {
        let mut said = Said::default();
        assert!(!said.has(0));
        for id in [7, 500, 7, 600] {
            said.add(id);
        }
        let known: Vec<u64> = (0..1000).filter(|&id| said.has(id)).collect();
        assert_eq!(known, [7, 500, 600]);
        (1000..1050).for_each(|id| said.add(id));
        assert!([7, 500, 600, 1000, 1049].iter().all(|&id| said.has(id)));
    }
}
