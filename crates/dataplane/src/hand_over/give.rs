//! Sessions of one worker go to the process that takes over.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use net::Stream;
use serde::Serialize;

use super::offer::{Head, join};
use super::way::Giving;
use super::{OFFER_MAX, Stays};
use crate::control::Control;
use crate::frontend::worker::Worker;

/// How many sessions of a worker begin to look at a time, and the pause behind them: each waits for little
/// but its own answer.
const AT_ONCE: usize = 8;
const PAUSE: Duration = Duration::from_millis(1);

/// Offers a session of this worker, and gives it away where the new process accepts it. Nothing of the
/// session is this process's any more then, and its sockets are to be dropped as they are. `body` describes
/// the session, and is called once the session may go.
///
/// # Errors
/// The session stays, and goes on as before.
pub(crate) async fn give<B: Serialize>(
    worker: &Worker,
    control: &Control,
    (head, body): (&Head, impl FnOnce() -> Result<B, Stays>),
    (client, server): (&Stream, Option<&Stream>),
) -> Result<(), Stays> {
    let giving = worker.giving.borrow().clone().ok_or(Stays::Version)?;
    let turn = giving.turn()?;
    let shared = |stream: &Stream, encrypted| match stream.share() {
        Ok(Some(socket)) => Ok(socket),
        Ok(None) if stream.is_compressed() => Err(Stays::Compressed),
        Ok(None) => Err(encrypted),
        Err(_) => Err(Stays::Refused),
    };
    let mut sockets = vec![shared(client, Stays::Tls)?];
    if let Some(server) = server {
        sockets.push(shared(server, Stays::ServerTls)?);
    }
    let bytes = join(head, &body()?, OFFER_MAX).ok_or(Stays::Large)?;
    let offered = turn.offer(bytes, sockets).await?;
    // A signal that has come for the session meanwhile has to be heard in this process.
    if control.due(false).is_some() || control.due(true).is_some() || control.is_aimed_at() {
        return Err(Stays::Signalled);
    }
    match offered.give().await {
        true => Ok(()),
        false => Err(Stays::Version),
    }
}

/// Has the sessions of this worker look whether they can go: some at a time.
pub(crate) async fn wake_all(worker: Rc<Worker>, giving: Arc<Giving>) {
    *worker.giving.borrow_mut() = Some(giving);
    let mut woken = 0;
    for control in worker.sessions.all() {
        woken += usize::from(control.is_to_go_now());
        if woken == AT_ONCE {
            woken = 0;
            tokio::time::sleep(PAUSE).await;
        }
    }
}
