//! Live sessions go from one process to its successor when the program is replaced, and their clients do not
//! notice.
//!
//! A session goes between two commands, with nothing read that was not served and nothing to be written. Its
//! sockets are given to the other process beside what is known of it (`net::handover::Channel`): the
//! client's, and the server's where it has a connection, so that nothing has to be built anew there.
//!
//! Nothing is lost or done twice, since at any time one process alone reads from a client. The old one stops
//! reading, and offers the session. The new one makes all that can fail, and accepts or refuses, but does not
//! read yet. Only when the old one has said that the session is the other's does the new one begin, and the
//! old one forgets it. Where it is refused, or no answer comes in time, or the new process ends before that,
//! the old one takes it back and goes on.
//!
//! What stays, stays for a reason that has a name ([`Stays`]), and is offered again each second.

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

/// The first message in either direction: another form of what is known of a session has another number.
/// Sessions stay where the other process says anything else.
///
/// It changes with every type that `offer` and `engine::packed` name; a test of theirs fails where the form
/// changes.
const FORMAT: &[u8] = b"forebay sessions 4";

/// Sessions that are offered and not yet the other's or taken back.
const IN_FLIGHT_MAX: usize = 64;

/// The most that is said of one session, in bytes. One that has more (prepared statements, as a rule) stays.
const OFFER_MAX: usize = 1024 * 1024;

/// How long the other process may take for its answer. The client waits meanwhile.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// No session is offered for so long behind an answer that did not come in time.
const REST: Duration = Duration::from_secs(30);

/// How often sessions that have stayed are offered again.
const AGAIN_EVERY: Duration = Duration::from_secs(1);
