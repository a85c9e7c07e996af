//! The MySQL client/server protocol as bytes: what MySQL 5.7 to 9 and MariaDB 10 to 12 speak.
//!
//! Bytes in, values out. The crate is pure: no sockets, no clock, no randomness, no async, no logging. It
//! never decodes what the gateway only forwards: [`ResponseTracker`] finds where a response ends from packet
//! headers and first bytes, [`RequestTracker`] does the same for what a client sends, [`Reshaper`] changes
//! responses for clients that speak less of the protocol than their server connection does. Rows are read in
//! [`binlog`], for those who follow a server's changes, and by [`text_values`], where the gateway has asked.
//!
//! Everything a peer sends may be hostile. Readers cannot panic, lengths are checked before anything is
//! allocated, and what does not follow the protocol is a [`WireError`] that says what was expected.
//!
//! What it does not do: sequence numbers are carried, not enforced (MariaDB and MySQL both renumber the inner
//! packets of a compressed connection), and the pre-4.1 protocol of clients before 2004 is refused.

// Readers of a peer's bytes check bounds where they read; an index that stays says why it is within them.
#![warn(clippy::indexing_slicing)]

mod auth_exchange;
mod capabilities;
mod codec;
mod command;
mod error;
mod frame;
mod greeting;
mod login;
mod reply;
mod request;
mod response;
mod text_row;

pub mod auth;
pub mod binlog;
pub mod compression;
#[doc(hidden)]
#[allow(
    clippy::indexing_slicing,
    reason = "code of tests: a panic is how it reports a fault"
)]
pub mod fuzzing;
pub mod gtid;
pub mod query;
pub mod session_state;
pub mod statement;

pub use auth_exchange::{AuthMoreData, AuthNextFactor, AuthSwitch};
pub use capabilities::{Capabilities, StatusFlags};
pub use codec::{put_lenenc_bytes, take_lenenc_bytes};
pub use command::Command;
pub use error::WireError;
pub use frame::{PacketHeader, command_packet, write_packet};
pub use greeting::{Greeting, SslRequest};
pub use login::{ChangeUser, Login};
pub use reply::{EofPacket, ErrPacket, OkPacket};
pub use request::RequestTracker;
pub use response::{Event, Outcome, Progress, Reshaper, ResponseTracker};
pub use text_row::text_values;
