//! Opening a connection: connect, greeting, TLS, login, trackers on, `pool.init`, and a look at what it is
//! like then.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::ServerCompression;
use mysql_wire::compression::Algorithm;
use mysql_wire::{Capabilities, ErrPacket, Greeting, StatusFlags, WireError};
use net::{Peer, Stream};
use tokio::time::timeout;

use super::connection::{Baseline, Credential, Key, Opened, is_mariadb};
use super::setup::{LIST_NAMES, LIST_SCOPES, LIST_SESSION, Setup, Tracked};
use crate::accounts::DENIALS;
use crate::cluster::Cluster;
use crate::connect::{self, For};
use crate::conversation::{Broken, QueryError, ask, query};
use crate::disconnect::disconnect;
use crate::error::{LeaseError, Seconds};
use crate::greeting::{GreetingError, read_greeting};
use crate::login::{self, LoggedIn, LoginError, Terms, Tls};
use crate::server::{Server, now};
use crate::sharing;

/// What clients ask for that is not passed on: a session in the sandbox mode for expired passwords is of no
/// use to the next.
const WITHHELD: Capabilities = Capabilities::CAN_HANDLE_EXPIRED_PASSWORDS;

/// As everywhere; servers do not expect more.
const ZSTD_LEVEL: u8 = 3;

/// A server and an account on it.
pub(super) struct Opening<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) config: &'a Arc<config::Cluster>,
    pub(super) server: &'a Arc<Server>,
    pub(super) key: &'a Rc<Key>,
    pub(super) credential: &'a Credential,
    /// The session that has the connection for itself. `None`: the connection is for whoever needs one, and
    /// `pool.init` is run on it.
    pub(super) session: Option<ForSession<'a>>,
}

/// Whose connection one is that is opened for a session alone.
#[derive(Clone, Copy)]
pub struct ForSession<'a> {
    pub client: &'a Peer,
    /// The address that it connected to.
    pub local: &'a Peer,
    /// The attributes that it has introduced itself with, encoded.
    pub attributes: Option<&'a [u8]>,
    /// The token that the session has got from the TiDB server that it leaves. The key's capabilities are all
    /// that is asked for then, and nobody reports what is done on the connection.
    pub token: Option<&'a [u8]>,
}

/// What a client and a server have agreed on, whose login the gateway has passed on.
#[derive(Debug)]
pub struct Adopted {
    pub greeting: Greeting,
    /// SESSION_TRACK and DEPRECATE_EOF are among them.
    pub capabilities: Capabilities,
    /// Of the login's OK packet.
    pub status: StatusFlags,
    pub login_began: Instant,
}

/// Why there is no connection.
enum Failure {
    /// This speaks against the server.
    Server(String),
    /// It does not.
    Here(String),
    Refused(ErrPacket),
    /// The account is there in a form for which what is known of it is of no use.
    Unfit(String),
    Unusable(String),
}

