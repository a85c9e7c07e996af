//! The statements of transactions that can be executed again, and why other statements cannot.

use session::PinReason;
use sql_class::text::savepoint;
use sql_class::{Class, Effects, Facts};

/// Why a transaction is not executed again where its server is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// The transaction has more bytes than `transaction_replay_max`.
    TooLarge,
    /// `transaction_replay_memory` is used up.
    NoMemory,
    /// An answer is longer than what is read again, or has several results.
    Answer,
    /// A statement has committed, or may have.
    Commits,
    /// The server may have rolled back.
    RolledBack,
    /// A text with several statements.
    Several,
    /// A statement or a command that is not understood.
    NotUnderstood,
    /// The session held something on its connection before, or what it held is not known.
    Held,
    /// The session's state was changed in the middle.
    SessionState,
    /// The transaction was on a server by its name, or in a group.
    Elsewhere,
    /// Tables that know no transactions were written.
    NonTransactional,
    /// The reason for which a session would hold its connection.
    Pin(PinReason),
    /// The last statement was under way each time that the server was lost.
    LostTwice,
    /// Files of the server.
    ServerFile,
    /// Lists of processes and the like.
    ServerState,
    /// MariaDB's bulk execution.
    Bulk,
}

impl Why {
    /// The word in metrics.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::TooLarge => "too-large",
            Self::NoMemory => "no-memory",
            Self::Answer => "answer",
            Self::Commits => "commits",
            Self::RolledBack => "rolled-back",
            Self::Several => "several-statements",
            Self::NotUnderstood => "not-understood",
            Self::Held => "held",
            Self::SessionState => "session-state",
            Self::Elsewhere => "elsewhere",
            Self::NonTransactional => "non-transactional",
            Self::Pin(reason) => reason.label(),
            Self::LostTwice => "lost-twice",
            Self::ServerFile => "server-file",
            Self::ServerState => "server-state",
            Self::Bulk => "bulk",
        }
    }

    pub(crate) const ALL: [Self; 29] = [
        Self::TooLarge,
        Self::NoMemory,
        Self::Answer,
        Self::Commits,
        Self::RolledBack,
        Self::Several,
        Self::NotUnderstood,
        Self::Held,
        Self::SessionState,
        Self::Elsewhere,
        Self::NonTransactional,
        Self::LostTwice,
        Self::ServerFile,
        Self::ServerState,
        Self::Bulk,
        Self::Pin(PinReason::Xa),
        Self::Pin(PinReason::LoadData),
        Self::Pin(PinReason::TableLocks),
        Self::Pin(PinReason::GlobalLock),
        Self::Pin(PinReason::UserLock),
        Self::Pin(PinReason::TemporaryTable),
        Self::Pin(PinReason::Handler),
        Self::Pin(PinReason::Cursor),
        Self::Pin(PinReason::LongData),
        Self::Pin(PinReason::TextPrepare),
        Self::Pin(PinReason::Procedure),
        Self::Pin(PinReason::UnknownFunction),
        Self::Pin(PinReason::Sequence),
        Self::Pin(PinReason::LastInsertId),
    ];
}

/// Effects that reach beyond the transaction, or beyond what is understood. The first one in this order
/// counts.
const NOT_AGAIN: [(Effects, Why); 27] = [
    (Effects::INCOMPLETE, Why::NotUnderstood),
    (Effects::XA, Why::Pin(PinReason::Xa)),
    (Effects::LOADS_DATA, Why::Pin(PinReason::LoadData)),
    (Effects::LOCKS_TABLES, Why::Pin(PinReason::TableLocks)),
    (Effects::UNLOCKS_TABLES, Why::Pin(PinReason::TableLocks)),
    (Effects::GLOBAL_LOCK, Why::Pin(PinReason::GlobalLock)),
    (Effects::RELEASES_GLOBAL_LOCK, Why::Pin(PinReason::GlobalLock)),
    (Effects::TAKES_USER_LOCK, Why::Pin(PinReason::UserLock)),
    (Effects::RELEASES_ALL_LOCKS, Why::Pin(PinReason::UserLock)),
    (Effects::NEEDS_USER_LOCKS, Why::Pin(PinReason::UserLock)),
    (Effects::TEMPORARY_TABLE, Why::Pin(PinReason::TemporaryTable)),
    (Effects::HANDLER, Why::Pin(PinReason::Handler)),
    (Effects::TEXT_PREPARE, Why::Pin(PinReason::TextPrepare)),
    (Effects::CALLS_PROCEDURE, Why::Pin(PinReason::Procedure)),
    (Effects::SEQUENCE, Why::Pin(PinReason::Sequence)),
    (Effects::COMMITS, Why::Commits),
    (Effects::SETS_AUTOCOMMIT, Why::Commits),
    (Effects::SETS_UNCARRIED, Why::SessionState),
    (Effects::SETS_UNSEEN, Why::SessionState),
    (Effects::SET_STATEMENT, Why::SessionState),
    (Effects::SET_ROLE, Why::SessionState),
    (Effects::CHANGES_DATABASE, Why::SessionState),
    (Effects::SETS_GLOBAL, Why::NotUnderstood),
    (Effects::KILL, Why::NotUnderstood),
    (Effects::SERVER_FILE, Why::ServerFile),
    (Effects::CHANGES_ACCOUNT, Why::Commits),
    (Effects::CHANGES_SCHEMA, Why::Commits),
];

