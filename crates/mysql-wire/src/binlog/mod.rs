//! The binary log as a server sends it to a replica, and the values that are in it: MySQL 8.0 to 9, MariaDB
//! 10.6 to 11.
//!
//! [`Command`] asks for the stream. [`Decoder`] turns its packets into [`Event`]s. Row events hold bytes
//! whose meaning is in two places: the [`TableMap`] says how they are stored, the table's definition
//! ([`ColumnType`]) what they mean; a [`Layout`] is both. [`Value`] is what comes out: it is small when
//! encoded, equal values have equal bytes, it can be printed as the server's own `SELECT` does ([`text()`],
//! [`binary()`]), and it can be read from the rows of a `SELECT` ([`from_text`], [`BinaryRow`]), so that
//! copied rows equal those of the log.
//!
//! Whoever copies rows has to use a connection with `SET NAMES utf8mb4` and `time_zone = '+00:00'`.
//!
//! Everything may be hostile: nothing panics, and what is allocated is bounded by the bytes that came;
//! compressed events, which are small for what they hold, by [`UNPACKED_MAX`].

mod address;
mod binary;
mod charset;
mod column;
mod command;
mod decimal;
mod decoder;
mod event;
mod field;
mod float;
mod json;
mod layout;
mod rows;
mod table_map;
mod temporal;
mod text;
mod unpack;
mod value;

pub use binary::{BinaryRow, binary};
pub use charset::Charset;
pub use column::{ColumnKind, ColumnType};
pub use command::{Command, Start, settings};
pub use decoder::{Decoder, Packet};
pub use event::{Event, Gtid, Header, Kind, Query};
pub use layout::{Image, Layout};
pub use rows::{Change, RowChange, Rows};
pub use table_map::{TableMap, WireColumn};
pub use temporal::{Date, DateTime, Time, Timestamp, Zone};
pub use text::{from_text, text};
pub use unpack::{Payload, UNPACKED_MAX};
pub use value::Value;

use crate::WireError;

/// Why a stream or a value cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BinlogError {
    /// Bytes that do not follow the format.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The bytes were changed on their way or on the server's disk.
    #[error("an event of type {code} at position {next_position} has a wrong checksum")]
    Checksum { code: u8, next_position: u32 },
    /// An event that needs the format description came before it.
    #[error("the stream does not begin with a format description")]
    NoFormat,
    /// Something that exists and that is not understood here.
    #[error("{0} is not supported")]
    Unsupported(String),
    /// The server's table is not the one that its definition says.
    #[error("column {column} of the binary log is not what the table's definition says: {reason}")]
    Shape { column: usize, reason: String },
    /// A value that its column cannot have.
    #[error("a value of a {kind} column is not valid")]
    Value { kind: &'static str },
    /// The row event leaves this column out.
    #[error("column {column} is not in the row event: binlog_row_image has to be FULL")]
    Absent { column: usize },
}
