//! A plain socket, read and written with as little beside the system call as there can be.
//!
//! It does what tokio's own streams do, with three differences, which together are a fifth of what a
//! forwarded query costs in user code: the buffer is taken when there is something to read, whoever asks
//! again for bytes that are not there yet is not registered again, and the system calls do not go by way of
//! libc, whose `recv` and `send` prepare for threads being cancelled.

use std::io;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::task::{Context, Poll, ready};

use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};
use tokio::task::coop;

use crate::buffer::Buffer;

/// A socket that the runtime watches.
#[derive(Debug)]
pub struct Plain<S> {
    socket: S,
    /// The address behind the waker that the runtime holds for reads, since one found nothing. It holds it
    /// until it knows of bytes, and as long as it does nobody else's waker can have that address. The runtime
    /// hears of bytes on the thread that reads.
    awaited_by: Option<NonZeroUsize>,
}

/// What the sockets of the runtime have in common.
pub trait Watched: AsFd {
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    fn try_io<R>(&self, interest: Interest, call: impl FnOnce() -> io::Result<R>) -> io::Result<R>;
}

macro_rules! watched {
    ($socket:ty) => {
        impl Watched for $socket {
            #[inline]
            fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Self::poll_read_ready(self, cx)
            }

            #[inline]
            fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Self::poll_write_ready(self, cx)
            }

            #[inline]
            fn try_io<R>(&self, interest: Interest, call: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
                Self::try_io(self, interest, call)
            }
        }
    };
}

watched!(TcpStream);
watched!(UnixStream);

impl<S: Watched> Plain<S> {
    /// Reads once into the buffer in `place`, which is taken when there is something to read, and not left
    /// there empty. 0 is the end of the stream.
    #[inline]
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        place: &mut Option<Buffer>,
        take: fn() -> Buffer,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_readable(cx))?;
            let mut buffer = place.take().unwrap_or_else(take);
            let read = self.read(buffer.room());
            if let Ok(n) = read {
                buffer.advance_filled(n);
            }
            if !buffer.is_empty() {
                *place = Some(buffer);
            }
            match read {
                // The runtime had not heard yet that it is empty.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read),
            }
        }
    }

    /// Waits until the runtime knows of bytes, or of the end.
    #[inline]
    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let task = NonZeroUsize::new(cx.waker().data().addr());
        if self.awaited_by.is_some() && self.awaited_by == task && !self.is_known_readable() {
            return Poll::Pending;
        }
        self.awaited_by = None;
        let readable = self.socket.poll_read_ready(cx);
        // A task that has used up its budget is told to come again, and not registered.
        if readable.is_pending() && coop::has_budget_remaining() {
            self.awaited_by = task;
        }
        readable
    }

    fn is_known_readable(&self) -> bool {
        self.socket.try_io(Interest::READABLE, || Ok(())).is_ok()
    }

    /// One `recv`, if the runtime knows of bytes. After a short one the socket is empty, because epoll is
    /// edge-triggered: the runtime is told so, and the next read waits without a system call.
    #[inline]
    fn read(&self, room: &mut [u8]) -> io::Result<usize> {
        let (mut n, len) = (0, room.len());
        let read = self.socket.try_io(Interest::READABLE, || {
            n = recv(&self.socket, room, RecvFlags::empty())?.1;
            unless_short(n, len)
        });
        whole_or_short(read, n)
    }

    /// Writes once. It takes from the task's budget, or one whose answers cost nothing else would keep a
    /// worker for as long as its client has pipelined.
    #[inline]
    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let budget = ready!(coop::poll_proceed(cx));
            match self.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => drop(budget),
                written => {
                    budget.made_progress();
                    return Poll::Ready(written);
                }
            }
            ready!(self.socket.poll_write_ready(cx))?;
        }
    }

    /// One `send`, if the runtime knows of room. After a short one there is none.
    #[inline]
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut n = 0;
        let written = self.socket.try_io(Interest::WRITABLE, || {
            n = send(&self.socket, bytes, SendFlags::NOSIGNAL)?;
            unless_short(n, bytes.len())
        });
        whole_or_short(written, n)
    }
}

impl<S> Plain<S> {
    /// The socket, to be read or written by other means.
    #[inline]
    pub(crate) fn socket(&mut self) -> &mut S {
        self.awaited_by = None;
        &mut self.socket
    }

    pub(crate) fn into_socket(self) -> S {
        self.socket
    }
}

impl<S> From<S> for Plain<S> {
    fn from(socket: S) -> Self {
        Self {
            socket,
            awaited_by: None,
        }
    }
}

impl<S> Deref for Plain<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.socket
    }
}

/// What the runtime takes for an exhausted socket.
#[inline]
fn unless_short(n: usize, len: usize) -> io::Result<()> {
    match n {
        n if 0 < n && n < len => Err(io::ErrorKind::WouldBlock.into()),
        _ => Ok(()),
    }
}

/// The result of a call that has moved `n` bytes.
#[inline]
fn whole_or_short(result: io::Result<()>, n: usize) -> io::Result<usize> {
    match result {
        Err(error) if n == 0 => Err(error),
        _ => Ok(n),
    }
}
