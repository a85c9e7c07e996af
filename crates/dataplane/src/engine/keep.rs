//! A session holds its connection on, over the end of a statement.

use session::PinReason;

use crate::engine::client_session::ClientSession;

/// Has the session hold its connection on, which the metrics count where it is news.
pub(crate) fn keep(session: &mut ClientSession) {
    if let Some(leased) = &mut session.lease {
        // The transaction may be over, and the next one on the connection is another.
        leased.moves_on &= session.state.in_transaction();
        leased.has_refused_write &= session.state.in_transaction();
    }
    session.control.show_pins(session.shown_pins());
    let leaves_variables = is_for_user_variables_alone(session);
    session
        .control
        .may_leave(leaves_variables || is_for_an_error_alone(session));
    if leaves_variables {
        session.context.cluster.leavers.add(&session.control);
        let leased = session.lease.as_ref();
        if leased.is_some_and(|leased| leased.connection.server.waiting() > 0) {
            session.control.leaves_now();
        }
    }
    if session.binding.is_own() || !session.binding.count() {
        return;
    }
    session.metrics().pinned.inc();
    let pins = session.shown_pins();
    pins.for_each(|pin| session.metrics().pin(pin.reason));
}

/// Whether the session holds its connection for the last error alone, or for diagnostics that it has not
/// asked for since the statement that left them. Never on MySQL, where an error that is raised again has
/// another `CLASS_ORIGIN`.
pub(crate) fn is_for_an_error_alone(session: &ClientSession) -> bool {
    let mut pins = session.state.pins().iter();
    let is_mariadb = session.dialect().is_mariadb();
    let has_error = session
        .last
        .error
        .as_ref()
        .is_some_and(|error| error.stashed.is_none());
    is_mariadb
        && (has_error || session.state.has_old_diagnostics())
        && !session.binding.is_for_good()
        && session.lease.is_some()
        && pins.all(|pin| pin.reason == PinReason::Diagnostics)
}

/// Whether the session holds its connection for its user variables and nothing else. A connection to a
/// replica, to which the session was sent by name, is not left: its next one would be to the primary.
pub(crate) fn is_for_user_variables_alone(session: &ClientSession) -> bool {
    session.lease.as_ref().is_some_and(|leased| leased.is_primary)
        && !session.binding.is_for_good()
        && session.last.error.is_none()
        && session.state.is_held_by_user_variables()
        && session.is_free()
}

/// Whether others want a connection to the server whose connection the session holds.
pub(crate) fn is_wanted(session: &ClientSession) -> bool {
    let Some(leased) = &session.lease else {
        return false;
    };
    let server = &leased.connection.server;
    server.waiting() > 0 || server.is_full() && session.pool().idle_and_busy(server.id()).0 == 0
}
