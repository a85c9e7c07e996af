//! A TCP relay that misbehaves as told: the network between two ends of a test.
//!
//! ```no_run
//! # async fn test(server: std::net::SocketAddr) -> std::io::Result<()> {
//! use testkit::lossy_link::{Fault, LossyLink};
//!
//! let link = LossyLink::start(server).await?;
//! link.set_to_client(Fault::CutAfter(1000)); // the client gets 1000 more bytes, then the end
//! # let _ = link.address(); Ok(())
//! # }
//! ```

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::{AbortHandle, JoinSet},
    time::sleep,
};

const BUFFER: usize = 64 << 10;

/// What the link does to the bytes of one direction, on all its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Passes them on.
    #[default]
    None,
    /// Passes on every piece it reads this much later.
    Delay(Duration),
    /// Passes on one byte at a time, each in a packet of its own, with a pause after it.
    Trickle(Duration),
    /// Reads nothing, so that the sender's and the receiver's buffers fill, until the fault is another one.
    Stall,
    /// Passes on this many more bytes of every connection and then closes both its ends.
    CutAfter(u64),
    /// Closes both ends of a connection when there is a byte to pass on, and passes it on to nobody.
    CutNext,
    /// Passes on every piece it reads with these bytes behind it, in one write.
    Behind(&'static [u8]),
    /// Sends these bytes, once on every connection, and passes on what comes.
    Unasked(&'static [u8]),
}

/// A running relay. Dropping it closes all connections.
pub struct LossyLink {
    address: SocketAddr,
    to_client: watch::Sender<Fault>,
    to_server: watch::Sender<Fault>,
    acceptor: AbortHandle,
}

impl LossyLink {
    /// Listens on a free loopback port and relays to `target`. Must be called inside a tokio runtime.
    pub async fn start(target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (to_client, client_fault) = watch::channel(Fault::None);
        let (to_server, server_fault) = watch::channel(Fault::None);
        let accept = accept(listener, target, client_fault, server_fault);
        let acceptor = tokio::spawn(accept).abort_handle();
        Ok(Self {
            address,
            to_client,
            to_server,
            acceptor,
        })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What happens from now on to bytes from the target to the client.
    pub fn set_to_client(&self, fault: Fault) {
        self.to_client.send_replace(fault);
    }

    /// What happens from now on to bytes from the client to the target.
    pub fn set_to_server(&self, fault: Fault) {
        self.to_server.send_replace(fault);
    }
}

impl Drop for LossyLink {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

/// The connections end with this task.
async fn accept(
    listener: TcpListener,
    target: SocketAddr,
    client_fault: watch::Receiver<Fault>,
    server_fault: watch::Receiver<Fault>,
) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let faults = (client_fault.clone(), server_fault.clone());
        connections.spawn(relay(client, target, faults));
    }
}

async fn relay(
    client: TcpStream,
    target: SocketAddr,
    (client_fault, server_fault): (watch::Receiver<Fault>, watch::Receiver<Fault>),
) -> io::Result<()> {
    let server = TcpStream::connect(target).await?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::try_join!(
        pass(from_client, to_server, server_fault),
        pass(from_server, to_client, client_fault)
    )?;
    Ok(())
}

/// One direction. An error ends the connection in both.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut faults: watch::Receiver<Fault>,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    let mut left = allowance(*faults.borrow_and_update());
    loop {
        if faults.has_changed().is_ok_and(|changed| changed) {
            left = allowance(*faults.borrow_and_update());
            say(&mut to, &faults).await?;
        }
        let fault = *faults.borrow();
        if fault == Fault::Stall {
            faults.changed().await.map_err(io::Error::other)?;
            left = allowance(*faults.borrow_and_update());
            continue;
        }
        if left == Some(0) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        // A change of fault is seen before bytes that come after it are read.
        let read = tokio::select! {
            biased;
            changed = faults.changed() => {
                changed.map_err(io::Error::other)?;
                left = allowance(*faults.borrow_and_update());
                say(&mut to, &faults).await?;
                continue;
            }
            read = from.read(&mut buffer) => read?,
        };
        if read == 0 {
            return to.shutdown().await;
        }
        if fault == Fault::CutNext {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let length = left.map_or(read, |left| left.min(read as u64) as usize);
        write(&mut to, &buffer[..length], fault).await?;
        if length < read {
            // What was not passed on is lost, whatever the fault is by now: no byte may come after it.
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        left = left.map(|left| left - length as u64);
    }
}

async fn write(to: &mut OwnedWriteHalf, bytes: &[u8], fault: Fault) -> io::Result<()> {
    match fault {
        Fault::Delay(delay) => sleep(delay).await,
        Fault::Trickle(pause) => {
            for byte in bytes {
                to.write_all(&[*byte]).await?;
                sleep(pause).await;
            }
            return Ok(());
        }
        Fault::Behind(further) => return to.write_all(&[bytes, further].concat()).await,
        _ => {}
    }
    to.write_all(bytes).await
}

async fn say(to: &mut OwnedWriteHalf, faults: &watch::Receiver<Fault>) -> io::Result<()> {
    let fault = *faults.borrow();
    match fault {
        Fault::Unasked(bytes) => to.write_all(bytes).await,
        _ => Ok(()),
    }
}

fn allowance(fault: Fault) -> Option<u64> {
    match fault {
        Fault::CutAfter(bytes) => Some(bytes),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::time::timeout;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A server that sends back what it gets.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        address
    }

    async fn through() -> (LossyLink, TcpStream) {
        let link = LossyLink::start(echo().await).await.unwrap();
        let client = TcpStream::connect(link.address()).await.unwrap();
        (link, client)
    }

    async fn echoed(client: &mut TcpStream, bytes: &[u8]) -> io::Result<Vec<u8>> {
        client.write_all(bytes).await?;
        let mut got = vec![0; bytes.len()];
        timeout(PATIENCE, client.read_exact(&mut got)).await??;
        Ok(got)
    }

    #[tokio::test]
    async fn passes_bytes_and_the_end_of_the_stream() {
        let (_link, mut client) = through().await;
        let bytes: Vec<u8> = (0..50_000).map(|at| at as u8).collect();
        assert!(echoed(&mut client, &bytes).await.unwrap() == bytes);
        client.shutdown().await.unwrap();
        assert_eq!(
            timeout(PATIENCE, client.read(&mut [0])).await.unwrap().unwrap(),
            0
        );
    }

    #[tokio::test]
    async fn cuts_after_exactly_so_many_bytes() {
        let (link, mut client) = through().await;
        assert!(echoed(&mut client, b"before").await.is_ok());
        link.set_to_client(Fault::CutAfter(3));
        client.write_all(b"abcdef").await.unwrap();
        let mut got = Vec::new();
        timeout(PATIENCE, client.read_to_end(&mut got))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(got, b"abc");
    }

    #[tokio::test]
    async fn cuts_once_there_is_a_byte_to_pass_on() {
        let (link, mut client) = through().await;
        link.set_to_client(Fault::CutNext);
        let silence = timeout(Duration::from_millis(50), client.read(&mut [0])).await;
        assert!(silence.is_err(), "nothing was to be passed on");
        client.write_all(b"abc").await.unwrap();
        let mut got = Vec::new();
        let end = timeout(PATIENCE, client.read_to_end(&mut got)).await;
        assert!(end.is_ok() && got.is_empty(), "{end:?} {got:?}");
    }

    #[tokio::test]
    async fn delays_and_trickles() {
        let (link, mut client) = through().await;
        link.set_to_server(Fault::Delay(Duration::from_millis(30)));
        link.set_to_client(Fault::Trickle(Duration::from_millis(2)));
        let start = Instant::now();
        assert_eq!(
            echoed(&mut client, b"twenty bytes of text").await.unwrap(),
            b"twenty bytes of text"
        );
        assert!(start.elapsed() >= Duration::from_millis(30 + 19 * 2));
    }

    #[tokio::test]
    async fn stalls_until_told_otherwise() {
        let (link, mut client) = through().await;
        assert!(echoed(&mut client, b"before").await.is_ok());
        link.set_to_server(Fault::Stall);
        client.write_all(b"held back").await.unwrap();
        let mut got = [0; 9];
        assert!(
            timeout(Duration::from_millis(50), client.read_exact(&mut got))
                .await
                .is_err()
        );
        link.set_to_server(Fault::None);
        let mut rest = vec![0; 9];
        timeout(PATIENCE, client.read_exact(&mut rest))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(rest, b"held back");
    }
}
