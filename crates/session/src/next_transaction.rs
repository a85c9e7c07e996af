//! What `SET TRANSACTION` has said of the next transaction: carried to another server as the server of the
//! session has reported it.

use serde::{Deserialize, Serialize};

use crate::rebuild::query;

const LEVELS: [&str; 4] = [
    "READ UNCOMMITTED",
    "READ COMMITTED",
    "REPEATABLE READ",
    "SERIALIZABLE",
];

const ACCESSES: [&str; 2] = ["READ ONLY", "READ WRITE"];

/// Of the next transaction, or of the one that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NextTransaction {
    /// It is like the others of its session.
    Usual,
    /// Of [`LEVELS`] and [`ACCESSES`].
    Announced { level: Option<u8>, access: Option<u8> },
    /// It has begun, or the server says something else of it.
    Other,
}

impl NextTransaction {
    /// `statements`: what a server reports as the characteristics of a transaction, such as `SET TRANSACTION
    /// ISOLATION LEVEL SERIALIZABLE; SET TRANSACTION READ ONLY;`.
    pub(crate) fn reported(statements: &[u8]) -> Self {
        let (mut level, mut access) = (None, None);
        let parts = statements.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        for part in parts.filter(|part| !part.is_empty()) {
            let Some(said) = part.strip_prefix(b"SET TRANSACTION ") else {
                return Self::Other;
            };
            let (known, place) = match said.strip_prefix(b"ISOLATION LEVEL ") {
                Some(said) => (of(&LEVELS, said), &mut level),
                None => (of(&ACCESSES, said), &mut access),
            };
            if known.is_none() {
                return Self::Other;
            }
            *place = known;
        }
        match (level, access) {
            (None, None) => Self::Usual,
            (level, access) => Self::Announced { level, access },
        }
    }

    /// The commands that say the same on another connection; none where there is nothing to say.
    pub(crate) fn commands(self) -> Vec<Vec<u8>> {
        let Self::Announced { level, access } = self else {
            return Vec::new();
        };
        let word = |words: &'static [&str], at: Option<u8>| words.get(usize::from(at?));
        let level = word(&LEVELS, level).map(|level| format!("SET TRANSACTION ISOLATION LEVEL {level}"));
        let access = word(&ACCESSES, access).map(|access| format!("SET TRANSACTION {access}"));
        level.iter().chain(&access).map(|text| query(text)).collect()
    }
}

fn of(words: &[&str], said: &[u8]) -> Option<u8> {
    let at = words.iter().position(|word| word.as_bytes() == said)?;
    u8::try_from(at).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_servers_report_is_said_again() {
        let again = |statements: &str| {
            let commands = NextTransaction::reported(statements.as_bytes()).commands();
            let text = |payload: &Vec<u8>| String::from_utf8_lossy(&payload[1..]).into_owned();
            commands.iter().map(text).collect::<Vec<_>>()
        };
        assert_eq!(again(""), [""; 0]);
        assert_eq!(again("SET TRANSACTION READ ONLY;"), ["SET TRANSACTION READ ONLY"]);
        assert_eq!(
            again("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET TRANSACTION READ WRITE;"),
            [
                "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
                "SET TRANSACTION READ WRITE"
            ]
        );
    }

    #[test]
    fn nothing_else_is_sent_whatever_a_server_reports() {
        for statements in [
            "START TRANSACTION READ ONLY;",
            "SET TRANSACTION READ ONLY; DROP TABLE t;",
            "SET TRANSACTION ISOLATION LEVEL CHAOS;",
            "SET TRANSACTION READ ONLY, READ WRITE",
        ] {
            let reported = NextTransaction::reported(statements.as_bytes());
            assert_eq!(reported, NextTransaction::Other, "{statements}");
            assert!(reported.commands().is_empty());
        }
    }
}