/// Figures that the gateway puts into a text as values.
const OWN_FIGURES: Effects = Effects::READS_CONNECTION_ID
    .with(Effects::READS_FOUND_ROWS)
    .with(Effects::READS_ROW_COUNT)
    .with(Effects::READS_LAST_GTID);

/// The part of a statement in the transaction that it is in, or begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The statement can be executed again with the transaction. `changes_rows`: it changes rows, or may.
    Statement {
        changes_rows: bool,
    },
    /// COMMIT or ROLLBACK.
    End,
    Not(Why),
}

/// The part of a statement. `is_open`: the transaction is open already. `trusts_functions`: functions that
/// are not the server's leave nothing behind.
pub(crate) fn part(facts: &Facts, text: &[u8], is_open: bool, trusts_functions: bool) -> Part {
    if facts.statements != 1 {
        return Part::Not(Why::Several);
    }
    let known = NOT_AGAIN
        .iter()
        .find(|(effects, _)| facts.effects.contains(*effects));
    if let Some((_, why)) = known {
        return Part::Not(*why);
    }
    let calls = facts.effects.contains(Effects::UNKNOWN_FUNCTION);
    if calls && !trusts_functions {
        return Part::Not(Why::Pin(PinReason::UnknownFunction));
    }
    match facts.class {
        // Own figures that were written would be those of another connection.
        Class::Write if facts.effects.intersects(OWN_FIGURES) => Part::Not(Why::ServerState),
        Class::Begin | Class::BeginReadOnly if is_open => Part::Not(Why::Commits),
        Class::Transaction if !savepoint::is_about_savepoint(text) => Part::End,
        Class::Ddl => Part::Not(Why::Commits),
        Class::Administration | Class::Unknown => Part::Not(Why::NotUnderstood),
        Class::Write => Part::Statement { changes_rows: true },
        _ => Part::Statement { changes_rows: calls },
    }
}

#[cfg(test)]
mod tests {
    use sql_class::Syntax;

    use super::*;

    fn of(text: &str, is_open: bool) -> Part {
        let facts = sql_class::facts(text.as_bytes(), Syntax::default());
        part(&facts, text.as_bytes(), is_open, false)
    }

    #[test]
    fn reads_writes_and_savepoints_are_executed_again() {
        for (text, changes_rows) in [
            ("START TRANSACTION WITH CONSISTENT SNAPSHOT", false),
            ("SELECT a FROM t FOR UPDATE", false),
            ("SELECT NOW(), UUID(), LAST_INSERT_ID()", false),
            ("SAVEPOINT a", false),
            ("rollback to a", false),
            ("ROLLBACK WORK TO SAVEPOINT a", false),
            (" RELEASE  SAVEPOINT a", false),
            ("SET @a = 1", false),
            ("INSERT INTO t VALUES (1)", true),
            ("UPDATE t SET a = @b", true),
            ("DELETE FROM t", true),
        ] {
            let is_open = !text.starts_with("START");
            assert_eq!(of(text, is_open), Part::Statement { changes_rows }, "{text}");
        }
    }

    #[test]
    fn what_ends_it_is_not() {
        for text in [
            "COMMIT",
            "ROLLBACK",
            "COMMIT AND CHAIN",
            "ROLLBACK /* TO */ WORK",
            "ROLLBACK WORK",
            "ROLLBACK AND CHAIN",
            "RELEASE/**/SAVEPOINT a",
        ] {
            assert_eq!(of(text, true), Part::End, "{text}");
        }
    }

    #[test]
    fn nor_is_what_reaches_beyond_it() {
        for (text, why) in [
            ("BEGIN", "commits"),
            ("START TRANSACTION READ ONLY", "commits"),
            ("CREATE TABLE a (b INT)", "commits"),
            ("TRUNCATE t", "commits"),
            ("SET autocommit = 1", "commits"),
            ("CREATE USER a", "commits"),
            ("XA START 'a'", "xa"),
            ("LOCK TABLES t READ", "table-locks"),
            ("LOAD DATA INFILE 'a' INTO TABLE t", "load-data"),
            ("CALL p()", "procedure"),
            ("SELECT GET_LOCK('a', 1)", "user-lock"),
            ("SELECT f(1)", "unknown-function"),
            ("CREATE TEMPORARY TABLE a (b INT)", "temporary-table"),
            ("EXECUTE a", "text-prepare"),
            ("SET ROLE a", "session-state"),
            ("USE a", "session-state"),
            ("SELECT 1 INTO OUTFILE '/a'", "server-file"),
            ("INSERT INTO t VALUES (CONNECTION_ID())", "server-state"),
            ("UPDATE t SET a = FOUND_ROWS()", "server-state"),
            ("SELECT 1; SELECT 2", "several-statements"),
            ("FLUSH LOGS", "commits"),
            ("INSERT INTO t VALUES ('a", "not-understood"),
        ] {
            match of(text, true) {
                Part::Not(found) => assert_eq!(found.label(), why, "{text}"),
                part => panic!("{text}: {part:?}"),
            }
        }
    }

    #[test]
    fn each_reason_has_a_word_of_its_own() {
        let mut labels: Vec<_> = Why::ALL.iter().map(|why| why.label()).collect();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), Why::ALL.len());
        for (_, why) in NOT_AGAIN {
            assert!(Why::ALL.contains(&why), "{why:?}");
        }
    }
}
