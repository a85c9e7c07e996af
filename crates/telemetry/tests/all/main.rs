//! The tests of this crate from outside, in one program: linked once, run side by side.

#![allow(clippy::expect_used, reason = "code of tests")]

mod cost;
mod documents;
mod exposition;
mod log;
