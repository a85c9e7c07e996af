//! Packet framing: a three-byte payload length, a sequence number, the payload. A payload of 0xFFFFFF bytes
//! or more is sent as several packets, of which the last is shorter than 0xFFFFFF (and may be empty).

/// The four bytes in front of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketHeader {
    /// Payload bytes that follow, at most [`PacketHeader::MAX_PAYLOAD`].
    pub payload_len: usize,
    pub sequence: u8,
}

impl PacketHeader {
    /// Bytes of an encoded header.
    pub const LEN: usize = 4;
    /// The longest payload of one packet. A packet of this length is continued by the next one.
    pub const MAX_PAYLOAD: usize = 0xff_ffff;

    /// The header at the start of `bytes`; `None` while fewer than four are there.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<PacketHeader> {
        let &[a, b, c, sequence] = bytes.first_chunk::<4>()?;
        Some(PacketHeader {
            payload_len: u32::from_le_bytes([a, b, c, 0]) as usize,
            sequence,
        })
    }

    /// The header's bytes. A `payload_len` over [`PacketHeader::MAX_PAYLOAD`] cannot be written; use
    /// [`write_packet`] for payloads of any length.
    pub fn encode(self) -> [u8; 4] {
        debug_assert!(self.payload_len <= Self::MAX_PAYLOAD);
        let [a, b, c, ..] = (self.payload_len as u32).to_le_bytes();
        [a, b, c, self.sequence]
    }

    /// The payload goes on in the next packet.
    pub fn is_continued(self) -> bool {
        self.payload_len == Self::MAX_PAYLOAD
    }
}

/// Appends `payload` as one packet, or as several where it is 16 MiB or longer, and moves `sequence` past
/// them.
pub fn write_packet(out: &mut Vec<u8>, sequence: &mut u8, payload: &[u8]) {
    let mut rest = payload;
    loop {
        let (part, after) = rest.split_at(rest.len().min(PacketHeader::MAX_PAYLOAD));
        let header = PacketHeader {
            payload_len: part.len(),
            sequence: *sequence,
        };
        out.extend_from_slice(&header.encode());
        out.extend_from_slice(part);
        *sequence = sequence.wrapping_add(1);
        rest = after;
        if !header.is_continued() {
            return;
        }
    }
}

/// A command in a packet, or in several: they are numbered from 0.
#[must_use]
pub fn command_packet(payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(PacketHeader::LEN + payload.len());
    write_packet(&mut packet, &mut 0, payload);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_round_trips() {
        let header = PacketHeader {
            payload_len: 0x01_0203,
            sequence: 255,
        };
        assert_eq!(header.encode(), [3, 2, 1, 255]);
        assert_eq!(PacketHeader::parse(&[3, 2, 1, 255, 9]), Some(header));
        assert_eq!(PacketHeader::parse(&[3, 2, 1]), None);
    }

    #[test]
    fn a_payload_of_exactly_16_mib_less_one_is_ended_by_an_empty_packet() {
        let payload = vec![7; PacketHeader::MAX_PAYLOAD];
        let (mut out, mut sequence) = (Vec::new(), 255);
        write_packet(&mut out, &mut sequence, &payload);
        assert_eq!(sequence, 1);
        assert_eq!(out.len(), PacketHeader::MAX_PAYLOAD + 8);
        assert_eq!(out[..4], [0xff, 0xff, 0xff, 255]);
        assert_eq!(out[out.len() - 4..], [0, 0, 0, 0]);
    }

    #[test]
    fn an_empty_payload_is_one_empty_packet() {
        let (mut out, mut sequence) = (Vec::new(), 2);
        write_packet(&mut out, &mut sequence, &[]);
        assert_eq!((out, sequence), (vec![0, 0, 0, 2], 3));
    }
}
