//! Why a session ends or a statement is refused, whose fault it is, and what the client is told.
//!
//! MySQL errors of the gateway's own are made up here and nowhere else ([`SessionError::to_packet`]). The
//! words also appear in the log line of the session and, as labels, in the metrics.

use std::io;

use mysql_wire::{ErrPacket, WireError};
use telemetry::{EndReason, Fault};
use thiserror::Error;
use upstream::LeaseError;

use crate::elsewhere::NotKilled;

/// The reason why a session has ended. Every session ends with one, also when the client simply said goodbye.
#[derive(Debug, Error)]
pub(crate) enum SessionError {
    #[error("the client quit")]
    ClientQuit,
    #[error("the client closed the connection")]
    ClientGone,
    #[error("connection to the client failed: {0}")]
    ClientFailed(io::Error),
    #[error("the client sent something that is not the MySQL protocol: {0}")]
    ClientProtocol(WireError),
    /// The client broke a protocol that is not MySQL's.
    #[error("the client broke the protocol: {0}")]
    ClientBroke(String),
    #[error("nothing here serves the protocol of this listener")]
    NotServed,
    #[error("a login packet of {0} bytes is too long")]
    PacketTooLong(usize),
    #[error("TLS with the client failed: {0}")]
    ClientTls(io::Error),
    #[error("the PROXY header that accept_proxy_from asks of this address is wrong: {0}")]
    ProxyHeader(String),
    #[error("no PROXY header came within {0:?}, which accept_proxy_from asks of this address")]
    ProxyHeaderMissing(std::time::Duration),
    #[error("a PROXY header from an address that accept_proxy_from does not name")]
    ProxyHeaderUnexpected,
    #[error("the client did not log in within {0:?}")]
    LoginTimeout(std::time::Duration),
    #[error("Connections using insecure transport are prohibited: this listener requires TLS")]
    TlsRequired,
    #[error("the client lacks {0}, which this gateway needs")]
    ClientTooOld(&'static str),
    /// The server's error packet, which the client has yet to be told, after the time `held`.
    #[error("the server refused the login")]
    LoginRefused {
        payload: Vec<u8>,
        held: std::time::Duration,
    },
    /// Logins by COM_CHANGE_USER were refused as often as `login_failures_max` says. The client was told.
    #[error("the server refused the logins")]
    LoginsRefused,
    #[error(
        "Host is blocked for a moment: too many logins of this account from this address have failed, and others wait already; try again later"
    )]
    TooManyFailures,
    #[error("{0}")]
    PasswordExposed(String),
    #[error("no server with the name {0} in the cluster")]
    NoSuchServer(Box<str>),
    #[error("no server of the cluster can take sessions now")]
    NoServerInRole,
    #[error("no primary within failover_wait ({0:?})")]
    NoPrimary(std::time::Duration),
    /// The words are a server's.
    #[error("no primary within failover_wait ({limit:?}) but {server}, which refuses writes: {words}")]
    NoOtherPrimary {
        server: String,
        limit: std::time::Duration,
        words: String,
    },
    #[error("the cluster is paused, for longer than pause_timeout ({0:?}); the statement was not executed")]
    PausedTooLong(std::time::Duration),
    #[error("the cluster is paused, and pause_max statements wait already; the statement was not executed")]
    PauseFull,
    #[error("writes are refused: {0}")]
    WritesRefused(String),
    #[error(
        "this session is bound to the connection to {server} ({reasons}), which is not the primary's; the statement was not executed"
    )]
    PinnedToReplica { server: String, reasons: String },
    #[error(
        "a read-only transaction is open on {0}, which is not the primary, and one of these statements may end it: send its end by itself; nothing was executed"
    )]
    SeveralOnReplica(String),
    #[error(
        "server {server} is no longer the primary, and this session is bound to the connection to it ({reasons}); the statement was not executed, connect again"
    )]
    Demoted { server: String, reasons: String },
    #[error(
        "server {server}, the primary, does not have within failover_wait ({limit:?}) what this session has written before"
    )]
    NotCaughtUp {
        server: String,
        limit: std::time::Duration,
    },
    /// The session's server is gone.
    #[error(
        "no server has within failover_wait ({limit:?}) what this session has written or seen on {server}, which is gone; connect again"
    )]
    NobodyHasWrites {
        server: String,
        limit: std::time::Duration,
    },
    /// The session's server is gone.
    #[error(
        "what LAST_INSERT_ID() was is lost with server {0}, which is gone; the statement was not executed, connect again"
    )]
    InsertIdLost(String),
    /// The packet is a server's.
    #[error("the session's state could not be set on server {server}: {} {}", .packet.code, String::from_utf8_lossy(&.packet.message))]
    StateRefused { server: String, packet: ErrPacket },
    /// The packet is a server's.
    #[error("the statement could not be prepared again: {} {}", .0.code, String::from_utf8_lossy(&.0.message))]
    PrepareRefused(ErrPacket),
    /// In the words of a server.
    #[error("Unknown prepared statement handler ({id}) given to mysqld_{command}")]
    UnknownStatement { id: u32, command: &'static str },
    /// In the words of MariaDB: a bulk execution by a client that did not ask for the right to it.
    #[error("This command is not supported in the prepared statement protocol yet")]
    NotInProtocol,
    /// In the words of a server.
    #[error("The statement ({0}) has no open cursor")]
    NoCursor(u32),
    /// In the words of MySQL.
    #[error("Malformed communication packet.")]
    Malformed,
    /// In the words of MySQL.
    #[error("Unknown command")]
    UnknownCommand,
    /// A session has killed its own statement.
    #[error("Query execution was interrupted")]
    Interrupted,
    /// A session has killed itself.
    #[error("{}", if *.mariadb { "Connection was killed" } else { "Query execution was interrupted" })]
    KilledItself { mariadb: bool },
    #[error("the prepared statement is no longer what it was when it was prepared: prepare it again")]
    StatementChanged,
    #[error("this session has {0} prepared statements, which is the limit")]
    TooManyStatements(usize),
    #[error("a command of {0} bytes is too long for what the gateway has to change in it")]
    StatementTooLong(usize),
    #[error("KILL: {0}")]
    KillFailed(String),
    #[error("KILL of a session on another server, by the account of the checks: {0}")]
    KillFailedThere(String),
    #[error("no such session: {0}")]
    NoSuchSession(u32),
    /// No other gateway is known to have the session, for this reason.
    #[error("{0} ({1})")]
    NoSuchSessionThere(u32, String),
    /// A session of another user, in the words of a server.
    #[error("You are not owner of thread {0}")]
    NotOwner(u32),
    /// A rule of the configuration refuses the statement.
    #[error("{0}")]
    RefusedByRule(String),
    #[error("the statement has exceeded '{limit}' of the rule {rule}")]
    RuleLimit { rule: String, limit: &'static str },
    #[error("no server of the group {0} can take the statement")]
    NoServerInGroup(Box<str>),
    /// In the words of a server.
    #[error("Query execution was interrupted, {}", if *.mariadb { "max_statement_time exceeded" } else { "maximum statement execution time exceeded" })]
    StatementTimeout { mariadb: bool },
    #[error("FOREBAY: {0}")]
    GatewayStatement(String),
    /// Logins of server connections that sessions share have eight bits for the collation, COM_CHANGE_USER
    /// has sixteen.
    #[error(
        "'{0}' in COM_CHANGE_USER, where this gateway passes those up to 255; say it in SET NAMES ... COLLATE"
    )]
    UnknownCollation(u16),
    /// In mode `split`, in the words of a server. The account may exist or not.
    #[error("Access denied for user '{user}'@'{host}' (using password: {})", yes_or_no(.with_password))]
    AccessDenied {
        user: String,
        host: String,
        with_password: bool,
    },
    #[error("User '{user}' has exceeded the 'max_user_connections' resource (current value: {limit})")]
    TooManyUserSessions { user: String, limit: u32 },
    #[error("no server available: {0}")]
    NoServer(LeaseError),
    #[error("no server available: no server of the cluster has answered yet")]
    NoServerSeen,
    #[error("Too many connections")]
    TooManySessions,
    #[error("Too many connections: the gateway is short of memory (memory_max)")]
    ShortOfMemory,
    /// The packet is a server's, about what the client is or has asked for with its login, not about how the
    /// gateway logs in for it.
    #[error("server {server} refused the login: {} {}", .packet.code, String::from_utf8_lossy(&.packet.message))]
    NotAdmitted { server: String, packet: ErrPacket },
    #[error("server {server} refused the connection: {} {}", .packet.code, String::from_utf8_lossy(&.packet.message))]
    ServerRefused { server: String, packet: ErrPacket },
    #[error("login to server {server} failed: {cause}")]
    ServerLogin { server: String, cause: String },
    #[error("lost connection to server {server} {during}")]
    ServerGone { server: String, during: During },
    #[error("server {server} sent something that is not the MySQL protocol: {cause}")]
    ServerProtocol { server: String, cause: WireError },
    #[error(
        "server {server} was found down by its health check; it is not known whether a command under way was executed"
    )]
    ServerDown { server: String },
    #[error(
        "server {server} did not go on with its answer for {timeout:?}; it is not known whether the command was executed"
    )]
    ServerTimeout {
        server: String,
        timeout: std::time::Duration,
    },
    #[error("The client was disconnected by the gateway because of inactivity")]
    ClientIdle,
    /// `is_told`: the session's server would say so.
    #[error(
        "The client was disconnected by the server because of inactivity. \
         See wait_timeout and interactive_timeout for configuring this behavior."
    )]
    WaitTimeout { is_told: bool },
    #[error("the client did not go on with its command for the gateway's stall_timeout")]
    RequestStalled,
    #[error("the client did not take its answer for the gateway's stall_timeout")]
    ReaderStalled,
    #[error("Connection was killed")]
    Killed,
    #[error("the server is taken out of service; connect again")]
    Drained,
    #[error("Server shutdown in progress")]
    Shutdown,
    /// Somebody has ended the session while a command was under way that may write.
    #[error("{0}; it is not known whether the command under way was executed")]
    EndedInWrite(Box<Self>),
    /// Nothing is told to anybody: the session goes on.
    #[error("the session goes on in the process that has taken over")]
    HandedOver,
}

