//! A direction of forwarding: bytes that were read, how many of them may go on, and the write that is under
//! way.
//!
//! A flow that has nothing holds no buffer: it takes one from the worker's pool when bytes may be there and
//! gives it back when they are gone. A flow never reads on while bytes that may be forwarded wait for the
//! other side, so a slow reader costs one buffer and holds up only its own session.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use mysql_wire::PacketHeader;
use net::Stream;
use net::buffer::{self, Buffer};
use tokio::io::AsyncWrite;

/// Bytes on their way from one side to the other.
#[derive(Default)]
pub(crate) struct Flow {
    buffer: Option<Buffer>,
    /// Bytes that go out before everything in the buffer: packets of the gateway's own, and packets that it
    /// has changed. Boxed because most sessions never need them.
    #[allow(clippy::box_collection)]
    ahead: Option<Box<Vec<u8>>>,
    /// Number of bytes at the head of the buffer that may be forwarded.
    approved: u32,
    /// Bytes were handed to a stream that keeps some back (TLS, compression) until it is flushed.
    unflushed: bool,
    end: End,
    /// Number of reads for which larger buffers than the usual ones are taken.
    wide_reads: u8,
}

/// A source that has filled a buffer gets large ones until so many reads in a row would have fitted into a
/// buffer of the usual size.
const WIDE_READS: u8 = 16;

/// Whether the sink is to be told that nothing more comes.
#[derive(Default, PartialEq, Eq)]
enum End {
    #[default]
    Open,
    /// The sink is told once everything is written.
    Closing,
    Closed,
}

impl Flow {
    /// The bytes that were read and are not yet approved.
    #[inline]
    pub(crate) fn unseen(&self) -> &[u8] {
        self.buffer
            .as_ref()
            .map_or(&[], |buffer| &buffer.filled()[self.approved as usize..])
    }

    /// The payload, of `len` bytes, of the packet at the head of the unseen bytes, as far as it was read.
    pub(crate) fn payload(&self, len: usize) -> &[u8] {
        let unseen = self.unseen();
        let end = (PacketHeader::LEN + len).min(unseen.len());
        unseen.get(PacketHeader::LEN..end).unwrap_or_default()
    }

    /// The bytes that are to be written: those that go before everything, and those that are approved.
    pub(crate) fn outgoing(&self) -> [&[u8]; 2] {
        let ahead = self.ahead.as_ref().map_or(&[][..], |ahead| ahead.as_slice());
        let approved = self.buffer.as_ref();
        [
            ahead,
            approved.map_or(&[], |buffer| &buffer.filled()[..self.approved as usize]),
        ]
    }

    /// The unseen bytes, to be changed.
    pub(crate) fn unseen_mut(&mut self) -> &mut [u8] {
        let approved = self.approved as usize;
        self.buffer
            .as_mut()
            .map_or(&mut [], |buffer| &mut buffer.filled_mut()[approved..])
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.buffer
            .as_ref()
            .is_none_or(|buffer| buffer.filled().is_empty())
    }

