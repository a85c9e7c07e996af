//! A session of mode `session` goes on on another server, because its own is gone, and its client does not
//! notice.
//!
//! Nobody can be asked any more what the session had. The values of its variables that its server told at the
//! login are kept for this, and trackers have told what the session has set since. The session ends if
//! something of it is not known for certain, or was lost with the connection; or if the server is there and
//! has ended the connection (`KILL`, `wait_timeout`).

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use mysql_wire::gtid::GtidSet;
use mysql_wire::{ErrPacket, PacketHeader};
use session::{MovePlan, PinReason};
use sql_class::Dialect;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::debug;
use upstream::{Connection, Permit, Released, Server, ServerId};

use crate::control::Waiting;
use crate::engine::client_session::{AnswerState, ClientSession, Refused};
use crate::engine::connection_state::ConnectionState;
use crate::engine::consistency::{self, Freshness};
use crate::engine::do_without::credentials;
use crate::engine::leased::says_nothing;
use crate::engine::metrics::Moved;
use crate::engine::move_target::{self, Stays};
use crate::engine::moving::{self, Values};
use crate::engine::start::dialect;
use crate::engine::worker_cluster::FirstValues;
use crate::engine::{ask, command, lease, rebuild, server, wait_for_own_writes};
use crate::error::{During, SessionError};
use crate::relay::Streams;
use crate::relay::flow::Flow;
use crate::relay::unasked::{Unasked, unasked};

/// Time between two looks for a server that takes the session.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Time between two looks where servers cannot be made what the session's was: that takes a login each time.
const LOOK_AGAIN_MAX: Duration = Duration::from_secs(2);

const TRIES_MAX: usize = 8;

/// Keeps the values that the session has at its beginning, where another server may take the place of its own
/// one day.
pub(crate) async fn remember(session: &mut ClientSession) -> Result<(), SessionError> {
    session.binding.remember(None);
    if !session.binding.moves_at_all() || credentials(session).is_empty() {
        return Ok(());
    }
    let plan = session.state.first_plan();
    let questions = ask::framed(session.client.key.capabilities, vec![plan.question()]);
    let limit = session.context.listener.cluster.config().login_timeout;
    let asked = timeout(limit, lease::ask_on_lease(session, &questions)).await;
    says_nothing(&mut session.lease);
    let replies = match asked {
        Ok(Ok(replies)) => replies,
        Ok(Err(Refused(error))) => return Err(error),
        Err(_) => return Err(lease::lost_with_its_server(session.server_name())),
    };
    // A server that refuses the question has a session that ends with it.
    if let Ok(values) = Values::of(session, &plan, &replies) {
        let values = session.context.cluster.share_values(values.of_server);
        session.binding.remember(Some(values));
    }
    Ok(())
}

/// The facts that are known of a lost connection.
struct Lost {
    server: Arc<Server>,
    version: Vec<u8>,
    login_began: Instant,
    noticed: Instant,
    /// The last packets of the server.
    words: Vec<u8>,
    /// The client has sent a command.
    has_command: bool,
    needs_primary: bool,
    /// The transactions that the server, if it was the primary, was known to have, and that the session may
    /// have seen. A replica may have more than anybody else by mistake.
    seen: Option<Arc<GtidSet>>,
    /// The session is one of those that are let through.
    place: RefCell<Option<Released>>,
}

impl Lost {
    /// Takes the connection from the session.
    fn of(session: &mut ClientSession) -> Option<Self> {
        let words = session.streams.down.unseen();
        let words = match unasked(words) {
            Unasked::Error(len) => words[..len].to_vec(),
            Unasked::Unfinished | Unasked::Nonsense => Vec::new(),
        };
        session.streams.down.clear();
        let is_primary = session.lease.as_ref().is_some_and(|leased| leased.is_primary);
        let has_written = session.state.gtid().is_some()
            || session.state.has_untracked_writes()
            || session.state.has_lost_writes();
        let uses_roles = session.context.listener.cluster.config().uses_roles;
        let connection = lease::detach(session)?;
        Some(Self {
            server: Arc::clone(&connection.server),
            version: connection.version.clone(),
            login_began: connection.login_began.into(),
            noticed: Instant::now(),
            words,
            has_command: session.binding.is_lost() || command::is_there(session),
            needs_primary: uses_roles && (is_primary || has_written),
            seen: connection
                .server
                .last_applied()
                .filter(|_| uses_roles && is_primary),
            place: RefCell::default(),
        })
    }

