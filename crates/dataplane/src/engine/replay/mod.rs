//! A transaction whose server is lost in the middle is executed again on the new primary
//! (`transaction_replay`), and its client does not notice.
//!
//! ```text
//! BEGIN ─ statements, each with a checksum of its answer ─┬ COMMIT, ROLLBACK ─ all is forgotten
//!                                                         └ the server is lost ─ the new primary: BEGIN and
//!                                                           the statements, each answer the same ─ goes on
//! ```
//!
//! Changes that were not committed are gone with their server: a server that has lost a connection rolls
//! back, and a replica never had them. Nothing is therefore done twice, as long as nothing was sent that
//! commits; and a statement that was sent and not answered is sent once more. A COMMIT never is. The
//! transaction ends with its server, as without the option, if it reaches beyond itself (`why`), if an answer
//! is another one than the first time, or if the client has seen a part of an answer.

pub(crate) mod kept;
pub(crate) mod note;
pub(crate) mod noted;
mod sum;
pub(crate) mod why;
pub(crate) mod without;

use std::rc::Rc;
use std::time::Duration;

use mysql_wire::statement::{PrepareOk, replace_id};
use mysql_wire::{Command, command_packet};
use tokio::time::{Instant, sleep, timeout_at};
use tracing::debug;
use upstream::ServerId;

use self::kept::{Executed, Replay, UnderWay};
use self::why::Why;
use self::without::note_lost;
use crate::control::Waiting;
use crate::engine::ask::{self, Broken};
use crate::engine::client_session::{ClientSession, Refused};
use crate::engine::consistency::{self, Freshness};
use crate::engine::leased::Left;
use crate::engine::metrics::Replayed;
use crate::engine::next::Next;
use crate::engine::target::Target;
use crate::engine::{again, keep, lease, wait_for_own_writes};
use crate::error::{During, SessionError};

/// How many servers are tried, where they are lost in the middle as well.
const TRIES_MAX: usize = 3;

/// How often it is seen whether a server is gone that was just there.
const LOOKS_MAX: usize = 10;
/// Time between two such looks.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

const TO_PRIMARY: Target = Target::Primary { for_writing: true };

/// Why a transaction was not executed again.
enum Stop {
    /// The transaction cannot be executed again.
    Not(Why),
    /// There was no primary in time, or it did not take the session.
    NoServer(SessionError),
    /// The new primary lacks what the session has written before.
    Behind(String),
    /// The statements were refused, took too long, or servers were lost again and again.
    Failed(String),
    /// An answer was another one.
    Differs,
}

impl From<Refused> for Stop {
    fn from(Refused(error): Refused) -> Self {
        Self::NoServer(error)
    }
}

/// Executes the transaction again after the session's connection is lost between two commands.
pub(crate) async fn go_on(session: &mut ClientSession) -> Result<(), SessionError> {
    let error = session.server_gone(During::IdleInTransaction);
    go_on_or(session, error).await
}

/// Executes the transaction again after its connection is lost. `error` is told if that comes to nothing, and
/// nothing else is to be told.
pub(crate) async fn go_on_or(session: &mut ClientSession, error: SessionError) -> Result<(), SessionError> {
    let waited = session.control.wait_so_far();
    let gone_on = execute_anew(session).await;
    session.control.goes_on_waiting(waited);
    gone_on.map_err(|told| told.unwrap_or(error))
}

/// Executes the transaction again after its connection is lost with a command under way, which comes again,
/// as if the client had just sent it. `unseen`: the client has seen nothing of its answer, and all of it was
/// sent. `None` where all is as without the option.
pub(crate) async fn go_on_behind(
    session: &mut ClientSession,
    unseen: bool,
) -> Option<Result<Next, SessionError>> {
    let replay = session.replay.as_mut()?;
    replay.is_lost();
    let command = match replay.under_way() {
        UnderWay::Statement { command, .. } if unseen => command.as_sent(),
        _ => {
            note_lost(session);
            return None;
        }
    };
    match execute_anew(session).await {
        Ok(()) => again::take_up(session, &command_packet(&command)).then_some(Ok(Next::Done)),
        Err(told) => told.map(Err),
    }
}

