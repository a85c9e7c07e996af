//! What a client has sent and what of it has not been executed yet.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use net::buffer::{self, Buffer};
use net::{Stream, poll_read_into};
use tokio::io::{AsyncRead, ReadBuf};

/// Bytes that are held in memory of their own while something is waited for, and the fewest that are read
/// there at once: what comes together waits together.
const FEW: usize = 4096;

/// Bytes of a client. Nothing is held while there are none; requests that do not fit into a buffer of the
/// worker's pool get memory that grows with what has come. The parser's limits are the bound of that.
#[derive(Debug, Default)]
pub(crate) struct Input {
    pooled: Option<Buffer>,
    grown: Option<Box<Grown>>,
}

#[derive(Debug)]
struct Grown {
    bytes: Vec<u8>,
    start: usize,
}

impl Input {
    /// Those that were read before.
    pub(crate) fn new(unread: Vec<u8>) -> Self {
        let grown = (!unread.is_empty()).then(|| {
            Box::new(Grown {
                bytes: unread,
                start: 0,
            })
        });
        Self { pooled: None, grown }
    }

    /// All that is there.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match (&self.grown, &self.pooled) {
            (Some(grown), _) => &grown.bytes[grown.start..],
            (None, Some(buffer)) => buffer.filled(),
            (None, None) => &[],
        }
    }

    /// The first `n` bytes are done with.
    #[inline]
    pub(crate) fn consume(&mut self, n: usize) {
        if let Some(grown) = &mut self.grown {
            grown.start += n;
            if grown.start >= grown.bytes.len() {
                self.grown = None;
            }
        } else if let Some(buffer) = &mut self.pooled {
            buffer.consume(n);
        }
    }

    /// Gives memory back if no byte is there.
    #[inline]
    pub(crate) fn rest(&mut self) {
        if self.pooled.as_ref().is_some_and(Buffer::is_empty) {
            self.pooled = None;
        }
    }

    /// Holds few bytes in as much memory as they need, before something is waited for: there may be many who
    /// wait, each would take a buffer from those who read, and all of them together would not fit into the
    /// CPU's cache.
    pub(crate) fn make_small(&mut self) {
        if let Some(buffer) = self.pooled.take_if(|buffer| buffer.len() <= FEW) {
            *self = Self::new(buffer.filled().to_vec());
        }
    }

    /// Reads once; 0 bytes are the end of the stream. Holds no memory while it waits, unless part of a
    /// request is there.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, stream: &mut Stream) -> Poll<io::Result<usize>> {
        self.make_room();
        let read = match (&mut self.grown, &mut self.pooled) {
            (Some(grown), _) => grown.poll_read(cx, stream),
            (None, pooled) => poll_read_into(cx, stream, pooled.get_or_insert_with(buffer::take)),
        };
        if read.is_pending() {
            self.rest();
        }
        read
    }

    fn make_room(&mut self) {
        if self.grown.is_some() {
            return;
        }
        let Some(pooled) = self.pooled.as_mut().filter(|buffer| buffer.is_full()) else {
            return;
        };
        pooled.compact();
        if pooled.is_full() {
            self.grown = Some(Box::new(Grown {
                bytes: pooled.filled().to_vec(),
                start: 0,
            }));
            self.pooled = None;
        }
    }
}

impl Grown {
    fn poll_read(&mut self, cx: &mut Context<'_>, stream: &mut Stream) -> Poll<io::Result<usize>> {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        let filled = self.bytes.len();
        let room = filled.clamp(FEW, buffer::CAPACITY);
        // No more than that: a vector that grows by itself takes twice what it holds, and half a request may
        // stay for long.
        self.bytes.reserve_exact(room);
        self.bytes.resize(filled + room, 0);
        let mut room = ReadBuf::new(&mut self.bytes[filled..]);
        let read = Pin::new(stream).poll_read(cx, &mut room);
        let n = room.filled().len();
        self.bytes.truncate(filled + n);
        ready!(read)?;
        Poll::Ready(Ok(n))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Write;

    use super::*;

    #[tokio::test]
    async fn half_a_request_takes_little_more_than_its_bytes() {
        let (mut sender, ours) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut stream = Stream::from(tokio::net::UnixStream::from_std(ours).unwrap());
        let mut input = Input::default();
        let piece = vec![b'x'; 50_000];
        for pieces in 1..=20 {
            sender.write_all(&piece).unwrap();
            while input.bytes().len() < pieces * piece.len() {
                poll_fn(|cx| input.poll_read(cx, &mut stream)).await.unwrap();
            }
        }
        let held = input.grown.as_ref().map(|grown| grown.bytes.capacity());
        let most = input.bytes().len() + 2 * buffer::CAPACITY;
        assert!(held.is_some_and(|held| held <= most), "{held:?}");
    }
}
