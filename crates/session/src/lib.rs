//! What one session holds, why it may not be shared or moved, and how to rebuild it on another connection.
//! Pure.
//!
//! A session in mode `split` has no server connection of its own: it borrows one, for a statement or for
//! longer. This crate is the one place that knows for how long. It is told every statement
//! ([`Session::begin`]), every OK packet that carries session state ([`Session::observe_ok`]) and every end
//! of a response ([`Session::end`]), and answers:
//!
//! - may the connection go back to the pool ([`Session::is_pinned`]), and if not, why, since when and because
//!   of which statement ([`Session::pins`]);
//! - what another connection needs to pass for this session's ([`Session::carried`], [`rebuild()`]);
//! - what the client itself is to see of the session state that the server reports.
//!
//! Four sources, none enough alone: trackers in OK packets, the classifier's [`sql_class::Effects`], status
//! flags, and probes that the gateway makes ([`Session::cleared`]). **When in doubt a session is pinned.**
//! What it does not do: it sends nothing, chooses no server, and does not undo anything on a server but by
//! [`rebuild()`].
//!
//! # How a gateway drives it
//!
//! ```text
//! statement arrives ─ needs_its_connection()? ─ no, and one is held: give it back
//!       │                                      └ none is held: lease, rebuild(want, have, …)
//!       │                                        and prime() for LAST_INSERT_ID()
//!     begin() ─ send ─ observe_ok()* ─ end() ─ needs_rearming()? arm the trackers, rearmed()
//!                                          └─ is_pinned()? keep : leave(), give back
//! ```

mod leave;
mod move_plan;
mod next_transaction;
mod pin;
mod portable_state;
mod rebuild;
mod roles;
mod session;
mod statements;
mod trackers;
mod user_variables;
mod variables;

pub use leave::Leave;
pub use move_plan::{Difference, MovePlan};
pub use pin::{Pin, PinReason};
pub use portable_state::{Baseline, PackedState, PortableState};
pub use rebuild::{CANNOT, Excursion, ask_value, clear_diagnostics, cost, prime_last_insert_id, rebuild};
pub use session::{KnownConnection, Request, Session, Start};
pub use statements::{Prepared, Statements, TooManyStatements};
pub use trackers::{ClientTrackers, TrackedVariables, TransactionInfo};
pub use user_variables::{UserVariables, list as list_user_variables};
