//! What a session of mode `split` holds, and what the worker keeps with each server connection.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mysql_wire::{ErrPacket, PacketHeader, StatusFlags, write_packet};
use routing::PeakEwma;
use session::{Baseline, ClientTrackers, PackedState, Pin, PinReason, PortableState};
use telemetry::ServerSeries;
use tokio::task::{AbortHandle, spawn_local};
use upstream::{Connection, Key, Member, Pool, Server, ServerId, Topology, Travel};

use crate::control::{Control, Signal};
use crate::error::{During, SessionError};
use crate::listener_state::{ListenerState, NumberedCluster};
use crate::lookups::LookupSeries;
use crate::relay::{RelayError, Streams};
use crate::session::{as_error, signal_as_error};
use crate::split::binding::Binding;
use crate::split::consistency::strong::ReadIndex;
use crate::split::consistency::vain::VainWaits;
use crate::split::explain_warning::ExplainWarning;
use crate::split::identity::Identity;
use crate::split::last::Left;
use crate::split::lease;
use crate::split::lookup;
use crate::split::makers::{self, Makers};
use crate::split::observe::Shape;
use crate::split::own_writes::OwnWrites;
use crate::split::pipeline::Pipelines;
use crate::split::prepared::prepare::LongTexts;
use crate::split::prepared::{NextId, OnServer, close_command};
use crate::split::rules;
use crate::split::series::{AtPrimary, SplitSeries};
use crate::split::statement::Statement;
use crate::split::told::Told;
use crate::worker::Worker;

/// What a session does where a server has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    InLine,
    /// There are other servers to ask first.
    NotInLine,
}

/// What is known of a server connection beside what the pool knows.
pub(crate) struct Held {
    /// What is set on it. The same allocation as the session's that used it last, unless either has changed
    /// since.
    pub(crate) carried: Rc<PortableState>,
    pub(crate) baseline: Rc<Baseline>,
    pub(crate) statements: OnServer,
    /// Statements of the server's to be closed with the next command.
    pub(crate) to_close: Vec<u32>,
    /// The session whose statement was the last on it, with nothing of anybody else's since.
    pub(crate) last_session: Option<u32>,
    /// Which of its turns that session had on it.
    pub(crate) last_turn: u32,
    /// Nothing was executed on it since, not by the gateway either.
    pub(crate) is_untouched: bool,
    /// What FOUND_ROWS() says on it is that session's.
    pub(crate) has_count: bool,
    /// What LAST_INSERT_ID() says on it, and what it has reported as its last transaction.
    pub(crate) known: session::OfConnection,
    /// Galera: reads on it wait for what other nodes have written.
    pub(crate) syncs_reads: bool,
    /// Its session is in a schema that is gone, and this connection in none: it is not for others then.
    pub(crate) lacks_schema: bool,
    /// See [`Opened::login_began`](upstream::Opened::login_began).
    pub(crate) login_began: Instant,
    pub(crate) series: Arc<ServerSeries>,
}

impl Held {
    /// What it costs to make the connection that of a session which wants that and whose logins are no older
    /// than that: [`CANNOT`](session::CANNOT) where it cannot be made so.
    pub(crate) fn cost(&self, want: &PortableState, oldest_login: Instant) -> u32 {
        match session::cost(want, &self.carried) {
            session::CANNOT => session::CANNOT,
            _ if self.login_began < oldest_login => upstream::OUTDATED,
            cost => cost,
        }
    }

    /// Commands that close what is to be closed.
    pub(crate) fn take_closing(&mut self) -> Vec<Vec<u8>> {
        self.to_close.drain(..).map(close_command).collect()
    }

    /// Forgets what was prepared for a client's statement, which is closed with the next command that is
    /// about a statement.
    pub(crate) fn close(&mut self, owner: &Rc<()>) {
        let id = self.statements.remove(owner);
        self.to_close.extend(id);
    }

    /// No session holds anything on the connection any more.
    pub(crate) fn let_go(&mut self) {
        let closed = self.statements.let_go();
        self.to_close.extend(closed);
    }

