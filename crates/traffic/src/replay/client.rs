//! A connection to the target: commands as they were captured, and their answers with their packets.

use std::net::SocketAddr;
use std::time::Duration;

use mysql_wire::statement::asks_for_cursor;
use mysql_wire::{
    Capabilities, Command, Event, Outcome, PacketHeader, ResponseTracker, text_values, write_packet,
};
use net::Stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use upstream::login::{Account, Secret, Terms, log_in};

use super::Login;
use super::ids::Keys;
use crate::capture::ANSWER_MAX;
use crate::record::{ServerAtStart, SessionRecord};

/// For a connection and a login.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of a file that go into one packet.
const FILE_PACKET: usize = 16 << 10;
/// Of what a session had negotiated, what changes how statements are read or what they answer.
const KEPT: Capabilities = Capabilities(
    Capabilities::FOUND_ROWS.0
        | Capabilities::LOCAL_FILES.0
        | Capabilities::IGNORE_SPACE.0
        | Capabilities::MULTI_STATEMENTS.0
        | Capabilities::PS_MULTI_RESULTS.0
        | Capabilities::MARIADB_STMT_BULK.0
        | Capabilities::MARIADB_BULK_UNIT_RESULTS.0,
);

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no connection: {0}")]
    Connect(String),
    #[error("no login as {user}: {why}")]
    Login { user: String, why: String },
    #[error("the connection was lost: {0}")]
    Lost(String),
    /// Of an answer that is needed as a whole it has the first [`ANSWER_MAX`] bytes only.
    #[error("the list of columns with ids is longer than 1 MiB")]
    TooLong,
}

pub(crate) struct Client {
    stream: Stream,
    pub(crate) capabilities: Capabilities,
    tracker: ResponseTracker,
    unread: Vec<u8>,
}

pub(crate) struct ReplayAnswer {
    pub(crate) outcome: Outcome,
    /// Its packets, up to [`ANSWER_MAX`] bytes.
    pub(crate) packets: Vec<u8>,
    pub(crate) is_cut: bool,
    /// The server has asked for more files than there were, and was told that the others are empty.
    pub(crate) lacks_files: bool,
}

fn lost(error: impl ToString) -> ClientError {
    ClientError::Lost(error.to_string())
}

impl Client {
    /// `session`: the captured one.
    pub(crate) async fn connect(
        target: SocketAddr,
        login: &Login,
        session: &SessionRecord,
    ) -> Result<Self, ClientError> {
        match timeout(CONNECT_LIMIT, Self::begin(target, login, session)).await {
            Ok(begun) => begun,
            Err(_) => Err(ClientError::Connect(format!(
                "{target} has not answered within {} s",
                CONNECT_LIMIT.as_secs()
            ))),
        }
    }

    async fn begin(target: SocketAddr, login: &Login, session: &SessionRecord) -> Result<Self, ClientError> {
        let failed = |error: &dyn ToString| ClientError::Connect(error.to_string());
        let mut stream = Stream::connect_tcp(target, CONNECT_LIMIT)
            .await
            .map_err(|error| failed(&error))?;
        let (greeting, _) = upstream::read_greeting(&mut stream, CONNECT_LIMIT)
            .await
            .map_err(|error| failed(&error))?;
        let terms = Terms {
            capabilities: Capabilities(session.capabilities) & KEPT,
            collation: match session.collation {
                0 => Terms::PLAIN.collation,
                known => known,
            },
            ..Terms::PLAIN
        };
        let account = Account {
            user: login.user.as_bytes(),
            secret: Secret::Password(login.password.as_bytes()),
        };
        let logged_in = log_in(stream, &greeting, account, terms, None).await;
        let logged_in = logged_in.map_err(|error| ClientError::Login {
            user: login.user.clone(),
            why: error.to_string(),
        })?;
        Ok(Self {
            stream: logged_in.stream,
            tracker: ResponseTracker::new(logged_in.capabilities),
            capabilities: logged_in.capabilities,
            unread: Vec::new(),
        })
    }

    /// Sends a command and reads all of its answer, where it has one.
    pub(crate) async fn ask(&mut self, payload: &[u8]) -> Result<ReplayAnswer, ClientError> {
        self.ask_with(payload, &[]).await
    }

    /// Sends a command that may load these files, one after the other, and reads all of its answer.
    pub(super) async fn ask_with(
        &mut self,
        payload: &[u8],
        files: &[Vec<u8>],
    ) -> Result<ReplayAnswer, ClientError> {
        let mut packets = Vec::with_capacity(payload.len() + 4);
        write_packet(&mut packets, &mut 0, payload);
        self.stream.write_all(&packets).await.map_err(lost)?;
        self.stream.flush().await.map_err(lost)?;
        self.tracker.begin(Command(payload.first().copied().unwrap_or(0)));
        if asks_for_cursor(payload) {
            self.tracker.allow_cursor();
        }
        // A server that asks for more files than were captured gets empty ones.
        self.tracker.allow_infile();
        let mut files = files.iter();
        let mut answer = ReplayAnswer {
            outcome: Outcome::default(),
            packets: Vec::new(),
            is_cut: false,
            lacks_files: false,
        };
        while self.tracker.in_progress() {
            let progress = self.tracker.advance(&self.unread).map_err(lost)?;
            let room = ANSWER_MAX - answer.packets.len();
            answer.is_cut |= progress.consumed > room;
            let kept = progress.consumed.min(room);
            answer.packets.extend_from_slice(&self.unread[..kept]);
            self.unread.drain(..progress.consumed);
            match progress.event {
                Event::Done(outcome) => answer.outcome = outcome,
                Event::More => {
                    self.unread.reserve(16 << 10);
                    if self.stream.read_buf(&mut self.unread).await.map_err(lost)? == 0 {
                        return Err(lost("the server has closed it"));
                    }
                }
                Event::LocalInfile => {
                    let file = files.next();
                    answer.lacks_files |= file.is_none();
                    self.send_file(file.map_or(&[][..], Vec::as_slice)).await?;
                }
                Event::State | Event::Stream => {
                    return Err(lost("an answer of a kind that is not read here"));
                }
            }
        }
        Ok(answer)
    }