    /// Whether the server has said that it ends.
    fn has_said_so(&self, session: &ClientSession) -> bool {
        const ER_SERVER_SHUTDOWN: u16 = 1053;
        let payload = self.words.get(PacketHeader::LEN..).unwrap_or_default();
        ErrPacket::decode(payload, session.client.key.capabilities)
            .is_ok_and(|packet| packet.code == ER_SERVER_SHUTDOWN)
    }
}

/// Why the session ends.
enum End {
    Told(SessionError),
    /// The session's server is there, and has ended the connection.
    Closed,
    Stays(Stays),
}

/// Has the session, whose connection is lost, go on on another server.
pub(crate) async fn go_on_elsewhere(session: &mut ClientSession) -> Result<(), SessionError> {
    let waited = session.control.wait_so_far();
    let began = Instant::now();
    let Some(lost) = Lost::of(session) else {
        return Err(lease::lost_with_its_server(session.server_name()));
    };
    let (id, from) = (session.control.id, lost.server.name());
    match recover(session, &lost).await {
        Ok(()) => {
            session.context.listener.cluster.count_released();
            session.control.goes_on_waiting(waited);
            session.metrics().moved(Moved::Lost);
            let worker = &session.context.worker;
            worker.metrics.move_seconds.record(began.elapsed());
            debug!(
                session = id,
                from,
                to = session.server_name(),
                "session moved: its server is gone"
            );
            Ok(())
        }
        Err(End::Told(error)) => Err(error),
        Err(End::Closed) => Err(end(&mut session.streams.down, &mut session.answer, &lost)),
        Err(End::Stays(Stays { reason, cause, .. })) => {
            session.metrics().ended_with_server(reason);
            debug!(
                session = id,
                server = from,
                reason = reason.label(),
                cause,
                "session ends with its server"
            );
            match reason {
                PinReason::Behind => Err(SessionError::NobodyHasWrites {
                    server: from.to_owned(),
                    limit: session.context.listener.cluster.config().failover_wait,
                }),
                _ => Err(end(&mut session.streams.down, &mut session.answer, &lost)),
            }
        }
    }
}

/// Ends the session as every session ends whose server has closed its connection.
fn end(down: &mut Flow, answer: &mut AnswerState, lost: &Lost) -> SessionError {
    if !lost.has_command && !lost.words.is_empty() {
        down.say(&lost.words);
        answer.error_sequence = None;
    }
    SessionError::ServerGone {
        server: lost.server.name().to_owned(),
        during: match lost.has_command {
            true => During::Command,
            false => During::Idle,
        },
    }
}

async fn recover(session: &mut ClientSession, lost: &Lost) -> Result<(), End> {
    let cluster = Arc::clone(&session.context.listener.cluster);
    let deadline = Instant::now() + cluster.config().failover_wait;
    session.control.mark(Waiting::Primary);
    if !is_gone(session, lost, deadline).await {
        return Err(told(session).unwrap_or(End::Closed));
    }
    let plan = session.state.first_plan();
    let mut pause = LOOK_AGAIN;
    loop {
        let generation = cluster.topology().generation;
        let stays = match look(session, &plan, lost, deadline).await {
            Ok((connection, has)) => {
                session.state.move_on_without();
                session.binding.is_to_be_primed();
                move_target::go_on(session, connection, Some(has));
                return Ok(());
            }
            Err(stays) => stays,
        };
        lost.place.take();
        if let Some(end) = told(session) {
            return Err(end);
        }
        let is_final = matches!(stays.reason, PinReason::NoCredentials | PinReason::NotUnderstood);
        if is_final || Instant::now() >= deadline {
            return Err(End::Stays(stays));
        }
        session.control.mark(Waiting::Primary);
        let until = deadline.min(Instant::now() + pause);
        pause = match stays.reason {
            PinReason::Incompatible => LOOK_AGAIN_MAX.min(pause * 2),
            _ => LOOK_AGAIN,
        };
        let streams = &mut session.streams;
        tokio::select! {
            biased;
            signal = session.control.signalled(true) => return Err(End::Told(session.signalled(signal))),
            gone = poll_fn(|cx| poll_client_gone(cx, streams)) => return Err(End::Told(gone)),
            _ = cluster.wait_for_topology_change(generation) => {}
            () = sleep_until(until) => {}
        }
    }
}

