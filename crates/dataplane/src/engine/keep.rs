//! A session holds its connection on, over the end of a statement.

use session::PinReason;

use crate::engine::client_session::ClientSession;

/// The connection is kept after a statement: its transaction may be over, and the next one on it is another.
fn note_kept(session: &mut ClientSession) {
    let is_open = session.state.in_transaction();
    if let Some(leased) = &mut session.lease {
        leased.moves_on &= is_open;
        leased.has_refused_write &= is_open;
    }
}

/// The session holds its connection on; said in the metrics where that is news.
pub(crate) fn keep(session: &mut ClientSession) {
    note_kept(session);
    session.control.show_pins(session.shown_pins());
    session.control.may_leave(is_for_an_error_alone(session));
    if session.binding.is_own() || !session.binding.count() {
        return;
    }
    session.series().pinned.inc();
    let pins = session.shown_pins();
    pins.for_each(|pin| session.series().pin(pin.reason));
}

/// Whether the session holds its connection for the error that it was told last and nothing else (`told`); or
/// for what it has not asked for behind the statement that left it. Not on MySQL, where one that is raised
/// again has another `CLASS_ORIGIN`.
pub(crate) fn is_for_an_error_alone(session: &ClientSession) -> bool {
    let mut pins = session.state.pins().iter();
    let is_mariadb = session.dialect().is_mariadb();
    let is_told = session
        .last
        .told
        .as_ref()
        .is_some_and(|told| told.put_away.is_none());
    is_mariadb
        && (is_told || session.state.has_old_diagnostics())
        && !session.binding.is_for_good()
        && session.lease.is_some()
        && pins.all(|pin| pin.reason == PinReason::Diagnostics)
}
