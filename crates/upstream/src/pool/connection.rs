//! A server connection that sessions share, and what is known of it.

use std::fmt;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use config::Secret;
use mysql_wire::{Capabilities, Command, PacketHeader, StatusFlags};
use net::Stream;
use tokio::io::AsyncWrite;

use super::metrics::{Closed, Metrics};
use super::setup;
use crate::conversation::ask;
use crate::login;
use crate::permit::Permit;
use crate::server::Server;

/// What cannot be changed on a live connection, and so must be the same for all sessions that share it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Whom the server takes us for.
    pub user: Arc<str>,
    /// As the [`Credential`]'s.
    pub account: u64,
    /// What the client asked for, of what is passed on. The pool adds what it needs itself.
    pub capabilities: Capabilities,
    /// Low byte of the collation id in the login.
    pub collation: u8,
}

/// Whom to log in as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    pub user: Arc<str>,
    /// Tells accounts apart that have one name, each for clients of other hosts; 0 where there is one of that
    /// name.
    pub account: u64,
    /// What proves it.
    pub secret: CredentialSecret,
}

/// What proves an account.
#[derive(Clone, PartialEq, Eq)]
pub enum CredentialSecret {
    /// The password; empty for none.
    Password(Secret),
    /// `SHA1(password)`: good for accounts with `mysql_native_password` only.
    NativeStage1([u8; 20]),
}

/// Variables and their values, in the order in which they can be set.
pub type Baseline = Vec<(Vec<u8>, Vec<u8>)>;

/// What is known of a connection once it is open, and does not change after that.
#[derive(Debug)]
pub struct Opened {
    pub server: Arc<Server>,
    /// What it was opened for.
    pub key: Rc<Key>,
    /// What both sides agreed on; SESSION_TRACK and DEPRECATE_EOF are always among it.
    pub capabilities: Capabilities,
    /// The server's number for it: what `CONNECTION_ID()` says there.
    pub thread_id: u32,
    /// When its login began: the server has judged the account at no earlier moment.
    pub login_began: Instant,
    /// The server's version as in its greeting.
    pub version: Vec<u8>,
    /// Of the login's OK packet.
    pub status: StatusFlags,
    /// What variables have on it before any session has used it, where that need not be their DEFAULT.
    /// Connections whose values are equal share one, as a rule.
    pub baseline: Rc<Baseline>,
    /// The commands that switch the trackers on, and those of `pool.init`.
    pub(super) setup: setup::Setup,
}

impl Opened {
    /// Whether the server is MariaDB, as opposed to MySQL and what is made of it.
    #[must_use]
    pub fn is_mariadb(&self) -> bool {
        is_mariadb(&self.version)
    }

    /// The statement that switches the trackers on, and changes nothing else.
    #[must_use]
    pub fn trackers(&self) -> &str {
        self.setup.trackers()
    }
}

/// A connection to a server, leased to a session. Dropping it closes it and frees its permit; to be used
/// again it must be [given back](super::Pool::give_back), with nothing left to read.
///
/// One allocation for as long as the connection lives: from hand to hand goes a pointer.
pub struct Connection<S>(pub(super) Box<Parts<S>>);

/// What a [`Connection`] is made of.
pub struct Parts<S> {
    /// The bytes. Between commands when it is leased.
    pub stream: Stream,
    /// What the owner of the pool keeps with it.
    pub state: S,
    /// What is known of it; also by dereferencing.
    pub opened: Rc<Opened>,
    pub(super) life: Life,
}

/// The part of a connection that counts: when it goes, the connection is counted as closed.
pub(super) struct Life {
    pub(super) metrics: Arc<Metrics>,
    pub(super) born: Instant,
    /// When it was leased or given back last.
    pub(super) since: Instant,
    pub(super) origin: Origin,
    /// The server's doubts when it was seen to work last.
    pub(super) doubts: u32,
    pub(super) busy: bool,
    /// The look at the pool's size before which it was leased: see [`Metrics::lent`].
    pub(super) look: u64,
    /// Statements that are executed in its lease.
    pub(super) statements: u32,
    /// On its way to another worker.
    pub(super) away: bool,
    /// The worker in whose share it is: see [`Shares`](super::shares::Shares).
    pub(super) share_of: u64,
    pub(super) reason: Closed,
    pub(super) permit: Option<Permit>,
}

