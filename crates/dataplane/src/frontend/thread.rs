//! Threads of the data plane.

use std::thread::JoinHandle;

use tokio::runtime::LocalRuntime;

use crate::frontend::gateway_error::GatewayError;

/// Starts a thread, and its runtime on it.
pub(crate) fn spawn(
    name: String,
    runtime: impl FnOnce() -> std::io::Result<LocalRuntime> + Send + 'static,
    body: impl FnOnce(&LocalRuntime) + Send + 'static,
) -> Result<JoinHandle<()>, GatewayError> {
    let (ready, started) = std::sync::mpsc::sync_channel(1);
    let run = move || match runtime() {
        Ok(runtime) => {
            // The starter of this thread waits for the answer.
            let _ = ready.send(Ok(()));
            body(&runtime);
        }
        Err(error) => {
            let _ = ready.send(Err(error));
        }
    };
    let thread = std::thread::Builder::new()
        .name(name)
        .spawn(run)
        .map_err(GatewayError::Thread)?;
    let gone = |_| Err(std::io::Error::other("it has ended at once"));
    started
        .recv()
        .unwrap_or_else(gone)
        .map_err(GatewayError::Thread)?;
    Ok(thread)
}
