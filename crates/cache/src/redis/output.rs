//! Replies on their way to a client.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;

use dataplane::extension::{ProtocolEnd, ProtocolSession};
use net::Stream;
use tokio::io::AsyncWrite;

use super::connection::PORTION;

/// The room for replies that is kept from one portion to the next, in bytes.
const OUT_KEPT: usize = 4 * PORTION;

/// Writes all of `out`. Nothing is read while the client does not take it: what waits for it is one portion
/// and one reply.
///
/// # Errors
/// The client is gone, or takes too long.
pub(super) async fn write(
    stream: &mut Stream,
    control: &ProtocolSession,
    out: &mut Vec<u8>,
) -> Result<(), ProtocolEnd> {
    let mut written = 0;
    let mut waits = false;
    let done = poll_fn(|cx| {
        while written < out.len() {
            match Pin::new(&mut *stream).poll_write(cx, &out[written..]) {
                Poll::Ready(Ok(0)) => {
                    return Poll::Ready(Err(ProtocolEnd::Failed(io::ErrorKind::WriteZero.into())));
                }
                Poll::Ready(Ok(n)) => {
                    written += n;
                    waits = false;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(ProtocolEnd::Failed(error))),
                Poll::Pending => return blocked(control, &mut waits),
            }
        }
        match Pin::new(&mut *stream).poll_flush(cx) {
            Poll::Ready(flushed) => Poll::Ready(flushed.map_err(ProtocolEnd::Failed)),
            Poll::Pending => blocked(control, &mut waits),
        }
    })
    .await;
    control.add_to_client(written);
    out.clear();
    out.shrink_to(OUT_KEPT);
    done
}

/// The client takes nothing now: it may do so for as long as it may be silent.
fn blocked(control: &ProtocolSession, waits: &mut bool) -> Poll<Result<(), ProtocolEnd>> {
    if !*waits {
        *waits = true;
        control.waits_for_client();
    }
    match control.due(false) {
        Some(order) => Poll::Ready(Err(ProtocolEnd::Signalled(order))),
        None => Poll::Pending,
    }
}
