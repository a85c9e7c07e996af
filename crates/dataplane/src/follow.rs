//! What happens to servers, told to the sessions that are on them.

use std::collections::HashMap;
use std::sync::Arc;

use config::OnDown;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{JoinHandle, spawn_local};
use upstream::{Cluster, ServerChange, ServerEvent, ServerId};

use crate::control::{ServerKey, Signal};
use crate::gateway::Shared;
use crate::worker::Message;

/// What [`run`] is told.
pub(crate) enum Follow {
    Begin(u32, Arc<Cluster>),
    /// The cluster is no longer in the configuration: its sessions end as those of a removed server do.
    End(u32),
}

/// A cluster that is followed, and what follows it.
struct Followed {
    cluster: Arc<Cluster>,
    tasks: [JoinHandle<()>; 2],
}

/// Follows every cluster that is named to it. Never returns while the gateway lives.
pub(crate) async fn run(shared: Arc<Shared>, mut clusters: UnboundedReceiver<Follow>) {
    let mut followed = HashMap::new();
    while let Some(told) = clusters.recv().await {
        match told {
            Follow::Begin(serial, cluster) => {
                let tasks = [
                    spawn_local(Arc::clone(&cluster).run_checks()),
                    spawn_local(follow(Arc::clone(&shared), serial, Arc::clone(&cluster))),
                ];
                followed.insert(serial, Followed { cluster, tasks });
            }
            Follow::End(serial) => {
                if let Some(followed) = followed.remove(&serial) {
                    spawn_local(end(Arc::clone(&shared), serial, followed));
                }
            }
        }
    }
}

async fn end(shared: Arc<Shared>, serial: u32, followed: Followed) {
    followed.tasks.iter().for_each(JoinHandle::abort);
    let servers = followed.cluster.servers();
    let raise = |signal| {
        for server in servers.iter().map(|server| ServerKey {
            cluster: serial,
            server: server.id(),
        }) {
            shared.tell_all(|| Message::RaiseOnServer { server, signal });
        }
    };
    raise(Signal::Drain);
    tokio::time::sleep(followed.cluster.config().drain_timeout).await;
    raise(Signal::DrainNow);
    shared.tell_all(|| Message::Forget {
        cluster_serial: serial,
    });
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
