//! Packets inside the frames: counted, and numbered anew.

/// Walks over packets that come in pieces cut anywhere: three bytes of length, one of sequence, payload.
#[derive(Debug, Default)]
pub(super) struct PacketCursor {
    /// Bytes of the current header seen, 0 to 3.
    header_seen: u8,
    /// Length of the payload as far as known; then what is left of it.
    payload_left: u32,
}

impl PacketCursor {
    pub(super) fn renumber(&mut self, bytes: &mut [u8], next_packet: &mut u8) {
        let mut at = 0;
        while let Some(sequence) = self.next_sequence_byte(bytes, &mut at) {
            bytes[sequence] = *next_packet;
            *next_packet = next_packet.wrapping_add(1);
        }
    }

    pub(super) fn count(&mut self, bytes: &[u8], next_packet: &mut u8) {
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
