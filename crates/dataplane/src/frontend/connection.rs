//! The life of a client connection on its worker: from the accepted socket to the log line at its end.

mod refusal;

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use mysql_wire::{Capabilities, Greeting, Login, ResponseTracker};
use net::{Accepted, Peer, Stream, Toward};
use tokio::task::spawn_local;
use upstream::{ConnectFailure, Lease, LeaseError, Member, Server, ServerProfile, Status};

use crate::control::{Control, Signal, Waiting};
use crate::engine::binding::OnServer;
use crate::engine::client_session::ClientSession;
use crate::engine::own_connection::{self, Introduction};
use crate::engine::run;
use crate::engine::serve;
use crate::error::{During, SessionError};
use crate::forwarded::session::Session;
use crate::frontend::counted::Counted;
use crate::frontend::guesses::Asking;
use crate::frontend::handshake::{self, Client, LoggedIn, Patience};
use crate::frontend::listener_state::ListenerState;
use crate::frontend::protocol;
use crate::frontend::proxy_header;
use crate::frontend::session_summary::SessionSummary;
use crate::frontend::user_name::shown_user;
use crate::frontend::worker::Worker;
use crate::hand_over::bytes;
use crate::relay::{self, Pair, Streams, Traffic};
use crate::session_end::{as_error, signal_as_error};

pub(crate) use refusal::refuse;
use refusal::{pass_refusal, say_last};

/// Begins a session. The task of each mode is one of its own: it has no room for what other modes need.
pub(crate) fn begin(worker: Rc<Worker>, accepted: Accepted, listener: Arc<ListenerState>) {
    let _task = match listener.config.mode {
        _ if listener.config.protocol != config::Protocol::Mysql => {
            spawn_local(run(worker, accepted, listener, protocol::serve))
        }
        config::Mode::Tcp => spawn_local(run(worker, accepted, listener, forward_bytes)),
        config::Mode::Session => spawn_local(run(worker, accepted, listener, serve_session)),
        // Sessions that share nothing are served as in mode `session`, but rules see all their statements.
        config::Mode::Split if listener.config.shares_never() => {
            spawn_local(run(worker, accepted, listener, serve_session))
        }
        config::Mode::Split => spawn_local(run(worker, accepted, listener, serve::serve)),
    };
}

/// Counts a session in, runs it, counts it out and logs its end.
async fn run(
    worker: Rc<Worker>,
    accepted: Accepted,
    listener: Arc<ListenerState>,
    serve: impl AsyncFnOnce(&Counted, Accepted, &mut SessionSummary) -> SessionError,
) {
    let id = worker
        .shared
        .registry
        .new_id(worker.index, listener.cluster_serial);
    let control = Rc::new(Control::new(id, Rc::clone(&worker.clock)));
    control.introduce(&listener.config.name, &accepted.peer());
    poll_fn(|cx| {
        control.remember_waker(cx);
        Poll::Ready(())
    })
    .await;
    let counted = Counted::new(worker, listener, control);
    counted.metrics.accepted.inc();
    let mut summary = SessionSummary::new(accepted.peer());
    let error = serve(&counted, accepted, &mut summary).await;
    counted.end(&summary, &error);
}

/// Tells a connection that is refused why, in the one packet that a client reads before it says anything.
pub(crate) async fn turn_away(
    worker: Rc<Worker>,
    accepted: Accepted,
    listener: Arc<ListenerState>,
    error: SessionError,
) {
    let metrics = worker.metrics.listener(&listener.config.name);
    metrics.accepted.inc();
    metrics.rejected.inc();
    metrics.session_ended(error.reason());
    if let Ok(mut client) = Stream::from_accepted(accepted) {
        if listener.config.protocol == config::Protocol::Redis {
            // Redis itself answers so, over `maxclients`.
            say_last(&mut client, b"-ERR max number of clients reached\r\n").await;
            return;
        }
        refuse(&worker, &mut client, 0, Capabilities::default(), &error).await;
    }
}

/// Mode `tcp`: accept, choose, relay.
async fn forward_bytes(counted: &Counted, accepted: Accepted, summary: &mut SessionSummary) -> SessionError {
    let pairing = Box::pin(pair_up(counted, accepted, summary));
    let paired = unless_told(&counted.control, &counted.listener, pairing).await;
    let mut pair = match paired.and_then(|paired| paired) {
        Ok(pair) => pair,
        Err(error) => return error,
    };
    serve_bytes(counted, &mut pair, summary).await
}

