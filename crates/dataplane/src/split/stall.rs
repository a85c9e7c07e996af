//! How long a client may hold a server connection that others want, within a command of which it does not send the rest or an answer that
//! it does not take.
//!
//! A server goes by `net_read_timeout` and `net_write_timeout` of the session there. So does the gateway where the session has set
//! them; where they are the server's, which it does not know, a minute is enough for those who read a result row by row.

use std::rc::Rc;
use std::time::Duration;

use session::Carried;

use crate::clock::ticks;
use crate::split::state::Split;

/// The least that goes without being asked for.
const LEAST: Duration = Duration::from_secs(60);

/// Goes by what the configuration says, or else by what the session has set, where that has changed.
#[inline]
pub(crate) fn renew(split: &Split) {
    let by = split.control.stalls_by.borrow();
    let is_known = by
        .as_ref()
        .is_some_and(|by| Rc::ptr_eq(by, split.session.carried()));
    drop(by);
    if !is_known {
        set(split);
    }
}

fn set(split: &Split) {
    let carried = Rc::clone(split.session.carried());
    if split.listener.config.stall_timeout.is_none() {
        let mut limits = split.control.limits();
        limits.request_ticks = limit(&carried, b"net_read_timeout");
        limits.reader_ticks = limit(&carried, b"net_write_timeout");
        split.control.set_limits(limits);
    }
    split.control.stalls_by.replace(Some(carried));
}

fn limit(carried: &Carried, name: &[u8]) -> u32 {
    let said = carried.variable(name);
    let seconds = said.and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
    ticks(seconds.map_or(LEAST, Duration::from_secs).max(LEAST))
}
