//! One health check of one server.

use std::time::Duration;

use config::CheckKind;
use mysql_wire::{Command, Greeting};
use net::Stream;
use tokio::time::{Instant, timeout, timeout_at};

use crate::cluster::Cluster;
use crate::connect::{self, For};
use crate::conversation::{self, QueryError, query};
use crate::disconnect::disconnect;
use crate::error::{ER_CON_COUNT_ERROR, Seconds};
use crate::greeting::{GreetingError, read_greeting};
use crate::login::{self, Account, LoggedIn, LoginError, Terms, Tls};
use crate::packets::Packets;
use crate::server::{Server, ServerId};

/// "Unknown thread id".
const ER_NO_SUCH_THREAD: u16 = 1094;

/// Checks `server` once, as configured. Says what it found, good (`Ok`) or bad, in words for a person.
pub(crate) async fn probe(
    cluster: &Cluster,
    server: &Server,
    config: &config::Cluster,
) -> Result<String, String> {
    let limit = config.check.timeout;
    let deadline = Instant::now() + limit;
    let connected = connect::connect(server, config, For::Gateway, limit).await;
    let mut stream = connected.map_err(|error| error.reason)?;
    if config.check.kind == CheckKind::Tcp {
        if cluster.wants_traits_of(server) {
            introduce(cluster, server, &mut stream, deadline).await;
        }
        return Ok("accepts connections".to_owned());
    }
    let left = deadline.saturating_duration_since(Instant::now());
    let greeting = match read_greeting(&mut stream, left).await {
        Ok((greeting, _)) => greeting,
        Err(GreetingError::Refused(error)) if error.code == ER_CON_COUNT_ERROR => {
            return Ok("is full (too many connections)".to_owned());
        }
        Err(error) if error.is_for_want_of_room(server.profile().as_deref()) => {
            return Ok("is full (closes new connections without a greeting)".to_owned());
        }
        Err(GreetingError::TimedOut(_)) => return Err(format!("no greeting within {}", Seconds(limit))),
        Err(error) => return Err(error.to_string()),
    };
    cluster.note_greeting(server, &greeting);
    let version = String::from_utf8_lossy(&greeting.server_version).into_owned();
    if config.check.kind == CheckKind::Greeting {
        // The server has shown that it is well. How it takes our leave does not change that.
        let _ = timeout_at(deadline, disconnect(&mut stream, &greeting, &server.nobody, None)).await;
        return Ok(format!("greets as {version}"));
    }
    match timeout_at(
        deadline,
        log_in_and_ask(cluster, server, config, stream, &greeting, &config.check.query),
    )
    .await
    {
        Ok(Ok(())) => Ok(format!("answers queries, version {version}")),
        // The server's own limit is not a failure here any more than it is in the greeting.
        Ok(Err(NotDone::Full(_))) => Ok("is full (too many connections)".to_owned()),
        Ok(Err(NotDone::Refused(_, reason) | NotDone::Failed(reason))) => Err(reason),
        Err(_) => Err(late(limit)),
    }
}

impl Cluster {
    /// Whether the checks have an account, or the monitor, by which [`kill`](Self::kill) works.
    #[must_use]
    pub fn has_account(&self) -> bool {
        account(&self.config()).is_some()
    }

    /// Runs a `KILL` on one of the servers, by the account of the checks or of the monitor and on a
    /// connection of its own. Waits for the answer as long as for that of a check. A connection that the
    /// server no longer has is as good as killed: it may end on its own at any moment.
    ///
    /// # Errors
    /// In words for a person: there is no such server (any more), it cannot be reached, the account may not.
    pub async fn kill(&self, server: ServerId, statement: &str) -> Result<(), String> {
        let server = self.server(server);
        let server = server.ok_or("the server is no longer in the configuration")?;
        let config = self.config();
        let limit = config.check.timeout;
        let run = async {
            let connected = connect::connect(&server, &config, For::Gateway, limit).await;
            let mut stream = connected.map_err(|error| error.reason)?;
            let greeting = read_greeting(&mut stream, limit).await;
            let (greeting, _) = greeting.map_err(|error| error.to_string())?;
            let ran = log_in_and_ask(self, &server, &config, stream, &greeting, statement).await;
            match ran {
                Err(NotDone::Refused(ER_NO_SUCH_THREAD, _)) => Ok(()),
                ran => ran.map_err(NotDone::into_words),
            }
        };
        timeout(limit, run).await.unwrap_or_else(|_| Err(late(limit)))
    }
}

