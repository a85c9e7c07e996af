//! What libraries rarely do: cursors, parameters sent in pieces, COM_INIT_DB. Packets are written by hand.

use std::sync::Once;

use e2e::Gateway;
use e2e::packets::Client;
use mysql_wire::{Capabilities, Command};
use sandbox::{PASSWORD, USER};

use crate::cluster;

const SCHEMA: &str = "cursors";
const CURSOR: u8 = 1;
/// Of the status flags.
const LAST_ROW_SENT: u16 = 0x80;

fn gateway(connections: u32) -> Gateway {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        cluster::schema(
            cluster::single(),
            SCHEMA,
            "CREATE TABLE t (n INT PRIMARY KEY); INSERT INTO t VALUES (1), (2), (3), (4), (5);
             CREATE TABLE texts (id INT PRIMARY KEY, text LONGTEXT);
             CREATE TABLE numbered (id INT AUTO_INCREMENT PRIMARY KEY);",
        );
    });
    cluster::narrow(cluster::single(), connections).start()
}

fn connect(gateway: &Gateway) -> Client {
    cluster::connect_raw(&gateway.address(), SCHEMA, Capabilities::default())
}

fn send(client: &mut Client, command: Command, body: &[u8]) {
    let payload = [&[command.0], body].concat();
    client.send_payload(0, &payload).unwrap();
}

/// The status of an OK or EOF packet that has nothing before it.
fn status(eof: &[u8]) -> u16 {
    u16::from_le_bytes([eof[3], eof[4]])
}

fn is_eof(packet: &[u8]) -> bool {
    packet[0] == 0xfe && packet.len() < 9
}

/// Packets up to the EOF, which comes last.
fn up_to_eof(client: &mut Client) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    loop {
        let packet = client.packet().unwrap().payload;
        assert_ne!(packet[0], 0xff, "{}", String::from_utf8_lossy(&packet));
        let ends = is_eof(&packet);
        packets.push(packet);
        if ends {
            return packets;
        }
    }
}

/// Prepares a statement and returns its id.
fn prepare(client: &mut Client, text: &str) -> [u8; 4] {
    send(client, Command::STMT_PREPARE, text.as_bytes());
    let head = client.packet().unwrap().payload;
    assert_eq!(head[0], 0, "{}", String::from_utf8_lossy(&head));
    let [columns, params] = [5, 7].map(|at| u16::from_le_bytes([head[at], head[at + 1]]));
    for _ in [columns, params].iter().filter(|count| **count > 0) {
        up_to_eof(client);
    }
    [head[1], head[2], head[3], head[4]]
}

/// Numbers of the rows that a fetch gives, and whether they were the last.
fn fetch(client: &mut Client, id: [u8; 4], count: u8) -> (Vec<u32>, bool) {
    send(
        client,
        Command::STMT_FETCH,
        &[id.as_slice(), &[count, 0, 0, 0]].concat(),
    );
    let mut packets = up_to_eof(client);
    let eof = packets.pop().unwrap();
    let number = |row: &Vec<u8>| u32::from_le_bytes(row[row.len() - 4..].try_into().unwrap());
    (
        packets.iter().map(number).collect(),
        status(&eof) & LAST_ROW_SENT != 0,
    )
}

fn open(client: &mut Client, id: [u8; 4]) {
    send(
        client,
        Command::STMT_EXECUTE,
        &[id.as_slice(), &[CURSOR, 1, 0, 0, 0]].concat(),
    );
    client.packet().unwrap();
    up_to_eof(client);
}