/// Executes the transaction anew. An error says what the client is to be told; `None` if that is what it is
/// told without the option.
async fn execute_anew(session: &mut ClientSession) -> Result<(), Option<SessionError>> {
    // Nothing else has any business with the record meanwhile.
    let Some(replay) = session.replay.take() else {
        return Err(None);
    };
    let (id, from) = (session.control.id, session.server_name().to_owned());
    let began = Instant::now();
    let ended = go_through(session, &replay).await;
    session.statement.released = None;
    session.statement.attempts.lost_on = None;
    let statements = replay.executed().len();
    session.replay = Some(replay);
    let stop = match ended {
        Ok(()) => {
            keep::keep(session);
            session.metrics().replayed(Replayed::Done);
            let to = session.server_name();
            debug!(session = id, from, to, statements, took = ?began.elapsed(), "transaction replayed");
            return Ok(());
        }
        Err(stop) => stop,
    };
    // The transaction that was begun there is rolled back.
    session.streams.down.clear();
    drop(lease::detach(session));
    let (cause, counted) = match &stop {
        Stop::Not(why) => (why.label().to_owned(), Replayed::not(*why)),
        Stop::NoServer(error) => (error.to_string(), Replayed::Failed),
        Stop::Behind(server) => (
            format!("{server} lacks what the session has written"),
            Replayed::Behind,
        ),
        Stop::Failed(cause) => (cause.clone(), Replayed::Failed),
        Stop::Differs => ("an answer was another one".to_owned(), Replayed::Differs),
    };
    session.metrics().replayed(counted);
    debug!(session = id, from, statements, cause, "transaction not replayed");
    match stop {
        Stop::Behind(_) => Err(Some(SessionError::NobodyHasWrites {
            server: from,
            limit: session.context.listener.cluster.config().failover_wait,
        })),
        _ => Err(None),
    }
}

async fn go_through(session: &mut ClientSession, replay: &Replay) -> Result<(), Stop> {
    check(session, replay).map_err(Stop::Not)?;
    let limit = session.context.listener.cluster.config().failover_wait;
    let deadline = Instant::now() + limit;
    let own = consistency::own_writes(session);
    for _ in 0..TRIES_MAX {
        session.streams.down.clear();
        let lost = lease::detach(session).map(|connection| connection.server.id());
        session.answer.begin_anew(&session.client);
        lease_primary(session, lost).await?;
        match has_own_writes(session, &own, lost).await {
            Ok(true) => {}
            Ok(false) => return Err(Stop::Behind(session.server_name().to_owned())),
            Err(_) if Instant::now() < deadline => continue,
            Err(refused) => return Err(refused.into()),
        }
        let until = Instant::now() + limit;
        let executed = timeout_at(until, Box::pin(execute(session, replay))).await;
        match executed {
            Ok(Err(Again::Lost)) if Instant::now() < deadline => {}
            Ok(Err(Again::Lost)) => break,
            Ok(Err(Again::Stop(stop))) => return Err(stop),
            Ok(Ok(())) => return Ok(()),
            Err(_) => return Err(Stop::Failed(format!("its statements took longer than {limit:?}"))),
        }
    }
    Err(Stop::Failed("its server was lost again".to_owned()))
}

/// Leases a connection to the primary. A server that is there and has ended the connection means the session;
/// but a server that is about to be gone closes its connections one after the other.
async fn lease_primary(session: &mut ClientSession, lost: Option<ServerId>) -> Result<(), Refused> {
    let mut looks = 0;
    loop {
        session.statement.attempts.lost_on = lost;
        match lease::lease(session, &TO_PRIMARY).await {
            Err(Refused(SessionError::ServerGone { .. })) if looks < LOOKS_MAX => looks += 1,
            leased => return leased,
        }
        tokio::select! {
            biased;
            signal = session.control.signalled(false) => return Err(Refused(session.signalled(signal))),
            () = sleep(LOOK_AGAIN) => {}
        }
    }
}

/// Whether the transaction may be executed again at all.
fn check(session: &ClientSession, replay: &Replay) -> Result<(), Why> {
    if let Some(why) = replay.why_not() {
        return Err(why);
    }
    if !replay.is_kept() {
        return Err(Why::Held);
    }
    if session.state.has_written_for_good() {
        return Err(Why::NonTransactional);
    }
    if **replay.carried() != **session.state.carried() {
        return Err(Why::SessionState);
    }
    let of_primary = session.lease.as_ref().is_some_and(|leased| {
        leased.is_primary || leased.is_demoted || leased.moves_on || session.state.transaction_is_read_only()
    });
    of_primary.then_some(()).ok_or(Why::Elsewhere)
}

/// Whether the server at hand has what the session has written before the transaction.
async fn has_own_writes(
    session: &mut ClientSession,
    own: &Freshness,
    lost: Option<ServerId>,
) -> Result<bool, Refused> {
    let position = match own {
        _ if consistency::is_galera(session) => return Ok(true), // it was waited for
        Freshness::Any => return Ok(true),
        // The lost server itself was restarted, and has all that it has acknowledged.
        Freshness::Primary => {
            let here = session.lease.as_ref().map(|leased| leased.connection.server.id());
            return Ok(here == lost);
        }
        Freshness::Position(position) => position,
    };
    let Some(mut connection) = lease::detach(session) else {
        return Ok(false);
    };
    let has = wait_for_own_writes::comes_to_have(session, &mut connection, position).await;
    lease::attach(session, connection, true);
    has
}

