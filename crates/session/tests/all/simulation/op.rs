//! What clients do in a history, and what the classifier is to say of it.

use mysql_wire::Command;
use sql_class::{Class, Effects, Facts};

/// What a routine does, unseen by trackers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hidden {
    UserVariable,
    Lock(u8),
    Temporary,
    Insert,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Op {
    /// `SET name=value`, or `DEFAULT`.
    Set(&'static str, Option<&'static str>),
    /// `SET a=…, b=bad`: fails, half-way where true.
    SetHalf(&'static str, &'static str, bool),
    Names(&'static str, Option<&'static str>),
    CharacterSet(&'static str),
    Use(&'static str),
    InitDb(&'static str),
    DropDatabase,
    Read(&'static str),
    ReadSchema,
    SetUser(u8),
    SelectIntoUser(u8),
    ReadUser,
    Call(Hidden),
    Function(Hidden),
    GetLock(u8),
    ReleaseLock(u8),
    ReleaseAllLocks,
    CreateTemporary,
    DropTemporary,
    ReadTemporary,
    LockTables,
    UnlockTables,
    FlushWithReadLock,
    LockInstance,
    UnlockInstance,
    Ddl,
    Begin,
    BeginReadOnly,
    Commit,
    Rollback,
    NextIsolation(&'static str),
    Insert {
        explicit: Option<u64>,
        warns: bool,
    },
    Count,
    LastInsertId,
    SelectLastInsertId(u64),
    RowCount,
    FoundRows,
    CalcFoundRows,
    ShowWarnings,
    Fail,
    SyntaxError,
    /// `true`: a text that names its schema.
    Prepare(u8, bool),
    Close(u8),
    Execute {
        slot: u8,
        cursor: bool,
    },
    Fetch(u8),
    LongData(u8),
    ResetStatement(u8),
    TextPrepare(u8),
    TextExecute,
    SetOption(bool),
    Multi(Box<Op>, Box<Op>),
    SetStatement(&'static str),
    SetRole(u8),
    ReadRole,
    HandlerOpen,
    HandlerRead,
    NextVal,
    LastVal,
    SetTimestamp(Option<u8>),
    Now,
    SetInsertId(u64),
    SetLastInsertId(u64),
    IdIsNull,
    Track(&'static str, &'static str),
    Ping,
    ResetConnection,
}

impl Op {
    pub(crate) fn command(&self) -> Command {
        match self {
            Op::InitDb(_) => Command::INIT_DB,
            Op::Prepare(..) => Command::STMT_PREPARE,
            Op::Close(_) => Command::STMT_CLOSE,
            Op::Execute { .. } => Command::STMT_EXECUTE,
            Op::Fetch(_) => Command::STMT_FETCH,
            Op::LongData(_) => Command::STMT_SEND_LONG_DATA,
            Op::ResetStatement(_) => Command::STMT_RESET,
            Op::SetOption(_) => Command::SET_OPTION,
            Op::Ping => Command::PING,
            Op::ResetConnection => Command::RESET_CONNECTION,
            _ => Command::QUERY,
        }
    }

    /// The statement that a command of prepared statements is about.
    pub(crate) fn slot(&self) -> Option<u8> {
        match self {
            Op::Prepare(slot, _) | Op::Close(slot) | Op::Execute { slot, .. } => Some(*slot),
            Op::Fetch(slot) | Op::LongData(slot) | Op::ResetStatement(slot) => Some(*slot),
            _ => None,
        }
    }

    /// Only as much of it as the session reads.
    pub(crate) fn text(&self) -> String {
        match self {
            Op::Set(name, value) => format!("SET {name}={}", value.unwrap_or("DEFAULT")),
            Op::SetHalf(name, value, _) => format!("SET {name}='{value}', sql_mode='bad'"),
            Op::Names(charset, None) => format!("SET NAMES {charset}"),
            Op::Names(charset, Some(collation)) => format!("set names '{charset}' collate {collation}"),
            Op::CharacterSet(charset) => format!("SET CHARACTER SET {charset}"),
            Op::Track(name, value) => format!("SET {name}='{value}'"),
            Op::SetStatement(value) => format!("SET STATEMENT lc_time_names='{value}' FOR SELECT 1"),
            Op::Multi(first, second) => format!("{}; {}", first.text(), second.text()),
            Op::ShowWarnings => "SHOW WARNINGS".to_owned(),
            Op::ReleaseAllLocks => "SELECT RELEASE_ALL_LOCKS()".to_owned(),
            other => format!("{other:?}"),
        }
    }

    pub(crate) fn facts(&self) -> Facts {
        let (class, effects) = self.class_and_effects();
        let statements = match self {
            Op::Multi(..) => 2,
            _ => 1,
        };
        Facts {
            class,
            effects,
            statements,
            hint: None,
        }
    }

    fn class_and_effects(&self) -> (Class, Effects) {
        use Class::{Administration, Begin, BeginReadOnly, Ddl, Session, Transaction, Unknown, Write};
        let read = |effects| (Class::Read, effects);
        match self {
            Op::Set("autocommit", _) => (Session, Effects::SETS_AUTOCOMMIT),
            Op::Set("sql_log_bin", _) | Op::SetTimestamp(_) | Op::SetInsertId(_) | Op::SetLastInsertId(_) => {
                (Session, Effects::SETS_UNCARRIED)
            }
            Op::Set(..) | Op::SetHalf(..) | Op::Names(..) | Op::CharacterSet(_) | Op::Track(..) => {
                (Session, Effects::NONE)
            }
            Op::Use(_) => (Session, Effects::CHANGES_DATABASE),
            Op::DropDatabase => (Ddl, Effects::COMMITS.with(Effects::CHANGES_SCHEMA)),
            Op::SetUser(_) => (Session, Effects::USER_VARIABLES),
            Op::SelectIntoUser(_) | Op::ReadUser => read(Effects::USER_VARIABLES),
            Op::Call(_) => (Unknown, Effects::CALLS_PROCEDURE),
            Op::Function(_) => read(Effects::UNKNOWN_FUNCTION),
            Op::GetLock(_) => read(Effects::TAKES_USER_LOCK),
            Op::ReleaseLock(_) => read(Effects::NEEDS_USER_LOCKS),
            Op::ReleaseAllLocks => read(Effects::RELEASES_ALL_LOCKS),
            Op::CreateTemporary => (Ddl, Effects::TEMPORARY_TABLE),
            Op::DropTemporary | Op::Ddl => (Ddl, Effects::COMMITS.with(Effects::CHANGES_SCHEMA)),
            Op::LockTables => (Administration, Effects::LOCKS_TABLES),
            Op::UnlockTables => (Administration, Effects::UNLOCKS_TABLES),
            Op::FlushWithReadLock | Op::LockInstance => (Administration, Effects::GLOBAL_LOCK),
            Op::UnlockInstance => (Administration, Effects::RELEASES_GLOBAL_LOCK),
            Op::Begin => (Begin, Effects::NONE),
            Op::BeginReadOnly => (BeginReadOnly, Effects::NONE),
            Op::Commit | Op::Rollback => (Transaction, Effects::NONE),
            Op::NextIsolation(_) => (Session, Effects::NEXT_TRANSACTION),
            Op::Insert { .. } => (Write, Effects::NONE),
            Op::SelectLastInsertId(_) => read(Effects::SETS_UNCARRIED.with(Effects::READS_LAST_INSERT_ID)),
            Op::LastInsertId => read(Effects::READS_LAST_INSERT_ID),
            Op::RowCount => read(Effects::READS_ROW_COUNT),
            Op::FoundRows => read(Effects::READS_FOUND_ROWS),
            Op::CalcFoundRows => read(Effects::CALCULATES_FOUND_ROWS),
            Op::ShowWarnings => read(Effects::READS_DIAGNOSTICS),
            Op::SyntaxError => (Unknown, Effects::NONE),
            Op::TextPrepare(_) | Op::TextExecute => (Unknown, Effects::TEXT_PREPARE),
            Op::Multi(first, second) => {
                let (one, two) = (first.class_and_effects(), second.class_and_effects());
                (one.0.max(two.0), one.1.with(two.1))
            }
            Op::SetStatement(_) => (Session, Effects::SET_STATEMENT),
            Op::SetRole(_) => (Session, Effects::SET_ROLE),
            Op::HandlerOpen | Op::HandlerRead => (Class::LockingRead, Effects::HANDLER),
            Op::NextVal | Op::LastVal => (Write, Effects::SEQUENCE),
            _ => read(Effects::NONE),
        }
    }

    /// MariaDB keeps the diagnostics of the statement before.
    pub(crate) fn uses_no_tables(&self) -> bool {
        let class = self.class_and_effects().0;
        matches!(
            class,
            Class::Session | Class::Begin | Class::BeginReadOnly | Class::Transaction
        )
    }
}
