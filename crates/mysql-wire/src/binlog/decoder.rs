//! The packets of a binlog dump as events.

use crc32fast::Hasher;

use super::BinlogError;
use super::event::{self, Event, HEADER_LEN, Header, Kind};
use crate::codec::{Reader, before_nul};
use crate::{Capabilities, ErrPacket, WireError};

/// Reads the packets that a server sends after [`super::Command::Dump`] and [`super::Command::DumpGtid`].
#[derive(Debug, Default)]
pub struct Decoder {
    /// Whether events end with a checksum: as the last format description said, or not known yet.
    checksums: Option<bool>,
    is_mariadb: bool,
}

/// One packet.
#[derive(Debug)]
pub enum Packet<'a> {
    Event(Event<'a>),
    /// The server has come to the end and sends no more.
    End,
    /// The server gives up: the log is purged (error 1236), the replica's UUID is used twice, …
    Refused(ErrPacket),
}

const CHECKSUM_LEN: usize = 4;
/// Header flag that is set and removed in place while a file is written, and not part of the checksum.
const IN_USE: u8 = 1;
const FLAGS_AT: usize = 17;

impl Decoder {
    #[must_use]
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// Reads one packet's whole payload, joined where it was longer than 16 MiB.
    ///
    /// # Errors
    /// The stream cannot be understood any more.
    pub fn packet<'a>(&mut self, payload: &'a [u8]) -> Result<Packet<'a>, BinlogError> {
        const EXPECTED: &str = "an event";
        match payload.split_first() {
            None => Err(WireError::Empty { expected: EXPECTED }.into()),
            Some((0, event)) => self.event(event).map(Packet::Event),
            Some((0xfe, rest)) if rest.len() < 8 => Ok(Packet::End),
            Some((0xff, _)) => Ok(Packet::Refused(ErrPacket::decode(
                payload,
                Capabilities::PROTOCOL_41,
            )?)),
            Some((&found, _)) => Err(WireError::Unexpected {
                expected: EXPECTED,
                found,
            }
            .into()),
        }
    }

    /// Reads one event, with its checksum if the stream has them.
    fn event<'a>(&mut self, bytes: &'a [u8]) -> Result<Event<'a>, BinlogError> {
        let mut reader = Reader::new(bytes);
        let header = Header::read(&mut reader)?;
        if header.code == event::FORMAT_DESCRIPTION {
            return self.format_description(header, bytes, &mut reader);
        }
        let body = reader.remaining();
        // What comes before the format description is a rotate event that the server made up.
        let has_checksum = match self.checksums {
            Some(has_checksum) => has_checksum,
            None if header.code == event::ROTATE => is_intact(bytes),
            None => return Err(BinlogError::NoFormat),
        };
        if !has_checksum {
            return event::read_body(header, body, self.is_mariadb);
        }
        if !is_intact(bytes) {
            return Err(wrong_checksum(header));
        }
        let body = body.split_last_chunk::<CHECKSUM_LEN>().map(|(body, _)| body);
        event::read_body(header, body.unwrap_or_default(), self.is_mariadb)
    }

    /// Reads one event of a [`super::Payload`]: they have no checksums.
    pub fn inner<'a>(&self, bytes: &'a [u8]) -> Result<Event<'a>, BinlogError> {
        let mut reader = Reader::new(bytes);
        let header = Header::read(&mut reader)?;
        match header.code {
            // No server nests them, and so nobody can make us unpack for ever.
            event::TRANSACTION_PAYLOAD => Err(WireError::Invalid {
                field: "event inside a transaction's payload",
            }
            .into()),
            _ => event::read_body(header, reader.remaining(), self.is_mariadb),
        }
    }

    /// The events' own description ends with the algorithm of the checksums, 0 or 1 (CRC32), and always has
    /// room for one.
    fn format_description<'a>(
        &mut self,
        header: Header,
        bytes: &'a [u8],
        reader: &mut Reader<'a>,
    ) -> Result<Event<'a>, BinlogError> {
        const FIELD: &str = "format description";
        const INVALID: WireError = WireError::Invalid { field: FIELD };
        let version = reader.u16(FIELD)?;
        let server_version = reader.bytes(50, FIELD)?;
        let created = reader.u32(FIELD)?;
        let header_len = reader.u8(FIELD)?;
        let rest = reader.remaining();
        let algorithm = rest
            .len()
            .checked_sub(CHECKSUM_LEN + 1)
            .and_then(|at| rest.get(at));
        let algorithm = *algorithm.ok_or(INVALID)?;
        if version != 4 || usize::from(header_len) != HEADER_LEN {
            return Err(BinlogError::Unsupported(format!("binary log version {version}")));
        }
        // One byte for each type of event, and MariaDB's own ones begin at 160.
        self.is_mariadb = rest.len() > 150;
        self.checksums = Some(match algorithm {
            0 | 255 => false,
            1 => true,
            other => return Err(BinlogError::Unsupported(format!("checksum algorithm {other}"))),
        });
        // A description that the server changed for this stream may keep the file's checksum.
        if algorithm == 1 && header.next_position != 0 && created != 0 && !is_intact(bytes) {
            return Err(wrong_checksum(header));
        }
        let server_version = before_nul(server_version);
        let kind = Kind::FormatDescription { server_version };
        Ok(Event { header, kind })
    }
}

