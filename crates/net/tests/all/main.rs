//! The tests of this crate from outside, in one program: linked once, run side by side.

#![allow(clippy::unwrap_used, reason = "code of tests")]

mod alone;
mod compressed;
mod congestion;
mod descriptors;
mod idle_memory;
mod listener;
mod stream;
mod tls;