    /// A preparation has come to nothing: it was refused, or the statement of this id is of no use.
    pub(crate) fn note_unused(&mut self, id: Option<u32>) {
        match id {
            Some(id) => {
                self.statements.note_given(id);
                self.to_close.push(id);
            }
            None => self.statements.note_refused(),
        }
    }

    /// Gives up half of the statements, and says how many are to be closed now.
    pub(crate) fn give_up_half(&mut self) -> usize {
        self.to_close.extend(self.statements.give_up_half());
        self.to_close.len()
    }
}

/// [`Held`] on its way to another worker.
pub(crate) struct Luggage {
    carried: PackedState,
    next_id: NextId,
    to_close: Vec<u32>,
    known: session::OfConnection,
    syncs_reads: bool,
    lacks_schema: bool,
}

/// Whose last statement was on it is of no use elsewhere.
impl Travel for Held {
    type Luggage = Luggage;

    fn pack(self) -> Luggage {
        let (ids, next_id) = self.statements.pack();
        Luggage {
            carried: PackedState::of(&self.carried),
            next_id,
            to_close: [self.to_close, ids].concat(),
            known: self.known,
            syncs_reads: self.syncs_reads,
            lacks_schema: self.lacks_schema,
        }
    }

    fn unpack(mut self, luggage: Luggage) -> Self {
        self.statements.unpack(luggage.next_id);
        Self {
            carried: Rc::new(luggage.carried.unpack()),
            to_close: luggage.to_close,
            known: luggage.known,
            syncs_reads: luggage.syncs_reads,
            lacks_schema: luggage.lacks_schema,
            ..self
        }
    }
}

/// A server connection in the hands of a session; its stream is in the session's streams.
pub(crate) struct Leased {
    pub(crate) connection: Connection<Held>,
    /// Its server takes this session's writes, as of `generation`.
    pub(crate) is_primary: bool,
    /// Its server did, and another does now, or none.
    pub(crate) is_demoted: bool,
    /// In the transaction that is open on it, it has refused a write because it takes none.
    pub(crate) has_refused_write: bool,
    /// Of the topology by which that was judged last; 0 is none.
    pub(crate) generation: u64,
    /// The transaction that was begun on it goes on to the primary with its first statement that is no plain
    /// read.
    pub(crate) moves_on: bool,
    /// What it still says of the session's last statement.
    pub(crate) left: Left,
    /// It has not got the session's state yet, which goes ahead of the statement.
    pub(crate) lacks_state: bool,
}

/// The client's ids of statements, and their texts with figures. Boxed where there are some: few sessions
/// prepare such statements.
#[derive(Default)]
pub(crate) struct WithFigures(pub(crate) Vec<(u32, Rc<[u8]>)>);

/// A logged-in session in mode `split`: what outlives a command.
pub(crate) struct Split {
    pub(crate) control: Rc<Control>,
    pub(crate) context: Context,
    pub(crate) client: Box<Identity>,
    /// The server's side is detached while nothing is leased.
    pub(crate) streams: Streams,
    pub(crate) lease: Option<Leased>,
    pub(crate) binding: Binding,
    pub(crate) session: session::Session,
    pub(crate) own_writes: OwnWrites,
    pub(crate) prepared: ClientStatements,
    pub(crate) rules: rules::SessionRules,
    pub(crate) lookups: Option<Box<lookup::SessionLookups>>,
    /// The command under way.
    pub(crate) statement: Statement,
    pub(crate) last: LastStatement,
    pub(crate) answer: AnswerState,
}

/// Where the session came in, and what it shares with others there.
pub(crate) struct Context {
    pub(crate) worker: Rc<Worker>,
    pub(crate) listener: Arc<ListenerState>,
    pub(crate) cluster: Rc<WorkerCluster>,
    pub(crate) series: Arc<SplitSeries>,
}

