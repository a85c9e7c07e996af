//! Result sets of the gateway's own, in the text protocol.

use mysql_wire::{Capabilities, EofPacket, OkPacket, StatusFlags, write_packet};

/// `utf8mb4_general_ci`.
const UTF8MB4: u16 = 45;
/// MYSQL_TYPE_VAR_STRING.
const VAR_STRING: u8 = 253;
/// Bytes of the longest value, for clients that make room by it.
const LENGTH_MAX: u32 = 1 << 16;

/// All packets of a result set of texts, numbered from `sequence` on.
pub(crate) fn result_set(
    columns: &[&str],
    rows: &[Vec<String>],
    capabilities: Capabilities,
    status: StatusFlags,
    mut sequence: u8,
) -> Vec<u8> {
    let mut out = Vec::new();
    let optional = Capabilities::OPTIONAL_RESULTSET_METADATA | Capabilities::MARIADB_CACHE_METADATA;
    let mut count = vec![columns.len() as u8];
    if capabilities.intersects(optional) {
        count.push(1);
    }
    write_packet(&mut out, &mut sequence, &count);
    for column in columns {
        write_packet(&mut out, &mut sequence, &definition(column, capabilities));
    }
    if !capabilities.contains(Capabilities::DEPRECATE_EOF) {
        end(&mut out, &mut sequence, capabilities, status);
    }
    for row in rows {
        let mut payload = Vec::new();
        row.iter().for_each(|value| put_text(&mut payload, value));
        write_packet(&mut out, &mut sequence, &payload);
    }
    end(&mut out, &mut sequence, capabilities, status);
    out
}

fn end(out: &mut Vec<u8>, sequence: &mut u8, capabilities: Capabilities, status: StatusFlags) {
    let mut payload = Vec::new();
    if capabilities.contains(Capabilities::DEPRECATE_EOF) {
        let ok = OkPacket {
            status,
            ..OkPacket::default()
        };
        ok.encode_as_eof(&mut payload, capabilities);
    } else {
        EofPacket { warnings: 0, status }.encode(&mut payload);
    }
    write_packet(out, sequence, &payload);
}

/// <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_com_query_response_text_resultset_column_definition.html>;
/// MariaDB's extended metadata is an empty text.
fn definition(name: &str, capabilities: Capabilities) -> Vec<u8> {
    let mut payload = Vec::new();
    for text in ["def", "", "", "", name, ""] {
        put_text(&mut payload, text);
    }
    if capabilities.contains(Capabilities::MARIADB_EXTENDED_METADATA) {
        put_text(&mut payload, "");
    }
    payload.push(12);
    payload.extend(UTF8MB4.to_le_bytes());
    payload.extend(LENGTH_MAX.to_le_bytes());
    payload.push(VAR_STRING);
    payload.extend([0, 0, 31, 0, 0]);
    payload
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    match text.len() {
        len @ 0..=250 => out.push(len as u8),
        len => {
            out.push(252);
            out.extend((len.min(0xffff) as u16).to_le_bytes());
        }
    }
    out.extend_from_slice(&text.as_bytes()[..text.len().min(0xffff)]);
}

#[cfg(test)]
mod tests {
    use mysql_wire::{Command, Event, ResponseTracker};

    use super::*;

    #[test]
    fn trackers_find_the_end_of_it_in_every_form() {
        let rows = [
            vec!["a".to_owned(), "b".repeat(300)],
            vec![String::new(), "d".to_owned()],
        ];
        for capabilities in [
            Capabilities::PROTOCOL_41,
            Capabilities::PROTOCOL_41 | Capabilities::DEPRECATE_EOF | Capabilities::SESSION_TRACK,
            Capabilities::PROTOCOL_41 | Capabilities::OPTIONAL_RESULTSET_METADATA,
            Capabilities::PROTOCOL_41 | Capabilities::DEPRECATE_EOF | Capabilities::MARIADB_CACHE_METADATA,
        ] {
            let bytes = result_set(&["x", "y"], &rows, capabilities, StatusFlags::AUTOCOMMIT, 1);
            let mut tracker = ResponseTracker::new(capabilities);
            tracker.begin(Command::QUERY);
            let progress = tracker.advance(&bytes).unwrap();
            let Event::Done(outcome) = progress.event else {
                panic!("{capabilities:?}: {:?}", progress.event);
            };
            assert_eq!((progress.consumed, outcome.rows), (bytes.len(), 2));
        }
    }
}
