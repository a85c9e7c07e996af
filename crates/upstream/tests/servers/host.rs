//! A server that lets everybody in and has an answer to everything: for pools. It runs on a thread of its
//! own, so that workers on several threads can use it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mysql_wire::{Capabilities, Command, Greeting, OkPacket, PacketHeader, StatusFlags};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};

use crate::play::packet;

const CAPABILITIES: Capabilities = Capabilities(
    Capabilities::PROTOCOL_41.0
        | Capabilities::SECURE_CONNECTION.0
        | Capabilities::PLUGIN_AUTH.0
        | Capabilities::SESSION_TRACK.0
        | Capabilities::DEPRECATE_EOF.0,
);

/// What it counts, and how it behaves.
#[derive(Default)]
pub(crate) struct Host {
    /// Connections that have come.
    pub(crate) came: AtomicUsize,
    /// Logged in now.
    pub(crate) open: AtomicUsize,
    /// The most that were at one time.
    pub(crate) most: AtomicUsize,
    pub(crate) logins: AtomicUsize,
    pub(crate) quits: AtomicUsize,
    pub(crate) users: Mutex<Vec<String>>,
    pub(crate) queries: Mutex<Vec<String>>,
    /// Pings are not answered.
    pub(crate) mute: AtomicBool,
    /// Queries with SELECT are refused.
    pub(crate) coy: AtomicBool,
    /// New connections are not greeted.
    pub(crate) silent: AtomicBool,
    /// Logins are not answered while this is so.
    pub(crate) stuck: AtomicBool,
    /// Logins that have begun, with those that were refused.
    pub(crate) begun: AtomicUsize,
    /// Logins are refused.
    pub(crate) denied: AtomicBool,
    /// Those of this user are.
    pub(crate) stranger: Mutex<Option<String>>,
    /// Others have taken all its connections.
    pub(crate) full: AtomicBool,
    /// Connections that it takes at most; 0 is no limit.
    pub(crate) max: AtomicUsize,
    /// Connections and logins that it has refused.
    pub(crate) refused: AtomicUsize,
    kick: Notify,
}

pub(crate) struct Running {
    pub(crate) host: Arc<Host>,
    pub(crate) address: SocketAddr,
    _end: oneshot::Sender<()>,
}

impl std::ops::Deref for Running {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

pub(crate) fn start() -> Running {
    let (tell, address) = std::sync::mpsc::channel();
    let (end, ended) = oneshot::channel::<()>();
    let host = Arc::new(Host::default());
    let serving = Arc::clone(&host);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            tell.send(listener.local_addr().unwrap()).unwrap();
            tokio::select! {
                () = serve(listener, serving) => {}
                _ = ended => {}
            }
        });
    });
    Running {
        host,
        address: address.recv().unwrap(),
        _end: end,
    }
}

impl Host {
    /// Closes all connections.
    pub(crate) fn kick(&self) {
        self.kick.notify_waiters();
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    pub(crate) fn logins(&self) -> usize {
        self.logins.load(Ordering::SeqCst)
    }
}

async fn serve(listener: TcpListener, host: Arc<Host>) {
    let mut id = 0;
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        // Answers to commands that come together are written one by one.
        stream.set_nodelay(true).unwrap();
        id += 1;
        host.came.fetch_add(1, Ordering::SeqCst);
        let host = Arc::clone(&host);
        tokio::spawn(async move {
            let mut guest = None;
            tokio::select! {
                _ = converse(stream, id, &host, &mut guest) => {}
                () = host.kick.notified() => {}
            }
            // A test that sees that nobody is there finds the connection closed.
            drop(guest);
        });
    }
}

/// Counts a connection for as long as it is there.
struct Guest<'a>(&'a Host);

