//! Reading and writing of the protocol's basic types. The reader cannot panic: every read names the field it
//! is for, and a packet that is too short is [`WireError::Truncated`].

use crate::WireError;

/// Walks over one packet's payload.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(payload: &'a [u8]) -> Self {
        Reader { rest: payload }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Bytes that have not been read.
    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn bytes(&mut self, len: usize, field: &'static str) -> Result<&'a [u8], WireError> {
        let (head, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(WireError::Truncated { field })?;
        self.rest = rest;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], WireError> {
        let (head, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(WireError::Truncated { field })?;
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, WireError> {
        self.array(field).map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, WireError> {
        self.array(field).map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, WireError> {
        self.array(field).map(u32::from_le_bytes)
    }

    /// A length-encoded integer: one byte up to 0xFA, else 0xFC + 2, 0xFD + 3 or 0xFE + 8 bytes.
    pub(crate) fn lenenc(&mut self, field: &'static str) -> Result<u64, WireError> {
        match self.u8(field)? {
            small @ 0..=0xfa => Ok(u64::from(small)),
            0xfc => self.u16(field).map(u64::from),
            0xfd => self
                .array(field)
                .map(|[a, b, c]| u64::from(u32::from_le_bytes([a, b, c, 0]))),
            0xfe => self.array(field).map(u64::from_le_bytes),
            0xfb | 0xff => Err(WireError::Invalid { field }),
        }
    }

    /// Bytes after their length as a length-encoded integer.
    pub(crate) fn lenenc_bytes(&mut self, field: &'static str) -> Result<&'a [u8], WireError> {
        let len = self.lenenc(field)?;
        self.bytes(
            usize::try_from(len).map_err(|_| WireError::Truncated { field })?,
            field,
        )
    }

    /// Bytes up to a zero byte, which is passed.
    pub(crate) fn until_nul(&mut self, field: &'static str) -> Result<&'a [u8], WireError> {
        let end = self
            .rest
            .iter()
            .position(|&byte| byte == 0)
            .ok_or(WireError::Truncated { field })?;
        let text = self.bytes(end, field)?;
        self.u8(field)?;
        Ok(text)
    }

    /// Bytes up to a zero byte or the end: several peers leave out the zero of a packet's last string.
    pub(crate) fn until_nul_or_end(&mut self) -> &'a [u8] {
        let mut parts = self.rest.splitn(2, |&byte| byte == 0);
        let text = parts.next().unwrap_or_default();
        self.rest = parts.next().unwrap_or_default();
        text
    }

    pub(crate) fn remaining(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    pub(crate) fn tag(&mut self, tag: u8, expected: &'static str) -> Result<(), WireError> {
        match self.u8(expected)? {
            found if found == tag => Ok(()),
            found => Err(WireError::Unexpected { expected, found }),
        }
    }
}

/// A number whose lowest byte comes first.
pub(crate) fn little_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// A number whose highest byte comes first.
pub(crate) fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// Whether a bit is set, counted from the lowest of the first byte. Bits behind the last byte are not.
pub(crate) fn is_bit_set(bits: &[u8], at: usize) -> bool {
    bits.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1)
}

/// The bytes before the first zero byte, or all of them.
pub(crate) fn before_nul(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// The bytes with zeros behind them; what is longer is cut.
pub(crate) fn zero_padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut padded = [0; N];
    padded
        .iter_mut()
        .zip(bytes)
        .for_each(|(place, &byte)| *place = byte);
    padded
}

/// Appends the lowest bytes of a number, at most eight, the lowest first.
pub(crate) fn put_low_bytes(out: &mut Vec<u8>, number: u64, len: usize) {
    let start = out.len();
    out.extend_from_slice(&number.to_le_bytes());
    out.truncate(start + len);
}

/// Appends a byte as two hexadecimal digits.
pub(crate) fn put_hex(out: &mut Vec<u8>, byte: u8) {
    out.extend([byte >> 4, byte & 15].map(|digit| match digit {
        0..=9 => b'0' + digit,
        _ => b'a' + digit - 10,
    }));
}

pub(crate) fn put_lenenc(out: &mut Vec<u8>, value: u64) {
    match value {
        0..=0xfa => out.push(value as u8),
        0xfb..=0xffff => {
            out.push(0xfc);
            out.extend_from_slice(&(value as u16).to_le_bytes());
        }
        0x1_0000..=0xff_ffff => {
            out.push(0xfd);
            out.extend_from_slice(&(value as u32).to_le_bytes()[..3]);
        }
        _ => {
            out.push(0xfe);
            out.extend_from_slice(&value.to_le_bytes());
        }
    }
}

/// Writes bytes after their length as a length-encoded integer.
pub fn put_lenenc_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_lenenc(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Takes bytes after their length as a length-encoded integer from the beginning of `rest`. `None` where they
/// are cut.
pub fn take_lenenc_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let mut reader = Reader::new(rest);
    let bytes = reader.lenenc_bytes("bytes with a length").ok()?;
    *rest = reader.remaining();
    Some(bytes)
}

/// Writes `text` and a zero byte. Text with a zero byte inside would shift all that follows, so it is cut
/// there.
pub(crate) fn put_nul(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(before_nul(text));
    out.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn length_encoded_integers_round_trip(value in any::<u64>(), shift in 0..64u32) {
            let value = value >> shift;
            let mut out = Vec::new();
            put_lenenc(&mut out, value);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.lenenc("value"), Ok(value));
            prop_assert!(reader.is_empty());
            for cut in 0..out.len() {
                prop_assert_eq!(Reader::new(&out[..cut]).lenenc("value"), Err(WireError::Truncated { field: "value" }));
            }
        }
    }

    #[test]
    fn a_claimed_length_beyond_the_packet_is_refused() {
        let mut reader = Reader::new(&[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
        assert_eq!(
            reader.lenenc_bytes("text"),
            Err(WireError::Truncated { field: "text" })
        );
    }

    #[test]
    fn text_is_cut_at_a_zero_byte() {
        let mut out = Vec::new();
        put_nul(&mut out, b"a\0b");
        assert_eq!(out, b"a\0");
    }
}
