//! Statements that leave together with the next connection.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use mysql_wire::Command;
use session::Carried;
use sql_class::Dialect;
use telemetry::ServerSeries;
use tokio::io::AsyncWriteExt;
use tokio::sync::oneshot::{self, Receiver};
use tokio::task::spawn_local;
use upstream::{Connection, Credential, Key, LeaseError, Server};

use super::answers::{Answers, Next};
use super::execution::Execution;
use super::is_same;
use crate::split::ask;
use crate::split::lease;
use crate::split::state::{ClusterOfWorker, Held, Split};

/// Bytes of the statements of a batch: what the sockets between us and the server take although it reads nothing, as it may while
/// it writes answers that nobody reads yet.
const BYTES_MAX: usize = 16 * 1024;

/// Of the batches that wait, so many are looked at for one that has the session's state, the newest first: where every session has a state of
/// its own there are as many as sessions.
const LOOKED_AT: usize = 16;

/// Statements that wait for a connection to one server, for one account, with one state.
pub(super) struct Batch {
    pub(super) key: Rc<Key>,
    pub(super) carried: Rc<Carried>,
    server: Arc<Server>,
    credential: Credential,
    dialect: Dialect,
    members: RefCell<Vec<Member>>,
}

/// One of them.
struct Member {
    /// The whole packet.
    command: Box<[u8]>,
    /// Of those that differ in values only.
    number: u64,
    /// `None` for one of text.
    execution: Option<Execution>,
    answer: oneshot::Sender<Result<Answered, Left>>,
}

/// A whole answer, as the server has sent it.
pub(super) struct Answered {
    pub(super) bytes: Box<[u8]>,
    pub(super) server: Arc<Server>,
    pub(super) series: Arc<ServerSeries>,
}

/// Why a statement got no answer with the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Left {
    /// There was no connection in time, nor room in the line: it is the same for who would go alone.
    NoConnection(LeaseError),
    /// No connection, or it was lost.
    Lost,
    /// It, or one before it, took long.
    Slow,
    /// It left something on the connection that its session may ask for (an error, a warning), or changed the session.
    Unclean,
    /// Its answer is longer than a buffer.
    Long,
    /// It is not prepared on the connection.
    Unprepared,
}

/// The batches of a worker and a cluster that have not left yet.
#[derive(Default)]
pub(super) struct Waiting(RefCell<Vec<Rc<Batch>>>);

impl Batch {
    /// Joins the batch that waits already, or a new one.
    pub(super) fn join(
        split: &Split,
        server: &Arc<Server>,
        number: u64,
        command: Box<[u8]>,
        execution: Option<Execution>,
    ) -> Receiver<Result<Answered, Left>> {
        let (answer, receiver) = oneshot::channel();
        let member = Member {
            command,
            number,
            execution,
            answer,
        };
        let max = split.pool().config().pool.pipeline_max as usize;
        let waiting = &split.shared.pipelines.waiting;
        let found = waiting.0.borrow().iter().rev().take(LOOKED_AT).find_map(|batch| {
            let fits = batch.server.id() == server.id() && is_same(split, batch);
            (fits && batch.has_room(&member, max)).then(|| Rc::clone(batch))
        });
        let batch = found.unwrap_or_else(|| Self::begin(split, server));
        batch.members.borrow_mut().push(member);
        receiver
    }

    fn begin(split: &Split, server: &Arc<Server>) -> Rc<Self> {
        let batch = Rc::new(Self {
            key: Rc::clone(&split.key),
            carried: Rc::clone(split.session.carried()),
            server: Arc::clone(server),
            credential: split.account.credential.clone(),
            dialect: lease::dialect(split),
            members: RefCell::default(),
        });
        let waiting = &split.shared.pipelines.waiting;
        waiting.0.borrow_mut().push(Rc::clone(&batch));
        spawn_local(Rc::clone(&batch).run(Rc::clone(&split.shared)));
        batch
    }

    fn has_room(&self, member: &Member, max: usize) -> bool {
        let members = self.members.borrow();
        let len: usize = members.iter().map(|member| member.command.len()).sum();
        members.len() < max && len + member.command.len() <= BYTES_MAX
    }

    /// From the wait for a connection to the last answer.
    async fn run(self: Rc<Self>, shared: Rc<ClusterOfWorker>) {
        let leased = self.lease(&shared).await;
        let is_other = |batch: &Rc<Self>| !Rc::ptr_eq(batch, &self);
        shared.pipelines.waiting.0.borrow_mut().retain(is_other);
        let members = self.members.take();
        match leased {
            Ok(mut connection) => {
                if self.carry(&shared, &mut connection, members).await.is_ok() {
                    shared.pool.give_back(connection);
                }
            }
            Err(left) => members.into_iter().for_each(|member| member.leaves(left.clone())),
        }
    }

