//! Whether a session can do without the connection that it has, should that be lost.

use crate::engine::client_session::ClientSession;
use crate::engine::do_without;
use crate::engine::metrics::Replayed;
use crate::engine::replay::kept::UnderWay;

/// Whether the session may go on without the connection that it has, should that be lost.
#[inline]
pub(crate) fn can_do_without(session: &ClientSession) -> bool {
    do_without::can_do_without(session) || may_go_on(session)
}

/// Whether the session may go on on another server, should its connection turn out to be lost between two
/// commands of a transaction.
#[inline]
pub(crate) fn may_go_on(session: &ClientSession) -> bool {
    let is_kept = session.replay.as_ref().is_some_and(|replay| replay.is_kept());
    is_kept && session.lease.is_some() && !session.binding.is_own() && session.state.is_pinned()
}

/// Counts a session that is lost with its transaction, for what that has done.
pub(crate) fn note_lost(session: &ClientSession) {
    let Some(replay) = session.replay.as_ref().filter(|_| session.state.is_pinned()) else {
        return;
    };
    match replay.why_not() {
        Some(why) => session.metrics().replayed(Replayed::not(why)),
        None if matches!(replay.under_way(), UnderWay::End) => session.metrics().replayed(Replayed::Ended),
        None if replay.is_kept() => session.metrics().replayed(Replayed::NotReplayable),
        None => {}
    }
}
