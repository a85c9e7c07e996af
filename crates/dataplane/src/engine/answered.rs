//! The origin of the answer to a session's last statement: noted with each statement, in a few bytes.

use crate::engine::metrics::AtPrimary;

/// The origin of an answer. Statements for the gateway itself (`FOREBAY …`) do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Answered {
    /// There was no statement yet.
    #[default]
    Nobody,
    /// The session's last server.
    Server { is_primary: bool, why: Why },
    /// Rows in memory: a point lookup.
    Memory,
    /// A rule, a refusal, a `KILL`.
    Gateway,
}

/// The reason why a statement was answered there, as far as that is known without looking for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// The statement went where statements of its kind go.
    Usual,
    /// The session was bound to the connection.
    Held,
    /// A read that could have gone to a replica.
    AtPrimary(AtPrimary),
}

impl Why {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Usual => "",
            Self::Held => "held",
            Self::AtPrimary(why) => why.label(),
        }
    }
}
