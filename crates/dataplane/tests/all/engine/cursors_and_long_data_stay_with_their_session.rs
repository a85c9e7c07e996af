//! What is left on a connection between two commands of a prepared statement: a cursor, and parameters that
//! are sent in pieces. Their session keeps the connection for as long, and nobody else comes in between.

use mysql_wire::{Command, OkPacket, StatusFlags};

use super::stage::{CAPABILITIES, Place, Session, Setup, Stage, USUAL};

/// One server with so many connections.
async fn start(connections: &str) -> Stage {
    Stage::set(Setup {
        servers: 1,
        options: connections,
        cluster: "queue_timeout = \"1m\"",
        ..USUAL
    })
    .await
}

const READS: &str = "SELECT 'CURSOR 5' FROM t";

/// Executes a statement without parameters by a cursor.
async fn open(session: &mut Session, id: u32) {
    let rest = [&id.to_le_bytes()[..], &[1, 1, 0, 0, 0]].concat();
    session.send(Command::STMT_EXECUTE, &rest).await;
    assert_eq!(session.answer().await, Ok(0));
}

/// How many rows a fetch gives, and whether they are the last; or its error.
async fn fetch(session: &mut Session, id: u32, count: u8) -> Result<(usize, bool), u16> {
    let rest = [&id.to_le_bytes()[..], &[count, 0, 0, 0]].concat();
    session.send(Command::STMT_FETCH, &rest).await;
    for rows in 0.. {
        let packet = session.0.receive().await.unwrap().payload;
        match packet[0] {
            0 => {}
            0xff => return Err(u16::from_le_bytes([packet[1], packet[2]])),
            _ => {
                let end = OkPacket::decode(&packet, CAPABILITIES).unwrap();
                return Ok((rows, end.status.contains(StatusFlags::LAST_ROW_SENT)));
            }
        }
    }
    unreachable!()
}

/// A statement of somebody else, and where it went.
async fn works(stage: &Stage, other: &mut Session, at: usize) -> Place {
    let write = format!("INSERT INTO t VALUES ('OK', 'other_{at}_')");
    assert_eq!(other.query(&write).await, Ok(0));
    stage.place(&format!("'other_{at}_'"))
}

/// Where the requests of this command have gone to, and how many there were.
fn sent(stage: &Stage, command: Command) -> Vec<(usize, usize)> {
    let mut sent = Vec::new();
    for connection in 0..stage.connections(0) {
        let requests = stage.requests(Place {
            server: 0,
            connection,
        });
        let count = requests.iter().filter(|request| request[0] == command.0).count();
        if count > 0 {
            sent.push((connection, count));
        }
    }
    sent
}

#[tokio::test]
async fn although_others_work_in_between() {
    let stage = start(", max_connections = 2").await;
    let (mut own, mut other) = (stage.connect().await, stage.connect().await);
    let id = own.prepare(READS).await;
    open(&mut own, id).await;
    assert_eq!(own.pins().await, ["cursor"]);
    assert_eq!(fetch(&mut own, id, 2).await, Ok((2, false)));
    let [(held, _)] = sent(&stage, Command::STMT_FETCH)[..] else {
        panic!("{:?}", sent(&stage, Command::STMT_FETCH));
    };
    for at in 0..4 {
        assert_ne!(works(&stage, &mut other, at).await.connection, held);
    }
    assert_eq!(fetch(&mut own, id, 2).await, Ok((2, false)));
    assert_eq!(fetch(&mut own, id, 2).await, Ok((1, true)));
    assert_eq!(sent(&stage, Command::STMT_FETCH), [(held, 3)]);
    assert_eq!(own.pins().await, [""; 0]);
    assert!(fetch(&mut own, id, 2).await.is_err(), "there is nothing more");
}

