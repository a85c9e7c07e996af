//! A session of mode `session` goes to another server, because its own drains or has too many, and its client
//! does not notice.
//!
//! That is done between two commands, while nothing holds the session where it is. A connection to the other
//! server is opened for it as its account, and made what its own is; only then its own is closed. What fails
//! before that leaves the session where it was.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mysql_wire::Capabilities;
use net::Peer;
use routing::rebalance::{SESSION_RESTS, SESSION_RESTS_AFTER_FAILURE};
use session::{MovePlan, Pin, PinReason, UserVariables};
use tracing::debug;
use upstream::{Connection, Credential, ForSession, Key, LeaseError, Status, Ticket};

use crate::control::{MOVE_PAUSE, Signal, Waiting};
use crate::engine::client_session::{ClientSession, Refused};
use crate::engine::connection_state::ConnectionState;
use crate::engine::consistency::{self, Freshness};
use crate::engine::leased::Left;
use crate::engine::login::OWN_AFFAIR;
use crate::engine::series::Moved;
use crate::engine::{account_backoff, ask, last, lease, lookup, rebuild, wait_for_own_writes};
use crate::error::SessionError;
use crate::handshake::PASSED_ON;

/// What says nothing of packets or of what a statement does: servers heed none of these in a login any more.
const OF_NO_EFFECT: Capabilities = Capabilities::LONG_PASSWORD
    .with(Capabilities::LONG_FLAG)
    .with(Capabilities::ODBC)
    .with(Capabilities::IGNORE_SIGPIPE)
    .with(Capabilities::TRANSACTIONS)
    .with(Capabilities::RESERVED)
    .with(Capabilities::SECURE_CONNECTION);

/// User variables with more bytes than this are not carried.
const USER_VARIABLES_MAX: usize = 64 * 1024;

/// Why a session stays where it is.
struct Stays {
    reason: PinReason,
    cause: String,
    /// A question on the session's own connection did not come to its end: it is of no use any more.
    own_is_broken: bool,
}

impl Stays {
    fn new(reason: PinReason, cause: impl ToString) -> Self {
        Self {
            reason,
            cause: cause.to_string(),
            own_is_broken: false,
        }
    }

    fn of_own_connection(Refused(error): Refused) -> Self {
        Self {
            // An error is an answer.
            own_is_broken: !matches!(error, SessionError::StateRefused { .. }),
            ..Self::new(PinReason::NoServer, error)
        }
    }

    /// Something that was asked of a server, and came to nothing.
    fn of_question(Refused(error): Refused) -> Self {
        let reason = match &error {
            SessionError::StateRefused { .. } => PinReason::Incompatible,
            SessionError::NotCaughtUp { .. } => PinReason::Behind,
            _ => PinReason::NoServer,
        };
        Self::new(reason, error)
    }
}

/// Why a session goes to another server.
#[derive(Clone, Copy)]
enum Cause {
    /// Its own takes no sessions any more.
    ServerLeaves,
    /// Its own has too many.
    Balance(Ticket),
}

impl Cause {
    /// `None` where there was one a moment ago: others have taken the last ticket.
    fn of(session: &ClientSession) -> Option<Self> {
        let server = &session.lease.as_ref()?.connection.server;
        let is_raised = || session.control.due(session.is_free()).is_some();
        if server.is_draining() || server.state().status == Status::Removed || is_raised() {
            return Some(Self::ServerLeaves);
        }
        server.take_ticket().map(Self::Balance)
    }

    fn counted(self) -> Moved {
        match self {
            Self::ServerLeaves => Moved::Left,
            Self::Balance(ticket) => Moved::For(ticket.factor),
        }
    }
}

/// The session goes to another server, or stays on its own for a while.
pub(crate) async fn leave(session: &mut ClientSession) {
    let Some(why) = Cause::of(session) else { return };
    let began = Instant::now();
    let worker = Rc::clone(&session.context.worker);
    let _turn = worker.moves.begin();
    let left = session.server_name().to_owned();
    let left_id = session.lease.as_ref().map(|leased| leased.connection.server.id());
    let waited = session.control.wait_so_far();
    let result = try_to_leave(session, why).await;
    session.control.goes_on_waiting(waited);
    let (id, to) = (session.control.id, session.server_name().to_owned());
    match result {
        Ok(()) => {
            session.series().moved(why.counted());
            let worker = &session.context.worker;
            worker.metrics.move_seconds.record(began.elapsed());
            if let (Cause::Balance(ticket), Some(left)) = (why, left_id) {
                session.context.listener.cluster.note_moved(left, ticket);
                rests(session, SESSION_RESTS);
            }
            debug!(session = id, from = left, to, "session moved");
        }
        Err(Stays {
            reason,
            cause,
            own_is_broken,
        }) => {
            if own_is_broken {
                lease::abandon(session);
            }
            session.series().move_failed(reason);
            if let Cause::Balance(_) = why {
                rests(session, SESSION_RESTS_AFTER_FAILURE);
            }
            let now_ms = session.context.worker.now_ms();
            let failure = Pin {
                reason,
                digest: 0,
                since_ms: now_ms,
            };
            session
                .binding
                .move_failed(failure, now_ms + MOVE_PAUSE.as_millis() as u64);
            session.control.show_pins(session.shown_pins());
            debug!(
                session = id,
                server = left,
                reason = reason.label(),
                cause,
                "session stays"
            );
        }
    }
}

