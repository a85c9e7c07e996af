//! What a server has written into its logs, or a network has seen, is imported, replayed on a copy of it
//! and compared: nothing differs on a faithful copy, what another copy answers differently is found as far
//! as the log knows it, and what the log does not know is not compared. No secret is in the files.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use e2e::traffic::{bytes_of, forebay, has, replay_on};
use e2e::{client, servers};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use sandbox::Node;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The table as it is on both servers before.
const TABLE: &str = "DROP TABLE IF EXISTS test.item;
    CREATE TABLE test.item (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(60), price DOUBLE);
    INSERT INTO test.item VALUES (1, 'nail', 0.1), (2, 'hammer', 12.5), (3, 'saw', 20);
    CREATE DATABASE IF NOT EXISTS imported";

async fn connect(port: u16) -> Conn {
    let options: Opts = client::options_at(port).into();
    Conn::new(options).await.unwrap()
}

async fn use_it(port: u16) {
    let mut session = connect(port).await;
    for text in [
        "SELECT * FROM test.item",
        "UPDATE test.item SET price = 13.25 WHERE id = 2",
        "INSERT INTO test.item (name, price) VALUES ('of;\n# Time: 1\n# User@Host: x\nmany lines', 31), ('file', 4)",
        "BEGIN",
        "UPDATE test.item SET price = price + 1",
        "COMMIT",
        "SELECT NOW(), UUID()",
        "SELECT name FROM test.item ORDER BY price DESC",
        "USE imported",
        "SELECT COUNT(*) FROM test.item",
    ] {
        session.query_drop(text).await.unwrap();
    }
    session
        .exec_drop(
            "SELECT name FROM test.item WHERE id > ? AND name <> ?",
            (1, "it's"),
        )
        .await
        .unwrap();
    let refused = session
        .query_drop("SELECT * FROM test.nothing")
        .await
        .unwrap_err();
    assert_eq!(client::code(&refused), 1146);
    let _ = session
        .query_drop("CREATE USER nobody IDENTIFIED BY 'Geheim99'")
        .await;
    let _ = session.query_drop("DROP USER nobody").await;
    let mut other = connect(port).await;
    other.query_drop("SELECT 'of another session'").await.unwrap();
    other.disconnect().await.unwrap();
    session.disconnect().await.unwrap();
}

/// Imports, and replays twice: on a faithful copy, and on one that lacks a row. The comparisons of both
/// with the import, and of both replays.
fn import_and_replay(from: &str, file: &Path, place: &Path, copy: &Node) -> [(Option<i32>, String); 3] {
    let name = |name: &str| place.join(name).display().to_string();
    let imported = name("imported");
    let file = file.display().to_string();
    let (code, said) = forebay(&["traffic", "import", "--from", from, &file, "--to", &imported]);
    assert_eq!(code, Some(0), "{said}");
    assert!(!has(&bytes_of(&imported), "Geheim"), "{said}");
    let replay = |result: &str| {
        let (code, said) = replay_on(copy, &imported, result, &["--even-source", "--any-position"]);
        assert_eq!(code, Some(0), "{said}");
    };
    let (faithful, another) = (name("faithful"), name("another"));
    copy.sql(TABLE).unwrap();
    replay(&faithful);
    copy.sql(TABLE).unwrap();
    copy.sql("DELETE FROM test.item WHERE id = 3").unwrap();
    replay(&another);
    let compare =
        |a: &str, b: &str| forebay(&["traffic", "compare", a, b, "--fail-on", "errors,rows,missing"]);
    [
        compare(&imported, &faithful),
        compare(&imported, &another),
        compare(&faithful, &another),
    ]
}