/// Learns the server's profile if it greets in time; its health does not depend on it.
async fn introduce(cluster: &Cluster, server: &Server, stream: &mut Stream, deadline: Instant) {
    let left = deadline.saturating_duration_since(Instant::now());
    if let Ok((greeting, _)) = read_greeting(stream, left).await {
        cluster.note_greeting(server, &greeting);
        let _ = timeout_at(deadline, disconnect(stream, &greeting, &server.nobody, None)).await;
    }
}

/// User and password of the checks; the monitor's where they have none of their own.
fn account(config: &config::Cluster) -> Option<(&str, Option<&config::Secret>)> {
    let own = config.check.user.as_deref();
    let own = own.map(|user| (user, config.check.password.as_ref()));
    own.or_else(|| {
        let monitor = config.monitor.as_ref()?;
        Some((monitor.user.as_str(), monitor.password.as_ref()))
    })
}

fn late(limit: Duration) -> String {
    format!(
        "login and statement of the check's user not finished within {}",
        Seconds(limit)
    )
}

/// Why a statement was not run, or failed, in words for a person.
enum NotDone {
    /// The server has no room for one more connection.
    Full(String),
    /// The statement ended with this error.
    Refused(u16, String),
    Failed(String),
}

impl NotDone {
    fn into_words(self) -> String {
        match self {
            Self::Full(words) | Self::Refused(_, words) | Self::Failed(words) => words,
        }
    }
}

async fn log_in_and_ask(
    cluster: &Cluster,
    server: &Server,
    config: &config::Cluster,
    stream: Stream,
    greeting: &Greeting,
    statement: &str,
) -> Result<(), NotDone> {
    let connector = cluster.tls();
    let tls = Tls::of(connector.as_deref(), server.tls_name(), config);
    let (user, password) = account(config)
        .ok_or_else(|| NotDone::Failed("neither the checks nor the monitor have an account".to_owned()))?;
    let account = Account::of(user, password);
    let mut logged_in = match login::log_in(stream, greeting, account, Terms::PLAIN, tls).await {
        Ok(logged_in) => logged_in,
        Err(error) => {
            let words = format!("login of the check's user {user}: {error}");
            let is_full = matches!(&error, LoginError::Refused(packet) if packet.code == ER_CON_COUNT_ERROR);
            return Err(if is_full {
                NotDone::Full(words)
            } else {
                NotDone::Failed(words)
            });
        }
    };
    ask(&mut logged_in, statement).await
}

/// Runs the query and says good-bye. An error may come behind definitions and rows.
async fn ask(logged_in: &mut LoggedIn, statement: &str) -> Result<(), NotDone> {
    let (stream, capabilities) = (&mut logged_in.stream, logged_in.capabilities);
    let asked = conversation::ask(stream, capabilities, &[query(capabilities, statement)]).await;
    let _ = Packets::new(stream, 0).send_command(&[Command::QUIT.0]).await;
    let done = match asked {
        Ok(replies) => replies.iter().try_for_each(|reply| reply.done(capabilities)),
        Err(broken) => Err(broken.into()),
    };
    done.map_err(|error| {
        let words = format!("statement of the check's user: {error}");
        match error {
            QueryError::Refused(packet) => NotDone::Refused(packet.code, words),
            QueryError::Broken(_) => NotDone::Failed(words),
        }
    })
}
