//! `KILL` of sessions whose server connection changes with every statement.
//!
//! Only the worker of the session knows where it is, so the word is passed to that worker, which ends the session, or has the
//! statement under way killed over another connection of the same account. As long as that is under way the connection it
//! aims at is not lent to anybody else: the wrong statement would be hit.

use std::rc::Rc;
use std::sync::Arc;

use sql_class::Facts;
use tokio::sync::oneshot;

use crate::classify::Kill;
use crate::control::{Control, Signal};
use crate::error::SessionError;
use crate::registry::{Place, is_ours};
use crate::session::CommandHead;
use crate::split::run::{elsewhere, on_primary, refuse};
use crate::split::state::Split;
use crate::split::{answer, command};
use crate::worker::Message;
use upstream::Cluster;

/// Executes a `KILL` whose id may be one that the gateway gave out.
pub(crate) async fn statement(
    split: &mut Split,
    head: CommandHead,
    kill: Kill,
    facts: &Facts,
) -> Result<(), SessionError> {
    match is_ours(kill.id) {
        true => session(split, kill).await,
        false => on_primary(split, head, facts).await,
    }
}

/// COM_PROCESS_KILL.
pub(crate) async fn process_kill(split: &mut Split, head: CommandHead) -> Result<(), SessionError> {
    match command::kill(split, head).filter(|kill| is_ours(kill.id)) {
        Some(kill) => session(split, kill).await,
        None => elsewhere(split, head).await,
    }
}

/// Kills what the gateway gave this id.
async fn session(split: &mut Split, kill: Kill) -> Result<(), SessionError> {
    let registry = &split.worker.shared.registry;
    let place = registry.find(kill.id).filter(|place| is_own(split, place));
    let Some(place) = place else {
        return refuse(split, SessionError::NoSuchSession(kill.id)).await;
    };
    let is_itself = kill.id == split.control.id;
    if kill.query_only && is_itself {
        return refuse(split, SessionError::Interrupted).await;
    }
    if is_itself {
        split.error_sequence = Some(answer::discard(split).await?.wrapping_add(1));
        return Err(SessionError::KilledItself {
            mariadb: split.session.syntax().dialect.is_mariadb(),
        });
    }
    let (reply, killed) = oneshot::channel();
    let cluster = Arc::clone(&split.listener.cluster);
    let message = Message::KillInPool {
        id: kill.id,
        query_only: kill.query_only,
        cluster,
        reply,
    };
    split.worker.shared.tell(place.worker, message);
    if !kill.query_only {
        return answer::ok(split).await;
    }
    let killed = tokio::select! {
        biased;
        signal = split.control.signalled(false) => return Err(split.signalled(signal)),
        killed = killed => killed,
    };
    // A worker that has stopped has no statement under way.
    match killed.unwrap_or(Ok(())) {
        Ok(()) => answer::ok(split).await,
        Err(cause) => refuse(split, SessionError::KillFailed(cause)).await,
    }
}

/// Whether a session is the same user's, in the same cluster: what a server asks, too.
fn is_own(split: &Split, place: &Place) -> bool {
    place.cluster == split.listener.cluster_serial && *place.user == *split.account.user.name.as_bytes()
}

/// On the worker of the session: ends it, and has the connection that it holds killed by the account that watches the servers: a server
/// goes on with a statement whose client is gone, and commits it.
pub(crate) async fn end(control: Rc<Control>, cluster: Arc<Cluster>) -> Result<(), String> {
    let seat = control.seat();
    let _aim = control.aim();
    control.raise(Signal::Kill);
    match seat {
        Some((server, thread_id)) if thread_id != 0 => {
            let kill = format!("KILL {thread_id}");
            cluster.run_by_account(server.server, &kill).await
        }
        _ => Ok(()),
    }
}

/// On the worker of the session: has the statement under way killed by the account that watches the servers.
pub(crate) async fn shoot(control: Rc<Control>, cluster: Arc<Cluster>) -> Result<(), String> {
    let Some((server, thread_id)) = control.seat() else {
        // Between two statements there is nothing to be killed, as on a server.
        return Ok(());
    };
    let _aim = control.aim();
    cluster
        .run_by_account(server.server, &format!("KILL QUERY {thread_id}"))
        .await
}
