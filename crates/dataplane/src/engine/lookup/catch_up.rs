//! A server that has not heard of a lookup catches up with it.

use crate::engine::client_session::ClientSession;
use crate::engine::last_statement;
use crate::engine::leased::Left;
use crate::engine::lookup::behind;
use crate::engine::next::Next;
use crate::error::SessionError;

/// Has the server execute a SELECT that leaves behind what the lookup would have.
pub(crate) async fn catch_up(session: &mut ClientSession, next: Next) -> Result<Next, SessionError> {
    if let Err(refused) = behind::find_as_many(session).await {
        return last_statement::give_up(session, refused).await;
    }
    if let Some(of) = &mut session.lookups {
        of.rows = None;
        of.on_own.iter_mut().for_each(|own| own.shows_older = false);
    }
    if let Some(leased) = &mut session.lease {
        leased.left = Left::ALL;
    }
    Ok(next)
}
