//! A MySQL client just large enough for the lab: one statement at a time, text or prepared, over a plain
//! link.
//!
//! It knows `mysql_native_password`, and of `caching_sha2_password` the short way, which a server goes with
//! accounts that have logged in since its start; over TLS also the long one. It trusts every certificate. It
//! never connects again by itself: what happens to its connection, its caller is told.

use std::{
    fmt,
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use mysql_wire::{
    AuthMoreData, AuthSwitch, Capabilities, Command, ErrPacket, Event, Greeting, Login, Outcome,
    PacketHeader, ResponseTracker, SslRequest, WireError, auth, statement::PrepareOk, text_values,
    write_packet,
};
use rustls::{ClientConnection, StreamOwned, pki_types::ServerName};

/// Who is silent for so long has failed: longer than a gateway has statements wait for a primary.
const PATIENCE: Duration = Duration::from_secs(30);
/// Binary values are numbers of these types, or texts.
const LONG: u8 = 3;
const LONGLONG: u8 = 8;
const UNSIGNED: u8 = 0x80;
/// How far the type is from the end of a column's definition.
const TYPE_FROM_END: usize = 6;

/// An account, and the database that it uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    pub user: &'static str,
    pub password: &'static str,
    pub database: &'static str,
}

/// The account of a sandbox, in its own database.
pub(crate) const ACCOUNT: Account = Account {
    user: sandbox::USER,
    password: sandbox::PASSWORD,
    database: sandbox::DATABASE,
};

/// The account of a sandbox, in the database of sysbench's tables.
pub(crate) const SANDBOX: Account = Account {
    database: "sbtest",
    ..ACCOUNT
};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Server {
    pub address: SocketAddr,
    pub account: Account,
}

