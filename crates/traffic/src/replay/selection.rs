//! Which part of a capture is replayed.

use mysql_wire::Command;
use sql_class::Class;

use super::plan::class_of;
use crate::record::CommandRecord;

/// What of a capture is replayed; all of it by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// The how many-th of how many replayers this is, from 1: each has other sessions.
    pub index: Option<(u32, u32)>,
    pub user: Option<String>,
    pub schema: Option<String>,
    pub digest: Option<u64>,
    /// Only commands that began so many microseconds after the capture did, or later.
    pub from_us: u64,
    /// Only commands that began before.
    pub until_us: Option<u64>,
}

impl Selection {
    /// Whether this replayer has the session. The others have the others.
    pub(super) fn has(&self, session: u32) -> bool {
        let Some((index, count)) = self.index else {
            return true;
        };
        // Numbers of sessions are not even: gateways of a fleet, or other clients, have those between them.
        let mixed = session.wrapping_mul(0x9e37_79b1);
        // A capture with a sample has the sessions for which this is small: each part gets some of them.
        let place = u64::from((mixed ^ (mixed >> 16)).wrapping_mul(0x85eb_ca6b));
        (place * u64::from(count)) >> 32 == u64::from(index.saturating_sub(1))
    }

    pub(super) fn takes_user(&self, user: &str) -> bool {
        self.user.as_ref().is_none_or(|wanted| wanted == user)
    }

    /// Whether it began behind the end of what is replayed.
    pub(super) fn is_over(&self, command: &CommandRecord) -> bool {
        self.until_us.is_some_and(|until| command.start_us >= until)
    }

    /// Whether a command is one of those that are chosen.
    pub(super) fn wants(&self, command: &CommandRecord) -> bool {
        !self.is_over(command)
            && command.start_us >= self.from_us
            && self
                .schema
                .as_ref()
                .is_none_or(|schema| *schema.as_bytes() == *command.schema)
            && self.digest.is_none_or(|digest| digest == command.digest)
    }

    /// Whether a command is replayed. Commands by which a session sets something for itself are, so that the
    /// others find it as it was.
    pub(super) fn takes(&self, command: &CommandRecord) -> bool {
        self.wants(command) || !self.is_over(command) && sets_session(command)
    }
}

/// Whether the command is one by which a session sets something for itself.
pub(crate) fn sets_session(command: &CommandRecord) -> bool {
    match Command(command.command) {
        Command::QUERY => matches!(
            class_of(&command.body),
            Class::Session | Class::Begin | Class::BeginReadOnly | Class::Transaction
        ),
        Command::STMT_PREPARE
        | Command::STMT_CLOSE
        | Command::STMT_SEND_LONG_DATA
        | Command::STMT_RESET
        | Command::INIT_DB
        | Command::RESET_CONNECTION
        | Command::CHANGE_USER
        | Command::SET_OPTION
        | Command::QUIT => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_session_has_one_replayer() {
        let of = |index| Selection {
            index: Some((index, 3)),
            ..Selection::default()
        };
        let mut counts = [0; 3];
        for session in 1..3000 {
            let having: Vec<_> = (1..=3).filter(|index| of(*index).has(session)).collect();
            assert_eq!(having.len(), 1, "session {session}");
            counts[having[0] as usize - 1] += 1;
        }
        assert!(counts.iter().all(|count| *count > 800), "{counts:?}");
        // Sessions of a capture with a sample are spread as well.
        let sampled = (1..10_000_u32).filter(|session| session.wrapping_mul(0x9e37_79b1) < u32::MAX / 3);
        let sampled: Vec<_> = sampled.collect();
        for index in 1..=3 {
            let count = sampled.iter().filter(|session| of(index).has(**session)).count();
            assert!(count > sampled.len() / 4, "{count} of {}", sampled.len());
        }
    }

    #[test]
    fn what_sessions_set_is_kept() {
        let selection = Selection {
            schema: Some("a".to_owned()),
            from_us: 10,
            until_us: Some(20),
            ..Selection::default()
        };
        let takes = |text: &str, schema: &str, start_us| {
            selection.takes(&CommandRecord {
                command: Command::QUERY.0,
                body: text.as_bytes().to_vec(),
                schema: schema.as_bytes().to_vec(),
                start_us,
                ..CommandRecord::default()
            })
        };
        assert!(takes("SELECT 1", "a", 10) && takes("SET NAMES utf8mb4", "b", 0) && takes("BEGIN", "a", 1));
        assert!(!takes("SELECT 1", "a", 9) && !takes("SELECT 1", "b", 15));
        assert!(!takes("SELECT 1", "a", 20) && !takes("SET NAMES utf8mb4", "a", 20));
    }
}
