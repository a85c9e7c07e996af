//! A session of the process before this one on its worker: the session is made while that process still has
//! it, and begins when it is ours.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use net::Stream;
use tokio::task::spawn_local;
use tracing::debug;

use super::arriving::Arriving;
use super::offer::{Head, Kind};
use super::{Stays, bytes, forwarded};
use crate::control::{Control, Waiting};
use crate::engine::client_session::ClientSession;
use crate::engine::hand_over;
use crate::forwarded::session::Session;
use crate::frontend::connection;
use crate::frontend::counted::Counted;
use crate::frontend::listener_state::ListenerState;
use crate::frontend::registry::SessionPlace;
use crate::frontend::session_summary::SessionSummary;
use crate::frontend::worker::Worker;
use crate::relay::Pair;

/// A session that could begin.
enum Ready {
    Understood(Box<ClientSession>),
    Forwarded(Box<Session>),
    Bytes(Box<Pair>),
}

/// Takes a session over, or refuses it.
pub(crate) fn begin(worker: Rc<Worker>, arriving: Arriving) {
    spawn_local(take_over(worker, arriving));
}

async fn take_over(worker: Rc<Worker>, mut arriving: Arriving) {
    let listener = Arc::clone(&arriving.listener);
    let head = &arriving.head;
    // A session whose number another session has gets the number 0 while it is refused.
    let is_known = !reserve(&worker, head, &listener);
    let id = if is_known { 0 } else { head.id };
    let control = Rc::new(Control::since(id, Rc::clone(&worker.clock), head.began()));
    control.introduce(&listener.config.name, &head.client());
    control.name_user(&head.user);
    control.name_login(head.login_schema.as_deref(), Some(head.login_collation));
    control.set_failed_logins(head.failed_logins);
    poll_fn(|cx| {
        control.remember_waker(cx);
        Poll::Ready(())
    })
    .await;
    let counted = Counted::new(Rc::clone(&worker), listener, Rc::clone(&control));
    let made = match is_known {
        true => Err(Stays::Number),
        false => make(&counted, &mut arriving),
    };
    let Arriving {
        head,
        verdict,
        bytes: said,
        ..
    } = arriving;
    drop(said);
    let ready = match made {
        Ok(ready) => ready,
        Err(why) => {
            debug!(session = head.id, why = why.label(), "session not taken over");
            return verdict.refuse(why);
        }
    };
    if !verdict.accept().await {
        // The session has gone on where it was: its sockets are not this process's to close in order.
        return drop(ready);
    }
    // Nobody has logged in to a session of mere bytes.
    if head.kind != Kind::Bytes {
        worker.shared.registry.has_arrived(head.id);
    }
    worker.shared.taken.note();
    let mut summary = SessionSummary::new(head.client());
    control.mark(Waiting::Client);
    // Boxed: no kind of session has room for what another needs.
    let error = match ready {
        Ready::Understood(session) => Box::pin(connection::serve_understood(session, &mut summary)).await,
        Ready::Forwarded(mut session) => {
            summary.user = head.user.into();
            summary.server = Some(Arc::clone(&session.server));
            Box::pin(connection::serve_forwarded(&mut session, &mut summary)).await
        }
        Ready::Bytes(mut pair) => {
            summary.server = Some(Arc::clone(pair.permit.server()));
            Box::pin(connection::serve_bytes(&counted, &mut pair, &mut summary)).await
        }
    };
    counted.end(&summary, &error);
}

/// Reserves the session's number, so that nobody else gets it. False where it is taken.
fn reserve(worker: &Worker, head: &Head, listener: &ListenerState) -> bool {
    let place = SessionPlace {
        worker: worker.index,
        cluster: listener.cluster_serial,
        server_connection: None,
        user: head.user.as_bytes().into(),
        is_hidden: true,
    };
    worker.shared.registry.insert_new(head.id, place)
}

fn make(counted: &Counted, arriving: &mut Arriving) -> Result<Ready, Stays> {
    let sockets = std::mem::take(&mut arriving.sockets);
    let mut streams = sockets.into_iter().map(Stream::from_shared);
    let mut stream = || streams.next().transpose().map_err(|_| Stays::Refused);
    let (client, server) = (stream()?.ok_or(Stays::Refused)?, stream()?);
    let (body, peer) = (arriving.body(), arriving.head.client());
    match arriving.head.kind {
        Kind::Understood => hand_over::arrive(counted, body, (client, server, peer)).map(Ready::Understood),
        Kind::Forwarded => forwarded::arrive(counted, body, (client, server, peer)).map(Ready::Forwarded),
        Kind::Bytes => bytes::arrive(counted, body, (client, server)).map(Ready::Bytes),
    }
}