    /// A connection with the state of the sessions.
    async fn lease(&self, shared: &ClusterOfWorker) -> Result<Connection<Held>, Left> {
        let cost = |held: &Held| session::cost(&self.carried, &held.carried);
        let leased = shared.pool.lease(&self.server, &self.key, &self.credential, cost);
        let mut connection = leased.await.map_err(|error| match error {
            LeaseError::QueueFull { .. } | LeaseError::QueueTimeout { .. } => Left::NoConnection(error),
            _ => Left::Lost,
        })?;
        connection.state.last_session = None;
        if !Rc::ptr_eq(&self.carried, &connection.state.carried) {
            Box::pin(self.rebuild(&mut connection)).await?;
        }
        Ok(connection)
    }

    /// See [`lease::rebuild`].
    async fn rebuild(&self, connection: &mut Connection<Held>) -> Result<(), Left> {
        let have = Rc::clone(&connection.state.carried);
        if session::cost(&self.carried, &have) == session::CANNOT {
            return Err(Left::Lost);
        }
        let baseline = Rc::clone(&connection.state.baseline);
        let mut commands = session::rebuild(&self.carried, &have, &baseline, self.dialect);
        if !commands.is_empty() {
            commands.push(session::clear_diagnostics());
            let capabilities = connection.opened.capabilities;
            let commands = ask::framed(capabilities, commands);
            let replies = ask::ask(&mut connection.stream, capabilities, &commands).await;
            let is_done =
                replies.is_ok_and(|replies| replies.iter().all(|reply| reply.outcome.error.is_none()));
            if !is_done {
                return Err(Left::Lost);
            }
        }
        connection.state.carried = Rc::clone(&self.carried);
        Ok(())
    }

    /// Sends all statements, and gives each its answer. An error: the connection is of no use any more.
    async fn carry(
        &self,
        shared: &ClusterOfWorker,
        connection: &mut Connection<Held>,
        members: Vec<Member>,
    ) -> Result<(), ()> {
        let members = addressed(members, &mut connection.state);
        let commands: Vec<&[u8]> = members.iter().map(|member| &*member.command).collect();
        let commands = commands.concat();
        let series = Arc::clone(&connection.state.series);
        let capabilities = connection.opened.capabilities;
        let stream = &mut connection.stream;
        let sent = async {
            stream.begin_command()?;
            stream.write_all(&commands).await?;
            stream.flush().await
        };
        if sent.await.is_err() {
            return Err(());
        }
        let mut answers = Answers::new(capabilities);
        let mut members = members.into_iter();
        while let Some(member) = members.next() {
            let left = match answers.next(stream, member.kind()).await {
                Ok(Next::Clean) => {
                    member.answers(Answered {
                        bytes: answers.take().into(),
                        server: Arc::clone(&self.server),
                        series: Arc::clone(&series),
                    });
                    continue;
                }
                Ok(Next::Unclean) => {
                    answers.take();
                    shared.pipelines.quick.forget(member.number);
                    member.leaves(Left::Unclean);
                    continue;
                }
                Ok(Next::Changed) => {
                    shared.pipelines.quick.forget(member.number);
                    member.leaves(Left::Unclean);
                    // The others are told by dropping them.
                    return Err(());
                }
                Ok(Next::Late) => Left::Slow,
                Ok(Next::Long) => Left::Long,
                Err(_) => return Err(()),
            };
            shared.pipelines.quick.forget(member.number);
            let mut rest = vec![member.kind()];
            member.leaves(left);
            for member in members {
                rest.push(member.kind());
                member.leaves(Left::Slow);
            }
            return answers.discard(stream, rest).await.map_err(|_| ());
        }
        answers.is_empty().then_some(()).ok_or(())
    }
}

/// Those that can be executed on the connection; the others are told.
fn addressed(members: Vec<Member>, held: &mut Held) -> Vec<Member> {
    let mut is_ready = |member: &mut Member| match &member.execution {
        Some(execution) => execution.address(held, &mut member.command),
        None => true,
    };
    let (ready, unprepared): (Vec<_>, Vec<_>) = members
        .into_iter()
        .map(|mut member| (is_ready(&mut member), member))
        .partition(|(is_ready, _)| *is_ready);
    unprepared
        .into_iter()
        .for_each(|(_, member)| member.leaves(Left::Unprepared));
    ready.into_iter().map(|(_, member)| member).collect()
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

    fn leaves(self, left: Left) {
        let _ = self.answer.send(Err(left));
    }
}