/// Forwards all bytes, until the session ends or the process that has taken over goes on with it.
pub(crate) async fn serve_bytes(
    counted: &Counted,
    pair: &mut Pair,
    summary: &mut SessionSummary,
) -> SessionError {
    let (control, listener) = (&counted.control, &counted.listener);
    let _on_server = OnServer::new(&pair.streams.traffic.server);
    let error = loop {
        match relay::stream(&mut pair.streams, control).await {
            Ok(relay::Streamed::Goes) => {
                if Box::pin(bytes::go(counted, pair, &summary.client)).await {
                    break SessionError::HandedOver;
                }
            }
            Ok(relay::Streamed::Ended) => break SessionError::ClientGone,
            Err(broken) => break as_error(broken, pair.permit.server().name(), listener, During::Stream),
        }
    };
    summary.count(&pair.streams.traffic);
    error
}

async fn pair_up(
    counted: &Counted,
    accepted: Accepted,
    summary: &mut SessionSummary,
) -> Result<Box<Pair>, SessionError> {
    let (worker, control, listener) = (&counted.worker, &counted.control, &counted.listener);
    let mut client = Stream::from_accepted(accepted).map_err(SessionError::ClientFailed)?;
    let (peer, unread) = proxy_header::read_header(&mut client, listener).await?;
    summary.client = peer;
    control.introduce(&listener.config.name, &peer);
    let local = client.local().unwrap_or(Peer::Unix);
    let lease = match lease(worker, listener, &client, (&peer, &local), Vec::new()).await {
        Ok(lease) => lease,
        Err(error) => {
            refuse(worker, &mut client, 0, Capabilities::default(), &error).await;
            return Err(error);
        }
    };
    let Lease {
        server,
        stream,
        permit,
        ..
    } = lease;
    attach(control, listener, &server);
    control.set_limits(listener.idle_limits());
    let server_metrics = worker.metrics.server(listener.cluster.name(), server.name());
    let traffic = Traffic::new(Arc::clone(&counted.metrics), server_metrics);
    let mut streams = Streams::new(client, stream, traffic);
    streams.up.fill(&unread);
    summary.server = Some(server);
    Ok(Box::new(Pair { streams, permit }))
}

/// Leases a server other than those that were `tried` before, and counts connections and failures of each
/// server. A session whose `client` has gone does not stay in line.
async fn lease(
    worker: &Worker,
    listener: &ListenerState,
    client: &Stream,
    (peer, local): (&Peer, &Peer),
    tried: Vec<ConnectFailure>,
) -> Result<Lease, SessionError> {
    let began = Instant::now();
    let counted = tried.len();
    let label = listener.config.label.as_deref();
    let leased = listener
        .cluster
        .lease(peer, local, label, tried, client.closed())
        .await;
    let metrics = |server: &str| worker.metrics.server(listener.cluster.name(), server);
    let failures = match &leased {
        Ok(lease) => {
            let metrics = metrics(lease.server.name());
            metrics.connects.inc();
            metrics.connect_seconds.record(began.elapsed());
            lease.failures.as_slice()
        }
        Err(LeaseError::ConnectFailed { failures, .. }) => failures.as_slice(),
        Err(_) => &[],
    };
    failures
        .iter()
        .skip(counted)
        .for_each(|failure| metrics(&failure.server).connect_failures.inc());
    leased.map_err(SessionError::from)
}

/// Mode `session`: accept, handshake, serve.
async fn serve_session(counted: &Counted, accepted: Accepted, summary: &mut SessionSummary) -> SessionError {
    // The login's state is boxed, so that a session that is logged in does not keep the room for it.
    let logged_in = match Box::pin(log_in(counted, accepted, summary)).await {
        Ok(logged_in) => logged_in,
        Err(error) => {
            counted.metrics.login_failures.inc();
            return error;
        }
    };
    let mut session = match logged_in {
        LogIn::Forwarded(session) => session,
        // Boxed: sessions that are forwarded have no room for an understood one.
        LogIn::Understood(session) => return Box::pin(serve_understood(session, summary)).await,
    };
    serve_forwarded(&mut session, summary).await
}

