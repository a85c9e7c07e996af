//! The state of a session of mode `split`.

use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;

use mysql_wire::{ErrPacket, StatusFlags};
use session::{Pin, PinReason};
use sql_class::Dialect;
use upstream::{Member, Pool, Server, ServerId, Topology};

use crate::control::{Control, Signal};
use crate::engine::binding::Binding;
use crate::engine::connection_state::ConnectionState;
use crate::engine::generated_ids;
use crate::engine::identity::Identity;
use crate::engine::kept_variables::KeptVariables;
use crate::engine::last_error::LastError;
use crate::engine::leased::LeasedConnection;
use crate::engine::lookup::session_lookups::SessionLookups;
use crate::engine::metrics::{AtPrimary, SplitMetrics};
use crate::engine::own_writes::OwnWrites;
use crate::engine::prepared::client_statements::ClientStatements;
use crate::engine::replay::kept::Replay;
use crate::engine::rules::session_rules::SessionRules;
use crate::engine::shape::Shape;
use crate::engine::statement::Statement;
use crate::engine::worker_cluster::WorkerCluster;
use crate::error::{During, SessionError};
use crate::frontend::listener_state::ListenerState;
use crate::frontend::worker::Worker;
use crate::hand_over::Stays;
use crate::lookups::LookupMetrics;
use crate::relay::{RelayError, Streams};
use crate::session_end::{as_error, signal_as_error};

/// Whether a session stands in line where a server has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    InLine,
    /// There are other servers to ask first.
    NotInLine,
}

/// The state of a logged-in session in mode `split` that outlives a command.
pub(crate) struct ClientSession {
    pub(crate) control: Rc<Control>,
    pub(crate) context: Context,
    pub(crate) client: Box<Identity>,
    /// The server's side is detached while nothing is leased.
    pub(crate) streams: Streams,
    pub(crate) lease: Option<LeasedConnection>,
    pub(crate) binding: Binding,
    pub(crate) state: session::Session,
    pub(crate) own_writes: OwnWrites,
    pub(crate) prepared: ClientStatements,
    pub(crate) rules: SessionRules,
    pub(crate) lookups: Option<Box<SessionLookups>>,
    /// The open transaction, so that it can be executed again: with `transaction_replay`.
    pub(crate) replay: Option<Box<Replay>>,
    /// The command under way.
    pub(crate) statement: Statement,
    pub(crate) last: LastStatement,
    pub(crate) answer: AnswerState,
}

/// The listener by which the session came in, and what it shares with others there.
pub(crate) struct Context {
    pub(crate) worker: Rc<Worker>,
    pub(crate) listener: Arc<ListenerState>,
    pub(crate) cluster: Rc<WorkerCluster>,
    pub(crate) metrics: Arc<SplitMetrics>,
}

impl Context {
    pub(crate) fn lookup_metrics(&self) -> &LookupMetrics {
        &self.worker.shared.lookup_metrics[self.worker.index]
    }
}

/// The state that an answer to the client has to fit.
pub(crate) struct AnswerState {
    /// The status that a server last reported.
    pub(crate) status: StatusFlags,
    /// The sequence number an error has now, or `None` where the protocol has no place for one.
    pub(crate) error_sequence: Option<u8>,
    pub(crate) shape: Shape,
}

impl AnswerState {
    /// Begins anew after an answer that was given up, with its connection.
    pub(crate) fn begin_anew(&mut self, client: &Identity) {
        self.shape = Shape::new(client.key.capabilities, client.capabilities);
    }
}

/// The traces that the session's last statement has left with the gateway.
#[derive(Default)]
pub(crate) struct LastStatement {
    /// The server that had the statement, for the log.
    pub(crate) server: Option<Arc<Server>>,
    /// How many statements the session has had executed.
    pub(crate) turn: u32,
    /// The last statement in whose answer there was an id that nothing in it could have given, and that id,
    /// while it is not known that the server has made it.
    pub(crate) generated: Option<(generated_ids::Key, NonZeroU64)>,
    /// The reason why the statement of a `turn` went where it went, if the client has asked for that. Each
    /// statement drops that of the one before when it begins: a statement that reaches no server has no turn.
    pub(crate) explain_warning: Option<Box<ExplainWarning>>,
    /// The error that the client was told last, where that may be raised again.
    pub(crate) error: Option<Box<LastError>>,
    /// The session's user variables, where it has left its connection with them.
    pub(crate) kept_variables: Option<Box<KeptVariables>>,
}

/// The words that say why a statement went where it went. Few sessions have some, and the others have room
/// for a pointer.
pub(crate) struct ExplainWarning {
    pub(super) words: Box<str>,
    /// [`LastStatement::turn`] when the statement was over. After a reset or a change of the user the session
    /// has another turn, and nothing is shown.
    pub(super) turn: u32,
}

/// A command that was not executed. The client is told, and the session goes on.
pub(crate) struct Refused(pub(crate) SessionError);

impl Drop for ClientSession {
    fn drop(&mut self) {
        if self.binding.uncount() {
            self.metrics().pinned.dec();
        }
        self.context.cluster.leavers.remove(&self.control);
    }
}

impl ClientSession {
    /// The session keeps its connection from here on. The first reason counts.
    pub(crate) fn keep_connection(&mut self, reason: PinReason, digest: u64) {
        self.binding.bind_for(Pin {
            reason,
            digest,
            since_ms: self.context.worker.now_ms(),
        });
    }

    /// The reasons why the session holds its connection, for those who look at it.
    pub(crate) fn shown_pins(&self) -> impl Iterator<Item = &Pin> {
        self.state.pins().iter().chain(self.binding.reasons())
    }