impl From<LeaseError> for SessionError {
    fn from(error: LeaseError) -> Self {
        match error {
            LeaseError::Left => Self::ClientGone,
            error => Self::NoServer(error),
        }
    }
}

/// The state of a session when its server went away, which decides whether the statement's fate is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum During {
    /// No command was in flight, and no transaction was open.
    Idle,
    /// A transaction was open, and no command in flight; the server rolls it back.
    IdleInTransaction,
    /// A transaction was open; the server rolls it back.
    Transaction,
    /// A command had come and was not sent yet; what the session held on its connection is lost.
    BeforeCommand,
    /// A command was sent and its answer had not ended: nobody knows whether it was executed.
    Command,
    /// The login had not ended.
    Login,
    /// Bytes were only forwarded (mode `tcp`, binlog dump), so nobody knows.
    Stream,
}

impl std::fmt::Display for During {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Idle => "while the session was idle",
            Self::IdleInTransaction | Self::Transaction => "in a transaction, which is rolled back",
            Self::BeforeCommand => "before the command, which was not executed",
            Self::Command => "during a command; it is not known whether it was executed",
            Self::Login => "during login",
            Self::Stream => "while bytes were being forwarded",
        })
    }
}

fn yes_or_no(value: &bool) -> &'static str {
    if *value { "YES" } else { "NO" }
}

