//! A connection as a stream of bytes, whatever carries it.

use std::future::pending;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use std::{io, mem};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use socket2::{Domain, SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::{TcpSocket, TcpStream, UnixStream};

use crate::buffer::Buffer;
use crate::compressed::CompressedStream;
use crate::congestion;
use crate::listener::{Accepted, Socket};
use crate::peer::Peer;
use crate::plain::Plain;
use crate::tls::TlsStream;

/// A connected byte stream.
///
/// On plain TCP and Unix sockets a read is one `recv` and a write one `send`: a read that did not fill the
/// buffer proves the socket empty, because epoll is edge-triggered. The next one is then `Pending` without a
/// system call, so callers may simply read until `Pending`; there is no second `recv` that returns `EAGAIN`.
///
/// After writing, call `poll_flush`: it does nothing on a plain socket, but TLS and compression may hold
/// bytes back until then.
#[derive(Debug)]
pub enum Stream {
    Tcp(Plain<TcpStream>),
    Unix(Plain<UnixStream>),
    /// TLS over a plain one.
    Tls(Box<TlsStream>),
    /// The compressed protocol over one of the others.
    Compressed(Box<CompressedStream>),
    /// No connection: what stands in the place of one that is elsewhere. Every use of it fails.
    Detached,
}

// A session is one future per worker task; its two streams are a large part of it.
const _: () = assert!(size_of::<Stream>() <= 48);

const fn is_send<T: Send>() {}
/// Between two exchanges one may go to another thread: see [`Stream::adopt`].
const _: () = is_send::<Stream>();

impl Stream {
    /// Registers an accepted connection with the runtime of the current thread, which from now on owns it.
    pub fn from_accepted(accepted: Accepted) -> io::Result<Self> {
        match accepted.socket {
            Socket::Tcp(socket) => TcpStream::from_std(socket).map(Self::from),
            Socket::Unix(socket) => UnixStream::from_std(socket).map(Self::from),
        }
    }

    /// Connects over TCP, with `TCP_NODELAY` and, unless `keepalive` is zero, keepalive probes after
    /// `keepalive` of silence: three of them, a third of that time apart (at least a second), and then the
    /// connection fails.
    ///
    /// # Errors
    /// What the kernel said. There is no time limit but the kernel's.
    pub async fn connect_tcp(address: SocketAddr, keepalive: Duration) -> io::Result<Self> {
        tcp_socket(address, keepalive)?
            .connect(address)
            .await
            .map(Self::from)
    }

    /// As [`connect_tcp`](Self::connect_tcp), to an address of one of a cluster's servers, with the
    /// congestion control chosen for it.
    ///
    /// # Errors
    /// What the kernel said. There is no time limit but the kernel's.
    pub async fn connect_server(address: SocketAddr, cluster: &config::Cluster) -> io::Result<Self> {
        let socket = tcp_socket(address, cluster.keepalive)?;
        let stays = address.ip().to_canonical().is_loopback();
        if let Some(name) = congestion::chosen(&cluster.congestion, stays) {
            congestion::choose(&socket, name);
        }
        let stream = socket.connect(address).await?;
        if congestion::shows_later(&cluster.congestion, stays) {
            congestion::spare_local(&stream, address);
        }
        Ok(stream.into())
    }

    pub async fn connect_unix(path: &Path) -> io::Result<Self> {
        UnixStream::connect(path).await.map(Self::from)
    }

    /// The other end. A system call: ask once and keep the answer.
    pub fn peer(&self) -> io::Result<Peer> {
        match self {
            Self::Tcp(stream) => stream.peer_addr().map(Peer::from),
            Self::Unix(_) => Ok(Peer::Unix),
            Self::Tls(stream) => stream.carrier().peer(),
            Self::Compressed(stream) => stream.carrier().peer(),
            Self::Detached => Err(detached()),
        }
    }

    /// This end. A system call: ask once and keep the answer.
    pub fn local(&self) -> io::Result<Peer> {
        match self {
            Self::Tcp(stream) => stream.local_addr().map(Peer::from),
            Self::Unix(_) => Ok(Peer::Unix),
            Self::Tls(stream) => stream.carrier().local(),
            Self::Compressed(stream) => stream.carrier().local(),
            Self::Detached => Err(detached()),
        }
    }

    /// Tells the peer at once that nothing more comes, without the goodbye of TLS: a server that looks
    /// whether its client is still there (MySQL does while it sleeps or waits for a lock) takes unread bytes
    /// for a sign of life. What the peer still sends can be read.
    pub fn end_writing(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => SockRef::from(&**stream).shutdown(Shutdown::Write),
            Self::Unix(stream) => SockRef::from(&**stream).shutdown(Shutdown::Write),
            Self::Tls(stream) => stream.carrier().end_writing(),
            Self::Compressed(stream) => stream.carrier().end_writing(),
            Self::Detached => Err(detached()),
        }
    }

    /// Whether bytes or the end of the stream have come, which nobody has asked for: then the stream is of no
    /// use any more, since one of them may be lost. Nobody is woken when some come. On a plain socket no
    /// system call, as a rule: the runtime knows.
    pub fn has_news(&mut self) -> bool {
        let mut byte = [0; 1];
        let read = match self {
            Self::Tcp(stream) => stream.socket().try_read(&mut byte),
            Self::Unix(stream) => stream.socket().try_read(&mut byte),
            Self::Tls(_) | Self::Compressed(_) | Self::Detached => {
                let mut cx = Context::from_waker(Waker::noop());
                return Pin::new(self)
                    .poll_read(&mut cx, &mut ReadBuf::new(&mut byte))
                    .is_ready();
            }
        };
        !matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Waits until the peer has closed its side or the connection has failed, also behind bytes that nobody
    /// has read. Takes none of them, and is in nobody's way who waits for some.
    pub async fn closed(&self) {
        // The runtime tells of the end of a stream with bytes or with urgent ones, for which it watches none
        // of our sockets.
        const END: Interest = Interest::PRIORITY;
        // An error says that the runtime ends.
        let _: io::Result<Ready> = match self.socket() {
            Self::Tcp(stream) => stream.ready(END).await,
            Self::Unix(stream) => stream.ready(END).await,
            Self::Tls(_) | Self::Compressed(_) | Self::Detached => pending().await,
        };
    }

    /// The socket below TLS and compression.
    fn socket(&self) -> &Self {
        match self {
            Self::Tls(stream) => stream.carrier().socket(),
            Self::Compressed(stream) => stream.carrier().socket(),
            Self::Tcp(_) | Self::Unix(_) | Self::Detached => self,
        }
    }

    /// Takes a stream between two exchanges over from the runtime that has watched it so far: the one of the
    /// current thread does from here on, and whoever waited for it over there is not woken any more. After an
    /// error the stream is of no use.
    ///
    /// # Errors
    /// If bytes or the end of the stream are there that nobody has read, or the kernel refuses to watch the
    /// socket.
    pub fn adopt(&mut self) -> io::Result<()> {
        match self {
            Self::Tls(stream) => return stream.carrier_mut().adopt(),
            Self::Compressed(stream) => return stream.carrier_mut().adopt(),
            Self::Tcp(_) | Self::Unix(_) | Self::Detached => {}
        }
        *self = match mem::replace(self, Self::Detached) {
            Self::Tcp(stream) => {
                let socket = stream.into_socket().into_std()?;
                ensure_silent(&socket)?;
                TcpStream::from_std(socket)?.into()
            }
            Self::Unix(stream) => {
                let socket = stream.into_socket().into_std()?;
                ensure_silent(&socket)?;
                UnixStream::from_std(socket)?.into()
            }
            _ => return Err(detached()),
        };
        Ok(())
    }

    /// The socket itself once more, for another process: both may use it, and who does is theirs to agree on.
    /// `None` where its bytes need more than the socket, as with TLS and compression.
    pub fn share(&self) -> io::Result<Option<OwnedFd>> {
        match self {
            Self::Tcp(stream) => stream.as_fd().try_clone_to_owned().map(Some),
            Self::Unix(stream) => stream.as_fd().try_clone_to_owned().map(Some),
            Self::Tls(_) | Self::Compressed(_) => Ok(None),
            Self::Detached => Err(detached()),
        }
    }

    /// A connected socket from another process, watched by the runtime of the current thread from here on.
    ///
    /// # Errors
    /// It is no connection, or the kernel refuses to watch it.
    pub fn from_shared(socket: OwnedFd) -> io::Result<Self> {
        let socket = socket2::Socket::from(socket);
        socket.peer_addr()?;
        socket.set_nonblocking(true)?;
        match socket.domain()? {
            Domain::UNIX => UnixStream::from_std(socket.into()).map(Self::from),
            _ => TcpStream::from_std(socket.into()).map(Self::from),
        }
    }

    /// Whether the bytes on the wire are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.tls().is_some()
    }

    /// Protocol version (`TLSv1.2`, `TLSv1.3`) and cipher suite, if encrypted.
    pub fn tls_summary(&self) -> Option<(&'static str, &'static str)> {
        self.tls().map(TlsStream::summary)
    }

    /// The certificate (X.509, DER) that the peer showed in the TLS handshake.
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        self.tls()?.peer_certificate()
    }

    /// Whether the compressed protocol is spoken.
    pub fn is_compressed(&self) -> bool {
        matches!(self, Self::Compressed(_))
    }

    /// Has a compressed stream number its frames anew; nothing happens on others.
    ///
    /// Towards a server: call it before the first byte of a command is written. Its answer must have been
    /// read to the end before the next command is written, because packets are renumbered (see
    /// `compressed.rs`). Towards a client: call it before the first byte of the answer to a command is
    /// written.
    ///
    /// # Errors
    /// If the compression library fails for what is still held of the command before.
    #[inline]
    pub fn begin_command(&mut self) -> io::Result<()> {
        match self {
            Self::Compressed(stream) => stream.begin_command(),
            Self::Tcp(_) | Self::Unix(_) | Self::Tls(_) | Self::Detached => Ok(()),
        }
    }

    fn tls(&self) -> Option<&TlsStream> {
        match self {
            Self::Tcp(_) | Self::Unix(_) | Self::Detached => None,
            Self::Tls(stream) => Some(stream),
            Self::Compressed(stream) => stream.carrier().tls(),
        }
    }
}

