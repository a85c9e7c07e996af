//! A way to a server that is longer than it looks: a relay that holds everything back for a while.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

const BUFFER: usize = 64 << 10;

/// It takes connections until it is dropped; those that it has end with either side.
pub(super) struct Relay {
    pub address: SocketAddr,
    ends: Arc<AtomicBool>,
}

impl Relay {
    /// Each way takes half of `delay` longer, so that a question with its answer takes all of it.
    pub(super) fn start(server: SocketAddr, delay: Duration) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let relay = Self {
            address: listener.local_addr()?,
            ends: Arc::default(),
        };
        let ends = Arc::clone(&relay.ends);
        // Those that it starts are called so as well.
        let thread = thread::Builder::new().name(name(relay.address));
        thread.spawn(move || {
            wake_in_time();
            for client in listener.incoming() {
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                // Whoever cannot be served sees a connection that ends.
                let _ = client.and_then(|client| join(client, server, delay / 2));
            }
        })?;
        Ok(relay)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // It looks up when somebody comes.
        let _ = TcpStream::connect(self.address);
    }
}

fn name(address: SocketAddr) -> String {
    format!("relay {}", address.port())
}

/// Timers of this thread, and of those that it starts, are not put together with others: by default the
/// kernel lets each come 50 µs late. Where it may not be set the delay is that much longer.
fn wake_in_time() {
    // `PID/task/TID`: only a folder directly in /proc has the file.
    if let Ok(thread) = fs::read_link("/proc/thread-self")
        && let Some(id) = thread.file_name()
    {
        let _ = fs::write(Path::new("/proc").join(id).join("timerslack_ns"), "1000");
    }
}

fn join(client: TcpStream, server: SocketAddr, delay: Duration) -> std::io::Result<()> {
    let server = TcpStream::connect(server)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let (from_client, to_client) = (client.try_clone()?, client);
    let (from_server, to_server) = (server.try_clone()?, server);
    thread::spawn(move || copy(from_client, to_server, delay));
    thread::spawn(move || copy(from_server, to_client, delay));
    Ok(())
}

/// What comes together is held back together: of a long answer each part waits for the one before.
fn copy(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let mut buffer = vec![0; BUFFER];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        thread::sleep(delay);
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// How late timers come depends on what else the machine does; what is asked of the kernel does not.
    #[test]
    fn its_timers_come_in_time() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let relay = Relay::start(server.local_addr().unwrap(), Duration::ZERO).unwrap();
        let mut client = TcpStream::connect(relay.address).unwrap();
        let (mut served, _) = server.accept().unwrap();
        let mut byte = [0];
        client.write_all(b"?").unwrap();
        served.read_exact(&mut byte).unwrap();
        served.write_all(b"!").unwrap();
        client.read_exact(&mut byte).unwrap();
        // One takes connections, and one each copies what comes from either side.
        assert_eq!(slack_of_threads(&name(relay.address)), ["1000"; 3]);
    }

    /// By how many nanoseconds the kernel may let the timers of the threads of this name come late.
    fn slack_of_threads(name: &str) -> Vec<String> {
        let threads = fs::read_dir("/proc/self/task").unwrap();
        let threads = threads.filter_map(|thread| thread.ok().map(|thread| thread.path()));
        let named = threads.filter(|thread| {
            fs::read_to_string(thread.join("comm")).is_ok_and(|comm| comm.trim_end() == name)
        });
        let slack = named.map(|thread| {
            let file = Path::new("/proc")
                .join(thread.file_name().unwrap())
                .join("timerslack_ns");
            fs::read_to_string(file).unwrap().trim_end().to_owned()
        });
        slack.collect()
    }

    #[test]
    fn a_question_with_its_answer_takes_all_of_the_delay() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let relay = Relay::start(server.local_addr().unwrap(), Duration::from_millis(20)).unwrap();
        let mut client = TcpStream::connect(relay.address).unwrap();
        let (mut served, _) = server.accept().unwrap();
        let began = Instant::now();
        let mut byte = [0];
        client.write_all(b"?").unwrap();
        served.read_exact(&mut byte).unwrap();
        assert!(began.elapsed() >= Duration::from_millis(10) && byte == *b"?");
        served.write_all(b"!").unwrap();
        client.read_exact(&mut byte).unwrap();
        assert!(began.elapsed() >= Duration::from_millis(20) && byte == *b"!");
        drop(served);
        assert_eq!(client.read(&mut byte).unwrap(), 0);
        let address = relay.address;
        drop(relay);
        let began = Instant::now();
        while TcpStream::connect(address).is_ok() {
            assert!(
                began.elapsed() < Duration::from_secs(5),
                "it takes connections still"
            );
        }
    }
}
