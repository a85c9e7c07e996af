//! Point lookups on real servers: what a client gets through a gateway is what the server says itself, byte
//! for byte.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod answers_are_the_servers;
mod bounded_memory_fetches_what_it_lacks;
mod doubts_are_left_to_the_server;
mod lookups_one_after_the_other;
mod replicas_do_not_matter;
mod rights_are_those_of_the_session;
mod rules_leave_lookups_where_they_say;
mod sessions_leave_in_order;
mod sessions_say_how_fresh_lookups_are;
mod sessions_see_their_own_writes;
mod stage;
mod values_of_all_types_are_shown_alike;
mod what_comes_after_is_the_servers;
