//! The data plane as a whole: its workers, its acceptor, and what they share.
//!
//! How to drive it: [`Gateway::start`] binds and spawns; [`Gateway::run`] must be polled on the control
//! thread for as long as the gateway lives; [`Gateway::reload`] changes it; [`Gateway::drain`] and
//! [`Gateway::stop_now`] end it.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use config::BindAddress;
use net::{Peer, TlsAcceptor};
use telemetry::Telemetry;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use upstream::Cluster;

use crate::control::{ServerKey, Signal};
use crate::elsewhere::{Elsewhere, KillRequest, NotKilled, may_kill};
use crate::engine::metrics::WorkerSplitMetrics;
use crate::engine::rules::rule_set::ConfiguredRules;
use crate::frontend::accept::{self, AcceptorMessage};
use crate::frontend::accounts::Accounts;
use crate::frontend::data_plane::Shared;
use crate::frontend::extension::{BuildExtension, Extension};
use crate::frontend::gateway_error::GatewayError;
use crate::frontend::listener_state::{ListenerState, NumberedCluster};
use crate::frontend::message::Message;
use crate::frontend::registry::Registry;
use crate::frontend::rsa_key::PrivateKey;
use crate::frontend::server_events::{self, Follow};
use crate::frontend::thread::spawn;
use crate::frontend::users::Users;
use crate::frontend::worker_loop;
use crate::hand_over::arriving::Taken;
use crate::lookups::LookupMetrics;
use crate::shown::status::ListenerStatus;

/// A listener that is bound, and its state at present.
#[derive(Clone)]
struct Bound {
    address: Peer,
    state: Arc<ListenerState>,
}

/// The parts that a reload may change.
struct Parts {
    clusters: BTreeMap<String, NumberedCluster>,
    listeners: Vec<Bound>,
    rules: Arc<ConfiguredRules>,
    next_serial: u32,
}

/// The running data plane.
pub struct Gateway {
    shared: Arc<Shared>,
    parts: Mutex<Parts>,
    acceptor: UnboundedSender<AcceptorMessage>,
    own_rsa_key: Arc<PrivateKey>,
    draining: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Clusters that come and go, for [`Gateway::run`] to follow.
    followers: UnboundedSender<Follow>,
    to_follow: Mutex<Option<mpsc::UnboundedReceiver<Follow>>>,
    /// The extension, held for as long as the gateway lives: it may end with its last owner.
    extension: OnceLock<Arc<dyn Extension>>,
}

impl Gateway {
    /// Binds all listeners and starts all threads. Connections are taken at once. `extension` makes the
    /// extension that serves listeners of other protocols than MySQL's.
    ///
    /// # Errors
    /// See [`GatewayError`]; nothing is left running then.
    pub fn start(
        config: &config::Config,
        telemetry: Arc<Telemetry>,
        extension: Option<BuildExtension<'_>>,
    ) -> Result<Arc<Self>, GatewayError> {
        let (senders, inboxes): (Vec<_>, Vec<_>) =
            (0..config.workers).map(|_| mpsc::unbounded_channel()).unzip();
        let shared = Arc::new(Shared {
            telemetry,
            registry: Registry::default(),
            elsewhere: OnceLock::new(),
            sessions_on: (0..config.workers).map(|_| AtomicUsize::new(0)).collect(),
            max_connections: AtomicU32::new(config.max_connections.unwrap_or(u32::MAX)),
            short_of_memory: AtomicBool::new(false),
            buffers: worker_loop::buffer_limits(config),
            split_series: (0..config.workers)
                .map(|_| WorkerSplitMetrics::default())
                .collect(),
            lookup_metrics: (0..config.workers).map(|_| LookupMetrics::default()).collect(),
            taken: Taken::default(),
            accounts: Accounts::new(Users::new(&[], None)),
            started: Instant::now(),
            zone: ArcSwapOption::empty(),
            workers: senders.into_boxed_slice(),
        });
        let (acceptor, acceptor_inbox) = mpsc::unbounded_channel();
        let (followers, to_follow) = mpsc::unbounded_channel();
        let gateway = Arc::new(Self {
            shared: Arc::clone(&shared),
            parts: Mutex::new(Parts {
                clusters: BTreeMap::new(),
                listeners: Vec::new(),
                rules: Arc::default(),
                next_serial: 1,
            }),
            acceptor,
            own_rsa_key: Arc::new(PrivateKey::generate().map_err(GatewayError::MakeRsaKey)?),
            draining: AtomicBool::new(false),
            threads: Mutex::new(Vec::new()),
            followers,
            to_follow: Mutex::new(Some(to_follow)),
            extension: OnceLock::new(),
        });
        let started = gateway
            .start_threads(acceptor_inbox, inboxes)
            .and_then(|()| gateway.take_over(config, extension));
        match started {
            Ok(()) => Ok(gateway),
            Err(error) => {
                gateway.join();
                Err(error)
            }
        }
    }

