//! The path of a query: from an accepted connection to the answer's last byte.
//!
//! ARCHITECTURE.md has the picture. [`Gateway`] is the whole of it. A connection comes in by `frontend`,
//! which greets it and has its client logged in. In mode `tcp` the connection goes on in `relay`; in mode
//! `session` it is served command by command in `forwarded`. Sessions that have to be understood, in both
//! modes that can, go through `engine`. Workers share nothing on that path: see `frontend::worker`.

mod answer;
mod clock;
mod command_head;
mod control;
mod copied;
pub mod elsewhere;
mod engine;
mod error;
pub mod finished;
mod forwarded;
mod frontend;
mod hand_over;
mod lookups;
pub mod mirrored;
mod read_gate;
mod record;
mod relay;
mod session_end;
mod shown;

pub use frontend::gateway::Gateway;
pub use frontend::gateway_error::GatewayError;
pub use frontend::{extension, password_login, rsa_key};
pub use shown::status::{ListenerStatus, PinStatus, SessionStatus};
