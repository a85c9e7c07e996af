//! Servers show the cursors that a stored program has open in the status of its results, to whoever calls it.
//! Nobody takes them for cursors of the client.

use e2e::packets::Client;
use e2e::{Gateway, Setup};
use mysql_wire::{Capabilities, Command};

use crate::cluster;

const SCHEMA: &str = "cursors_of_programs";
const FIELDS: &str = "\x03def";
/// Flags of the status: a cursor, its last row sent.
const OF_CURSORS: u8 = 0x40 | 0x80;

fn exchange(client: &mut Client, command: Command, body: &[u8]) -> Vec<Vec<u8>> {
    let payload = [&[command.0], body].concat();
    client.send_payload(0, &payload).unwrap();
    client.send_payload(0, &[Command::PING.0]).unwrap();
    let mut packets = Vec::new();
    loop {
        let packet = client.packet().unwrap();
        if packet.sequence == 1 && !packets.is_empty() {
            assert_eq!(packet.payload[0], 0, "the answer to the ping");
            return packets;
        }
        packets.push(packet.payload);
    }
}

/// What the session gets for an execution of `text`, without definitions of columns and flags of cursors.
fn executed(client: &mut Client, text: &str, wants_cursor: bool) -> Vec<Vec<u8>> {
    let prepared = exchange(client, Command::STMT_PREPARE, text.as_bytes());
    let id = &prepared[0][1..5];
    let mut body = [id, &[u8::from(wants_cursor), 1, 0, 0, 0]].concat();
    if text.contains('?') {
        const NULL: u8 = 6;
        body.extend([1, 1, NULL, 0]);
    }
    let mut packets = exchange(client, Command::STMT_EXECUTE, &body);
    if wants_cursor {
        packets.extend(exchange(
            client,
            Command::STMT_FETCH,
            &[id, &[9, 0, 0, 0]].concat(),
        ));
    }
    packets.retain(|packet| !packet.starts_with(FIELDS.as_bytes()));
    for packet in &mut packets {
        match packet[..] {
            [0xfe, _, _, _, _] => packet[3] &= !OF_CURSORS,
            [0xfe, _, _, _, _, _, _, ..] | [0, 0, 0, _, _, 0, 0] => packet[3] &= !OF_CURSORS,
            // The error of a fetch names the statement by the server's number.
            [0xff, ..] => packet.truncate(9),
            _ => {}
        }
    }
    packets
}

const TEXTS: [&str; 4] = [
    "CALL two()",
    "CALL given(?)",
    "SELECT first()",
    "SELECT n FROM t ORDER BY n",
];

fn connect(address: &str, further: Capabilities) -> Client {
    let several = Capabilities::MULTI_RESULTS | Capabilities::PS_MULTI_RESULTS;
    cluster::connect_raw(address, SCHEMA, several | further)
}

fn check(gateway: &Gateway, is_split: bool) {
    let server = cluster::single().primary().address();
    for further in [Capabilities::default(), Capabilities::DEPRECATE_EOF] {
        let (mut direct, mut own) = (connect(&server, further), connect(&gateway.address(), further));
        for text in TEXTS {
            for wants_cursor in [false, true] {
                let told = executed(&mut own, text, wants_cursor);
                let context = format!("{text}, {wants_cursor}, {further:?}");
                let meant = executed(&mut direct, text, wants_cursor);
                assert_eq!(told.len(), meant.len(), "{context}: {told:x?}, not {meant:x?}");
                if !is_split {
                    assert_eq!(told, meant, "{context}");
                } else {
                    let pins = exchange(&mut own, Command::QUERY, b"FOREBAY SHOW PINS").concat();
                    let pins = String::from_utf8_lossy(&pins);
                    assert!(!pins.contains("cursor"), "{context}: {pins}");
                }
            }
        }
    }
}

#[test]
fn in_both_modes() {
    let sandbox = cluster::single();
    let cursor = "DECLARE c CURSOR FOR SELECT n FROM t ORDER BY n; OPEN c; FETCH c INTO v;";
    sandbox
        .primary()
        .sql("SET GLOBAL log_bin_trust_function_creators = 1")
        .unwrap();
    cluster::schema(
        sandbox,
        SCHEMA,
        &format!(
            "CREATE TABLE t (n INT PRIMARY KEY); INSERT INTO t VALUES (1), (2);
             DELIMITER //
             CREATE PROCEDURE two() BEGIN DECLARE v INT; {cursor} SELECT n FROM t ORDER BY n; SELECT v; END //
             CREATE PROCEDURE given(OUT v INT) BEGIN {cursor} SELECT n FROM t WHERE n > 9; END //
             CREATE FUNCTION first() RETURNS INT READS SQL DATA BEGIN DECLARE v INT; {cursor} RETURN v; END //
             DELIMITER ;"
        ),
    );
    check(&cluster::narrow(sandbox, 2).start(), true);
    check(&Setup::of_addresses([sandbox.primary().address()]).start(), false);
}
