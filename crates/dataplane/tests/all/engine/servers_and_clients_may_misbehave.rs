//! Servers that answer what nobody has asked, and clients that go in the middle: nobody else notices.

use mysql_wire::{Capabilities, Command, ErrPacket, Greeting, Login, PacketHeader, auth, write_packet};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::stage::{CAPABILITIES, Session, Setup, Stage, USUAL};

const SENDS_FILES: Capabilities = Capabilities(CAPABILITIES.0 | Capabilities::LOCAL_FILES.0);
const LOADS: &str = "LOAD DATA LOCAL INFILE 'INFILE /etc/passwd' INTO TABLE t";

/// The first packet of an answer.
async fn first(session: &mut Session, text: &str) -> Vec<u8> {
    session.send(Command::QUERY, text.as_bytes()).await;
    session.0.receive().await.unwrap().payload
}

/// A client that does not wait for the OK of its login: its first command comes together with that.
#[tokio::test]
async fn a_command_comes_early_in_a_compressed_session() {
    async fn receive(stream: &mut TcpStream) -> Vec<u8> {
        let mut header = [0; PacketHeader::LEN];
        stream.read_exact(&mut header).await.unwrap();
        let mut payload = vec![0; PacketHeader::parse(&header).unwrap().payload_len];
        stream.read_exact(&mut payload).await.unwrap();
        payload
    }
    // A frame that is not packed: five bytes, the first of its kind.
    const FRAME: [u8; 7] = [5, 0, 0, 0, 0, 0, 0];

    let stage = Stage::set(USUAL).await;
    let mut stream = TcpStream::connect(stage.address).await.unwrap();
    let greeting = Greeting::decode(&receive(&mut stream).await).unwrap();
    let login = Login {
        capabilities: CAPABILITIES.without(Capabilities::CONNECT_WITH_DB) | Capabilities::COMPRESS,
        max_packet_size: 1 << 24,
        charset: 45,
        user: b"app".to_vec(),
        auth_response: auth::native_password(&greeting.nonce, b"secret"),
        database: None,
        auth_plugin: Some(b"mysql_native_password".to_vec()),
        attributes: None,
        zstd_level: None,
    };
    let mut payload = Vec::new();
    login.encode(&mut payload);
    let mut sent = Vec::new();
    write_packet(&mut sent, &mut 1, &payload);
    sent.extend(FRAME);
    write_packet(&mut sent, &mut 0, &[Command::PING.0]);
    stream.write_all(&sent).await.unwrap();
    assert_eq!(receive(&mut stream).await[0], 0, "the login");
    stream.read_exact(&mut [0; FRAME.len()]).await.unwrap();
    assert_eq!(receive(&mut stream).await[0], 0, "the command");
}

/// A server, or whoever has taken its place, may ask for a file of the client's only where the client has
/// said that it sends files and has sent a statement that loads one.
#[tokio::test]
async fn servers_get_no_file_unasked() {
    const READS: &str = "SELECT 'INFILE /etc/passwd'";
    const WRITES: &str = "INSERT INTO t VALUES ('INFILE /etc/passwd')";
    for mode in ["split", "session"] {
        let stage = Stage::set(Setup {
            mode,
            listener: "",
            capabilities: SENDS_FILES,
            ..USUAL
        })
        .await;
        for (text, capabilities) in [(READS, SENDS_FILES), (WRITES, SENDS_FILES), (LOADS, CAPABILITIES)] {
            let told = first(&mut stage.connect_with(capabilities).await, text).await;
            let words = told.escape_ascii().to_string();
            assert_eq!(told[0], 0xff, "{mode}: {text}: {words}");
            // Mode `split` may have sent the statement behind others, and knows then only that the connection
            // is of no use.
            let says_why = words.contains("has not offered") || words.contains("ost connection");
            assert!(says_why, "{mode}: {text}: {words}");
        }
        let mut may = stage.connect_with(SENDS_FILES).await;
        assert_eq!(first(&mut may, LOADS).await, b"\xfb/etc/passwd", "{mode}");
        // The file comes whole, and what is behind it.
        for content in [&b"1\tone\n"[..], b"2\ttwo\n", b""] {
            may.0.send_behind(content).await.unwrap();
        }
        assert_eq!(may.answer().await, Ok(0), "{mode}");
        assert_eq!(may.query("SELECT 'ROWS 1'").await, Ok(1), "{mode}");
    }
}

/// Observers get the packets of a file that the client sends for its statement.
#[tokio::test]
async fn who_observes_gets_the_file_of_a_client() {
    for mode in ["split", "session"] {
        let mut stage = Stage::set(Setup {
            mode,
            listener: "",
            capabilities: SENDS_FILES,
            ..USUAL
        })
        .await;
        let mut session = stage.connect_with(SENDS_FILES).await;
        assert_eq!(first(&mut session, LOADS).await, b"\xfb/etc/passwd", "{mode}");
        let (mut packets, mut sequence) = (Vec::new(), 2);
        for content in [&b"1\tone\n"[..], b"2\ttwo\n", b""] {
            session.0.send_behind(content).await.unwrap();
            write_packet(&mut packets, &mut sequence, content);
        }
        assert_eq!(session.answer().await, Ok(0), "{mode}");
        assert_eq!(stage.next_end().await.files, packets, "{mode}");
        assert_eq!(session.query("SELECT 'ROWS 1'").await, Ok(1), "{mode}");
        assert!(stage.next_end().await.files.is_empty(), "{mode}");
    }
}

