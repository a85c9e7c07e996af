//! How a session leaves a shared connection although it has user variables, and has them again on another.
//!
//! Which there are its server tells: a trigger or a function may have set some that no text names. What they
//! are is asked for, and tried out under other names on the same connection: only what comes out as it was is
//! left to others to set. The connection is reset then, so that nobody else sees them.

use crate::user_variables::{self, COLUMNS};
use crate::{Pin, PinReason, Session, UserVariables};

/// How the names begin under which values are tried out.
const TRIED: &str = "forebay ";

/// The user variables of a session that leaves its connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leave {
    names: Vec<Box<[u8]>>,
    /// As many others, which no session of this kind has: those that are carried have no spaces.
    others: Vec<Box<[u8]>>,
    /// From this length on its server takes no packet.
    packet_max: usize,
}

impl Session {
    /// Its user variables are all that holds it on its connection.
    #[must_use]
    pub fn is_held_by_user_variables(&self) -> bool {
        matches!(self.pins(), [pin] if pin.reason == PinReason::UserVariables) && !self.in_transaction()
    }

    /// It is held by them no more: somebody keeps what they are. Its connection is to be reset.
    #[must_use]
    pub fn leaves_user_variables(&mut self) -> Option<Pin> {
        let pin = self.pins.get(PinReason::UserVariables);
        self.pins.remove(PinReason::UserVariables);
        self.user_variables = None;
        pin
    }

    /// They have been set on the connection at hand.
    pub fn has_user_variables_again(&mut self, pin: Pin) {
        self.pins.add(pin.reason, pin.digest, pin.since_ms);
    }
}

impl Leave {
    /// `rows`: of the answer to [`crate::list_user_variables`]. `None` where it is not known which there are,
    /// where they are too many, or one has a name that does not mean the same everywhere.
    #[must_use]
    pub fn of(rows: impl Iterator<Item = Vec<u8>>) -> Option<Self> {
        let (names, packet_max) = user_variables::listed(rows)?;
        let others = (0..names.len()).map(|at| format!("{TRIED}{at}").into_bytes().into());
        Some(Self {
            others: others.collect(),
            names,
            packet_max,
        })
    }

    /// Whether this row of the list is a name under which values were tried out there. It stays until the
    /// connection is reset.
    #[must_use]
    pub fn is_tried(row: &[u8]) -> bool {
        let mut digits = row
            .chunks(2)
            .map(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
        TRIED.bytes().all(|byte| digits.next() == Some(Some(byte)))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Its server takes all of these commands.
    #[must_use]
    pub fn fit(&self, commands: &[Vec<u8>]) -> bool {
        commands.iter().all(|command| command.len() < self.packet_max)
    }

    /// Its server shows and takes so many bytes in hexadecimal digits.
    #[must_use]
    pub fn fits(&self, bytes: usize) -> bool {
        2 * bytes < self.packet_max
    }

    /// The command whose one value is how many bytes they have.
    #[must_use]
    pub fn length(&self) -> Vec<u8> {
        user_variables::length(&self.names)
    }

    /// The commands whose rows and columns are the [`UserVariables`] of the session, and others that are not
    /// set.
    #[must_use]
    pub fn questions(&self) -> Vec<Vec<u8>> {
        vec![
            user_variables::question(&self.names),
            user_variables::question(&self.others),
        ]
    }

    /// The same of the others alone.
    #[must_use]
    pub fn question_of_trial(&self) -> Vec<u8> {
        user_variables::question(&self.others)
    }

    /// How many columns an answer has.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.names.len() * COLUMNS
    }

    /// The command that makes of others that are `unset` what the session `has`; `None` where it has set
    /// none.
    #[must_use]
    pub fn trial(&self, has: &UserVariables, unset: &UserVariables) -> Option<Vec<u8>> {
        has.set(&self.others, unset)
    }

    /// The command that does so with its own, on a connection where nobody has set any.
    #[must_use]
    pub fn set(&self, has: &UserVariables, unset: &UserVariables) -> Option<Vec<u8>> {
        has.set(&self.names, unset)
    }
}
