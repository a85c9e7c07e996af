//! The ties of a session to its server connection beyond those that `session::Session` knows, and whether the
//! session is counted among those that hold one.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use session::Pin;
use telemetry::ServerMetrics;
use upstream::Credential;

use crate::engine::packed_credential::PackedCredential;
use crate::engine::worker_cluster::FirstValues;

/// Whether the connection is the session's own until it is reset.
#[derive(Default)]
pub(crate) struct Binding {
    /// Set for a session that has a server connection for itself: mode `session`.
    own: Option<Box<Own>>,
    is_for_good: bool,
    /// The reason, where the session itself does not know it. Boxed: few sessions have one.
    reason: Option<Box<Pin>>,
    is_counted: bool,
}

/// A connection on which its session has logged in by itself, or one that has taken its place.
struct Own {
    on_server: OnServer,
    /// `None` where the session stays on its server, whatever becomes of that.
    moves: Option<Moves>,
    needs_priming: bool,
    /// The connection's server reports nothing of what the session does.
    is_unwatched: bool,
}

/// The moves of a session that may go to another server.
#[derive(Default)]
struct Moves {
    /// Time of the next try to move, in the worker's milliseconds.
    next_try_ms: u64,
    /// Time before which the session does not move for the sake of balance.
    rests_until_ms: u64,
    /// The reason why the last try came to nothing.
    failure: Option<Pin>,
    /// The credential with which the client has logged in, where that is known.
    shown: Option<Credential>,
    /// The values that the session's variables have if it has not set them since, as far as they are known.
    began_with: Option<Rc<FirstValues>>,
    /// The connection was lost with a read, which is to be taken up again.
    is_lost: bool,
}

