//! Logins that come to nothing, ended at the server in order.
//!
//! A connection that breaks off before its login is over is held against our host, and after
//! `max_connect_errors` of them in a row (a hundred) a server takes none any more. The client, a signal or
//! the configuration may end a login; in each case the server is made to refuse it: see
//! [`AuthRelay::wrong_answer`] and [`upstream::disconnect`].

use std::io;
use std::time::Duration;

use mysql_wire::{Greeting, SslRequest};
use net::Stream;
use tokio::time::timeout;

use crate::frontend::auth_relay::{AuthRelay, AuthStep};
use crate::frontend::packet_io::{LoginPeer, ReadError};

/// Time that a server may take to refuse a login that is given up. A server that takes longer has more to
/// worry about.
const LIMIT: Duration = Duration::from_secs(1);

/// Packets of a server in a login that is given up: a switch, the questions of a plugin, the verdict.
const ROUNDS: usize = 8;

/// Ends a login on a server from which nothing has come yet.
pub(super) async fn before_greeting(stream: &mut Stream) {
    let left = async {
        if let Ok((greeting, _)) = upstream::read_greeting(stream, LIMIT).await {
            after_greeting(stream, &greeting, None).await;
        }
    };
    let _ = timeout(LIMIT, left).await;
}

/// Ends a login on a server that has greeted. `tls`: the request by which TLS was begun, if it was. The
/// server was told nothing else.
pub(super) async fn after_greeting(stream: &mut Stream, greeting: &Greeting, tls: Option<&SslRequest>) {
    let nobody = upstream::Nobody::default();
    let left = upstream::disconnect(stream, greeting, &nobody, tls);
    let _ = timeout(LIMIT, left).await;
}

/// Ends a login that was sent to the server.
pub(super) async fn in_authentication(server: &mut LoginPeer<'_>, relay: &mut AuthRelay<'_>) {
    let refused = async {
        for _ in 0..ROUNDS {
            if relay.is_over() {
                break;
            }
            if let Some(answer) = relay.wrong_answer() {
                server.write(&answer).await?;
            }
            let packet = server.read().await.map_err(ReadError::into_io)?;
            if let Ok(AuthStep::ToServer(payload)) = relay.server_said(packet) {
                server.write(&payload).await?;
            }
        }
        io::Result::Ok(())
    };
    let _: Result<io::Result<()>, _> = timeout(LIMIT, refused).await;
}