    /// Sends what the server has asked for.
    async fn send_file(&mut self, file: &[u8]) -> Result<(), ClientError> {
        let mut sequence = self.tracker.sequence().wrapping_add(1);
        let mut packets = Vec::with_capacity(file.len() + (file.len() / FILE_PACKET + 2) * PacketHeader::LEN);
        for part in file.chunks(FILE_PACKET).chain([&[][..]]) {
            write_packet(&mut packets, &mut sequence, part);
        }
        self.stream.write_all(&packets).await.map_err(lost)?;
        self.stream.flush().await.map_err(lost)?;
        self.tracker.resume_after_local_infile();
        Ok(())
    }

    /// A statement of the replay's own: the first row of its result, with so many columns.
    async fn row<const COLUMNS: usize>(
        &mut self,
        statement: &str,
    ) -> Result<Option<[Option<String>; COLUMNS]>, ClientError> {
        let first = self.rows(statement).await?.into_iter().next();
        Ok(first.and_then(|row| row.try_into().ok()))
    }

    /// The rows of its result, none where it has failed.
    pub(super) async fn rows(&mut self, statement: &str) -> Result<Vec<Vec<Option<String>>>, ClientError> {
        let mut payload = vec![Command::QUERY.0];
        payload.extend_from_slice(statement.as_bytes());
        let answer = self.ask(&payload).await?;
        if answer.is_cut {
            return Err(ClientError::TooLong);
        }
        let reply = upstream::conversation::Reply {
            outcome: answer.outcome,
            bytes: answer.packets,
        };
        if reply.outcome.error.is_some() {
            return Ok(Vec::new());
        }
        let columns = reply
            .packet(0)
            .and_then(|first| first.first().copied())
            .unwrap_or(0);
        let is_old = !self.capabilities.contains(Capabilities::DEPRECATE_EOF);
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let row = |row: &[u8]| {
            text_values(row)
                .map(|value| value.ok().flatten().map(text))
                .collect()
        };
        let rows = reply
            .packets()
            .skip(1 + usize::from(columns) + usize::from(is_old));
        Ok(rows.take(reply.outcome.rows as usize).map(row).collect())
    }

    /// The columns with ids that the server makes, and those that refer to them by a foreign key.
    pub(super) async fn keys(&mut self) -> Result<Keys, ClientError> {
        fn all<const COUNT: usize>(rows: Vec<Vec<Option<String>>>) -> Vec<[String; COUNT]> {
            let whole = |row: Vec<Option<String>>| row.into_iter().collect::<Option<Vec<_>>>();
            let rows = rows.into_iter().filter_map(whole);
            rows.filter_map(|row| row.try_into().ok()).collect()
        }
        let made = "SELECT table_schema, table_name, column_name FROM information_schema.columns \
                    WHERE extra LIKE '%auto_increment%'";
        let referring = "SELECT table_schema, table_name, column_name, referenced_table_schema, \
                         referenced_table_name, referenced_column_name FROM information_schema.key_column_usage \
                         WHERE referenced_table_name IS NOT NULL";
        let made = all(self.rows(made).await?);
        Ok(Keys::new(made, all(self.rows(referring).await?)))
    }

    pub(super) async fn who_are_you(&mut self) -> Result<ServerAtStart, ClientError> {
        let mut server = ServerAtStart::default();
        let common = "SELECT VERSION(), @@GLOBAL.sql_mode, @@GLOBAL.time_zone, @@GLOBAL.server_id";
        if let Some(row) = self.row::<4>(common).await? {
            [
                server.version,
                server.sql_mode,
                server.time_zone,
                server.server_id,
            ] = row;
        }
        let of_mysql = "SELECT @@GLOBAL.server_uuid, @@GLOBAL.gtid_executed";
        match self.row::<2>(of_mysql).await? {
            Some(row) => [server.server_uuid, server.gtid_position] = row,
            None => {
                let row = self.row::<1>("SELECT @@GLOBAL.gtid_current_pos").await?;
                server.gtid_position = row.and_then(|[position]| position);
            }
        }
        Ok(server)
    }

    /// Whether the server says that writes are let in. `super_read_only` is MySQL's alone.
    pub(super) async fn may_write(&mut self) -> Result<bool, ClientError> {
        let is_off = |[value]: [Option<String>; 1]| {
            let value = value.unwrap_or_default();
            value == "0" || value.eq_ignore_ascii_case("off")
        };
        let read_only = self.row("SELECT @@GLOBAL.read_only").await?;
        let of_mysql = self.row("SELECT @@GLOBAL.super_read_only").await?;
        Ok(read_only.is_some_and(is_off) && of_mysql.is_none_or(is_off))
    }

    /// Whether it says that it replicates from somebody.
    pub(super) async fn is_replica(&mut self) -> Result<bool, ClientError> {
        for statement in [
            "SHOW REPLICA STATUS",
            "SHOW ALL SLAVES STATUS",
            "SHOW SLAVE STATUS",
        ] {
            if !self.rows(statement).await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(crate) async fn close(mut self) {
        // Whoever is gone already needs none.
        let _ = self.ask(&[Command::QUIT.0]).await;
    }
}
