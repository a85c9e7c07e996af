//! Quick reads of several sessions, sent down one server connection without waiting for each other's answers.
//!
//! Reads go together only while all connections to their server are in use, so that each would wait in line
//! for one of its own. Reads that come in the meantime join one [`batch`], which has one place in the line,
//! and leaves with the next connection: one write and about one read of the server's side for all of them,
//! and no idle server between two of them.
//!
//! Such reads have nothing to do with what comes before or after them: they are plain, with nothing that
//! binds their session, of sessions whose state is the same. Each was quick when it ran alone: nobody is to
//! wait for somebody else's long report. A statement that gets no such answer all the same (it takes long, it
//! fails, it warns, the connection is lost) is executed again, alone: it leaves nothing behind, and nothing
//! of its answer has been seen. Each statement has one such try.

mod answers;
mod batch;
mod execution;
pub(crate) mod pipelines;
mod quick;
pub(crate) mod went_alone;

use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;

use mysql_wire::{Command, PacketHeader};
use session::Prepared;
use sql_class::{Class, Effects, Facts};
use upstream::{Key, LeaseError, Server};

use self::pipelines::{Answered, Answering, Batch, BatchedExecution};
use self::went_alone::WentAlone;
use crate::command_head::CommandHead;
use crate::control::Waiting;
use crate::engine::answered::{self, Why};
use crate::engine::begin::begin;
use crate::engine::client_session::{ClientSession, Refused};
use crate::engine::exchange::exchange_arrived;
use crate::engine::lease::LeaseAttempt;
use crate::engine::metrics::Ran;
use crate::engine::metrics::SplitMetrics;
use crate::engine::next::Next;
use crate::engine::prepared::{execute, known};
use crate::engine::target::Target;
use crate::engine::{again, consistency, next, pipelined_setup};
use crate::error::SessionError;
use crate::finished::End;

/// The number that a statement of text, just looked at, has in common with those that differ in values only;
/// `None` for one that never goes with others.
pub(crate) fn number(session: &ClientSession, facts: &Facts) -> Option<NonZeroU64> {
    let number = session.context.worker.facts_cache.borrow().number();
    number.and_then(NonZeroU64::new).filter(|_| is_plain(facts))
}

/// The number of the execution of a prepared statement; `None` for one that never goes with others.
pub(crate) fn number_of_execution(head: CommandHead, prepared: &Prepared) -> Option<NonZeroU64> {
    let goes = head.command == Command::STMT_EXECUTE && is_plain(&prepared.facts);
    NonZeroU64::new(prepared.digest).filter(|_| goes)
}

fn is_plain(facts: &Facts) -> bool {
    facts.effects == Effects::NONE && facts.class == Class::Read && facts.statements == 1
}

/// Whether the command under way, which would have to wait for a connection to this server, goes with others.
pub(crate) fn takes(session: &ClientSession, server: &Server) -> bool {
    let is_quick = |number| session.context.cluster.pipelines.quick.contains(number);
    session.statement.number.is_some_and(is_quick)
        && session.statement.copy.is_some()
        && is_full(session, server)
        && !keeps_connections(session)
}

/// Whether what the session does has to do with the connection it is done on.
fn keeps_connections(session: &ClientSession) -> bool {
    // Packets of a compressed connection are numbered command by command.
    let is_compressed = session.pool().config().compression != config::ServerCompression::Off;
    // A read begins a transaction.
    let begins = !session.state.autocommit();
    begins
        || session.binding.is_for_good()
        || is_compressed
        || session.lookups.is_some()
        || session.client.account.user.config.pooling == config::Pooling::Session
        || consistency::is_galera(session)
}

/// Whether a session that wants a connection to the server has to wait for another to give one back.
fn is_full(session: &ClientSession, server: &Server) -> bool {
    if session.pool().config().pool.pipeline_max <= 1 {
        return false;
    }
    let (idle, _) = session.pool().idle_and_busy(server.id());
    server.waiting() > 0 || server.is_full() && idle == 0
}

/// Sends the statement of text at the head of what the client sent with others, or alone where that comes to
/// nothing.
pub(crate) async fn query(
    session: &mut ClientSession,
    head: CommandHead,
    facts: Facts,
    (server, is_primary): (Arc<Server>, bool),
    target: Target,
) -> Result<Next, SessionError> {
    match with_others(session, &server, None).await {
        Ok(Some(answered)) => {
            begin(session, head, Some(&facts));
            Ok(relay_arrived(session, head, answered, is_primary).await)
        }
        Ok(None) => {
            again::keep_to_send_again(session, head, &facts);
            // Boxed: this is rare, and every wait would have room for it.
            Box::pin(pipelined_setup::lease_and_begin(
                session,
                head,
                facts,
                target,
                LeaseAttempt::Wait(None),
            ))
            .await
        }
        Err(refused) => Ok(refused.into()),
    }
}

