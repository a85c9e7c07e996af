//! Rows of text results, for the few results that are asked for and not forwarded.
//!
//! Source: MySQL "Text Resultset Row".

use crate::WireError;
use crate::codec::Reader;

/// The first byte of a value that is NULL.
const NULL: u8 = 0xfb;

/// The values of a row, one after the other; `None` is NULL. Column definitions begin with texts in the same
/// form. An error is the last item.
pub fn text_values(row: &[u8]) -> impl Iterator<Item = Result<Option<&[u8]>, WireError>> {
    let mut rest = row;
    std::iter::from_fn(move || {
        let (&first, tail) = rest.split_first()?;
        if first == NULL {
            rest = tail;
            return Some(Ok(None));
        }
        let mut reader = Reader::new(rest);
        let value = reader.lenenc_bytes("value of a row");
        rest = value.map_or(&[], |_| reader.remaining());
        Some(value.map(Some))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::put_lenenc_bytes;

    fn read(packet: &[u8]) -> Result<Vec<Option<Vec<u8>>>, WireError> {
        text_values(packet)
            .map(|value| value.map(|value| value.map(<[u8]>::to_vec)))
            .collect()
    }

    proptest! {
        #[test]
        fn rows_are_read_as_they_were_written(
            values in prop::collection::vec(prop::option::of(prop::collection::vec(any::<u8>(), 0..400)), 0..6),
        ) {
            let mut packet = Vec::new();
            for value in &values {
                match value {
                    None => packet.push(NULL),
                    Some(value) => put_lenenc_bytes(&mut packet, value),
                }
            }
            prop_assert_eq!(read(&packet), Ok(values.clone()));
            if let Some(Some(_)) = values.last() {
                let cut = read(&packet[..packet.len() - 1]);
                prop_assert!(cut.is_err() || cut.unwrap().len() < values.len(), "cut short");
            }
        }

        #[test]
        fn no_bytes_panic(packet: Vec<u8>) {
            let read = text_values(&packet).collect::<Vec<_>>();
            prop_assert!(read.iter().rev().skip(1).all(Result::is_ok), "an error is the last");
        }
    }

    #[test]
    fn a_length_that_is_none_is_refused() {
        for broken in [
            b"\x04abc".as_slice(),
            b"\xfc\x01",
            b"\xff",
            b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert!(read(broken).is_err(), "{broken:?}");
        }
    }
}
