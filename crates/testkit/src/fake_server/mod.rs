//! A MySQL server that costs almost nothing a query, to measure what stands in front of it.
//!
//! It accepts any login, answers every SELECT and every execution with a precomputed
//! [result set](crate::result_set) and everything else with OK. One thread, one epoll instance, one `read`
//! and one `write` a query. It understands no SQL: `… LIMIT n` at the end of a statement is how a client asks
//! for n rows. To a gateway that looks at its variables before it lets sessions share a connection it shows
//! those of a new connection to MySQL 8.4.
//!
//! It has no TLS, no compression and no packets over 16 MiB; the scripted server is for those.

mod answers;
mod connection;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

use mio::{Interest, Registry, Token, event::Event, net::TcpListener};
use socket2::{Domain, Socket, Type};

use self::{answers::Answers, connection::Connection};

/// Enough for a thousand rows, so that such a response is one `write`.
const SEND_BUFFER: usize = 1 << 20;
const READ_BUFFER: usize = 64 << 10;
const BACKLOG: i32 = 4096;

/// The server as a part of somebody's poll loop: who owns the loop hands it the events of its tokens.
///
/// ```no_run
/// # use mio::{Events, Poll, Token};
/// # fn main() -> std::io::Result<()> {
/// let mut poll = Poll::new()?;
/// let mut server = testkit::fake_server::FakeServer::bind(Token(1 << 32))?;
/// server.register(poll.registry())?;
/// let mut events = Events::with_capacity(256);
/// loop {
///     poll.poll(&mut events, None)?;
///     for event in &events {
///         server.handle(poll.registry(), event)?; // those of its tokens
///     }
/// }
/// # }
/// ```
pub struct FakeServer {
    listener: TcpListener,
    first_token: Token,
    connections: Vec<Option<Connection>>,
    vacant: Vec<usize>,
    answers: Answers,
    scratch: Box<[u8]>,
}

impl FakeServer {
    /// Listens on a free loopback port. All tokens from `first_token` upwards are this server's.
    pub fn bind(first_token: Token) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_send_buffer_size(SEND_BUFFER)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            listener: TcpListener::from_std(socket.into()),
            first_token,
            connections: Vec::new(),
            vacant: Vec::new(),
            answers: Answers::default(),
            scratch: vec![0; READ_BUFFER].into_boxed_slice(),
        })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Number of statements that were answered with rows, by all connections since the start.
    pub fn results(&self) -> u64 {
        self.answers.results()
    }

    /// Number of open connections.
    pub fn connections(&self) -> usize {
        self.connections.len() - self.vacant.len()
    }

    /// Adds the listening socket to a poll.
    pub fn register(&mut self, registry: &Registry) -> io::Result<()> {
        registry.register(&mut self.listener, self.first_token, Interest::READABLE)
    }

    /// Does everything the event makes possible. An error is one of the listening socket; a connection that
    /// breaks is dropped in silence.
    pub fn handle(&mut self, registry: &Registry, event: &Event) -> io::Result<()> {
        let Some(slot) = (event.token().0 - self.first_token.0).checked_sub(1) else {
            return self.accept(registry);
        };
        let Some(connection) = self.connections.get_mut(slot).and_then(Option::as_mut) else {
            return Ok(()); // closed by an earlier event of the same turn
        };
        if connection
            .handle(event, &mut self.scratch, &mut self.answers)
            .is_break()
        {
            self.connections[slot] = None;
            self.vacant.push(slot);
        }
        Ok(())
    }

    fn accept(&mut self, registry: &Registry) -> io::Result<()> {
        loop {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            stream.set_nodelay(true)?;
            let slot = self.vacant.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            let token = Token(self.first_token.0 + 1 + slot);
            registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
            self.connections[slot] = Connection::greet(stream, slot as u32 + 1).or_else(|| {
                self.vacant.push(slot);
                None
            });
        }
    }
}

#[cfg(test)]
mod tests;
