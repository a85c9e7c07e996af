//! What is known of a statement.

use serde::{Deserialize, Serialize};

/// What a statement does to data. Ordered: of several statements in one text the greatest counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Class {
    /// Reads and leaves nothing behind: may run on a replica.
    Read,
    /// `SET`, `USE`: changes the session only. Runs where the session is.
    Session,
    /// `SELECT … FOR UPDATE`, `LOCK IN SHARE MODE`, `FOR SHARE`; `LOCK TABLES`, `HANDLER`: changes no rows
    /// and is not for a replica.
    LockingRead,
    /// `START TRANSACTION READ ONLY`.
    BeginReadOnly,
    /// `BEGIN`, `START TRANSACTION`, `XA START`.
    Begin,
    /// `COMMIT`, `ROLLBACK`, `SAVEPOINT`, `XA END` and so on.
    Transaction,
    /// Changes rows, sequences or files of the server.
    Write,
    /// Changes the schema.
    Ddl,
    /// About the server: `SHOW PROCESSLIST`, `KILL`, `SET GLOBAL`, `FLUSH`, `CHANGE MASTER`, accounts.
    Administration,
    /// Not understood, or may do anything (`CALL`, `EXECUTE IMMEDIATE`).
    Unknown,
}

impl Class {
    /// The word in logs, rules and explanations.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Session => "session",
            Self::LockingRead => "locking-read",
            Self::BeginReadOnly => "begin-read-only",
            Self::Begin => "begin",
            Self::Transaction => "transaction",
            Self::Write => "write",
            Self::Ddl => "ddl",
            Self::Administration => "administration",
            Self::Unknown => "unknown",
        }
    }
}

/// What a statement may do to the session or needs from it, which trackers do not show or show too late. A
/// set of bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Effects(pub u64);