impl SessionError {
    /// The label under which the end of the session is counted.
    pub(crate) fn reason(&self) -> EndReason {
        self.counted().0
    }

    /// The party at fault, for the error metric.
    pub(crate) fn fault(&self) -> Fault {
        self.counted().1
    }

    /// The label and the fault under which an error is counted.
    fn counted(&self) -> (EndReason, Fault) {
        match self {
            Self::ClientQuit => (EndReason::ClientQuit, Fault::Client),
            Self::ClientGone | Self::ClientFailed(_) => (EndReason::ClientGone, Fault::Client),
            Self::ClientProtocol(_)
            | Self::ClientBroke(_)
            | Self::PacketTooLong(_)
            | Self::UnknownStatement { .. }
            | Self::UnknownCollation(_)
            | Self::NoCursor(_)
            | Self::NotInProtocol
            | Self::Malformed
            | Self::UnknownCommand
            | Self::TooManyStatements(_)
            | Self::NoSuchSession(_)
            | Self::NoSuchSessionThere(..)
            | Self::NotOwner(_)
            | Self::GatewayStatement(_) => (EndReason::Protocol, Fault::Client),
            Self::StatementChanged | Self::ServerProtocol { .. } => (EndReason::Protocol, Fault::Server),
            Self::KillFailed(_)
            | Self::KillFailedThere(_)
            | Self::StatementTooLong(_)
            | Self::RefusedByRule(_)
            | Self::RuleLimit { .. } => (EndReason::Protocol, Fault::Gateway),
            Self::ClientTls(_) | Self::TlsRequired => (EndReason::TlsFailed, Fault::Client),
            Self::ProxyHeader(_) | Self::ProxyHeaderMissing(_) | Self::ProxyHeaderUnexpected => {
                (EndReason::ProxyHeader, Fault::Client)
            }
            Self::LoginTimeout(_) => (EndReason::LoginTimeout, Fault::Client),
            // Our configuration gives an account that the server refuses.
            Self::NoServer(error) if is_of_account(error) => (EndReason::LoginFailed, Fault::Gateway),
            Self::ClientTooOld(_)
            | Self::LoginRefused { .. }
            | Self::LoginsRefused
            | Self::NotAdmitted { .. }
            | Self::TooManyFailures
            | Self::AccessDenied { .. } => (EndReason::LoginFailed, Fault::Client),
            Self::PasswordExposed(_) => (EndReason::LoginFailed, Fault::Gateway),
            Self::NoServer(LeaseError::QueueFull { .. }) => (EndReason::QueueFull, Fault::Server),
            Self::NoServer(LeaseError::QueueTimeout { .. }) => (EndReason::QueueTimeout, Fault::Server),
            Self::NoServer(_)
            | Self::NoServerSeen
            | Self::ServerRefused { .. }
            | Self::ServerLogin { .. }
            | Self::NoServerInGroup(_)
            | Self::NoServerInRole
            | Self::NoPrimary(_)
            | Self::NoOtherPrimary { .. }
            | Self::WritesRefused(_)
            | Self::NotCaughtUp { .. }
            | Self::StateRefused { .. }
            | Self::PrepareRefused(_) => (EndReason::NoServer, Fault::Server),
            Self::NotServed
            | Self::PausedTooLong(_)
            | Self::PauseFull
            | Self::PinnedToReplica { .. }
            | Self::SeveralOnReplica(_) => (EndReason::NoServer, Fault::Gateway),
            Self::NoSuchServer(_) => (EndReason::NoServer, Fault::Client),
            Self::KilledItself { .. } | Self::Interrupted | Self::Killed => {
                (EndReason::Killed, Fault::Client)
            }
            Self::TooManySessions | Self::TooManyUserSessions { .. } => {
                (EndReason::TooManySessions, Fault::Gateway)
            }
            Self::ShortOfMemory => (EndReason::ShortOfMemory, Fault::Gateway),
            Self::ServerGone { .. }
            | Self::Demoted { .. }
            | Self::NobodyHasWrites { .. }
            | Self::InsertIdLost(_) => (EndReason::ServerGone, Fault::Server),
            Self::ServerDown { .. } => (EndReason::ServerDown, Fault::Server),
            Self::ServerTimeout { .. } => (EndReason::ServerTimeout, Fault::Server),
            Self::StatementTimeout { .. } => (EndReason::ServerTimeout, Fault::Gateway),
            Self::ClientIdle | Self::WaitTimeout { .. } => (EndReason::ClientIdle, Fault::Client),
            Self::RequestStalled | Self::ReaderStalled => (EndReason::ClientStalled, Fault::Client),
            Self::Drained => (EndReason::Drained, Fault::Gateway),
            Self::Shutdown => (EndReason::Shutdown, Fault::Gateway),
            Self::HandedOver => (EndReason::HandedOver, Fault::Gateway),
            Self::EndedInWrite(why) => why.counted(),
        }
    }

