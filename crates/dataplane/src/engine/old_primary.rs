//! Sessions in a transaction on a server that was the primary when it began.
//!
//! The server itself says what may still be done in the transaction, and refuses writes by an error that a
//! client may not heed. The next statement, a new transaction or one more write, is not for that server: the
//! session moves on where it has nothing else there, or ends.

use session::PinReason;
use sql_class::{Class, Effects, Facts};

use crate::engine::client_session::{ClientSession, Refused};
use crate::engine::{lease, observe, transaction};

/// Errors that say that a server is not what it was taken for: read-only, not in the group's majority, not
/// ready.
const ROLE_ERRORS: [u16; 4] = [1290, 1836, 3100, 1047];

/// Notes the error that a statement has ended with.
pub(crate) fn note_error(session: &mut ClientSession, code: u16) {
    if !ROLE_ERRORS.contains(&code) {
        return;
    }
    session.context.listener.cluster.look_again();
    let is_open = session.state.in_transaction();
    if let Some(leased) = &mut session.lease {
        leased.has_refused_write |= is_open && observe::TAKES_NO_WRITES.contains(&code);
    }
}

/// Whether the session is in a transaction on a server that was the primary, and the statement is not to be
/// executed there: a new transaction belongs on the new primary, and a write has been refused before. Without
/// this a client that does not heed errors would stay for ever.
pub(crate) fn is_left(session: &mut ClientSession, facts: &Facts) -> bool {
    let begins = begins_anew(facts);
    if !begins && facts.class < Class::Write || !session.state.in_transaction() {
        return false;
    }
    lease::judge_anew(session);
    let has_refused = session
        .lease
        .as_ref()
        .is_some_and(|leased| leased.has_refused_write);
    lease::is_demoted(session) && (begins || has_refused)
}

/// Whether the statement ends a transaction that is open, and begins another one.
pub(crate) fn begins_anew(facts: &Facts) -> bool {
    matches!(facts.class, Class::Begin | Class::BeginReadOnly) && !facts.effects.contains(Effects::XA)
}

/// Ends the transaction on a server that was the primary, as the statement would, and leaves that server. A
/// session that would lose more by this is at its end.
pub(crate) async fn leave(session: &mut ClientSession, facts: &Facts) -> Result<(), Refused> {
    let mut pins = session.state.pins().iter();
    if session.binding.is_for_good() || !pins.all(|pin| lease::ends_with_transaction(pin.reason)) {
        return Err(lease::bound_elsewhere(session));
    }
    // An error does not say whether it has ended the transaction.
    let may_be_over = session.state.has_pin(PinReason::Unsettled);
    if !may_be_over || transaction::is_open(session).await? {
        if !begins_anew(facts) {
            return Err(lease::bound_elsewhere(session));
        }
        let ok = transaction::commit(session).await?;
        session.state.observe_commit(&ok);
        if let Some(server) = session.written_on() {
            session.own_writes.note_on(server);
        }
    }
    lease::abandon(session);
    Ok(())
}
