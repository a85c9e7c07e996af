//! MariaDB's UUID, INET4 and INET6 as text.
//!
//! Sources: `plugin/type_uuid/sql_type_uuid.h` (the binary log has the bytes in the order of the text),
//! `plugin/type_inet/sql_type_inet.cc` (unlike RFC 5952, a single zero is left out as well).

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use super::ColumnKind;
use crate::codec::put_hex;
use crate::gtid::parse_uuid;

/// Appends the text of a value that is stored in these bytes. None: it is not of this length, or no address
/// type.
pub(super) fn put(kind: ColumnKind, bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let text = match kind {
        ColumnKind::Uuid => {
            put_uuid(bytes.try_into().ok()?, out);
            return Some(());
        }
        ColumnKind::Inet4 => Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).to_string(),
        ColumnKind::Inet6 => inet6(<[u8; 16]>::try_from(bytes).ok()?.into()),
        _ => return None,
    };
    out.extend_from_slice(text.as_bytes());
    Some(())
}

/// The bytes of a text as [`put`] writes it.
pub(super) fn read(kind: ColumnKind, text: &[u8]) -> Option<Vec<u8>> {
    if kind == ColumnKind::Uuid {
        // Servers print the dashes.
        return parse_uuid(text).filter(|_| text.len() == 36).map(Vec::from);
    }
    let text = str::from_utf8(text).ok()?;
    match kind {
        ColumnKind::Inet4 => Some(text.parse::<Ipv4Addr>().ok()?.octets().to_vec()),
        ColumnKind::Inet6 => Some(text.parse::<Ipv6Addr>().ok()?.octets().to_vec()),
        _ => None,
    }
}

/// Bytes before which a dash is.
const DASHES: [usize; 4] = [4, 6, 8, 10];

fn put_uuid(uuid: &[u8; 16], out: &mut Vec<u8>) {
    for (at, &byte) in uuid.iter().enumerate() {
        if DASHES.contains(&at) {
            out.push(b'-');
        }
        put_hex(out, byte);
    }
}

/// The longest run of zeros is left out, the first of several.
fn inet6(address: Ipv6Addr) -> String {
    let words = address.segments();
    let (mut gap, mut gap_len, mut run) = (0, 0, 0);
    for (at, &word) in words.iter().enumerate() {
        run = if word == 0 { run + 1 } else { 0 };
        if run > gap_len {
            (gap, gap_len) = (at + 1 - run, run);
        }
    }
    let has_ipv4 = gap == 0 && (gap_len == 6 || gap_len == 5 && words[5] == 0xffff);
    let hex = |places: Range<usize>| {
        let shown = words.iter().take(places.end).skip(places.start);
        let shown: Vec<String> = shown.map(|word| format!("{word:x}")).collect();
        shown.join(":")
    };
    if has_ipv4 {
        let [.., a, b, c, d] = address.octets();
        let prefix = if gap_len == 6 { "::" } else { "::ffff:" };
        return format!("{prefix}{}", Ipv4Addr::new(a, b, c, d));
    }
    if gap_len == 0 {
        return hex(0..words.len());
    }
    format!("{}::{}", hex(0..gap), hex(gap + gap_len..words.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip() {
        for (kind, text) in [
            (ColumnKind::Inet6, "::"),
            (ColumnKind::Inet6, "::1"),
            (ColumnKind::Inet6, "1::2:3:4:5:6:7"),
            (ColumnKind::Inet6, "1:0:2::3:4:5"),
            (ColumnKind::Inet6, "::ffff:1.2.3.4"),
            (ColumnKind::Inet6, "::1.2.3.4"),
            (ColumnKind::Inet6, "fe80::"),
            (ColumnKind::Inet4, "255.0.0.1"),
            (ColumnKind::Uuid, "123e4567-e89b-12d3-a456-426614174000"),
        ] {
            let bytes = read(kind, text.as_bytes()).unwrap();
            let mut out = Vec::new();
            put(kind, &bytes, &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
        assert_eq!(read(ColumnKind::Uuid, b"123e4567e89b12d3a456426614174000"), None);
        assert_eq!(put(ColumnKind::Uuid, b"123", &mut Vec::new()), None);
    }
}
