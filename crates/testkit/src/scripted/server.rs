//! The scripted server.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use mysql_wire::{
    Capabilities, ChangeUser, Command, ErrPacket, Greeting, Login, OkPacket, SslRequest, StatusFlags,
};
use rustls::ServerConfig;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::{AbortHandle, JoinSet},
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

use super::{
    Plugin, Reply, Script,
    client::compression_of,
    link::{Link, PATIENCE, within},
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
    /// Everybody's password.
    pub password: Vec<u8>,
    /// Offers TLS.
    pub tls: Option<Arc<ServerConfig>>,
    /// Sent in place of the greeting.
    pub refusal: Option<ErrPacket>,
    /// What is not answered as [`Script`] says: the first that returns something wins.
    pub special: Option<Special>,
}

/// Answers to requests (command byte first) that [`Script`] does not know; None leaves them to it.
pub type Special = Arc<dyn Fn(&[u8]) -> Option<Reply> + Send + Sync>;

impl Default for ServerScript {
    /// Offers all of MySQL's and MariaDB's capabilities that [`Script`] can keep, `mysql_native_password`, password `secret`,
    /// no TLS.
    fn default() -> Self {
        Self {
            version: "8.4.0-scripted".into(),
            capabilities: Self::all_capabilities(),
            plugin: Plugin::Native,
            password: b"secret".to_vec(),
            tls: None,
            refusal: None,
            special: None,
        }
    }
}

impl ServerScript {
    /// All of MySQL's capabilities that [`Script`] can keep, compression among them.
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
        ]
        .into_iter()
        .fold(Capabilities(0), |all, one| all | one)
    }

    /// Turns it into a MariaDB-like server: extended capabilities in place of MySQL's own ones.
    #[must_use]
    pub fn like_mariadb(mut self) -> Self {
        use Capabilities as C;
        self.version = "11.8.0-MariaDB-scripted".into();
        let mysql_only =
            C::LONG_PASSWORD | C::OPTIONAL_RESULTSET_METADATA | C::ZSTD_COMPRESSION | C::QUERY_ATTRIBUTES;
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
    /// How it ended, once it has; empty for COM_QUIT.
    pub end: Option<String>,
}

/// A running server. Dropping it closes everything.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: AbortHandle,
}

struct Shared {
    script: ServerScript,
    sessions: Mutex<Vec<Seen>>,
    changed: Notify,
}

impl Server {
    /// Listens on a free loopback port. Must be called inside a tokio runtime.
    pub async fn start(script: ServerScript) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            script,
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

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What every session until now has shown, in the order of their connects. A session without a login, such as a health
    /// check, is among them.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.sessions().clone()
    }

    /// Waits until `holds` for what was seen. None: it does not within some seconds.
    pub async fn wait_until(&self, holds: impl Fn(&[Seen]) -> bool) -> Option<Vec<Seen>> {
        let wait = async {
            loop {
                let mut changed = std::pin::pin!(self.shared.changed.notified());
                changed.as_mut().enable();
                let seen = self.seen();
                if holds(&seen) {
                    return seen;
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

    fn note(&self, session: usize, change: impl FnOnce(&mut Seen)) {
        change(&mut self.sessions()[session]);
        self.changed.notify_waiters();
    }
}

/// The sessions end with this task.
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut sessions = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let number = {
            let mut all = shared.sessions();
            all.push(Seen::default());
            all.len() - 1
        };
        let shared = Arc::clone(&shared);
        sessions.spawn(async move {
            let end = Session {
                shared: &shared,
                number,
            }
            .serve(stream)
            .await;
            let end = end.map_or_else(|error| error.to_string(), |()| String::new());
            shared.note(number, |seen| seen.end = Some(end));
        });
    }
}

struct Session<'a> {
    shared: &'a Shared,
    number: usize,
}