/// Switches one of the server's logs on while it is used, and returns its file.
async fn logged(server: &Node, log: &str, place: &Path) -> std::path::PathBuf {
    server.sql(TABLE).unwrap();
    let file = place.join(format!("{log}.log"));
    let shown = file.display();
    let on = format!("SET GLOBAL log_output = 'FILE', GLOBAL {log}_file = '{shown}', GLOBAL {log} = 1");
    server.sql(&on).unwrap();
    server.sql("SET GLOBAL long_query_time = 0").unwrap();
    use_it(server.port()).await;
    server
        .sql(&format!("SET GLOBAL {log} = 0, GLOBAL long_query_time = 10"))
        .unwrap();
    file
}

#[tokio::test]
async fn the_slow_log() {
    let servers = servers(2);
    let place = tempfile::tempdir().unwrap();
    let file = logged(servers[0].primary(), "slow_query_log", place.path()).await;
    let [faithful, another, _] = import_and_replay("slow-log", &file, place.path(), servers[1].primary());
    assert_eq!(faithful.0, Some(0), "{}", faithful.1);
    assert!(
        faithful.1.contains("does not know whether they have failed"),
        "{}",
        faithful.1
    );
    assert_eq!(another.0, Some(2), "{}", another.1);
    assert!(
        another.1.contains("3 → 2 rows: SELECT * FROM test.item"),
        "{}",
        another.1
    );
}

#[tokio::test]
async fn the_general_log() {
    let servers = servers(2);
    let place = tempfile::tempdir().unwrap();
    let file = logged(servers[0].primary(), "general_log", place.path()).await;
    let [faithful, another, both] =
        import_and_replay("general-log", &file, place.path(), servers[1].primary());
    // It knows texts and their order alone.
    assert_eq!(
        (faithful.0, another.0),
        (Some(0), Some(0)),
        "{}{}",
        faithful.1,
        another.1
    );
    assert!(another.1.contains("p99 ? → ?"), "{}", another.1);
    assert_eq!(both.0, Some(2), "{}", both.1);
    assert!(
        both.1.contains("3 → 2 rows: SELECT * FROM test.item"),
        "{}",
        both.1
    );
}

/// Forwards one connection after the other to a server and writes down their packets as a network would have
/// them: Ethernet, IPv4, TCP, in a pcap.
struct Tap {
    port: u16,
    packets: Arc<Mutex<Vec<u8>>>,
}

impl Tap {
    async fn in_front_of(server: &Node) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut head = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        head.extend_from_slice(&[0, 0, 4, 0, 1, 0, 0, 0]);
        let packets = Arc::new(Mutex::new(head));
        let (written, address) = (Arc::clone(&packets), server.address());
        tokio::spawn(async move {
            while let Ok((client, from)) = listener.accept().await {
                let server = TcpStream::connect(&address).await.unwrap();
                let ports = [from.port(), 3306];
                let mut wire = Wire {
                    ports,
                    sequences: [u32::MAX - 5, 7],
                    packets: Arc::clone(&written),
                };
                wire.put(0, 2, b"");
                wire.put(1, 18, b"");
                tokio::spawn(wire.forward(client, server));
            }
        });
        Self { port, packets }
    }
}

/// A connection as a network has it.
struct Wire {
    ports: [u16; 2],
    sequences: [u32; 2],
    packets: Arc<Mutex<Vec<u8>>>,
}

impl Wire {
    async fn forward(mut self, mut client: TcpStream, mut server: TcpStream) {
        let (mut from_client, mut from_server) = ([0; 1400], [0; 1400]);
        loop {
            let (side, read) = tokio::select! {
                read = client.read(&mut from_client) => (0, read.unwrap_or(0)),
                read = server.read(&mut from_server) => (1, read.unwrap_or(0)),
            };
            if read == 0 {
                return self.put(side, 4, b"");
            }
            // Written down first: nothing may come back before.
            match side {
                0 => {
                    self.put(0, 16, &from_client[..read]);
                    server.write_all(&from_client[..read]).await.unwrap();
                }
                _ => {
                    self.put(1, 16, &from_server[..read]);
                    client.write_all(&from_server[..read]).await.unwrap();
                }
            }
        }
    }

