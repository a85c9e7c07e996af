//! Why a session may not leave its server connection.

use serde::{Deserialize, Serialize};

macro_rules! pin_reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $label:literal,)+) => {
        /// A reason. The words of [`PinReason::label`] are those of logs, metrics and `FOREBAY EXPLAIN`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum PinReason { $($(#[doc = $doc])+ $name,)+ }

        impl PinReason {
            /// All of them, for metrics.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The word in logs and metrics.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)+ }
            }
        }
    };
}

pin_reasons! {
    /// A transaction is open, or `autocommit=0` and something was read.
    Transaction = "transaction",
    /// XA: whether a branch is still bound to the connection cannot be seen.
    Xa = "xa",
    /// `SET TRANSACTION …` for the next transaction, which has not come yet.
    NextTransaction = "next-transaction",
    /// `LOCK TABLES`.
    TableLocks = "table-locks",
    /// `FLUSH TABLES WITH READ LOCK`, `LOCK INSTANCE FOR BACKUP`, `BACKUP STAGE`, `BACKUP LOCK`.
    GlobalLock = "global-lock",
    /// `GET_LOCK` and the like.
    UserLock = "user-lock",
    /// `CREATE TEMPORARY TABLE`; no server tells when the last one is gone.
    TemporaryTable = "temporary-table",
    /// `HANDLER … OPEN`.
    Handler = "handler",
    /// An open cursor of a prepared statement.
    Cursor = "cursor",
    /// COM_STMT_SEND_LONG_DATA whose statement was not executed yet.
    LongData = "long-data",
    /// `LOAD DATA` is under way.
    LoadData = "load-data",
    /// The connection is a stream, or its client is a replica: binlog dump, clone.
    Stream = "stream",
    /// `sql_log_bin=0`.
    BinlogOff = "binlog-off",
    /// `gtid_next` is not `AUTOMATIC`.
    GtidNext = "gtid-next",
    /// `wsrep_on=0`.
    WsrepOff = "wsrep-off",
    /// User variables.
    UserVariables = "user-variables",
    /// `PREPARE`, `EXECUTE`, `DEALLOCATE PREPARE` as text.
    TextPrepare = "text-prepare",
    /// `CALL`: a procedure may do anything to the session, unseen.
    Procedure = "procedure",
    /// A function that is not the server's own: it may lock or set variables, unseen.
    UnknownFunction = "unknown-function",
    /// A statement that is not understood.
    NotUnderstood = "not-understood",
    /// A text that was not seen to its end.
    Incomplete = "incomplete",
    /// A variable whose value makes no sense elsewhere or cannot be read back: `timestamp`, `insert_id`,
    /// `rand_seed1` …
    Uncarried = "uncarried-variable",
    /// `SET ROLE`.
    Role = "role",
    /// MariaDB's `SET STATEMENT`: what it restored is reported with the next statement only.
    SetStatement = "set-statement",
    /// Sequences: `LASTVAL` belongs to the connection.
    Sequence = "sequence",
    /// The server says that some state changed, and nothing explains what.
    StateChange = "state-change",
    /// A statement failed that may have changed something before: seen with the next OK.
    Unsettled = "unsettled",
    /// Warnings or an error that the next statement may ask for.
    Diagnostics = "diagnostics",
    /// `SQL_CALC_FOUND_ROWS`: the next statement may ask for the count.
    FoundRows = "found-rows",
    /// What `LAST_INSERT_ID()` would say is not known here.
    LastInsertId = "last-insert-id",
    /// The trackers are not armed as they have to be.
    Trackers = "trackers",
    /// A prepared statement asks for ROW_COUNT(), FOUND_ROWS() or the last GTID: it may be executed at any
    /// time, and a server says its own.
    PreparedFigures = "prepared-figures",
    /// A rule with `pin = "always"`.
    Rule = "rule",
    /// The user's pooling is `session`: one connection for as long as the client stays.
    SessionPooling = "session-pooling",
    /// The gateway does not know the account's password, with which to log in on another server.
    NoCredentials = "no-credentials",
    /// Another server did not let the account in, or took it for another one.
    LoginRefused = "login-refused",
    /// No other server had what the session has written.
    Behind = "behind",
    /// Another server cannot be made what the session's is: a variable that it refuses or does not know.
    Incompatible = "incompatible",
    /// No other server is up and has room, or it failed in the middle of a move.
    NoServer = "no-server",
}

impl PinReason {
    /// It holds nobody on a connection: a move to another server came to nothing.
    #[must_use]
    pub const fn is_of_moves(self) -> bool {
        matches!(
            self,
            Self::NoCredentials | Self::LoginRefused | Self::Behind | Self::Incompatible | Self::NoServer
        )
    }

    /// It ends with the next command, unless that asks for what is held: a session that wants to leave may do
    /// so then.
    #[must_use]
    pub const fn ends_with_next_statement(self) -> bool {
        matches!(self, Self::Diagnostics | Self::FoundRows)
    }
}

/// One reason, with the statement that caused it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    pub reason: PinReason,
    /// The digest of the statement; 0 where it is not known, and where no statement is to blame.
    pub digest: u64,
    pub since_ms: u64,
}

impl Pin {
    /// The same by another clock, which says `here` where the one before says `there`.
    #[must_use]
    pub fn by_clock(self, there: u64, here: u64) -> Self {
        Self {
            since_ms: here.saturating_sub(there.saturating_sub(self.since_ms)),
            ..self
        }
    }
}

/// At most one pin a reason: the first statement that caused it is the one to blame.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Pins(Vec<Pin>);

impl Pins {
    /// See [`Pin::by_clock`].
    pub(crate) fn set_clock(&mut self, there: u64, here: u64) {
        self.0.iter_mut().for_each(|pin| *pin = pin.by_clock(there, here));
    }

    pub(crate) fn as_slice(&self) -> &[Pin] {
        &self.0
    }

    pub(crate) fn get(&self, reason: PinReason) -> Option<Pin> {
        self.0.iter().find(|pin| pin.reason == reason).copied()
    }

    pub(crate) fn has(&self, reason: PinReason) -> bool {
        self.get(reason).is_some()
    }

    pub(crate) fn add(&mut self, reason: PinReason, digest: u64, since_ms: u64) {
        if !self.has(reason) {
            self.0.push(Pin {
                reason,
                digest,
                since_ms,
            });
        }
    }

    /// What is there has begun just now.
    pub(crate) fn begin(&mut self, now_ms: u64) {
        self.0.iter_mut().for_each(|pin| pin.since_ms = now_ms);
    }

    pub(crate) fn remove(&mut self, reason: PinReason) {
        self.0.retain(|pin| pin.reason != reason);
    }

    /// Everything that was bound to a server connection that is gone or was reset.
    pub(crate) fn clear(&mut self) {
        self.0.retain(|pin| pin.reason == PinReason::SessionPooling);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_unique_lower_case_words() {
        let mut labels: Vec<_> = PinReason::ALL.iter().map(|reason| reason.label()).collect();
        assert!(
            labels
                .iter()
                .all(|label| label.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'))
        );
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), PinReason::ALL.len());
    }

    #[test]
    fn the_first_statement_is_to_blame() {
        let mut pins = Pins::default();
        pins.add(PinReason::Transaction, 1, 10);
        pins.add(PinReason::Transaction, 2, 20);
        assert_eq!(
            pins.as_slice(),
            [Pin {
                reason: PinReason::Transaction,
                digest: 1,
                since_ms: 10
            }]
        );
        pins.remove(PinReason::Transaction);
        assert!(pins.as_slice().is_empty());
    }
}