    fn start_threads(
        &self,
        acceptor_inbox: UnboundedReceiver<AcceptorMessage>,
        inboxes: Vec<UnboundedReceiver<Message>>,
    ) -> Result<(), GatewayError> {
        let mut threads = lock(&self.threads);
        let shared = Arc::clone(&self.shared);
        threads.push(spawn("acceptor".into(), accept::runtime, move |runtime| {
            accept::run(runtime, shared, acceptor_inbox);
        })?);
        for (index, inbox) in inboxes.into_iter().enumerate() {
            let shared = Arc::clone(&self.shared);
            let metrics = shared.telemetry.worker(index);
            let runtime = move || worker_loop::runtime(metrics);
            threads.push(spawn(format!("worker-{index}"), runtime, move |runtime| {
                worker_loop::run(runtime, index, shared, inbox);
            })?);
        }
        Ok(())
    }

    /// Checks the servers and tells sessions what happens to theirs. Never returns.
    pub async fn run(&self) {
        let to_follow = lock(&self.to_follow).take();
        if let Some(to_follow) = to_follow {
            server_events::run(Arc::clone(&self.shared), to_follow).await;
        }
    }

    /// Takes over a configuration: listeners and clusters that are new, changed or gone. Sessions go on.
    ///
    /// # Errors
    /// See [`GatewayError`]. Everything is prepared before anything is changed.
    pub fn reload(&self, config: &config::Config) -> Result<(), GatewayError> {
        self.take_over(config, None)
    }

    fn take_over(
        &self,
        config: &config::Config,
        extension: Option<BuildExtension<'_>>,
    ) -> Result<(), GatewayError> {
        if self.is_draining() {
            return Err(GatewayError::Draining);
        }
        let mut parts = lock(&self.parts);
        let clusters = self.prepare_clusters(&mut parts, config)?;
        let mut new_binds = Vec::new();
        let prepared = self.prepare_listeners(&mut parts, config, &clusters, &mut new_binds);
        let listeners = prepared.and_then(|listeners| {
            if let Some(build) = extension {
                self.extend(build, &clusters)?;
            }
            for (name, (_, cluster)) in clusters
                .iter()
                .filter(|(name, _)| parts.clusters.contains_key(*name))
            {
                cluster.reload(config.clusters[name].clone())?;
            }
            Ok(listeners)
        });
        match listeners {
            Ok(listeners) => {
                parts.rules = Arc::new(ConfiguredRules::new(&config.rules, &clusters, &parts.rules));
                self.shared.tell_all(|| Message::Rules(Arc::clone(&parts.rules)));
                let keeps = config
                    .clusters
                    .values()
                    .any(|cluster| cluster.accounts.keep_passwords);
                self.shared.accounts.replace(&config.users, keeps);
                self.apply(&mut parts, clusters, listeners, &new_binds);
            }
            Err(error) => {
                new_binds
                    .into_iter()
                    .for_each(|bind| self.tell_acceptor(AcceptorMessage::Close { bind }));
                return Err(error);
            }
        }
        if let Some(extension) = self.extension.get() {
            extension.reload(config);
        }
        self.shared.zone.store(config.zone.clone().map(Arc::new));
        self.shared
            .max_connections
            .store(config.max_connections.unwrap_or(u32::MAX), Ordering::Relaxed);
        Ok(())
    }