impl Server {
    pub(crate) fn connect(self) -> Result<Client, ClientError> {
        Client::connect(self.address, self.account)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tls {
    Off,
    /// Where the server offers it.
    Preferred,
    Required,
}

trait Link: Read + Write + Send {}

impl<L: Read + Write + Send> Link for L {}

#[derive(Debug)]
pub(crate) enum ClientError {
    /// An error packet.
    Refused { code: u16, message: String },
    /// The connection is of no use any more.
    Lost(String),
}

impl ClientError {
    /// Whether the server gave the statement up for a lock: another one was first (MariaDB), it waited too
    /// long, a deadlock.
    pub(crate) fn is_of_lock(&self) -> bool {
        matches!(
            self,
            Self::Refused {
                code: 1020 | 1205 | 1213,
                ..
            }
        )
    }

    /// The code of an error packet; `lost` where none came.
    pub(crate) fn code(&self) -> String {
        match self {
            Self::Refused { code, .. } => code.to_string(),
            Self::Lost(_) => "lost".to_owned(),
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { code, message } => write!(out, "error {code}: {message}"),
            Self::Lost(why) => write!(out, "connection lost: {why}"),
        }
    }
}

impl std::error::Error for ClientError {}

impl From<std::io::Error> for ClientError {
    fn from(error: std::io::Error) -> Self {
        Self::Lost(error.to_string())
    }
}

impl From<WireError> for ClientError {
    fn from(error: WireError) -> Self {
        Self::Lost(error.to_string())
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StatementAnswer {
    /// The values of each row; `None` is NULL.
    pub rows: Vec<Vec<Option<String>>>,
    pub affected: u64,
}

impl StatementAnswer {
    /// The first value of the first row.
    pub(crate) fn value(&self) -> Option<&str> {
        self.rows.first()?.first()?.as_deref()
    }
}

/// A statement that the server knows by a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prepared {
    id: u32,
}

pub(crate) struct Client {
    stream: Box<dyn Link>,
    is_encrypted: bool,
    tracker: ResponseTracker,
    /// What was read and not handled yet.
    received: Vec<u8>,
    scratch: Box<[u8]>,
    negotiated: Capabilities,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr, account: Account) -> Result<Self, ClientError> {
        Self::connect_by(address, account, Tls::Off)
    }

    /// The same, with encryption or without.
    pub(crate) fn connect_by(address: SocketAddr, account: Account, tls: Tls) -> Result<Self, ClientError> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut client = Self {
            stream: Box::new(stream.try_clone()?),
            is_encrypted: false,
            tracker: ResponseTracker::new(wanted()),
            received: Vec::new(),
            scratch: vec![0; 16 << 10].into_boxed_slice(),
            negotiated: Capabilities(0),
        };
        let greeting = client.packet()?.1;
        client.refuse_error(&greeting)?;
        let greeting = Greeting::decode(&greeting)?;
        client.negotiated = wanted() & greeting.capabilities;
        client.tracker = ResponseTracker::new(client.negotiated);
        let offers_tls = greeting.capabilities.contains(Capabilities::SSL);
        if tls == Tls::Required || tls == Tls::Preferred && offers_tls {
            client.encrypt(stream)?;
        }
        let login = Login {
            capabilities: client.login_capabilities(),
            max_packet_size: 1 << 24,
            charset: 45,
            user: account.user.into(),
            auth_response: scramble(&greeting.auth_plugin, &greeting.nonce, account.password)?,
            database: Some(account.database.into()),
            auth_plugin: Some(greeting.auth_plugin),
            attributes: None,
            zstd_level: None,
        };
        let mut payload = Vec::new();
        login.encode(&mut payload);
        client.send(1 + u8::from(client.is_encrypted), &payload)?;
        client.finish_login(account.password)?;
        Ok(client)
    }

    fn login_capabilities(&self) -> Capabilities {
        match self.is_encrypted {
            true => self.negotiated | Capabilities::SSL,
            false => self.negotiated,
        }
    }

    fn encrypt(&mut self, stream: TcpStream) -> Result<(), ClientError> {
        let peer: IpAddr = stream.peer_addr()?.ip();
        self.is_encrypted = true;
        let request = SslRequest {
            capabilities: self.login_capabilities(),
            max_packet_size: 1 << 24,
            charset: 45,
        };
        let mut payload = Vec::new();
        request.encode(&mut payload);
        self.send(1, &payload)?;
        let tls = net::trusting_client().map_err(|error| ClientError::Lost(error.to_string()))?;
        let connection = ClientConnection::new(Arc::clone(&tls), ServerName::from(peer))
            .map_err(|error| ClientError::Lost(error.to_string()))?;
        self.stream = Box::new(StreamOwned::new(connection, stream));
        Ok(())
    }

    /// Runs one statement and reads its whole response.
    pub(crate) fn query(&mut self, statement: &str) -> Result<StatementAnswer, ClientError> {
        let (outcome, response) = self.ask(Command::QUERY, statement.as_bytes())?;
        let read = |packet: &[u8], _types: &[u8]| {
            text_values(packet)
                .map(|value| Ok(value?.map(text)))
                .collect::<Result<Vec<_>, ClientError>>()
        };
        answer(&outcome, &response, read)
    }

    pub(crate) fn prepare(&mut self, statement: &str) -> Result<Prepared, ClientError> {
        let (_, response) = self.ask(Command::STMT_PREPARE, statement.as_bytes())?;
        let first = packets(&response).next().unwrap_or_default();
        let id = PrepareOk::decode(first)?.statement_id;
        Ok(Prepared { id })
    }

    /// Runs a prepared statement whose parameters are numbers.
    pub(crate) fn execute(
        &mut self,
        statement: Prepared,
        parameters: &[u64],
    ) -> Result<StatementAnswer, ClientError> {
        let mut payload = statement.id.to_le_bytes().to_vec();
        payload.extend([0, 1, 0, 0, 0]); // no cursor; once
        if !parameters.is_empty() {
            payload.resize(payload.len() + parameters.len().div_ceil(8), 0); // none is NULL
            payload.push(1); // types follow
            payload.extend([LONGLONG, UNSIGNED].repeat(parameters.len()));
            payload.extend(parameters.iter().flat_map(|value| value.to_le_bytes()));
        }
        let (outcome, response) = self.ask(Command::STMT_EXECUTE, &payload)?;
        answer(&outcome, &response, binary_row)
    }

    pub(crate) fn quit(mut self) {
        // Who does not hear it any more has gone before.
        let _ = self.send(0, &[Command::QUIT.0]);
    }

    /// Sends a command and reads its whole response.
    fn ask(&mut self, command: Command, argument: &[u8]) -> Result<(Outcome, Vec<u8>), ClientError> {
        self.tracker.begin(command);
        self.send(0, &[&[command.0], argument].concat())?;
        let mut response = Vec::new();
        loop {
            self.read_more()?;
            let progress = self.tracker.advance(&self.received)?;
            response.extend(self.received.drain(..progress.consumed));
            match progress.event {
                Event::More => {}
                Event::Done(outcome) if outcome.error.is_none() => return Ok((outcome, response)),
                Event::Done(_) => {
                    let last = packets(&response).last().unwrap_or_default();
                    self.refuse_error(last)?;
                    return Err(ClientError::Lost("an error that cannot be read".to_owned()));
                }
                Event::LocalInfile | Event::Stream | Event::State => {
                    return Err(ClientError::Lost("an answer nobody asked for".to_owned()));
                }
            }
        }
    }

    fn finish_login(&mut self, password: &str) -> Result<(), ClientError> {
        loop {
            let (sequence, payload) = self.packet()?;
            self.refuse_error(&payload)?;
            match payload.first() {
                Some(&AuthSwitch::HEADER) => {
                    let switch = AuthSwitch::decode(&payload)?;
                    let nonce = switch.nonce();
                    let nonce =
                        nonce.ok_or_else(|| ClientError::Lost("a switch without a nonce".to_owned()))?;
                    let scrambled = scramble(&switch.plugin, &nonce, password)?;
                    self.send(sequence.wrapping_add(1), &scrambled)?;
                }
                Some(&AuthMoreData::HEADER) => {
                    let more = AuthMoreData::decode(&payload)?;
                    if more.data == AuthMoreData::FULL_AUTH && self.is_encrypted {
                        self.send(sequence.wrapping_add(1), &[password.as_bytes(), b"\0"].concat())?;
                    } else if more.data != AuthMoreData::FAST_AUTH_OK {
                        let why = "the server wants the password in full: the account has not logged in since its start";
                        return Err(ClientError::Lost(why.to_owned()));
                    }
                }
                _ => return Ok(()),
            }
        }
    }

    fn packet(&mut self) -> Result<(u8, Vec<u8>), ClientError> {
        loop {
            if let Some(header) = PacketHeader::parse(&self.received) {
                let end = PacketHeader::LEN + header.payload_len;
                if let Some(payload) = self.received.get(PacketHeader::LEN..end) {
                    let payload = payload.to_vec();
                    self.received.drain(..end);
                    return Ok((header.sequence, payload));
                }
            }
            self.read_more()?;
        }
    }

    fn read_more(&mut self) -> Result<(), ClientError> {
        let read = self.stream.read(&mut self.scratch)?;
        if read == 0 {
            return Err(ClientError::Lost("it was closed".to_owned()));
        }
        self.received.extend(&self.scratch[..read]);
        Ok(())
    }

    fn send(&mut self, mut sequence: u8, payload: &[u8]) -> Result<(), ClientError> {
        let mut packet = Vec::new();
        write_packet(&mut packet, &mut sequence, payload);
        Ok(self.stream.write_all(&packet)?)
    }

    fn refuse_error(&self, payload: &[u8]) -> Result<(), ClientError> {
        if payload.first() != Some(&ErrPacket::HEADER) {
            return Ok(());
        }
        let error = ErrPacket::decode(payload, self.negotiated)?;
        Err(ClientError::Refused {
            code: error.code,
            message: text(&error.message),
        })
    }
}

/// The answer to a nonce.
fn scramble(plugin: &[u8], nonce: &[u8; 20], password: &str) -> Result<Vec<u8>, ClientError> {
    match plugin {
        b"mysql_native_password" => Ok(auth::native_password(nonce, password.as_bytes())),
        b"caching_sha2_password" => Ok(auth::caching_sha2_password(nonce, password.as_bytes())),
        other => {
            let plugin = String::from_utf8_lossy(other);
            Err(ClientError::Lost(format!(
                "the account uses {plugin}, which is not known here"
            )))
        }
    }
}

/// The payloads of a response. None is as long as 16 MiB.
fn packets(response: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = response;
    std::iter::from_fn(move || {
        let end = PacketHeader::LEN + PacketHeader::parse(rest)?.payload_len;
        let payload = rest.get(PacketHeader::LEN..end)?;
        rest = &rest[end..];
        Some(payload)
    })
}

/// Reads a result whose rows are before its last packet. `read_row` is given the types of the columns.
fn answer(
    outcome: &Outcome,
    response: &[u8],
    read_row: impl Fn(&[u8], &[u8]) -> Result<Vec<Option<String>>, ClientError>,
) -> Result<StatementAnswer, ClientError> {
    let mut answer = StatementAnswer {
        rows: Vec::new(),
        affected: outcome.affected_rows,
    };
    if !outcome.is_result_set {
        return Ok(answer);
    }
    let packets: Vec<&[u8]> = packets(response).collect();
    let columns = packets
        .first()
        .and_then(|count| count.first().copied())
        .unwrap_or(0);
    let definitions = packets.iter().skip(1).take(usize::from(columns));
    let types: Vec<u8> = definitions
        .map(|definition| type_of(definition))
        .collect::<Result<_, _>>()?;
    let rows = outcome.rows as usize;
    let before = packets.len().saturating_sub(rows + 1);
    for row in packets.iter().skip(before).take(rows) {
        answer.rows.push(read_row(row, &types)?);
    }
    Ok(answer)
}

fn type_of(definition: &[u8]) -> Result<u8, ClientError> {
    let at = definition.len().checked_sub(TYPE_FROM_END);
    let found = at.and_then(|at| definition.get(at)).copied();
    found.ok_or_else(|| ClientError::Lost("a column without a type".to_owned()))
}

fn binary_row(row: &[u8], types: &[u8]) -> Result<Vec<Option<String>>, ClientError> {
    let cut = || ClientError::Lost("a row that is cut short".to_owned());
    // One byte in front, then a bit for each column behind two that are not used.
    let nulls = row.get(1..).ok_or_else(cut)?;
    let mut rest = nulls.get((types.len() + 2).div_ceil(8)..).ok_or_else(cut)?;
    let mut values = Vec::new();
    for (column, kind) in types.iter().enumerate() {
        let bit = column + 2;
        if nulls.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1) {
            values.push(None);
            continue;
        }
        let (value, behind) = binary_value(*kind, rest).ok_or_else(cut)?;
        values.push(Some(value));
        rest = behind;
    }
    Ok(values)
}