/// Whoever reads by a cursor may write before everything is read: it is opened on the primary.
#[tokio::test]
async fn where_the_session_can_write() {
    let stage = Stage::set(USUAL).await;
    let mut own = stage.connect().await;
    let id = own.prepare(READS).await;
    assert_eq!(own.execute(id).await, Ok(5));
    assert_eq!(
        stage.had("", true),
        [0, 1],
        "without one it is a read like others"
    );
    open(&mut own, id).await;
    assert_eq!(stage.had("", true), [1, 1]);
    assert_eq!(own.query("INSERT INTO t VALUES ('OK', 'own')").await, Ok(0));
    let place = stage.place("'own'");
    assert_eq!(fetch(&mut own, id, 9).await, Ok((5, true)));
    let requests = stage.requests(place);
    assert!(requests.iter().any(|request| request[0] == Command::STMT_FETCH.0));
}

/// A piece of the first parameter.
async fn piece(session: &mut Session, id: u32, text: &str) {
    let rest = [&id.to_le_bytes()[..], &[0, 0], text.as_bytes()].concat();
    session.send(Command::STMT_SEND_LONG_DATA, &rest).await;
}

/// Executes a statement whose parameter was sent before, a LONGBLOB.
async fn executes(session: &mut Session, id: u32) {
    let rest = [&id.to_le_bytes()[..], &[0, 1, 0, 0, 0, 0, 1, 251, 0]].concat();
    session.send(Command::STMT_EXECUTE, &rest).await;
    assert_eq!(session.answer().await, Ok(0));
}

/// Parameters of another statement end no cursor.
#[tokio::test]
async fn also_one_beside_the_other() {
    let stage = start(", max_connections = 2").await;
    let (mut own, mut other) = (stage.connect().await, stage.connect().await);
    let id = own.prepare(READS).await;
    let pieces = own.prepare("UPDATE texts SET text = ?").await;
    open(&mut own, id).await;
    piece(&mut own, pieces, "a piece").await;
    let mut pins = own.pins().await;
    pins.sort();
    assert_eq!(pins, ["cursor", "long-data"]);
    executes(&mut own, pieces).await;
    works(&stage, &mut other, 0).await;
    assert_eq!(fetch(&mut own, id, 2).await, Ok((2, false)));
    assert_eq!(fetch(&mut own, id, 9).await, Ok((3, true)));
}

/// A statement that the gateway does not know is answered as a server does, and no server hears of it.
#[tokio::test]
async fn and_what_nobody_has_prepared_is_refused() {
    let stage = start("").await;
    let (mut own, mut other) = (stage.connect().await, stage.connect().await);
    let id = own.prepare(READS).await;
    assert_eq!(other.execute(id).await, Err(1243), "another session's");
    assert_eq!(other.execute(u32::MAX).await, Err(1243), "none was prepared last");
    assert_eq!(fetch(&mut own, id, 1).await, Err(1421), "no cursor was opened");
    assert_eq!(own.execute(id).await, Ok(5));
    own.send(Command::STMT_CLOSE, &id.to_le_bytes()).await;
    assert_eq!(own.execute(id).await, Err(1243), "closed");
    own.send(Command::STMT_RESET, &id.to_le_bytes()).await;
    assert_eq!(own.answer().await, Err(1243));
    assert_eq!(stage.had("", true), [1]);
    assert!(sent(&stage, Command::STMT_FETCH).is_empty());
    assert!(sent(&stage, Command::STMT_RESET).is_empty());
}

/// COM_INIT_DB is carried as `USE` is, by sessions that share one connection.
#[tokio::test]
async fn and_so_does_the_schema() {
    let stage = Stage::set(Setup::one_connection()).await;
    let (mut own, mut other) = (stage.connect_to("home").await, stage.connect_to("home").await);
    for _ in 0..3 {
        own.send(Command::INIT_DB, b"elsewhere").await;
        assert_eq!(own.answer().await, Ok(0));
        assert_eq!(own.pins().await, [""; 0]);
        assert_eq!(other.value("SELECT DATABASE()").await, "home");
        assert_eq!(own.value("SELECT DATABASE()").await, "elsewhere");
        own.send(Command::INIT_DB, b"home").await;
        assert_eq!(own.answer().await, Ok(0));
        assert_eq!(own.value("SELECT DATABASE()").await, "home");
    }
}