    /// Workers hear of the extension before the acceptor hears of listeners, so before the first connection.
    fn extend(
        &self,
        build: BuildExtension<'_>,
        clusters: &BTreeMap<String, NumberedCluster>,
    ) -> Result<(), GatewayError> {
        let clusters: Vec<_> = clusters
            .values()
            .map(|(_, cluster)| Arc::clone(cluster))
            .collect();
        let extension = build(&clusters).map_err(GatewayError::Extension)?;
        let extension = self.extension.get_or_init(|| extension);
        self.shared.tell_all(|| Message::Extend(Arc::clone(extension)));
        Ok(())
    }

    /// The state of every listener that is wanted; the new ones are bound and noted in `new_binds`.
    fn prepare_listeners(
        &self,
        parts: &mut Parts,
        config: &config::Config,
        clusters: &BTreeMap<String, NumberedCluster>,
        new_binds: &mut Vec<BindAddress>,
    ) -> Result<Vec<Bound>, GatewayError> {
        let mut listeners = Vec::new();
        for listener in &config.listeners {
            let old = parts
                .listeners
                .iter()
                .find(|bound| bound.state.config.bind == listener.bind)
                .cloned();
            let active = old
                .as_ref()
                .map(|bound| Arc::clone(&bound.state.active))
                .unwrap_or_default();
            let state = Arc::new(self.listener_state(listener, clusters, active)?);
            let address = match old {
                Some(bound) => bound.address,
                None => {
                    let address = self.bind(listener)?;
                    new_binds.push(listener.bind.clone());
                    address
                }
            };
            listeners.push(Bound { address, state });
        }
        Ok(listeners)
    }

    fn bind(&self, listener: &config::Listener) -> Result<Peer, GatewayError> {
        let (reply, answer) = std::sync::mpsc::channel();
        self.tell_acceptor(AcceptorMessage::Bind {
            listener: Box::new(listener.clone()),
            reply,
        });
        Ok(answer
            .recv()
            .map_err(|_| GatewayError::Thread(std::io::Error::other("the acceptor has stopped")))??)
    }

    fn prepare_clusters(
        &self,
        parts: &mut Parts,
        config: &config::Config,
    ) -> Result<BTreeMap<String, NumberedCluster>, GatewayError> {
        let mut clusters = BTreeMap::new();
        for (name, wanted) in &config.clusters {
            let cluster = match parts.clusters.get(name) {
                Some(present) => {
                    // Errors in a changed cluster are found here, before anything is changed.
                    Cluster::check_tls(wanted)?;
                    present.clone()
                }
                None => {
                    parts.next_serial += 1;
                    (parts.next_serial, Cluster::new(wanted.clone())?)
                }
            };
            clusters.insert(name.clone(), cluster);
        }
        Ok(clusters)
    }

    fn listener_state(
        &self,
        listener: &config::Listener,
        clusters: &BTreeMap<String, NumberedCluster>,
        active: Arc<AtomicU32>,
    ) -> Result<ListenerState, GatewayError> {
        let (cluster_serial, cluster) =
            clusters
                .get(&listener.cluster)
                .cloned()
                .ok_or_else(|| GatewayError::UnknownCluster {
                    listener: listener.name.clone(),
                    cluster: listener.cluster.clone(),
                })?;
        let tls = match listener.tls.mode {
            config::TlsMode::Off => None,
            config::TlsMode::Preferred | config::TlsMode::Required => {
                Some(Arc::new(TlsAcceptor::new(&listener.tls)?))
            }
        };
        let rsa_key = match &listener.rsa_key {
            None => Arc::clone(&self.own_rsa_key),
            Some(path) => {
                let read = std::fs::read_to_string(path).map_err(|error| error.to_string());
                let key =
                    read.and_then(|text| PrivateKey::from_pem(&text).map_err(|error| error.to_string()));
                Arc::new(key.map_err(|cause| GatewayError::RsaKey {
                    listener: listener.name.clone(),
                    path: path.display().to_string(),
                    cause,
                })?)
            }
        };
        if listener.shares() {
            cluster.is_to_be_shared();
        }
        Ok(ListenerState {
            config: listener.clone(),
            cluster,
            cluster_serial,
            tls,
            rsa_key,
            active,
        })
    }