/// Why the statements did not come to their end on this server.
enum Again {
    Lost,
    Stop(Stop),
}

impl Again {
    fn failed(cause: &str) -> Self {
        Self::Stop(Stop::Failed(cause.to_owned()))
    }
}

/// Executes the statements on the connection at hand, on which nothing was executed for the session.
async fn execute(session: &mut ClientSession, replay: &Replay) -> Result<(), Again> {
    let capabilities = session.client.key.capabilities;
    if let UnderWay::Statement {
        changes_rows: true, ..
    } = replay.under_way()
    {
        // The old primary may have executed the statement, and its changes there may have stayed.
        let question = ask::query(capabilities, NON_TRANSACTIONAL);
        let replies = ask_server(session, &[question]).await?;
        match replies.first() {
            Some(reply) if reply.outcome.error.is_none() && reply.outcome.rows == 0 => {}
            _ => return Err(Again::Stop(Stop::Not(Why::NonTransactional))),
        }
    }
    let prime = ask::framed(
        capabilities,
        vec![session::prime_last_insert_id(replay.insert_id())],
    );
    let replies = ask_server(session, &prime).await?;
    if replies.iter().any(|reply| reply.outcome.error.is_some()) {
        return Err(Again::failed("LAST_INSERT_ID() cannot be set"));
    }
    let mut prepared = Vec::new();
    for executed in replay.executed() {
        execute_one(session, replay, executed, &mut prepared).await?;
    }
    if let Some(leased) = &mut session.lease {
        for (_, id) in prepared {
            leased.connection.state.statements.note_unused(Some(id));
        }
        leased.left = Left::ALL;
        // The facts that are known of the connection are from before.
        leased.connection.state.known = session::KnownConnection::UNKNOWN;
    }
    Ok(())
}

/// Tables of which a statement's changes stay when its transaction is rolled back.
const NON_TRANSACTIONAL: &str = "SELECT table_name FROM information_schema.tables \
     WHERE table_type = 'BASE TABLE' AND table_schema NOT IN \
     ('mysql', 'information_schema', 'performance_schema', 'sys') AND engine IN \
     (SELECT engine FROM information_schema.engines WHERE transactions <> 'YES') LIMIT 1";

async fn execute_one(
    session: &mut ClientSession,
    replay: &Replay,
    executed: &Executed,
    prepared: &mut Vec<(Rc<[u8]>, u32)>,
) -> Result<(), Again> {
    let command = match &executed.command {
        kept::Command::Text(payload) => payload.to_vec(),
        kept::Command::Execution { text, payload, .. } => {
            let known = prepared.iter().find(|(known, _)| known == text);
            let id = match known {
                Some((_, id)) => *id,
                None => {
                    let id = prepare(session, text).await?;
                    prepared.push((Rc::clone(text), id));
                    id
                }
            };
            let mut payload = payload.to_vec();
            if !replace_id(&mut payload, id) {
                return Err(Again::failed("an execution is too short"));
            }
            payload
        }
    };
    let replies = ask_server(session, &[command]).await?;
    let mut sum = replay.sum(session.client.key.capabilities);
    replies.iter().for_each(|reply| sum.feed(&reply.bytes));
    match sum.finish() == Some(executed.sum) {
        true => Ok(()),
        false => Err(Again::Stop(Stop::Differs)),
    }
}

async fn prepare(session: &mut ClientSession, text: &[u8]) -> Result<u32, Again> {
    let preparation = [&[Command::STMT_PREPARE.0], text].concat();
    let replies = ask_server(session, &[preparation]).await?;
    let packet = replies.first().and_then(|reply| reply.packet(0));
    let ok = packet.and_then(|packet| PrepareOk::decode(packet).ok());
    ok.map(|ok| ok.statement_id)
        .ok_or_else(|| Again::failed("a statement is not prepared"))
}

async fn ask_server(session: &mut ClientSession, commands: &[Vec<u8>]) -> Result<Vec<ask::Reply>, Again> {
    session.control.mark(Waiting::Server);
    let capabilities = session.client.key.capabilities;
    let asking = ask::ask(&mut session.streams.server, capabilities, commands);
    let asked = tokio::select! {
        biased;
        signal = session.control.signalled(false) => Err(signal),
        asked = asking => Ok(asked),
    };
    match asked {
        Ok(Ok(replies)) => Ok(replies),
        Ok(Err(Broken::TooLong(_))) => Err(Again::Stop(Stop::Differs)),
        Ok(Err(_)) => Err(Again::Lost),
        Err(signal) if signal.is_about_a_server() => Err(Again::Lost),
        Err(signal) => Err(Again::Stop(Stop::NoServer(session.signalled(signal)))),
    }
}
