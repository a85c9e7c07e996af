//! One end of a connection: packets over TCP, TLS or frames.

use std::{io, time::Duration};

use mysql_wire::{PacketHeader, write_packet};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::{sleep, timeout},
};

use super::{
    frames::{Compression, Frames},
    tape::{Cuts, Tape, Taped},
};

/// Nothing in a test takes so long unless it hangs, however busy the machine is.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes that are written within that time.
const WRITTEN_AT_ONCE: usize = 1 << 16;

/// One packet as it was on the wire: a payload of 16 MiB - 1 is continued in the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its number within the exchange.
    pub sequence: u8,
    /// Without the header.
    pub payload: Vec<u8>,
}

pub(super) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

pub(super) struct Link {
    stream: Box<dyn Duplex>,
    frames: Option<Frames>,
    /// Content of frames that was not read yet.
    unpacked: Vec<u8>,
    /// What the next packet written is numbered.
    pub sequence: u8,
    pub tape: Option<Tape>,
    pub cuts: Option<Cuts>,
}

impl Link {
    /// A session, or one that goes on inside TLS: with the next `sequence`.
    pub(super) fn new(
        stream: impl Duplex + 'static,
        sequence: u8,
        tape: Option<Tape>,
        cuts: Option<Cuts>,
    ) -> Self {
        Self {
            stream: Box::new(stream),
            frames: None,
            unpacked: Vec::new(),
            sequence,
            tape,
            cuts,
        }
    }

    /// The stream below, for a TLS handshake. Nothing is ever read ahead of a packet's end before
    /// compression.
    pub(super) fn into_stream(self) -> Box<dyn Duplex> {
        self.stream
    }

    pub(super) fn compress(&mut self, algorithm: Compression) {
        self.frames = Some(Frames::new(algorithm));
    }

    /// Packets and frames are numbered from here on: from 0 for a new command, from 1 behind a command of one
    /// packet, whatever was sent or read since.
    pub(super) fn number_from(&mut self, sequence: u8) {
        self.sequence = sequence;
        if let Some(frames) = &mut self.frames {
            frames.number_from(sequence);
        }
    }

    /// Reads a packet and continues its numbering. Between commands `fresh` allows the number 0.
    pub(super) async fn read_packet(&mut self, fresh: bool) -> io::Result<Packet> {
        let mut header = [0; PacketHeader::LEN];
        self.read_exact(&mut header, fresh).await?;
        let length = u32::from_le_bytes([header[0], header[1], header[2], 0]) as usize;
        let sequence = header[3];
        if sequence != self.sequence && !(fresh && sequence == 0) {
            let text = format!("packet {sequence} where {} is due", self.sequence);
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let mut payload = vec![0; length];
        self.read_exact(&mut payload, false).await?;
        self.sequence = sequence.wrapping_add(1);
        let packet = Packet { sequence, payload };
        if let Some(tape) = &self.tape {
            tape.add(Taped::Received(packet.clone()));
        }
        Ok(packet)
    }

    /// Reads a payload that may be continued over several packets.
    pub(super) async fn read_payload(&mut self, fresh: bool) -> io::Result<Vec<u8>> {
        let mut payload = self.read_packet(fresh).await?.payload;
        let mut full = payload.len() == PacketHeader::MAX_PAYLOAD;
        while full {
            let next = self.read_packet(false).await?.payload;
            full = next.len() == PacketHeader::MAX_PAYLOAD;
            payload.extend(next);
        }
        Ok(payload)
    }

    pub(super) async fn read_exact(&mut self, out: &mut [u8], mut fresh: bool) -> io::Result<()> {
        let Some(frames) = &mut self.frames else {
            let mut filled = 0;
            while filled < out.len() {
                match within(self.stream.read(&mut out[filled..])).await? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    length => filled += length,
                }
            }
            return Ok(());
        };
        while self.unpacked.len() < out.len() {
            self.unpacked
                .extend(within(frames.read(&mut self.stream, fresh)).await?);
            fresh = false;
        }
        out.copy_from_slice(&self.unpacked[..out.len()]);
        self.unpacked.drain(..out.len());
        Ok(())
    }

    /// Reads what is there, at least one byte and not after the end of `out`, which is not empty.
    pub(super) async fn read_some(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if let Some(frames) = &mut self.frames {
            while self.unpacked.is_empty() {
                self.unpacked
                    .extend(within(frames.read(&mut self.stream, false)).await?);
            }
            let length = out.len().min(self.unpacked.len());
            self.read_exact(&mut out[..length], false).await?;
            return Ok(length);
        }
        match within(self.stream.read(out)).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            length => Ok(length),
        }
    }

    pub(super) async fn write_payload(&mut self, payload: &[u8]) -> io::Result<()> {
        self.write_payloads(&[payload]).await
    }

    /// Writes several packets at once.
    pub(super) async fn write_payloads(&mut self, payloads: &[impl AsRef<[u8]>]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for payload in payloads {
            let before = bytes.len();
            write_packet(&mut bytes, &mut self.sequence, payload.as_ref());
            self.record(&bytes[before..]);
        }
        self.write(&bytes).await
    }

    /// Puts whole packets that are sent on the tape.
    pub(super) fn record(&self, mut bytes: &[u8]) {
        while let (Some(tape), Some(header)) = (&self.tape, PacketHeader::parse(bytes)) {
            let (packet, rest) = bytes.split_at(PacketHeader::LEN + header.payload_len);
            tape.add(Taped::Sent(Packet {
                sequence: header.sequence,
                payload: packet[PacketHeader::LEN..].to_vec(),
            }));
            bytes = rest;
        }
    }

    /// Writes bytes that are packets already, or a part of one.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let framed;
        let mut bytes = bytes;
        if let Some(frames) = &mut self.frames {
            framed = frames.write(bytes)?;
            bytes = &framed;
        }
        if let Some(cuts) = &mut self.cuts {
            let (first, rest) = bytes.split_at(cuts.next(bytes.len()));
            self.write_out(first).await?;
            sleep(Cuts::PAUSE).await;
            bytes = rest;
        }
        self.write_out(bytes).await
    }

    async fn write_out(&mut self, bytes: &[u8]) -> io::Result<()> {
        for bytes in bytes.chunks(WRITTEN_AT_ONCE) {
            within(self.stream.write_all(bytes)).await?;
        }
        within(self.stream.flush()).await
    }
}

pub(super) async fn within<T>(operation: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let out = timeout(PATIENCE, operation).await;
    out.unwrap_or_else(|_| {
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("nothing for {PATIENCE:?}"),
        ))
    })
}
