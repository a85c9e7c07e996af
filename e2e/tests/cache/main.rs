//! Rows from memory on real servers: one behaviour a file, named as a sentence; [`stage`] is what they share.
//!
//! `FOREBAY_CACHE_SECONDS=300` makes the histories as long as one wishes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod history;
mod redis;
mod stage;

mod mappings_come_and_go;
mod reads_are_linearizable;
mod sessions_see_their_own_writes;
