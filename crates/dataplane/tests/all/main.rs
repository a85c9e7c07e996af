//! Fake clients and fake servers, with the real data plane between them.

#![allow(clippy::unwrap_used, reason = "a test")]

mod a_refused_reload_changes_nothing;
mod a_reload_is_in_force_once_it_has_returned;
mod a_slow_login_is_its_accounts_alone;
mod capability_sweep;
mod engine;
mod gateway;
