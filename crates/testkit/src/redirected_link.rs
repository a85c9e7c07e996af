//! A link to a server that leads elsewhere from one moment to the next, as with a proxy, or goes dead without
//! a word, as when a firewall forgets connections.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::thread;

/// Forwards connections to a port of this machine, until the process ends.
pub struct RedirectedLink {
    /// The port that clients of the link connect to.
    pub port: u16,
    to: Arc<AtomicU16>,
    turned_away: Arc<AtomicU64>,
    /// Connections that were made before the last [`freeze`](Self::freeze) have a lower one.
    era: Arc<AtomicU64>,
}

impl RedirectedLink {
    /// # Errors
    /// If there is no port to listen at.
    pub fn start(to: u16) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let era = Arc::new(AtomicU64::new(0));
        let now = Arc::clone(&era);
        let to = Arc::new(AtomicU16::new(to));
        let target = Arc::clone(&to);
        let turned_away = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&turned_away);
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let Ok(server) = TcpStream::connect(("127.0.0.1", target.load(Ordering::SeqCst))) else {
                    count.fetch_add(1, Ordering::SeqCst);
                    continue;
                };
                let (Ok(from), Ok(to)) = (client.try_clone(), server.try_clone()) else {
                    return;
                };
                let pairs = [(from, to), (server, client)];
                let made = now.load(Ordering::SeqCst);
                for (from, to) in pairs {
                    let now = Arc::clone(&now);
                    thread::spawn(move || forward(from, to, || now.load(Ordering::SeqCst) == made));
                }
            }
        });
        Ok(Self {
            port,
            to,
            turned_away,
            era,
        })
    }

    /// New connections lead to another port.
    pub fn lead_to(&self, port: u16) {
        self.to.store(port, Ordering::SeqCst);
    }

    /// Connections that were closed at once, because nobody answers where they lead.
    #[must_use]
    pub fn turned_away(&self) -> u64 {
        self.turned_away.load(Ordering::SeqCst)
    }

    /// Nothing comes through any more on the connections that there are. New ones are as before.
    pub fn freeze(&self) {
        self.era.fetch_add(1, Ordering::SeqCst);
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, is_alive: impl Fn() -> bool) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        if !is_alive() {
            // Neither side finds out.
            loop {
                thread::park();
            }
        }
        if to.write_all(&buffer[..len]).is_err() {
            return;
        }
    }
    if is_alive() {
        let _ = to.shutdown(std::net::Shutdown::Both);
    }
}
