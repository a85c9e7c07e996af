//! A client of one server: statements, prepared statements, and a dump of the binary log.

use std::time::Duration;

use mysql_wire::binlog::{Command as Dump, Decoder, Start, settings};
use mysql_wire::gtid::Flavor;
use mysql_wire::{Capabilities, Command, PacketHeader, write_packet};
use net::Stream;
use sandbox::Sandbox;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use upstream::login::{Account, Secret, Terms, log_in};
use upstream::read_greeting;

pub(crate) type TextRow = Vec<Option<Vec<u8>>>;

pub(crate) struct Link {
    stream: Stream,
    capabilities: Capabilities,
    received: Vec<u8>,
    at: usize,
}

impl Link {
    pub(crate) async fn open(sandbox: &Sandbox) -> Link {
        let mut stream = Stream::connect_unix(sandbox.primary().socket()).await.unwrap();
        let (greeting, _) = read_greeting(&mut stream, Duration::from_secs(30)).await.unwrap();
        let account = Account {
            user: sandbox::USER.as_bytes(),
            secret: Secret::Password(sandbox::PASSWORD.as_bytes()),
        };
        let logged_in = log_in(stream, &greeting, account, Terms::PLAIN, None)
            .await
            .unwrap();
        let mut link = Link {
            stream: logged_in.stream,
            capabilities: logged_in.capabilities,
            received: Vec::new(),
            at: 0,
        };
        link.query("SET NAMES utf8mb4, time_zone = '+00:00', sql_mode = ''")
            .await;
        link.query("USE test").await;
        link
    }

    async fn send(&mut self, payload: &[u8]) {
        let (mut bytes, mut sequence) = (Vec::new(), 0);
        write_packet(&mut bytes, &mut sequence, payload);
        self.stream.write_all(&bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// The next payload, joined where it is long.
    pub(crate) async fn receive(&mut self) -> Vec<u8> {
        const FULL: usize = 0xff_ffff;
        let mut whole = Vec::new();
        loop {
            let len = loop {
                if let Some(header) = PacketHeader::parse(&self.received[self.at..])
                    && self.received.len() - self.at >= PacketHeader::LEN + header.payload_len
                {
                    break header.payload_len;
                }
                self.received.drain(..std::mem::take(&mut self.at));
                assert_ne!(
                    self.stream.read_buf(&mut self.received).await.unwrap(),
                    0,
                    "closed"
                );
            };
            let start = self.at + PacketHeader::LEN;
            whole.extend_from_slice(&self.received[start..start + len]);
            self.at = start + len;
            if len < FULL {
                return whole;
            }
        }
    }

    /// Skips `count` packets and the EOF that may be behind them.
    async fn skip(&mut self, count: u64) {
        for _ in 0..count {
            self.receive().await;
        }
        if count > 0 && !self.capabilities.contains(Capabilities::DEPRECATE_EOF) {
            self.receive().await;
        }
    }

    async fn rows(&mut self, what: &str) -> Vec<Vec<u8>> {
        let head = self.receive().await;
        assert_ne!(head[0], 0xff, "{what}: {}", String::from_utf8_lossy(&head));
        if head[0] == 0 {
            return Vec::new();
        }
        self.skip(number(&mut &head[..])).await;
        let mut rows = Vec::new();
        loop {
            let row = self.receive().await;
            match row[0] {
                0xfe if row.len() < 0xff_ffff => return rows,
                0xff => panic!("{what}: {}", String::from_utf8_lossy(&row)),
                _ => rows.push(row),
            }
        }
    }

    pub(crate) async fn query(&mut self, statement: &str) -> Vec<TextRow> {
        self.send(&[&[Command::QUERY.0], statement.as_bytes()].concat())
            .await;
        let shown = &statement[..statement.floor_char_boundary(200)];
        let rows = self.rows(shown).await;
        rows.iter().map(|row| text_row(row)).collect()
    }

    /// Rows of a prepared statement, as they came.
    pub(crate) async fn execute(&mut self, statement: &str) -> Vec<Vec<u8>> {
        self.send(&[&[Command::STMT_PREPARE.0], statement.as_bytes()].concat())
            .await;
        let ok = self.receive().await;
        assert_eq!(ok[0], 0, "{}", String::from_utf8_lossy(&ok));
        self.skip(u64::from(u16::from_le_bytes([ok[5], ok[6]]))).await;
        let id = &ok[1..5];
        self.send(&[&[Command::STMT_EXECUTE.0], id, &[0, 1, 0, 0, 0]].concat())
            .await;
        let rows = self.rows(statement).await;
        self.send(&[&[Command::STMT_CLOSE.0], id].concat()).await;
        rows
    }

    /// Turns the connection into a stream of events.
    pub(crate) async fn dump(
        mut self,
        flavor: Flavor,
        start: Start<'_>,
        command: Dump<'_>,
    ) -> (Link, Decoder) {
        let uuid = "00000000-0000-0000-0000-0000000000b1";
        let statement = settings(flavor, Duration::from_secs(10), uuid, start);
        self.query(&statement).await;
        let register = Dump::Register {
            server_id: 4242,
            host: b"test",
            port: 0,
        };
        self.send(&register.encode()).await;
        assert_eq!(self.receive().await[0], 0);
        self.send(&command.encode()).await;
        (self, Decoder::new())
    }
}

fn text_row(mut row: &[u8]) -> TextRow {
    let mut columns = Vec::new();
    while let Some(&first) = row.first() {
        if first == 0xfb {
            row = &row[1..];
            columns.push(None);
            continue;
        }
        let len = number(&mut row) as usize;
        columns.push(Some(row[..len].to_vec()));
        row = &row[len..];
    }
    columns
}

/// A length-encoded integer.
fn number(bytes: &mut &[u8]) -> u64 {
    let len = match bytes[0] {
        0xfc => 2,
        0xfd => 3,
        0xfe => 8,
        small => {
            *bytes = &bytes[1..];
            return u64::from(small);
        }
    };
    let value = bytes[1..=len]
        .iter()
        .rev()
        .fold(0, |value, &byte| value << 8 | u64::from(byte));
    *bytes = &bytes[len + 1..];
    value
}
