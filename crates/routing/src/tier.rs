//! Who takes part in a choice: the normal servers, or the backup ones when no normal one is available.

use crate::Candidate;

/// The candidates of one tier that have room, seen through the whole list so that places stay those of the
/// caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tier<'a> {
    candidates: &'a [Candidate],
    backup: bool,
}

impl<'a> Tier<'a> {
    /// The first tier with an available server, full or not.
    pub(crate) fn of(candidates: &'a [Candidate]) -> Option<Self> {
        [false, true]
            .into_iter()
            .find(|&backup| {
                candidates
                    .iter()
                    .any(|candidate| takes_sessions(candidate, backup))
            })
            .map(|backup| Self { candidates, backup })
    }

    /// Those with room, with their places.
    pub(crate) fn iter(self) -> impl Iterator<Item = (usize, &'a Candidate)> + Clone {
        self.candidates
            .iter()
            .enumerate()
            .filter(move |(_, candidate)| self.admits(candidate))
    }

    /// How many have room.
    pub(crate) fn len(self) -> usize {
        self.iter().count()
    }

    pub(crate) fn contains(self, place: usize) -> bool {
        self.candidates
            .get(place)
            .is_some_and(|candidate| self.admits(candidate))
    }

    fn admits(self, candidate: &Candidate) -> bool {
        takes_sessions(candidate, self.backup) && !candidate.is_full()
    }
}

fn takes_sessions(candidate: &Candidate, backup: bool) -> bool {
    candidate.available && candidate.weight > 0 && candidate.backup == backup
}
