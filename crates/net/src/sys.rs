//! The system calls that the standard library and socket2 do not offer in the form needed here.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use socket2::{Domain, SockAddr, SockAddrStorage, Socket, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// `accept4` with `SOCK_NONBLOCK | SOCK_CLOEXEC`: one system call where the standard library needs two or
/// three.
pub(crate) fn accept_nonblocking(listener: BorrowedFd<'_>) -> io::Result<(OwnedFd, SockAddr)> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let accept = |storage: *mut SockAddrStorage, length: *mut libc::socklen_t| {
        // SAFETY: `storage` points to `*length` writable bytes (the contract of `SockAddr::try_init`),
        // `listener` is open for the duration of the call, and the kernel writes both arguments back on
        // success.
        let fd = unsafe { libc::accept4(listener.as_raw_fd(), storage.cast(), length, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just created by the kernel and nobody else knows it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    };
    // SAFETY: on success `accept4` has written an address of the length it stored.
    unsafe { SockAddr::try_init(accept) }
}

/// A socket for whole frames of one protocol on one interface, which does not wait.
pub(crate) fn packet_socket(interface: u32, protocol: u16) -> io::Result<Socket> {
    let kind = Type::from(libc::SOCK_RAW | libc::SOCK_NONBLOCK);
    let socket = Socket::new(Domain::PACKET, kind, None)?;
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: `sockaddr_ll` is a form of an address, which any bytes are a valid one of.
    let address: &mut libc::sockaddr_ll = unsafe { storage.view_as() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = interface.cast_signed();
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the storage has an address of that length.
    socket.bind(&unsafe { SockAddr::new(storage, length) })?;
    Ok(socket)
}

/// Has the current runtime tell when a listening socket has connections. An error without a runtime.
pub(crate) fn watch_listener(socket: Socket) -> io::Result<AsyncFd<Socket>> {
    // `AsyncFd` panics without a runtime.
    tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
    // SAFETY: `Socket` owns its descriptor: it stays open, and stays the same, until the `Socket` is dropped.
    unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }
        .map_err(|error| error.into_parts().1)
}

/// Soft and hard limit of open file descriptors.
pub(crate) fn nofile_limit() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid, writable `rlimit`.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } {
        0 => Ok(limit),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets soft and hard limit of open file descriptors.
pub(crate) fn set_nofile_limit(limit: &libc::rlimit) -> io::Result<()> {
    // SAFETY: `limit` is a valid `rlimit` that the kernel only reads.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, limit) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
