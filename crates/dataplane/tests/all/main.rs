//! Fake clients and fake servers, with the real data plane between them.

#![allow(clippy::unwrap_used, reason = "a test")]

mod capability_sweep;
mod engine;
mod gateway;
