//! Clusters with servers behind them: played ones on loopback and, in the files that say so, real ones.

mod a_session_gets_a_server;
mod full_servers_make_sessions_wait;
mod play;
