//! The system calls that the standard library, rustix and socket2 do not offer in the form needed here.

#![allow(unsafe_code)]

use std::io;

use socket2::{Domain, SockAddr, SockAddrStorage, Socket, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

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