    fn put(&mut self, side: usize, flags: u8, bytes: &[u8]) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let mut packet = [&[0; 12][..], &[8, 0, 0x45, 0]].concat();
        packet.extend_from_slice(&(40 + bytes.len() as u16).to_be_bytes());
        packet.extend_from_slice(&[0, 0, 0, 0, 64, 6, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]);
        packet.extend_from_slice(&self.ports[side].to_be_bytes());
        packet.extend_from_slice(&self.ports[1 - side].to_be_bytes());
        packet.extend_from_slice(&self.sequences[side].to_be_bytes());
        packet.extend_from_slice(&[0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
        packet.extend_from_slice(bytes);
        let sent = bytes.len() as u32 + u32::from(flags & 2 != 0);
        self.sequences[side] = self.sequences[side].wrapping_add(sent);
        let mut packets = self.packets.lock().unwrap();
        for number in [
            since.as_secs() as u32,
            since.subsec_micros(),
            packet.len() as u32,
            packet.len() as u32,
        ] {
            packets.extend_from_slice(&number.to_le_bytes());
        }
        packets.extend_from_slice(&packet);
    }
}

#[tokio::test]
async fn packets_of_a_network() {
    let servers = servers(2);
    let (source, copy) = (servers[0].primary(), servers[1].primary());
    source.sql(TABLE).unwrap();
    let place = tempfile::tempdir().unwrap();
    let tap = Tap::in_front_of(source).await;
    use_it(tap.port).await;
    let file = place.path().join("a.pcap");
    std::fs::write(&file, &*tap.packets.lock().unwrap()).unwrap();
    let [faithful, another, _] = import_and_replay("pcap", &file, place.path(), copy);
    assert_eq!(faithful.0, Some(0), "{}", faithful.1);
    assert!(!faithful.1.contains("does not know"), "{}", faithful.1);
    assert_eq!(another.0, Some(2), "{}", another.1);
    assert!(
        another.1.contains("3 → 2 rows: SELECT * FROM test.item"),
        "{}",
        another.1
    );
    assert!(
        another
            .1
            .contains("rows: SELECT name FROM test.item WHERE id > ?"),
        "{}",
        another.1
    );
}

/// A statement is written where it has ended, behind those that began after it. It is in time all the same.
#[tokio::test]
async fn a_long_statement_begins_in_time() {
    let servers = servers(1);
    let place = tempfile::tempdir().unwrap();
    let entry = |second: u32, session: u32, took: u32| {
        format!(
            "# Time: 2026-11-28T10:00:{second:02}.000000Z\n# User@Host: a[a] @ h []  Id: {session}\n\
             # Query_time: {took}.000000  Lock_time: 0.000000 Rows_sent: 1  Rows_examined: 0\n\
             SET timestamp=1;\nSELECT {session};\n"
        )
    };
    let log = place.path().join("slow.log");
    std::fs::write(&log, entry(0, 1, 0) + &entry(10, 2, 0) + &entry(30, 3, 30)).unwrap();
    let name = |name: &str| place.path().join(name).display().to_string();
    let (log, imported) = (log.display().to_string(), name("imported"));
    let (code, said) = forebay(&["traffic", "import", "--from", "slow-log", &log, "--to", &imported]);
    assert_eq!(code, Some(0), "{said}");
    let more = ["--even-source", "--any-position", "--speed", "2"];
    let (code, said) = replay_on(servers[0].primary(), &imported, &name("result"), &more);
    assert!(code == Some(0) && said.contains("late: "), "{said}");
    let (_, most) = said.split_once("most ").unwrap();
    let most: f64 = most.split_whitespace().next().unwrap().parse().unwrap();
    // In the order of the log it would be 5 s late, behind one that began 10 s after it, at twice the speed.
    assert!(most < 4000.0, "{said}");
}