    /// Whether a session that cannot execute a command for this reason is at its end; else only the command
    /// is.
    pub(crate) fn ends_session(&self) -> bool {
        matches!(
            self,
            Self::ClientQuit
                | Self::ClientGone
                | Self::ClientFailed(_)
                | Self::ClientProtocol(_)
                | Self::PacketTooLong(_)
                | Self::ClientIdle
                | Self::WaitTimeout { .. }
                | Self::RequestStalled
                | Self::ReaderStalled
                | Self::Killed
                | Self::KilledItself { .. }
                | Self::Demoted { .. }
                | Self::NobodyHasWrites { .. }
                | Self::InsertIdLost(_)
                | Self::Drained
                | Self::Shutdown
                | Self::EndedInWrite(_)
                | Self::HandedOver
        )
    }

    /// The error the client is told, or `None` where there is nobody to tell or the protocol has no place for
    /// it.
    pub(crate) fn to_packet(&self) -> Option<ErrPacket> {
        if let Self::ServerRefused { packet, .. }
        | Self::NotAdmitted { packet, .. }
        | Self::StateRefused { packet, .. }
        | Self::PrepareRefused(packet) = self
        {
            return Some(packet.clone());
        }
        let (code, state) = self.code()?;
        let words = self.for_strangers().unwrap_or_else(|| self.to_string());
        Some(ErrPacket {
            code,
            sql_state: *state,
            message: format!("{}{words}", self.servers_words(code)).into_bytes(),
        })
    }

