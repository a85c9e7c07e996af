//! The feed on real servers: what is in the store is what a SELECT says, whatever happens in between.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod a_copy_under_load_converges;
mod another_log_of_the_same_names;
mod another_primary;
mod fed;
mod mapping_tables;
mod mappings_change;
mod sessions_log_in_their_own_ways;
mod tables_change;
mod the_stream_goes_on;
mod transactions;
mod what_one_kind_of_server_does;
mod whatever_changes_rows;
