//! The binary log, and the values in it.

use crate::binlog::{
    BinaryRow, Charset, ColumnKind, ColumnType, Decoder, Event, Kind, Layout, Packet, TableMap, Value,
    WireColumn, Zone, binary, from_text, text,
};

/// Byte 0: of columns that can be several types, which. The rest: packets, each behind its length in two
/// bytes. Panics where a value does not survive being written and read again.
pub fn binlog(data: &[u8]) {
    let Some((&choice, mut rest)) = data.split_first() else {
        return;
    };
    survives(&mut &rest[..]);
    let mut decoder = Decoder::new();
    let mut layout = None;
    while let Some((len, packets)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes(*len)).min(packets.len());
        let (packet, behind) = packets.split_at(len);
        rest = behind;
        let Ok(Packet::Event(mut event)) = decoder.packet(packet) else {
            continue;
        };
        if let Kind::TransactionPayload(payload) = &mut event.kind {
            // Bounded, since a little data unpacks to a lot.
            for _ in 0..64 {
                let Ok(Some(bytes)) = payload.next_event() else {
                    break;
                };
                if let Ok(event) = decoder.inner(bytes) {
                    take(&event, choice, &mut layout);
                }
            }
        } else {
            take(&event, choice, &mut layout);
        }
    }
}

fn take(event: &Event<'_>, choice: u8, known: &mut Option<(Layout, Vec<ColumnType>)>) {
    if let Kind::TableMap(map) = &event.kind {
        *known = layout(map, choice);
    }
    let (Kind::Rows(rows), Some((layout, columns))) = (&event.kind, known) else {
        return;
    };
    for change in rows.iter(layout) {
        let Ok(change) = change else { return };
        for image in [change.before, change.after].into_iter().flatten() {
            for (column, column_type) in columns.iter().enumerate() {
                if let Ok(value) = image.value(layout, column) {
                    check(&value, column_type);
                }
            }
        }
    }
}

fn layout(map: &TableMap, choice: u8) -> Option<(Layout, Vec<ColumnType>)> {
    let columns: Vec<ColumnType> = map
        .columns
        .iter()
        .map(|&wire| column_type(wire, choice))
        .collect();
    let layout = Layout::new(map, &columns).ok()?;
    Some((layout, columns))
}

/// A type that is stored so.
fn column_type(wire: WireColumn, choice: u8) -> ColumnType {
    let kind = match (wire.code, choice & 3) {
        (1, _) => ColumnKind::TinyInt,
        (2, _) => ColumnKind::SmallInt,
        (9, _) => ColumnKind::MediumInt,
        (3, _) => ColumnKind::Int,
        (4, _) => ColumnKind::Float,
        (5, _) => ColumnKind::Double,
        (7 | 17, _) => ColumnKind::Timestamp,
        (10 | 14, _) => ColumnKind::Date,
        (11 | 19, _) => ColumnKind::Time,
        (12 | 18, _) => ColumnKind::DateTime,
        (13, _) => ColumnKind::Year,
        (16, _) => ColumnKind::Bit,
        (15 | 141 | 253, _) => ColumnKind::VarChar,
        (246, _) => ColumnKind::Decimal,
        (247, _) => ColumnKind::Enum,
        (248, _) => ColumnKind::Set,
        (245, _) => ColumnKind::Json,
        (242, _) => ColumnKind::Vector,
        (255, _) => ColumnKind::Geometry,
        (140 | 249..=252, _) => ColumnKind::Text,
        (254, 0) => ColumnKind::Char,
        (254, 1) => ColumnKind::Binary,
        (254, 2) => ColumnKind::Uuid,
        (254, _) => ColumnKind::Inet6,
        _ => ColumnKind::BigInt,
    };
    let mut column = ColumnType::new(kind);
    column.unsigned = choice & 4 != 0;
    column.zerofill = if choice & 8 != 0 { 20 } else { 0 };
    column.charset =
        [Charset::Utf8, Charset::Latin1, Charset::Utf16, Charset::Ucs2][usize::from(choice >> 6)];
    let [high, low] = wire.meta.to_be_bytes();
    match kind {
        ColumnKind::Decimal => (column.length, column.decimals) = (u32::from(high), low),
        ColumnKind::Bit => column.length = u32::from(high) * 8 + u32::from(low),
        ColumnKind::Binary => column.length = u32::from(wire.meta),
        ColumnKind::Time | ColumnKind::DateTime | ColumnKind::Timestamp => column.decimals = low,
        ColumnKind::Enum | ColumnKind::Set => {
            column.members = (0..64)
                .map(|at| vec![b'a' + at % 26; 1 + at as usize / 26].into())
                .collect()
        }
        _ => {}
    }
    column
}

/// Printing may fail, for what no server sends; what is printed must be read without a panic.
fn check(value: &Value<'_>, column: &ColumnType) {
    let mut encoded = Vec::new();
    value.encode(&mut encoded);
    let decoded = Value::decode(&mut &encoded[..]);
    let decoded = decoded.unwrap_or_else(|error| panic!("{value:?} cannot be decoded: {error}"));
    let mut again = Vec::new();
    decoded.encode(&mut again);
    assert_eq!(encoded, again, "{value:?}");
    let mut shown = Vec::new();
    if text(value, column, Zone::UTC, &mut shown).is_ok() {
        let _ = from_text(&shown, column, Zone::UTC);
    }
    let mut row = vec![0, 0];
    if binary(value, column, Zone::UTC, &mut row).is_ok() {
        let _ = BinaryRow::new(&row, 1).map(|mut row| row.next_value(column));
    }
}

/// What is decoded is passed as well, and has the bytes that it came from or, where they were not the
/// shortest, shorter ones.
fn survives(bytes: &mut &[u8]) {
    let mut skipped = *bytes;
    while let Ok(value) = Value::decode(bytes) {
        assert!(Value::skip(&mut skipped).is_ok() && skipped.len() == bytes.len());
        let mut encoded = Vec::new();
        value.encode(&mut encoded);
        assert!(Value::decode(&mut &encoded[..]).is_ok(), "{value:?}");
    }
}