/// Waits until the client has gone: nobody looks for a server on its behalf then. Bytes from the client are
/// kept meanwhile, up to a buffer.
fn poll_client_gone(cx: &mut Context<'_>, streams: &mut Streams) -> Poll<SessionError> {
    while !streams.up.is_full() {
        match ready!(streams.up.poll_read(cx, &mut streams.client)) {
            Ok(0) => return Poll::Ready(SessionError::ClientGone),
            Ok(_) => {}
            Err(error) => return Poll::Ready(SessionError::ClientFailed(error)),
        }
    }
    Poll::Pending
}

/// The end of a session that a signal has told to end.
fn told(session: &ClientSession) -> Option<End> {
    let signal = session.control.due(true)?;
    Some(End::Told(session.signalled(signal)))
}

/// Whether the server is gone, or was: a server that has been there all the time has ended this connection
/// alone.
async fn is_gone(session: &ClientSession, lost: &Lost, deadline: Instant) -> bool {
    if lost.has_said_so(session) || !lost.server.takes_statements() {
        return true;
    }
    // Many sessions may have lost their connections at once. An answer that one of them has got since then
    // holds for all.
    let Ok(_place) = server::release(session, deadline).await else {
        return false;
    };
    let up_since = &session.context.cluster.up_since;
    let known = up_since.borrow().get(&lost.server.id()).copied();
    if let Some((_, since)) = known.filter(|(asked, _)| *asked >= lost.noticed) {
        return lost.login_began <= since;
    }
    let cluster = Arc::clone(&session.context.listener.cluster);
    let mut connection = match move_target::open(session, || cluster.permit_to(&lost.server)).await {
        Ok(connection) => connection,
        Err(stays) => return stays.server_leaves || !lost.server.takes_statements(),
    };
    let question = ask::query(connection.capabilities, "SHOW GLOBAL STATUS LIKE 'Uptime'");
    let at = Instant::now();
    let asked = rebuild::asked_in_time(session, &mut connection, &[question]).await;
    let Ok(replies) = asked else {
        return false;
    };
    connection.quit();
    let row = replies.first().and_then(|reply| reply.plain_row(2));
    let uptime = row.and_then(|row| str::from_utf8(row.get(1)?.as_deref()?).ok()?.parse().ok());
    // Servers count whole seconds.
    let uptime = uptime.map(|uptime: u64| Duration::from_secs(uptime.saturating_add(1)));
    let Some(since) = uptime.and_then(|uptime| at.checked_sub(uptime)) else {
        return false;
    };
    up_since.borrow_mut().insert(lost.server.id(), (at, since));
    lost.login_began <= since
}

/// Tries the servers that there are, one after the other. Returns a connection on which the session can go
/// on, and the values that the session has there.
async fn look(
    session: &ClientSession,
    plan: &MovePlan,
    lost: &Lost,
    deadline: Instant,
) -> Result<(Connection<ConnectionState>, FirstValues), Stays> {
    let cluster = Arc::clone(&session.context.listener.cluster);
    let mut tried = Vec::new();
    let mut last = Stays::new(PinReason::NoServer, "no other server is up and has room");
    while tried.len() < TRIES_MAX
        && let Some(permit) = next_permit(session, lost, &tried)
    {
        if lost.place.borrow().is_none() {
            // No session holds a permit while it waits.
            drop(permit);
            let place = server::release(session, deadline).await;
            *lost.place.borrow_mut() = Some(place?);
            continue;
        }
        let server = Arc::clone(permit.server());
        tried.push(server.id());
        let permit = Cell::new(Some(permit));
        let again = || permit.take().or_else(|| cluster.permit_to(&server));
        let stays = match move_target::open(session, again).await {
            Ok(mut connection) => match make_ready(session, plan, lost, &mut connection).await {
                Ok(has) => return Ok((connection, has)),
                Err(stays) => {
                    connection.quit();
                    stays
                }
            },
            Err(stays) => stays,
        };
        if session.control.due(true).is_some() {
            return Err(stays);
        }
        if stays.reason != PinReason::NoServer || last.reason == PinReason::NoServer {
            last = stays;
        }
    }
    Err(last)
}