/// As what a connection was opened.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    /// Of the configuration.
    pub(super) terms: u64,
    pub(super) generation: u32,
    /// Where the server was; `None` for a Unix socket.
    pub(super) peer: Option<SocketAddr>,
    /// The server's number of moves when it was still there.
    pub(super) moves: u32,
}

/// A connection that nobody uses.
pub(super) struct Idle<S>(pub(super) Box<Parts<S>>);

impl<S> Deref for Connection<S> {
    type Target = Parts<S>;

    #[inline]
    fn deref(&self) -> &Parts<S> {
        &self.0
    }
}

impl<S> DerefMut for Connection<S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Parts<S> {
        &mut self.0
    }
}

impl<S> Deref for Idle<S> {
    type Target = Parts<S>;

    #[inline]
    fn deref(&self) -> &Parts<S> {
        &self.0
    }
}

impl<S> DerefMut for Idle<S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Parts<S> {
        &mut self.0
    }
}

impl<S> Deref for Parts<S> {
    type Target = Opened;

    #[inline]
    fn deref(&self) -> &Opened {
        &self.opened
    }
}

impl<S> Connection<S> {
    /// COM_RESET_CONNECTION, and everything as it was when it was opened: trackers on, `pool.init` run, the
    /// baseline's values set. What the owner keeps in [`state`](Parts::state) is its own business. After an
    /// error the connection is of no use.
    ///
    /// # Errors
    /// In words for a person.
    pub async fn reset(&mut self, limit: Duration) -> Result<(), String> {
        let capabilities = self.opened.capabilities;
        let mut commands = vec![vec![Command::RESET_CONNECTION.0]];
        commands.extend(self.opened.setup.again(capabilities, &self.opened.baseline));
        let asking = ask(&mut self.0.stream, capabilities, &commands);
        let asked = tokio::time::timeout(limit, asking).await;
        let replies = asked.map_err(|_| format!("no answer within {limit:?}"))?;
        let replies = replies.map_err(|broken| broken.to_string())?;
        let done = replies.iter().try_for_each(|reply| reply.done(capabilities));
        done.map_err(|error| error.to_string())
    }

    /// Switches the trackers on, once a COM_RESET_CONNECTION or a COM_CHANGE_USER has switched them off, and
    /// says what variables have then. For a connection that is one session's alone: `pool.init` is not run,
    /// and nothing is set. After an error the connection is of no use.
    ///
    /// # Errors
    /// In words for a person.
    pub async fn watch(&mut self, limit: Duration) -> Result<Baseline, String> {
        let capabilities = self.opened.capabilities;
        let setup = self.opened.setup.clone();
        match tokio::time::timeout(limit, setup.begin(&mut self.0.stream, capabilities, &[])).await {
            Ok(watched) => watched.map_err(|(what, error)| format!("statement `{what}`: {error}")),
            Err(_) => Err(format!("no answer within {limit:?}")),
        }
    }

    /// Closes it in an orderly way, between two commands. The permit is free for the next.
    pub fn quit(self) {
        drop(self.into_idle().close(Closed::Dropped));
    }

    /// So many statements of sessions are executed in this lease, where it is not one.
    pub fn note_statements(&mut self, count: u32) {
        self.0.life.statements = count;
    }

    /// Closes it, because its server has said something that nobody has asked for.
    pub fn close_as_broken(mut self) {
        self.0.life.reason = Closed::Broken;
    }

    pub(super) fn into_idle(self) -> Idle<S> {
        Idle(self.0)
    }
}

impl<S> fmt::Debug for Connection<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("server", &self.opened.server.name())
            .field("thread_id", &self.opened.thread_id)
            .field("user", &self.opened.key.user)
            .finish_non_exhaustive()
    }
}

impl<S> Idle<S> {
    pub(super) async fn answers(&mut self, limit: Duration) -> bool {
        let capabilities = self.opened.capabilities;
        let ping = [vec![Command::PING.0]];
        let asking = ask(&mut self.0.stream, capabilities, &ping);
        let asked = tokio::time::timeout(limit, asking).await;
        asked.is_ok_and(|asked| {
            asked.is_ok_and(|replies| replies.iter().all(|reply| reply.outcome.error.is_none()))
        })
    }