    /// The words for clients that need not have logged in yet, where the whole text names servers, their
    /// addresses or the gateway's own accounts. The whole text is for the log.
    fn for_strangers(&self) -> Option<String> {
        let of_cluster = |what: &str, cluster: &str| {
            format!("no server available: {what} cluster {cluster}; the gateway's log says why")
        };
        match self {
            Self::NoServer(error) if is_of_account(error) => Some("Access denied".to_owned()),
            Self::NoServer(LeaseError::NoServerAvailable { cluster, .. }) => {
                Some(of_cluster("none in", cluster))
            }
            Self::NoServer(LeaseError::ConnectFailed { cluster, .. }) => {
                Some(of_cluster("cannot connect to any in", cluster))
            }
            Self::NoServer(LeaseError::Unusable { .. }) | Self::ServerLogin { .. } => Some(
                "no server available: the one that was tried cannot be used; the gateway's log says why"
                    .to_owned(),
            ),
            _ => None,
        }
    }

    /// Code and SQLSTATE.
    ///
    /// Codes are servers' own (<https://dev.mysql.com/doc/mysql-errors/9.7/en/server-error-reference.html>),
    /// never those of client libraries (2000 to 2999): MariaDB's clients take a server that sends one for
    /// broken, and drop the text. SQLSTATE class 08 makes connection pools throw the connection away.
    ///
    /// A server that has ended the connection between two commands without a word leaves the client without
    /// one as well: drivers would take an error for the answer to their next statement, and not all of them
    /// know ours as the end of the connection.
    fn code(&self) -> Option<(u16, &'static [u8; 5])> {
        Some(match self {
            Self::ClientQuit
            | Self::ClientGone
            | Self::HandedOver
            | Self::ClientFailed(_)
            | Self::ClientTls(_)
            | Self::ClientBroke(_)
            | Self::NotServed
            | Self::ProxyHeader(_)
            | Self::ProxyHeaderMissing(_)
            | Self::LoginRefused { .. }
            | Self::LoginsRefused
            | Self::NotAdmitted { .. }
            | Self::StateRefused { .. }
            | Self::PrepareRefused(_)
            | Self::ServerRefused { .. }
            | Self::WaitTimeout { is_told: false }
            | Self::ServerGone {
                during: During::Idle | During::IdleInTransaction,
                ..
            } => return None,
            Self::NoServer(LeaseError::QueueFull { .. } | LeaseError::QueueTimeout { .. })
            | Self::TooManySessions
            | Self::ShortOfMemory => (1040, b"08004"),
            Self::PasswordExposed(_) | Self::AccessDenied { .. } => (1045, b"28000"),
            Self::UnknownCommand => (1047, b"08S01"),
            Self::Drained | Self::Shutdown => (1053, b"08S01"),
            Self::GatewayStatement(_) => (1064, b"42000"),
            Self::NoSuchSession(_) | Self::NoSuchSessionThere(..) => (1094, b"HY000"),
            Self::KillFailed(_) | Self::KillFailedThere(_) | Self::NotOwner(_) => (1095, b"HY000"),
            Self::UnknownCollation(_) => (1115, b"42000"),
            Self::TooManyFailures => (1129, b"HY000"),
            Self::RefusedByRule(_) => (1148, b"42000"),
            Self::StatementTooLong(_) => (1153, b"08S01"),
            Self::ServerGone { .. }
            | Self::Demoted { .. }
            | Self::NobodyHasWrites { .. }
            | Self::InsertIdLost(_)
            | Self::ServerProtocol { .. }
            | Self::ServerDown { .. }
            | Self::ServerTimeout { .. }
            | Self::EndedInWrite(_) => (1158, b"08S01"),
            Self::LoginTimeout(_) | Self::RequestStalled => (1159, b"08S01"),
            Self::ReaderStalled => (1161, b"08S01"),
            Self::RuleLimit { .. } | Self::TooManyUserSessions { .. } => (1226, b"42000"),
            Self::UnknownStatement { .. } => (1243, b"HY000"),
            Self::ClientTooOld(_) => (1251, b"08004"),
            // "The MySQL server is running with the %s option so it cannot execute this statement"
            Self::NoPrimary(_)
            | Self::NoOtherPrimary { .. }
            | Self::PausedTooLong(_)
            | Self::PauseFull
            | Self::WritesRefused(_)
            | Self::NotCaughtUp { .. }
            | Self::PinnedToReplica { .. }
            | Self::SeveralOnReplica(_) => (1290, b"HY000"),
            Self::NotInProtocol => (1295, b"HY000"),
            Self::Interrupted | Self::Killed | Self::KilledItself { mariadb: false } => (1317, b"70100"),
            Self::NoCursor(_) => (1421, b"HY000"),
            Self::NoSuchServer(_)
            | Self::NoServerInGroup(_)
            | Self::NoServerInRole
            | Self::NoServer(_)
            | Self::NoServerSeen
            | Self::ServerLogin { .. } => (1429, b"08S01"),
            Self::TooManyStatements(_) => (1461, b"42000"),
            Self::StatementChanged => (1615, b"HY000"),
            Self::Malformed
            | Self::ClientProtocol(_)
            | Self::PacketTooLong(_)
            | Self::ProxyHeaderUnexpected => (1835, b"HY000"),
            Self::KilledItself { mariadb: true } => (1927, b"70100"),
            Self::StatementTimeout { mariadb: true } => (1969, b"70100"),
            Self::StatementTimeout { mariadb: false } => (3024, b"HY000"),
            Self::TlsRequired => (3159, b"HY000"),
            Self::ClientIdle => (4031, b"08S01"),
            Self::WaitTimeout { is_told: true } => (4031, b"HY000"),
        })
    }