    /// Whether nothing is lost when the session ends here, between two commands.
    pub(crate) fn is_free(&self) -> bool {
        !self.answer.status.contains(StatusFlags::IN_TRANS)
    }

    /// Whether nothing that is under way keeps the session from going to another process now. To be asked
    /// between two commands.
    pub(crate) fn is_at_rest(&self) -> bool {
        if !self.is_free() || self.state.in_transaction() {
            self.control.stays(Stays::Transaction);
            return false;
        }
        self.streams.up.is_at_rest() && self.streams.down.is_at_rest()
    }

    /// Whether the session is to go to another server now: its own drains, or has too many sessions.
    #[inline]
    pub(crate) fn is_to_move(&self) -> bool {
        let leased = self.lease.as_ref().filter(|_| self.binding.is_own());
        leased.is_some_and(|leased| self.is_to_leave(&leased.connection.server))
            && self.may_move()
            && self.context.worker.moves.has_turn(&self.control)
    }

    #[inline]
    fn is_to_leave(&self, server: &Server) -> bool {
        let may_even_out = || !self.binding.rests(self.context.worker.now_ms());
        server.is_draining() || (server.has_tickets() || self.is_elsewhere(server)) && may_even_out()
    }

    /// Whether servers with the label of the session's listener should have it, this server is none of them,
    /// and the session may go to one now.
    #[inline]
    pub(crate) fn is_elsewhere(&self, server: &Server) -> bool {
        let listener = &self.context.listener;
        let label = listener.config.label.as_deref();
        label.is_some_and(|label| !server.has_label(label) && listener.cluster.has_label_turn())
    }

    /// Whether the session goes to another server in the place of coming to its end.
    pub(crate) fn may_move_instead(&self, signal: Signal) -> bool {
        signal == Signal::Drain && self.lease.is_some() && self.may_move()
    }

    /// Whether nothing holds the session on its server between two commands, as far as is known.
    fn may_move(&self) -> bool {
        self.binding.may_try_to_move(self.context.worker.now_ms())
            && (self.state.may_move() || self.binding.moves_by_session_states())
            && self.is_free()
            && !self.control.is_aimed_at()
    }

    /// The status in an answer of our own: the flags that last, without those of the last statement.
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

    /// The dialect of SQL that the cluster speaks.
    pub(crate) fn dialect(&self) -> Dialect {
        self.state.syntax().dialect
    }

    pub(crate) fn metrics(&self) -> &SplitMetrics {
        &self.context.metrics
    }

    /// Notes that a read goes to the primary that might have gone to a replica.
    pub(crate) fn note_at_primary(&self, why: AtPrimary) {
        self.metrics().at_primary(why);
        self.statement.at_primary.set(Some(why));
    }

    pub(crate) fn pool(&self) -> &Rc<Pool<ConnectionState>> {
        &self.context.cluster.pool
    }

    pub(crate) fn server_name(&self) -> &str {
        match (&self.lease, &self.last.server) {
            (Some(leased), _) => leased.connection.server.name(),
            (None, Some(server)) => server.name(),
            (None, None) => "",
        }
    }

    /// The error for a leased connection that has refused something that the gateway has asked for.
    pub(crate) fn state_refused(&self, packet: ErrPacket) -> Refused {
        let server = self.server_name().to_owned();
        Refused(SessionError::StateRefused { server, packet })
    }

    /// The error for a conversation on the leased connection that has come to nothing.
    pub(crate) fn not_answered(&self, cause: String) -> Refused {
        let server = self.server_name().to_owned();
        Refused(SessionError::ServerLogin { server, cause })
    }

    /// The error for a connection that the session's server has ended.
    pub(crate) fn server_gone(&self, during: During) -> SessionError {
        let server = self.server_name().to_owned();
        SessionError::ServerGone { server, during }
    }

    /// The error for an exchange that did not come to its end.
    pub(crate) fn broken(&self, broken: RelayError) -> SessionError {
        let mut error = as_error(
            broken,
            self.server_name(),
            &self.context.listener,
            During::Command,
        );
        if let SessionError::StatementTimeout { mariadb } = &mut error {
            *mariadb = self.state.syntax().dialect.is_mariadb();
        }
        error
    }

    pub(crate) fn signalled(&self, signal: Signal) -> SessionError {
        match signal {
            Signal::WaitTimeout => SessionError::WaitTimeout {
                is_told: self.client.profile.tells_silent_clients(),
            },
            signal => signal_as_error(signal, self.server_name(), &self.context.listener),
        }
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

    /// Whether this server, one of those that take the session's writes, has all of them.
    pub(crate) fn has_own_writes(&self, server: &Server) -> bool {
        self.own_writes.are_on(server.id()) || self.read_consistency() == config::ReadConsistency::Eventual
    }

    /// The server that has all that the session has written, once its last statement has ended and if that
    /// has written. Writes that a rule or a hint has sent anywhere else reach the others in groups alone,
    /// where all apply all.
    pub(crate) fn written_on(&self) -> Option<ServerId> {
        let leased = self.lease.as_ref().filter(|_| self.state.has_just_written())?;
        let applies_all = matches!(
            self.pool().config().topology,
            config::Topology::Galera | config::Topology::GroupReplication
        );
        (leased.is_primary || applies_all).then(|| leased.connection.server.id())
    }

    /// How fresh a read must be: a rule's word, the session's own, the account's, the listener's.
    pub(crate) fn read_consistency(&self) -> config::ReadConsistency {
        let rule = self.rules.read_consistency();
        let said = rule.or(self.own_writes.said_consistency());
        said.or(self.client.account.user.config.read_consistency)
            .unwrap_or(self.context.listener.config.read_consistency)
    }
}
