//! `mirror`: a copy of a statement to another cluster, for whose answer no client waits.
//!
//! Each copy is a task of its own with a connection of that cluster's pool, under the session's account and
//! with what the session has set; copies may therefore overtake one another. There are only so many of them
//! at a time, and only so long: a copy that does not fit is dropped. Statements that need more of a session
//! than its settings, or change it, are left out.
//!
//! With `mirror_compare` bytes of both answers are kept, up to limits, and handed to the [`Comparer`] once
//! both are there. The client's own answer is kept by the record of its command, where observers have theirs.
//!
//! [`Comparer`]: crate::mirrored::Comparer

use std::cell::Cell;
use std::future::pending;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use mysql_wire::{Capabilities, Command, Outcome, StatusFlags};
use routing::rules::Verdict;
use routing::{Draw, ReadCandidate, ReadPolicy, Role as ReadRole, choose_replica};
use session::PortableState;
use sql_class::{Class, Effects, Facts, Syntax};
use telemetry::MirrorMetrics;
use tokio::sync::oneshot;
use tokio::task::spawn_local;
use tokio::time::timeout;
use upstream::{Connection, Credential, Key, Role, Server, Topology};

use crate::command_head::CommandHead;
use crate::copied::{Copied, CopyLimits, Room};
use crate::engine::client_session::ClientSession;
use crate::engine::connection_state::ConnectionState;
use crate::engine::rebuild::{done_alone, rebuild_alone};
use crate::engine::worker_cluster::WorkerCluster;
use crate::engine::{ask, command};
use crate::frontend::worker::Worker;
use crate::mirrored::{Pair, ServerAnswer};

/// Copies of one worker under way at the same time, for all clusters together.
const COPIES_MAX: usize = 128;

/// A longer text is not copied: all of these may wait at once.
const TEXT_MAX: usize = net::buffer::CAPACITY;

/// Time for a copy, with the wait for a connection.
const LONGEST: Duration = Duration::from_secs(60);

/// Bytes that are kept of an answer that is compared.
const ANSWER_MAX: usize = 1 << 20;

/// Bytes of all such answers of one worker with their texts, until they are compared.
const ANSWERS_MAX: usize = 16 << 20;

/// Effects that keep a statement from being copied: it depends on the session's connection, or on one server.
const LEFT_OUT: Effects = super::BINDING
    .with(Effects::RELEASES_ALL_LOCKS)
    .with(Effects::NEEDS_USER_LOCKS)
    .with(Effects::UNLOCKS_TABLES)
    .with(Effects::RELEASES_GLOBAL_LOCK)
    .with(Effects::READS_LAST_INSERT_ID)
    .with(Effects::READS_ROW_COUNT)
    .with(Effects::READS_FOUND_ROWS)
    .with(Effects::READS_DIAGNOSTICS)
    .with(Effects::READS_CONNECTION_ID)
    .with(Effects::SETS_GLOBAL)
    .with(Effects::XA)
    .with(Effects::SERVER_FILE)
    .with(Effects::KILL)
    .with(Effects::CHANGES_DATABASE)
    .with(Effects::INCOMPLETE)
    .with(Effects::SETS_AUTOCOMMIT);

/// The copies of one worker.
#[derive(Default)]
pub(crate) struct Mirrors {
    under_way: Rc<Cell<usize>>,
    /// How many copies could have been compared so far.
    turns: Cell<u64>,
    /// Bytes of answers that are kept.
    kept: Arc<AtomicUsize>,
}

/// A place among the copies under way.
struct CopyPlace(Rc<Cell<usize>>);

impl Mirrors {
    fn place(&self) -> Option<CopyPlace> {
        let count = self.under_way.get();
        (count < COPIES_MAX).then(|| {
            self.under_way.set(count + 1);
            CopyPlace(Rc::clone(&self.under_way))
        })
    }

    /// Whether the answer to this copy is to be compared.
    fn compares(&self, verdict: &Verdict) -> bool {
        verdict.mirror_compare.is_some_and(|share| {
            let turn = self.turns.get();
            self.turns.set(turn.wrapping_add(1));
            share.has(turn)
        })
    }

    /// Room for an answer, and for so many bytes that are kept with it.
    fn room(&self, beside: usize) -> Copied {
        let limits = CopyLimits {
            command: 0,
            answer: ANSWER_MAX,
            files: 0,
            room: Some(Arc::new(Room {
                taken: Arc::clone(&self.kept),
                max: ANSWERS_MAX,
            })),
        };
        Copied::of_answer(limits, beside)
    }

