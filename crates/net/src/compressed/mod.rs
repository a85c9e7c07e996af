//! The compressed protocol as a stream: bytes of MySQL packets inside, frames outside.
//!
//! Towards a server this also makes up for a quirk. Under compression servers and clients number the frames
//! strictly but the packets inside loosely: a server goes on with the number of frames where it should count
//! packets (`net_flush` in `net_serv.cc`: "Sync packet number if using compression"), and both sides ignore
//! the numbers they read. MariaDB 10.11 for one numbers the packets of three short results 1 to 5, 2 to 6 and
//! 3 to 7. A client of ours without compression does not ignore them. So packets read from a server are
//! numbered anew, as they would be without compression: one more than the packet before, whoever sent it.

mod codecs;
mod packets;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use mysql_wire::WireError;
use mysql_wire::compression::{Algorithm, Decompressor, FRAME_INPUT};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::packets::PacketCursor;
use crate::buffer::{self, Buffer};
use crate::stream::{Stream, poll_read_into};

/// Who is at the other end of a compressed stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toward {
    /// A client of ours: its frames begin commands, ours answer them.
    Client,
    /// A server: our frames begin commands.
    Server,
}

/// A stream whose two sides have agreed on compression.
///
/// What is written is held back until a flush or until 256 KiB are there, so that a command that is written
/// in pieces is one frame. While nothing moves nothing is kept: neither buffers nor the state of the
/// compression library.
#[derive(Debug)]
pub struct CompressedStream {
    stream: Stream,
    algorithm: Algorithm,
    toward: Toward,
    reader: Reader,
    writer: Writer,
    /// Number of the next packet of the current command, as both sides would count without compression.
    next_packet: u8,
}

#[derive(Debug, Default)]
struct Reader {
    /// Some while a frame is under way.
    decompressor: Option<Decompressor>,
    /// One more than the number of the last frame that gave bytes.
    next_sequence: u8,
    /// Frames received and not yet unpacked.
    frames: Option<Buffer>,
    /// The decompressor filled the last room it got and may have more.
    may_have_more: bool,
    packets: PacketCursor,
}

#[derive(Debug, Default)]
struct Writer {
    /// Number of the next frame, unless it [`answers`](Self::answers).
    next_sequence: u8,
    /// Bytes not yet packed into a frame: fewer than [`FRAME_INPUT`].
    held: Vec<u8>,
    /// Frames, of which the first `sent` bytes are gone. Empty unless something is left.
    frames: Vec<u8>,
    sent: usize,
    /// The next frame answers what was read last, and takes its number from there.
    answers: bool,
    /// What a client sends now continues an exchange, as the data of LOAD DATA LOCAL does: its numbers go on
    /// from ours.
    continued: bool,
    packets: PacketCursor,
}

/// Puts a stream under compression, from the first byte after the OK packet of the login on. `unread`: what
/// was read of that already, at most a buffer full.
///
/// # Errors
/// If the compression library has no memory, or no such level.
pub fn compressed(stream: Stream, algorithm: Algorithm, toward: Toward, unread: &[u8]) -> io::Result<Stream> {
    // A level that does not work is better known now than at the first frame.
    codecs::keep_compressor(algorithm, codecs::compressor(algorithm).map_err(invalid)?);
    let mut reader = Reader::default();
    if !unread.is_empty() {
        let mut frames = buffer::take();
        let taken = frames.append(unread);
        debug_assert_eq!(taken, unread.len());
        reader.frames = Some(frames);
    }
    Ok(Stream::Compressed(Box::new(CompressedStream {
        stream,
        algorithm,
        toward,
        reader,
        writer: Writer::default(),
        next_packet: 0,
    })))
}

impl CompressedStream {
    /// The stream below.
    pub(crate) fn carrier(&self) -> &Stream {
        &self.stream
    }

    /// The same, to be changed between two exchanges.
    pub(crate) fn carrier_mut(&mut self) -> &mut Stream {
        &mut self.stream
    }

    /// See [`Stream::begin_command`].
    pub(crate) fn begin_command(&mut self) -> io::Result<()> {
        // What is still held belongs to the command before.
        self.pack()?;
        self.writer.continued = false;
        match self.toward {
            Toward::Client => self.writer.answers = true,
            Toward::Server => {
                self.writer.answers = false;
                self.writer.next_sequence = 0;
                self.next_packet = 0;
            }
        }
        Ok(())
    }