#[test]
fn although_others_work_in_between() {
    let gateway = gateway(2);
    let (mut own, mut other) = (connect(&gateway), connect(&gateway));
    let id = prepare(&mut own, "SELECT n FROM t ORDER BY n");
    let others = prepare(&mut other, "SELECT n FROM t ORDER BY n");
    for _ in 0..3 {
        open(&mut own, id);
        assert_eq!(fetch(&mut own, id, 2), (vec![1, 2], false));
        for _ in 0..3 {
            other.ask("SELECT n FROM t");
        }
        open(&mut other, others);
        assert_eq!(fetch(&mut other, others, 1), (vec![1], false));
        assert_eq!(fetch(&mut own, id, 2), (vec![3, 4], false));
        assert_eq!(fetch(&mut own, id, 2), (vec![5], true));
        assert_eq!(fetch(&mut other, others, 9), (vec![2, 3, 4, 5], true));
    }
    // Closed in the middle: the connection is free for somebody else.
    open(&mut own, id);
    assert_eq!(fetch(&mut own, id, 1), (vec![1], false));
    send(&mut own, Command::STMT_RESET, &id);
    assert_eq!(own.packet().unwrap().payload[0], 0);
    own.ask("SELECT 1");
    let mut third = connect(&gateway);
    other.ask("BEGIN");
    third.ask("SELECT 1");
    other.ask("COMMIT");
}

fn insert_in_pieces(own: &mut Client, row: u8, other: &mut Client) {
    let id = prepare(own, &format!("INSERT INTO texts VALUES ({row}, ?)"));
    in_pieces(own, id, row, other);
}

/// Executes a statement with a text in three pieces, between which the other session works.
fn in_pieces(own: &mut Client, id: [u8; 4], row: u8, other: &mut Client) {
    const LONG_BLOB: u8 = 251;
    for piece in 0..3 {
        let data = format!("piece {piece} of {row};");
        let body = [id.as_slice(), &[0, 0], data.as_bytes()].concat();
        send(own, Command::STMT_SEND_LONG_DATA, &body);
        other.ask("SELECT n FROM t");
        other.ask("SELECT COUNT(*) FROM texts");
    }
    // One parameter that is not NULL, with its type.
    let body = [id.as_slice(), &[0, 1, 0, 0, 0, 0, 1, LONG_BLOB, 0]].concat();
    send(own, Command::STMT_EXECUTE, &body);
    let answer = own.packet().unwrap().payload;
    assert_eq!(answer[0], 0, "{}", String::from_utf8_lossy(&answer));
}

#[test]
fn and_so_do_parameters_in_pieces() {
    let gateway = gateway(2);
    let (mut own, mut other) = (connect(&gateway), connect(&gateway));
    for row in 1..=3 {
        insert_in_pieces(&mut own, row, &mut other);
        std::mem::swap(&mut own, &mut other);
    }
    let texts = cluster::single()
        .primary()
        .sql("SELECT text FROM cursors.texts ORDER BY id")
        .unwrap();
    let expected: Vec<String> = (1..=3)
        .map(|row| format!("piece 0 of {row};piece 1 of {row};piece 2 of {row};"))
        .collect();
    assert_eq!(texts.lines().collect::<Vec<_>>(), expected);
}

/// The connection that a close sets free still knows that the last id was given and not made.
#[test]
fn and_so_does_the_last_id_where_they_are_dropped() {
    let gateway = gateway(1);
    let (mut own, mut other) = (connect(&gateway), connect(&gateway));
    let id = prepare(&mut own, "INSERT INTO texts VALUES (99, ?)");
    send(
        &mut own,
        Command::STMT_SEND_LONG_DATA,
        &[id.as_slice(), b"\0\0piece"].concat(),
    );
    own.ask("INSERT INTO numbered VALUES (1000)");
    send(&mut own, Command::STMT_CLOSE, &id);
    other.ask("INSERT INTO numbered VALUES (NULL)");
    assert_eq!(own.ask("SELECT LAST_INSERT_ID()"), [b"\x010"]);
}

/// Data for a parameter that there is not are an error of whoever sent them.
#[test]
fn and_so_do_errors_of_such_parameters() {
    let gateway = gateway(1);
    let (mut own, mut other) = (connect(&gateway), connect(&gateway));
    let text = "UPDATE texts SET text = ? WHERE id = 9";
    let execute = |client: &mut Client, id: [u8; 4]| {
        let body = [id.as_slice(), &[0, 1, 0, 0, 0, 0, 1, 253, 0, 1, b'x']].concat();
        send(client, Command::STMT_EXECUTE, &body);
        let answer = client.packet().unwrap().payload;
        (answer[0], u16::from_le_bytes([answer[1], answer[2]]))
    };
    let id = prepare(&mut own, text);
    let wrong = [id.as_slice(), &[7, 0], b"nothing"].concat();
    send(&mut own, Command::STMT_SEND_LONG_DATA, &wrong);
    assert_eq!(execute(&mut own, id), (0xff, 1210));
    send(&mut own, Command::STMT_CLOSE, &id);
    let id = prepare(&mut own, "DO ?");
    assert_eq!(execute(&mut own, id).0, 0);
    let id = prepare(&mut other, text);
    assert_eq!(execute(&mut other, id).0, 0);
}