/// What is known of the client's prepared statements beside `session::Statements`.
#[derive(Default)]
pub(crate) struct ClientStatements {
    /// Statements that were prepared since the last one was executed, with its figures in the place of what
    /// asks for them, and are right until the next one is.
    pub(crate) with_figures: Option<Box<WithFigures>>,
    /// Where there are long ones among the texts it has prepared.
    pub(crate) long_texts: Option<Box<LongTexts>>,
    /// The client's id of the statement it prepared last.
    pub(crate) last_prepared: u32,
}

/// What the session's last statement has left with the gateway.
#[derive(Default)]
pub(crate) struct LastStatement {
    /// The server that had it, for the log.
    pub(crate) server: Option<Arc<Server>>,
    /// How many statements the session has had executed.
    pub(crate) turn: u32,
    /// The last statement in whose answer there was an id that nothing in it could have given, and that id,
    /// while it is not known that the server has made it.
    pub(crate) maker: Option<(makers::Key, NonZeroU64)>,
    /// Why it went where it went, where its client has asked for that.
    pub(crate) explain_warning: Option<Box<ExplainWarning>>,
    /// The error that its client was told last, where that may be raised again.
    pub(crate) told: Option<Box<Told>>,
}

/// What an answer to the client has to fit.
pub(crate) struct AnswerState {
    /// As a server last reported it.
    pub(crate) status: StatusFlags,
    /// The sequence number an error has now, or `None` where the protocol has no place for one.
    pub(crate) error_sequence: Option<u8>,
    pub(crate) shape: Shape,
}

/// A command that was not executed. The client is told, and the session goes on.
pub(crate) struct Refused(pub(crate) SessionError);

impl Drop for Split {
    fn drop(&mut self) {
        if self.binding.uncount() {
            self.series().pinned.dec();
        }
    }
}

impl Split {
    /// The session keeps its connection from here on. The first reason counts.
    pub(crate) fn keep_connection(&mut self, reason: PinReason, digest: u64) {
        self.binding.bind_for(Pin {
            reason,
            digest,
            since_ms: self.context.worker.now_ms(),
        });
    }