    /// Closes it in an orderly way, and says why for the metrics. The permit is the caller's.
    pub(super) fn close(mut self, reason: Closed) -> Option<Permit> {
        self.life.reason = reason;
        self.say_quit();
        self.life.permit.take()
    }

    /// A server counts connections that end without COM_QUIT as aborted. One attempt: a socket without room
    /// is not waited for.
    fn say_quit(&mut self) {
        let quit = [1, 0, 0, 0, Command::QUIT.0];
        debug_assert_eq!(quit.len(), PacketHeader::LEN + 1);
        let mut cx = Context::from_waker(Waker::noop());
        if self.stream.begin_command().is_ok() {
            let _ = Pin::new(&mut self.stream).poll_write(&mut cx, &quit);
            let _ = Pin::new(&mut self.stream).poll_flush(&mut cx);
        }
    }
}

impl Life {
    /// Of a connection that has just been opened, and is idle as yet.
    pub(super) fn new(metrics: Arc<Metrics>, permit: Permit, now: Instant, origin: Origin) -> Self {
        metrics.opened.inc();
        metrics.idle.inc();
        metrics.server.wait_queue.note_opened(metrics.pool);
        Self {
            away: false,
            share_of: metrics.pool,
            metrics,
            born: now,
            since: now,
            origin,
            doubts: permit.server().doubts(),
            busy: false,
            look: 0,
            statements: 0,
            reason: Closed::Dropped,
            permit: Some(permit),
        }
    }

    pub(super) fn begin_lease(&mut self, now: Instant) {
        debug_assert!(!self.busy);
        self.busy = true;
        self.since = now;
        self.reason = Closed::Dropped;
        self.statements = 1;
        self.metrics.idle.dec();
        self.metrics.busy.inc();
        self.look = self.metrics.lent();
    }

    pub(super) fn end_lease(&mut self, now: Instant) {
        debug_assert!(self.busy);
        self.metrics
            .lease_seconds
            .record(now.saturating_duration_since(self.since));
        self.busy = false;
        self.since = now;
        self.metrics.busy.dec();
        self.metrics.idle.inc();
        self.metrics.returned(self.look);
        self.metrics.done.add(self.statements.into());
    }

    /// Leaves its worker, idle.
    pub(super) fn depart(&mut self) {
        debug_assert!(!self.busy);
        self.away = true;
        self.metrics.idle.dec();
    }

    /// Arrives on the worker of `series`.
    pub(super) fn arrive(&mut self, metrics: Arc<Metrics>) {
        self.away = false;
        self.metrics = metrics;
        self.metrics.idle.inc();
        self.metrics.moved_in.inc();
    }

    /// Ends with a reason. The permit is the caller's.
    pub(super) fn end(mut self, reason: Closed) -> Option<Permit> {
        self.reason = reason;
        self.permit.take()
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.metrics.server.wait_queue.note_closed(self.share_of);
        if self.away {
            // What counts belongs to other threads.
            return;
        }
        if self.busy {
            self.metrics.busy.dec();
            self.metrics.returned(self.look);
        } else {
            self.metrics.idle.dec();
        }
        self.metrics.closed[self.reason as usize].inc();
    }
}

impl Credential {
    #[must_use]
    pub fn account_to_log_in(&self) -> login::Account<'_> {
        login::Account {
            user: self.user.as_bytes(),
            secret: match &self.secret {
                CredentialSecret::Password(password) => login::Secret::Password(password.reveal().as_bytes()),
                CredentialSecret::NativeStage1(stage1) => login::Secret::NativeStage1(stage1),
            },
        }
    }
}

impl fmt::Debug for CredentialSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

pub(crate) fn is_mariadb(version: &[u8]) -> bool {
    version.starts_with(b"5.5.5-")
        || version
            .windows(7)
            .any(|word| word.eq_ignore_ascii_case(b"mariadb"))
}

/// Up to a tenth less than `max_age`, by the connection's number: those that were opened together do not end
/// together.
pub(super) fn lifetime(max_age: Duration, thread_id: u32) -> Duration {
    const PARTS: u32 = 1000;
    max_age - max_age / PARTS * (thread_id % (PARTS / 10 + 1))
}