    /// Whether nothing is in the flow, on its way, or kept back, and its source has not ended.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.is_empty() && !self.is_pending() && self.end == End::Open
    }

    /// Approves the next `n` bytes.
    #[inline]
    pub(crate) fn approve(&mut self, n: usize) {
        self.approved += n as u32;
        debug_assert!(self.buffer.as_ref().map_or(0, |buffer| buffer.len()) >= self.approved as usize);
    }

    /// The bytes that are approved and not yet written, to be changed.
    pub(crate) fn approved_mut(&mut self) -> &mut [u8] {
        let approved = self.approved as usize;
        self.buffer
            .as_mut()
            .map_or(&mut [], |buffer| &mut buffer.filled_mut()[..approved])
    }

    /// Takes out the bytes that are to be written.
    pub(crate) fn take_outgoing(&mut self) -> Vec<u8> {
        let outgoing = self.outgoing().concat();
        self.ahead = None;
        let approved = std::mem::take(&mut self.approved);
        if let Some(buffer) = &mut self.buffer {
            buffer.consume(approved as usize);
        }
        self.release_if_empty();
        outgoing
    }

    /// Whether approved bytes, or bytes kept back by the stream, still have to be written.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.approved > 0 || self.ahead.is_some() || self.unflushed || self.end == End::Closing
    }

    /// Says `bytes` before anything that has not been approved. Nothing may be approved.
    pub(crate) fn say(&mut self, bytes: &[u8]) {
        debug_assert_eq!(self.approved, 0, "what is said would overtake what was approved");
        if !bytes.is_empty() {
            self.ahead.get_or_insert_default().extend_from_slice(bytes);
        }
    }

    /// Puts `bytes`, which are no more than `len`, in the place of the next `len` that are not approved.
    pub(crate) fn replace(&mut self, len: usize, bytes: &[u8]) {
        debug_assert!(bytes.len() <= len);
        let approved = self.approved as usize;
        if let Some(buffer) = &mut self.buffer {
            // The packet before stays where it is, so that one write takes both.
            let filled = buffer.filled_mut();
            let gap = len - bytes.len();
            filled.copy_within(..approved, gap);
            filled[approved + gap..approved + len].copy_from_slice(bytes);
            buffer.consume(gap);
        }
    }

    /// Puts bytes back in front of everything that was read. False where there is no room.
    pub(crate) fn put_back(&mut self, bytes: &[u8]) -> bool {
        debug_assert_eq!(self.approved, 0);
        let mut whole = buffer::take();
        let len = bytes.len() + self.unseen().len();
        if len > whole.capacity() && !whole.grow(len) {
            return false;
        }
        if whole.append(bytes) + whole.append(self.unseen()) < len {
            return false;
        }
        self.buffer = Some(whole);
        true
    }

    /// Whether no more can be read before something is forwarded, or the buffer has [grown](Self::grow).
    pub(crate) fn is_full(&self) -> bool {
        self.buffer
            .as_ref()
            .is_some_and(|buffer| buffer.len() == buffer.capacity())
    }

    /// Makes room in a full buffer for more of the next `len` bytes, none of which may be approved. The
    /// memory follows what has been read, twice as much each time: a length that a client has only said costs
    /// nothing. False where the buffer may not grow further.
    pub(crate) fn grow(&mut self, len: usize) -> bool {
        debug_assert_eq!(self.approved, 0);
        let buffer = self.buffer.as_mut();
        buffer.is_some_and(|buffer| buffer.grow(len.min(4 * buffer.capacity())))
    }

    /// The source has ended: once everything is written, the sink is told so.
    pub(crate) fn close(&mut self) {
        if self.end == End::Open {
            self.end = End::Closing;
        }
    }

    /// Drops the next `n` bytes, none of which may be approved yet.
    pub(crate) fn discard(&mut self, n: usize) {
        debug_assert_eq!(self.approved, 0);
        if let Some(buffer) = &mut self.buffer {
            buffer.consume(n);
        }
        self.release_if_empty();
    }

    /// Drops the bytes that are to be written and keeps the unseen ones: there is nobody left to take the
    /// former.
    pub(crate) fn drop_outgoing(&mut self) {
        drop(self.take_outgoing());
        self.unflushed = false;
    }

    /// Drops everything: there is nobody left to take it.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Starts the flow with bytes that were read elsewhere (a login, a PROXY header). The reader elsewhere
    /// has to see to it that they fit into one buffer.
    pub(crate) fn fill(&mut self, bytes: &[u8]) {
        debug_assert!(self.is_empty());
        if bytes.is_empty() {
            return;
        }
        let mut buffer = buffer::take();
        let taken = buffer.append(bytes);
        debug_assert_eq!(taken, bytes.len());
        self.buffer = Some(buffer);
    }

    /// Takes out all bytes, none of which may be approved.
    pub(crate) fn take_unseen(&mut self) -> Vec<u8> {
        debug_assert_eq!(self.approved, 0);
        let bytes = self.unseen().to_vec();
        self.clear();
        bytes
    }

    /// Reads once from `source`; 0 means the end. Holds a buffer afterwards only if it has bytes.
    #[inline]
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, source: &mut Stream) -> Poll<io::Result<usize>> {
        net::poll_read_pooled(cx, source, &mut self.buffer, buffer::take)
    }

    /// Reads once from a source that may have much to say: as long as the source fills buffers, it gets
    /// larger ones.
    #[inline]
    pub(crate) fn poll_read_much(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Stream,
    ) -> Poll<io::Result<usize>> {
        let take = match self.wide_reads {
            0 => buffer::take,
            _ => buffer::take_wide,
        };
        let n = ready!(net::poll_read_pooled(cx, source, &mut self.buffer, take))?;
        self.wide_reads = match n {
            n if n >= buffer::CAPACITY => WIDE_READS,
            _ => self.wide_reads.saturating_sub(1),
        };
        Poll::Ready(Ok(n))
    }

    /// Writes all approved bytes to `sink`, flushes what it keeps back, and ends it after
    /// [`close`](Self::close).
    #[inline]
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, sink: &mut Stream) -> Poll<io::Result<()>> {
        while let Some(ahead) = &mut self.ahead {
            let written = ready!(Pin::new(&mut *sink).poll_write(cx, ahead))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            ahead.drain(..written);
            if ahead.is_empty() {
                self.ahead = None;
            }
            self.unflushed = true;
        }
        while self.approved > 0 {
            let Some(buffer) = &mut self.buffer else { break };
            let written =
                ready!(Pin::new(&mut *sink).poll_write(cx, &buffer.filled()[..self.approved as usize]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            buffer.consume(written);
            self.approved -= written as u32;
            self.unflushed = true;
            self.release_if_empty();
        }
        if self.unflushed {
            ready!(Pin::new(&mut *sink).poll_flush(cx))?;
            self.unflushed = false;
        }
        if self.end == End::Closing {
            // A failure means that the sink is gone, which is found when it is read.
            let _: io::Result<()> = ready!(Pin::new(&mut *sink).poll_shutdown(cx));
            self.end = End::Closed;
        }
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn release_if_empty(&mut self) {
        if self
            .buffer
            .as_ref()
            .is_some_and(|buffer| buffer.filled().is_empty())
        {
            self.buffer = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Write;

    use super::*;

    #[tokio::test]
    async fn a_source_that_fills_buffers_gets_large_ones_for_a_while() {
        let (mut sender, ours) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut stream = Stream::from(tokio::net::UnixStream::from_std(ours).unwrap());
        let mut flow = Flow::default();
        // How many buffers of the usual size are held for what comes at once.
        let mut held_for = async |bytes: usize| {
            sender.write_all(&vec![7; bytes]).unwrap();
            let n = poll_fn(|cx| flow.poll_read_much(cx, &mut stream)).await.unwrap();
            let held = buffer::in_use_count();
            flow.discard(n);
            assert_eq!((n, buffer::in_use_count()), (bytes, 0));
            held
        };
        assert_eq!(held_for(1000).await, 1);
        assert_eq!(held_for(buffer::CAPACITY).await, 1);
        assert_eq!(held_for(buffer::CAPACITY + 1000).await, 2, "both in one read");
        for _ in 0..WIDE_READS {
            assert_eq!(held_for(1000).await, 2);
        }
        assert_eq!(held_for(1000).await, 1);
    }
}