/// Sends the execution of a prepared statement with others, or alone where that comes to nothing.
pub(crate) async fn execute(
    session: &mut ClientSession,
    execution: next::Execution,
    (server, is_primary): (Arc<Server>, bool),
    target: Target,
) -> Result<Next, SessionError> {
    let next::Execution { head, id, prepared } = &execution;
    let (head, id) = (*head, *id);
    let answered = match BatchedExecution::of(session, id, prepared) {
        Some(execution) => with_others(session, &server, Some(execution)).await,
        None => Ok(None),
    };
    match answered {
        Ok(Some(answered)) => {
            known::begin_prepared(session, head, id, prepared);
            Ok(relay_arrived(session, head, answered, is_primary).await)
        }
        Ok(None) => {
            again::keep_to_send_again(session, head, &prepared.facts);
            let leased = execute::lease_and_execute(session, execution, target, LeaseAttempt::Wait(None));
            Box::pin(leased).await
        }
        Err(refused) => Ok(refused.into()),
    }
}

async fn relay_arrived(
    session: &mut ClientSession,
    head: CommandHead,
    answered: Answered,
    is_primary: bool,
) -> Next {
    let (server, sent) = (answered.from.server.id(), answered.sent);
    take_in(session, answered, is_primary);
    session.control.record.note_end(End::Pipelined);
    let ended = exchange_arrived(session, head.command, sent.into_std()).await;
    if session.context.cluster.by_latency.get() {
        session.context.cluster.note_answer(server, ended.took);
    }
    Next::settle(ended)
}

/// Sends the statement with others, and waits for its answer. `None` where it has to go alone.
async fn with_others(
    session: &mut ClientSession,
    server: &Arc<Server>,
    execution: Option<BatchedExecution>,
) -> Result<Option<Answered>, Refused> {
    let Some((number, mut command)) = session.statement.number.zip(session.statement.copy.take()) else {
        return Ok(None);
    };
    // Clients under compression number packets as they like; a server without ends the connection for it,
    // which is everybody's.
    const NUMBER: usize = 3;
    match command.get_mut(NUMBER) {
        Some(place) if session.streams.client.is_compressed() => *place = 0,
        Some(0) => {}
        _ => return Ok(None),
    }
    session.control.mark(Waiting::Seat);
    let _counted = Counted::new(&session.context.metrics);
    let (answer, is_first) = Batch::join(session, server, number, command, execution);
    let answer = tokio::select! {
        biased;
        signal = session.control.signalled(false) => return Err(Refused(session.signalled(signal))),
        answer = answer => answer,
        () = session.streams.client.closed() => return Err(Refused(SessionError::ClientGone)),
    };
    let left = match answer {
        Ok(Ok(answered)) => return Ok(Some(answered)),
        // A session that has joined later has time left.
        Ok(Err(WentAlone::NoConnection(LeaseError::QueueTimeout { .. }))) if !is_first => return Ok(None),
        Ok(Err(WentAlone::NoConnection(error))) => return Err(Refused(SessionError::NoServer(error))),
        Ok(Err(left)) => left,
        // The batch was dropped with its task.
        Err(_) => WentAlone::Lost,
    };
    session.metrics().pipeline_left(&left);
    Ok(None)
}

/// A statement that waits for an answer together with others.
struct Counted(Arc<SplitMetrics>);

impl Counted {
    fn new(metrics: &Arc<SplitMetrics>) -> Self {
        metrics.in_pipelines.inc();
        Self(Arc::clone(metrics))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.in_pipelines.dec();
    }
}

/// Puts the answer in the place of what would be read from a connection.
fn take_in(session: &mut ClientSession, answered: Answered, is_primary: bool) {
    let command_len = PacketHeader::parse(session.streams.up.unseen())
        .map_or(0, |header| PacketHeader::LEN + header.payload_len);
    session.streams.up.discard(command_len);
    let Answering { server, metrics } = &*answered.from;
    if !Arc::ptr_eq(&session.streams.traffic.server, metrics) {
        session.streams.traffic.server = Arc::clone(metrics);
    }
    session.streams.traffic.add_up(command_len);
    session.streams.down.fill(&answered.bytes);
    if session
        .last
        .server
        .as_ref()
        .is_none_or(|last| !Arc::ptr_eq(last, server))
    {
        session.last.server = Some(Arc::clone(server));
    }
    // The connection that the session had last tells of the statement before this one.
    session.last.turn = session.last.turn.wrapping_add(1);
    session
        .metrics()
        .ran(if is_primary { Ran::Primary } else { Ran::Replica });
    session.metrics().pipelined.inc();
    let why = Why::Usual;
    let by = answered::Answered::Server { is_primary, why };
    session.control.of_split.answered.set(by);
}

/// Whether the session shares connections, and the state on them, with those of the batch.
fn is_same(session: &ClientSession, batch: &Batch) -> bool {
    let is_same_key = |key: &Rc<Key>| Rc::ptr_eq(key, &session.client.key) || **key == *session.client.key;
    is_same_key(&batch.key) && Rc::ptr_eq(&batch.carried, session.state.carried())
}