    /// The words by which a server would begin the text of its error with this code; none where ours are a
    /// server's, or stand alone.
    fn servers_words(&self, code: u16) -> &'static str {
        match (self, code) {
            (Self::TooManySessions | Self::ShortOfMemory | Self::Malformed | Self::Shutdown, _) => "",
            (_, 1040) => "Too many connections: ",
            (_, 1053) => "Server shutdown in progress: ",
            (_, 1094) => "Unknown thread id: ",
            (_, 1115) => "Unknown character set: ",
            (_, 1158) => "Lost connection to MySQL server: ",
            (_, 1159) => "Got timeout reading communication packets: ",
            (_, 1161) => "Got timeout writing communication packets: ",
            (_, 1251) => "Client does not support the login: ",
            (_, 1429) => "Can't connect to a MySQL server: ",
            (_, 1835) => "Malformed communication packet: ",
            _ => "",
        }
    }
}

/// Whether a server is there, and refuses the account as the gateway knows it: a password of `[[user]]` that
/// is not the server's, say.
fn is_of_account(error: &LeaseError) -> bool {
    const ER_ACCESS_DENIED_ERROR: u16 = 1045;
    const ER_ACCESS_DENIED_NO_PASSWORD_ERROR: u16 = 1698;
    let LeaseError::Refused { packet, .. } = error else {
        return false;
    };
    [ER_ACCESS_DENIED_ERROR, ER_ACCESS_DENIED_NO_PASSWORD_ERROR].contains(&packet.code)
}

/// The error for a client whose `KILL` of a session of another gateway did not work.
pub(crate) fn not_killed(id: u32, why: NotKilled) -> SessionError {
    match why {
        NotKilled::Unknown(why) if why.is_empty() => SessionError::NoSuchSession(id),
        NotKilled::Unknown(why) => SessionError::NoSuchSessionThere(id, why),
        NotKilled::NotOwner => SessionError::NotOwner(id),
        NotKilled::Failed(why) => SessionError::KillFailed(why),
    }
}
