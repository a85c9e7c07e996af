//! The one connection over which a server is asked again and again.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use mysql_wire::gtid::Flavor;
use mysql_wire::{Capabilities, Command};
use net::Stream;
use tokio::io::AsyncReadExt;

use super::flavor;
use crate::cluster::Cluster;
use crate::connect::{self, For};
use crate::conversation::{Bounds, QueryError, Rows, rows};
use crate::error::ER_CON_COUNT_ERROR;
use crate::greeting::{GreetingError, read_greeting};
use crate::login::{self, Account, LoginError, Terms, Tls};
use crate::packets::Packets;
use crate::server::Server;

/// "The server is currently in offline mode."
const ER_SERVER_OFFLINE_MODE: u16 = 3032;

/// A connection of the account `monitor`.
pub(crate) struct Connection {
    stream: Stream,
    capabilities: Capabilities,
    /// Where the server was; `None` for a Unix socket.
    peer: Option<SocketAddr>,
    pub(crate) flavor: Flavor,
    /// The server is too old for the statements that say `REPLICA`.
    pub(super) old_words: bool,
    /// Who follows the server, as of an earlier look, and how many looks may still go by with that.
    pub(super) replicas: (Rows, u32),
    /// It has been told why the heartbeat table says nothing.
    pub(super) heartbeat_is_missed: bool,
    /// For logs.
    pub(super) cluster: String,
    pub(super) server: String,
}

/// Why a server could not be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blind {
    pub(crate) reason: String,
    pub(super) meaning: Meaning,
}

/// What that says of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Nobody listens there: it is gone.
    NobodyThere,
    /// It is there and has no room for us.
    Full,
    /// It is there, and in `offline_mode`: it serves those alone who may administer it.
    Offline,
    /// It may be anything.
    Unknown,
}

impl Blind {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            meaning: Meaning::Unknown,
        }
    }
}

impl Connection {
    /// Connects and logs in; `limit` is for the connection, the rest is the caller's.
    pub(crate) async fn open(
        cluster: &Cluster,
        server: &Server,
        config: &config::Cluster,
        monitor: &config::Monitor,
        limit: Duration,
    ) -> Result<Self, Blind> {
        let mut stream = connect::connect(server, config, For::Gateway, limit)
            .await
            .map_err(|error| Blind {
                reason: error.reason,
                meaning: if error.refused {
                    Meaning::NobodyThere
                } else {
                    Meaning::Unknown
                },
            })?;
        let (greeting, _) = match read_greeting(&mut stream, limit).await {
            Ok(greeting) => greeting,
            Err(GreetingError::Refused(error)) if error.code == ER_CON_COUNT_ERROR => return Err(full()),
            Err(error) => return Err(Blind::new(error.to_string())),
        };
        cluster.note_greeting(server, &greeting);
        let peer = stream.peer().ok().and_then(|peer| peer.socket_addr());
        let connector = cluster.tls();
        let tls = Tls::of(connector.as_deref(), server.tls_name(), config);
        let account = Account::of(&monitor.user, monitor.password.as_ref());
        let logged_in = match login::log_in(stream, &greeting, account, Terms::PLAIN, tls).await {
            Ok(logged_in) => logged_in,
            Err(LoginError::Refused(error)) if error.code == ER_CON_COUNT_ERROR => return Err(full()),
            Err(error) => {
                let is_offline =
                    matches!(&error, LoginError::Refused(error) if error.code == ER_SERVER_OFFLINE_MODE);
                return Err(Blind {
                    reason: format!("login of the monitor's user {}: {error}", monitor.user),
                    meaning: match is_offline {
                        true => Meaning::Offline,
                        false => Meaning::Unknown,
                    },
                });
            }
        };
        Ok(Self {
            stream: logged_in.stream,
            capabilities: logged_in.capabilities,
            peer,
            flavor: flavor(&greeting.server_version),
            old_words: false,
            replicas: (Rows::default(), 0),
            heartbeat_is_missed: false,
            cluster: cluster.name().to_owned(),
            server: server.name().to_owned(),
        })
    }

    /// Whether the server's name has left the address at the other end.
    pub(super) fn is_elsewhere(&self, server: &Server) -> bool {
        server.has_left(self.peer)
    }

    /// Runs a statement. See [`QueryError`] for which of them end the connection.
    pub(super) async fn query(&mut self, statement: &str) -> Result<Rows, QueryError> {
        self.query_within(statement, Bounds::USUAL).await
    }

    /// The same with a longer result.
    pub(crate) async fn query_within(&mut self, statement: &str, bounds: Bounds) -> Result<Rows, QueryError> {
        rows(&mut self.stream, self.capabilities, statement, bounds).await
    }

    /// Resolves when the server ends the connection, or says anything unasked, which comes to the same.
    pub(super) async fn ended(&mut self) {
        let mut byte = [0];
        let _: io::Result<usize> = self.stream.read(&mut byte).await;
    }

    pub(crate) async fn close(mut self) {
        let _ = Packets::new(&mut self.stream, 0)
            .send_command(&[Command::QUIT.0])
            .await;
    }
}

fn full() -> Blind {
    Blind {
        reason: "is full (too many connections)".to_owned(),
        meaning: Meaning::Full,
    }
}
