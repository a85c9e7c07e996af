//! A server that is killed while a client still sends its statement: what comes of the statement is no
//! command, whatever it looks like.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use e2e::packets::{Client, Identity};
use e2e::{Gateway, PATIENCE, Setup, servers};
use mysql_wire::{Capabilities, Command, ErrPacket};
use sandbox::{PASSWORD, USER};

use crate::{CHECK, scaled};

/// In this time the buffers of a frozen server are full, so that the gateway finds out by writing that it is
/// gone. Where they are not, it finds out by reading.
const UNTIL_FULL: Duration = Duration::from_millis(500);

/// Bytes of the execution's payload.
const LEN: usize = 12 << 20;

/// Once the gateway has found out that the server is there.
fn log_in(gateway: &Gateway, identity: &Identity) -> Client {
    let began = Instant::now();
    loop {
        match Client::connect(&gateway.address(), identity) {
            Ok((client, verdict)) if verdict.payload[0] == 0 => return client,
            _ => assert!(began.elapsed() < PATIENCE, "nobody logs in"),
        }
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn of_which_the_rest_is_no_command() {
    let servers = servers(1);
    let victim = servers[0].primary();
    let gateway = Setup::in_front_of(&servers)
        .mode("split")
        .servers([format!(
            "{{ address = {:?}, role = \"primary\" }}",
            victim.address()
        )])
        .tables(&format!("[[user]]\nname = {USER:?}\npassword = {PASSWORD:?}\n"))
        .check(CHECK)
        .start();
    let identity = Identity {
        user: USER,
        password: PASSWORD,
        database: None,
        charset: 45,
        capabilities: Capabilities::PROTOCOL_41
            .with(Capabilities::SECURE_CONNECTION)
            .with(Capabilities::PLUGIN_AUTH),
    };
    for _ in 0..scaled(1) {
        let mut client = log_in(&gateway, &identity);
        let prepare = [&[Command::STMT_PREPARE.0][..], b"DO LENGTH(?)"].concat();
        client.send_payload(0, &prepare).unwrap();
        let prepared = client.packet().unwrap().payload;
        assert_eq!(prepared[0], 0, "{prepared:?}");
        for _ in ["the parameter", "the end"] {
            client.packet().unwrap();
        }
        // Each four bytes of the rest would be a command without a name, to which there is an answer.
        let mut bytes = vec![0; LEN + 4];
        bytes[..3].copy_from_slice(&LEN.to_le_bytes()[..3]);
        bytes[4] = Command::STMT_EXECUTE.0;
        bytes[5..9].copy_from_slice(&prepared[1..5]);
        // The count of iterations is 1; behind the bits for NULL comes the parameter's type, a long text.
        (bytes[10], bytes[15], bytes[16]) = (1, 1, 0xfc);
        bytes[18] = 0xfd;
        bytes[19..22].copy_from_slice(&(LEN - 18).to_le_bytes()[..3]);
        victim.freeze().unwrap();
        let sending = thread::spawn(move || {
            let _ = client.send(&bytes);
            client
        });
        thread::sleep(UNTIL_FULL);
        victim.kill9().unwrap();
        let mut client = sending.join().unwrap();
        let mut told = Vec::new();
        let end = loop {
            match client.packet() {
                Ok(packet) if told.len() < 3 => told.push(packet.payload),
                Ok(_) => panic!("what is left was taken for commands: {told:?}"),
                Err(error) => break error,
            }
        };
        assert_eq!(
            end.kind(),
            io::ErrorKind::UnexpectedEof,
            "the session goes on: {told:?}"
        );
        // The error may be lost with what nobody has read.
        let codes = told.iter().map(|packet| {
            let error = ErrPacket::decode(packet, client.capabilities);
            error.map(|error| error.code).ok()
        });
        let codes: Vec<_> = codes.collect();
        assert!(codes.is_empty() || codes == [Some(1158)], "{codes:?}");
        victim.restart().unwrap();
    }
}
