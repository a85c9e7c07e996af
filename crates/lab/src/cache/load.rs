//! Redis clients of the bench: one thread, many connections, each with as many requests in flight as the
//! pipeline is deep.

use std::{
    fmt,
    io::{ErrorKind, Read, Write},
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use hdrhistogram::Histogram;
use inputs::Random;
use mio::{Events, Interest, Poll, Token, net::TcpStream};

/// A contender that is silent for so long has failed.
const PATIENCE: Duration = Duration::from_secs(20);
const SCRATCH: usize = 64 << 10;

#[derive(Clone, Copy, Debug)]
pub(super) struct Traffic {
    pub request: Request,
    pub clients: usize,
    /// Requests that a client sends before it waits for their replies.
    pub pipeline: usize,
    /// Keys are 1 to this one.
    pub rows: u64,
    /// Part of the requests that are for a row that exists, in percent.
    pub hits: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// `GET row@key`
    Get,
    /// `HGET hash@key c`
    Hget,
}

impl Traffic {
    /// Appends one request, for a random key.
    pub(super) fn request(&self, random: &mut Random, out: &mut Vec<u8>) -> std::io::Result<()> {
        let key = self.key(random);
        match self.request {
            Request::Get => command(out, &["GET", &format!("row@{key}")]),
            Request::Hget => command(out, &["HGET", &format!("hash@{key}"), "c"]),
        }
    }

    fn key(&self, random: &mut Random) -> u64 {
        let number = random.number();
        let row = number % self.rows + 1;
        match (number >> 40) % 100 < self.hits {
            true => row,
            false => row + self.rows,
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::Get => "GET",
            Self::Hget => "HGET",
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub address: SocketAddr,
    /// User and password, where it asks for them.
    pub account: Option<(&'static str, &'static str)>,
}

impl Target {
    /// A blocking connection, logged in.
    pub(super) fn connect(&self) -> anyhow::Result<std::net::TcpStream> {
        let mut stream = std::net::TcpStream::connect_timeout(&self.address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        if let Some((user, password)) = self.account {
            let reply = ask(&mut stream, &["AUTH", user, password])?;
            ensure!(reply == "+OK", "AUTH: {reply}");
        }
        Ok(stream)
    }
}

/// Sends one command, and returns the first line of its reply, and with a bulk string its bytes.
pub(super) fn ask(stream: &mut std::net::TcpStream, words: &[&str]) -> anyhow::Result<String> {
    let mut request = Vec::new();
    command(&mut request, words)?;
    stream.write_all(&request)?;
    let line = line(stream)?;
    match line.strip_prefix('$').map(str::parse::<i64>) {
        Some(Ok(len @ 0..)) => {
            let mut bulk = vec![0; usize::try_from(len)? + 2];
            stream.read_exact(&mut bulk)?;
            bulk.truncate(bulk.len() - 2);
            Ok(String::from_utf8(bulk)?)
        }
        _ => Ok(line),
    }
}

fn line(stream: &mut std::net::TcpStream) -> anyhow::Result<String> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        line.extend(byte);
    }
    line.truncate(line.len() - 2);
    Ok(String::from_utf8(line)?)
}

pub(super) struct Load {
    pub operations: u64,
    pub elapsed: Duration,
    /// Nanoseconds from the first byte of a pipeline to the last byte of its replies.
    pub latency: Histogram<u64>,
}

pub(super) struct Clients {
    poll: Poll,
    connections: Vec<Connection>,
    traffic: Traffic,
    random: Random,
}

struct Connection {
    stream: TcpStream,
    replies: Replies,
    outstanding: usize,
    unsent: Vec<u8>,
    began: Instant,
}

impl Clients {
    /// Connects, and logs in where there is an account.
    pub(super) fn open(target: &Target, traffic: Traffic) -> anyhow::Result<Self> {
        let poll = Poll::new()?;
        let mut connections = Vec::with_capacity(traffic.clients);
        for at in 0..traffic.clients {
            let stream = target.connect()?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            poll.registry()
                .register(&mut stream, Token(at), Interest::READABLE | Interest::WRITABLE)?;
            connections.push(Connection {
                stream,
                replies: Replies::default(),
                outstanding: 0,
                unsent: Vec::new(),
                began: Instant::now(),
            });
        }
        Ok(Self {
            poll,
            connections,
            traffic,
            random: Random::new(1),
        })
    }

    /// Sends and receives for `duration`, then until every request is answered.
    pub(super) fn run(&mut self, duration: Duration) -> anyhow::Result<Load> {
        let began = Instant::now();
        let mut load = Load {
            operations: 0,
            elapsed: Duration::ZERO,
            latency: Histogram::new(3)?,
        };
        let mut scratch = vec![0; SCRATCH];
        let mut events = Events::with_capacity(1024);
        for at in 0..self.connections.len() {
            self.ask(at)?;
        }
        let mut busy = self.connections.len();
        while busy > 0 {
            self.poll.poll(&mut events, Some(PATIENCE))?;
            ensure!(!events.is_empty(), "no answer within {PATIENCE:?}");
            for event in &events {
                let at = event.token().0;
                self.connections[at].send()?;
                if !self.receive(at, &mut scratch)? {
                    continue;
                }
                let connection = &self.connections[at];
                load.operations += self.traffic.pipeline as u64;
                let nanoseconds = connection.began.elapsed().as_nanos();
                load.latency.record(nanoseconds as u64)?;
                if began.elapsed() < duration {
                    self.ask(at)?;
                } else {
                    busy -= 1;
                }
            }
        }
        load.elapsed = began.elapsed();
        Ok(load)
    }

    fn ask(&mut self, at: usize) -> anyhow::Result<()> {
        let mut requests = std::mem::take(&mut self.connections[at].unsent);
        for _ in 0..self.traffic.pipeline {
            self.traffic.request(&mut self.random, &mut requests)?;
        }
        let connection = &mut self.connections[at];
        connection.unsent = requests;
        connection.outstanding = self.traffic.pipeline;
        connection.began = Instant::now();
        connection.send()
    }

    /// Whether this was the last reply that the connection waited for.
    fn receive(&mut self, at: usize, scratch: &mut [u8]) -> anyhow::Result<bool> {
        let connection = &mut self.connections[at];
        if connection.outstanding == 0 {
            return Ok(false);
        }
        loop {
            let read = match connection.stream.read(scratch) {
                Ok(0) => bail!("the connection was closed"),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            let finished = connection.replies.take(&scratch[..read])?;
            ensure!(finished <= connection.outstanding, "a reply nobody asked for");
            connection.outstanding -= finished;
            if connection.outstanding == 0 {
                return Ok(true);
            }
            if read < scratch.len() {
                return Ok(false);
            }
        }
    }
}

impl Connection {
    fn send(&mut self) -> anyhow::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(written) => drop(self.unsent.drain(..written)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Appends a command as clients send it: an array of bulk strings.
pub(super) fn command(out: &mut Vec<u8>, words: &[&str]) -> std::io::Result<()> {
    write!(out, "*{}\r\n", words.len())?;
    for word in words {
        write!(out, "${}\r\n{word}\r\n", word.len())?;
    }
    Ok(())
}

/// Counts replies that are a line or a bulk string, in whatever pieces they arrive.
#[derive(Default)]
pub(super) struct Replies {
    line: Vec<u8>,
    /// Bytes of a bulk string, and of the line end behind it, that are to come.
    bulk: usize,
}

impl Replies {
    /// How many replies end in these bytes.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> anyhow::Result<usize> {
        let mut finished = 0;
        while !bytes.is_empty() {
            if self.bulk > 0 {
                let skipped = self.bulk.min(bytes.len());
                self.bulk -= skipped;
                bytes = &bytes[skipped..];
                finished += usize::from(self.bulk == 0);
                continue;
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let (part, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
            self.line.extend(part);
            bytes = rest;
            if end.is_some() {
                finished += usize::from(self.line_ended()?);
            }
        }
        Ok(finished)
    }

    /// Whether the line is a reply of its own.
    fn line_ended(&mut self) -> anyhow::Result<bool> {
        let line = std::str::from_utf8(&self.line)?.trim_end();
        let (kind, rest) = line.split_at_checked(1).context("an empty line")?;
        let whole = match kind {
            "$" => match rest.parse::<i64>()? {
                ..0 => true,
                len => {
                    self.bulk = usize::try_from(len)? + 2;
                    false
                }
            },
            "-" => bail!("an error: {rest}"),
            "+" | ":" | "_" => true,
            _ => bail!("a reply that was not expected: {line}"),
        };
        self.line.clear();
        Ok(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_counted_in_any_pieces() {
        let text = b"$3\r\nabc\r\n$-1\r\n+OK\r\n$0\r\n\r\n";
        for at in 0..text.len() {
            let mut replies = Replies::default();
            let first = replies.take(&text[..at]).unwrap();
            assert_eq!(first + replies.take(&text[at..]).unwrap(), 4, "cut at {at}");
        }
        let error = Replies::default()
            .take(b"-LOADING row is copied\r\n")
            .unwrap_err();
        assert!(error.to_string().contains("LOADING row"));
    }

    #[test]
    fn a_command_is_an_array_of_bulk_strings() {
        let mut out = Vec::new();
        command(&mut out, &["GET", "row@17"]).unwrap();
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$6\r\nrow@17\r\n");
    }
}
