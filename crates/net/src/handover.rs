//! Listening sockets that go from one process to its successor, so that no client finds the door shut while
//! the program is replaced.
//!
//! The old process starts the new one with one end of a socket as its standard input, and sends every
//! listening socket over that, with its name. The new one takes them instead of binding its own
//! ([`take`]), and says so when it serves. Until then the old one goes on, and where the new one fails it
//! goes on for good. Both take connections from the same queues, so none is lost in between.
//!
//! From then on the same socket is a [`Channel`] by which live connections follow, where both processes know
//! how. What is said there is not this module's business.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, recv, recvmsg, sendmsg, shutdown,
    socketpair, sockopt,
};

/// The first message: another format has another number.
const FORMAT: &[u8] = b"forebay handover 1";
const END: &[u8] = b"end";
const READY: &[u8] = b"ready";

/// Of the process that gives, or gets.
const PATIENCE: Duration = Duration::from_secs(10);

/// One end of what is between the two processes once the new one serves: messages, each whole and in order,
/// with sockets. Both directions may be used at the same time, by different threads.
#[derive(Debug)]
pub struct Channel(OwnedFd);

/// What this process has been given and not taken yet.
static GIVEN: Mutex<Option<HashMap<String, OwnedFd>>> = Mutex::new(None);

/// Files of Unix sockets are this process's to remove.
static OWNS_FILES: AtomicBool = AtomicBool::new(true);

/// The process before this one goes on until this one serves.
static IS_WAITED_FOR: AtomicBool = AtomicBool::new(false);

/// A message on a [`Channel`] has at most this many bytes: the kernel has room for some of them.
pub const MESSAGE_MAX: usize = 64 * 1024;

/// A message on a [`Channel`] has at most this many sockets: a client's and a server's.
pub const SOCKETS_MAX: usize = 2;

/// The old process's end.
#[derive(Debug)]
pub struct Successor(OwnedFd);

/// The new process's end.
#[derive(Debug)]
pub struct Predecessor(OwnedFd);

impl Successor {
    /// The two ends. The second is for the new process, as its standard input.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (own, other) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        sockopt::set_socket_timeout(&own, sockopt::Timeout::Send, Some(PATIENCE))?;
        Ok((Self(own), other))
    }

    /// Gives the new process these sockets, each by its name.
    pub fn give(&self, sockets: &[(String, OwnedFd)]) -> io::Result<()> {
        send(&self.0, FORMAT, &[])?;
        for (name, socket) in sockets {
            send(&self.0, name.as_bytes(), slice::from_ref(socket))?;
        }
        send(&self.0, END, &[])
    }

    /// Waits until the new process serves. Blocks.
    pub fn wait_until_ready(&self, limit: Duration) -> io::Result<()> {
        sockopt::set_socket_timeout(&self.0, sockopt::Timeout::Recv, Some(limit))?;
        match receive(&self.0)? {
            (said, _) if said == READY => Ok(()),
            _ => Err(io::Error::other("it has ended before it served")),
        }
    }

    /// For what is said once the new process serves.
    pub fn into_channel(self) -> io::Result<Channel> {
        Channel::new(self.0)
    }
}

impl Predecessor {
    /// Takes in what the old process gives, over this process's standard input, which is empty from then on.
    ///
    /// # Errors
    /// It gives nothing, or in a format that is not known.
    pub fn receive() -> io::Result<Self> {
        let socket = io::stdin().as_fd().try_clone_to_owned()?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
        let (format, _) = receive(&socket)?;
        if format.is_empty() {
            return Err(io::Error::other("it has ended"));
        }
        if format != FORMAT {
            let format = String::from_utf8_lossy(&format).into_owned();
            return Err(io::Error::other(format!("it speaks another format: {format:?}")));
        }
        let mut given = HashMap::new();
        loop {
            let (said, mut sockets) = receive(&socket)?;
            match sockets.pop() {
                None if said == END => break,
                Some(socket) => {
                    given.insert(String::from_utf8_lossy(&said).into_owned(), socket);
                }
                None => return Err(io::Error::other("it has ended in the middle")),
            }
        }
        // Else the way would stay open behind whoever has closed this end, and the old process would offer
        // sessions for as long as this one lives.
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        OWNS_FILES.store(false, Ordering::Relaxed);
        IS_WAITED_FOR.store(true, Ordering::Release);
        *GIVEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(given);
        Ok(Self(socket))
    }

