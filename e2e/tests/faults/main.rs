//! Servers, links and gateways that fail under load: right errors, others unaffected, recovery without help,
//! and no acknowledged write lost or done twice. One fault a file; [`bank`] is the load and the audit.
//!
//! `FOREBAY_FAULTS_SCALE=10` makes every fault happen ten times as often.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod bank;
mod frames;

mod a_crashed_gateway_comes_back;
mod a_cut_response_is_never_taken_for_a_whole_one;
mod a_frozen_server_is_left_until_it_thaws;
mod a_killed_server_is_left_until_it_is_back;
mod a_killed_server_leaves_half_a_statement;
mod a_link_that_stalls_is_given_up;
mod a_login_that_its_server_loses_ends_in_order;
mod a_shutdown_ends_sessions_between_transactions;
mod a_stopped_server_is_left_until_it_is_back;
mod servers_that_never_greet_are_not_waited_for_one_by_one;

/// `usual` times, or as many times that as the environment asks for.
fn scaled(usual: usize) -> usize {
    usual * inputs::asked("FOREBAY_FAULTS_SCALE").unwrap_or(1) as usize
}

/// Checks that notice a fault soon and do not take a busy machine for one.
const CHECK: &str = "interval = \"200ms\"\ntimeout = \"2s\"\nrise = 2\nfall = 2";