impl Opening<'_> {
    /// A connection that is ready for its first session. `known` are baselines of others, to share when they
    /// are equal.
    pub(super) async fn open(
        &self,
        known: Option<&Rc<Baseline>>,
    ) -> Result<(Stream, Rc<Opened>), LeaseError> {
        let wait_queue = &self.server.wait_queue;
        if let Some((reason, left)) = wait_queue
            .unfit_accounts
            .refusal(self.credential, self.config, now())
        {
            return Err(LeaseError::Unusable {
                server: self.server.name().to_owned(),
                reason: format!("{reason}; tried again in {} s", left.as_secs() + 1),
            });
        }
        let opened = self.try_open(known).await;
        if opened.is_ok() {
            wait_queue.unfit_accounts.forget(self.credential);
            wait_queue.denied_accounts.forget(self.credential);
            wait_queue.refused_accounts.forget(self.credential);
        }
        opened.map_err(|failure| {
            let server = self.server.name().to_owned();
            match failure {
                Failure::Server(reason) => {
                    self.cluster.suspect(self.server, &reason);
                    self.cluster.connect_failed(self.server, reason)
                }
                Failure::Here(reason) => self.cluster.connect_failed(self.server, reason),
                Failure::Refused(packet) => {
                    self.tell_of_refusal(&packet);
                    LeaseError::Refused { server, packet }
                }
                Failure::Unfit(reason) => {
                    let unfit = &wait_queue.unfit_accounts;
                    let pause = unfit.note(self.credential, self.config, &reason, now());
                    let (cluster, user) = (self.cluster.name(), &self.credential.user);
                    tracing::warn!(
                        cluster,
                        server,
                        user = &**user,
                        reason,
                        pause_seconds = pause.as_secs(),
                        "account cannot log in on a server: not tried again for a while, since the server counts that"
                    );
                    LeaseError::Unusable { server, reason }
                }
                Failure::Unusable(reason) => LeaseError::Unusable { server, reason },
            }
        })
    }

    /// Says in the log that a server refuses an account as the configuration has it: clients with the right
    /// password of the gateway are refused, and see no more than that. Once in a while, however many there
    /// are.
    fn tell_of_refusal(&self, packet: &ErrPacket) {
        let is_configured = self.credential.account == 0;
        if !is_configured || !DENIALS.contains(&packet.code) {
            return;
        }
        let reason = String::from_utf8_lossy(&packet.message);
        let refused = &self.server.wait_queue.refused_accounts;
        if refused
            .note_once(self.credential, self.config, &reason, now())
            .is_none()
        {
            return;
        }
        tracing::warn!(
            cluster = self.cluster.name(),
            server = self.server.name(),
            user = &*self.credential.user,
            reason = &*reason,
            "server refuses the password that [[user]] has for this account, or has no such account for the gateway's address"
        );
    }

    async fn try_open(&self, known: Option<&Rc<Baseline>>) -> Result<(Stream, Rc<Opened>), Failure> {
        let config = self.config;
        let whom = match self.session {
            None => For::Gateway,
            Some(ForSession { client, local, .. }) => For::Client { client, local },
        };
        self.server.note_attempt();
        let connected = connect::connect(self.server, config, whom, config.connect_timeout).await;
        let mut stream = connected.map_err(|error| match error.servers_fault {
            true => Failure::Server(error.reason),
            false => Failure::Here(error.reason),
        })?;
        let greeting = match read_greeting(&mut stream, config.login_timeout).await {
            Ok((greeting, _)) => greeting,
            Err(GreetingError::Refused(packet)) => return Err(Failure::Refused(packet)),
            Err(error) => return Err(Failure::Server(error.to_string())),
        };
        self.cluster.note_greeting(self.server, &greeting);
        if let Some(reason) = self.missing(greeting.capabilities) {
            let left = disconnect(&mut stream, &greeting, &self.server.nobody, None);
            let _ = timeout(config.login_timeout, left).await;
            return Err(Failure::Unusable(reason));
        }
        let login_began = now();
        let logged_in = self.within(self.log_in(stream, &greeting)).await?;
        let prepared = self.prepare(logged_in, login_began, greeting, known);
        self.within(prepared).await
    }

    /// The reason why a server with these capabilities is of no use, where it lacks some. Those of the key
    /// count where sessions share the connection, and go by them; a session that leaves its own connection
    /// looks at them by itself.
    fn missing(&self, capabilities: Capabilities) -> Option<String> {
        let missing = || sharing::missing(capabilities);
        match self.session {
            None => missing().or_else(|| sharing::missing_for(self.key.capabilities, capabilities)),
            Some(ForSession { token: None, .. }) => missing(),
            Some(_) => None,
        }
    }

    fn token(&self) -> Option<&[u8]> {
        self.session?.token
    }

    /// `step`, within the time for a login. One that takes longer may be slow for its account alone (a server
    /// that asks PAM or LDAP), and what is wrong for all is found by the monitor and by checks that log in.
    async fn within<T>(&self, step: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let limit: Duration = self.config.login_timeout;
        match timeout(limit, step).await {
            Ok(result) => result,
            Err(_) => Err(Failure::Here(format!(
                "login not finished within {}",
                Seconds(limit)
            ))),
        }
    }

    async fn log_in(&self, stream: Stream, greeting: &Greeting) -> Result<LoggedIn, Failure> {
        let connector = self.cluster.tls();
        let tls = Tls::of(connector.as_deref(), self.server.tls_name(), self.config);
        let own = attributes();
        let capabilities = self.key.capabilities.without(WITHHELD);
        let terms = Terms {
            capabilities: match self.token() {
                Some(_) => capabilities,
                None => capabilities.with(sharing::NEEDED),
            },
            collation: self.key.collation,
            attributes: match self.session {
                None => Some(&own),
                Some(ForSession { attributes, .. }) => attributes,
            },
            compression: match self.config.compression {
                ServerCompression::Off => None,
                ServerCompression::Zlib => Some(Algorithm::Zlib),
                ServerCompression::Zstd => Some(Algorithm::Zstd { level: ZSTD_LEVEL }),
            },
        };
        let mut account = self.credential.account_to_log_in();
        if let Some(token) = self.token() {
            account.secret = login::Secret::SessionToken(token);
        }
        login::log_in(stream, greeting, account, terms, tls)
            .await
            .map_err(|error| match error {
                LoginError::Refused(packet) => Failure::Refused(packet),
                LoginError::Io(_) | LoginError::Closed => Failure::Server(format!("login: {error}")),
                error if error.leaves_server_waiting() => {
                    Failure::Unfit(format!("login of user {}: {error}", self.credential.user))
                }
                error => Failure::Unusable(format!("login of user {}: {error}", self.credential.user)),
            })
    }

    /// Switches the trackers on. Where others may have the connection, runs `pool.init` and reads the
    /// baseline.
    async fn prepare(
        &self,
        logged_in: LoggedIn,
        login_began: Instant,
        greeting: Greeting,
        known: Option<&Rc<Baseline>>,
    ) -> Result<(Stream, Rc<Opened>), Failure> {
        let LoggedIn {
            mut stream,
            capabilities,
            ok,
        } = logged_in;
        let version = greeting.server_version;
        let setup = match self.token() {
            Some(_) => self.unwatched(&version),
            None => self.setup(&mut stream, capabilities, &version).await?,
        };
        let baseline = match self.session {
            None => {
                let init = &self.config.pool.init;
                setup.begin(&mut stream, capabilities, init).await
            }
            Some(ForSession { token: None, .. }) => {
                let done = setup.switch_on(&mut stream, capabilities).await;
                done.map(|()| Baseline::new())
            }
            Some(_) => Ok(Baseline::new()),
        };
        let baseline = baseline.map_err(|(what, error)| failure(&what, error))?;
        let baseline = match known {
            Some(known) if **known == baseline => Rc::clone(known),
            _ => Rc::new(baseline),
        };
        let opened = Opened {
            server: Arc::clone(self.server),
            key: Rc::clone(self.key),
            capabilities,
            thread_id: greeting.connection_id,
            login_began,
            version,
            status: ok.status,
            baseline,
            setup,
        };
        Ok((stream, Rc::new(opened)))
    }

    /// What is known of a connection on which a client has logged in by itself, with the trackers on. Those
    /// stay off, and false comes with it, where the server refuses that to the account: it wants a new
    /// password first.
    pub(super) async fn adopt(
        &self,
        stream: &mut Stream,
        adopted: Adopted,
    ) -> Result<(Rc<Opened>, bool), LeaseError> {
        let (version, capabilities) = (adopted.greeting.server_version, adopted.capabilities);
        let watched = match capabilities.contains(sharing::NEEDED) {
            true => {
                let watching = async {
                    let setup = self.setup(stream, capabilities, &version).await?;
                    let baseline = setup.begin(stream, capabilities, &[]).await;
                    let baseline = baseline.map_err(|(what, error)| failure(&what, error))?;
                    Ok((setup, baseline))
                };
                self.within(watching).await
            }
            // There is nothing to be asked of it.
            false => Err(Failure::Unusable(String::new())),
        };
        let is_watched = watched.is_ok();
        let (setup, baseline) = match watched {
            Ok(watched) => watched,
            Err(Failure::Unusable(_)) => (self.unwatched(&version), Baseline::new()),
            Err(Failure::Server(reason) | Failure::Here(reason) | Failure::Unfit(reason)) => {
                return Err(self.cluster.connect_failed(self.server, reason));
            }
            Err(Failure::Refused(packet)) => {
                let server = self.server.name().to_owned();
                return Err(LeaseError::Refused { server, packet });
            }
        };
        let opened = Opened {
            server: Arc::clone(self.server),
            key: Rc::clone(self.key),
            capabilities,
            thread_id: adopted.greeting.connection_id,
            login_began: adopted.login_began,
            version,
            status: adopted.status,
            baseline: Rc::new(baseline),
            setup,
        };
        Ok((Rc::new(opened), is_watched))
    }

    /// Of a server that reports nothing.
    fn unwatched(&self, version: &[u8]) -> Setup {
        Setup {
            tracked: Arc::new(Tracked::named(version, &[], true)),
            config: Arc::clone(self.config),
        }
    }

    async fn setup(
        &self,
        stream: &mut Stream,
        capabilities: Capabilities,
        version: &[u8],
    ) -> Result<Setup, Failure> {
        let tracked = self.tracked(stream, capabilities, version).await?;
        let config = Arc::clone(self.config);
        Ok(Setup { tracked, config })
    }

    /// What the server's trackers are to watch: read once a server, and again when its version has changed.
    async fn tracked(
        &self,
        stream: &mut Stream,
        capabilities: Capabilities,
        version: &[u8],
    ) -> Result<Arc<Tracked>, Failure> {
        let known = self.server.tracked.load_full();
        if let Some(known) = known.filter(|known| known.version == version) {
            return Ok(known);
        }
        let tracked = if is_mariadb(version) {
            Tracked::everything(version)
        } else {
            let ways = [LIST_SCOPES, LIST_SESSION, LIST_NAMES].map(|sql| query(capabilities, sql));
            let asked = ask(stream, capabilities, &ways).await;
            let replies = asked.map_err(|broken| failure(LIST_NAMES, broken.into()))?;
            let mut answers = replies.iter().map(|reply| Ok(reply.rows(capabilities)?.rows));
            match (answers.next(), answers.next(), answers.next()) {
                (Some(Ok(rows)), ..) => Tracked::named(version, &rows, true),
                (_, Some(Ok(rows)), _) if !rows.is_empty() => Tracked::named(version, &rows, false),
                (.., Some(Ok(rows))) => Tracked::named(version, &rows, false),
                (.., Some(Err(error))) => return Err(failure(LIST_NAMES, error)),
                (.., None) => return Err(Failure::Unusable("it names no variables".to_owned())),
            }
        };
        let tracked = Arc::new(tracked);
        self.server.tracked.store(Some(Arc::clone(&tracked)));
        Ok(tracked)
    }
}

fn failure(what: &str, error: QueryError) -> Failure {
    let reason = format!("statement `{what}`: {error}");
    match error {
        QueryError::Broken(Broken::Wire(WireError::FileNotOffered)) => Failure::Unusable(reason),
        QueryError::Broken(Broken::Io(_) | Broken::Closed | Broken::Wire(_)) => Failure::Server(reason),
        QueryError::Broken(_) | QueryError::Refused(_) => Failure::Unusable(reason),
    }
}

/// What the server shows of us in `session_connect_attrs`.
fn attributes() -> Vec<u8> {
    let pid = std::process::id().to_string();
    let list = [
        ("_client_name", "forebay"),
        ("program_name", "forebay"),
        ("_client_version", env!("CARGO_PKG_VERSION")),
        ("_pid", &pid),
    ];
    let mut encoded = Vec::new();
    for text in list.iter().flat_map(|(name, value)| [name, value]) {
        // One byte of length: all of them are short.
        encoded.push(text.len() as u8);
        encoded.extend_from_slice(text.as_bytes());
    }
    encoded
}
