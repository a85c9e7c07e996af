//! What happens to servers, told to the sessions that are on them.

use std::sync::Arc;

use config::OnDown;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::spawn_local;
use upstream::{Cluster, ServerChange, ServerEvent, ServerId};

use crate::control::{ServerKey, Signal};
use crate::gateway::{NumberedCluster, Shared};
use crate::worker::Message;

/// Follows every cluster that is named to it. Never returns while the gateway lives.
pub(crate) async fn run(shared: Arc<Shared>, mut clusters: UnboundedReceiver<NumberedCluster>) {
    while let Some((serial, cluster)) = clusters.recv().await {
        spawn_local(Arc::clone(&cluster).run_checks());
        spawn_local(follow(Arc::clone(&shared), serial, cluster));
    }
}

async fn follow(shared: Arc<Shared>, serial: u32, cluster: Arc<Cluster>) {
    let mut events = cluster.subscribe();
    loop {
        match events.recv().await {
            Ok(event) => take(&shared, serial, &cluster, event),
            // Events that were missed are seen in the next ones: a server that stays down is found out by its sessions.
            Err(RecvError::Lagged(missed)) => {
                tracing::warn!(cluster = cluster.name(), missed, "server events missed")
            }
            Err(RecvError::Closed) => return,
        }
    }
}

fn take(shared: &Arc<Shared>, serial: u32, cluster: &Cluster, event: ServerEvent) {
    let raise = |server: ServerId, signal| {
        let server = ServerKey {
            cluster: serial,
            server,
        };
        shared.tell_all(|| Message::RaiseOnServer { server, signal });
    };
    match event.change {
        ServerChange::Up => {}
        ServerChange::Down { .. } => {
            if cluster.config().on_down == OnDown::Close {
                raise(event.server, Signal::ServerDown);
            }
        }
        ServerChange::Removed { deadline } => {
            raise(event.server, Signal::Drain);
            let shared = Arc::clone(shared);
            spawn_local(async move {
                tokio::time::sleep_until(deadline.into()).await;
                let server = ServerKey {
                    cluster: serial,
                    server: event.server,
                };
                shared.tell_all(|| Message::RaiseOnServer {
                    server,
                    signal: Signal::DrainNow,
                });
            });
        }
    }
}