    fn has_room(&self) -> bool {
        self.kept.load(Relaxed) < ANSWERS_MAX
    }
}

impl Drop for CopyPlace {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// The parts of a comparison of the answer to a copy with the client's own.
struct Comparing {
    cluster: Arc<str>,
    class: Class,
    syntax: Syntax,
    /// The client's own answer, which never comes where it is no server's, or not whole.
    original: oneshot::Receiver<ServerAnswer>,
    /// The packets of the answer to the copy.
    packets: Copied,
}

/// A statement on its way.
struct Copy {
    worker: Rc<Worker>,
    to: Rc<WorkerCluster>,
    key: Rc<Key>,
    credential: Credential,
    carried: Rc<PortableState>,
    oldest_login: Instant,
    is_read: bool,
    text: Vec<u8>,
}

/// How a copy was answered.
struct Answered {
    outcome: Outcome,
    took: Duration,
    /// The capabilities by which the answer is to be read.
    capabilities: Capabilities,
}

/// Sends a copy of the statement that is about to be sent, if a rule says so.
pub(super) fn copy(session: &ClientSession, head: CommandHead, facts: &Facts) {
    let Some(verdict) = session.rules.verdict() else {
        return;
    };
    let Some(name) = &verdict.mirror else {
        return;
    };
    let Some(numbered) = session.rules.rules.mirror(name) else {
        return;
    };
    let metrics = session.context.worker.metrics.mirror(name);
    let copied = matches!(
        facts.class,
        Class::Read | Class::LockingRead | Class::Write | Class::Ddl
    );
    let text = command::text(command::payload(session, head), session.client.capabilities);
    let is_short = |text: &&[u8]| text.len() <= TEXT_MAX;
    let Some(text) = text.filter(|text| is_short(text) && copied && !facts.effects.intersects(LEFT_OUT))
    else {
        metrics.left_out.inc();
        return;
    };
    let Some(place) = session.context.worker.mirrors.place() else {
        metrics.dropped.inc();
        return;
    };
    let comparing = match session.context.worker.mirrors.compares(verdict) {
        true => compare(session, name, facts.class, text.len(), &metrics),
        false => None,
    };
    let copy = Copy {
        worker: Rc::clone(&session.context.worker),
        to: session
            .context
            .worker
            .pools
            .of_cluster(numbered, &session.context.worker.metrics),
        key: Rc::clone(&session.client.key),
        credential: session.client.account.credential.clone(),
        carried: Rc::clone(session.state.carried()),
        oldest_login: session.control.oldest_login.get(),
        is_read: facts.class == Class::Read,
        text: text.to_vec(),
    };
    spawn_local(run(copy, comparing, metrics, place));
}

/// Has the record of the command under way keep its answer. `None` where that makes no sense: copies of the
/// statements of a transaction are executed outside of it, and read and write something else.
fn compare(
    session: &ClientSession,
    cluster: &Arc<str>,
    class: Class,
    text_len: usize,
    metrics: &MirrorMetrics,
) -> Option<Comparing> {
    if session.state.in_transaction() {
        metrics.in_transaction.inc();
        return None;
    }
    if !session.context.worker.mirrors.has_room() {
        metrics.no_room.inc();
        return None;
    }
    let (mirrors, traffic) = (&session.context.worker.mirrors, &session.streams.traffic);
    let before = (traffic.from_client, traffic.to_client);
    Some(Comparing {
        cluster: Arc::clone(cluster),
        class,
        syntax: session.state.syntax(),
        original: session.control.record.note_mirrored(before, mirrors.room(0)),
        packets: mirrors.room(text_len),
    })
}

/// Sends the copy, and hands its answer to the comparer together with the client's own, if that is asked for.
async fn run(copy: Copy, mut comparing: Option<Comparing>, metrics: Arc<MirrorMetrics>, place: CopyPlace) {
    let packets = comparing.as_mut().map(|comparing| &mut comparing.packets);
    let answered = timeout(LONGEST, copy.send(packets)).await.unwrap_or(None);
    match answered {
        Some(_) => metrics.sent.inc(),
        None => metrics.failed.inc(),
    }
    // The client's own statement may take its time: no more of these wait than there are sessions.
    drop(place);
    let Some(comparing) = comparing else {
        return;
    };
    let Some(answered) = answered else {
        metrics.copy_failed.inc();
        return;
    };
    let Copy { worker, text, .. } = copy;
    let Ok(original) = comparing.original.await else {
        metrics.original_lost.inc();
        return;
    };
    let Answered {
        outcome,
        took,
        capabilities,
    } = answered;
    let pair = Box::new(Pair {
        cluster: comparing.cluster,
        text,
        syntax: comparing.syntax,
        class: comparing.class,
        original,
        copy: ServerAnswer::new(&outcome, took, capabilities, comparing.packets),
    });
    let comparer = worker.extension.get().and_then(|extension| extension.comparer());
    if !comparer.is_some_and(|comparer| comparer.compare(pair)) {
        metrics.comparer_full.inc();
    }
}

impl Copy {
    /// Sends the copy. `None` where it has not reached its end; an error of the server's is an answer, too.
    /// `packets`: the place where the answer is kept, if it is.
    async fn send(&self, packets: Option<&mut Copied>) -> Option<Answered> {
        let pool = &self.to.pool;
        let server = self.server(&pool.cluster().topology())?;
        let cost = |held: &ConnectionState| held.cost(&self.carried, self.oldest_login);
        let key = self.key_on(&server);
        let leased = pool.lease(&server, &key, &self.credential, cost, Some(pending()));
        let mut connection = leased.await.ok()?;
        rebuild_alone(&mut connection, &self.carried, false).await?;
        connection.state.last_session = None;
        connection.state.known = session::KnownConnection::UNKNOWN;
        let answered = self.ask(&mut connection, packets).await?;
        let outcome = &answered.outcome;
        if outcome.error.is_some() || outcome.warnings > 0 {
            // Warnings of the copy are not for the session that has the connection next.
            done_alone(&mut connection, vec![session::clear_diagnostics()]).await?;
        }
        // A connection on which a transaction has begun is closed: nobody would end it.
        if !outcome.status.contains(StatusFlags::IN_TRANS) {
            pool.give_back(connection);
        }
        Some(answered)
    }

