//! What statements about transactions do to savepoints.

use serde::{Deserialize, Serialize};

use super::{begins_with, contains};
use crate::words::{is_one_of, plain_words};

/// What a statement about transactions does to savepoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Savepoint {
    Other,
    Sets,
    /// There are none after it.
    Ends,
}

impl Savepoint {
    #[must_use]
    pub fn of(text: &[u8]) -> Self {
        let text = text.to_ascii_lowercase();
        let begins_with = |word: &[u8]| text.trim_ascii_start().starts_with(word);
        let ends = begins_with(b"commit") || begins_with(b"rollback");
        match contains(&text, b"savepoint") {
            true if !ends && !begins_with(b"release") => Self::Sets,
            false if ends && !contains(&text, b"to") => Self::Ends,
            _ => Self::Other,
        }
    }
}

/// `ROLLBACK` without a comment in front of it, which is enough: it only saves reads on the primary.
#[must_use]
pub fn begins_with_rollback(text: &[u8]) -> bool {
    begins_with(text, "ROLLBACK")
}

/// `SAVEPOINT`, `RELEASE SAVEPOINT`, `ROLLBACK`: whatever else a statement about transactions is, it may
/// commit.
#[must_use]
pub fn is_of_savepoint(text: &[u8]) -> bool {
    let first = text.trim_ascii_start().first();
    first.is_some_and(|byte| matches!(byte, b's' | b'S' | b'r' | b'R'))
}

/// `SAVEPOINT`, `RELEASE SAVEPOINT` and `ROLLBACK TO`. What is written in another way ends the transaction,
/// for all that is known here.
#[must_use]
pub fn is_about_savepoint(text: &[u8]) -> bool {
    let mut plain = plain_words(text);
    let mut is = |known: &str| plain.next().is_some_and(|word| is_one_of(word, &[known]));
    let first = text.trim_ascii_start().first().map(u8::to_ascii_uppercase);
    match first {
        Some(b'S') => is("SAVEPOINT"),
        Some(b'R') => {
            let second = plain_words(text).nth(1).unwrap_or_default();
            match second.to_ascii_uppercase().as_slice() {
                b"TO" => is("ROLLBACK"),
                b"SAVEPOINT" => is("RELEASE"),
                b"WORK" => is("ROLLBACK") && is("WORK") && is("TO"),
                _ => false,
            }
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn savepoints_are_set_and_end() {
        for (text, savepoint) in [
            ("SAVEPOINT a", Savepoint::Sets),
            (" savepoint `to`", Savepoint::Sets),
            ("INSERT INTO t VALUES (1); SAVEPOINT a", Savepoint::Sets),
            ("RELEASE SAVEPOINT a", Savepoint::Other),
            ("ROLLBACK TO SAVEPOINT a", Savepoint::Other),
            ("ROLLBACK TO a", Savepoint::Other),
            ("rollback work", Savepoint::Ends),
            ("COMMIT AND CHAIN", Savepoint::Ends),
        ] {
            assert_eq!(Savepoint::of(text.as_bytes()), savepoint, "{text}");
        }
    }

    #[test]
    fn statements_about_savepoints_are_no_ends() {
        for text in [
            "SAVEPOINT a",
            "rollback to a",
            "ROLLBACK WORK TO a",
            " RELEASE  SAVEPOINT a",
        ] {
            assert!(is_about_savepoint(text.as_bytes()), "{text}");
        }
        for text in [
            "ROLLBACK",
            "ROLLBACK WORK",
            "ROLLBACK /* TO */ WORK",
            "RELEASE/**/SAVEPOINT a",
            "COMMIT",
        ] {
            assert!(!is_about_savepoint(text.as_bytes()), "{text}");
        }
    }
}