    /// Unpacks what has been received into `out`. False: nothing came out, more has to be received.
    fn unpack(&mut self, out: &mut ReadBuf<'_>) -> io::Result<bool> {
        let before = out.filled().len();
        self.reader.unpack(self.algorithm, out)?;
        let fresh = &mut out.filled_mut()[before..];
        if fresh.is_empty() {
            return Ok(false);
        }
        if self.toward == Toward::Server {
            self.reader.packets.renumber(fresh, &mut self.next_packet);
        }
        self.writer.note_read(self.toward, self.reader.next_sequence);
        Ok(true)
    }

    /// Packs what is held behind the frames that wait to be sent.
    fn pack(&mut self) -> io::Result<()> {
        self.writer.pack(self.algorithm, self.reader.next_sequence)
    }
}

impl AsyncRead for CompressedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if out.remaining() == 0 || this.unpack(out)? {
                return Poll::Ready(Ok(()));
            }
            let mut frames = buffer::take();
            if ready!(poll_read_into(cx, &mut this.stream, &mut frames))? == 0 {
                return Poll::Ready(match this.reader.decompressor.is_none() {
                    true => Ok(()),
                    false => Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the stream ends inside a frame",
                    )),
                });
            }
            this.reader.frames = Some(frames);
        }
    }
}

impl AsyncWrite for CompressedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.writer.held.len() == FRAME_INPUT {
            ready!(this.writer.poll_send(cx, &mut this.stream))?;
            this.pack()?;
        }
        let n = bytes.len().min(FRAME_INPUT - this.writer.held.len());
        this.writer.hold(&bytes[..n], &mut this.next_packet);
        Poll::Ready(Ok(n))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.pack()?;
        ready!(this.writer.poll_send(cx, &mut this.stream))?;
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(cx))?;
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

impl Reader {
    /// Unpacks as much as there is, or as there is room for.
    fn unpack(&mut self, algorithm: Algorithm, out: &mut ReadBuf<'_>) -> io::Result<()> {
        if self.frames.is_none() && !self.may_have_more {
            return Ok(());
        }
        let mut decompressor = match self.decompressor.take() {
            Some(decompressor) => decompressor,
            None => codecs::decompressor(algorithm).map_err(invalid)?,
        };
        let room = out.initialize_unfilled();
        let input = self.frames.as_ref().map_or(&[][..], Buffer::filled);
        let done = decompressor.decompress(input, room).map_err(invalid)?;
        if done.produced == 0 && done.consumed < input.len() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a frame holds less than it claims",
            ));
        }
        self.may_have_more = done.produced == room.len();
        out.advance(done.produced);
        if done.produced > 0 {
            // Not before: until it has seen a header it has the number of the stream it served before.
            self.next_sequence = decompressor.next_sequence();
        }
        if let Some(frames) = &mut self.frames {
            frames.consume(done.consumed);
        }
        self.frames.take_if(|frames| frames.is_empty());
        if decompressor.at_boundary() {
            self.may_have_more = false;
            codecs::keep_decompressor(algorithm, decompressor);
        } else {
            self.decompressor = Some(decompressor);
        }
        Ok(())
    }
}

impl Writer {
    /// Frames were read, the last of which had the number before `next_sequence`.
    fn note_read(&mut self, toward: Toward, next_sequence: u8) {
        // A client's frame with number 0 is a command, which may have come early, in the middle of the answer
        // to the command before: its own answer begins with `begin_command`.
        self.continued |= toward == Toward::Server || next_sequence != 1;
        self.answers |= self.continued;
    }

    fn hold(&mut self, bytes: &[u8], next_packet: &mut u8) {
        self.held.extend_from_slice(bytes);
        self.packets.count(bytes, next_packet);
    }

    /// `answer` is the number of a frame that answers what was read last.
    fn pack(&mut self, algorithm: Algorithm, answer: u8) -> io::Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        if self.answers {
            self.answers = false;
            self.continued = false;
            self.next_sequence = answer;
        }
        let mut compressor = codecs::compressor(algorithm).map_err(invalid)?;
        compressor.set_sequence(self.next_sequence);
        compressor
            .compress(&self.held, &mut self.frames)
            .map_err(invalid)?;
        self.next_sequence = compressor.sequence();
        codecs::keep_compressor(algorithm, compressor);
        // Freed, not kept: an idle connection holds no buffer.
        self.held = Vec::new();
        Ok(())
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, stream: &mut Stream) -> Poll<io::Result<()>> {
        while self.sent < self.frames.len() {
            let n = ready!(Pin::new(&mut *stream).poll_write(cx, &self.frames[self.sent..]))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += n;
        }
        self.frames = Vec::new();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }
}

fn invalid(error: WireError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
