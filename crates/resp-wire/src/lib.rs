//! The Redis protocol as bytes, from the server's side: requests are read, replies of RESP2 and RESP3 are
//! written.
//!
//! No sockets, no clock. [`Parser`] finds requests in what a client sent without copying them; [`Writer`]
//! appends replies to a buffer. What a command means is not known here.
//!
//! Facts: the protocol description of Redis (RESP) and the errors of `networking.c` of Redis 7.

mod error;
mod inline;
mod number;
mod reply;
mod request;

pub mod fuzzing;

pub use error::ProtocolError;
pub use number::parse_integer;
pub use reply::{Version, Writer};
pub use request::{Args, Limits, ParseStep, Parser};
