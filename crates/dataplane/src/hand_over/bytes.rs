//! A connection of mode `tcp` goes to the process that takes over: both sockets, and how much they have
//! carried.

use std::sync::Arc;

use net::{Peer, Stream};
use serde::{Deserialize, Serialize};
use telemetry::ListenerMetrics;

use super::offer::{self, Counts, Head, Kind};
use super::{Stays, give};
use crate::control::Control;
use crate::frontend::listener_state::ListenerState;
use crate::frontend::worker::Worker;
use crate::relay::{Pair, Streams, Traffic};

/// What is known of it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Forwarded {
    server: String,
    counts: Counts,
}

/// Gives the connection away, while nothing is on its way in either direction. False where that comes to
/// nothing: it goes on here.
pub(crate) async fn go(
    worker: &Worker,
    control: &Control,
    listener: &ListenerState,
    pair: &mut Pair,
    client: &Peer,
) -> bool {
    let body = || {
        Ok(Forwarded {
            server: pair.permit.server().whereabouts(),
            counts: Counts::of(&pair.streams.traffic),
        })
    };
    let head = Head::new(Kind::Bytes, control, listener, client);
    let streams = (&pair.streams.client, Some(&pair.streams.server));
    match give::give(worker, control, (&head, body), streams).await {
        Ok(()) => {
            // Neither is told anything: both go on with the other process.
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
    (worker, control): (&Worker, &Control),
    (listener, metrics): (&Arc<ListenerState>, &Arc<ListenerMetrics>),
    body: &[u8],
    (client, server_stream): (Stream, Option<Stream>),
) -> Result<Box<Pair>, Stays> {
    let known: Forwarded = offer::read(body)?;
    let servers = listener.cluster.servers();
    let server = servers.iter().find(|server| server.whereabouts() == known.server);
    let server = server.ok_or(Stays::Server)?;
    let permit = listener.cluster.permit_to(server).ok_or(Stays::Server)?;
    let server_metrics = worker.metrics.server(listener.cluster.name(), server.name());
    let mut traffic = Traffic::new(Arc::clone(metrics), server_metrics);
    known.counts.go_on(&mut traffic);
    control.attach(listener.key(server));
    control.set_limits(listener.idle_limits());
    Ok(Box::new(Pair {
        streams: Streams::new(client, server_stream.ok_or(Stays::Refused)?, traffic),
        permit,
    }))
}