    /// Why the session holds its connection, for those who look at it.
    pub(crate) fn shown_pins(&self) -> Cow<'_, [Pin]> {
        self.binding.reasons(self.session.pins())
    }

    /// Between commands, and nothing is lost when the session ends here.
    pub(crate) fn is_free(&self) -> bool {
        !self.answer.status.contains(StatusFlags::IN_TRANS)
    }

    /// The status as an answer of our own has it: what lasts, without what belongs to the last statement.
    pub(crate) fn lasting_status(&self) -> StatusFlags {
        const LASTING: StatusFlags = StatusFlags(
            StatusFlags::IN_TRANS.0
                | StatusFlags::AUTOCOMMIT.0
                | StatusFlags::NO_BACKSLASH_ESCAPES.0
                | StatusFlags::IN_TRANS_READONLY.0
                | StatusFlags::ANSI_QUOTES.0,
        );
        StatusFlags(self.answer.status.0 & LASTING.0)
    }

    pub(crate) fn series(&self) -> &SplitSeries {
        &self.context.series
    }

    /// A read goes to the primary that might have gone to a replica.
    pub(crate) fn note_at_primary(&self, why: AtPrimary) {
        self.series().at_primary(why);
        self.control.of_split.at_primary.set(Some(why));
    }

    pub(crate) fn lookup_series(&self) -> &LookupSeries {
        &self.context.worker.shared.lookup_series[self.context.worker.index]
    }

    pub(crate) fn pool(&self) -> &Rc<Pool<Held>> {
        &self.context.cluster.pool
    }

    pub(crate) fn server_name(&self) -> &str {
        match (&self.lease, &self.last.server) {
            (Some(leased), _) => leased.connection.server.name(),
            (None, Some(server)) => server.name(),
            (None, None) => "",
        }
    }

    /// An exchange that did not come to its end, as an error.
    pub(crate) fn broken(&self, broken: RelayError) -> SessionError {
        let mut error = as_error(
            broken,
            self.server_name(),
            &self.context.listener,
            During::Command,
        );
        if let SessionError::StatementTimeout { mariadb } = &mut error {
            *mariadb = self.session.syntax().dialect.is_mariadb();
        }
        error
    }

    pub(crate) fn signalled(&self, signal: Signal) -> SessionError {
        signal_as_error(signal, self.server_name(), &self.context.listener)
    }

    /// Says a command in the place of the client's, which was taken off already.
    pub(crate) fn say_command(&mut self, payload: &[u8]) {
        let mut bytes = Vec::with_capacity(payload.len() + PacketHeader::LEN);
        write_packet(&mut bytes, &mut 0, payload);
        self.streams.up.say(&bytes);
        self.statement.is_ours = true;
    }

    /// The server that takes this session's writes: the primary, or always the same of several, as long as it
    /// takes any.
    pub(crate) fn writer<'t>(&self, topology: &'t Topology) -> Option<&'t Member> {
        if topology.writers.len() < 2 {
            return topology.primary();
        }
        let writer = topology.writer_of(self.own_writes.writer(), self.control.id)?;
        self.own_writes.go_to(writer.server.id());
        Some(writer)
    }

    pub(crate) fn is_writer(&self, topology: &Topology, server: &Server) -> bool {
        self.writer(topology)
            .is_some_and(|writer| writer.server.id() == server.id())
    }

    /// Whether this one of those that take the session's writes has all of them.
    pub(crate) fn has_own_writes(&self, server: &Server) -> bool {
        self.own_writes.are_on(server.id()) || self.read_consistency() == config::ReadConsistency::Eventual
    }

    /// The last statement has ended: what it has written is on this server. What a rule or a hint has written
    /// anywhere else reaches the others in groups alone, where all apply all.
    pub(crate) fn note_written(&mut self) {
        let Some(leased) = self.lease.as_ref().filter(|_| self.session.has_just_written()) else {
            return;
        };
        let applies_all = matches!(
            self.pool().config().topology,
            config::Topology::Galera | config::Topology::GroupReplication
        );
        if leased.is_primary || applies_all {
            self.own_writes.note_on(leased.connection.server.id());
        }
    }

    /// How fresh a read must be: a rule's word, the session's own, the account's, the listener's.
    pub(crate) fn read_consistency(&self) -> config::ReadConsistency {
        let rule = self.rules.read_consistency();
        let said = rule.or(self.own_writes.said_consistency());
        said.or(self.client.account.user.config.read_consistency)
            .unwrap_or(self.context.listener.config.read_consistency)
    }
}

/// What the sessions of one worker share of a cluster.
pub(crate) struct WorkerCluster {
    pub(crate) pool: Rc<Pool<Held>>,
    pub(crate) read_index: ReadIndex,
    pub(crate) pipelines: Pipelines,
    pub(crate) makers: Makers,
    pub(crate) vain_waits: VainWaits,
    /// Held by whoever asks a server whether an account may `KILL`.
    pub(crate) kill_question: tokio::sync::Mutex<()>,
    /// How long servers take to answer, where reads are balanced by that; times are counted from `born`.
    answers: RefCell<HashMap<ServerId, PeakEwma>>,
    born: Instant,
    /// As it was at the last choice: whether answers are to be timed.
    pub(crate) by_latency: Cell<bool>,
    /// With what words a server has refused a write last.
    pub(crate) refusal: RefCell<Box<str>>,
    /// When it was said last that the primary takes no writes.
    pub(crate) refusal_said: Cell<Option<tokio::time::Instant>>,
    /// What sessions begin with, of which there are few: one allocation each.
    common: RefCell<Vec<Rc<PortableState>>>,
    common_trackers: RefCell<Vec<Rc<ClientTrackers>>>,
    common_keys: RefCell<Vec<Rc<Key>>>,
    housekeeping: AbortHandle,
}

/// Beginnings of sessions that are kept in common; a schema each, as a rule.
const COMMON_MAX: usize = 64;