fn next_permit(session: &ClientSession, lost: &Lost, tried: &[ServerId]) -> Option<Permit> {
    let cluster = &session.context.listener.cluster;
    if !lost.needs_primary {
        return cluster.permit_beside(tried);
    }
    let topology = cluster.topology();
    let primary = session
        .writer(&topology)
        .filter(|_| topology.refuse_writes.is_none());
    let primary = primary.filter(|primary| !tried.contains(&primary.server.id()))?;
    cluster.permit_to(&primary.server)
}

/// Makes the connection one on which the session can go on, and says which values it has there.
async fn make_ready(
    session: &ClientSession,
    plan: &MovePlan,
    lost: &Lost,
    connection: &mut Connection<ConnectionState>,
) -> Result<Vec<Option<Vec<u8>>>, Stays> {
    rebuild::rebuild(session, connection).await?;
    catch_up(session, lost, connection).await?;
    let questions = ask::framed(session.client.key.capabilities, vec![plan.question()]);
    let replies = rebuild::asked_in_time(session, connection, &questions).await?;
    let has = Values::of(session, plan, &replies)?;
    let unknown = |cause| Stays::new(PinReason::NotUnderstood, cause);
    let carried = session.state.carried();
    let sets_charset = carried
        .variables()
        .any(|(name, _)| name.starts_with(b"character_set_"));
    if sets_charset && metrics(&lost.version) != metrics(&connection.version) {
        return Err(unknown(
            "the collation of its charset may be another one in this version",
        ));
    }
    let began = session.binding.began_with();
    let began = began.ok_or_else(|| unknown("what it began with is not known"))?;
    let must_write = lost.needs_primary || MovePlan::takes_writes(began);
    let had = plan.had(carried, began, &has.of_server, must_write);
    let had = Values {
        of_server: had.ok_or_else(|| unknown("what it has set is not known for certain"))?,
        of_user: None,
    };
    let has = moving::become_as(session, plan, connection, (had, has), questions).await?;
    moving::announce_next_transaction(session, connection).await?;
    Ok(has)
}

/// The maker and the two numbers of a version that say what the server can: MariaDB 10.11, MySQL 8.0.
fn metrics(version: &[u8]) -> (bool, u32) {
    match dialect(version) {
        Dialect::MariaDb { version } => (true, version / 100),
        Dialect::MySql { version } => (false, version / 100),
    }
}

/// Waits until the server has what the session has written, and may have seen.
async fn catch_up(
    session: &ClientSession,
    lost: &Lost,
    connection: &mut Connection<ConnectionState>,
) -> Result<(), Stays> {
    if consistency::is_galera(session) {
        lost.place.take();
        return Ok(wait_for_own_writes::sync(session, connection).await?);
    }
    let behind = |cause| Err(Stays::new(PinReason::Behind, cause));
    let seen = lost.seen.as_deref().cloned().map(Rc::new);
    let position = match consistency::own_writes(session) {
        Freshness::Any => seen,
        // The lost server itself was restarted, and has all that it has acknowledged.
        Freshness::Primary if connection.server.id() == lost.server.id() => None,
        Freshness::Primary => return behind("no position tells whether it has what the session has written"),
        Freshness::Position(mut position) => match seen {
            Some(seen) if Rc::make_mut(&mut position).merge(&seen).is_err() => {
                return behind("no position tells whether it has what the session may have seen");
            }
            _ => Some(position),
        },
    };
    let Some(position) = position else {
        return Ok(());
    };
    if wait_for_own_writes::has(session, connection, &position).await? {
        return Ok(());
    }
    // Others need not wait for that.
    lost.place.take();
    match consistency::wait(session, connection, &position).await? {
        true => Ok(()),
        false => behind("it lacks what the session has written, or may have seen"),
    }
}