    /// The key of connections on a server that may have less than those of the session: the packets that are
    /// sent go by what the connection has.
    fn key_on(&self, server: &Server) -> Rc<Key> {
        let layout = self.key.capabilities & Capabilities::LAYOUT;
        let lacks = server.profile().map_or(Capabilities::default(), |profile| {
            layout.without(profile.capabilities)
        });
        if lacks == Capabilities::default() {
            return Rc::clone(&self.key);
        }
        Rc::new(Key {
            capabilities: self.key.capabilities.without(lacks),
            ..Key::clone(&self.key)
        })
    }

    async fn ask(
        &self,
        connection: &mut Connection<ConnectionState>,
        mut packets: Option<&mut Copied>,
    ) -> Option<Answered> {
        let capabilities = connection.opened.capabilities;
        let mut payload = vec![Command::QUERY.0];
        if capabilities.contains(Capabilities::QUERY_ATTRIBUTES) {
            payload.extend([0, 1]);
        }
        payload.extend_from_slice(&self.text);
        let stream = &mut connection.stream;
        let began = Instant::now();
        let note = |bytes: &[u8]| {
            if let Some(packets) = packets.as_deref_mut() {
                packets.add_answer(bytes);
            }
        };
        let outcome = ask::run(stream, capabilities, &payload, note).await;
        Some(Answered {
            outcome: outcome.ok()?,
            took: began.elapsed(),
            capabilities,
        })
    }

    /// A replica for a read, where there is one; else the primary.
    fn server(&self, topology: &Topology) -> Option<Arc<Server>> {
        let candidates: Vec<ReadCandidate> = topology
            .members
            .iter()
            .map(|member| ReadCandidate {
                admitted: self.is_read || member.role == Role::Primary,
                available: member.server.takes_statements(),
                weight: member.server.weight(),
                ..ReadCandidate::new(match member.role {
                    Role::Primary => ReadRole::Primary,
                    Role::Replica => ReadRole::Replica,
                    Role::Unusable => ReadRole::Unusable,
                })
            })
            .collect();
        let draw: Draw = self.worker.draw(0);
        let place = choose_replica(&candidates, &ReadPolicy::default(), draw)?;
        topology
            .members
            .get(place)
            .map(|member| Arc::clone(&member.server))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_so_many_copies_and_no_more() {
        let mirrors = Mirrors::default();
        let places: Vec<CopyPlace> = (0..COPIES_MAX).filter_map(|_| mirrors.place()).collect();
        assert_eq!(places.len(), COPIES_MAX);
        assert!(mirrors.place().is_none());
        drop(places);
        assert!(mirrors.place().is_some());
    }
}