/// COM_INIT_DB is carried as `USE` is, by sessions that share one connection.
#[test]
fn and_so_does_the_schema() {
    let gateway = gateway(1);
    let (mut own, mut other) = (connect(&gateway), connect(&gateway));
    for _ in 0..3 {
        send(&mut own, Command::INIT_DB, b"mysql");
        assert_eq!(own.packet().unwrap().payload[0], 0);
        let pins = own.ask("FOREBAY SHOW PINS");
        assert!(pins.is_empty(), "{}", String::from_utf8_lossy(&pins.concat()));
        assert_eq!(other.ask("SELECT DATABASE()"), [b"\x07cursors"]);
        assert_eq!(own.ask("SELECT DATABASE()"), [b"\x05mysql"]);
        send(&mut own, Command::INIT_DB, b"nowhere");
        assert_eq!(own.packet().unwrap().payload[0], 0xff);
        own.ask("SELECT COUNT(*) FROM information_schema.schemata");
        assert_eq!(own.ask("SELECT DATABASE()"), [b"\x05mysql"]);
        send(&mut own, Command::INIT_DB, SCHEMA.as_bytes());
        assert_eq!(own.packet().unwrap().payload[0], 0);
        assert_eq!(own.ask("SELECT DATABASE()"), [b"\x07cursors"]);
    }
}

/// MariaDB's clients send an execution of "the last one prepared" behind the preparation, without waiting for
/// its answer. There is none after one that has failed, whatever was prepared before.
#[test]
fn and_so_does_the_statement_prepared_last() {
    const LAST: [u8; 4] = [0xff; 4];
    const UNKNOWN: [u8; 3] = [0xff, 0xdb, 0x04];
    let gateway = gateway(1);
    let server = cluster::single().primary().address();
    let execute_last = |client: &mut Client| {
        send(
            client,
            Command::STMT_EXECUTE,
            &[LAST.as_slice(), &[0, 1, 0, 0, 0]].concat(),
        );
        let answer = client.packet().unwrap().payload;
        if answer[0] != 0xff {
            up_to_eof(client);
            up_to_eof(client);
        }
        answer[..3.min(answer.len())].to_vec()
    };
    let story = |client: &mut Client| {
        let mut answers = vec![execute_last(client)];
        prepare(client, "SELECT n FROM t");
        answers.push(execute_last(client));
        for wrong in ["SELECT n FROM nowhere", "SELEKT"] {
            send(client, Command::STMT_PREPARE, wrong.as_bytes());
            assert_eq!(client.packet().unwrap().payload[0], 0xff);
            answers.push(execute_last(client));
        }
        let id = prepare(client, "SELECT n FROM t");
        send(client, Command::STMT_CLOSE, &id);
        answers.push(execute_last(client));
        answers
    };
    let answers = story(&mut connect(&gateway));
    assert_eq!(
        answers,
        story(&mut cluster::connect_raw(
            &server,
            SCHEMA,
            Capabilities::default()
        ))
    );
    assert_eq!(
        [&answers[0], &answers[2], &answers[3], &answers[4]],
        [&UNKNOWN; 4]
    );
}

