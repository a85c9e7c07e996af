//! Clusters with servers behind them: played ones on loopback and, in the files that say so, real ones.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod a_reload_keeps_what_stays;
mod a_session_gets_a_server;
mod checks_find_out;
mod clusters_that_misbehave;
mod connections_end;
mod full_servers_make_sessions_wait;
mod host;
mod logins_on_real_servers;
mod many_who_come_at_once_take_turns;
mod play;
mod pools_on_real_servers;
mod real_servers_die_and_come_back;
mod real_servers_never_block_us;
mod servers_have_limits_of_their_own;
mod sessions_share_connections;
mod the_cluster_is_followed;
mod workers_share_a_server;
