//! The binary log of real servers: every value in it must be the one that the server's own SELECT shows, in
//! the text protocol and in the binary one.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod columns;
mod link;
mod random;
mod streams;
mod values;