/// For so long the session does not move for the sake of balance.
fn rests(session: &mut ClientSession, pause: Duration) {
    let now_ms = session.context.worker.now_ms();
    session.binding.rests_until(now_ms + pause.as_millis() as u64);
}

/// Shows that the session will not leave its server, where that is known from the beginning.
pub(crate) fn show_what_is_missing(session: &mut ClientSession) {
    if credentials(session).is_empty() {
        let now_ms = session.context.worker.now_ms();
        let failure = Pin {
            reason: PinReason::NoCredentials,
            digest: 0,
            since_ms: now_ms,
        };
        session.binding.move_failed(failure, now_ms);
        session.control.show_pins(session.shown_pins());
    }
}

/// With what to log in for the session.
fn credentials(session: &ClientSession) -> Vec<Credential> {
    let accounts = &session.context.worker.shared.accounts;
    let name = session.client.account.user.name.as_bytes();
    let mut credentials = accounts.known(name, &session.context.listener.cluster);
    let shown = session.binding.shown();
    credentials.extend(shown.filter(|shown| !credentials.contains(shown)).cloned());
    credentials
}

async fn try_to_leave(session: &mut ClientSession, cause: Cause) -> Result<(), Stays> {
    let plan = match session.state.move_plan() {
        Ok(plan) => plan,
        Err(pins) => {
            let reason = pins.first().map_or(PinReason::NotUnderstood, |pin| pin.reason);
            return Err(Stays::new(reason, reason.label()));
        }
    };
    let mut connection = open_elsewhere(session, cause).await?;
    match make_ready(session, &plan, &mut connection).await {
        Ok(()) => {
            swap(session, connection);
            Ok(())
        }
        Err(stays) => {
            connection.quit();
            Err(stays)
        }
    }
}

/// Makes the connection one on which the session can go on.
async fn make_ready(
    session: &mut ClientSession,
    plan: &MovePlan,
    connection: &mut Connection<ConnectionState>,
) -> Result<(), Stays> {
    rebuild::rebuild(session, connection)
        .await
        .map_err(Stays::of_question)?;
    catch_up(session, connection).await?;
    // Before anything else is asked there.
    session.control.mark(Waiting::Server);
    last::learn_before_moving(session)
        .await
        .map_err(Stays::of_own_connection)?;
    become_as_here(session, plan, connection).await?;
    match session.state.may_move() {
        true => Ok(()),
        false => Err(Stays::new(
            PinReason::StateChange,
            "its server has reported something meanwhile that holds it",
        )),
    }
}

/// A connection for the session alone, to one of the other servers.
async fn open_elsewhere(session: &ClientSession, cause: Cause) -> Result<Connection<ConnectionState>, Stays> {
    let Some(leased) = &session.lease else {
        return Err(Stays::new(PinReason::NoServer, "its connection is gone"));
    };
    let present = leased.connection.server.id();
    let cluster = Arc::clone(&session.context.listener.cluster);
    let mut last = Stays::new(PinReason::NoCredentials, "no password is known for its account");
    for credential in credentials(session) {
        let permit = match cause {
            Cause::ServerLeaves => cluster.permit_beside(present),
            Cause::Balance(ticket) => cluster.permit_on(ticket.to),
        };
        let Some(permit) = permit else {
            return Err(Stays::new(PinReason::NoServer, "no other server has room"));
        };
        let server = Arc::clone(permit.server());
        if session.pool().is_denied(&server, &credential) {
            // Servers count failures, and some lock the account then.
            let cause = format!("server {} has refused the account lately", server.name());
            last = Stays::new(PinReason::LoginRefused, cause);
            continue;
        }
        let key = Rc::new(Key {
            user: Arc::clone(&credential.user),
            account: credential.account,
            capabilities: session.client.key.capabilities.without(OWN_AFFAIR),
            collation: session.client.key.collation,
        });
        let local = session.streams.client.local().unwrap_or(Peer::Unix);
        let client = ForSession {
            client: &session.client.host,
            local: &local,
            attributes: session.client.login.attributes.as_deref(),
        };
        let opening = session.pool().open_for(permit, (&key, &credential), client);
        let opened = tokio::select! {
            biased;
            signal = session.control.signalled(false) => {
                return Err(Stays::of_question(Refused(session.signalled(signal))));
            }
            opened = opening => opened,
        };
        match opened {
            Ok(mut connection) => {
                // The login was the same. What differs all the same is found and set later.
                connection.state.baseline = Rc::clone(session.state.baseline());
                return fits(session, connection);
            }
            Err(error @ (LeaseError::Refused { .. } | LeaseError::Unusable { .. })) => {
                account_backoff::note_as(session, &server, &credential, &error);
                last = Stays::new(PinReason::LoginRefused, error);
            }
            Err(error) => return Err(Stays::new(PinReason::NoServer, error)),
        }
    }
    Err(last)
}

