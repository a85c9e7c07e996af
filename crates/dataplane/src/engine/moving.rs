//! A session of mode `session` goes to another server, because its own drains or has too many, and its client
//! does not notice.
//!
//! The session moves between two commands, while nothing holds it where it is. A connection to the other
//! server is opened for it as its account, and made what its own is; only then its own is closed. A failure
//! before that leaves the session where it was.

use std::rc::Rc;
use std::time::Instant;

use routing::rebalance::{SESSION_RESTS, SESSION_RESTS_AFTER_FAILURE};
use session::{Difference, MovePlan, Pin, PinReason, UserVariables};
use tracing::debug;
use upstream::Connection;

use crate::control::{MOVE_PAUSE, Waiting};
use crate::engine::client_session::ClientSession;
use crate::engine::connection_state::ConnectionState;
use crate::engine::consistency::{self, Freshness};
use crate::engine::do_without::credentials;
use crate::engine::leased::says_nothing;
use crate::engine::move_target::{self, Cause, Stays, go_on, is_done};
use crate::engine::{
    ask, command, last_statement, lease, lookup, rebuild, session_states, wait_for_own_writes,
};
use crate::error::{During, SessionError};

/// User variables with more bytes than this are not carried.
const USER_VARIABLES_MAX: usize = 64 * 1024;

