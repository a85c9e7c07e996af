//! A relay that counts round trips: how often something is asked after something was answered.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use mysql_wire::{Command, PacketHeader};
use sandbox::Sandbox;

/// Its threads end with the test's process.
pub(crate) struct Turns {
    address: SocketAddr,
    count: Arc<AtomicU64>,
}

impl Turns {
    pub(crate) fn to(server: &Sandbox) -> Self {
        let target: SocketAddr = server.primary().address().parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let count = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&count);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let counted = Arc::clone(&counted);
                thread::spawn(move || relay(client, target, &counted));
            }
        });
        Self { address, count }
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Round trips so far, without logins, pings and goodbyes.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }
}

fn relay(client: TcpStream, target: SocketAddr, count: &AtomicU64) {
    let Ok(server) = TcpStream::connect(target) else {
        return;
    };
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
    }
    let answered = Arc::new(AtomicBool::new(true));
    let (from, to, answers) = (
        server.try_clone().unwrap(),
        client.try_clone().unwrap(),
        Arc::clone(&answered),
    );
    let down = thread::spawn(move || pass(from, to, |_| answers.store(true, Ordering::SeqCst)));
    pass(client, server, |bytes| {
        if begins_command(bytes) && answered.swap(false, Ordering::SeqCst) {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    let _ = down.join();
}

fn begins_command(bytes: &[u8]) -> bool {
    let header = PacketHeader::parse(bytes);
    let command = bytes.get(PacketHeader::LEN).copied().map(Command);
    header.is_some_and(|header| header.sequence == 0)
        && command.is_some_and(|command| command != Command::PING && command != Command::QUIT)
}

fn pass(mut from: TcpStream, mut to: TcpStream, mut seen: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        seen(&buffer[..read]);
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
