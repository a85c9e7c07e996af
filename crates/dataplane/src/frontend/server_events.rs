//! Events of servers, told to the sessions that are on them.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::OnDown;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{JoinHandle, spawn_local};
use upstream::{Cluster, Server, ServerChange, ServerEvent, ServerId, Status};

use crate::control::{MOVE_PAUSE, ServerKey, Signal};
use crate::frontend::data_plane::Shared;
use crate::frontend::message::Message;

/// A message to [`run`].
pub(crate) enum Follow {
    Begin(u32, Arc<Cluster>),
    /// The cluster is no longer in the configuration: its sessions end as those of a removed server do.
    End(u32),
}

/// Servers of a cluster whose sessions are being told to leave. A server that drains, stops and drains again
/// is in it once, so that its sessions are told once.
type Emptied = Rc<RefCell<HashSet<ServerId>>>;

/// A cluster that is followed, and the tasks that follow it.
struct Followed {
    cluster: Arc<Cluster>,
    tasks: [JoinHandle<()>; 3],
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
                    spawn_local(even_out(Arc::clone(&shared), serial, Arc::clone(&cluster))),
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

fn key(cluster: u32, server: ServerId) -> ServerKey {
    ServerKey { cluster, server }
}

/// Raises a signal in all sessions on this server.
fn raise_on(shared: &Shared, (serial, server): (u32, ServerId), signal: Signal) {
    let server = key(serial, server);
    shared.tell_all(|| Message::RaiseOnServer { server, signal });
}

async fn end(shared: Arc<Shared>, serial: u32, followed: Followed) {
    followed.tasks.iter().for_each(JoinHandle::abort);
    followed.cluster.retire();
    let servers = followed.cluster.servers();
    let raise = |signal| {
        for server in servers.iter() {
            raise_on(&shared, (serial, server.id()), signal);
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
    let emptied = Emptied::default();
    // The newest server that was heard of.
    let mut last = newest(&present(&cluster));
    loop {
        match events.recv().await {
            Ok(event) => {
                last = last.max(event.server.0);
                take(&shared, serial, &cluster, &emptied, event);
            }
            Err(RecvError::Lagged(missed)) => {
                tracing::warn!(cluster = cluster.name(), missed, "server events missed");
                let present = present(&cluster);
                last = last.max(newest(&present));
                let deadline = Instant::now() + cluster.config().drain_timeout;
                let servers = cluster.servers();
                let draining = servers.iter().filter(|server| server.is_draining());
                let draining = draining.map(|server| ServerEvent {
                    server: server.id(),
                    change: ServerChange::Draining,
                });
                for event in missed_events(&present, last, deadline)
                    .into_iter()
                    .chain(draining)
                {
                    take(&shared, serial, &cluster, &emptied, event);
                }
            }
            Err(RecvError::Closed) => return,
        }
    }
}

/// Has sessions leave a server as long as it drains. Some can leave only later than others.
async fn empty(shared: Arc<Shared>, (serial, cluster): (u32, Arc<Cluster>), server: &Server) {
    let mut ended = None;
    while server.is_draining() && server.state().status != Status::Removed {
        let ends = cluster.drain_ends(server.name());
        let left = ends.map(|ends| ends.saturating_duration_since(Instant::now()));
        match left {
            // Raised once: a session that comes later has a reason, such as a primary that nobody replaces.
            Some(Duration::ZERO) if ended != ends => {
                ended = ends;
                raise_on(&shared, (serial, server.id()), Signal::DrainNow);
            }
            _ => shared.tell_all(|| Message::WakeOnServer(key(serial, server.id()))),
        }
        let pause = left.filter(|left| !left.is_zero()).unwrap_or(MOVE_PAUSE);
        tokio::time::sleep(pause.min(MOVE_PAUSE)).await;
    }
}

/// Has sessions leave servers that have too many, as far as that is configured. Sessions that have something
/// to say look by themselves; some of the silent ones are woken.
async fn even_out(shared: Arc<Shared>, serial: u32, cluster: Arc<Cluster>) {
    loop {
        let zone = shared.zone.load_full();
        let (leaving, pause) = cluster.even_out(zone.as_ref().map(|zone| zone.as_str()));
        for (server, count) in leaving {
            let server = key(serial, server);
            shared.tell_all(|| Message::WakeSome { server, count });
        }
        tokio::time::sleep(pause).await;
    }
}

/// The servers of a cluster, and which of them are down.
fn present(cluster: &Cluster) -> HashMap<ServerId, bool> {
    let servers = cluster.servers();
    let states = servers
        .iter()
        .map(|server| (server.id(), server.state().status == Status::Down));
    states.collect()
}

fn newest(present: &HashMap<ServerId, bool>) -> u32 {
    present.keys().map(|id| id.0).max().unwrap_or(0)
}

/// Events that may have been missed, of the servers up to `last`, as far as they still matter: a server that
/// is not present has been removed. Some events are told twice.
fn missed_events(present: &HashMap<ServerId, bool>, last: u32, deadline: Instant) -> Vec<ServerEvent> {
    let events = (0..=last).map(ServerId).filter_map(|server| {
        let change = match present.get(&server) {
            None => ServerChange::Removed { deadline },
            Some(true) => ServerChange::Down {
                reason: "seen late".into(),
            },
            Some(false) => return None,
        };
        Some(ServerEvent { server, change })
    });
    events.collect()
}

fn take(shared: &Arc<Shared>, serial: u32, cluster: &Arc<Cluster>, emptied: &Emptied, event: ServerEvent) {
    let on = (serial, event.server);
    match event.change {
        ServerChange::Up => {}
        ServerChange::Draining => {
            if let Some(server) = cluster.server(event.server)
                && emptied.borrow_mut().insert(server.id())
            {
                let (shared, cluster, emptied) =
                    (Arc::clone(shared), Arc::clone(cluster), Rc::clone(emptied));
                spawn_local(async move {
                    empty(shared, (serial, cluster), &server).await;
                    emptied.borrow_mut().remove(&server.id());
                });
            }
        }
        ServerChange::Silent => {
            if cluster.config().on_down == OnDown::Close {
                raise_on(shared, on, Signal::ServerSilent);
            }
        }
        ServerChange::Down { .. } => {
            if cluster.config().on_down == OnDown::Close {
                raise_on(shared, on, Signal::ServerDown);
            }
        }
        ServerChange::Removed { deadline } => {
            raise_on(shared, on, Signal::Drain);
            let shared = Arc::clone(shared);
            spawn_local(async move {
                tokio::time::sleep_until(deadline.into()).await;
                raise_on(&shared, on, Signal::DrainNow);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_missed_is_found_out_from_what_there_is() {
        let present = HashMap::from([(ServerId(1), false), (ServerId(3), true)]);
        let deadline = Instant::now();
        let events = missed_events(&present, 4, deadline);
        let of = |id: u32| {
            let event = events.iter().find(|event| event.server == ServerId(id));
            event.map(|event| &event.change)
        };
        let removed = ServerChange::Removed { deadline };
        for gone in [0, 2, 4] {
            assert_eq!(of(gone), Some(&removed), "{gone}");
        }
        assert_eq!(of(1), None);
        assert!(matches!(of(3), Some(ServerChange::Down { .. })));
    }
}
