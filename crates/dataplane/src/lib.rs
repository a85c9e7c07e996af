//! The path of a query: from an accepted connection to the answer's last byte, one file a stage.
//!
//! ARCHITECTURE.md has the picture. [`Gateway`] is the whole of it. In mode `tcp` a connection goes from
//! `accept` through a lease of `upstream` to `relay`; in mode `session` it logs in (`handshake`) and is then
//! served command by command (`serve`). Workers share nothing on that path: see `worker`.

mod accept;
mod accounts;
mod answer;
mod auth_relay;
mod authenticate;
mod classify;
mod clock;
mod command_head;
mod connection;
mod control;
mod data_plane;
mod describe;
mod engine;
mod error;
pub mod extension;
pub mod finished;
mod flow;
mod forward;
mod gateway;
mod gateway_error;
mod guesses;
mod hand_over;
mod handshake;
mod kill_right;
mod listener_state;
mod lookups;
mod message;
mod moves;
mod packet_io;
mod password_checks;
pub mod password_login;
mod process_list;
mod protocol;
mod proxy_header;
mod read_gate;
mod record;
mod registry;
mod relay;
pub mod rsa_key;
mod serve;
mod server_events;
mod session;
mod session_end;
mod session_summary;
mod settle;
mod shown;
mod status;
mod thread;
mod unasked;
mod user_name;
mod users;
mod worker;
mod worker_loop;

pub use gateway::Gateway;
pub use gateway_error::GatewayError;
pub use status::{ListenerStatus, PinStatus, SessionStatus};
