//! A server, or whoever has taken its place, may ask for a file of the client's only where the client has
//! said that it sends files and has sent a statement that loads one.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

use e2e::Setup;
use e2e::packets::Client;
use mysql_wire::Capabilities;
use sandbox::{DATABASE, PASSWORD, USER};

use crate::cluster;

/// What is in statements to which the false server answers.
const MARK: &[u8] = b"steal";
const ASKS_FOR_FILE: &[u8] = b"\x0c\0\0\x01\xfb/etc/passwd";

/// A server that asks for a file in the place of the answer to a statement with [`MARK`], and else is the one
/// behind it.
fn false_server(server: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        while let Ok((near, _)) = listener.accept() {
            let Ok(far) = TcpStream::connect(&server) else {
                return;
            };
            let (from, to) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            thread::spawn(move || pass(from, to, true));
            thread::spawn(move || pass(far, near, false));
        }
    });
    address
}

fn pass(mut from: TcpStream, mut to: TcpStream, watches: bool) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(n) = from.read(&mut buffer) {
        let bytes = &buffer[..n];
        let sent = match watches && bytes.windows(MARK.len()).any(|part| part == MARK) {
            true => from.write_all(ASKS_FOR_FILE),
            false => to.write_all(bytes),
        };
        if n == 0 || sent.is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn answer(client: &mut Client, command: u8, body: &[u8]) -> Vec<u8> {
    client.send_payload(0, &[&[command], body].concat()).unwrap();
    client.packet().unwrap().payload
}

#[test]
fn in_both_modes() {
    const LOADS: &[u8] = b"LOAD DATA LOCAL INFILE 'steal' INTO TABLE t";
    const READS: &[u8] = b"SELECT 'steal'";
    let address = false_server(cluster::single().primary().address());
    let server = format!("{{ address = {address:?}, role = \"primary\" }}");
    let setup = |mode| Setup::of_addresses([address.clone()]).mode(mode);
    let split = setup("split")
        .servers([server])
        .tables(&cluster::user(USER, PASSWORD))
        .start();
    let session = setup("session").start();
    for gateway in [&split, &session] {
        let connect = |further| cluster::connect_raw(&gateway.address(), DATABASE, further);
        let sends_files = Capabilities::LOCAL_FILES;
        for (text, further) in [(READS, sends_files), (LOADS, Capabilities::default())] {
            let told = answer(&mut connect(further), 3, text);
            let words = told.escape_ascii().to_string();
            assert_eq!(told[0], 0xff, "{words}");
            // Mode `split` may have sent the statement behind others, and knows then only that the connection
            // is of no use.
            let says_why = words.contains("has not offered") || words.contains("Lost connection");
            assert!(says_why, "{words}");
        }
        assert_eq!(answer(&mut connect(sends_files), 3, LOADS), ASKS_FOR_FILE[4..]);
        let loads_later = [b"SELECT 1 FROM DUAL WHERE 'steal' > '';", LOADS].concat();
        assert_eq!(
            answer(&mut connect(sends_files), 3, &loads_later),
            ASKS_FOR_FILE[4..]
        );
    }
}
