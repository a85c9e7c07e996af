//! A session of mode `session` that is forwarded goes to the process that takes over, with its server
//! connection. All that the session has set is on that connection.

use std::rc::Rc;
use std::sync::Arc;

use mysql_wire::{Capabilities, ResponseTracker, StatusFlags};
use net::{Peer, Stream};
use serde::{Deserialize, Serialize};

use super::offer::{self, Counts, Head, Kind};
use super::{Stays, give};
use crate::error::SessionError;
use crate::forwarded::session::Session;
use crate::frontend::counted::Counted;
use crate::relay::{Streams, Traffic};

/// The body of the offer of such a session.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Forwarded {
    server: String,
    /// The server's number for the connection.
    thread_id: u32,
    /// The terms on which connections to the server are opened.
    terms: String,
    user: Vec<u8>,
    capabilities: Capabilities,
    status: StatusFlags,
    changed_user: Option<Box<str>>,
    counts: Counts,
}

/// Whether nothing that is under way keeps the session from going now. To be asked between two commands.
pub(crate) fn is_at_rest(session: &Session) -> bool {
    if !session.is_free() {
        session.control.stays(Stays::Transaction);
        return false;
    }
    session.streams.up.is_at_rest() && session.streams.down.is_at_rest()
}

/// Gives the session away. If that comes to nothing, the session goes on here.
///
/// # Errors
/// The session has gone: nothing of it is this process's any more.
pub(crate) async fn go(session: &mut Session) -> Result<(), SessionError> {
    match try_to_go(session).await {
        Ok(()) => {
            // Neither side is told anything: both go on with the other process.
            session.streams.client = Stream::Detached;
            session.streams.server = Stream::Detached;
            Err(SessionError::HandedOver)
        }
        Err(why) => {
            session.control.has_looked(why);
            Ok(())
        }
    }
}

async fn try_to_go(session: &Session) -> Result<(), Stays> {
    let (worker, control) = (&session.worker, &session.control);
    let head = Head::new(Kind::Forwarded, control, &session.listener, &session.peer);
    let streams = (&session.streams.client, Some(&session.streams.server));
    give::give(worker, control, (&head, || pack(session)), streams).await
}

fn pack(session: &Session) -> Result<Forwarded, Stays> {
    let registry = &session.worker.shared.registry;
    let place = registry.find(session.control.id).ok_or(Stays::Refused)?;
    Ok(Forwarded {
        server: session.server.whereabouts(),
        thread_id: place.server_connection.map_or(0, |(_, thread_id)| thread_id),
        terms: upstream::terms_in_words(&session.listener.cluster.config()),
        user: place.user.to_vec(),
        capabilities: session.capabilities,
        status: session.status,
        changed_user: session.changed_user.clone(),
        counts: Counts::of(&session.streams.traffic),
    })
}

/// The session in the process that takes over, where nothing is read from its client yet.
pub(super) fn arrive(
    counted: &Counted,
    body: &[u8],
    (client, server_stream, peer): (Stream, Option<Stream>, Peer),
) -> Result<Box<Session>, Stays> {
    let (worker, control, listener) = (&counted.worker, &counted.control, &counted.listener);
    let known: Forwarded = offer::read(body)?;
    let servers = listener.cluster.servers();
    let server = servers.iter().find(|server| server.whereabouts() == known.server);
    let server = server.ok_or(Stays::Server)?;
    if known.terms != upstream::terms_in_words(&listener.cluster.config()) {
        return Err(Stays::Terms);
    }
    let permit = listener.cluster.permit_to(server).ok_or(Stays::Server)?;
    let server_metrics = worker.metrics.server(listener.cluster.name(), server.name());
    let mut traffic = Traffic::new(Arc::clone(&counted.metrics), Arc::clone(&server_metrics));
    known.counts.go_on(&mut traffic);
    let server_connection = (listener.key(server), known.thread_id);
    counted.list(Some(server_connection), known.user.into(), true);
    control.attach_connection(server_connection.0, server_connection.1);
    control.set_limits(listener.idle_limits());
    Ok(Box::new(Session {
        control: Rc::clone(control),
        worker: Rc::clone(worker),
        listener: Arc::clone(listener),
        server: Arc::clone(server),
        metrics: server_metrics,
        streams: Streams::new(client, server_stream.ok_or(Stays::Refused)?, traffic),
        response: ResponseTracker::new(known.capabilities),
        capabilities: known.capabilities,
        status: known.status,
        changed_user: known.changed_user,
        peer,
        error_sequence: Some(0),
        _permit: permit,
    }))
}