    /// Puts the prepared parts in place: nothing here can fail.
    fn apply(
        &self,
        parts: &mut Parts,
        clusters: BTreeMap<String, NumberedCluster>,
        listeners: Vec<Bound>,
        new_binds: &[BindAddress],
    ) {
        for (name, (serial, cluster)) in &clusters {
            if !parts.clusters.contains_key(name) {
                // The send fails only when nothing runs any more.
                let _ = self.followers.send(Follow::Begin(*serial, Arc::clone(cluster)));
            }
        }
        for (name, (serial, _)) in &parts.clusters {
            if !clusters.contains_key(name) {
                let _ = self.followers.send(Follow::End(*serial));
            }
        }
        for bound in listeners
            .iter()
            .filter(|bound| new_binds.contains(&bound.state.config.bind))
        {
            self.tell_acceptor(AcceptorMessage::Open {
                state: Arc::clone(&bound.state),
            });
        }
        for bound in &parts.listeners {
            let bind = &bound.state.config.bind;
            match listeners.iter().find(|new| new.state.config.bind == *bind) {
                Some(new) => self.tell_acceptor(AcceptorMessage::Change {
                    state: Arc::clone(&new.state),
                }),
                None => self.tell_acceptor(AcceptorMessage::Close { bind: bind.clone() }),
            }
        }
        // The reload is in force when this returns. An acceptor that has stopped takes no connections.
        let (reply, settled) = std::sync::mpsc::channel();
        self.tell_acceptor(AcceptorMessage::Settled { reply });
        let _ = settled.recv();
        parts.clusters = clusters;
        parts.listeners = listeners;
    }

    /// Reads certificates again whose files have changed; returns what was read, or what is wrong with it.
    pub fn reload_tls_if_changed(&self) -> Vec<Result<String, String>> {
        let parts = lock(&self.parts);
        let listeners = parts.listeners.iter().filter_map(|bound| {
            let tls = bound.state.tls.as_ref()?;
            let name = format!("listener {}", bound.state.config.name);
            match tls.reload_if_changed() {
                Ok(changed) => changed.then_some(Ok(name)),
                Err(error) => Some(Err(format!("{name}: {error}"))),
            }
        });
        let clusters =
            parts
                .clusters
                .iter()
                .filter_map(|(name, (_, cluster))| match cluster.reload_tls_if_changed() {
                    Ok(changed) => changed.then(|| Ok(format!("cluster {name}"))),
                    Err(error) => Some(Err(error.to_string())),
                });
        listeners.chain(clusters).collect()
    }

    /// Takes no more connections and asks every session to end at its next free moment.
    pub fn drain(&self) {
        self.stop_listening();
        self.shared.tell_all(|| Message::RaiseAll(Signal::Shutdown));
    }

    /// The sockets that clients come by, each with where it is bound: for a process that takes over.
    pub fn listening_sockets(&self) -> std::io::Result<Vec<(String, OwnedFd)>> {
        let (reply, answer) = std::sync::mpsc::channel();
        self.tell_acceptor(AcceptorMessage::Share { reply });
        let stopped = |_| std::io::Error::other("the acceptor has stopped");
        answer.recv().map_err(stopped)?
    }

    /// Takes no more connections, since another process does. Sessions go on.
    pub fn stop_listening(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.tell_acceptor(AcceptorMessage::CloseAll);
    }

    /// From here on new clients are refused, since memory is short, or are served again.
    pub fn set_short_of_memory(&self, is_short: bool) {
        self.shared.short_of_memory.store(is_short, Ordering::Relaxed);
    }

