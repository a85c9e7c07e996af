//! Redis clients of a gateway over real servers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod clients_keep_values;
mod connections_are_bounded;
mod definitions_change;
mod logins_are_those_of_the_servers;
mod long_rows_are_bounded;
mod mappings_are_flushed;
mod reads_one_after_the_other;
mod rows_are_read;
mod stage;
mod tls_is_as_the_listener_says;
mod transactions_see_one_position;