/// A value, and what is behind it.
fn binary_value(kind: u8, bytes: &[u8]) -> Option<(String, &[u8])> {
    match kind {
        LONG => {
            let (value, rest) = bytes.split_first_chunk::<4>()?;
            Some((i32::from_le_bytes(*value).to_string(), rest))
        }
        LONGLONG => {
            let (value, rest) = bytes.split_first_chunk::<8>()?;
            Some((i64::from_le_bytes(*value).to_string(), rest))
        }
        _ => {
            let (&len, rest) = bytes.split_first()?;
            let (value, rest) = rest.split_at_checked(usize::from(len))?;
            (len < 0xfb).then(|| (text(value), rest))
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn wanted() -> Capabilities {
    Capabilities::LONG_FLAG
        | Capabilities::CONNECT_WITH_DB
        | Capabilities::PROTOCOL_41
        | Capabilities::TRANSACTIONS
        | Capabilities::SECURE_CONNECTION
        | Capabilities::MULTI_RESULTS
        | Capabilities::PLUGIN_AUTH
        | Capabilities::DEPRECATE_EOF
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_rows_are_read() {
        let mut row = vec![0, 0b0000_1000]; // the second of three is NULL
        row.extend(7i64.to_le_bytes());
        row.extend(b"\x03abc");
        let values = binary_row(&row, &[LONGLONG, LONG, 254]).unwrap();
        assert_eq!(values, [Some("7".to_owned()), None, Some("abc".to_owned())]);
        assert!(binary_row(&row[..row.len() - 1], &[LONGLONG, LONG, 254]).is_err());
        assert!(binary_row(&[], &[LONG]).is_err());
    }
}
