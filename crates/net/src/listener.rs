//! Where client connections come from: TCP (IPv4, IPv6) and Unix listeners.
//!
//! One task accepts for all workers, so an accepted connection is an [`Accepted`], a bare socket that no
//! runtime watches yet: the worker that gets it registers it with
//! [`Stream::from_accepted`](crate::Stream::from_accepted).

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use config::{BindAddress, Congestion};
use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::{Domain, SockAddr, Socket as RawSocket, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::unix_path::{self, SocketFile};
use crate::{NetError, Peer, congestion, handover, sys};

/// An open listener, watched by the runtime it was opened in. Dropping it closes the socket and removes the
/// file of a Unix socket.
#[derive(Debug)]
pub struct Listener {
    /// Some for a Unix listener. It goes before the socket: as long as somebody listens nobody takes the
    /// path, so it is still ours.
    file: Option<SocketFile>,
    socket: AsyncFd<RawSocket>,
    /// A congestion control was chosen for it: it no longer follows the system.
    has_chosen: AtomicBool,
    /// Accepted connections are looked at one by one.
    spares_local: AtomicBool,
}

/// An accepted connection: non-blocking, with `TCP_NODELAY` and `SO_KEEPALIVE`, not yet watched by any
/// runtime.
#[derive(Debug)]
pub struct Accepted {
    pub(crate) socket: Socket,
    peer: Peer,
}

#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Listener {
    /// Opens the listener of a `[[listener]]` section, or takes over the one that the process before this
    /// had.
    pub fn bind(listener: &config::Listener) -> Result<Self, NetError> {
        let bound = match (handover::take(&listener.bind.to_string()), &listener.bind) {
            (Some(socket), bind) => Self::adopt(socket, bind),
            (None, BindAddress::Tcp(address)) => Self::bind_tcp(*address, listener.backlog),
            (None, BindAddress::Unix(path)) => Self::bind_unix(path, listener.unix_mode.0, listener.backlog),
        }?;
        bound.set_congestion(&listener.congestion);
        Ok(bound)
    }

    /// Chooses the congestion control of connections that come from now on; those of a Unix listener have
    /// none.
    pub fn set_congestion(&self, congestion: &Congestion) {
        let Ok(Peer::Tcp(address)) = self.local_addr() else {
            return;
        };
        let stays = address.ip().is_loopback();
        let socket = self.socket.get_ref();
        if let Some(name) = congestion::chosen(congestion, stays)
            && congestion::choose(socket, name)
        {
            self.has_chosen.store(true, Ordering::Relaxed);
        } else if self.has_chosen.load(Ordering::Relaxed) {
            congestion::choose_systems(socket);
        }
        let later = congestion::shows_later(congestion, stays);
        self.spares_local.store(later, Ordering::Relaxed);
    }

    /// Listens on a TCP address; port 0 lets the kernel choose. `[::]` takes IPv4 too where the system's
    /// `net.ipv6.bindv6only` is 0, its default. `backlog` is the number of connections that may wait to be
    /// accepted; the kernel caps it at `net.core.somaxconn`.
    ///
    /// # Errors
    /// [`NetError::Bind`] with the cause and the next step; also outside of a runtime with I/O.
    pub fn bind_tcp(address: SocketAddr, backlog: u32) -> Result<Self, NetError> {
        let open = || {
            let socket = RawSocket::new(Domain::for_address(address), Type::STREAM, None)?;
            socket.set_nonblocking(true)?;
            // A restart must not wait for old connections in TIME_WAIT.
            socket.set_reuse_address(true)?;
            // Linux hands both options down to accepted sockets, which saves two system calls a connection.
            // The times of the keepalive probes are the system's, as for mysqld.
            socket.set_tcp_nodelay(true)?;
            socket.set_keepalive(true)?;
            socket.bind(&address.into())?;
            listen(socket, backlog)
        };
        let failed = |source| NetError::Bind {
            address: address.to_string(),
            source,
        };
        Ok(Self::new(open().map_err(failed)?, None))
    }

    /// Listens on a Unix socket and gives its file the permissions `mode` (e.g. `0o666`). A socket file that
    /// nobody listens on any more is replaced; anything else at that path is an error.
    ///
    /// # Errors
    /// [`NetError::NotASocket`], [`NetError::PathInUse`] or [`NetError::Bind`].
    pub fn bind_unix(path: &Path, mode: u32, backlog: u32) -> Result<Self, NetError> {
        unix_path::clear(path)?;
        let open = || {
            let socket = RawSocket::new(Domain::UNIX, Type::STREAM, None)?;
            socket.set_nonblocking(true)?;
            socket.bind(&SockAddr::unix(path)?)?;
            let file = SocketFile::bound(path)?;
            // Before `listen`, so that nobody gets in under the permissions of the umask.
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
            Ok((listen(socket, backlog)?, file))
        };
        let failed = |source| NetError::Bind {
            address: path.display().to_string(),
            source,
        };
        let (socket, file) = open().map_err(failed)?;
        Ok(Self::new(socket, Some(file)))
    }

    /// A socket that listens already at that address.
    fn adopt(socket: OwnedFd, bind: &BindAddress) -> Result<Self, NetError> {
        let open = || {
            let file = match bind {
                BindAddress::Tcp(_) => None,
                BindAddress::Unix(path) => Some(SocketFile::bound(path)?),
            };
            Ok(Self::new(sys::watch_listener(RawSocket::from(socket))?, file))
        };
        open().map_err(|source| NetError::Bind {
            address: bind.to_string(),
            source,
        })
    }

    /// The socket itself, for a process that is to take over.
    pub fn share(&self) -> io::Result<OwnedFd> {
        self.socket.get_ref().try_clone().map(OwnedFd::from)
    }

    fn new(socket: AsyncFd<RawSocket>, file: Option<SocketFile>) -> Self {
        Self {
            file,
            socket,
            has_chosen: AtomicBool::new(false),
            spares_local: AtomicBool::new(false),
        }
    }

    /// Waits for the next connection. May be cancelled without losing one.
    ///
    /// # Errors
    /// What concerns the listener, not a single connection: see
    /// [`limits::is_exhausted`](crate::limits::is_exhausted), after which the caller should pause, because
    /// the connection that could not be accepted is still waiting.
    pub async fn accept(&self) -> io::Result<Accepted> {
        loop {
            let accepted = self
                .socket
                .async_io(Interest::READABLE, |socket| {
                    // A single system call, where the standard library needs two or three.
                    Ok(acceptfrom_with(
                        socket,
                        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
                    )?)
                })
                .await;
            let (fd, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) if is_the_connections_own(&error) => continue,
                Err(error) => return Err(error),
            };
            let peer = address.and_then(|address| SocketAddr::try_from(address).ok());
            return match (&self.file, peer) {
                (Some(_), _) => Ok(Accepted {
                    socket: Socket::Unix(fd.into()),
                    peer: Peer::Unix,
                }),
                (None, Some(peer)) => {
                    if self.spares_local.load(Ordering::Relaxed) {
                        congestion::spare_local(&fd, peer);
                    }
                    Ok(Accepted {
                        socket: Socket::Tcp(fd.into()),
                        peer: peer.into(),
                    })
                }
                // Reset between the handshake and our accept: Linux may give no address then.
                (None, None) => continue,
            };
        }
    }

    /// The address of a TCP listener with the port that was really taken.
    pub fn local_addr(&self) -> io::Result<Peer> {
        Ok(self
            .socket
            .get_ref()
            .local_addr()?
            .as_socket()
            .map_or(Peer::Unix, Peer::Tcp))
    }

    pub fn unix_path(&self) -> Option<&Path> {
        self.file.as_ref().map(SocketFile::path)
    }
}

impl Accepted {
    /// The client's address, as the kernel told with the connection.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// The address the client connected to. A system call: ask once and keep the answer.
    pub fn local(&self) -> io::Result<Peer> {
        match &self.socket {
            Socket::Tcp(socket) => socket.local_addr().map(Peer::from),
            Socket::Unix(_) => Ok(Peer::Unix),
        }
    }
}

impl AsFd for Accepted {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Tcp(socket) => socket.as_fd(),
            Socket::Unix(socket) => socket.as_fd(),
        }
    }
}

fn listen(socket: RawSocket, backlog: u32) -> io::Result<AsyncFd<RawSocket>> {
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    sys::watch_listener(socket)
}

/// Errors that `accept` passes on from the connection it took off the queue (accept(2), "Error handling"):
/// the next one may be fine.
fn is_the_connections_own(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNABORTED
                | libc::EINTR
                | libc::ENETDOWN
                | libc::EPROTO
                | libc::ENOPROTOOPT
                | libc::EHOSTDOWN
                | libc::ENONET
                | libc::EHOSTUNREACH
                | libc::EOPNOTSUPP
                | libc::ENETUNREACH
                | libc::EPERM
        )
    )
}
