//! The compressed protocol: packets are sent inside frames of a seven-byte header (compressed length, frame
//! sequence, uncompressed length) and zlib or zstd data. Frames and packets need not begin together. A frame
//! whose uncompressed length is 0 carries its bytes as they are.
//!
//! Sources: MySQL "Compression", "Compressed Packet"; `net_serv.cc` of both servers.
//!
//! The sequence of frames starts at 0 with each command and is shared by both directions: what answers a
//! frame has the next number. [`Decompressor::next_sequence`] gives it, [`Compressor::set_sequence`] takes
//! it.

use std::fmt;

use flate2::{Compress, Decompress, FlushCompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, Decoder, Operation};

use crate::WireError;

/// What the two sides agreed on at login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// With [`crate::Capabilities::COMPRESS`].
    Zlib,
    /// With [`crate::Capabilities::ZSTD_COMPRESSION`]; the level is 1 to 22.
    Zstd { level: u8 },
}

/// Bytes of a frame's header.
pub const HEADER_LEN: usize = 7;
/// Shorter pieces are sent as they are: compression would make them longer.
pub const MIN_COMPRESS: usize = 50;
/// What [`Compressor::compress`] puts into one frame at most.
pub const FRAME_INPUT: usize = 256 * 1024;
/// zstd: the decoder refuses frames that need a window over 2^24 bytes, which no frame's content can fill.
const ZSTD_WINDOW_LOG_MAX: u32 = 24;

/// Packs bytes into frames.
pub struct Compressor {
    packer: Packer,
    sequence: u8,
    packed: Vec<u8>,
}

enum Packer {
    Zlib(Box<Compress>),
    Zstd(Box<zstd::bulk::Compressor<'static>>),
}

impl Compressor {
    /// # Errors
    /// [`WireError::Invalid`] for a zstd level that the library does not have.
    pub fn new(algorithm: Algorithm) -> Result<Compressor, WireError> {
        let packer = match algorithm {
            Algorithm::Zlib => Packer::Zlib(Box::new(Compress::new(flate2::Compression::new(6), true))),
            Algorithm::Zstd { level } => {
                let level = i32::from(level.clamp(1, 22));
                let compressor = zstd::bulk::Compressor::new(level)
                    .map_err(|_| WireError::Invalid { field: "zstd level" })?;
                Packer::Zstd(Box::new(compressor))
            }
        };
        Ok(Compressor {
            packer,
            sequence: 0,
            packed: Vec::new(),
        })
    }

    /// The sequence number of the next frame: 0 at a client's new command, else one more than the peer's
    /// last.
    pub fn set_sequence(&mut self, sequence: u8) {
        self.sequence = sequence;
    }

    pub fn sequence(&self) -> u8 {
        self.sequence
    }

    /// Appends `bytes` as frames of at most [`FRAME_INPUT`] bytes of content.
    ///
    /// # Errors
    /// [`WireError::FrameData`] where the compression library fails, which it does for want of memory only.
    pub fn compress(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), WireError> {
        for piece in bytes.chunks(FRAME_INPUT) {
            if piece.len() >= MIN_COMPRESS && self.pack(piece)? {
                put_header(out, self.packed.len(), self.sequence, piece.len());
                out.extend_from_slice(&self.packed);
            } else {
                put_header(out, piece.len(), self.sequence, 0);
                out.extend_from_slice(piece);
            }
            self.sequence = self.sequence.wrapping_add(1);
        }
        Ok(())
    }

    /// Compresses into `packed`; false where that is not shorter.
    fn pack(&mut self, piece: &[u8]) -> Result<bool, WireError> {
        self.packed.clear();
        match &mut self.packer {
            Packer::Zlib(compress) => {
                compress.reset();
                self.packed.reserve(piece.len());
                let status = compress
                    .compress_vec(piece, &mut self.packed, FlushCompress::Finish)
                    .map_err(|_| WireError::FrameData)?;
                Ok(status == Status::StreamEnd && self.packed.len() < piece.len())
            }
            Packer::Zstd(compressor) => {
                self.packed.reserve(zstd::zstd_safe::compress_bound(piece.len()));
                compressor
                    .compress_to_buffer(piece, &mut self.packed)
                    .map_err(|_| WireError::FrameData)?;
                Ok(self.packed.len() < piece.len())
            }
        }
    }
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor")
            .field("sequence", &self.sequence)
            .finish_non_exhaustive()
    }
}