/// Has the session go to another server, or stay on its own for a while. The session ends if its connection
/// is lost meanwhile: no command was sent.
pub(crate) async fn leave(session: &mut ClientSession) -> Result<(), SessionError> {
    let Some(why) = Cause::of(session) else {
        return Ok(());
    };
    if why.undoes_label(session) {
        session
            .binding
            .rests_for(SESSION_RESTS_AFTER_FAILURE, session.context.worker.now_ms());
        return Ok(());
    }
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
            session.metrics().moved(why.counted());
            let worker = &session.context.worker;
            worker.metrics.move_seconds.record(began.elapsed());
            if let (Cause::Balance(ticket), Some(left)) = (why, left_id) {
                session.context.listener.cluster.note_moved(left, ticket);
                session.binding.rests_for(SESSION_RESTS, worker.now_ms());
            }
            debug!(session = id, from = left, to, "session moved");
        }
        Err(Stays {
            reason,
            cause,
            own_is_broken,
            ..
        }) => {
            session.metrics().move_failed(reason);
            if own_is_broken {
                lease::abandon(session);
                let during = match command::is_there(session) {
                    true => During::BeforeCommand,
                    false => During::Idle,
                };
                return Err(SessionError::ServerGone { server: left, during });
            }
            // A lack of room on the other server says nothing of the session.
            if let Cause::Balance(_) = why
                && reason != PinReason::NoServer
            {
                session
                    .binding
                    .rests_for(SESSION_RESTS_AFTER_FAILURE, session.context.worker.now_ms());
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
    Ok(())
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

async fn try_to_leave(session: &mut ClientSession, cause: Cause) -> Result<(), Stays> {
    if session.binding.moves_by_session_states() {
        return session_states::leave(session, cause).await;
    }
    let mut plan = match session.state.move_plan() {
        Ok(plan) => plan,
        Err(pins) => {
            let reason = pins.first().map_or(PinReason::NotUnderstood, |pin| pin.reason);
            return Err(Stays::new(reason, reason.label()));
        }
    };
    let mut connection = move_target::open(session, || move_target::permit(session, cause)).await?;
    let had = match make_ready(session, &mut plan, &mut connection).await {
        Ok(had) => had,
        Err(stays) => {
            connection.quit();
            return Err(stays);
        }
    };
    if let Some(old) = lease::detach(session) {
        // No server knows how many rows a lookup from memory has found.
        if let Some(rows) = lookup::found_rows(session) {
            session.state.learn_found_rows(rows);
        }
        session.state.move_on();
        go_on(session, connection, Some(had));
        old.quit();
    }
    Ok(())
}

/// Learns which user variables there are. Triggers and functions may have set some that no text names.
async fn learn_user_variables(session: &mut ClientSession, plan: &mut MovePlan) -> Result<(), Stays> {
    let Some(list) = plan.list_user_variables() else {
        return Ok(());
    };
    let capabilities = session.client.key.capabilities;
    let replies = ask_own(
        session,
        &ask::framed(capabilities, vec![list, session::clear_diagnostics()]),
    )
    .await?;
    let listed = replies
        .first()
        .filter(|reply| reply.error(capabilities).is_none());
    // Definitions of columns come along.
    let rows = listed.map(|reply| ask::values(reply).filter(|row| row != b"def"));
    match plan.learn_user_variables(rows) {
        true => Ok(()),
        false => Err(Stays::new(
            PinReason::UserVariables,
            "it is not known which user variables there are",
        )),
    }
}

/// Takes on, on the new connection, the roles that the session has taken on.
async fn take_on_roles(
    session: &mut ClientSession,
    plan: &MovePlan,
    connection: &mut Connection<ConnectionState>,
) -> Result<(), Stays> {
    let Some(question) = plan.ask_roles() else {
        return Ok(());
    };
    let capabilities = session.client.key.capabilities;
    // This comes before anything else is asked there.
    learn_of_last_statement(session).await?;
    let replies = ask_own(session, &ask::framed(capabilities, vec![question])).await?;
    let row = replies.first().and_then(|reply| reply.plain_row(1));
    let [roles] = row.as_deref().unwrap_or_default() else {
        let cause = ask::unexpected("a question about roles");
        return Err(Stays::incompatible(cause));
    };
    let set = plan.set_roles(roles.as_deref()).map_err(differs)?;
    let replies = rebuild::asked_in_time(session, connection, &ask::framed(capabilities, vec![set])).await?;
    is_done(connection, &replies)
}

/// Learns what only the session's own connection knows of its last statement.
async fn learn_of_last_statement(session: &mut ClientSession) -> Result<(), Stays> {
    session.control.mark(Waiting::Server);
    let learned = last_statement::learn_before_moving(session).await;
    learned.map_err(Stays::of_own_connection)
}

/// Announces the next transaction on the new connection as the session has announced it. The gateway asks
/// nothing there after this.
pub(super) async fn announce_next_transaction(
    session: &ClientSession,
    connection: &mut Connection<ConnectionState>,
) -> Result<(), Stays> {
    let commands = session.state.announce_next_transaction();
    if commands.is_empty() {
        return Ok(());
    }
    let commands = ask::framed(connection.capabilities, commands);
    let replies = rebuild::asked_in_time(session, connection, &commands).await?;
    is_done(connection, &replies)?;
    let ok = replies
        .last()
        .and_then(|reply| ask::ok(reply, connection.capabilities));
    match ok.is_some_and(|ok| session.state.has_announced(&ok)) {
        true => Ok(()),
        false => Err(Stays::incompatible(
            "it has not reported the next transaction as the session's server has",
        )),
    }
}

/// Makes the connection one on which the session can go on, and says which values it has there.
async fn make_ready(
    session: &mut ClientSession,
    plan: &mut MovePlan,
    connection: &mut Connection<ConnectionState>,
) -> Result<Vec<Option<Vec<u8>>>, Stays> {
    take_on_roles(session, plan, connection).await?;
    rebuild::rebuild(session, connection).await?;
    catch_up(session, connection).await?;
    // This comes before anything else is asked there.
    learn_of_last_statement(session).await?;
    learn_user_variables(session, plan).await?;
    let has = become_as_here(session, plan, connection).await?;
    announce_next_transaction(session, connection).await?;
    match session.state.may_move() {
        true => Ok(has),
        false => Err(Stays::new(
            PinReason::StateChange,
            "its server has reported something meanwhile that holds it",
        )),
    }
}

/// Makes the connection what the session's own is, beyond what the session has set by its statements: values
/// of the server's configuration, and user variables.
async fn become_as_here(
    session: &mut ClientSession,
    plan: &MovePlan,
    connection: &mut Connection<ConnectionState>,
) -> Result<Vec<Option<Vec<u8>>>, Stays> {
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
    let there = rebuild::asked_in_time(session, connection, &questions).await?;
    let has = Values::of(session, plan, &there)?;
    become_as(session, plan, connection, (had, has), questions).await
}

/// Makes the connection, which has the values `has`, what the session's own was. Returns the values that it
/// has then.
pub(super) async fn become_as(
    session: &ClientSession,
    plan: &MovePlan,
    connection: &mut Connection<ConnectionState>,
    (had, has): (Values, Values),
    questions: Vec<Vec<u8>>,
) -> Result<Vec<Option<Vec<u8>>>, Stays> {
    let set = had.to_be_set(plan, &has)?;
    if set.is_empty() {
        return Ok(has.of_server);
    }
    let count = set.len();
    // Warnings to the gateway are not for the session to see.
    let clears = ask::framed(connection.capabilities, vec![session::clear_diagnostics()]);
    let commands = [ask::framed(connection.capabilities, set), questions, clears].concat();
    let replies = rebuild::asked_in_time(session, connection, &commands).await?;
    is_done(connection, &replies)?;
    let has = Values::of(session, plan, replies.get(count..).unwrap_or_default())?;
    if !plan.is_same(&had.of_server, &has.of_server) {
        return Err(Stays::incompatible("a variable is not what it was set to"));
    }
    match had.of_user == has.of_user {
        true => Ok(has.of_server),
        false => Err(Stays::new(
            PinReason::UserVariables,
            "a user variable is not what it was set to",
        )),
    }
}

/// Asks something on the session's own connection that its client knows nothing of.
async fn ask_own(session: &mut ClientSession, questions: &[Vec<u8>]) -> Result<Vec<ask::Reply>, Stays> {
    // The limit is `server_idle_timeout`, as for a statement of the client's.
    session.control.mark(Waiting::Server);
    let asked = lease::ask_on_lease(session, questions).await;
    // The questions were statements of their own, with rows.
    session.binding.is_to_be_primed();
    says_nothing(&mut session.lease);
    asked.map_err(Stays::of_own_connection)
}

/// The values of a session's variables that a server has told.
pub(super) struct Values {
    pub(super) of_server: Vec<Option<Vec<u8>>>,
    pub(super) of_user: Option<UserVariables>,
}

impl Values {
    pub(super) fn of(
        session: &ClientSession,
        plan: &MovePlan,
        replies: &[ask::Reply],
    ) -> Result<Self, Stays> {
        let capabilities = session.client.key.capabilities;
        if let Some(packet) = replies.iter().find_map(|reply| reply.error(capabilities)) {
            let said = String::from_utf8_lossy(&packet.message);
            return Err(Stays::incompatible(said));
        }
        let row = |at: usize, columns| replies.get(at)?.plain_row(columns);
        let unexpected = || Stays::incompatible(ask::unexpected("a question about variables"));
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
        let of_server = plan
            .difference(&self.of_server, &has.of_server)
            .map_err(differs)?;
        let of_user = self.of_user.as_ref().zip(has.of_user.as_ref());
        let of_user = of_user.and_then(|(had, has)| plan.set_user_variables(had, has));
        Ok(of_server.into_iter().chain(of_user).collect())
    }
}

fn differs(difference: Difference) -> Stays {
    let reason = match difference.is_of_account() {
        true => PinReason::LoginRefused,
        false => PinReason::Incompatible,
    };
    let (what, had, has) = (difference.what, difference.had, difference.has);
    Stays::new(reason, format!("{what} is {had} here and {has} there"))
}

/// Waits until the other server has what the session has written.
async fn catch_up(
    session: &ClientSession,
    connection: &mut Connection<ConnectionState>,
) -> Result<(), Stays> {
    if consistency::is_galera(session) {
        return Ok(wait_for_own_writes::sync(session, connection).await?);
    }
    let position = match consistency::own_writes(session) {
        Freshness::Any => return Ok(()),
        Freshness::Primary => {
            let cause = "no position tells whether it has what the session has written";
            return Err(Stays::new(PinReason::Behind, cause));
        }
        Freshness::Position(position) => position,
    };
    match wait_for_own_writes::comes_to_have(session, connection, &position).await? {
        true => Ok(()),
        false => Err(Stays::new(
            PinReason::Behind,
            "it lacks what the session has written, also after read_wait",
        )),
    }
}
