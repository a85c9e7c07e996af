//! Query attributes are rare in libraries: packets are written by hand. MariaDB knows none.

use e2e::packets::Client;
use e2e::{Gateway, kind};
use mysql_wire::{Capabilities, Command};
use sandbox::{DATABASE, Kind};

use crate::cluster;

/// In front of the text of COM_QUERY: no attributes.
const NONE: &str = "\0\x01";

fn connect(gateway: &Gateway) -> Client {
    cluster::connect_raw(&gateway.address(), DATABASE, Capabilities::QUERY_ATTRIBUTES)
}

/// In the place of the parameters of an execution without any: one attribute, `forebay_explain`. Then one
/// parameter, a number; and the attribute behind it.
const ASKING_ALONE: &[u8] = b"\x08\x01\0\0\0\x01\0\x01\x0f\0\x0fforebay_explain\x011";
const NOT_ASKING: &[u8] = b"\x08\x01\0\0\0\x01\0\x01\x08\0\0\x02\0\0\0\0\0\0\0";
const ASKING_WITH_ANOTHER: &[u8] =
    b"\x08\x01\0\0\0\x02\0\x01\x08\0\0\x0f\0\x0fforebay_explain\x02\0\0\0\0\0\0\0\x011";

/// The rows of an answer as text, with the lengths of their values.
fn ask(client: &mut Client, attributes: &str, statement: &str) -> Vec<String> {
    let rows = client.ask(&format!("{attributes}{statement}"));
    rows.iter()
        .map(|row| String::from_utf8_lossy(row).into_owned())
        .collect()
}

fn send(client: &mut Client, command: Command, body: &[u8]) {
    let payload = [&[command.0], body].concat();
    client.send_payload(0, &payload).unwrap();
}

/// Packets up to the EOF, which is left out.
fn up_to_eof(client: &mut Client) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    loop {
        let packet = client.packet().unwrap().payload;
        assert_ne!(packet[0], 0xff, "{}", String::from_utf8_lossy(&packet));
        if packet[0] == 0xfe && packet.len() < 9 {
            return packets;
        }
        packets.push(packet);
    }
}

fn prepare(client: &mut Client, text: &str) -> [u8; 4] {
    send(client, Command::STMT_PREPARE, text.as_bytes());
    let head = client.packet().unwrap().payload;
    assert_eq!(head[0], 0, "{}", String::from_utf8_lossy(&head));
    for at in [5, 7] {
        if head[at] > 0 {
            up_to_eof(client);
        }
    }
    [head[1], head[2], head[3], head[4]]
}

/// The rows of an execution.
fn execute(client: &mut Client, id: [u8; 4], rest: &[u8]) -> Vec<Vec<u8>> {
    send(client, Command::STMT_EXECUTE, &[&id, rest].concat());
    up_to_eof(client);
    up_to_eof(client)
}

#[tokio::test]
async fn of_a_prepared_statement_too() {
    let rule = "[[rule]]\nname = \"rewritten\"\ntext = \"'abc'\"\nrewrite = \"'abcd'\"\ncontinue = true";
    for rule in ["", rule] {
        let gateway = cluster::start(cluster::split(cluster::shared()).tables(rule), 2).await;
        let mut client = connect(&gateway);
        if kind() == Kind::Mariadb {
            assert!(!client.capabilities.contains(Capabilities::QUERY_ATTRIBUTES));
            return;
        }
        let id = prepare(&mut client, cluster::WHERE_AM_I);
        for _ in 0..3 {
            let rows = execute(&mut client, id, ASKING_ALONE);
            let port = u32::from_le_bytes(rows[0][2..6].try_into().unwrap());
            let warnings = ask(&mut client, NONE, "SHOW WARNINGS");
            assert!(
                warnings.len() == 1 && warnings[0].contains(&format!("ran on 127.0.0.1:{port}; class read")),
                "it ran on {port}: {warnings:?}"
            );
        }
        let other = prepare(&mut client, "SELECT n FROM (SELECT CONCAT('abc') AS n) d LIMIT ?");
        assert_eq!(execute(&mut client, other, ASKING_WITH_ANOTHER).len(), 1);
        let warnings = ask(&mut client, NONE, "SHOW WARNINGS");
        assert!(
            warnings.len() == 1 && warnings[0].contains("target replica"),
            "{warnings:?}"
        );
        assert_eq!(warnings[0].contains("rule rewritten matches"), !rule.is_empty());
        // The next execution does not ask, and has the types of its parameter's own.
        assert_eq!(execute(&mut client, other, NOT_ASKING).len(), 1);
        assert!(ask(&mut client, NONE, "SHOW WARNINGS").is_empty());
    }
}
