//! How long a client whose session shares its server connections may be silent: between two commands, and
//! within a command of which it does not send the rest or an answer that it does not take.
//!
//! A server goes by `wait_timeout`, `net_read_timeout` and `net_write_timeout` of the session there. The
//! gateway goes by the values that the session has set, else by those of the server that let it in. A minute
//! is always enough, though, for clients that read a result row by row.

use std::rc::Rc;
use std::time::Duration;

use crate::clock::ticks;
use crate::engine::client_session::ClientSession;

const WAIT_TIMEOUT: &[u8] = b"wait_timeout";

/// Least time for the rest of a command or of an answer, unless the configuration asks for another.
const LEAST: Duration = Duration::from_secs(60);

/// Sets the limits to those of the configuration, or else to those of the session and its server, where these
/// have changed.
#[inline]
pub(crate) fn renew(session: &ClientSession) {
    if session.binding.is_own() {
        // Nobody else wants the session's connection: the server's own limits hold.
        return;
    }
    let by = session.control.limits_by.take();
    let is_known = by
        .as_ref()
        .is_some_and(|by| Rc::ptr_eq(by, session.state.carried()));
    session.control.limits_by.set(by);
    if !is_known {
        set(session);
    }
}

/// Sets the limits where the session has a new server to go by.
pub(crate) fn set(session: &ClientSession) {
    let carried = Rc::clone(session.state.carried());
    let mut limits = session.control.limits();
    let baseline = session.state.baseline();
    if session.context.listener.config.stall_timeout.is_none() {
        let of = |name: &[u8]| limit(carried.variable(name), baseline.variable(name));
        limits.request_ticks = of(b"net_read_timeout");
        limits.reader_ticks = of(b"net_write_timeout");
    }
    let silence = seconds(carried.variable(WAIT_TIMEOUT), baseline.variable(WAIT_TIMEOUT));
    limits.silence_ticks = silence.map_or(0, ticks);
    session.control.set_limits(limits);
    session.control.limits_by.set(Some(carried));
}

fn limit(set: Option<&[u8]>, of_server: Option<&[u8]>) -> u32 {
    ticks(seconds(set, of_server).unwrap_or(LEAST).max(LEAST))
}

fn seconds(set: Option<&[u8]>, of_server: Option<&[u8]>) -> Option<Duration> {
    let value = set.or(of_server)?;
    let seconds = std::str::from_utf8(value).ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_session_has_set_counts_else_what_its_server_has_and_a_minute_at_least() {
        for (set, of_server, seconds) in [
            (None, None, 60),
            (None, Some("30"), 60),
            (None, Some("600"), 600),
            (Some("100"), Some("600"), 100),
            (Some("900"), Some("600"), 900),
            (Some("5"), Some("600"), 60),
        ] {
            let limit = limit(set.map(str::as_bytes), of_server.map(str::as_bytes));
            assert_eq!(
                limit,
                ticks(Duration::from_secs(seconds)),
                "{set:?} {of_server:?}"
            );
        }
    }
}