/// A session of mode `session` that is forwarded, from its first command, or its next one, to its end.
pub(crate) async fn serve_forwarded(session: &mut Session, summary: &mut SessionSummary) -> SessionError {
    let _on_server = OnServer::new(&session.metrics);
    let Err(error) = crate::forwarded::serve::serve(session).await;
    Box::pin(session.farewell(&error)).await;
    if let Some(user) = session.changed_user.take() {
        summary.user = user;
    }
    summary.count(&session.streams.traffic);
    error
}

/// How a session in mode `session` is served.
enum LogIn {
    /// The client's packets are forwarded by their first bytes.
    Forwarded(Box<Session>),
    /// The client's packets are read, for something asks what the session does.
    Understood(Box<ClientSession>),
}

pub(crate) async fn serve_understood(
    mut session: Box<ClientSession>,
    summary: &mut SessionSummary,
) -> SessionError {
    summary.user = Box::default();
    let Err(error) = run::run(&mut session).await;
    serve::end(&mut session, error, summary).await
}

/// Does everything up to the first command. When this returns an error, the client has been told.
async fn log_in(
    counted: &Counted,
    accepted: Accepted,
    summary: &mut SessionSummary,
) -> Result<LogIn, SessionError> {
    let (worker, control, listener) = (&counted.worker, &counted.control, &counted.listener);
    let limit = listener.config.login_timeout;
    let mut client = None;
    let mut introduction = None;
    let login = async {
        let introduced = {
            let introducing = introduce(&mut client, accepted, counted, summary);
            let introducing = pin!(tokio::time::timeout(limit, introducing));
            unless_told(control, listener, introducing).await?
        };
        let Introduced {
            login,
            profile,
            local,
            ..
        } = introduced.unwrap_or_else(|_| Err(proxy_header::too_late(client.is_some(), limit)))?;
        let (peer, user) = (summary.client, login.user.clone());
        let asking = Asking::new(&peer, &user, &listener.config);
        let attempt = {
            let beginning = pin!(tokio::time::timeout(
                limit,
                worker.shared.accounts.guesses.begin(asking)
            ));
            unless_told(control, listener, beginning).await?
        };
        let mut attempt = attempt.unwrap_or(Err(SessionError::LoginTimeout(limit)))?;
        // The wait for a server has limits of its own, and is not the client's fault.
        let client = client.as_mut().ok_or(SessionError::ClientGone)?;
        let finding = find_server((worker, control), listener, summary, (&client.stream, &local));
        let server = attempt.beside(Box::pin(finding)).await?;
        introduction = listener.config.understands().then(|| {
            Box::new(Introduction {
                login: Login {
                    auth_response: Vec::new(),
                    ..login.clone()
                },
                profile,
                rights: worker
                    .lookups(&listener.config)
                    .and_then(|lookups| lookups.rights_of_login()),
            })
        });
        // Boxed: the many clients that never say anything wait before this point.
        Box::pin(handshake::log_in(
            client,
            login,
            server,
            listener,
            (control, attempt),
        ))
        .await
    };
    match (login.await, client) {
        (Ok(mut logged_in), Some(client)) => {
            let (peer, introduction) = (
                summary.client,
                introduction.filter(|_| {
                    logged_in.is_understood()
                        || listener.config.shares_never()
                        || logged_in.moves_by_session_states(listener)
                }),
            );
            let streams = connect(counted, client, &mut logged_in)?;
            match introduction {
                Some(introduction) => {
                    let arrived = own_connection::Arrived {
                        streams,
                        peer,
                        introduction,
                        logged_in,
                    };
                    // Boxed: logins are many, and most are of sessions that are forwarded.
                    let understood = Box::pin(own_connection::adopt(counted, arrived)).await;
                    understood.map(LogIn::Understood)
                }
                None => {
                    let session = forwarded(counted, streams, logged_in, peer);
                    Ok(LogIn::Forwarded(Box::new(session)))
                }
            }
        }
        (Ok(_), None) => Err(SessionError::ClientGone),
        (Err(SessionError::LoginRefused { payload, held }), Some(mut client)) => {
            {
                let told = pin!(pass_refusal(&mut client, &payload, held));
                unless_told(control, listener, told).await?;
            }
            Err(SessionError::LoginRefused { payload, held })
        }
        (Err(error), client) => {
            if let Some(mut client) = client {
                refuse(
                    worker,
                    &mut client.stream,
                    client.sequence,
                    client.capabilities,
                    &error,
                )
                .await;
            }
            Err(error)
        }
    }
}

