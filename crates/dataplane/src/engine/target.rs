//! Targets of statements: where each may run.

use std::sync::Arc;

use sql_class::Effects;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// On the primary.
    Primary {
        /// The statement is of no use anywhere else.
        for_writing: bool,
    },
    /// On a replica that is fresh enough, or on the primary.
    Replica,
    /// On the primary, or on any server where that would have to be waited for.
    Anywhere,
    /// On a server of this group, by a rule.
    Group {
        name: Arc<str>,
        /// The statement has to see what reads have to.
        is_read: bool,
    },
    /// On the server of this name, by a hint.
    Named(Box<str>),
    /// On the connection that the session holds for a transaction that may still leave it.
    Held,
}

/// Effects that keep a read from a replica: the read depends on this session's connection or on this very
/// server, it leaves something behind, or nobody knows.
pub(crate) const PRIMARY_ONLY: Effects = Effects::USER_VARIABLES
    .with(Effects::TAKES_USER_LOCK)
    .with(Effects::RELEASES_ALL_LOCKS)
    .with(Effects::NEEDS_USER_LOCKS)
    .with(Effects::TEMPORARY_TABLE)
    .with(Effects::LOCKS_TABLES)
    .with(Effects::UNLOCKS_TABLES)
    .with(Effects::GLOBAL_LOCK)
    .with(Effects::RELEASES_GLOBAL_LOCK)
    .with(Effects::HANDLER)
    .with(Effects::TEXT_PREPARE)
    .with(Effects::READS_LAST_INSERT_ID)
    .with(Effects::READS_ROW_COUNT)
    .with(Effects::READS_FOUND_ROWS)
    .with(Effects::READS_DIAGNOSTICS)
    .with(Effects::CALCULATES_FOUND_ROWS)
    .with(Effects::READS_CONNECTION_ID)
    .with(Effects::READS_LAST_GTID)
    .with(Effects::CALLS_PROCEDURE)
    .with(Effects::UNKNOWN_FUNCTION)
    .with(Effects::NEXT_TRANSACTION)
    .with(Effects::SET_STATEMENT)
    .with(Effects::SET_ROLE)
    .with(Effects::SETS_UNCARRIED)
    .with(Effects::SETS_GLOBAL)
    .with(Effects::XA)
    .with(Effects::LOADS_DATA)
    .with(Effects::SERVER_FILE)
    .with(Effects::KILL)
    .with(Effects::READS_SERVER)
    .with(Effects::SEQUENCE)
    .with(Effects::COMMITS)
    .with(Effects::CHANGES_SCHEMA)
    .with(Effects::CHANGES_DATABASE)
    .with(Effects::INCOMPLETE)
    .with(Effects::CHANGES_ACCOUNT)
    .with(Effects::SETS_AUTOCOMMIT);
