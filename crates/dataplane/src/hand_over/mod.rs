//! Live sessions go from one process to its successor when the program is replaced, and their clients do not
//! notice.
//!
//! A session goes between two commands, with nothing read that was not served and nothing to be written. The
//! session's sockets are given to the other process beside its description (`net::handover::Channel`): the
//! client's, and the server's where there is a connection, so that nothing has to be built anew there.
//!
//! Nothing is lost or done twice, since at any time one process alone reads from a client. The old process
//! stops reading, and offers the session. The new one makes all that can fail, and accepts or refuses, but
//! does not read yet. Only when the old one has said that the session is the other's does the new one begin,
//! and the old one forgets the session. If the offer is refused, or no answer comes in time, or the new
//! process ends before that, the old one takes the session back and goes on.
//!
//! A session that stays has a reason with a name ([`Stays`]), and is offered again each second.

pub(crate) mod arriving;
pub(crate) mod bytes;
pub(crate) mod forwarded;
mod frame;
pub(crate) mod give;
mod giving;
pub(crate) mod offer;
pub(crate) mod resume;
mod sizes;
mod stays;
mod taking;
pub(crate) mod way;

use std::time::Duration;

pub(crate) use stays::Stays;

/// The first message in either direction. Each form in which sessions are described has a number of its own.
/// Sessions stay where the other process says anything else.
///
/// The number changes with every type that `offer` and `engine::packed` name; a test of theirs fails where
/// the form changes.
const FORMAT: &[u8] = b"forebay sessions 5";

/// Sessions that are offered and not yet the other's or taken back.
const IN_FLIGHT_MAX: usize = 64;

/// Most bytes in the offer of one session. A session that has more (prepared statements, as a rule) stays.
const OFFER_MAX: usize = 1024 * 1024;

/// How long the other process may take for its answer. The client waits meanwhile.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Time for which no session is offered after an answer that did not come in time.
const REST: Duration = Duration::from_secs(30);

/// How often sessions that have stayed are offered again.
const AGAIN_EVERY: Duration = Duration::from_secs(1);