/// Packets have to look the same on both, and statements to be read the same way.
fn fits(
    session: &ClientSession,
    connection: Connection<ConnectionState>,
) -> Result<Connection<ConnectionState>, Stays> {
    let (here, there) = (session.client.key.capabilities, connection.capabilities);
    let of_effect = |all: Capabilities| (all & PASSED_ON).without(OWN_AFFAIR).without(OF_NO_EFFECT);
    if of_effect(here) != of_effect(there) {
        let what = format!("other capabilities: {here:?} here, {there:?} there");
        return Err(Stays::new(PinReason::Incompatible, what));
    }
    match connection.is_mariadb() == session.dialect().is_mariadb() {
        true => Ok(connection),
        false => Err(Stays::new(
            PinReason::Incompatible,
            "MariaDB on one side, MySQL on the other",
        )),
    }
}

/// Makes the connection what the session's own is, beyond what the session has set by its statements: values
/// of the server's configuration, and user variables.
async fn become_as_here(
    session: &mut ClientSession,
    plan: &MovePlan,
    connection: &mut Connection<ConnectionState>,
) -> Result<(), Stays> {
    let questions = [plan.question()].into_iter().chain(plan.user_variables());
    let questions = ask::framed(session.client.key.capabilities, questions.collect());
    if let Some(length) = plan.user_variables_length() {
        let length = ask::framed(session.client.key.capabilities, vec![length]);
        let reply = ask_own(session, &length).await?;
        let length = reply.first().and_then(|reply| ask::plain(reply.value()));
        let length = length.and_then(|length| str::from_utf8(&length).ok()?.parse().ok());
        if length.is_none_or(|length: usize| length > USER_VARIABLES_MAX) {
            let cause = format!("its user variables have more than {USER_VARIABLES_MAX} bytes");
            return Err(Stays::new(PinReason::UserVariables, cause));
        }
    }
    let here = ask_own(session, &questions).await?;
    let had = Values::of(session, plan, &here)?;
    let asked = rebuild::asked_in_time(session, connection, &questions).await;
    let has = Values::of(session, plan, &asked.map_err(Stays::of_question)?)?;
    let set = had.to_be_set(plan, &has)?;
    if set.is_empty() {
        return Ok(());
    }
    let count = set.len();
    let commands = [ask::framed(connection.capabilities, set), questions].concat();
    let asked = rebuild::asked_in_time(session, connection, &commands).await;
    let replies = asked.map_err(Stays::of_question)?;
    if let Some(packet) = replies
        .iter()
        .find_map(|reply| reply.error(connection.capabilities))
    {
        let refused = rebuild::state_refused(&connection.server, packet);
        return Err(Stays::new(PinReason::Incompatible, refused));
    }
    let has = Values::of(session, plan, replies.get(count..).unwrap_or_default())?;
    if !plan.is_same(&had.of_server, &has.of_server) {
        let cause = "a variable is not what it was set to";
        return Err(Stays::new(PinReason::Incompatible, cause));
    }
    match had.of_user == has.of_user {
        true => Ok(()),
        false => Err(Stays::new(
            PinReason::UserVariables,
            "a user variable is not what it was set to",
        )),
    }
}

/// Asks something on the session's own connection, of which a client knows nothing.
async fn ask_own(session: &mut ClientSession, questions: &[Vec<u8>]) -> Result<Vec<ask::Reply>, Stays> {
    // As for a statement of its client's, `server_idle_timeout` is the limit.
    session.control.mark(Waiting::Server);
    let asked = lease::ask_on_lease(session, questions).await;
    // The questions were statements of their own, with rows.
    session.binding.is_to_be_primed();
    if let Some(leased) = &mut session.lease {
        leased.left = Left::default();
    }
    asked.map_err(Stays::of_own_connection)
}

