//! A session that is understood goes to the process that takes over, or stays: see
//! [`hand_over`](crate::hand_over).

use net::{Peer, Stream};

use crate::engine::client_session::ClientSession;
use crate::engine::{lease, packed};
use crate::error::SessionError;
use crate::frontend::counted::Counted;
use crate::hand_over::Stays;
use crate::hand_over::give;
use crate::hand_over::offer::{self, Head, Kind};

/// Gives the session away. If that comes to nothing, the session goes on here.
///
/// # Errors
/// The session has gone: nothing of it is this process's any more.
pub(super) async fn go(session: &mut ClientSession) -> Result<(), SessionError> {
    match try_to_go(session).await {
        Ok(()) => {
            // Neither side is told anything: both go on with the other process.
            session.streams.client = Stream::Detached;
            drop(lease::detach(session));
            Err(SessionError::HandedOver)
        }
        Err(why) => {
            session.control.has_looked(why);
            Ok(())
        }
    }
}

async fn try_to_go(session: &ClientSession) -> Result<(), Stays> {
    if session.client.compression.is_some() {
        return Err(Stays::Compressed);
    }
    if session.streams.client.is_encrypted() {
        return Err(Stays::Tls);
    }
    let (control, context) = (&session.control, &session.context);
    let head = Head::new(Kind::Understood, control, &context.listener, &session.client.host);
    let server = session.lease.as_ref().map(|_| &session.streams.server);
    let streams = (&session.streams.client, server);
    give::give(
        &context.worker,
        control,
        (&head, || packed::pack(session)),
        streams,
    )
    .await
}

/// The session in the process that takes over, where nothing is read from its client yet.
pub(crate) fn arrive(
    counted: &Counted,
    body: &[u8],
    streams: (Stream, Option<Stream>, Peer),
) -> Result<Box<ClientSession>, Stays> {
    let packed = offer::read(body)?;
    packed::unpack(counted, packed, streams)
}
