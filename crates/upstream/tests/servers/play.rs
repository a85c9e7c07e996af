//! Servers to play with: real listeners on loopback that follow a script which a test can change at any time.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use config::{Server, ServerAddress};
use mysql_wire::{Capabilities, ErrPacket, Greeting, StatusFlags, write_packet};
use net::Peer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use upstream::{Cluster, Lease, LeaseError};

pub(crate) const CAPABILITIES: Capabilities = Capabilities(
    Capabilities::PROTOCOL_41.0
        | Capabilities::LONG_PASSWORD.0
        | Capabilities::SECURE_CONNECTION.0
        | Capabilities::PLUGIN_AUTH.0
        | Capabilities::DEPRECATE_EOF.0,
);

/// What a server does with a connection.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Sends a greeting of this version and refuses every login.
    Greet(&'static str),
    /// Greets, and refuses every login for want of room.
    Full,
    /// Sends an error packet instead.
    Refuse(u16, &'static str),
    /// Accepts and says nothing.
    Silent,
    /// Closes at once.
    Close,
    /// Closes in the middle of the greeting.
    Half,
    /// Sends these bytes.
    Bytes(Vec<u8>),
}

/// A server that is played.
pub(crate) struct Player {
    pub(crate) address: SocketAddr,
    pub(crate) accepted: Arc<AtomicUsize>,
    /// What connections sent first, one entry each (only those that send within a read).
    pub(crate) received: Arc<Mutex<Vec<Vec<u8>>>>,
    act: Arc<Mutex<Act>>,
    task: Option<JoinHandle<()>>,
    /// Keeps the address, also for the moments in which nobody listens there.
    _place: TcpSocket,
}

impl Player {
    pub(crate) async fn start(act: Act) -> Self {
        let place = bound("127.0.0.1:0".parse().unwrap());
        let mut player = Self {
            address: place.local_addr().unwrap(),
            accepted: Arc::default(),
            received: Arc::default(),
            act: Arc::new(Mutex::new(act)),
            task: None,
            _place: place,
        };
        player.resume().await;
        player
    }

    pub(crate) fn act(&self, act: Act) {
        *self.act.lock().unwrap() = act;
    }

    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Refuses connections from now on.
    pub(crate) async fn stop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            let _ = task.await;
        }
    }

    /// Listens again, where it was.
    pub(crate) async fn resume(&mut self) {
        self.play(bound(self.address).listen(1024).unwrap());
    }

    pub(crate) fn config(&self, name: &str) -> Server {
        server(name, self.address)
    }

    fn play(&mut self, listener: TcpListener) {
        let (accepted, received, act) = (
            Arc::clone(&self.accepted),
            Arc::clone(&self.received),
            Arc::clone(&self.act),
        );
        self.task = Some(tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    continue;
                };
                accepted.fetch_add(1, Ordering::SeqCst);
                let act = act.lock().unwrap().clone();
                tokio::spawn(perform(act, stream, Arc::clone(&received)));
            }
        }));
    }
}

async fn perform(act: Act, mut stream: TcpStream, received: Arc<Mutex<Vec<Vec<u8>>>>) {
    let bytes = match &act {
        Act::Greet(version) => packet(0, &greeting(version)),
        Act::Full => packet(0, &greeting("9.9.9")),
        Act::Refuse(code, message) => packet(0, &error(*code, message)),
        Act::Half => packet(0, &greeting("9.9.9"))[..20].to_vec(),
        Act::Bytes(bytes) => bytes.clone(),
        Act::Silent => Vec::new(),
        Act::Close => return,
    };
    let _ = stream.write_all(&bytes).await;
    if matches!(act, Act::Refuse(..) | Act::Half) {
        return;
    }
    let mut buffer = vec![0; 4096];
    while let Ok(n) = stream.read(&mut buffer).await
        && n > 0
    {
        received.lock().unwrap().push(buffer[..n].to_vec());
        let refusal = match act {
            Act::Greet(_) => error(1045, "Access denied"),
            Act::Full => error(1040, "Too many connections"),
            _ => continue,
        };
        let _ = stream.write_all(&packet(2, &refusal)).await;
    }
}

pub(crate) fn packet(mut sequence: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_packet(&mut bytes, &mut sequence, payload);
    bytes
}

pub(crate) fn greeting(version: &str) -> Vec<u8> {
    let mut payload = Vec::new();
    let greeting = Greeting {
        server_version: version.as_bytes().to_vec(),
        connection_id: 7,
        nonce: *b"abcdefghijklmnopqrst",
        capabilities: CAPABILITIES,
        charset: 45,
        status: StatusFlags::AUTOCOMMIT,
        auth_plugin: b"caching_sha2_password".to_vec(),
    };
    greeting.encode(&mut payload);
    payload
}

fn error(code: u16, message: &str) -> Vec<u8> {
    let mut payload = Vec::new();
    let error = ErrPacket {
        code,
        sql_state: *b"HY000",
        message: message.as_bytes().to_vec(),
    };
    error.encode(&mut payload, Capabilities(0));
    payload
}

pub(crate) fn server(name: &str, address: SocketAddr) -> Server {
    let address = ServerAddress::Host {
        host: address.ip().to_string(),
        port: address.port(),
    };
    Server {
        name: name.to_owned(),
        ..Server::new(address)
    }
}

/// A socket that has an address and refuses connections. Others that are made here may have the same.
fn bound(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.set_reuseport(true).unwrap();
    socket.bind(address).unwrap();
    socket
}

/// An address where nobody listens, and which nobody else is given as long as this program runs.
pub(crate) async fn nobody() -> SocketAddr {
    static TAKEN: Mutex<Vec<TcpSocket>> = Mutex::new(Vec::new());
    let socket = bound("127.0.0.1:0".parse().unwrap());
    let address = socket.local_addr().unwrap();
    TAKEN.lock().unwrap().push(socket);
    address
}

pub(crate) fn cluster(servers: Vec<Server>) -> config::Cluster {
    config::Cluster::new("main", servers)
}

pub(crate) fn client() -> Peer {
    Peer::Tcp("192.0.2.7:4711".parse().unwrap())
}

pub(crate) fn local() -> Peer {
    Peer::Tcp("192.0.2.1:6033".parse().unwrap())
}

/// A connection as a listener asks for one, of a client that stays.
pub(crate) async fn take_lease(cluster: &Arc<Cluster>) -> Result<Lease, LeaseError> {
    let (client, local) = (client(), local());
    cluster.lease(&client, &local, None, Vec::new(), pending()).await
}

/// Waits until `condition` holds, or fails. With a stopped clock the time that passes is not real.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(tokio::time::Instant::now() < deadline, "not within 60 s: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn status(cluster: &Cluster, name: &str) -> upstream::Status {
    by_name(cluster, name).state().status
}

pub(crate) fn by_name(cluster: &Cluster, name: &str) -> Arc<upstream::Server> {
    let servers = cluster.servers();
    Arc::clone(servers.iter().find(|server| server.name() == name).unwrap())
}
