//! The way of a command of a session that is understood. In mode `split` each statement goes to the server it
//! belongs to, over connections that sessions share. In mode `session` with lookups or `moves` all statements
//! go over the session's own connection (`own_connection`), until it leaves that for another one (`moving`).
//!
//! `run` is the loop, and names all stages in their order. A stage returns what is `next`.
//!
//! The session of the client lives here, with its state in `session::Session`, the one truth about what may
//! be shared: between two statements the server connection goes back to the pool unless that says it is
//! pinned. A connection that is leased is first made to look like the session (`rebuild`), and what a server
//! reports of changes is read on the way to the client (`observe`).
//!
//! Rules about statements are in `rules`; targets of statements in `choose`; the freshness that a replica has
//! to have in `consistency`; prepared statements, whose ids are the client's own here, in `prepared`.

mod account_backoff;
mod admission;
mod again;
mod answer;
pub(crate) mod answered;
mod anywhere;
pub(crate) mod ask;
mod begin;
pub(crate) mod binding;
mod choose;
mod client_limits;
pub(crate) mod client_session;
mod command;
mod connection_state;
mod consistency;
mod do_without;
mod exchange;
mod execution;
mod explain;
mod explain_warning;
mod explicit_ids;
mod finish;
mod forward;
mod generated_ids;
pub(crate) mod hand_over;
mod identity;
mod keep;
mod kept_variables;
pub(crate) mod kill;
mod last_error;
mod last_statement;
mod lease;
mod leased;
pub(crate) mod leavers;
mod leaving;
mod login;
mod lookup;
mod lost_server;
pub(crate) mod metrics;
mod move_target;
pub(crate) mod moving;
mod next;
mod observe;
mod old_primary;
pub(crate) mod own_connection;
mod own_writes;
mod packed;
mod packed_credential;
mod paused;
mod pipeline;
mod pipelined_setup;
mod prepared;
mod query;
mod rearm_trackers;
mod rebuild;
mod replay;
mod reset;
mod rows;
pub(crate) mod rules;
pub(crate) mod run;
pub(crate) mod serve;
mod server;
mod session_states;
mod shape;
mod start;
mod stashed_error;
mod statement;
mod target;
mod transaction;
mod user_variables;
mod wait_for_own_writes;
pub(crate) mod worker_cluster;

#[cfg(test)]
mod tests {
    use super::client_session::ClientSession;

    fn size<F>(_: impl FnOnce(&'static mut ClientSession) -> F) -> usize {
        size_of::<F>()
    }

    /// Every client costs this much for as long as it is there. Rare work is boxed.
    #[test]
    fn a_session_stays_small() {
        assert!(
            size_of::<ClientSession>() <= 1024,
            "{}",
            size_of::<ClientSession>()
        );
        // A control fits into 256 bytes with the counters of its `Rc`; the allocator's next size is 320.
        let control = size_of::<crate::control::Control>();
        assert!(control <= 240, "{control}");
        let future = size(super::run::run);
        // 16 bytes are for copies of commands that observers get, and for sessions that go to another
        // process.
        assert!(future <= 528, "{future}");
    }
}