macro_rules! effects {
    ($($(#[doc = $doc:literal])+ $name:ident = $bit:literal, $label:literal;)+) => {
        impl Effects {
            $($(#[doc = $doc])+ pub const $name: Self = Self(1 << $bit);)+

            /// Every single effect with its word.
            pub const ALL: &'static [(Self, &'static str)] = &[$((Self::$name, $label)),+];
        }
    };
}

effects! {
    /// Names a user variable (`@name`, not `@@`): may read or set it.
    USER_VARIABLES = 0, "user-variables";
    /// `GET_LOCK` and the like.
    TAKES_USER_LOCK = 1, "takes-user-lock";
    /// `RELEASE_ALL_LOCKS()`.
    RELEASES_ALL_LOCKS = 2, "releases-all-locks";
    /// `RELEASE_LOCK`, `IS_USED_LOCK`, `IS_FREE_LOCK`: needs the connection that holds the locks, if any.
    NEEDS_USER_LOCKS = 3, "needs-user-locks";
    /// `CREATE TEMPORARY TABLE`.
    TEMPORARY_TABLE = 4, "temporary-table";
    /// `LOCK TABLES`.
    LOCKS_TABLES = 5, "locks-tables";
    /// `UNLOCK TABLES`.
    UNLOCKS_TABLES = 6, "unlocks-tables";
    /// `FLUSH TABLES WITH READ LOCK`, `FLUSH TABLES … FOR EXPORT`, `LOCK INSTANCE FOR BACKUP`,
    /// `BACKUP STAGE`, `BACKUP LOCK`.
    GLOBAL_LOCK = 7, "global-lock";
    /// `UNLOCK INSTANCE`, `BACKUP STAGE END`, `BACKUP UNLOCK`.
    RELEASES_GLOBAL_LOCK = 8, "releases-global-lock";
    /// `HANDLER … OPEN`, and every other `HANDLER` statement.
    HANDLER = 9, "handler";
    /// Text `PREPARE`, `EXECUTE`, `DEALLOCATE PREPARE`.
    TEXT_PREPARE = 10, "text-prepare";
    /// `LAST_INSERT_ID()`, `@@last_insert_id`, `@@identity`. With an argument the function sets it, which is
    /// [`Effects::SETS_UNCARRIED`] as well.
    READS_LAST_INSERT_ID = 11, "reads-last-insert-id";
    /// `ROW_COUNT()`, `GET DIAGNOSTICS … = ROW_COUNT`.
    READS_ROW_COUNT = 12, "reads-row-count";
    /// `FOUND_ROWS()`.
    READS_FOUND_ROWS = 13, "reads-found-rows";
    /// `SHOW WARNINGS`, `SHOW ERRORS`, `SHOW COUNT(*) WARNINGS`, `GET DIAGNOSTICS`, `@@warning_count`,
    /// `@@error_count`.
    READS_DIAGNOSTICS = 14, "reads-diagnostics";
    /// `SQL_CALC_FOUND_ROWS`.
    CALCULATES_FOUND_ROWS = 15, "calculates-found-rows";
    /// `CONNECTION_ID()`, `@@pseudo_thread_id`, `PS_CURRENT_THREAD_ID()`.
    READS_CONNECTION_ID = 16, "reads-connection-id";
    /// `CALL`: a procedure may do anything to the session.
    CALLS_PROCEDURE = 17, "calls-procedure";
    /// A function that is not one of the server's own: it may write, lock, or set variables.
    UNKNOWN_FUNCTION = 18, "unknown-function";
    /// `SET TRANSACTION …` for the next transaction only.
    NEXT_TRANSACTION = 19, "next-transaction";
    /// MariaDB's `SET STATEMENT … FOR …`: the variables it reports are not to be kept.
    SET_STATEMENT = 20, "set-statement";
    /// `SET ROLE`, `SET DEFAULT ROLE`.
    SET_ROLE = 21, "set-role";
    /// Sets `sql_log_bin`, `gtid_next`, `wsrep_on`, `pseudo_*`, `gtid_domain_id`, `server_id`, `insert_id`,
    /// `rand_seed1`, `timestamp`, `last_insert_id`, `identity`: state that is not carried to another
    /// connection. `COMMIT RELEASE`, which ends it.
    SETS_UNCARRIED = 22, "sets-uncarried";
    /// `SET GLOBAL`, `SET PERSIST`.
    SETS_GLOBAL = 23, "sets-global";
    /// Starts or goes on with an XA transaction.
    XA = 24, "xa";
    /// `LOAD DATA`, with or without `LOCAL`.
    LOADS_DATA = 25, "loads-data";
    /// `INTO OUTFILE`, `INTO DUMPFILE`, `LOAD_FILE()`: touches files of one server.
    SERVER_FILE = 26, "server-file";
    /// `KILL`.
    KILL = 27, "kill";
    /// Reads something that differs from server to server: `@@hostname`, `@@server_id`, `@@read_only`,
    /// `SHOW STATUS`, `SHOW MASTER STATUS`, `SHOW PROCESSLIST`, `performance_schema`,
    /// `information_schema.processlist` …
    READS_SERVER = 28, "reads-server";
    /// `NEXTVAL`, `LASTVAL`, `NEXT VALUE FOR`: sequences; `LASTVAL` belongs to the connection.
    SEQUENCE = 29, "sequence";
    /// An implicit commit: DDL and the like.
    COMMITS = 30, "commits";
    /// `CREATE …`/`ALTER …`/`DROP …` and others that make prepared statements or metadata stale.
    CHANGES_SCHEMA = 31, "changes-schema";
    /// `USE`.
    CHANGES_DATABASE = 32, "changes-database";
    /// The text was cut off or ended inside a quote or comment, or servers may read it in more than one way:
    /// there may be more to it than was seen. Its class is [`Class::Write`] or greater.
    INCOMPLETE = 33, "incomplete";
    /// `SET PASSWORD`, `ALTER USER`, `CREATE USER …`: an account may have changed.
    CHANGES_ACCOUNT = 34, "changes-account";
    /// `SET autocommit`: begins or ends a way of working, and may commit.
    SETS_AUTOCOMMIT = 35, "sets-autocommit";
    /// `FOREBAY …`: a statement for the gateway itself.
    GATEWAY = 36, "gateway";
    /// MariaDB's `INSERT … RETURNING`: the answer has rows in the place of the id that was made.
    RETURNS_INSERTED = 37, "returns-inserted";
    /// MariaDB's `@@last_gtid`: of the session's last write.
    READS_LAST_GTID = 38, "reads-last-gtid";
    /// No text tells: whatever a procedure does, or a statement that is not understood, nothing of it is on
    /// the connection afterwards, as somebody says who knows.
    LEAVES_NOTHING = 39, "leaves-nothing";
    /// MariaDB's `SET @@name = …` without a scope: no tracker reports it.
    SETS_UNSEEN = 40, "sets-unseen";
}

impl Effects {
    pub const NONE: Self = Self(0);

    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Where a comment in front of the statement wants it to go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hint {
    /// `/* forebay: primary */`
    Primary,
    /// `/* forebay: replica */`
    Replica,
    /// `/* forebay: server=NAME */`
    Server(Box<str>),
    /// `/* forebay: tag=WORD */`, for rules.
    Tag(Box<str>),
}

/// What is known of a text with one statement or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The greatest of all statements in the text.
    pub class: Class,
    /// Of all statements in the text.
    pub effects: Effects,
    /// Statements in the text; 0 where there are only comments, which a server answers with an error. The
    /// definition of a stored program is one with all that comes after it.
    pub statements: u32,
    pub hint: Option<Hint>,
}