    /// Whether the old process has ended: it says nothing while it waits for this one.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let mut byte = [0];
        let look = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match retry_on_intr(|| recv(&self.0, &mut byte, look)) {
            Ok((_, length)) => length == 0,
            Err(error) => error != Errno::AGAIN,
        }
    }

    /// Takes connections from here on, and tells the old process. Sockets that nobody has taken are closed.
    ///
    /// # Errors
    /// The old process is gone, which changes nothing.
    pub fn ready(self) -> io::Result<Channel> {
        OWNS_FILES.store(true, Ordering::Relaxed);
        IS_WAITED_FOR.store(false, Ordering::Release);
        *GIVEN.lock().unwrap_or_else(PoisonError::into_inner) = None;
        send(&self.0, READY, &[])?;
        Channel::new(self.0)
    }
}

impl Channel {
    fn new(socket: OwnedFd) -> io::Result<Self> {
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, None)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(PATIENCE))?;
        Ok(Self(socket))
    }

    /// Two ends in one process.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = Successor::pair()?;
        Ok((Self::new(one.0)?, Self::new(other)?))
    }

    /// Sends a message of at most [`MESSAGE_MAX`] bytes with at most [`SOCKETS_MAX`] sockets. Blocks while
    /// the other process does not read.
    ///
    /// # Errors
    /// Nothing of it was sent: the other process has ended, or does not read.
    pub fn send(&self, bytes: &[u8], sockets: &[OwnedFd]) -> io::Result<()> {
        send(&self.0, bytes, sockets)
    }

    /// Waits for the next message; `None` where the other process has ended. Where this process has no room
    /// for all sockets of a message, it comes without any. Blocks.
    ///
    /// # Errors
    /// What the kernel said, or the message is longer than any may be.
    pub fn receive(&self) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
        let message = receive(&self.0)?;
        Ok((!message.0.is_empty()).then_some(message))
    }

    /// Ends sending in both directions. Messages that were sent already may still be received.
    pub fn close(&self) {
        // An end that is closed already is as good.
        let _ = shutdown(&self.0, Shutdown::Both);
    }
}

/// The socket of this name that the old process has given.
pub fn take(name: &str) -> Option<OwnedFd> {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    given.as_mut()?.remove(name)
}

/// From here on the files of Unix sockets are the successor's.
pub fn leave_files() {
    OWNS_FILES.store(false, Ordering::Relaxed);
}

/// Whether another process still takes the connections, since this one does not serve yet.
pub fn is_waited_for() -> bool {
    IS_WAITED_FOR.load(Ordering::Acquire)
}

pub(crate) fn owns_files() -> bool {
    OWNS_FILES.load(Ordering::Relaxed)
}

