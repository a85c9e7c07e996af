//! What it costs to take a row out of the binary log, and to print it:
//! `cargo bench -p mysql-wire --bench binlog`.
//!
//! Rows of an integer, a text of 100 bytes, a DECIMAL, a DATETIME and a DOUBLE. Best of many rounds, because
//! the machine has other things to do as well.

#![allow(clippy::expect_used)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use mysql_wire::binlog::{ColumnType, Decoder, Event, Kind, Layout, Packet, Value, Zone, text};

const ROWS: usize = 1000;
const TYPES: [&str; 5] = ["bigint", "varchar(200)", "decimal(10,2)", "datetime", "double"];

fn event(code: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0, 0, 0, 0, 0, code];
    packet.extend_from_slice(&[0; 14]);
    packet.extend_from_slice(body);
    packet
}

fn description() -> Vec<u8> {
    let mut body = vec![4, 0];
    body.resize(56, 0);
    body.push(19);
    body.resize(57 + 42 + 5, 0);
    event(15, &body)
}

fn table_map() -> Vec<u8> {
    let body = b"\x07\0\0\0\0\0\0\0\x01d\0\x01t\0\x05\x08\x0f\xf6\x12\x05\x06\x20\x03\x0a\x02\0\x08\x1f";
    event(19, body)
}

fn rows() -> Vec<u8> {
    let mut body = b"\x07\0\0\0\0\0\x01\0\x02\0\x05\xff".to_vec();
    for id in 0..ROWS as u64 {
        body.push(0);
        body.extend_from_slice(&id.to_le_bytes());
        body.extend_from_slice(&100_u16.to_le_bytes());
        body.resize(body.len() + 100, b'x');
        body.extend_from_slice(&[0x80, 0, 0, 7, 50]);
        body.extend_from_slice(&[0x99, 0xb1, 0x2c, 0x10, 0x83]);
        body.extend_from_slice(&(id as f64 / 8.0).to_le_bytes());
    }
    event(30, &body)
}

fn kind<'a>(decoder: &mut Decoder, packet: &'a [u8]) -> Kind<'a> {
    match decoder.packet(packet).expect("an event") {
        Packet::Event(Event { kind, .. }) => kind,
        other => unreachable!("{other:?}"),
    }
}

fn best(name: &str, mut round: impl FnMut()) {
    let mut best = Duration::MAX;
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        let start = Instant::now();
        round();
        best = best.min(start.elapsed());
    }
    println!("{name:32} {:8.0} ns a row", best.as_nanos() as f64 / ROWS as f64);
}

fn main() {
    let columns = TYPES.map(|name| ColumnType::parse(name, Some("utf8mb4")).expect("a type"));
    let mut decoder = Decoder::new();
    kind(&mut decoder, &description());
    let map = table_map();
    let Kind::TableMap(map) = kind(&mut decoder, &map) else {
        unreachable!()
    };
    let layout = Layout::new(&map, &columns).expect("a layout");
    let packet = rows();
    let mut encoded = Vec::new();
    best("decode and encode", || {
        let Kind::Rows(rows) = kind(&mut decoder, &packet) else {
            unreachable!()
        };
        encoded.clear();
        for change in rows.iter(&layout) {
            let image = change.expect("a row").after.expect("a written row");
            for column in 0..columns.len() {
                let value = image.value(&layout, column).expect("a value");
                value.encode(&mut encoded);
            }
        }
        black_box(&encoded);
    });
    let mut shown = Vec::new();
    best("decode encoded and print", || {
        let mut rest = &encoded[..];
        while !rest.is_empty() {
            shown.clear();
            for column in &columns {
                let value = Value::decode(&mut rest).expect("a value");
                text(&value, column, Zone::UTC, &mut shown).expect("a text");
            }
            black_box(&shown);
        }
    });
    println!("{}", String::from_utf8_lossy(&shown[..shown.len().min(200)]));
}
