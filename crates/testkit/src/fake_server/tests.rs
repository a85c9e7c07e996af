use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::Duration,
};

use mio::{Events, Poll, Token};
use mysql_wire::{AuthSwitch, Capabilities, Command, Greeting, Login, PacketHeader, write_packet};

use super::FakeServer;
use crate::result_set::{Shape, encode_prepare_ok};

/// Starts a server on a thread of its own, which ends with the process.
fn start() -> SocketAddr {
    let mut poll = Poll::new().unwrap();
    let mut server = FakeServer::bind(Token(0)).unwrap();
    server.register(poll.registry()).unwrap();
    let address = server.address().unwrap();
    thread::spawn(move || {
        let mut events = Events::with_capacity(256);
        loop {
            if let Err(error) = poll.poll(&mut events, None) {
                assert_eq!(error.kind(), ErrorKind::Interrupted);
            }
            for event in &events {
                server.handle(poll.registry(), event).unwrap();
            }
        }
    });
    address
}

struct Client(TcpStream);

impl Client {
    fn connect(server: SocketAddr) -> Self {
        let stream = TcpStream::connect(server).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Self(stream)
    }

    fn packet(&mut self) -> (u8, Vec<u8>) {
        let mut header = [0; PacketHeader::LEN];
        self.0.read_exact(&mut header).unwrap();
        let header = PacketHeader::parse(&header).unwrap();
        let mut payload = vec![0; header.payload_len];
        self.0.read_exact(&mut payload).unwrap();
        (header.sequence, payload)
    }

    fn send(&mut self, mut sequence: u8, payload: &[u8]) {
        let mut packet = Vec::new();
        write_packet(&mut packet, &mut sequence, payload);
        self.0.write_all(&packet).unwrap();
    }

    fn log_in(&mut self, plugin: &[u8], capabilities: Capabilities) -> Capabilities {
        let greeting = Greeting::decode(&self.packet().1).unwrap();
        let mut payload = Vec::new();
        let login = Login {
            capabilities: capabilities | Capabilities::PROTOCOL_41 | Capabilities::PLUGIN_AUTH,
            max_packet_size: 1 << 24,
            charset: 45,
            user: b"anyone".to_vec(),
            auth_response: vec![7; 20],
            database: None,
            auth_plugin: Some(plugin.to_vec()),
            attributes: None,
            zstd_level: None,
        };
        login.encode(&mut payload);
        self.send(1, &payload);
        greeting.capabilities & login.capabilities
    }

    fn command(&mut self, command: Command, body: &[u8]) {
        let mut payload = vec![command.0];
        payload.extend(body);
        self.send(0, &payload);
    }

    fn expect(&mut self, bytes: &[u8]) {
        let mut got = vec![0; bytes.len()];
        self.0.read_exact(&mut got).unwrap();
        assert!(got == bytes, "the response differs");
    }
}

fn logged_in(server: SocketAddr, capabilities: Capabilities) -> (Client, Capabilities) {
    let mut client = Client::connect(server);
    let negotiated = client.log_in(b"mysql_native_password", capabilities);
    let (sequence, ok) = client.packet();
    assert_eq!((sequence, ok[0]), (2, 0));
    (client, negotiated)
}

#[test]
fn text_results_have_the_promised_bytes() {
    let server = start();
    for capabilities in [Capabilities(0), Capabilities::DEPRECATE_EOF] {
        let (mut client, negotiated) = logged_in(server, capabilities);
        for rows in [1, 100, 1000, 20_000] {
            client.command(Command::QUERY, format!("SELECT c FROM t LIMIT {rows}").as_bytes());
            client.expect(&Shape::new(rows, false, negotiated).encode());
        }
    }
}

#[test]
fn prepared_results_have_the_promised_bytes() {
    let server = start();
    let (mut client, negotiated) = logged_in(server, Capabilities::DEPRECATE_EOF);
    client.command(Command::STMT_PREPARE, b"SELECT c FROM t WHERE id > ? LIMIT 100");
    client.expect(&encode_prepare_ok(1, 1, true));
    client.command(Command::STMT_EXECUTE, &[1, 0, 0, 0, 0, 1, 0, 0, 0]);
    client.expect(&Shape::new(100, true, negotiated).encode());
    client.command(Command::STMT_EXECUTE, &[2, 0, 0, 0, 0, 1, 0, 0, 0]);
    let (sequence, error) = client.packet();
    assert_eq!(
        (sequence, &error[..3]),
        (1, &[0xff, 0xdb, 0x04][..]),
        "nothing has this id"
    );
    client.command(Command::STMT_CLOSE, &[1, 0, 0, 0]);
    client.command(Command::PING, &[]);
    assert_eq!(client.packet(), (1, vec![0, 0, 0, 2, 0, 0, 0]));
}

#[test]
fn it_shows_the_variables_of_a_new_connection() {
    let server = start();
    let (mut client, _) = logged_in(server, Capabilities::DEPRECATE_EOF | Capabilities::SESSION_TRACK);
    client.command(
        Command::QUERY,
        b"SELECT /*+ SET_VAR(sql_big_selects=ON) */ VARIABLE_NAME, VARIABLE_VALUE FROM performance_schema.session_variables",
    );
    assert_eq!(client.packet(), (1, vec![2]));
    assert_eq!((client.packet().0, client.packet().0), (2, 3));
    assert_eq!(client.packet(), (4, b"\x0aautocommit\x02ON".to_vec()));
    for _ in 1..10 {
        client.packet();
    }
    assert_eq!(client.packet(), (14, vec![0xfe, 0, 0, 2, 0, 0, 0]));
}

#[test]
fn another_plugin_is_asked_to_switch() {
    let server = start();
    let mut client = Client::connect(server);
    client.log_in(b"caching_sha2_password", Capabilities(0));
    let (sequence, payload) = client.packet();
    assert_eq!(sequence, 2);
    assert_eq!(
        AuthSwitch::decode(&payload).unwrap().plugin,
        b"mysql_native_password"
    );
    client.send(3, &[1; 20]);
    let (sequence, ok) = client.packet();
    assert_eq!((sequence, ok[0]), (4, 0));
}

#[test]
fn pipelined_commands_are_answered_in_order() {
    let server = start();
    let (mut client, negotiated) = logged_in(server, Capabilities(0));
    for _ in 0..200 {
        client.command(Command::QUERY, b"SELECT c FROM t LIMIT 1000");
        client.command(Command::PING, b"");
    }
    let result = Shape::new(1000, false, negotiated).encode();
    for _ in 0..200 {
        client.expect(&result);
        assert_eq!(client.packet().1[0], 0);
    }
}

#[test]
fn a_command_may_arrive_byte_by_byte_and_quit_closes() {
    let server = start();
    let (mut client, negotiated) = logged_in(server, Capabilities(0));
    let mut bytes = Vec::new();
    write_packet(&mut bytes, &mut 0, b"\x03SELECT 1");
    for byte in bytes {
        client.0.write_all(&[byte]).unwrap();
    }
    client.expect(&Shape::new(1, false, negotiated).encode());
    client.command(Command(0x77), b"");
    assert_eq!(client.packet().1[..3], [0xff, 0x17, 0x04]);
    client.command(Command::QUIT, b"");
    assert_eq!(client.0.read(&mut [0]).unwrap(), 0);
}