/// What a server has said of a session's variables.
struct Values {
    of_server: Vec<Option<Vec<u8>>>,
    of_user: Option<UserVariables>,
}

impl Values {
    fn of(session: &ClientSession, plan: &MovePlan, replies: &[ask::Reply]) -> Result<Self, Stays> {
        let capabilities = session.client.key.capabilities;
        if let Some(packet) = replies.iter().find_map(|reply| reply.error(capabilities)) {
            let said = String::from_utf8_lossy(&packet.message);
            return Err(Stays::new(PinReason::Incompatible, said));
        }
        let row = |at: usize, columns| replies.get(at)?.plain_row(columns);
        let unexpected = || {
            Stays::new(
                PinReason::Incompatible,
                ask::unexpected("a question about variables"),
            )
        };
        let columns = plan.user_variables_columns();
        let definitions = replies
            .get(1)
            .into_iter()
            .flat_map(|reply| reply.packets().skip(1));
        let of_user = || UserVariables::new(definitions.take(columns), row(1, columns)?);
        Ok(Self {
            of_server: row(0, plan.columns()).ok_or_else(unexpected)?,
            of_user: match columns {
                0 => None,
                _ => Some(of_user().ok_or_else(unexpected)?),
            },
        })
    }

    /// The commands that make the other server's what these are.
    fn to_be_set(&self, plan: &MovePlan, has: &Self) -> Result<Vec<Vec<u8>>, Stays> {
        let of_server = difference(plan, &self.of_server, &has.of_server)?;
        let of_user = self.of_user.as_ref().zip(has.of_user.as_ref());
        let of_user = of_user.and_then(|(had, has)| plan.set_user_variables(had, has));
        Ok(of_server.into_iter().chain(of_user).collect())
    }
}

fn difference(
    plan: &MovePlan,
    had: &[Option<Vec<u8>>],
    has: &[Option<Vec<u8>>],
) -> Result<Option<Vec<u8>>, Stays> {
    plan.difference(had, has).map_err(|difference| {
        let reason = match difference.is_of_account() {
            true => PinReason::LoginRefused,
            false => PinReason::Incompatible,
        };
        let (what, had, has) = (difference.what, difference.had, difference.has);
        Stays::new(reason, format!("{what} is {had} here and {has} there"))
    })
}

/// Waits until the other server has what the session has written.
async fn catch_up(
    session: &ClientSession,
    connection: &mut Connection<ConnectionState>,
) -> Result<(), Stays> {
    if consistency::is_galera(session) {
        return wait_for_own_writes::sync(session, connection)
            .await
            .map_err(Stays::of_question);
    }
    let position = match consistency::own_writes(session) {
        Freshness::Any => return Ok(()),
        Freshness::Primary => {
            let cause = "no position tells whether it has what the session has written";
            return Err(Stays::new(PinReason::Behind, cause));
        }
        Freshness::Position(position) => position,
    };
    let executed = wait_for_own_writes::executed(session, connection, position.flavor()).await;
    let executed = executed.map_err(Stays::of_question)?;
    let is_there = executed.is_some_and(|executed| executed.covers(&position))
        || consistency::wait(session, connection, &position)
            .await
            .map_err(Stays::of_question)?;
    match is_there {
        true => Ok(()),
        false => Err(Stays::new(
            PinReason::Behind,
            "it lacks what the session has written, also after read_wait",
        )),
    }
}

/// The session goes on on this connection, and its own is closed.
fn swap(session: &mut ClientSession, mut connection: Connection<ConnectionState>) {
    let Some(old) = lease::detach(session) else { return };
    // What a lookup from memory has found no server knows. What the account may read the old one has said.
    if let Some(rows) = lookup::found_rows(session) {
        session.state.learn_found_rows(rows);
    }
    session.lookups = None;
    session.state.move_on();
    connection.state.carried = Rc::clone(session.state.carried());
    session.client.key = Rc::new(Key {
        capabilities: connection.capabilities & PASSED_ON,
        ..Key::clone(&session.client.key)
    });
    session.own_writes.note_on(connection.server.id());
    let is_primary = session.is_writer(&session.pool().topology(), &connection.server);
    let (server, thread_id) = (Arc::clone(&connection.server), connection.thread_id);
    lease::attach(session, connection, is_primary);
    session.binding.moved(&session.streams.traffic.server);
    let seat = (session.context.listener.key(&server), thread_id);
    let registry = &session.context.worker.shared.registry;
    registry.reseat(session.control.id, seat);
    if server.state().status == Status::Removed {
        session.control.raise(Signal::Drain);
    }
    old.quit();
}
