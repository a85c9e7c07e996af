//! The compressed protocol as a stream: bytes of MySQL packets inside, frames outside.
//!
//! Towards a server this also makes up for a quirk. Under compression servers and clients number the frames strictly
//! but the packets inside loosely: a server goes on with the number of frames where it should count packets
//! (`net_flush` in `net_serv.cc`: "Sync packet number if using compression"), and both sides ignore the numbers they
//! read. A client of ours without compression does not ignore them. So packets read from a server are numbered anew,
//! as they would be without compression: one more than the packet before, whoever sent it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use mysql_wire::WireError;
use mysql_wire::compression::{Algorithm, Compressor, Decompressor, FRAME_INPUT};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

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
/// What is written is held back until a flush or until 256 KiB are there, so that a command that is written in pieces is
/// one frame. Nothing but the state of the compression library (with zlib some 300 KiB) is kept while nothing moves.
#[derive(Debug)]
pub struct CompressedStream {
    stream: Stream,
    toward: Toward,
    reader: Reader,
    writer: Writer,
    /// Number of the next packet of the current command, as both sides would count without compression.
    next_packet: u8,
}

#[derive(Debug)]
struct Reader {
    decompressor: Decompressor,
    /// Frames received and not yet unpacked.
    frames: Option<Buffer>,
    /// The decompressor filled the last room it got and may have more.
    may_have_more: bool,
    packets: PacketCursor,
}

#[derive(Debug)]
struct Writer {
    compressor: Compressor,
    /// Bytes not yet packed into a frame: fewer than [`FRAME_INPUT`].
    held: Vec<u8>,
    /// Frames, of which the first `sent` bytes are gone. Empty unless something is left.
    frames: Vec<u8>,
    sent: usize,
    /// The next frame answers what was read last, and takes its number from there.
    answers: bool,
    /// What a client sends now continues an exchange, as the data of LOAD DATA LOCAL does: its numbers go on from ours.
    continued: bool,
    packets: PacketCursor,
}

/// Puts a stream under compression, from the first byte after the OK packet of the login on.
///
/// # Errors
/// If the compression library has no memory, or no such level.
pub fn compressed(stream: Stream, algorithm: Algorithm, toward: Toward) -> io::Result<Stream> {
    let reader = Reader {
        decompressor: Decompressor::new(algorithm).map_err(invalid)?,
        frames: None,
        may_have_more: false,
        packets: PacketCursor::default(),
    };
    let writer = Writer {
        compressor: Compressor::new(algorithm).map_err(invalid)?,
        held: Vec::new(),
        frames: Vec::new(),
        sent: 0,
        answers: false,
        continued: false,
        packets: PacketCursor::default(),
    };
    Ok(Stream::Compressed(Box::new(CompressedStream {
        stream,
        toward,
        reader,
        writer,
        next_packet: 0,
    })))
}

impl CompressedStream {
    /// The stream below.
    pub(crate) fn carrier(&self) -> &Stream {
        &self.stream
    }

    /// See [`Stream::begin_command`].
    pub(crate) fn begin_command(&mut self) -> io::Result<()> {
        // What is still held belongs to the command before.
        self.writer.pack(&self.reader)?;
        self.writer.continued = false;
        match self.toward {
            Toward::Client => self.writer.answers = true,
            Toward::Server => {
                self.writer.answers = false;
                self.writer.compressor.set_sequence(0);
                self.next_packet = 0;
            }
        }
        Ok(())
    }

