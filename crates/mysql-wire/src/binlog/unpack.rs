//! What servers compress: MySQL whole transactions with zstd, MariaDB single events and columns with zlib.
//!
//! Sources: MySQL `libs/mysql/binlog/event/codecs/binary.cpp`; MariaDB `sql/log_event.cc`
//! (`binlog_buf_compress`), `sql/field.cc` (`Field_longstr::compress`).

use std::borrow::Cow;
use std::fmt;

use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

use super::BinlogError;
use super::event::HEADER_LEN;
use crate::WireError;
use crate::codec::{Reader, big_endian};

/// Bytes of the longest event that is unpacked: what a replica accepts (`replica_max_allowed_packet`).
pub const UNPACKED_MAX: usize = 1 << 30;
/// zlib cannot make data smaller than this part of it.
const ZLIB_RATIO_MAX: usize = 1032;
/// Bytes that are unpacked at once.
const STEP: usize = 1 << 17;
const FIELD: &str = "compressed event";
const INVALID: WireError = WireError::Invalid { field: FIELD };

/// The content of a compressed MariaDB event: a byte `1ffffnnn` (algorithm 0 is zlib), `n` bytes of length, a
/// zlib stream.
pub(super) fn mariadb(data: &[u8]) -> Result<Vec<u8>, BinlogError> {
    let (&head, rest) = data.split_first().ok_or(INVALID)?;
    if head & 0x80 == 0 || head & 0x70 != 0 {
        return Err(BinlogError::Unsupported(format!(
            "compression {head:#04x} of MariaDB events"
        )));
    }
    zlib(rest, head & 7, true)
}

/// The value of a column with the attribute COMPRESSED: a byte 0 and the value, or a byte `1000wnnn` (`w`:
/// without zlib's own header), `n` bytes of length, and compressed data.
pub(super) fn mariadb_column(data: &[u8]) -> Result<Cow<'_, [u8]>, BinlogError> {
    match data.split_first() {
        None => Ok(data.into()),
        Some((0, value)) => Ok(value.into()),
        Some((head, rest)) if head >> 4 == 8 => Ok(zlib(rest, head & 7, head & 8 == 0)?.into()),
        Some((head, _)) => Err(BinlogError::Unsupported(format!(
            "compression {head:#04x} of MariaDB columns"
        ))),
    }
}

/// The length in `len_bytes` bytes, compressed data.
fn zlib(data: &[u8], len_bytes: u8, zlib_header: bool) -> Result<Vec<u8>, BinlogError> {
    let (len, packed) = data.split_at_checked(usize::from(len_bytes)).ok_or(INVALID)?;
    let len = usize::try_from(big_endian(len)).map_err(|_| INVALID)?;
    if len > UNPACKED_MAX || len > packed.len().saturating_mul(ZLIB_RATIO_MAX) {
        return Err(INVALID.into());
    }
    let mut content = Vec::with_capacity(len);
    let mut decompress = Decompress::new(zlib_header);
    let status = decompress.decompress_vec(packed, &mut content, FlushDecompress::Finish);
    let is_complete = matches!(status, Ok(Status::StreamEnd)) && content.len() == len;
    is_complete.then_some(content).ok_or(INVALID.into())
}

/// The events of a compressed transaction. They are unpacked one by one.
pub struct Payload<'a> {
    packed: &'a [u8],
    decoder: Option<Box<Decoder<'static>>>,
    unpacked: Vec<u8>,
    /// Bytes of `unpacked` that were given away.
    given: usize,
}

