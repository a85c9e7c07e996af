//! What a request waits for.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use dataplane::extension::{ProtocolEnd, ProtocolSession};

/// Waits for something, unless the session has to end before. Takes it where it is: whatever is moved has its
/// place twice in every connection.
pub(super) async fn unless_ordered<T>(
    control: &ProtocolSession,
    mut wait: Pin<&mut impl Future<Output = T>>,
) -> Result<T, ProtocolEnd> {
    poll_fn(|cx| match wait.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Ok(done)),
        // A signal wakes the task.
        Poll::Pending => match control.due(false) {
            Some(order) => Poll::Ready(Err(ProtocolEnd::Signalled(order))),
            None => Poll::Pending,
        },
    })
    .await
}
