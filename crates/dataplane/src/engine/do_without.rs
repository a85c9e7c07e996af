//! Whether a session of mode `session` can do without the connection that it has, should that be lost
//! (`lost_server`), and why it cannot.

use session::PinReason;
use upstream::Credential;

use crate::engine::client_session::ClientSession;

/// The reason why a part of the session is on its connection alone; `None` where it can do without.
fn held_by(session: &ClientSession) -> Option<PinReason> {
    if !session.is_free() || session.state.in_transaction() {
        return Some(PinReason::Transaction);
    }
    let mut pins = session.state.pins().iter();
    if let Some(pin) = pins.find(|pin| !session.state.is_known_here(pin.reason)) {
        return Some(pin.reason);
    }
    if session.binding.is_bound() {
        let reason = session.binding.reasons().next().map(|pin| pin.reason);
        return Some(reason.unwrap_or(PinReason::NotUnderstood));
    }
    if session.state.may_ask_found_rows() || session.state.has_unclear_count() {
        return Some(PinReason::FoundRows);
    }
    match session.binding.began_with() {
        Some(_) => None,
        None if credentials(session).is_empty() => Some(PinReason::NoCredentials),
        None => Some(PinReason::NotUnderstood),
    }
}

/// Whether the session can do without its connection, should that turn out to be lost.
#[inline]
pub(crate) fn can_do_without(session: &ClientSession) -> bool {
    session.binding.began_with().is_some()
        && session.lease.is_some()
        && !session.control.is_aimed_at()
        && held_by(session).is_none()
}

/// Notes that the session ends with its connection, and why.
pub(crate) fn note_end(session: &ClientSession) {
    if session.binding.moves_at_all()
        && let Some(reason) = held_by(session)
    {
        session.metrics().ended_with_server(reason);
    }
}

/// The credentials to log in with for the session.
pub(crate) fn credentials(session: &ClientSession) -> Vec<Credential> {
    let accounts = &session.context.worker.shared.accounts;
    let name = session.client.account.user.name.as_bytes();
    let mut credentials = accounts.known(name, &session.context.listener.cluster);
    let shown = session.binding.shown();
    credentials.extend(shown.filter(|shown| !credentials.contains(shown)).cloned());
    credentials
}