impl Session<'_> {
    async fn serve(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut link = Link::new(stream);
        let script = &self.shared.script;
        if let Some(refusal) = &script.refusal {
            let mut payload = Vec::new();
            refusal.encode(&mut payload, Capabilities(0));
            return link.write_payload(&payload).await;
        }
        let mut payload = Vec::new();
        self.greeting().encode(&mut payload);
        link.write_payload(&payload).await?;

        let mut first = link.read_payload(false).await?;
        let encrypted = SslRequest::is_ssl_request(&first);
        if encrypted {
            (link, first) = self.encrypt(link).await?;
        }
        let login = Login::decode(&first).map_err(io::Error::other)?;
        let negotiated = login.capabilities & self.offered();
        self.shared.note(self.number, |seen| {
            (seen.encrypted, seen.negotiated, seen.login) = (encrypted, negotiated, Some(login.clone()));
        });
        let named = login.auth_plugin.unwrap_or_default();
        let response = (named == script.plugin.name().as_bytes() && script.plugin.starts_from_greeting())
            .then_some(login.auth_response);
        if !self
            .authenticate(&mut link, negotiated, response, encrypted)
            .await?
        {
            return Ok(());
        }
        if let Some(algorithm) = compression_of(negotiated) {
            link.compress(algorithm);
        }
        self.commands(link, negotiated, encrypted).await
    }

    async fn encrypt(&self, link: Link) -> io::Result<(Link, Vec<u8>)> {
        let config = self
            .shared
            .script
            .tls
            .clone()
            .ok_or_else(|| io::Error::other("TLS was not offered"))?;
        let sequence = link.sequence;
        let stream = within(TlsAcceptor::from(config).accept(link.into_stream())).await?;
        let mut link = Link::new(stream);
        link.sequence = sequence;
        let first = link.read_payload(false).await?;
        Ok((link, first))
    }

    /// Asks for a switch where there is no response to this plugin yet, then sends the verdict. False: it was refused.
    async fn authenticate(
        &self,
        link: &mut Link,
        negotiated: Capabilities,
        response: Option<Vec<u8>>,
        encrypted: bool,
    ) -> io::Result<bool> {
        let ServerScript { plugin, password, .. } = &self.shared.script;
        let (nonce, response) = match response {
            Some(response) => (self.nonce(0), response),
            None => {
                let nonce = self.nonce(1);
                link.write_payload(&plugin.switch(&nonce)).await?;
                (nonce, link.read_payload(false).await?)
            }
        };
        let accepted = plugin.verify(link, &nonce, response, encrypted, password).await?;
        let mut payload = Vec::new();
        if accepted {
            let info = Vec::new();
            let status = StatusFlags::AUTOCOMMIT;
            OkPacket {
                affected_rows: 0,
                last_insert_id: 0,
                status,
                warnings: 0,
                info,
                session_state: vec![],
            }
            .encode(&mut payload, negotiated);
        } else {
            let message = b"Access denied: the password does not match".to_vec();
            ErrPacket {
                code: 1045,
                sql_state: *b"28000",
                message,
            }
            .encode(&mut payload, negotiated);
        }
        link.write_payload(&payload).await?;
        self.shared.note(self.number, |seen| seen.logged_in = accepted);
        Ok(accepted)
    }

    async fn commands(&self, mut link: Link, negotiated: Capabilities, encrypted: bool) -> io::Result<()> {
        let mut script = Script::new(negotiated);
        loop {
            let request = link.read_payload(true).await?;
            self.shared
                .note(self.number, |seen| seen.requests.push(request.clone()));
            if request.first() == Some(&Command::CHANGE_USER.0) {
                let change = ChangeUser::decode(&request, negotiated).map_err(io::Error::other)?;
                self.shared.note(self.number, |seen| {
                    if let Some(login) = &mut seen.login {
                        login.user = change.user;
                    }
                });
                if !self.authenticate(&mut link, negotiated, None, encrypted).await? {
                    return Ok(());
                }
                script = Script::new(negotiated);
                continue;
            }
            let special = self
                .shared
                .script
                .special
                .as_ref()
                .and_then(|special| special(&request));
            match special.unwrap_or_else(|| script.reply(&request)) {
                Reply::Payloads(payloads) => link.write_payloads(&payloads).await?,
                Reply::LocalInfile(ask, then) => {
                    link.write_payload(&ask).await?;
                    while !link.read_packet(false).await?.payload.is_empty() {}
                    link.write_payloads(&then).await?;
                }
                Reply::Cut(bytes) => return link.write(&bytes).await,
                Reply::Silence => {}
            }
        }
    }

    fn greeting(&self) -> Greeting {
        let script = &self.shared.script;
        Greeting {
            server_version: script.version.clone().into(),
            connection_id: self.number as u32 + 1,
            nonce: self.nonce(0),
            capabilities: self.offered(),
            charset: 45,
            status: StatusFlags::AUTOCOMMIT,
            auth_plugin: script.plugin.name().into(),
        }
    }

    fn offered(&self) -> Capabilities {
        let ServerScript {
            capabilities, tls, ..
        } = &self.shared.script;
        if tls.is_some() {
            *capabilities | Capabilities::SSL
        } else {
            capabilities.without(Capabilities::SSL)
        }
    }

    /// Different for every session and challenge, so that a response to another one is noticed. No byte is 0.
    fn nonce(&self, challenge: u8) -> [u8; 20] {
        std::array::from_fn(|at| 1 + ((self.number * 31 + at * 7 + usize::from(challenge) * 59) % 120) as u8)
    }
}
