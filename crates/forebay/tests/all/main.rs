//! The tests of the program from outside, in one program: linked once, run side by side.

#![allow(clippy::unwrap_used, reason = "code of tests")]

mod command_line;
mod examples;
mod import;
