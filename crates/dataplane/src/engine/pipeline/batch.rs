//! Statements that leave together with the next connection.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use mysql_wire::Command;
use tokio::io::AsyncWriteExt;
use tokio::sync::oneshot::{self, Receiver};
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout};
use upstream::{Connection, LeaseError, Server};

use super::answers::{Answers, Arrived};
use super::is_same;
use super::pipelines::BatchedExecution;
use super::pipelines::{Answered, Answering, Batch, Member, WaitingBatches};
use super::quick::QuickStatements;
use super::went_alone::WentAlone;
use crate::engine::client_session::ClientSession;
use crate::engine::connection_state::ConnectionState;
use crate::engine::rebuild::rebuild_alone;
use crate::engine::worker_cluster::WorkerCluster;

/// Bytes of the statements of a batch: as many as the sockets between us and the server take while it reads
/// nothing, as it may while it writes answers that nobody reads yet.
const BYTES_MAX: usize = 16 * 1024;

/// Time from the departure after which nobody waits for an answer any more.
const PATIENCE: Duration = Duration::from_millis(20);

/// Time for the statements to be sent, which take no more room than there is.
const SENDING: Duration = Duration::from_secs(5);

/// Number of waiting batches that are looked at for one that has the session's state, the newest first: where
/// every session has a state of its own there are as many as sessions.
const LOOKED_AT: usize = 16;

impl Batch {
    /// Joins the batch that waits already, or a new one: true where it is new.
    pub(super) fn join(
        session: &ClientSession,
        server: &Arc<Server>,
        number: NonZeroU64,
        command: Box<[u8]>,
        execution: Option<BatchedExecution>,
    ) -> (Receiver<Result<Answered, WentAlone>>, bool) {
        let (answer, receiver) = oneshot::channel();
        let member = Member {
            command,
            number,
            execution,
            answer,
        };
        let max = session.pool().config().pool.pipeline_max as usize;
        session.context.cluster.leavers.ask_one(session.pool(), server);
        let waiting = &session.context.cluster.pipelines.waiting;
        let found = waiting.0.borrow().iter().rev().take(LOOKED_AT).find_map(|batch| {
            let fits = batch.server.id() == server.id() && is_same(session, batch);
            (fits && batch.has_room(&member, max)).then(|| Rc::clone(batch))
        });
        let is_new = found.is_none();
        let batch = found.unwrap_or_else(|| Self::begin(session, server));
        let oldest_login = batch.oldest_login.get().max(session.control.oldest_login.get());
        batch.oldest_login.set(oldest_login);
        batch.members.borrow_mut().push(member);
        (receiver, is_new)
    }

    fn begin(session: &ClientSession, server: &Arc<Server>) -> Rc<Self> {
        let batch = Rc::new(Self {
            key: Rc::clone(&session.client.key),
            carried: Rc::clone(session.state.carried()),
            oldest_login: Cell::new(session.control.oldest_login.get()),
            server: Arc::clone(server),
            credential: session.client.account.credential.clone(),
            members: RefCell::default(),
        });
        let waiting = &session.context.cluster.pipelines.waiting;
        waiting.0.borrow_mut().push(Rc::clone(&batch));
        spawn_local(Rc::clone(&batch).run(Rc::clone(&session.context.cluster)));
        batch
    }

    fn has_room(&self, member: &Member, max: usize) -> bool {
        let members = self.members.borrow();
        let len: usize = members.iter().map(|member| member.command.len()).sum();
        members.len() < max && len + member.command.len() <= BYTES_MAX
    }

    /// Runs the batch, from the wait for a connection to the last answer.
    async fn run(self: Rc<Self>, shared: Rc<WorkerCluster>) {
        let boarding = Boarding(&self, &shared.pipelines.waiting);
        let cost = |held: &ConnectionState| held.cost(&self.carried, self.oldest_login.get());
        let leased = loop {
            let line = Some(self.deserted());
            let leased = shared
                .pool
                .lease(&self.server, &self.key, &self.credential, &cost, line);
            match leased.await {
                // A session that has begun later has joined in the meantime.
                Ok(connection) if connection.login_began < self.oldest_login.get() => {
                    shared.pool.give_back(connection);
                }
                leased => break leased,
            }
        };
        let leased = leased.map_err(|error| match error {
            LeaseError::QueueFull { .. } | LeaseError::QueueTimeout { .. } => WentAlone::NoConnection(error),
            _ => WentAlone::Lost,
        });
        drop(boarding);
        let members = self.members.take();
        match leased {
            Ok(connection) => {
                if let Some(connection) = self.carry(&shared, connection, members).await {
                    shared.pool.give_back(connection);
                }
            }
            Err(left) => members.into_iter().for_each(|member| member.leaves(left.clone())),
        }
    }