fn send(to: &OwnedFd, bytes: &[u8], sockets: &[OwnedFd]) -> io::Result<()> {
    let sockets: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !sockets.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&sockets)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let message = [IoSlice::new(bytes)];
    retry_on_intr(|| sendmsg(to, &message, &mut ancillary, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// A message; an empty one where the other end is closed.
fn receive(from: &OwnedFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; MESSAGE_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut room = [IoSliceMut::new(&mut bytes)];
    // A process that was stopped and goes on is interrupted, as the socket has a limit.
    let received = retry_on_intr(|| recvmsg(from, &mut room, &mut ancillary, RecvFlags::CMSG_CLOEXEC))?;
    let mut sockets = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            sockets.extend(some);
        }
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::Error::other("a message that is too long"));
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        // The limit of open files, mostly: those that have come mean nothing without the others.
        sockets.clear();
    }
    bytes.truncate(received.bytes);
    Ok((bytes, sockets))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_socket_goes_with_its_name() {
        let (successor, other) = Successor::pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        successor
            .give(&[("127.0.0.1:3306".to_owned(), listener.into())])
            .unwrap();
        assert_eq!(receive(&other).unwrap().0, FORMAT);
        let (name, mut sockets) = receive(&other).unwrap();
        assert_eq!(name, b"127.0.0.1:3306");
        let taken = TcpListener::from(sockets.pop().expect("a socket"));
        assert_eq!(taken.local_addr().unwrap(), address);
        assert_eq!(receive(&other).unwrap().0, END);
        send(&other, READY, &[]).unwrap();
        successor.wait_until_ready(PATIENCE).unwrap();
        drop(other);
        let ended = successor.wait_until_ready(PATIENCE).unwrap_err();
        assert!(ended.to_string().contains("ended"), "{ended}");
    }

    /// Set for a process that is this test's own child.
    const IS_CHILD: &str = "FOREBAY_TEST_TAKES_OVER";

    #[test]
    fn the_old_process_sees_that_the_new_one_has_closed_its_end() {
        if std::env::var_os(IS_CHILD).is_some() {
            drop(Predecessor::receive().unwrap().ready().unwrap());
            std::thread::sleep(6 * PATIENCE);
            return;
        }
        let (successor, other) = Successor::pair().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "handover::tests::the_old_process_sees_that_the_new_one_has_closed_its_end",
            ])
            .env(IS_CHILD, "1")
            .stdin(Stdio::from(other))
            .spawn()
            .unwrap();
        successor.give(&[]).unwrap();
        successor.wait_until_ready(PATIENCE).unwrap();
        let ended = successor.wait_until_ready(PATIENCE).unwrap_err();
        let is_there = child.try_wait().unwrap().is_none();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_there, "it is another process's end that is seen");
        assert!(ended.to_string().contains("ended"), "{ended}");
    }

    #[test]
    fn a_process_that_is_stopped_for_a_moment_goes_on_waiting() {
        if std::env::var_os(IS_CHILD).is_some() {
            drop(Predecessor::receive().unwrap().ready().unwrap());
            return;
        }
        let (successor, other) = Successor::pair().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "handover::tests::a_process_that_is_stopped_for_a_moment_goes_on_waiting",
            ])
            .env(IS_CHILD, "1")
            .stdin(Stdio::from(other))
            .spawn()
            .unwrap();
        let id = child.id().to_string();
        let signal = |name: &str| assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
        // The signals go on for a second: nothing tells when the child has begun to wait. A child that is
        // later than that shows nothing, and fails nothing.
        for _ in 0..50 {
            signal("-STOP");
            signal("-CONT");
            std::thread::sleep(Duration::from_millis(20));
        }
        successor.give(&[]).unwrap();
        let taken = successor.wait_until_ready(PATIENCE);
        assert!(child.wait().unwrap().success());
        taken.unwrap();
    }

    #[test]
    fn a_message_of_which_sockets_are_cut_off_comes_without_any() {
        let (old, new) = Channel::pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let too_many = [listener.as_fd(); 8 * SOCKETS_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8 * SOCKETS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&too_many)));
        let bytes = [IoSlice::new(b"cut")];
        sendmsg(&old.0, &bytes, &mut ancillary, SendFlags::NOSIGNAL).unwrap();
        old.send(b"next", &[listener.into()]).unwrap();
        for (expected, count) in [(&b"cut"[..], 0), (b"next", 1)] {
            let (bytes, sockets) = new.receive().unwrap().unwrap();
            assert_eq!((bytes.as_slice(), sockets.len()), (expected, count));
        }
    }

    #[test]
    fn messages_go_both_ways_with_the_sockets_of_a_session() {
        let (old, new) = Channel::pair().unwrap();
        let listeners = [(); SOCKETS_MAX].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let addresses = listeners
            .each_ref()
            .map(|listener| listener.local_addr().unwrap());
        let longest = vec![7; MESSAGE_MAX];
        old.send(&longest, &listeners.map(OwnedFd::from)).unwrap();
        let (bytes, sockets) = new.receive().unwrap().unwrap();
        assert_eq!(bytes, longest);
        let taken = sockets
            .into_iter()
            .map(|socket| TcpListener::from(socket).local_addr().unwrap());
        assert!(taken.eq(addresses));
        new.send(b"yes", &[]).unwrap();
        assert_eq!(old.receive().unwrap().unwrap().0, b"yes");
        old.send(&vec![0; MESSAGE_MAX + 1], &[]).unwrap();
        assert!(new.receive().is_err(), "it is too long");
        drop(old);
        assert!(new.receive().unwrap().is_none());
        assert!(new.send(b"late", &[]).is_err());
    }
}
