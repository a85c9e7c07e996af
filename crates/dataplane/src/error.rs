//! Why a session ends or a statement is refused, whose fault it is, and what the client is told.
//!
//! This file is the only place where the gateway makes up MySQL errors of its own: [`SessionError::to_packet`] where the
//! session ends, [`kill_failed`] where it goes on. The same words appear in the log line of the session and, as labels, in the metrics.

use std::io;

use mysql_wire::{ErrPacket, WireError};
use telemetry::{EndReason, Fault};
use thiserror::Error;
use upstream::LeaseError;

/// What ended a session. A session always ends with one of these, also when the client simply said goodbye.
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
    #[error("a login packet of {0} bytes is too long")]
    PacketTooLong(usize),
    #[error("TLS with the client failed: {0}")]
    ClientTls(io::Error),
    #[error("the PROXY header is wrong: {0}")]
    ProxyHeader(String),
    #[error("the client did not log in within {0:?}")]
    LoginTimeout(std::time::Duration),
    #[error("Connections using insecure transport are prohibited: this listener requires TLS")]
    TlsRequired,
    #[error("the client lacks {0}, which this gateway needs")]
    ClientTooOld(&'static str),
    #[error("the server refused the login")]
    LoginRefused,
    #[error("{0}")]
    PasswordExposed(String),
    #[error("no server available: {0}")]
    NoServer(LeaseError),
    #[error("no server available: no server of the cluster has answered yet")]
    NoServerSeen,
    #[error("Too many connections")]
    TooManySessions,
    #[error("server {server} refused the connection: {} {}", .packet.code, String::from_utf8_lossy(&.packet.message))]
    ServerRefused { server: String, packet: ErrPacket },
    #[error("login to server {server} failed: {cause}")]
    ServerLogin { server: String, cause: String },
    #[error("lost connection to server {server} {during}")]
    ServerGone { server: String, during: During },
    #[error("server {server} sent something that is not the MySQL protocol: {cause}")]
    ServerProtocol { server: String, cause: WireError },
    #[error("server {server} was found down by its health check")]
    ServerDown { server: String },
    #[error("server {server} did not go on with its answer for {timeout:?}")]
    ServerTimeout {
        server: String,
        timeout: std::time::Duration,
    },
    #[error("The client was disconnected by the gateway because of inactivity")]
    ClientIdle,
    #[error("Connection was killed")]
    Killed,
    #[error("the server is taken out of service; connect again")]
    Drained,
    #[error("Server shutdown in progress")]
    Shutdown,
}

/// What was going on when a server went away: decides whether the statement's fate is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum During {
    /// No command was in flight, and no transaction was open.
    Idle,
    /// A transaction was open; the server rolls it back.
    Transaction,
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
            Self::Transaction => "in a transaction, which is rolled back",
            Self::Command => "during a command; it is not known whether it was executed",
            Self::Login => "during login",
            Self::Stream => "while bytes were being forwarded",
        })
    }
}

impl SessionError {
    /// The label under which the end of the session is counted.
    pub(crate) fn reason(&self) -> EndReason {
        match self {
            Self::ClientQuit => EndReason::ClientQuit,
            Self::ClientGone | Self::ClientFailed(_) => EndReason::ClientGone,
            Self::ClientProtocol(_) | Self::PacketTooLong(_) => EndReason::Protocol,
            Self::ClientTls(_) | Self::TlsRequired => EndReason::TlsFailed,
            Self::ProxyHeader(_) => EndReason::ProxyHeader,
            Self::LoginTimeout(_) => EndReason::LoginTimeout,
            Self::ClientTooOld(_) | Self::LoginRefused | Self::PasswordExposed(_) => EndReason::LoginFailed,
            Self::NoServer(LeaseError::QueueFull { .. }) => EndReason::QueueFull,
            Self::NoServer(LeaseError::QueueTimeout { .. }) => EndReason::QueueTimeout,
            Self::NoServer(_) | Self::NoServerSeen => EndReason::NoServer,
            Self::ServerRefused { .. } | Self::ServerLogin { .. } => EndReason::NoServer,
            Self::TooManySessions => EndReason::TooManySessions,
            Self::ServerGone { .. } => EndReason::ServerGone,
            Self::ServerProtocol { .. } => EndReason::Protocol,
            Self::ServerDown { .. } => EndReason::ServerDown,
            Self::ServerTimeout { .. } => EndReason::ServerTimeout,
            Self::ClientIdle => EndReason::ClientIdle,
            Self::Killed => EndReason::Killed,
            Self::Drained => EndReason::Drained,
            Self::Shutdown => EndReason::Shutdown,
        }
    }