fn put_header(out: &mut Vec<u8>, len: usize, sequence: u8, uncompressed: usize) {
    out.extend_from_slice(&(len as u32).to_le_bytes()[..3]);
    out.push(sequence);
    out.extend_from_slice(&(uncompressed as u32).to_le_bytes()[..3]);
}

/// Unpacks frames as their bytes come. It buffers nothing but a frame's header: memory is the caller's output
/// buffer and the library's state (zlib 48 KiB, zstd up to the frame's content, at most 16 MiB).
pub struct Decompressor {
    unpacker: Unpacker,
    header: [u8; HEADER_LEN],
    header_len: usize,
    frame: Option<Frame>,
    next_sequence: u8,
}

enum Unpacker {
    Zlib(Box<Decompress>),
    Zstd(Box<Decoder<'static>>),
}

/// The frame under way.
#[derive(Debug, Clone, Copy)]
struct Frame {
    /// Bytes of the frame that have not been taken yet.
    left: usize,
    /// The content's length, as claimed; 0 for a frame that is not compressed.
    claimed: usize,
    /// Bytes of content that came out so far.
    produced: usize,
    /// The compressed stream has said that it is complete.
    complete: bool,
}

/// What [`Decompressor::decompress`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unpacked {
    /// Bytes of input used up.
    pub consumed: usize,
    /// Bytes of output written.
    pub produced: usize,
}

impl Decompressor {
    /// # Errors
    /// [`WireError::FrameData`] where the library has no memory for its state.
    pub fn new(algorithm: Algorithm) -> Result<Decompressor, WireError> {
        let unpacker = match algorithm {
            Algorithm::Zlib => Unpacker::Zlib(Box::new(Decompress::new(true))),
            Algorithm::Zstd { .. } => {
                let mut decoder = Decoder::new().map_err(|_| WireError::FrameData)?;
                decoder
                    .set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX))
                    .map_err(|_| WireError::FrameData)?;
                Unpacker::Zstd(Box::new(decoder))
            }
        };
        let header = [0; HEADER_LEN];
        Ok(Decompressor {
            unpacker,
            header,
            header_len: 0,
            frame: None,
            next_sequence: 0,
        })
    }

    /// One more than the sequence number of the last frame whose header was seen.
    pub fn next_sequence(&self) -> u8 {
        self.next_sequence
    }

    /// Between two frames: nothing of a frame has been seen that has not been unpacked.
    pub fn at_boundary(&self) -> bool {
        self.frame.is_none() && self.header_len == 0
    }

    /// Unpacks from `input` into `output` until one of them is used up. Call it again with the rest of the
    /// input, and also without input as long as it fills the output: the library may hold bytes back.
    ///
    /// # Errors
    /// Damaged data, or a frame whose content is not as long as claimed.
    pub fn decompress(&mut self, input: &[u8], output: &mut [u8]) -> Result<Unpacked, WireError> {
        let mut done = Unpacked::default();
        loop {
            let Some(mut frame) = self.frame else {
                done.consumed += self.read_header(input.get(done.consumed..).unwrap_or_default());
                if self.frame.is_none() {
                    return Ok(done);
                }
                continue;
            };
            let available = input.get(done.consumed..).unwrap_or_default();
            let available = available.get(..frame.left).unwrap_or(available);
            let room = output.get_mut(done.produced..).unwrap_or_default();
            let step = self.unpack(&mut frame, available, room)?;
            done.consumed += step.consumed;
            done.produced += step.produced;
            frame.left -= step.consumed;
            frame.produced += step.produced;
            self.frame = Some(frame);
            if frame.is_finished()? {
                self.frame = None;
                self.header_len = 0;
            } else if step == Unpacked::default() {
                let waits = done.produced == output.len() || (available.is_empty() && frame.left > 0);
                return if waits {
                    Ok(done)
                } else {
                    Err(frame.wrong_length())
                };
            }
        }
    }

    /// Takes header bytes; begins the frame when all are there.
    fn read_header(&mut self, input: &[u8]) -> usize {
        let wanted = (HEADER_LEN - self.header_len).min(input.len());
        let places = self.header.iter_mut().skip(self.header_len);
        places.zip(input).for_each(|(place, &byte)| *place = byte);
        self.header_len += wanted;
        if self.header_len == HEADER_LEN {
            let [a, b, c, sequence, d, e, f] = self.header;
            let left = u32::from_le_bytes([a, b, c, 0]) as usize;
            let claimed = u32::from_le_bytes([d, e, f, 0]) as usize;
            self.next_sequence = sequence.wrapping_add(1);
            self.frame = Some(Frame {
                left,
                claimed,
                produced: 0,
                complete: claimed == 0,
            });
            self.unpacker.reset();
        }
        wanted
    }

    fn unpack(&mut self, frame: &mut Frame, input: &[u8], output: &mut [u8]) -> Result<Unpacked, WireError> {
        if frame.claimed == 0 {
            let len = input.len().min(output.len());
            let ((from, _), (to, _)) = (input.split_at(len), output.split_at_mut(len));
            to.copy_from_slice(from);
            return Ok(Unpacked {
                consumed: len,
                produced: len,
            });
        }
        // One byte more than claimed would be an error: never let the library write it.
        let room = output.len().min(frame.claimed - frame.produced);
        let (output, _) = output.split_at_mut(room);
        self.unpacker.run(frame, input, output)
    }
}