impl Split {
    /// Whether the server has just refused a write because it takes none, in which words.
    pub(crate) fn note_refusal(&mut self, refusal: Option<Box<ErrPacket>>) {
        self.statement.took_no_writes = refusal.is_some();
        if let Some(refusal) = refusal {
            *self.context.cluster.refusal.borrow_mut() = String::from_utf8_lossy(&refusal.message).into();
        }
    }
}

impl WorkerCluster {
    /// A server has answered.
    pub(crate) fn note_answer(&self, server: ServerId, took: Duration) {
        let now = self.now_us();
        self.answers
            .borrow_mut()
            .entry(server)
            .or_default()
            .note(took, now);
    }

    /// How long each server is expected to take now, in microseconds; 0 where that is not known.
    pub(crate) fn expected_us(&self, server: ServerId) -> u64 {
        let answers = self.answers.borrow();
        answers
            .get(&server)
            .map_or(0, |answers| answers.expected_us(self.now_us()))
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Has a session that has just begun share its state with others that begin so.
    pub(crate) fn share(&self, session: &mut session::Session) {
        let carried = in_common(&self.common, Rc::clone(session.carried()));
        session.share_carried(&carried);
        let trackers = in_common(&self.common_trackers, Rc::clone(session.initial_trackers()));
        session.share_trackers(&trackers);
    }

    /// The key that others with the same use.
    pub(crate) fn share_key(&self, key: Key) -> Rc<Key> {
        in_common(&self.common_keys, Rc::new(key))
    }
}

/// What was there before and is equal, or this for those who come later.
fn in_common<T: PartialEq>(common: &RefCell<Vec<Rc<T>>>, own: Rc<T>) -> Rc<T> {
    let mut common = common.borrow_mut();
    if let Some(known) = common.iter().find(|known| **known == own) {
        return Rc::clone(known);
    }
    if common.len() < COMMON_MAX {
        common.push(Rc::clone(&own));
    }
    own
}

impl Drop for WorkerCluster {
    fn drop(&mut self) {
        self.housekeeping.abort();
    }
}

/// The pools of one worker, one a cluster.
#[derive(Default)]
pub(crate) struct Pools {
    by_cluster: RefCell<HashMap<u32, Rc<WorkerCluster>>>,
}

impl Pools {
    /// That of a listener's cluster, made at its first use.
    pub(crate) fn of(&self, listener: &ListenerState, metrics: &Arc<telemetry::Worker>) -> Rc<WorkerCluster> {
        self.of_cluster(&(listener.cluster_serial, Arc::clone(&listener.cluster)), metrics)
    }

    /// That of any cluster, likewise.
    pub(crate) fn of_cluster(
        &self,
        (serial, cluster): &NumberedCluster,
        metrics: &Arc<telemetry::Worker>,
    ) -> Rc<WorkerCluster> {
        let mut by_cluster = self.by_cluster.borrow_mut();
        let shared = by_cluster.entry(*serial).or_insert_with(|| {
            let (metrics, of) = (Arc::clone(metrics), Arc::clone(cluster));
            let pool = Pool::new(Arc::clone(cluster), move |opened| {
                lease::held(&metrics, &of, opened)
            });
            let housekeeping = spawn_local(Rc::clone(&pool).run()).abort_handle();
            Rc::new(WorkerCluster {
                pool,
                read_index: ReadIndex::default(),
                pipelines: Pipelines::default(),
                makers: Makers::default(),
                vain_waits: VainWaits::default(),
                kill_question: tokio::sync::Mutex::default(),
                answers: RefCell::default(),
                born: Instant::now(),
                by_latency: Cell::new(false),
                refusal: RefCell::default(),
                refusal_said: Cell::new(None),
                common: RefCell::default(),
                common_trackers: RefCell::default(),
                common_keys: RefCell::default(),
                housekeeping,
            })
        });
        Rc::clone(shared)
    }

    /// Forgets a cluster that is no longer in the configuration, once its last session is gone.
    pub(crate) fn forget(&self, cluster_serial: u32) {
        self.by_cluster.borrow_mut().remove(&cluster_serial);
    }
}