fn wrong_checksum(header: Header) -> BinlogError {
    BinlogError::Checksum {
        code: header.code,
        next_position: header.next_position,
    }
}

/// The last four bytes are the checksum of those before them.
fn is_intact(event: &[u8]) -> bool {
    let Some((content, checksum)) = event.split_last_chunk::<CHECKSUM_LEN>() else {
        return false;
    };
    let expected = u32::from_le_bytes(*checksum);
    if crc(&[content]) == expected {
        return true;
    }
    let Some((head, [flags, tail @ ..])) = content.split_at_checked(FLAGS_AT) else {
        return false;
    };
    head.get(4) == Some(&event::FORMAT_DESCRIPTION) && crc(&[head, &[flags & !IN_USE], tail]) == expected
}

fn crc(parts: &[&[u8]]) -> u32 {
    let mut crc = Hasher::new();
    parts.iter().for_each(|part| crc.update(part));
    crc.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(code: u8, body: &[u8], checksum: bool) -> Vec<u8> {
        let mut event = vec![0, 0, 0, 0, code, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0];
        event.extend_from_slice(body);
        if checksum {
            event.extend_from_slice(&crc(&[&event]).to_le_bytes());
        }
        [&[0], &event[..]].concat()
    }

    #[test]
    fn mariadbs_description_tells_more_events() {
        for types in [42, 171] {
            let mut body = vec![4, 0];
            body.resize(56, 0);
            body.push(HEADER_LEN as u8);
            body.resize(57 + types, 0);
            body.push(0);
            let mut decoder = Decoder::new();
            decoder
                .packet(&event(event::FORMAT_DESCRIPTION, &body, true))
                .unwrap();
            assert_eq!(decoder.is_mariadb, types > 160);
        }
    }

    fn description(algorithm: u8) -> Vec<u8> {
        let mut body = vec![4, 0];
        body.extend_from_slice(b"11.8.2-MariaDB");
        body.resize(52, 0);
        body.extend_from_slice(&[1, 0, 0, 0, HEADER_LEN as u8, 1, 2, 3, algorithm]);
        event(event::FORMAT_DESCRIPTION, &body, true)
    }

    fn kind_of(packet: Packet<'_>) -> Kind<'_> {
        match packet {
            Packet::Event(event) => event.kind,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn checksums_are_as_the_description_says() {
        const XID: &[u8] = &[7, 0, 0, 0, 0, 0, 0, 0];
        for (algorithm, checksum) in [(0, false), (1, true)] {
            let mut decoder = Decoder::new();
            let rotate = event(event::ROTATE, b"\x04\0\0\0\0\0\0\0binlog.1", checksum);
            let Kind::Rotate { file, offset } = kind_of(decoder.packet(&rotate).unwrap()) else {
                panic!()
            };
            assert_eq!((file, offset), (&b"binlog.1"[..], 4));
            let description = description(algorithm);
            let Kind::FormatDescription { server_version } = kind_of(decoder.packet(&description).unwrap())
            else {
                panic!()
            };
            assert_eq!(server_version, b"11.8.2-MariaDB");
            let mut xid = event(16, XID, checksum);
            assert!(matches!(kind_of(decoder.packet(&xid).unwrap()), Kind::Xid(7)));
            xid[25] ^= 1;
            let damaged = decoder.packet(&xid);
            let expected = BinlogError::Checksum {
                code: 16,
                next_position: 9,
            };
            assert_eq!(damaged.err(), checksum.then_some(expected));
        }
    }

    #[test]
    fn a_file_in_use_has_the_checksum_of_one_that_is_not() {
        let mut description = description(1);
        description[1 + FLAGS_AT] |= IN_USE;
        assert!(Decoder::new().packet(&description).is_ok());
        description[60] ^= 1;
        assert!(Decoder::new().packet(&description).is_err());
    }

    #[test]
    fn a_stream_begins_with_its_description() {
        let mut decoder = Decoder::new();
        assert_eq!(
            decoder.packet(&event(16, &[0; 8], false)).err(),
            Some(BinlogError::NoFormat)
        );
        let unknown = description(2);
        assert!(matches!(
            decoder.packet(&unknown),
            Err(BinlogError::Unsupported(_))
        ));
    }

    #[test]
    fn a_stream_ends() {
        let mut decoder = Decoder::new();
        assert!(matches!(decoder.packet(b"\xfe\0\0\x02\0"), Ok(Packet::End)));
        let refused = decoder.packet(b"\xff\xd4\x04#HY000purged").unwrap();
        let Packet::Refused(error) = refused else { panic!() };
        assert_eq!((error.code, &error.message[..]), (1236, &b"purged"[..]));
        assert!(decoder.packet(b"").is_err());
        assert!(decoder.packet(b"\x01").is_err());
    }
}
