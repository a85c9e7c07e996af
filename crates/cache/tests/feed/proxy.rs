//! A way to a server that goes dead without a word, as when a firewall forgets connections.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::thread;

/// Forwards connections to a port of this machine.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    to: Arc<AtomicU16>,
    turned_away: Arc<AtomicU64>,
    /// Connections that were made before the last [`freeze`](Self::freeze) have a lower one.
    era: Arc<AtomicU64>,
}

impl Proxy {
    pub(crate) fn start(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
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
                let pairs = [
                    (client.try_clone().unwrap(), server.try_clone().unwrap()),
                    (server, client),
                ];
                let made = now.load(Ordering::SeqCst);
                for (from, to) in pairs {
                    let now = Arc::clone(&now);
                    thread::spawn(move || forward(from, to, || now.load(Ordering::SeqCst) == made));
                }
            }
        });
        Self {
            port,
            to,
            turned_away,
            era,
        }
    }

    /// New connections lead to another port.
    pub(crate) fn lead_to(&self, port: u16) {
        self.to.store(port, Ordering::SeqCst);
    }

    /// Connections that were closed at once, because nobody answers where they lead.
    pub(crate) fn turned_away(&self) -> u64 {
        self.turned_away.load(Ordering::SeqCst)
    }

    /// Nothing comes through any more on the connections that there are. New ones are as before.
    pub(crate) fn freeze(&self) {
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
