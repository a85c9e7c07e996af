//! A connection of mode `tcp` goes to the process that takes over: both sockets, and how much they have
//! carried.

use std::sync::Arc;

use net::{Peer, Stream};
use serde::{Deserialize, Serialize};

use super::offer::{self, Counts, Head, Kind};
use super::{Stays, give};
use crate::frontend::counted::Counted;
use crate::relay::{Pair, Streams, Traffic};

/// The body of the offer of such a connection.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Forwarded {
    server: String,
    counts: Counts,
}

/// Gives the connection away, while nothing is on its way in either direction. False where that comes to
/// nothing: the connection goes on here.
pub(crate) async fn go(counted: &Counted, pair: &mut Pair, client: &Peer) -> bool {
    let control = &counted.control;
    let body = || {
        Ok(Forwarded {
            server: pair.permit.server().whereabouts(),
            counts: Counts::of(&pair.streams.traffic),
        })
    };
    let head = Head::new(Kind::Bytes, control, &counted.listener, client);
    let streams = (&pair.streams.client, Some(&pair.streams.server));
    match give::give(&counted.worker, control, (&head, body), streams).await {
        Ok(()) => {
            // Neither side is told anything: both go on with the other process.
            pair.streams.client = Stream::Detached;
            pair.streams.server = Stream::Detached;
            true
        }
        Err(why) => {
            control.has_looked(why);
            false
        }
    }
}

/// The connection in the process that takes over, where nothing is read of it yet.
pub(super) fn arrive(
    counted: &Counted,
    body: &[u8],
    (client, server_stream): (Stream, Option<Stream>),
) -> Result<Box<Pair>, Stays> {
    let (worker, control, listener) = (&counted.worker, &counted.control, &counted.listener);
    let known: Forwarded = offer::read(body)?;
    let servers = listener.cluster.servers();
    let server = servers.iter().find(|server| server.whereabouts() == known.server);
    let server = server.ok_or(Stays::Server)?;
    let permit = listener.cluster.permit_to(server).ok_or(Stays::Server)?;
    let server_metrics = worker.metrics.server(listener.cluster.name(), server.name());
    let mut traffic = Traffic::new(Arc::clone(&counted.metrics), server_metrics);
    known.counts.go_on(&mut traffic);
    control.attach(listener.key(server));
    control.set_limits(listener.idle_limits());
    Ok(Box::new(Pair {
        streams: Streams::new(client, server_stream.ok_or(Stays::Refused)?, traffic),
        permit,
    }))
}
