//! The tests of this crate from outside, in one program: linked once, run side by side.

#![allow(
    clippy::unwrap_used,
    reason = "a test stops where something is not as it must be"
)]

mod fuzz_corpus;
mod haproxy;
mod proxysql;
