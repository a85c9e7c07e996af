//! The last words to a client that gets no session.

use std::time::Duration;

use mysql_wire::Capabilities;
use net::Stream;
use tokio::io::AsyncWriteExt;

use crate::error::SessionError;
use crate::frontend::handshake::Client;
use crate::frontend::worker::Worker;
use crate::session_end::error_bytes;

/// Tells a client in the server's words that it gets no session, after some time. The place on the server is
/// free already.
pub(super) async fn pass_refusal(client: &mut Client, payload: &[u8], held: Duration) {
    tokio::time::sleep(held).await;
    let mut bytes = Vec::new();
    mysql_wire::write_packet(&mut bytes, &mut client.sequence, payload);
    say_last(&mut client.stream, &bytes).await;
}

/// Tells a client that has no session why it gets none.
pub(crate) async fn refuse(
    worker: &Worker,
    client: &mut Stream,
    sequence: u8,
    capabilities: Capabilities,
    error: &SessionError,
) {
    let Some(packet) = error.to_packet() else { return };
    worker.metrics.error_sent(packet.code, error.fault());
    let bytes = error_bytes(&packet, sequence, capabilities);
    say_last(client, &bytes).await;
}

/// Writes something and ends the connection.
pub(super) async fn say_last(client: &mut Stream, bytes: &[u8]) {
    let write = async {
        client.write_all(bytes).await?;
        client.shutdown().await
    };
    // A client that does not take the bytes in time, or is gone, does without.
    let _: Result<std::io::Result<()>, _> =
        tokio::time::timeout(crate::session_end::FAREWELL_LIMIT, write).await;
}