    /// Whose fault it is, for the error metric.
    pub(crate) fn fault(&self) -> Fault {
        match self {
            Self::ClientQuit
            | Self::ClientGone
            | Self::ClientFailed(_)
            | Self::ClientProtocol(_)
            | Self::PacketTooLong(_)
            | Self::ClientTls(_)
            | Self::ProxyHeader(_)
            | Self::LoginTimeout(_)
            | Self::TlsRequired
            | Self::ClientTooOld(_)
            | Self::LoginRefused
            | Self::ClientIdle
            | Self::Killed => Fault::Client,
            Self::PasswordExposed(_) | Self::TooManySessions | Self::Drained | Self::Shutdown => {
                Fault::Gateway
            }
            Self::NoServer(_)
            | Self::NoServerSeen
            | Self::ServerRefused { .. }
            | Self::ServerLogin { .. }
            | Self::ServerGone { .. }
            | Self::ServerProtocol { .. }
            | Self::ServerDown { .. }
            | Self::ServerTimeout { .. } => Fault::Server,
        }
    }

    /// The error the client is told, or `None` where there is nobody to tell or the protocol has no place for it.
    ///
    /// Codes are servers' own (<https://dev.mysql.com/doc/mysql-errors/9.7/en/server-error-reference.html>), never those of
    /// client libraries (2000 to 2999): MariaDB's clients take a server that sends one for broken, and drop the text.
    /// SQLSTATE class 08 makes connection pools throw the connection away.
    pub(crate) fn to_packet(&self) -> Option<ErrPacket> {
        if let Self::ServerRefused { packet, .. } = self {
            return Some(packet.clone());
        }
        let (code, state, text): (u16, &[u8; 5], String) = match self {
            Self::ClientQuit
            | Self::ClientGone
            | Self::ClientFailed(_)
            | Self::ClientTls(_)
            | Self::ProxyHeader(_)
            | Self::LoginRefused
            | Self::ServerRefused { .. } => return None,
            Self::TooManySessions => (1040, b"08004", self.to_string()),
            Self::ClientProtocol(_) | Self::PacketTooLong(_) => {
                (1835, b"HY000", format!("Malformed communication packet: {self}"))
            }
            Self::LoginTimeout(_) => (
                1159,
                b"08S01",
                format!("Got timeout reading communication packets: {self}"),
            ),
            Self::TlsRequired => (3159, b"HY000", self.to_string()),
            Self::ClientTooOld(_) => (
                1251,
                b"08004",
                format!("Client does not support the login: {self}"),
            ),
            Self::PasswordExposed(_) => (1045, b"28000", self.to_string()),
            Self::NoServer(LeaseError::QueueFull { .. } | LeaseError::QueueTimeout { .. }) => {
                (1040, b"08004", format!("Too many connections: {self}"))
            }
            Self::NoServer(_) | Self::NoServerSeen | Self::ServerLogin { .. } => {
                (1429, b"08S01", format!("Can't connect to a MySQL server: {self}"))
            }
            Self::ServerGone { .. } | Self::ServerProtocol { .. } | Self::ServerDown { .. } => {
                (1158, b"08S01", format!("Lost connection to MySQL server: {self}"))
            }
            Self::ServerTimeout { .. } => {
                (1158, b"08S01", format!("Lost connection to MySQL server: {self}"))
            }
            Self::ClientIdle => (4031, b"08S01", self.to_string()),
            Self::Killed => (1317, b"70100", self.to_string()),
            Self::Drained => (1053, b"08S01", format!("Server shutdown in progress: {self}")),
            Self::Shutdown => (1053, b"08S01", self.to_string()),
        };
        Some(ErrPacket {
            code,
            sql_state: *state,
            message: text.into_bytes(),
        })
    }
}

/// What a client is told whose `KILL` of a session on another server did not work (ER_KILL_DENIED_ERROR). Its own session
/// goes on, so this is no [`SessionError`].
pub(crate) fn kill_failed(cause: &str) -> ErrPacket {
    let text = format!("KILL of a session on another server, by the account of the checks: {cause}");
    ErrPacket {
        code: 1095,
        sql_state: *b"HY000",
        message: text.into_bytes(),
    }
}