/// Bytes behind an answer close the connection: whoever had it next would take them for an answer.
#[tokio::test]
async fn what_is_behind_an_answer_reaches_nobody() {
    let stage = Stage::set(Setup { servers: 1, ..USUAL }).await;
    let (mut one, mut other) = (stage.connect().await, stage.connect().await);
    for turn in 1..=3 {
        assert_eq!(one.query("INSERT INTO t VALUES ('TWO ENDS')").await, Ok(0));
        for rows in 1..4 {
            for session in [&mut other, &mut one] {
                let read = format!("SELECT 'ROWS {rows}'");
                assert_eq!(session.query(&read).await, Ok(rows));
            }
        }
        let broken = stage.metric("forebay_pool_closed_total", &["reason=\"broken\""]);
        assert_eq!(broken, f64::from(turn));
    }
}

/// A session that has something there ends with its connection.
#[tokio::test]
async fn nor_the_one_that_holds_the_connection() {
    let stage = Stage::set(Setup { servers: 1, ..USUAL }).await;
    let (mut holds, mut other) = (stage.connect().await, stage.connect().await);
    assert_eq!(holds.query("SET @x = 1").await, Ok(0));
    let held = stage.place("@x");
    assert_eq!(holds.query("INSERT INTO t VALUES ('TWO ENDS')").await, Ok(0));
    let told = holds.query("SELECT 'ROWS 2' FROM held").await;
    assert!(
        told != Ok(0),
        "nobody takes what is behind an answer for the next: {told:?}"
    );
    drop(holds);
    assert_eq!(other.query("SELECT 'ROWS 3' FROM other").await, Ok(3));
    assert_ne!(stage.place("FROM other"), held);
}

/// An error in the place of the end of rows ends the statement, and the connection is of use.
#[tokio::test]
async fn an_error_between_rows_is_told() {
    let mut stage = Stage::set(Setup {
        servers: 1,
        options: ", max_connections = 1",
        ..USUAL
    })
    .await;
    let (mut session, mut other) = (stage.connect().await, stage.connect().await);
    for rows in [0, 1, 5, 2000] {
        let broken = format!("SELECT 'BROKEN {rows}' FROM t");
        assert_eq!(session.query(&broken).await, Err(1317));
        let ended = stage.next_end().await;
        assert_eq!((ended.error, ended.rows), (Some(1317), rows));
        assert_eq!(stage.sent(&broken).len(), 1, "it is sent once");
        assert_eq!(session.query("SELECT 'ROWS 2'").await, Ok(2));
        stage.next_end().await;
        assert_eq!(other.query("SELECT 'ROWS 1'").await, Ok(1));
        stage.next_end().await;
    }
    assert_eq!(stage.logins(0), 1);
}

/// Whoever goes in the middle of an answer leaves its connection to nobody, or what is left of the answer
/// would be the next one's.
#[tokio::test]
async fn a_client_that_goes_in_the_middle_leaves_nothing() {
    let stage = Stage::set(Setup {
        servers: 1,
        options: ", max_connections = 1",
        cluster: "queue_timeout = \"1m\"",
        ..USUAL
    })
    .await;
    let mut other = stage.connect().await;
    for at in 0..10 {
        let mut goes = stage.connect().await;
        let long = format!("SELECT 'ROWS 20000' FROM long_{at}_");
        goes.send(Command::QUERY, long.as_bytes()).await;
        stage.has_come(0, &long, 1).await;
        for _ in 0..at {
            goes.0.receive().await.unwrap();
        }
        drop(goes);
        assert_eq!(other.query("SELECT 'ROWS 3'").await, Ok(3));
        assert_eq!(other.query("INSERT INTO t VALUES ('OK')").await, Ok(0));
    }
}

/// A command that is none is refused in the words of a server, and its session goes on.
#[tokio::test]
async fn a_command_that_nobody_knows_is_refused() {
    let stage = Stage::set(USUAL).await;
    let mut session = stage.connect().await;
    for (command, rest) in [
        (Command(0x7f), &b""[..]),
        (Command(0xfe), b"something"),
        (Command::STMT_EXECUTE, b"\x01"),
        (Command::STMT_FETCH, b""),
        (Command::STMT_RESET, b"\x01\0"),
    ] {
        session.send(command, rest).await;
        let packet = session.0.receive().await.unwrap().payload;
        let error = ErrPacket::decode(&packet, CAPABILITIES).unwrap();
        assert!(
            [1047, 1835, 1243, 1105].contains(&error.code),
            "{command:?}: {}",
            error.code
        );
        assert_eq!(session.query("SELECT 'ROWS 1'").await, Ok(1), "{command:?}");
    }
}
