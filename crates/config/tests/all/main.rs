//! The tests of this crate from outside, in one program: linked once, run side by side.

#![allow(clippy::unwrap_used, reason = "code of tests")]

mod cache;
mod diff;
mod errors;
mod guide;
mod hashes;
mod idle;
mod load;
mod parse;
mod renamed;
mod rules;
mod setup;
mod slips;
mod store;
mod topology;
mod trust;
