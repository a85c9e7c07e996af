//! Both ends of the bench on one thread: fake servers, and a closed-loop load generator whose connections
//! reach it through a contender.
//!
//! One poll loop serves both, so that a query costs this core two reads, two writes and a share of an
//! `epoll_wait`, and no switch between threads. The generator knows every response beforehand: the first on
//! each connection is compared byte by byte, later ones are counted.

use std::{
    io::{self, Read, Write},
    net::SocketAddr,
    ops::Range,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use hdrhistogram::Histogram;
use mio::{Events, Interest, Poll, Token, event::Event, net::TcpStream};
use testkit::fake_server::FakeServer;

use super::session::{Input, Session};
use super::workload::Workload;

/// Tokens below are clients; from here on every fake server has so many.
const SERVER_TOKENS: usize = 1 << 32;
/// Connections that may be logging in at one time, so that no backlog overflows.
const LOGIN_WAVE: usize = 64;
/// Nothing at all happened for so long: the contender is stuck.
const STALL: Duration = Duration::from_secs(10);
const READ_BUFFER: usize = 256 << 10;
/// Highest latency told apart, in microseconds.
const MAX_LATENCY_US: u64 = 60_000_000;

/// What one run of the generator saw.
pub(super) struct Load {
    /// Queries sent and fully answered.
    pub queries: u64,
    /// From the first query sent to the last response received.
    pub elapsed: Duration,
    /// Time from a query sent to its response received, in nanoseconds.
    pub latency: Histogram<u64>,
}

/// Fake servers and their clients.
pub(super) struct Rig {
    poll: Poll,
    events: Events,
    servers: Vec<FakeServer>,
    clients: Vec<Client>,
    scratch: Box<[u8]>,
    /// Never sleep while something is awaited: see
    /// [`OverheadArgs::busy_poll`](super::OverheadArgs::busy_poll).
    busy_poll: bool,
}

struct Client {
    stream: TcpStream,
    session: Session,
    sent_at: Instant,
}

impl Rig {
    /// No server and no client.
    pub(super) fn new(busy_poll: bool) -> anyhow::Result<Self> {
        Ok(Self {
            poll: Poll::new()?,
            events: Events::with_capacity(512),
            servers: Vec::new(),
            clients: Vec::new(),
            scratch: vec![0; READ_BUFFER].into_boxed_slice(),
            busy_poll,
        })
    }

    /// Starts one more fake server. Returns its place and where it listens.
    pub(super) fn add_server(&mut self) -> anyhow::Result<(usize, SocketAddr)> {
        let place = self.servers.len();
        let mut server = FakeServer::bind(Token(SERVER_TOKENS * (place + 1)))?;
        server.register(self.poll.registry())?;
        let address = server.address()?;
        self.servers.push(server);
        Ok((place, address))
    }

    /// The fake servers at these places.
    pub(super) fn servers(&self, places: Range<usize>) -> &[FakeServer] {
        &self.servers[places]
    }

    /// Opens `count` more sessions to `target`; when this returns each has logged in, prepared its statement,
    /// run it once with the right result, and is idle.
    pub(super) fn open(
        &mut self,
        target: SocketAddr,
        count: usize,
        workload: &Workload,
    ) -> anyhow::Result<()> {
        let wanted = self.clients.len() + count;
        let mut idle = self.clients.len();
        while idle < wanted {
            while self.clients.len() < wanted && self.clients.len() < idle + LOGIN_WAVE {
                self.connect(target, workload)?;
            }
            self.turn(|_, _| idle += 1)
                .with_context(|| format!("opening session {}", idle + 1))?;
        }
        Ok(())
    }

    /// Keeps one query in flight on every session for `duration`, then waits for the last responses.
    pub(super) fn run(&mut self, duration: Duration) -> anyhow::Result<Load> {
        let mut latency = Histogram::new_with_bounds(1_000, MAX_LATENCY_US * 1000, 3)?;
        let start = Instant::now();
        for client in &mut self.clients {
            client.send_query()?;
        }
        let (mut queries, mut in_flight) = (0, self.clients.len());
        let mut end = start;
        while in_flight > 0 {
            let mut failure = None;
            self.turn(|client, now| {
                queries += 1;
                latency.saturating_record((now - client.sent_at).as_nanos() as u64);
                end = now;
                if now - start >= duration {
                    in_flight -= 1;
                } else if let Err(error) = client.send_query() {
                    failure = Some(error);
                }
            })?;
            if let Some(error) = failure {
                return Err(error);
            }
        }
        Ok(Load {
            queries,
            elapsed: end - start,
            latency,
        })
    }

    /// Closes all sessions and waits until these servers have seen the contender's side go, too.
    pub(super) fn close(&mut self, servers: Range<usize>) -> anyhow::Result<()> {
        for client in &mut self.clients {
            let _ = client.stream.write(&Workload::quit());
        }
        self.clients.clear();
        let deadline = Instant::now() + STALL;
        loop {
            let open: usize = self
                .servers(servers.clone())
                .iter()
                .map(FakeServer::connections)
                .sum();
            if open == 0 {
                return Ok(());
            }
            ensure!(
                Instant::now() <= deadline,
                "{open} server connections stay open after their clients left"
            );
            self.turn_for(Duration::from_millis(20), |_, _| ())?;
        }
    }

    fn connect(&mut self, target: SocketAddr, workload: &Workload) -> anyhow::Result<()> {
        let mut stream = TcpStream::connect(target).with_context(|| format!("connecting to {target}"))?;
        stream.set_nodelay(true)?;
        let token = Token(self.clients.len());
        self.poll
            .registry()
            .register(&mut stream, token, Interest::READABLE)?;
        self.clients.push(Client {
            stream,
            session: Session::new(workload),
            sent_at: Instant::now(),
        });
        Ok(())
    }

    fn turn(&mut self, answered: impl FnMut(&mut Client, Instant)) -> anyhow::Result<()> {
        ensure!(self.turn_for(STALL, answered)?, "no answer for {STALL:?}");
        Ok(())
    }

    /// One `epoll_wait` and what follows from it; `answered` is told of every client that became idle. False:
    /// nothing happened within `timeout`.
    fn turn_for(
        &mut self,
        timeout: Duration,
        mut answered: impl FnMut(&mut Client, Instant),
    ) -> anyhow::Result<bool> {
        self.wait(timeout)?;
        for event in &self.events {
            let index = event.token().0;
            if let Some(place) = (index / SERVER_TOKENS).checked_sub(1) {
                self.servers[place].handle(self.poll.registry(), event)?;
                continue;
            }
            let Some(client) = self.clients.get_mut(index) else {
                continue;
            };
            if client.handle(event, &mut self.scratch)? {
                answered(client, Instant::now());
            }
        }
        Ok(!self.events.is_empty())
    }

    fn wait(&mut self, timeout: Duration) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let wait = if self.busy_poll { Duration::ZERO } else { timeout };
            match self.poll.poll(&mut self.events, Some(wait)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error.into()),
                _ => {}
            }
            if !self.events.is_empty() || !self.busy_poll || began.elapsed() > timeout {
                return Ok(());
            }
        }
    }
}

impl Client {
    fn send_query(&mut self) -> anyhow::Result<()> {
        self.sent_at = Instant::now();
        let query = self.session.next_query();
        let written = self.stream.write(query)?;
        ensure!(
            written == query.len(),
            "the socket took {written} of {} bytes of a query",
            query.len()
        );
        Ok(())
    }

    /// True: the session has become idle.
    fn handle(&mut self, event: &Event, scratch: &mut [u8]) -> anyhow::Result<bool> {
        loop {
            let read = match self.stream.read(scratch) {
                Ok(0) => bail!("connection closed {}", self.session.doing()),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error).with_context(|| format!("reading {}", self.session.doing())),
            };
            match self.session.receive(&scratch[..read])? {
                Input::Idle => return Ok(true),
                Input::Send(bytes) => {
                    let written = self.stream.write(&bytes)?;
                    ensure!(
                        written == bytes.len(),
                        "the socket took {written} of {} bytes",
                        bytes.len()
                    );
                }
                Input::More => {}
            }
            if read < scratch.len() && !event.is_read_closed() {
                return Ok(false);
            }
        }
    }
}