    /// Waits until all who have joined have gone. The place of one that goes is free for another.
    async fn deserted(&self) {
        poll_fn(|cx| {
            let mut members = self.members.borrow_mut();
            // Members that join later are listened to as soon as one of these has gone.
            members.retain_mut(|member| member.answer.poll_closed(cx).is_pending());
            match members.is_empty() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    /// Sends all statements, and gives each its answer. `None`: the connection is of no use any more.
    async fn carry(
        &self,
        shared: &WorkerCluster,
        mut connection: Connection<ConnectionState>,
        members: Vec<Member>,
    ) -> Option<Connection<ConnectionState>> {
        connection.state.last_session = None;
        if !Rc::ptr_eq(&self.carried, &connection.state.carried) {
            let limit = shared.pool.config().login_timeout;
            let rebuilding = Box::pin(rebuild_alone(&mut connection, &self.carried, true));
            timeout(limit, rebuilding).await.ok()??;
        }
        // Packets of a compressed connection are numbered command by command.
        if connection.stream.is_compressed() {
            return Some(connection);
        }
        let quick = &shared.pipelines.quick;
        let members = addressed(members, &mut connection.state, quick);
        connection.note_statements(u32::try_from(members.len()).unwrap_or(u32::MAX));
        let commands: Vec<&[u8]> = members.iter().map(|member| &*member.command).collect();
        let commands = commands.concat();
        let sent = async {
            connection.stream.begin_command()?;
            connection.stream.write_all(&commands).await?;
            connection.stream.flush().await
        };
        timeout(SENDING, sent).await.ok()?.ok()?;
        let unclean = self.answers(quick, &mut connection, members).await?;
        if unclean {
            connection.state.carried = Rc::new(self.carried.with_diagnostics());
        }
        Some(connection)
    }

    /// Reads the answers, and gives each statement its own. True where something is left on the connection
    /// that somebody else must not see; `None` where the connection is of no use any more.
    async fn answers(
        &self,
        quick: &QuickStatements,
        connection: &mut Connection<ConnectionState>,
        members: Vec<Member>,
    ) -> Option<bool> {
        let from = Rc::new(Answering {
            server: Arc::clone(&self.server),
            metrics: Arc::clone(&connection.state.metrics),
        });
        let mut answers = Answers::new(connection.opened.capabilities);
        let stream = &mut connection.stream;
        let sent = Instant::now();
        let (mut before, mut unclean) = (sent, false);
        let mut members = members.into_iter();
        while let Some(member) = members.next() {
            let left = match answers.next(stream, member.kind(), sent + PATIENCE).await.ok()? {
                Arrived::Clean => {
                    let now = Instant::now();
                    quick.note_with_others(member.number, now - std::mem::replace(&mut before, now));
                    member.answers(Answered {
                        bytes: answers.take().into(),
                        sent,
                        from: Rc::clone(&from),
                    });
                    continue;
                }
                Arrived::Unclean => {
                    answers.take();
                    quick.forget(member.number);
                    member.leaves(WentAlone::Unclean);
                    unclean = true;
                    continue;
                }
                Arrived::Changed => {
                    quick.forget(member.number);
                    member.leaves(WentAlone::Unclean);
                    // The others are told by dropping them.
                    return None;
                }
                Arrived::Late => WentAlone::Slow,
                Arrived::Long => WentAlone::Long,
            };
            quick.forget(member.number);
            let mut rest = vec![member.kind()];
            member.leaves(left);
            for member in members {
                rest.push(member.kind());
                member.leaves(WentAlone::Slow);
            }
            let discarded = answers.discard(stream, rest).await.ok()?;
            return Some(unclean || discarded);
        }
        answers.is_empty().then_some(unclean)
    }
}

/// The time in which statements may join a batch, which ends when this is dropped.
struct Boarding<'b>(&'b Rc<Batch>, &'b WaitingBatches);

impl Drop for Boarding<'_> {
    fn drop(&mut self) {
        let Self(batch, WaitingBatches(waiting)) = self;
        waiting.borrow_mut().retain(|other| !Rc::ptr_eq(other, batch));
    }
}

/// The members that somebody waits for and that can be executed on the connection; the others are told.
fn addressed(members: Vec<Member>, held: &mut ConnectionState, quick: &QuickStatements) -> Vec<Member> {
    let mut ready = Vec::with_capacity(members.len());
    for mut member in members.into_iter().filter(|member| !member.answer.is_closed()) {
        let is_known = match &member.execution {
            Some(execution) => execution.address(held, &mut member.command),
            None => true,
        };
        if !is_known {
            // The statement is prepared when it goes alone, and may come back.
            quick.forget(member.number);
            member.leaves(WentAlone::Unprepared);
        } else {
            ready.push(member);
        }
    }
    ready
}

impl Member {
    fn kind(&self) -> Command {
        match self.execution {
            Some(_) => Command::STMT_EXECUTE,
            None => Command::QUERY,
        }
    }

    // A session that has gone meanwhile needs no answer.
    fn answers(self, answered: Answered) {
        let _ = self.answer.send(Ok(answered));
    }

    fn leaves(self, left: WentAlone) {
        let _ = self.answer.send(Err(left));
    }
}
