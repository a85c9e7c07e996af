//! The tests of this crate from outside, in one program: linked once, run side by side.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "code of tests")]

mod fuzz_corpus;
mod generated_responses;
mod recorded;
mod recorded_responses;
mod reshaped_recordings;
mod reshaped_responses;
mod response_edges;
mod round_trips;
mod session_state_stops;
