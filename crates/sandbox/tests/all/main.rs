//! The tests of this crate from outside, in one program: linked once, run side by side.

#![allow(clippy::unwrap_used, reason = "code of tests")]

mod clusters;
mod lent;
mod mariadb;
