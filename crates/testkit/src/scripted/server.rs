//! The scripted server.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use mysql_wire::{Capabilities, ErrPacket, Login};
use rustls::ServerConfig;
use tokio::{
    net::TcpListener,
    sync::Notify,
    task::{AbortHandle, JoinSet},
    time::timeout,
};

use super::{
    Plugin, Reply,
    link::PATIENCE,
    session::Session,
    state::Variables,
    tape::{Cuts, Tape},
};

/// How a [`Server`] behaves.
#[derive(Clone)]
pub struct ServerScript {
    /// As in the greeting.
    pub version: String,
    /// What it offers. SSL is added with `tls` and only then; a MariaDB-like server leaves LONG_PASSWORD out.
    pub capabilities: Capabilities,
    /// How everybody logs in.
    pub plugin: Plugin,
    /// How COM_CHANGE_USER logs in, where that differs.
    pub change_plugin: Option<Plugin>,
    /// Everybody's password.
    pub password: Vec<u8>,
    pub tls: Option<Arc<ServerConfig>>,
    /// Lets everybody in at once, whatever the login packet says.
    pub accepts_anyone: bool,
    /// But nobody who comes with this plugin, as TiDB does with a token that is too old.
    pub refuses_plugin: Option<&'static str>,
    /// Cuts what it writes.
    pub cuts: Option<Cuts>,
    /// What is not answered as [`Script`](super::Script) says: the first that returns something wins.
    pub special: Option<Special>,
    /// What sessions set is remembered and told, as `state.rs` says, where nothing special is answered: they
    /// begin with these variables.
    pub remembers: Option<Variables>,
}

/// Answers to requests (command byte first) that [`Script`](super::Script) does not know; None leaves them to
/// it.
pub type Special = Arc<dyn Fn(&[u8]) -> Option<Reply> + Send + Sync>;

impl Default for ServerScript {
    /// Offers all of MySQL's and MariaDB's capabilities that [`Script`](super::Script) can keep,
    /// `mysql_native_password`, password `secret`, no TLS.
    fn default() -> Self {
        Self {
            version: "8.4.0-scripted".into(),
            capabilities: Self::all_capabilities(),
            plugin: Plugin::Native,
            change_plugin: None,
            password: b"secret".to_vec(),
            tls: None,
            accepts_anyone: false,
            refuses_plugin: None,
            cuts: None,
            special: None,
            remembers: None,
        }
    }
}

impl ServerScript {
    /// All of MySQL's capabilities that [`Script`](super::Script) can keep, compression among them.
    pub fn all_capabilities() -> Capabilities {
        use Capabilities as C;
        [
            C::LONG_PASSWORD,
            C::FOUND_ROWS,
            C::LONG_FLAG,
            C::CONNECT_WITH_DB,
            C::COMPRESS,
            C::LOCAL_FILES,
            C::PROTOCOL_41,
            C::INTERACTIVE,
            C::TRANSACTIONS,
            C::SECURE_CONNECTION,
            C::MULTI_STATEMENTS,
            C::MULTI_RESULTS,
            C::PS_MULTI_RESULTS,
            C::PLUGIN_AUTH,
            C::CONNECT_ATTRS,
            C::PLUGIN_AUTH_LENENC,
            C::SESSION_TRACK,
            C::DEPRECATE_EOF,
            C::OPTIONAL_RESULTSET_METADATA,
            C::ZSTD_COMPRESSION,
            C::QUERY_ATTRIBUTES,
            C::MULTI_FACTOR,
        ]
        .into_iter()
        .fold(Capabilities(0), |all, one| all | one)
    }

    /// Turns it into a MariaDB-like server: extended capabilities in place of MySQL's own ones.
    #[must_use]
    pub fn like_mariadb(mut self) -> Self {
        use Capabilities as C;
        self.version = "11.8.0-MariaDB-scripted".into();
        let mysql_only = C::LONG_PASSWORD
            | C::OPTIONAL_RESULTSET_METADATA
            | C::ZSTD_COMPRESSION
            | C::QUERY_ATTRIBUTES
            | C::MULTI_FACTOR;
        self.capabilities = self.capabilities.without(mysql_only)
            | C::MARIADB_PROGRESS
            | C::MARIADB_STMT_BULK
            | C::MARIADB_EXTENDED_METADATA
            | C::MARIADB_CACHE_METADATA;
        self
    }
}

