//! The Redis protocol as bytes, from the server's side: requests are read, replies of RESP2 and RESP3 are
//! written.
//!
//! No sockets, no clock. [`Parser`] finds requests in what a client sent without copying them; [`Writer`]
//! appends replies to a buffer. What a command means is not known here.
//!
//! Facts: the protocol description of Redis (RESP) and the errors of `networking.c` of Redis 7.

// Readers of a client's bytes check bounds where they read; an index that stays says why it is within them.
#![warn(clippy::indexing_slicing)]

mod error;
mod inline;
mod number;
mod reply;
mod request;

#[allow(
    clippy::indexing_slicing,
    reason = "code of tests: a panic is how it reports a fault"
)]
pub mod fuzzing;

pub use error::ProtocolError;
pub use number::parse_integer;
pub use reply::{Version, Writer};
pub use request::{Args, Limits, ParseStep, Parser};
