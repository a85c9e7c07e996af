//! A connection to one server with an account of one's own: outside pools, queues and limits, for those who
//! live as long as the process, such as a reader of the binary log.

use std::net::SocketAddr;
use std::time::Duration;

use mysql_wire::gtid::Flavor;
use mysql_wire::{Capabilities, Command, ErrPacket};
use net::Stream;
use tokio::time::timeout;

use crate::cluster::Cluster;
use crate::connect::{self, For};
use crate::error::Seconds;
use crate::greeting::{GreetingError, read_greeting};
use crate::login::{self, Account, LoginError, Terms, Tls};
use crate::packets::Packets;
use crate::server::Server;
use crate::topology::flavor;

/// How long a server may take to close a connection that says good-bye.
const PARTING: Duration = Duration::from_secs(1);

/// A connection that is ready for its first command. TLS is as the cluster has it; nothing is compressed.
#[derive(Debug)]
pub struct Direct {
    /// The connection. Nothing is left to read.
    pub stream: Stream,
    /// What both sides agreed on.
    pub capabilities: Capabilities,
    /// Where the server was, see [`Server::has_left`]; `None` for a Unix socket.
    pub peer: Option<SocketAddr>,
    /// Whose dialect the server speaks.
    pub flavor: Flavor,
    /// Its version as in its greeting.
    pub version: Vec<u8>,
    /// The server's number for the connection.
    pub thread_id: u32,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DirectError {
    /// The server cannot be reached, or does not answer as one.
    #[error("{0}")]
    Connect(String),
    /// It refuses the connection or the account.
    #[error("{} (error {})", String::from_utf8_lossy(&.0.message), .0.code)]
    Refused(ErrPacket),
    /// The login failed for another reason than the server's no.
    #[error("login of user {user}: {error}")]
    Login {
        /// Who wanted to log in.
        user: String,
        /// What was in the way.
        error: LoginError,
    },
}

impl Direct {
    /// Connects to `server` and logs in, within the cluster's limits of time for both.
    ///
    /// # Errors
    /// See [`DirectError`].
    pub async fn open(cluster: &Cluster, server: &Server, account: Account<'_>) -> Result<Self, DirectError> {
        let config = cluster.config();
        let mut stream = connect::connect(server, &config, For::Gateway, config.connect_timeout)
            .await
            .map_err(|error| DirectError::Connect(error.reason))?;
        let (greeting, _) = match read_greeting(&mut stream, config.login_timeout).await {
            Ok(greeting) => greeting,
            Err(GreetingError::Refused(packet)) => return Err(DirectError::Refused(packet)),
            Err(error) => return Err(DirectError::Connect(error.to_string())),
        };
        cluster.note_greeting(server, &greeting);
        let peer = stream.peer().ok().and_then(|peer| peer.socket_addr());
        let connector = cluster.tls();
        let tls = Tls::of(connector.as_deref(), server.tls_name(), &config);
        let login = login::log_in(stream, &greeting, account, Terms::PLAIN, tls);
        let limit: Duration = config.login_timeout;
        let logged_in = match timeout(limit, login).await {
            Ok(Ok(logged_in)) => logged_in,
            Ok(Err(LoginError::Refused(packet))) => return Err(DirectError::Refused(packet)),
            Ok(Err(error)) => {
                let user = String::from_utf8_lossy(account.user).into_owned();
                return Err(DirectError::Login { user, error });
            }
            Err(_) => {
                let reason = format!("login not finished within {}", Seconds(limit));
                return Err(DirectError::Connect(reason));
            }
        };
        Ok(Self {
            stream: logged_in.stream,
            capabilities: logged_in.capabilities,
            peer,
            flavor: flavor(&greeting.server_version),
            version: greeting.server_version,
            thread_id: greeting.connection_id,
        })
    }

    /// Says good-bye, to a server that listens: not in the middle of an answer. Then waits for a moment until
    /// the server has closed the connection, which counts among the account's until then.
    pub async fn close(mut self) {
        let mut packets = Packets::new(&mut self.stream, 0);
        // Whoever is gone already needs none.
        let _ = timeout(PARTING, async {
            packets.send_command(&[Command::QUIT.0]).await?;
            packets.receive().await
        })
        .await;
    }
}
