//! How long a client may hold a server connection that others want, within a command of which it does not
//! send the rest or an answer that it does not take.
//!
//! A server goes by `net_read_timeout` and `net_write_timeout` of the session there. So does the gateway: by
//! what the session has set, else by what the server has that let it in; only that a minute is always enough
//! for those who read a result row by row.

use std::rc::Rc;
use std::time::Duration;

use crate::clock::ticks;
use crate::engine::client_session::ClientSession;

/// The least that goes without being asked for.
const LEAST: Duration = Duration::from_secs(60);

/// Goes by what the configuration says, or else by what the session and its server have, where that has
/// changed.
#[inline]
pub(crate) fn renew(session: &ClientSession) {
    if session.binding.is_own() {
        // Nobody else wants its connection: the server's own limits hold.
        return;
    }
    let by = session.control.stalls_by.borrow();
    let is_known = by
        .as_ref()
        .is_some_and(|by| Rc::ptr_eq(by, session.state.carried()));
    drop(by);
    if !is_known {
        set(session);
    }
}

/// The same where the session has a new server to go by.
pub(crate) fn set(session: &ClientSession) {
    let carried = Rc::clone(session.state.carried());
    if session.context.listener.config.stall_timeout.is_none() {
        let mut limits = session.control.limits();
        let baseline = session.state.baseline();
        let of = |name: &[u8]| limit(carried.variable(name), baseline.variable(name));
        limits.request_ticks = of(b"net_read_timeout");
        limits.reader_ticks = of(b"net_write_timeout");
        session.control.set_limits(limits);
    }
    session.control.stalls_by.replace(Some(carried));
}

fn limit(set: Option<&[u8]>, of_server: Option<&[u8]>) -> u32 {
    let seconds = set
        .or(of_server)
        .and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
    ticks(seconds.map_or(LEAST, Duration::from_secs).max(LEAST))
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