impl<'a> Guest<'a> {
    fn enter(host: &'a Host) -> Self {
        host.logins.fetch_add(1, Ordering::SeqCst);
        let open = host.open.fetch_add(1, Ordering::SeqCst) + 1;
        host.most.fetch_max(open, Ordering::SeqCst);
        Self(host)
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn converse<'h>(
    mut stream: TcpStream,
    id: u32,
    host: &'h Host,
    guest: &mut Option<Guest<'h>>,
) -> std::io::Result<()> {
    let mut payload = Vec::new();
    let greeting = Greeting {
        server_version: b"5.5.5-10.11.19-MariaDB".to_vec(),
        connection_id: id,
        nonce: *b"abcdefghijklmnopqrst",
        capabilities: CAPABILITIES,
        charset: 45,
        status: StatusFlags::AUTOCOMMIT,
        auth_plugin: b"mysql_native_password".to_vec(),
    };
    greeting.encode(&mut payload);
    if host.silent.load(Ordering::SeqCst) {
        std::future::pending::<()>().await;
    }
    let max = host.max.load(Ordering::SeqCst);
    if host.full.load(Ordering::SeqCst) || max > 0 && host.open() >= max {
        host.refused.fetch_add(1, Ordering::SeqCst);
        return stream
            .write_all(&packet(0, b"\xff\x10\x04#08004Too many connections"))
            .await;
    }
    stream.write_all(&packet(0, &payload)).await?;
    let mut received = Vec::new();
    let login = receive(&mut stream, &mut received).await?;
    let login = mysql_wire::Login::decode(&login).unwrap();
    host.begun.fetch_add(1, Ordering::SeqCst);
    while host.stuck.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let user = String::from_utf8(login.user).unwrap();
    // A check.
    if user == "forebay_probe" {
        return Ok(());
    }
    let is_stranger = host.stranger.lock().unwrap().as_ref() == Some(&user);
    if is_stranger || host.denied.load(Ordering::SeqCst) {
        host.refused.fetch_add(1, Ordering::SeqCst);
        return stream
            .write_all(&packet(2, b"\xff\x15\x04#28000Access denied"))
            .await;
    }
    host.users.lock().unwrap().push(user);
    *guest = Some(Guest::enter(host));
    stream.write_all(&packet(2, &ok())).await?;
    loop {
        let command = receive(&mut stream, &mut received).await?;
        let text = String::from_utf8_lossy(&command[1..]).into_owned();
        let answer = match Command(command[0]) {
            Command::QUIT => {
                host.quits.fetch_add(1, Ordering::SeqCst);
                return Ok(());
            }
            Command::PING if host.mute.load(Ordering::SeqCst) => continue,
            Command::QUERY if text.starts_with("SELECT") && host.coy.load(Ordering::SeqCst) => {
                packet(1, b"\xff\x75\x04#42000not for you")
            }
            Command::QUERY if text.starts_with("SELECT") || text.starts_with("SHOW") => {
                host.queries.lock().unwrap().push(text);
                nothing()
            }
            Command::QUERY => {
                host.queries.lock().unwrap().push(text);
                packet(1, &ok())
            }
            _ => packet(1, &ok()),
        };
        stream.write_all(&answer).await?;
    }
}

async fn receive(stream: &mut TcpStream, received: &mut Vec<u8>) -> std::io::Result<Vec<u8>> {
    loop {
        if let Some(header) = PacketHeader::parse(received) {
            let end = PacketHeader::LEN + header.payload_len;
            if received.len() >= end {
                let rest = received.split_off(end);
                return Ok(std::mem::replace(received, rest).split_off(PacketHeader::LEN));
            }
        }
        if stream.read_buf(received).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}

fn ok() -> Vec<u8> {
    let mut payload = Vec::new();
    let ok = OkPacket {
        status: StatusFlags::AUTOCOMMIT,
        ..OkPacket::default()
    };
    ok.encode(&mut payload, CAPABILITIES);
    payload
}

/// Two columns, no rows.
fn nothing() -> Vec<u8> {
    let mut bytes = packet(1, &[2]);
    for sequence in [2, 3] {
        bytes.extend(packet(sequence, b"\x03def"));
    }
    let mut end = Vec::new();
    OkPacket::default().encode_as_eof(&mut end, CAPABILITIES);
    bytes.extend(packet(4, &end));
    bytes
}