/// A [`Binding`] on its way to another process.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PackedBinding {
    own: Option<PackedOwn>,
    is_for_good: bool,
    reason: Option<Pin>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PackedOwn {
    moves: Option<PackedMoves>,
    needs_priming: bool,
    is_unwatched: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PackedMoves {
    shown: Option<PackedCredential>,
    began_with: Option<Rc<FirstValues>>,
}

impl PackedBinding {
    /// See [`Session::set_clock`](session::Session::set_clock).
    pub(crate) fn set_clock(&mut self, there: u64, here: u64) {
        self.reason = self.reason.map(|pin| pin.by_clock(there, here));
    }
}

impl Binding {
    /// The binding of a session that has a server connection for itself.
    pub(crate) fn own(server: &Arc<ServerMetrics>) -> Self {
        let own = Own {
            on_server: OnServer::new(server),
            moves: None,
            needs_priming: false,
            is_unwatched: false,
        };
        Self {
            own: Some(Box::new(own)),
            ..Self::default()
        }
    }

    /// The binding as another process has to know it, which goes on with the session on the same connection.
    pub(crate) fn pack(&self) -> PackedBinding {
        let own = self.own.as_ref().map(|own| PackedOwn {
            moves: own.moves.as_ref().map(|moves| PackedMoves {
                shown: moves.shown.as_ref().map(PackedCredential::of),
                began_with: moves.began_with.clone(),
            }),
            needs_priming: own.needs_priming,
            is_unwatched: own.is_unwatched,
        });
        PackedBinding {
            own,
            is_for_good: self.is_for_good,
            reason: self.reason.as_deref().copied(),
        }
    }

    /// The binding in the other process. `server`: the metrics in which the session is counted from here on.
    pub(crate) fn unpack(packed: PackedBinding, server: &Arc<ServerMetrics>) -> Self {
        let own = packed.own.map(|own| {
            let moves = own.moves.map(|moves| Moves {
                shown: moves.shown.map(PackedCredential::into_credential),
                began_with: moves.began_with,
                ..Moves::default()
            });
            Box::new(Own {
                on_server: OnServer::new(server),
                moves,
                needs_priming: own.needs_priming,
                is_unwatched: own.is_unwatched,
            })
        });
        Self {
            own,
            is_for_good: packed.is_for_good,
            reason: packed.reason.map(Box::new),
            is_counted: false,
        }
    }

    /// Whether the session has one connection for itself at any time.
    #[inline]
    pub(crate) fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Lets the session leave its own connection for one on another server. `shown`: the credential with
    /// which its client has logged in, where that is known.
    pub(crate) fn may_move(&mut self, shown: Option<Credential>) {
        if let Some(own) = &mut self.own {
            own.moves = Some(Moves {
                shown,
                ..Moves::default()
            });
        }
    }

    /// The credential with which the client has logged in, where that is known.
    pub(crate) fn shown(&self) -> Option<&Credential> {
        self.moves()?.shown.as_ref()
    }

    #[inline]
    fn moves(&self) -> Option<&Moves> {
        self.own.as_ref()?.moves.as_ref()
    }

    fn moves_mut(&mut self) -> Option<&mut Moves> {
        self.own.as_mut()?.moves.as_mut()
    }

    /// Notes the credential with which the client has logged in anew.
    pub(crate) fn has_shown(&mut self, shown: Option<Credential>) {
        if let Some(moves) = self.moves_mut() {
            moves.shown = shown;
        }
    }

    /// Notes the values that the session's variables begin with, which let it go on without the connection
    /// that it has.
    pub(crate) fn remember(&mut self, values: Option<Rc<FirstValues>>) {
        if let Some(moves) = self.moves_mut() {
            moves.began_with = values;
        }
    }

    /// See [`remember`](Self::remember).
    pub(crate) fn began_with(&self) -> Option<&Rc<FirstValues>> {
        self.moves()?.began_with.as_ref()
    }

    /// Whether the session may ever leave its own connection, be it not now.
    #[inline]
    pub(crate) fn moves_at_all(&self) -> bool {
        self.moves().is_some()
    }

    /// Notes that the connection is lost, and with it a read, which is in the flow once more.
    pub(crate) fn note_lost(&mut self) {
        if let Some(moves) = self.moves_mut() {
            moves.is_lost = true;
        }
    }

    /// See [`note_lost`](Self::note_lost).
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.moves().is_some_and(|moves| moves.is_lost)
    }

    /// Notes that the server of the session's own connection reports nothing of what the session does.
    pub(crate) fn is_not_watched(&mut self) {
        if let Some(own) = &mut self.own {
            own.is_unwatched = true;
        }
    }

    /// See [`is_not_watched`](Self::is_not_watched).
    pub(crate) fn is_unwatched(&self) -> bool {
        self.own.as_ref().is_some_and(|own| own.is_unwatched)
    }

    /// Whether the server itself says what the session holds, when that is to move: TiDB.
    #[inline]
    pub(crate) fn moves_by_session_states(&self) -> bool {
        self.is_unwatched() && self.moves_at_all()
    }

    /// Keeps the session on its own connection from here on.
    pub(crate) fn stays(&mut self) {
        if let Some(own) = &mut self.own {
            own.moves = None;
        }
    }

    /// Whether the session may leave its own connection now, as far as nothing else holds it there.
    #[inline]
    pub(crate) fn may_try_to_move(&self, now_ms: u64) -> bool {
        self.moves().is_some_and(|moves| now_ms >= moves.next_try_ms) && !self.is_for_good
    }

    /// Whether the session has moved for the sake of balance not long ago, or could not.
    pub(crate) fn rests(&self, now_ms: u64) -> bool {
        self.moves().is_none_or(|moves| now_ms < moves.rests_until_ms)
    }

    /// Has the session [rest](Self::rests) for so long from here on.
    pub(crate) fn rests_for(&mut self, pause: Duration, now_ms: u64) {
        if let Some(moves) = self.moves_mut() {
            moves.rests_until_ms = now_ms + pause.as_millis() as u64;
        }
    }

    /// Notes that the session could not move, and that it is not tried before `next_try_ms`.
    pub(crate) fn move_failed(&mut self, failure: Pin, next_try_ms: u64) {
        if let Some(moves) = self.moves_mut() {
            moves.next_try_ms = next_try_ms;
            moves.failure = Some(failure);
        }
    }

    /// Notes that the session has moved to this server, on which it is counted from here on.
    pub(crate) fn moved(&mut self, server: &Arc<ServerMetrics>) {
        if let Some(own) = &mut self.own {
            own.on_server = OnServer::new(server);
        }
        if let Some(moves) = self.moves_mut() {
            (moves.next_try_ms, moves.failure, moves.is_lost) = (0, None, false);
        }
    }

    /// Whether the session's own connection may say something else of its last statement than the session is
    /// to be told: the gateway has asked something there, or it is another connection.
    pub(crate) fn needs_priming(&self) -> bool {
        self.own.as_ref().is_none_or(|own| own.needs_priming)
    }

    /// Notes that the connection [needs priming](Self::needs_priming) from here on.
    pub(crate) fn is_to_be_primed(&mut self) {
        if let Some(own) = &mut self.own {
            own.needs_priming = true;
        }
    }

    pub(crate) fn is_for_good(&self) -> bool {
        self.is_for_good || self.is_own()
    }

    /// Whether something has been done on the connection that only a reset takes off.
    pub(crate) fn is_bound(&self) -> bool {
        self.is_for_good
    }

    /// Keeps the session on its connection from here on, for a reason that the session knows itself or that
    /// nobody asks for: what it does there (replication) is not understood.
    pub(crate) fn bind(&mut self) {
        self.is_for_good = true;
    }

    /// Keeps the session on its connection from here on, for this reason. The first reason counts.
    pub(crate) fn bind_for(&mut self, reason: Pin) {
        self.is_for_good = true;
        self.reason.get_or_insert_with(|| Box::new(reason));
    }

    pub(crate) fn has_reason(&self) -> bool {
        self.reason.is_some()
    }

    /// Frees the session from its connection: a reset session keeps nothing.
    pub(crate) fn unbind(&mut self) {
        (self.is_for_good, self.reason) = (false, None);
    }

    /// The reasons why the session keeps its connection, beyond those that it knows itself, for those who
    /// look at it.
    pub(crate) fn reasons(&self) -> impl Iterator<Item = &Pin> {
        let failure = self.moves().and_then(|moves| moves.failure.as_ref());
        self.reason.as_deref().into_iter().chain(failure)
    }

    /// Notes that the session holds its connection over the end of a statement. True where that is news.
    pub(crate) fn count(&mut self) -> bool {
        !std::mem::replace(&mut self.is_counted, true)
    }

    /// Notes that the session holds no connection. True where it was counted as holding one.
    pub(crate) fn uncount(&mut self) -> bool {
        std::mem::take(&mut self.is_counted)
    }
}

/// Counts a session on a server until it is dropped.
pub(crate) struct OnServer(Arc<ServerMetrics>);

impl OnServer {
    pub(crate) fn new(metrics: &Arc<ServerMetrics>) -> Self {
        metrics.active.inc();
        Self(Arc::clone(metrics))
    }
}

impl Drop for OnServer {
    fn drop(&mut self) {
        self.0.active.dec();
    }
}
