//! Input that no client of good will sends, on a live gateway in front of a real server: it must neither
//! crash nor leak nor stop serving others. One attack a file.
//!
//! Each attack runs beside a [`witness::Witness`], a good client that must never fail, and ends with a
//! [`footprint::Footprint`] that must be what it was. What is random follows a seed that is printed:
//! `FOREBAY_HOSTILE_SEED` repeats it, `FOREBAY_HOSTILE_SCALE=10` makes ten times as many connections where
//! their number is not bounded by file descriptors.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod footprint;
mod guessing_passwords_takes_time;
mod witness;

mod a_wrong_login_is_told_what_is_wrong;
mod clients_that_never_read_hold_up_only_themselves;
mod clients_that_send_a_byte_a_second_hold_up_nobody;
mod connections_that_never_log_in_are_ended;
mod logins_given_up_do_not_block_the_gateway;
mod logins_left_half_done_leave_nothing_behind;
mod proxy_headers_of_all_kinds_are_survived;
mod random_packets_at_every_stage_are_survived;

/// The seed of this run.
fn seed() -> u64 {
    let seed = inputs::seed_of("FOREBAY_HOSTILE_SEED");
    println!("FOREBAY_HOSTILE_SEED={seed}");
    seed
}

/// `usual` connections, or as many times that as the environment asks for.
fn scaled(usual: usize) -> usize {
    usual * inputs::asked("FOREBAY_HOSTILE_SCALE").unwrap_or(1) as usize
}