    /// Whether [`drain`](Self::drain) or [`stop_listening`](Self::stop_listening) was called.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Waits until the last session has ended, or for at most `limit`; true when none is left.
    pub async fn wait_until_empty(&self, limit: Duration) -> bool {
        let deadline = tokio::time::Instant::now() + limit;
        while self.sessions() > 0 {
            if tokio::time::Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        true
    }

    /// Ends every session wherever it is.
    pub fn stop_now(&self) {
        self.tell_acceptor(AcceptorMessage::CloseAll);
        self.shared.tell_all(|| Message::RaiseAll(Signal::ShutdownNow));
    }

    /// Waits for all threads after [`stop_now`](Self::stop_now).
    pub fn join(&self) {
        self.tell_acceptor(AcceptorMessage::Stop);
        self.shared.tell_all(|| Message::Stop);
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            // A thread that panicked has said so on standard error.
            let _ = thread.join();
        }
    }

    /// Sessions of all kinds, from the moment they are accepted.
    pub fn sessions(&self) -> usize {
        self.shared.sessions()
    }

    pub fn sessions_per_worker(&self) -> Vec<usize> {
        self.shared
            .sessions_on
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .collect()
    }

    /// Takes the number of this gateway among several that act as one, or 0 for none. Connection ids that are
    /// given from here on have the number in them.
    pub fn take_number(&self, number: u32) {
        self.shared.registry.take_number(number);
    }

    /// Sets the way to the other gateways. The first one set counts.
    pub fn reach_others(&self, elsewhere: Arc<dyn Elsewhere>) {
        let _ = self.shared.elsewhere.set(elsewhere);
    }

    /// Whether the id is one that another gateway may have given.
    pub fn is_of_another(&self, id: u32) -> bool {
        self.shared.registry.find(id).is_none() && self.shared.registry.is_of_another(id)
    }

    /// Ends a session of this gateway, or the statement that it has under way.
    pub async fn kill(&self, request: &KillRequest) -> Result<(), NotKilled> {
        let unknown = || NotKilled::Unknown(String::new());
        let KillRequest { id, query_only, by } = request;
        let (id, query_only) = (*id, *query_only);
        let place = self.shared.registry.find(id).ok_or_else(unknown)?;
        let cluster = {
            let parts = lock(&self.parts);
            let mut clusters = parts.clusters.values();
            let found = clusters.find(|(serial, _)| *serial == place.cluster);
            found
                .map(|(_, cluster)| Arc::clone(cluster))
                .ok_or_else(unknown)?
        };
        if !may_kill(by, &place, cluster.name()) {
            return Err(NotKilled::NotOwner);
        }
        let killed = self.shared.kill_in_pool(place.worker, (id, query_only), &cluster);
        // A worker that has stopped has no sessions.
        killed.await.unwrap_or(Ok(())).map_err(NotKilled::Failed)
    }

    /// The first listener for which `is_it` says yes.
    pub(crate) fn listener_for(&self, is_it: impl Fn(&ListenerState) -> bool) -> Option<Arc<ListenerState>> {
        let parts = lock(&self.parts);
        let mut states = parts.listeners.iter().map(|bound| &bound.state);
        states.find(|state| is_it(state)).cloned()
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn servers_by_key(&self) -> HashMap<ServerKey, String> {
        let parts = lock(&self.parts);
        let mut names = HashMap::new();
        for (serial, cluster) in parts.clusters.values() {
            for server in cluster.servers().iter() {
                let key = ServerKey {
                    cluster: *serial,
                    server: server.id(),
                };
                names.insert(key, server.name().to_owned());
            }
        }
        names
    }

    pub fn clusters(&self) -> Vec<Arc<Cluster>> {
        lock(&self.parts)
            .clusters
            .values()
            .map(|(_, cluster)| Arc::clone(cluster))
            .collect()
    }

    pub fn listeners(&self) -> Vec<ListenerStatus> {
        let status = |bound: &Bound| ListenerStatus {
            name: bound.state.config.name.clone(),
            address: bound.address,
            protocol: bound.state.config.protocol,
            mode: bound.state.config.mode,
            shares: bound.state.config.shares(),
            cluster: bound.state.config.cluster.clone(),
            sessions: bound.state.active.load(Ordering::Relaxed),
        };
        lock(&self.parts).listeners.iter().map(status).collect()
    }

    fn tell_acceptor(&self, message: AcceptorMessage) {
        // The send fails only after the acceptor has stopped.
        let _ = self.acceptor.send(message);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