impl Frame {
    /// All bytes were taken and all content came out.
    fn is_finished(&self) -> Result<bool, WireError> {
        if self.claimed == 0 {
            return Ok(self.left == 0);
        }
        match self.complete {
            true if self.left > 0 || self.produced != self.claimed => Err(self.wrong_length()),
            complete => Ok(complete),
        }
    }

    fn wrong_length(&self) -> WireError {
        WireError::FrameLength {
            claimed: self.claimed,
        }
    }
}

impl Unpacker {
    fn reset(&mut self) {
        match self {
            Unpacker::Zlib(decompress) => decompress.reset(true),
            // Fails for a decoder in the middle of setting parameters only.
            Unpacker::Zstd(decoder) => drop(decoder.reinit()),
        }
    }

    fn run(&mut self, frame: &mut Frame, input: &[u8], output: &mut [u8]) -> Result<Unpacked, WireError> {
        match self {
            Unpacker::Zlib(decompress) => {
                let (consumed, produced) = (decompress.total_in(), decompress.total_out());
                let status = decompress
                    .decompress(input, output, FlushDecompress::None)
                    .map_err(|_| WireError::FrameData)?;
                frame.complete = status == Status::StreamEnd;
                Ok(Unpacked {
                    consumed: (decompress.total_in() - consumed) as usize,
                    produced: (decompress.total_out() - produced) as usize,
                })
            }
            Unpacker::Zstd(decoder) => {
                let status = decoder
                    .run_on_buffers(input, output)
                    .map_err(|_| WireError::FrameData)?;
                frame.complete = status.remaining == 0;
                Ok(Unpacked {
                    consumed: status.bytes_read,
                    produced: status.bytes_written,
                })
            }
        }
    }
}