/// Finds a server that greets. A server that takes the connection and then does not greet, refuses in place
/// of its greeting, or goes, knows nothing of the client yet: another one is tried. The client hears the
/// reason only where no other server is left.
async fn find_server(
    (worker, control): (&Worker, &Control),
    listener: &ListenerState,
    summary: &mut SessionSummary,
    (client, local): (&Stream, &Peer),
) -> Result<(Lease, Greeting), SessionError> {
    let mut tried = match listener.config.shares_never() {
        true => {
            let finding = pin!(others_than_primary(listener, client));
            unless_told(control, listener, finding).await??
        }
        false => Vec::new(),
    };
    let mut refusal = None;
    let mut patience = Patience::new(listener.cluster.config().login_timeout);
    loop {
        let leased = {
            let leasing = pin!(lease(worker, listener, client, (&summary.client, local), tried));
            unless_told(control, listener, leasing).await
        };
        let mut lease = match (leased.and_then(|leased| leased), refusal) {
            (Ok(lease), _) => lease,
            (Err(SessionError::NoServer(_)), Some(refusal)) => return Err(refusal),
            (Err(error), _) => return Err(error),
        };
        let server = Arc::clone(&lease.server);
        attach(control, listener, &server);
        summary.server = Some(Arc::clone(&server));
        let untried = listener
            .cluster
            .servers()
            .len()
            .saturating_sub(lease.failures.len());
        let began = Instant::now();
        match handshake::greeted(&mut lease, listener, control, patience.next(untried)).await {
            Ok(greeting) => return Ok((lease, greeting)),
            Err(
                error @ (SessionError::ServerRefused { .. }
                | SessionError::ServerLogin { .. }
                | SessionError::ServerDown { .. }
                | SessionError::Drained),
            ) => {
                // Signals about this server do not concern the next one.
                control.detach();
                let metrics = worker.metrics.server(listener.cluster.name(), server.name());
                metrics.connect_failures.inc();
                patience.waited(began.elapsed());
                tried = lease.failures;
                tried.push(ConnectFailure {
                    id: server.id(),
                    server: server.name().to_owned(),
                    reason: error.to_string(),
                });
                let is_in_its_words =
                    !matches!(error, SessionError::ServerDown { .. } | SessionError::Drained);
                refusal = is_in_its_words.then_some(error);
            }
            Err(error) => return Err(error),
        }
    }
}

/// The servers that a session which writes does not begin on: in a cluster with roles, all but the primary.
/// If there is no primary, waits for one, up to `failover_wait` and while the client is there.
async fn others_than_primary(
    listener: &ListenerState,
    client: &Stream,
) -> Result<Vec<ConnectFailure>, SessionError> {
    let (cluster, config) = (&listener.cluster, listener.cluster.config());
    if !config.uses_roles {
        return Ok(Vec::new());
    }
    let deadline = tokio::time::Instant::now() + config.failover_wait;
    let mut topology = cluster.topology();
    while topology.primary.is_none() {
        let changed = cluster.wait_for_topology_change(topology.generation);
        let changed = tokio::select! {
            biased;
            changed = tokio::time::timeout_at(deadline, changed) => changed,
            () = client.closed() => return Err(SessionError::ClientGone),
        };
        topology = match changed {
            Ok(topology) => topology,
            Err(_) => {
                let reason = |member: &Member| upstream::ServerReason {
                    server: member.server.name().to_owned(),
                    reason: format!("is not the primary: {}", member.reason),
                };
                return Err(SessionError::NoServer(LeaseError::NoServerAvailable {
                    cluster: cluster.name().to_owned(),
                    servers: topology.members.iter().map(reason).collect(),
                }));
            }
        };
    }
    let primary = topology.primary().map(|primary| primary.server.id());
    let others = topology
        .members
        .iter()
        .filter(|member| Some(member.server.id()) != primary);
    let other = |member: &Member| ConnectFailure {
        id: member.server.id(),
        server: member.server.name().to_owned(),
        reason: "is not the primary".to_owned(),
    };
    Ok(others.map(other).collect())
}

/// The result of a wait, or the order to end that has come before it. Only for waits that leave nothing
/// undone when they are cut short. The wait is taken by reference: by value it would need its room twice.
async fn unless_told<W: Future + Unpin>(
    control: &Control,
    listener: &ListenerState,
    wait: W,
) -> Result<W::Output, SessionError> {
    tokio::select! {
        biased;
        result = wait => Ok(result),
        signal = control.signalled(true) => Err(signal_as_error(signal, "", listener)),
    }
}