    /// Unpacks what has been received into `out`. False: nothing came out, more has to be received.
    fn unpack(&mut self, out: &mut ReadBuf<'_>) -> io::Result<bool> {
        let Reader {
            decompressor,
            frames,
            may_have_more,
            packets,
        } = &mut self.reader;
        if frames.is_none() && !*may_have_more {
            return Ok(false);
        }
        let input = frames.as_ref().map_or(&[][..], Buffer::filled);
        let room = out.initialize_unfilled();
        let done = decompressor.decompress(input, room).map_err(invalid)?;
        *may_have_more = done.produced == room.len();
        if self.toward == Toward::Server {
            packets.renumber(&mut room[..done.produced], &mut self.next_packet);
        }
        out.advance(done.produced);
        let next_sequence = decompressor.next_sequence();
        if done.consumed > 0 {
            self.writer.note_read(self.toward, next_sequence);
        }
        if let Some(buffer) = frames {
            buffer.consume(done.consumed);
            if buffer.is_empty() {
                *frames = None;
            }
        }
        Ok(done.produced > 0)
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
                return Poll::Ready(match this.reader.decompressor.at_boundary() {
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
            this.writer.pack(&this.reader)?;
        }
        let n = bytes.len().min(FRAME_INPUT - this.writer.held.len());
        this.writer.hold(&bytes[..n], &mut this.next_packet);
        Poll::Ready(Ok(n))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.writer.pack(&this.reader)?;
        ready!(this.writer.poll_send(cx, &mut this.stream))?;
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(cx))?;
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

impl Writer {
    /// Frames were read, the last of which had the number before `next_sequence`.
    fn note_read(&mut self, toward: Toward, next_sequence: u8) {
        // A client's frame with number 0 is a command, which may have come early, in the middle of the answer to the
        // command before: its own answer begins with `begin_command`.
        self.continued |= toward == Toward::Server || next_sequence != 1;
        self.answers |= self.continued;
    }

    fn hold(&mut self, bytes: &[u8], next_packet: &mut u8) {
        self.held.extend_from_slice(bytes);
        self.packets.count(bytes, next_packet);
    }

    /// Packs what is held behind the frames that wait to be sent.
    fn pack(&mut self, reader: &Reader) -> io::Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        if self.answers {
            self.answers = false;
            self.continued = false;
            self.compressor.set_sequence(reader.decompressor.next_sequence());
        }
        self.compressor
            .compress(&self.held, &mut self.frames)
            .map_err(invalid)?;
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

/// Walks over packets that come in pieces cut anywhere: three bytes of length, one of sequence, payload.
#[derive(Debug, Default)]
struct PacketCursor {
    /// Bytes of the current header seen, 0 to 3.
    header_seen: u8,
    /// Length of the payload as far as known; then what is left of it.
    payload_left: u32,
}

impl PacketCursor {
    /// Gives packets new numbers.
    fn renumber(&mut self, bytes: &mut [u8], next_packet: &mut u8) {
        let mut at = 0;
        while let Some(sequence) = self.next_sequence_byte(bytes, &mut at) {
            bytes[sequence] = *next_packet;
            *next_packet = next_packet.wrapping_add(1);
        }
    }

    /// Counts packets.
    fn count(&mut self, bytes: &[u8], next_packet: &mut u8) {
        let mut at = 0;
        while self.next_sequence_byte(bytes, &mut at).is_some() {
            *next_packet = next_packet.wrapping_add(1);
        }
    }

    /// Where the next sequence byte at or behind `at` is, with `at` moved behind it.
    fn next_sequence_byte(&mut self, bytes: &[u8], at: &mut usize) -> Option<usize> {
        if self.header_seen == 0 {
            let skipped = (self.payload_left as usize).min(bytes.len() - *at);
            *at += skipped;
            self.payload_left -= skipped as u32;
            if self.payload_left > 0 {
                return None;
            }
        }
        while let Some(byte) = bytes.get(*at) {
            *at += 1;
            if self.header_seen == 3 {
                self.header_seen = 0;
                return Some(*at - 1);
            }
            self.payload_left |= u32::from(*byte) << (8 * self.header_seen);
            self.header_seen += 1;
        }
        None
    }
}

fn invalid(error: WireError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(sequence: u8, len: usize) -> Vec<u8> {
        let mut bytes = (len as u32).to_le_bytes().to_vec();
        bytes[3] = sequence;
        bytes.resize(4 + len, 0xee);
        bytes
    }

    #[test]
    fn renumbers_packets_cut_anywhere() {
        let lengths = [0, 1, 3, 4, 0, 300, 70_000];
        let given: Vec<u8> = lengths.iter().flat_map(|len| packet(9, *len)).collect();
        let expected: Vec<u8> = lengths
            .iter()
            .zip(254_u8..=255)
            .flat_map(|(len, n)| packet(n, *len))
            .collect();
        let expected: Vec<u8> = expected
            .into_iter()
            .chain(
                lengths[2..]
                    .iter()
                    .zip(0_u8..)
                    .flat_map(|(len, n)| packet(n, *len)),
            )
            .collect();
        for size in [1, 2, 3, 5, 7, 64, 100_000] {
            let (mut bytes, mut next, mut cursor) = (given.clone(), 254, PacketCursor::default());
            for piece in bytes.chunks_mut(size) {
                cursor.renumber(piece, &mut next);
            }
            assert!(bytes == expected, "in pieces of {size}");
            assert_eq!(next, 5);
            let (mut next, mut cursor) = (254, PacketCursor::default());
            given
                .chunks(size)
                .for_each(|piece| cursor.count(piece, &mut next));
            assert_eq!(next, 5);
        }
    }
}