/// Reads once into the room behind the filled bytes and returns how many bytes came; 0 is the end of the
/// stream.
///
/// The buffer must have room (see [`Buffer::is_full`]), or the answer 0 would not mean the end.
pub fn poll_read_into(
    cx: &mut Context<'_>,
    stream: &mut Stream,
    buffer: &mut Buffer,
) -> Poll<io::Result<usize>> {
    debug_assert!(
        !buffer.is_full(),
        "a read without room looks like the end of the stream"
    );
    let mut room = ReadBuf::new(buffer.spare());
    ready!(Pin::new(stream).poll_read(cx, &mut room))?;
    let n = room.filled().len();
    buffer.advance_filled(n);
    Poll::Ready(Ok(n))
}

/// The same into the buffer in `place`: the one that is there, compacted where it has no room, or one that is
/// taken for this read. None is left there that is empty, so a stream without bytes holds none. One that is
/// there must not be full of bytes.
#[inline]
pub fn poll_read_pooled(
    cx: &mut Context<'_>,
    stream: &mut Stream,
    place: &mut Option<Buffer>,
    take: fn() -> Buffer,
) -> Poll<io::Result<usize>> {
    match stream {
        Stream::Tcp(stream) => stream.poll_read(cx, place, take),
        Stream::Unix(stream) => stream.poll_read(cx, place, take),
        Stream::Tls(_) | Stream::Compressed(_) | Stream::Detached => {
            let mut buffer = place.take().unwrap_or_else(take);
            buffer.room();
            let read = poll_read_into(cx, stream, &mut buffer);
            if !buffer.is_empty() {
                *place = Some(buffer);
            }
            read
        }
    }
}