/// Collations from 256 on, as `utf8mb4_0900_bin` of MySQL, have no place in a login. None is taken for
/// another.
#[test]
fn a_collation_that_cannot_be_passed_is_refused() {
    let gateway = gateway(1);
    let mut client = connect(&gateway);
    let mut payload = client.change_user_payload(USER, PASSWORD, SCHEMA);
    let schema = [SCHEMA.as_bytes(), b"\0"].concat();
    let charset = payload
        .windows(schema.len())
        .position(|window| window == schema)
        .unwrap()
        + schema.len();
    payload[charset..charset + 2].copy_from_slice(&309_u16.to_le_bytes());
    client.send_payload(0, &payload).unwrap();
    let error = client.packet().unwrap().payload;
    assert_eq!((error[0], u16::from_le_bytes([error[1], error[2]])), (0xff, 1115));
    let text = String::from_utf8_lossy(&error);
    assert!(text.contains("Unknown character set: '309'"), "{text}");
    if e2e::kind() == sandbox::Kind::Mariadb {
        assert_eq!(
            client.ask("SELECT 7"),
            [b"\x017"],
            "as at MariaDB, the session goes on"
        );
    }
}

/// What a session does with statements that ask for the rows of the one before, which others have not left as
/// they were.
fn with_figures(own: &mut Client, other: &mut Client) -> Vec<Vec<u32>> {
    const LONG_BLOB: u8 = 251;
    let mut told = Vec::new();
    let mut begin = |own: &mut Client| {
        own.ask("SELECT n FROM t LIMIT 3");
        other.ask("SELECT n FROM t LIMIT 1");
    };
    begin(own);
    let id = prepare(own, "SELECT n FROM t WHERE n <= FOUND_ROWS() ORDER BY n");
    let between = prepare(own, "SELECT n FROM t WHERE n < FOUND_ROWS() ORDER BY n");
    prepare(own, "SELECT n FROM t");
    open(own, id);
    told.extend([1, 9].map(|count| fetch(own, id, count).0));
    for ends in [Command::STMT_RESET, Command::STMT_CLOSE] {
        own.ask("SELECT n FROM t LIMIT 4");
        open(own, between);
        told.push(fetch(own, between, 2).0);
        send(own, ends, &between);
        if ends == Command::STMT_RESET {
            assert_eq!(own.packet().unwrap().payload[0], 0);
            send(
                own,
                Command::STMT_FETCH,
                &[between.as_slice(), &[1, 0, 0, 0]].concat(),
            );
            assert_eq!(own.packet().unwrap().payload[0], 0xff);
        }
    }
    send(own, Command::RESET_CONNECTION, &[]);
    assert_eq!(own.packet().unwrap().payload[0], 0);
    begin(own);
    let reset = prepare(own, "SELECT n FROM t WHERE n <= FOUND_ROWS() + 1 ORDER BY n");
    open(own, reset);
    told.push(fetch(own, reset, 1).0);
    send(own, Command::STMT_RESET, &reset);
    assert_eq!(own.packet().unwrap().payload[0], 0);
    send(
        own,
        Command::STMT_FETCH,
        &[reset.as_slice(), &[1, 0, 0, 0]].concat(),
    );
    assert_eq!(own.packet().unwrap().payload[0], 0xff);
    send(own, Command::RESET_CONNECTION, &[]);
    assert_eq!(own.packet().unwrap().payload[0], 0);
    begin(own);
    let pieces = prepare(
        own,
        "SELECT n FROM t WHERE n <= FOUND_ROWS() AND ? = 'ab' ORDER BY n",
    );
    for _ in 0..2 {
        for piece in [b"a", b"b"] {
            let body = [pieces.as_slice(), &[0, 0], piece].concat();
            send(own, Command::STMT_SEND_LONG_DATA, &body);
        }
        let body = [pieces.as_slice(), &[0, 1, 0, 0, 0, 0, 1, LONG_BLOB, 0]].concat();
        send(own, Command::STMT_EXECUTE, &body);
        let count = own.packet().unwrap().payload;
        assert_eq!(count, [1], "{}", String::from_utf8_lossy(&count));
        up_to_eof(own);
        told.push(vec![up_to_eof(own).len() as u32 - 1]);
    }
    told
}

#[test]
fn also_of_statements_with_the_figures_of_the_one_before() {
    let gateway = gateway(1);
    let (mut own, mut other) = (connect(&gateway), connect(&gateway));
    let server = cluster::single().primary().address();
    let mut direct = cluster::connect_raw(&server, SCHEMA, Capabilities::default());
    let there = with_figures(&mut direct, &mut other);
    assert_eq!(there[..2], [vec![1], vec![2, 3]]);
    assert_eq!(with_figures(&mut own, &mut other), there);
}