impl fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decompressor")
            .field("frame", &self.frame)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALGORITHMS: [Algorithm; 2] = [Algorithm::Zlib, Algorithm::Zstd { level: 3 }];

    fn packed(algorithm: Algorithm, content: &[u8]) -> Vec<u8> {
        let mut frames = Vec::new();
        Compressor::new(algorithm)
            .unwrap()
            .compress(content, &mut frames)
            .unwrap();
        frames
    }

    /// Offers `step` bytes of input and `room` bytes of output at a time.
    fn unpack(algorithm: Algorithm, frames: &[u8], step: usize, room: usize) -> Result<Vec<u8>, WireError> {
        let mut decompressor = Decompressor::new(algorithm)?;
        let (mut content, mut output, mut at) = (Vec::new(), vec![0; room], 0);
        loop {
            let done = decompressor.decompress(&frames[at..(at + step).min(frames.len())], &mut output)?;
            at += done.consumed;
            content.extend_from_slice(&output[..done.produced]);
            if at == frames.len() && done.produced < room {
                assert!(decompressor.at_boundary());
                return Ok(content);
            }
            assert_ne!(done, Unpacked::default());
        }
    }

    fn text(len: usize) -> Vec<u8> {
        (0..len)
            .map(|i| b"select a from b"[i * i % 15] ^ (i / 997) as u8)
            .collect()
    }

    #[test]
    fn content_of_any_length_comes_out_as_it_went_in() {
        for algorithm in ALGORITHMS {
            for len in [
                0,
                1,
                MIN_COMPRESS - 1,
                MIN_COMPRESS,
                1000,
                FRAME_INPUT,
                FRAME_INPUT + 1,
                700_000,
            ] {
                let content = text(len);
                let frames = packed(algorithm, &content);
                assert!(len < 1000 || frames.len() < len, "{algorithm:?} {len}");
                assert_eq!(
                    unpack(algorithm, &frames, usize::MAX / 2, 1 << 16),
                    Ok(content.clone())
                );
                if len <= 1000 {
                    assert_eq!(unpack(algorithm, &frames, 1, 1), Ok(content));
                }
            }
        }
    }

    #[test]
    fn bytes_that_do_not_get_shorter_are_sent_as_they_are() {
        for algorithm in ALGORITHMS {
            let content: Vec<u8> = (0..=255).collect();
            let frames = packed(algorithm, &content);
            assert_eq!(frames[..HEADER_LEN], [0, 1, 0, 0, 0, 0, 0]);
            assert_eq!(frames[HEADER_LEN..], content);
        }
    }

    #[test]
    fn frames_are_numbered_through_and_the_answer_goes_on() {
        let mut compressor = Compressor::new(Algorithm::Zlib).unwrap();
        compressor.set_sequence(255);
        let mut frames = Vec::new();
        compressor.compress(b"a", &mut frames).unwrap();
        compressor.compress(b"b", &mut frames).unwrap();
        assert_eq!(
            (frames[3], frames[HEADER_LEN + 1 + 3], compressor.sequence()),
            (255, 0, 1)
        );
        let mut decompressor = Decompressor::new(Algorithm::Zlib).unwrap();
        decompressor.decompress(&frames, &mut [0; 9]).unwrap();
        assert_eq!(decompressor.next_sequence(), 1);
    }

    #[test]
    fn a_frame_must_hold_what_it_claims() {
        for algorithm in ALGORITHMS {
            let good = packed(algorithm, &text(1000));
            for claimed in [1_u32, 999, 1001, 0xff_ffff] {
                let mut frames = good.clone();
                frames[4..7].copy_from_slice(&claimed.to_le_bytes()[..3]);
                let error = unpack(algorithm, &frames, 50, 100).unwrap_err();
                assert_eq!(
                    error,
                    WireError::FrameLength {
                        claimed: claimed as usize
                    },
                    "{algorithm:?}"
                );
            }
            let mut longer = good.clone();
            longer[0] += 1;
            longer.push(0);
            assert!(unpack(algorithm, &longer, 50, 100).is_err());
            let mut shorter = good;
            shorter.pop();
            shorter[0] = shorter[0].wrapping_sub(1);
            assert!(unpack(algorithm, &shorter, 50, 100).is_err());
        }
    }

    #[test]
    fn damaged_data_is_an_error() {
        for algorithm in ALGORITHMS {
            let mut frames = packed(algorithm, &text(1000));
            frames[HEADER_LEN..].fill(0xff);
            assert_eq!(unpack(algorithm, &frames, 50, 100), Err(WireError::FrameData));
        }
    }

    #[test]
    fn a_zstd_frame_cannot_ask_for_a_window_that_no_frame_needs() {
        // Magic, a descriptor without single segment, a window of 2^27 bytes.
        let mut frames = vec![6, 0, 0, 0, 0xff, 0xff, 0xff];
        frames.extend_from_slice(&[0x28, 0xb5, 0x2f, 0xfd, 0x00, 17 << 3]);
        let zstd = Algorithm::Zstd { level: 3 };
        assert_eq!(unpack(zstd, &frames, 100, 100), Err(WireError::FrameData));
    }
}