impl AsyncRead for Stream {
    #[inline]
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream.socket()).poll_read(cx, out),
            Self::Unix(stream) => Pin::new(stream.socket()).poll_read(cx, out),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_read(cx, out),
            Self::Compressed(stream) => Pin::new(&mut **stream).poll_read(cx, out),
            Self::Detached => Poll::Ready(Err(detached())),
        }
    }
}

impl AsyncWrite for Stream {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => stream.poll_write(cx, bytes),
            Self::Unix(stream) => stream.poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write(cx, bytes),
            Self::Compressed(stream) => Pin::new(&mut **stream).poll_write(cx, bytes),
            Self::Detached => Poll::Ready(Err(detached())),
        }
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream.socket()).poll_write_vectored(cx, slices),
            Self::Unix(stream) => Pin::new(stream.socket()).poll_write_vectored(cx, slices),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write_vectored(cx, slices),
            Self::Compressed(stream) => Pin::new(&mut **stream).poll_write_vectored(cx, slices),
            Self::Detached => Poll::Ready(Err(detached())),
        }
    }

    #[inline]
    fn is_write_vectored(&self) -> bool {
        true
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(_) | Self::Unix(_) | Self::Detached => Poll::Ready(Ok(())),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_flush(cx),
            Self::Compressed(stream) => Pin::new(&mut **stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream.socket()).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream.socket()).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
            Self::Compressed(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
            Self::Detached => Poll::Ready(Ok(())),
        }
    }
}

impl From<TcpStream> for Stream {
    fn from(socket: TcpStream) -> Self {
        Self::Tcp(socket.into())
    }
}

impl From<UnixStream> for Stream {
    fn from(socket: UnixStream) -> Self {
        Self::Unix(socket.into())
    }
}

/// The runtime that has just been given a socket knows nothing of it: the kernel does.
fn ensure_silent(socket: &impl AsFd) -> io::Result<()> {
    match recv(socket, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Err(Errno::AGAIN) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Err(io::Error::other("bytes or the end of the stream nobody has read")),
    }
}

fn detached() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

/// See [`Stream::connect_tcp`].
fn tcp_socket(address: SocketAddr, keepalive: Duration) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_nodelay(true)?;
    if !keepalive.is_zero() {
        SockRef::from(&socket).set_tcp_keepalive(&keepalive_options(keepalive))?;
    }
    Ok(socket)
}

/// See [`Stream::connect_tcp`]. The kernel counts whole seconds.
fn keepalive_options(idle: Duration) -> TcpKeepalive {
    let idle = idle.max(Duration::from_secs(1));
    let interval = (idle / 3).max(Duration::from_secs(1));
    TcpKeepalive::new()
        .with_time(idle)
        .with_interval(interval)
        .with_retries(3)
}