impl<'a> Payload<'a> {
    /// Numbered fields until number 0, then the data.
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Payload<'a>, BinlogError> {
        const ZSTD: u64 = 0;
        const NONE: u64 = 255;
        let mut algorithm = NONE;
        loop {
            let field = reader.lenenc(FIELD)?;
            if field == 0 {
                break;
            }
            let value = reader.lenenc_bytes(FIELD)?;
            if field == 2 {
                algorithm = Reader::new(value).lenenc(FIELD)?;
            }
        }
        let decoder = match algorithm {
            ZSTD => Some(Box::new(Decoder::new().map_err(|_| INVALID)?)),
            NONE => None,
            other => {
                return Err(BinlogError::Unsupported(format!(
                    "transaction compression {other}"
                )));
            }
        };
        Ok(Payload {
            packed: reader.remaining(),
            decoder,
            unpacked: Vec::new(),
            given: 0,
        })
    }

    /// The next event, for [`super::Decoder::inner`]; None after the last.
    ///
    /// # Errors
    /// The data is damaged, or an event is longer than [`UNPACKED_MAX`].
    pub fn next_event(&mut self) -> Result<Option<&[u8]>, BinlogError> {
        const SIZE_AT: usize = 9;
        self.fill(HEADER_LEN)?;
        let unpacked = self.unpacked.get(self.given..).unwrap_or_default();
        if unpacked.is_empty() {
            return Ok(None);
        }
        let size = unpacked.get(SIZE_AT..).and_then(<[u8]>::first_chunk);
        let size = u32::from_le_bytes(*size.ok_or(INVALID)?) as usize;
        if !(HEADER_LEN..=UNPACKED_MAX).contains(&size) {
            return Err(INVALID.into());
        }
        self.fill(size)?;
        let event = self.unpacked.get(self.given..self.given + size);
        let event = event.ok_or(INVALID)?;
        self.given += size;
        Ok(Some(event))
    }

    /// Unpacks until there are `len` bytes that were not given away, or to the end.
    fn fill(&mut self, len: usize) -> Result<(), WireError> {
        if self.unpacked.len() - self.given >= len {
            return Ok(());
        }
        self.unpacked.drain(..std::mem::take(&mut self.given));
        while self.unpacked.len() < len {
            let start = self.unpacked.len();
            let Some(decoder) = &mut self.decoder else {
                let step = (len - start).min(self.packed.len());
                let (taken, rest) = self.packed.split_at(step);
                self.unpacked.extend_from_slice(taken);
                self.packed = rest;
                return Ok(());
            };
            self.unpacked.reserve(STEP);
            let mut input = InBuffer::around(self.packed);
            let mut output = OutBuffer::around_pos(&mut self.unpacked, start);
            decoder.run(&mut input, &mut output).map_err(|_| INVALID)?;
            let consumed = input.pos();
            self.packed = self.packed.get(consumed..).unwrap_or_default();
            if consumed == 0 && self.unpacked.len() == start {
                return Ok(());
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Payload<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payload")
            .field("packed", &self.packed.len())
            .field("unpacked", &self.unpacked.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn packed(content: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn mariadb_events_are_unpacked() {
        let content = b"SELECT 1".repeat(100);
        let mut event = vec![0x82, 3, 32];
        event.extend(packed(&content));
        assert_eq!(mariadb(&event).unwrap(), content);
        event[1] = 2;
        assert!(mariadb(&event).is_err());
    }

    #[test]
    fn a_claimed_length_costs_no_memory() {
        let event = [&[0x84, 0x30, 0, 0, 0][..], &packed(b"abc")].concat();
        assert!(mariadb(&event).is_err());
    }

    #[test]
    fn a_transaction_comes_event_by_event() {
        let event = |len: u32, fill: u8| {
            let mut event = vec![fill; len as usize];
            event[9..13].copy_from_slice(&len.to_le_bytes());
            event
        };
        let events = [event(19, 1), event(300_000, 2), event(25, 3)];
        let content = zstd::bulk::compress(&events.concat(), 3).unwrap();
        for (algorithm, data) in [(0, content), (0xfb, events.concat())] {
            let algorithm: &[u8] = if algorithm == 0 {
                &[2, 1, 0]
            } else {
                &[2, 3, 0xfc, 0xff, 0]
            };
            let body = [algorithm, &[0], &data].concat();
            let mut payload = Payload::read(&mut Reader::new(&body)).unwrap();
            for event in &events {
                assert_eq!(payload.next_event().unwrap(), Some(&event[..]));
            }
            assert_eq!(payload.next_event().unwrap(), None);
            let mut payload = Payload::read(&mut Reader::new(&body[..body.len() - 3])).unwrap();
            while let Ok(Some(_)) = payload.next_event() {}
            assert!(payload.next_event().is_err());
        }
    }
}
