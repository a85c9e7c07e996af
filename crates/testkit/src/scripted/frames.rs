//! The compressed protocol: packets inside frames of 7 header bytes.

use std::io::{self, Read, Write};

use flate2::{read::ZlibDecoder, write::ZlibEncoder};
use tokio::io::{AsyncRead, AsyncReadExt};

const HEADER: usize = 7;
/// Content of one frame. Small on purpose, so that packets lie across frames.
const FRAME: usize = 16_000;
/// Shorter content is sent as it is.
const MIN_COMPRESS: usize = 50;

/// The algorithm of a compressed session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// CLIENT_COMPRESS.
    Zlib,
    /// CLIENT_ZSTD_COMPRESSION_ALGORITHM.
    Zstd,
}

/// One side's state: both directions share the sequence number.
pub(super) struct Frames {
    algorithm: Compression,
    sequence: u8,
}

impl Frames {
    pub(super) fn new(algorithm: Compression) -> Self {
        Self {
            algorithm,
            sequence: 0,
        }
    }

    /// Frames are numbered from here on: from 0 before every command of a client, from 1 before the answer
    /// to a command of one frame that is not the last one sent.
    pub(super) fn number_from(&mut self, sequence: u8) {
        self.sequence = sequence;
    }

    /// Reads one frame and returns its content. As a real server, it refuses a frame out of sequence; `fresh`
    /// says that a frame may also begin a new command.
    pub(super) async fn read(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        fresh: bool,
    ) -> io::Result<Vec<u8>> {
        let mut header = [0; HEADER];
        stream.read_exact(&mut header).await?;
        let length = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], 0]) as usize;
        if header[3] != self.sequence && !(fresh && header[3] == 0) {
            return Err(invalid(format!(
                "frame {} where {} is due",
                header[3], self.sequence
            )));
        }
        self.sequence = header[3].wrapping_add(1);
        let mut content = vec![0; length(0)];
        stream.read_exact(&mut content).await?;
        if length(4) == 0 {
            return Ok(content);
        }
        let unpacked = self.unpack(&content)?;
        if unpacked.len() != length(4) {
            return Err(invalid(format!(
                "a frame of {} bytes claims {}",
                unpacked.len(),
                length(4)
            )));
        }
        Ok(unpacked)
    }

    /// The bytes as frames.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        for content in bytes.chunks(FRAME) {
            let packed = if content.len() < MIN_COMPRESS {
                None
            } else {
                Some(self.pack(content)?)
            };
            let (body, claimed) = match &packed {
                Some(packed) => (packed.as_slice(), content.len()),
                None => (content, 0),
            };
            out.extend(&(body.len() as u32).to_le_bytes()[..3]);
            out.push(self.sequence);
            out.extend(&(claimed as u32).to_le_bytes()[..3]);
            out.extend(body);
            self.sequence = self.sequence.wrapping_add(1);
        }
        Ok(out)
    }

    fn unpack(&self, content: &[u8]) -> io::Result<Vec<u8>> {
        match self.algorithm {
            Compression::Zlib => {
                let mut out = Vec::new();
                ZlibDecoder::new(content).read_to_end(&mut out)?;
                Ok(out)
            }
            Compression::Zstd => zstd::stream::decode_all(content),
        }
    }

    fn pack(&self, content: &[u8]) -> io::Result<Vec<u8>> {
        match self.algorithm {
            Compression::Zlib => {
                let mut encoder = ZlibEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(content)?;
                encoder.finish()
            }
            Compression::Zstd => zstd::stream::encode_all(content, 3),
        }
    }
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}