/// A client that was greeted and has answered.
pub(crate) struct Introduced {
    pub(crate) login: Login,
    /// The greeting that the client got.
    pub(crate) greeting: Greeting,
    /// The profile that the greeting was made of.
    pub(crate) profile: Arc<ServerProfile>,
    /// The address that the client connected to.
    pub(crate) local: Peer,
}

/// The client's part of the login.
pub(crate) async fn introduce(
    client: &mut Option<Client>,
    accepted: Accepted,
    counted: &Counted,
    summary: &mut SessionSummary,
) -> Result<Introduced, SessionError> {
    let (control, listener) = (&counted.control, &counted.listener);
    let mut stream = Stream::from_accepted(accepted).map_err(SessionError::ClientFailed)?;
    let (peer, unread) = proxy_header::read_header(&mut stream, listener).await?;
    summary.client = peer;
    control.introduce(&listener.config.name, &peer);
    let local = stream.local().unwrap_or(Peer::Unix);
    *client = Some(Client {
        stream,
        sequence: 0,
        unread,
        capabilities: Capabilities::default(),
    });
    let first_contact = listener.cluster.config().connect_timeout;
    let profile = listener.cluster.introduced(first_contact).await;
    let profile = profile.ok_or(SessionError::NoServerSeen)?;
    let (login, greeting) = handshake::greet(client, listener, &profile, control.id).await?;
    summary.user = shown_user(&login.user);
    control.name_user(&summary.user);
    control.name_login(login.database.as_deref(), Some(login.charset));
    Ok(Introduced {
        login,
        greeting,
        profile,
        local,
    })
}

/// Puts the session on a server. A server that was removed in this moment has told its sessions to end before
/// this session was among them, so this one is told here.
fn attach(control: &Control, listener: &ListenerState, server: &Server) {
    control.attach(listener.key(server));
    if server.state().status == Status::Removed {
        control.raise(Signal::Drain);
    }
}

/// Connects the streams of a session. From here on others find the session by its number.
fn connect(counted: &Counted, client: Client, logged_in: &mut LoggedIn) -> Result<Streams, SessionError> {
    let (worker, control, listener) = (&counted.worker, &counted.control, &counted.listener);
    let server = Arc::clone(&logged_in.lease.server);
    let stream = std::mem::replace(&mut logged_in.lease.stream, Stream::Detached);
    let server_metrics = worker.metrics.server(listener.cluster.name(), server.name());
    let traffic = Traffic::new(Arc::clone(&counted.metrics), server_metrics);
    let (compression, unread) = (logged_in.client_compression, &logged_in.client_unread);
    let (client, up) = handshake::compressed(client.stream, compression, Toward::Client, unread)
        .map_err(SessionError::ClientFailed)?;
    let (compression, unread) = (logged_in.server_compression, &logged_in.server_unread);
    let (stream, down) =
        handshake::compressed(stream, compression, Toward::Server, unread).map_err(|error| {
            SessionError::ServerLogin {
                server: server.name().to_owned(),
                cause: error.to_string(),
            }
        })?;
    let streams = Streams {
        client,
        server: stream,
        up,
        down,
        traffic,
    };
    control.set_limits(listener.idle_limits());
    control.mark(Waiting::Client);
    let server_connection = (listener.key(&server), logged_in.greeting.connection_id);
    control.attach_connection(server_connection.0, server_connection.1);
    counted.list(Some(server_connection), logged_in.user.as_slice().into(), false);
    Ok(streams)
}

fn forwarded(counted: &Counted, streams: Streams, logged_in: LoggedIn, peer: Peer) -> Session {
    let Lease { server, permit, .. } = logged_in.lease;
    let metrics = Arc::clone(&streams.traffic.server);
    Session {
        control: Rc::clone(&counted.control),
        worker: Rc::clone(&counted.worker),
        listener: Arc::clone(&counted.listener),
        server,
        metrics,
        streams,
        response: ResponseTracker::new(logged_in.agreed.client),
        capabilities: logged_in.agreed.client,
        status: logged_in.status,
        changed_user: None,
        peer,
        error_sequence: Some(0),
        _permit: permit,
    }
}
