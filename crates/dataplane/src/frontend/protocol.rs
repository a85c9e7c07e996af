//! The life of a connection whose protocol an extension serves.

use std::rc::Rc;
use std::sync::Arc;

use config::TlsMode;
use net::{Accepted, Peer, Stream};
use tokio::io::AsyncReadExt;

use crate::control::Waiting;
use crate::error::SessionError;
use crate::frontend::counted::Counted;
use crate::frontend::extension::{ProtocolConnection, ProtocolEnd, ProtocolSession, StopSignal};
use crate::frontend::listener_state::ListenerState;
use crate::frontend::proxy_header;
use crate::frontend::session_summary::SessionSummary;
use crate::session_end::signal_as_error;

/// The life of a connection of a listener that an extension serves.
pub(crate) async fn serve(
    counted: &Counted,
    accepted: Accepted,
    summary: &mut SessionSummary,
) -> SessionError {
    let (control, listener) = (&counted.control, &counted.listener);
    let Some(extension) = counted.worker.extension.get() else {
        return SessionError::NotServed;
    };
    let received = tokio::select! {
        biased;
        received = receive(accepted, listener, summary) => received,
        signal = control.signalled(true) => Err(signal_as_error(signal, "", listener)),
    };
    let (stream, unread) = match received {
        Ok(received) => received,
        Err(error) => return error,
    };
    let protocol_session = ProtocolSession {
        home: Rc::clone(&counted.worker.home),
        control: Rc::clone(control),
        listener: Arc::clone(listener),
        metrics: Arc::clone(&counted.metrics),
        peer: summary.client,
        local: stream.local().unwrap_or(Peer::Unix),
    };
    control.introduce(&listener.config.name, &protocol_session.peer);
    control.set_limits(listener.idle_limits());
    control.mark(Waiting::Client);
    let connection = ProtocolConnection {
        stream,
        unread,
        control: protocol_session,
    };
    let end = extension.serve(connection).await;
    if let Some(user) = control.user() {
        summary.user = (&*user).into();
    }
    match end {
        ProtocolEnd::Quit => SessionError::ClientQuit,
        ProtocolEnd::Gone => SessionError::ClientGone,
        ProtocolEnd::Failed(error) => SessionError::ClientFailed(error),
        ProtocolEnd::Protocol(cause) => SessionError::ClientBroke(cause),
        ProtocolEnd::LoginTimeout => SessionError::LoginTimeout(listener.config.login_timeout),
        ProtocolEnd::Signalled(StopSignal(signal)) => signal_as_error(signal, "", listener),
    }
}

/// The first byte of every TLS connection: a handshake record. No text protocol begins with it.
const TLS_HANDSHAKE: u8 = 0x16;

/// Reads the PROXY header and does the server's part of TLS, within the listener's time.
async fn receive(
    accepted: Accepted,
    listener: &ListenerState,
    summary: &mut SessionSummary,
) -> Result<(Stream, Vec<u8>), SessionError> {
    let mut stream = Stream::from_accepted(accepted).map_err(SessionError::ClientFailed)?;
    let (peer, mut unread) = proxy_header::read_header(&mut stream, listener).await?;
    summary.client = peer;
    let Some(tls) = &listener.tls else {
        return Ok((stream, unread));
    };
    let limit = listener.config.login_timeout;
    let secured = async {
        if unread.is_empty()
            && stream
                .read_buf(&mut unread)
                .await
                .map_err(SessionError::ClientFailed)?
                == 0
        {
            return Err(SessionError::ClientGone);
        }
        if unread.first() == Some(&TLS_HANDSHAKE) {
            let stream = tls.accept(stream, unread).await;
            return Ok((stream.map_err(SessionError::ClientTls)?, Vec::new()));
        }
        let is_unix = matches!(stream, Stream::Unix(_));
        if listener.config.tls.mode == TlsMode::Required && !is_unix {
            return Err(SessionError::TlsRequired);
        }
        Ok((stream, unread))
    };
    tokio::time::timeout(limit, secured)
        .await
        .unwrap_or(Err(SessionError::LoginTimeout(limit)))
}
