//! COM_CHANGE_USER in mode `session`: a login within a session.

use std::io;
use std::time::Duration;

use mysql_wire::{ChangeUser, StatusFlags};
use net::Peer;
use tokio::time::timeout;
use upstream::Server;

use super::{Agreed, NO_SUCH_PLUGIN, answer_in_time, client_read, is_denial, ok_status};
use crate::control::Control;
use crate::error::{During, SessionError};
use crate::frontend::accounts::Proof;
use crate::frontend::guesses::{Asking, Guesses};
use crate::frontend::listener_state::ListenerState;
use crate::frontend::packet_io::{LoginPeer, malformed};
use crate::session_end::signal_as_error;

/// The outcome of a COM_CHANGE_USER.
pub(crate) enum Changed {
    /// The session goes on as the user of this request, with the status of the OK, and the client's proof.
    To(Box<ChangeUser>, StatusFlags, Proof),
    /// The server refused. The client has yet to be told, after so much time.
    Refused {
        payload: Vec<u8>,
        held: Duration,
        /// The password was wrong.
        is_denied: bool,
    },
}

/// Serves COM_CHANGE_USER: a login on connections that are logged in already. `peer` is the client.
///
/// The client may have made its answer with the nonce of our greeting, so the server is made to ask again.
pub(crate) async fn change_user(
    client: &mut LoginPeer<'_>,
    server_side: &mut LoginPeer<'_>,
    listener: &ListenerState,
    agreed: Agreed,
    (server, control): (&Server, &Control),
    (guesses, peer): (&Guesses, &Peer),
) -> Result<Changed, SessionError> {
    let limit = listener.config.login_timeout;
    let packet = tokio::select! {
        biased;
        packet = timeout(limit, client.read()) => packet.map_err(|_| SessionError::LoginTimeout(limit))?,
        signal = control.signalled(false) => return Err(signal_as_error(signal, server.name(), listener)),
    };
    let request = ChangeUser::decode(&packet.map_err(client_read)?, agreed.client).map_err(malformed)?;
    let user = request.user.clone();
    let asking = Asking::new(peer, &user, &listener.config);
    let attempt = tokio::select! {
        biased;
        attempt = timeout(limit, guesses.begin(asking)) => attempt.map_err(|_| SessionError::LoginTimeout(limit))??,
        signal = control.signalled(false) => return Err(signal_as_error(signal, server.name(), listener)),
    };
    // A packet that ends before the charset has no place for a plugin.
    let forwarded = match request.charset {
        None => request,
        Some(_) => ChangeUser {
            auth_response: Vec::new(),
            auth_plugin: Some(NO_SUCH_PLUGIN.to_vec()),
            ..request
        },
    };
    let mut payload = Vec::with_capacity(256);
    forwarded.encode(&mut payload, agreed.server);
    let gone = |_| SessionError::ServerGone {
        server: server.name().to_owned(),
        during: During::Login,
    };
    let server_limit = listener.cluster.config().login_timeout;
    let written = timeout(server_limit, server_side.write(&payload)).await;
    written
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        .map_err(gone)?;
    let parties = (server, control);
    let who = (agreed, user.as_slice());
    let attempt = (attempt, false);
    match answer_in_time(client, server_side, listener, who, parties, attempt).await {
        Ok((ok, proof)) => {
            let status = ok_status(&ok, agreed.server);
            Ok(Changed::To(Box::new(forwarded), status, proof))
        }
        Err(SessionError::LoginRefused { payload, held }) => Ok(Changed::Refused {
            is_denied: is_denial(&payload, agreed.server),
            payload,
            held,
        }),
        Err(error) => Err(error),
    }
}