/// What a session showed the server.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The login packet, from TLS if there was TLS.
    pub login: Option<Login>,
    /// The session is inside TLS.
    pub encrypted: bool,
    /// It has logged in with the right password.
    pub logged_in: bool,
    /// Capabilities both sides have.
    pub negotiated: Capabilities,
    /// All requests, command byte first.
    pub requests: Vec<Vec<u8>>,
    /// All packets.
    pub tape: Tape,
    /// How it ended, once it has; empty for COM_QUIT.
    pub end: Option<String>,
}

/// A running server. Dropping it closes everything.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: AbortHandle,
}

pub(super) struct Shared {
    pub script: ServerScript,
    refusal: Mutex<Option<ErrPacket>>,
    sessions: Mutex<Vec<Seen>>,
    changed: Notify,
}

impl Server {
    /// Listens on a free loopback port. Must be called inside a tokio runtime.
    pub async fn start(script: ServerScript) -> io::Result<Self> {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), script).await
    }

    /// Listens on this address: that of a server that is gone.
    pub async fn start_at(address: SocketAddr, script: ServerScript) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            script,
            refusal: Mutex::default(),
            sessions: Mutex::default(),
            changed: Notify::new(),
        });
        let acceptor = tokio::spawn(accept(listener, Arc::clone(&shared))).abort_handle();
        Ok(Self {
            address,
            shared,
            acceptor,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What every session until now has shown, in the order of their connects. A session without a login,
    /// such as a health check, is among them.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.sessions().clone()
    }

    /// From now on this is sent in place of the greeting; None: the greeting is.
    pub fn refuse(&self, refusal: Option<ErrPacket>) {
        *self.shared.refusal.lock().unwrap_or_else(PoisonError::into_inner) = refusal;
    }

    /// Waits for a session that has ended and is the wanted one, and forgets it: in its place
    /// [`seen`](Self::seen) has an empty one. None: none comes within some seconds.
    pub async fn take(&self, wanted: impl Fn(&Seen) -> bool) -> Option<Seen> {
        self.wait_for(|| {
            let mut sessions = self.shared.sessions();
            let ended = sessions
                .iter_mut()
                .find(|seen| seen.end.is_some() && wanted(seen));
            ended.map(std::mem::take)
        })
        .await
    }

    /// Waits until `holds` for what was seen. None: it does not within some seconds.
    pub async fn wait_until(&self, holds: impl Fn(&[Seen]) -> bool) -> Option<Vec<Seen>> {
        self.wait_for(|| Some(self.seen()).filter(|seen| holds(seen)))
            .await
    }

    async fn wait_for<T>(&self, look: impl Fn() -> Option<T>) -> Option<T> {
        let wait = async {
            loop {
                let mut changed = std::pin::pin!(self.shared.changed.notified());
                changed.as_mut().enable();
                if let Some(found) = look() {
                    return found;
                }
                changed.await;
            }
        };
        timeout(PATIENCE, wait).await.ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

impl Shared {
    fn sessions(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn refusal(&self) -> Option<ErrPacket> {
        self.refusal
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn note(&self, session: usize, change: impl FnOnce(&mut Seen)) {
        change(&mut self.sessions()[session]);
        self.changed.notify_waiters();
    }
}

/// The sessions end with this task.
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut sessions = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let tape = Tape::default();
        let number = {
            let mut all = shared.sessions();
            all.push(Seen {
                tape: tape.clone(),
                ..Seen::default()
            });
            all.len() - 1
        };
        let shared = Arc::clone(&shared);
        sessions.spawn(async move {
            let end = Session {
                shared: &shared,
                number,
                tape,
            }
            .serve(stream)
            .await;
            let end = end.map_or_else(|error| error.to_string(), |()| String::new());
            shared.note(number, |seen| seen.end = Some(end));
        });
    }
}
