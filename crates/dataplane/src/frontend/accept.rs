//! The acceptor: one thread that takes connections from all listeners and gives each to the worker with the
//! fewest sessions, so that twenty long-lived connections spread evenly.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::Duration;

use config::BindAddress;
use net::{Accepted, Listener, NetError, Peer, handover, limits};
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{JoinHandle, spawn_local};
use tracing::{error, info};

use crate::frontend::data_plane::Shared;
use crate::frontend::listener_state::ListenerState;
use crate::frontend::message::Message;

/// How long to wait before the next try when the process has run out of file descriptors or the kernel of
/// memory.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// Time between two checks of whether the process before this one has left the connections to it.
const HANDOVER_PAUSE: Duration = Duration::from_millis(5);

pub(crate) enum AcceptorMessage {
    /// Binds, and holds the socket until it is opened or closed. Sockets belong to this thread's runtime.
    Bind {
        listener: Box<config::Listener>,
        reply: Sender<Result<Peer, NetError>>,
    },
    /// Takes connections from a socket that was bound.
    Open {
        state: Arc<ListenerState>,
    },
    /// New connections of the listener with the same `bind` get this state.
    Change {
        state: Arc<ListenerState>,
    },
    Close {
        bind: BindAddress,
    },
    CloseAll,
    /// Says that what was told before is done.
    Settled {
        reply: Sender<()>,
    },
    /// Asks for the sockets of all open listeners, each with the address that it is bound to.
    Share {
        reply: Sender<std::io::Result<Vec<(String, OwnedFd)>>>,
    },
    Stop,
}

/// The task of one listener, and the state that each connection it accepts is given.
struct Open {
    socket: Rc<Listener>,
    state: Rc<RefCell<Arc<ListenerState>>>,
    task: JoinHandle<()>,
}

/// The runtime of the acceptor, for the current thread.
pub(crate) fn runtime() -> std::io::Result<LocalRuntime> {
    Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
}

/// Runs the acceptor on the current thread until it is told to stop.
pub(crate) fn run(runtime: &LocalRuntime, shared: Arc<Shared>, inbox: UnboundedReceiver<AcceptorMessage>) {
    runtime.block_on(take_messages(shared, inbox));
}

async fn take_messages(shared: Arc<Shared>, mut inbox: UnboundedReceiver<AcceptorMessage>) {
    let mut bound: HashMap<BindAddress, Listener> = HashMap::new();
    let mut open: HashMap<BindAddress, Open> = HashMap::new();
    while let Some(message) = inbox.recv().await {
        match message {
            AcceptorMessage::Bind { listener, reply } => {
                // The asker may have gone; then the socket is closed with the process.
                let _ = reply.send(bind(&listener, &mut bound));
            }
            AcceptorMessage::Open { state } => {
                let bind = state.config.bind.clone();
                let Some(socket) = bound.remove(&bind) else {
                    continue;
                };
                let (socket, state) = (Rc::new(socket), Rc::new(RefCell::new(state)));
                let task = spawn_local(accept(Arc::clone(&shared), Rc::clone(&socket), Rc::clone(&state)));
                open.insert(bind, Open { socket, state, task });
            }
            AcceptorMessage::Change { state } => {
                if let Some(open) = open.get(&state.config.bind) {
                    open.socket.set_congestion(&state.config.congestion);
                    open.state.replace(state);
                }
            }
            AcceptorMessage::Close { bind } => {
                bound.remove(&bind);
                if let Some(open) = open.remove(&bind) {
                    open.task.abort();
                    // The task takes connections until it has ended.
                    let _ = open.task.await;
                }
            }
            AcceptorMessage::Settled { reply } => {
                let _ = reply.send(());
            }
            AcceptorMessage::Share { reply } => {
                let shared = open
                    .iter()
                    .map(|(bind, open)| Ok((bind.to_string(), open.socket.share()?)));
                let _ = reply.send(shared.collect());
            }
            AcceptorMessage::CloseAll => open.drain().for_each(|(_, open)| open.task.abort()),
            AcceptorMessage::Stop => return,
        }
    }
}

fn bind(listener: &config::Listener, bound: &mut HashMap<BindAddress, Listener>) -> Result<Peer, NetError> {
    let socket = Listener::bind(listener)?;
    let address = socket.local_addr().map_err(|source| NetError::Bind {
        address: listener.bind.to_string(),
        source,
    })?;
    let told = match address {
        Peer::Unix => listener.bind.to_string(), // with its path
        Peer::Tcp(address) => address.to_string(),
    };
    info!(listener = listener.name, address = told, "listening");
    bound.insert(listener.bind.clone(), socket);
    Ok(address)
}

async fn accept(shared: Arc<Shared>, listener: Rc<Listener>, state: Rc<RefCell<Arc<ListenerState>>>) {
    let name = state.borrow().config.name.clone();
    while handover::is_waited_for() {
        tokio::time::sleep(HANDOVER_PAUSE).await;
    }
    loop {
        match listener.accept().await {
            Ok(accepted) => admit(&shared, accepted, &state.borrow()),
            Err(error) if limits::is_exhausted(&error) => {
                error!(listener = name, %error, "cannot accept: out of file descriptors or memory (see LimitNOFILE)");
                tokio::time::sleep(EXHAUSTED_PAUSE).await;
            }
            // The client has gone before it was accepted.
            Err(_) => {}
        }
    }
}

/// Gives a connection to a worker, or refuses it where a limit is reached.
fn admit(shared: &Shared, accepted: Accepted, listener: &Arc<ListenerState>) {
    let in_all = shared.max_connections.load(Ordering::Relaxed) as usize;
    let here = listener.config.max_connections.unwrap_or(u32::MAX);
    let worker = shared.idlest_worker();
    let short_of_memory = shared.short_of_memory.load(Ordering::Relaxed);
    if short_of_memory || shared.sessions() >= in_all || listener.active.load(Ordering::Relaxed) >= here {
        shared.tell(
            worker,
            Message::Refused {
                accepted,
                listener: Arc::clone(listener),
                short_of_memory,
            },
        );
        return;
    }
    shared.sessions_on[worker].fetch_add(1, Ordering::Relaxed);
    listener.active.fetch_add(1, Ordering::Relaxed);
    shared.tell(
        worker,
        Message::Arrived {
            accepted,
            listener: Arc::clone(listener),
        },
    );
}
