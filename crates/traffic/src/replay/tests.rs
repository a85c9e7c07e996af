//! Replays that go on where another was killed, against a server that notes what it is told.

use std::sync::{Arc, Mutex};

use mysql_wire::{Capabilities, Greeting, OkPacket, PacketHeader, StatusFlags, write_packet};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

const CAPABILITIES: Capabilities = Capabilities(
    Capabilities::LONG_PASSWORD.0
        | Capabilities::PROTOCOL_41.0
        | Capabilities::SECURE_CONNECTION.0
        | Capabilities::PLUGIN_AUTH.0
        | Capabilities::LOCAL_FILES.0
        | Capabilities::CONNECT_WITH_DB.0,
);
/// Nothing that is said ends so: a server that would end a connection there says that it is read-only.
const READ_ONLY: &[u8] = b"read-only";
const IN_TRANSACTION: Flags = Flags::IN_TRANSACTION;

/// The next packet of a client; `None` once it is gone.
async fn packet(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut header = [0; PacketHeader::LEN];
    stream.read_exact(&mut header).await.ok()?;
    let mut payload = vec![0; PacketHeader::parse(&header)?.payload_len];
    stream.read_exact(&mut payload).await.ok()?;
    Some(payload)
}

/// What a command is in words.
fn words(payload: &[u8]) -> String {
    let (command, body) = payload.split_first().unwrap();
    let words = match Command(*command) {
        Command::QUERY => String::new(),
        Command::INIT_DB => "USE ".to_owned(),
        Command::STMT_PREPARE => "PREPARE ".to_owned(),
        Command::STMT_EXECUTE if body.len() > 9 => return format!("EXECUTE {} {:?}", body[0], &body[9..]),
        Command::STMT_EXECUTE => return format!("EXECUTE {}", body[0]),
        Command::STMT_SEND_LONG_DATA => return format!("PART {}", body[0]),
        Command::RESET_CONNECTION => "RESET".to_owned(),
        other => format!("{other:?}"),
    };
    words + &String::from_utf8_lossy(body)
}

/// Asks the client for a file of each statement of a text, and answers all but the last.
async fn load(
    stream: &mut TcpStream,
    text: &str,
    sequence: &mut u8,
    told: &Mutex<Vec<String>>,
) -> Option<()> {
    for number in 0..text.split(';').count() {
        let mut packets = Vec::new();
        if number > 0 {
            let (mut ok, mut payload) = (OkPacket::default(), Vec::new());
            ok.status.insert(StatusFlags::MORE_RESULTS);
            ok.encode(&mut payload, CAPABILITIES);
            write_packet(&mut packets, sequence, &payload);
        }
        write_packet(&mut packets, sequence, b"\xfba file");
        stream.write_all(&packets).await.ok()?;
        let mut file = Vec::new();
        loop {
            let part = packet(stream).await?;
            *sequence = sequence.wrapping_add(1);
            if part.is_empty() {
                break;
            }
            file.extend(part);
        }
        let words = format!("FILE {}", String::from_utf8_lossy(&file));
        told.lock().unwrap().push(words);
    }
    Some(())
}

async fn serve(mut stream: TcpStream, told: Arc<Mutex<Vec<String>>>, lost_at: &[u8]) -> Option<()> {
    let mut out = Vec::new();
    let greeting = Greeting {
        server_version: b"8.4.0".to_vec(),
        connection_id: 1,
        nonce: [7; 20],
        capabilities: CAPABILITIES,
        charset: 45,
        status: StatusFlags::AUTOCOMMIT,
        auth_plugin: b"mysql_native_password".to_vec(),
    };
    greeting.encode(&mut out);
    let (mut status, mut sequence, mut prepared) = (StatusFlags::AUTOCOMMIT, 0, 0_u8);
    let mut packets = Vec::new();
    write_packet(&mut packets, &mut sequence, &out);
    stream.write_all(&packets).await.ok()?;
    let mut said = packet(&mut stream).await?;
    let sends_files = said.first()? & Capabilities::LOCAL_FILES.0 as u8 != 0;
    sequence = 2;
    if said.windows(6).any(|part| part == b"nobody") {
        packets.clear();
        write_packet(&mut packets, &mut sequence, b"\xff\x15\x04#28000no");
        stream.write_all(&packets).await.ok()?;
        return None;
    }
    loop {
        let text = String::from_utf8_lossy(said.get(1..)?).to_uppercase();
        match &text[..] {
            "BEGIN" => status.insert(StatusFlags::IN_TRANS),
            "COMMIT" | "ROLLBACK" => status.remove(StatusFlags::IN_TRANS),
            // MariaDB shows a transaction that is prepared as open still.
            text if text.starts_with("XA START") => status.insert(StatusFlags::IN_TRANS),
            text if text.starts_with("XA COMMIT") => status.remove(StatusFlags::IN_TRANS),
            "SET AUTOCOMMIT = 0" => status.remove(StatusFlags::AUTOCOMMIT),
            "SET AUTOCOMMIT = 1" => status.insert(StatusFlags::AUTOCOMMIT),
            text if text.starts_with("INSERT") && !status.contains(StatusFlags::AUTOCOMMIT) => {
                status.insert(StatusFlags::IN_TRANS);
            }
            _ => {}
        }
        out.clear();
        packets.clear();
        match Command(said[0]) {
            Command::STMT_PREPARE if sequence == 1 => {
                prepared += 1;
                out.extend_from_slice(&[0, prepared, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            }
            Command::QUERY if sends_files && text.starts_with("LOAD DATA LOCAL") => {
                load(&mut stream, &text, &mut sequence, &told).await?;
                OkPacket::default().encode(&mut out, CAPABILITIES);
            }
            Command::QUERY if text.ends_with("@@GLOBAL.READ_ONLY") => {
                let eof = [0xfe, 0, 0, 2, 0];
                let row = [1, if lost_at == READ_ONLY { b'1' } else { b'0' }];
                for part in [&[1][..], b"a column", &eof, &row] {
                    write_packet(&mut packets, &mut sequence, part);
                }
                out.extend_from_slice(&eof);
            }
            Command::QUERY if text.ends_with("LONG") || text.ends_with("_SHORT") => {
                let eof = [0xfe, 0, 0, 2, 0];
                let row = match text.ends_with("LONG") {
                    true => [&[0xfd, 0, 0, 0x10][..], &vec![b'x'; 1 << 20]].concat(),
                    false => b"\x03a\tb".to_vec(),
                };
                for part in [&[1][..], b"a column", &eof, &row] {
                    write_packet(&mut packets, &mut sequence, part);
                }
                out.extend_from_slice(&eof);
            }
            _ => {
                let ok = OkPacket {
                    status,
                    last_insert_id: u64::from(text.ends_with("MAKES AN ID")),
                    ..OkPacket::default()
                };
                ok.encode(&mut out, CAPABILITIES);
            }
        }
        let silent = [Command::STMT_CLOSE, Command::STMT_SEND_LONG_DATA];
        // Number 2 is the answer to the login.
        if sequence == 2 || !silent.contains(&Command(said[0])) {
            write_packet(&mut packets, &mut sequence, &out);
            stream.write_all(&packets).await.ok()?;
        }
        said = packet(&mut stream).await?;
        sequence = 1;
        if Command(said[0]) == Command::QUIT {
            return Some(());
        }
        told.lock().unwrap().push(words(&said));
        if said.ends_with(lost_at) {
            return None;
        }
    }
}

/// A server, and what it is told, but for what a replay asks it first.
async fn server() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    server_that_ends(b"LOST").await
}

/// The same, and it ends each connection on which something is said that ends so.
async fn server_that_ends(lost_at: &'static [u8]) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&heard), lost_at));
        }
    });
    (address, told)
}

fn command(command: Command, statement: u32, body: &[u8]) -> CommandRecord {
    CommandRecord {
        session: 1,
        command: command.0,
        statement,
        body: body.to_vec(),
        ..CommandRecord::default()
    }
}

fn query(text: &str) -> CommandRecord {
    command(Command::QUERY, 0, text.as_bytes())
}

fn prepare(statement: u32, text: &str) -> CommandRecord {
    command(Command::STMT_PREPARE, statement, text.as_bytes())
}

/// An execution, a part of its parameters, its close.
fn with(what: Command, statement: u32) -> CommandRecord {
    let rest: &[u8] = match what {
        Command::STMT_EXECUTE => &[0, 1, 0, 0, 0],
        Command::STMT_SEND_LONG_DATA => b"\0\0part",
        _ => &[],
    };
    command(what, statement, &[&statement.to_le_bytes(), rest].concat())
}

/// What became of a command by the replayer that was killed.
#[derive(Clone, Copy)]
enum Was {
    /// Its record was written, with these flags.
    Done(Flags),
    /// It was sent, and no more was written.
    Sent,
    /// It was still to come.
    Open,
}

const DONE: Was = Was::Done(Flags(0));
const DONE_IN_TRANSACTION: Was = Was::Done(IN_TRANSACTION);

/// What the server is told by a replayer that goes on, and the records that it has written.
async fn resumed(commands: &[(CommandRecord, Was)]) -> (Vec<String>, Vec<CommandRecord>) {
    resumed_with(commands, false).await
}

fn order(from: &Path, result: &Path, target: SocketAddr, freezes_time: bool) -> Order {
    Order {
        from: from.to_owned(),
        key: None,
        target,
        result: result.to_owned(),
        logins: Logins {
            others: Some(Login {
                user: "app".to_owned(),
                password: String::new(),
            }),
            ..Logins::default()
        },
        speed: Speed::Max,
        permitted: Permitted::default(),
        selection: Selection::default(),
        schemas: HashMap::new(),
        closing: Closing::AsCaptured,
        even_source: true,
        any_position: true,
        orders_commits: false,
        freezes_time,
        follow: false,
        maps_ids: true,
        max_lateness: None,
        keeps_results: false,
    }
}

async fn resumed_with(
    commands: &[(CommandRecord, Was)],
    freezes_time: bool,
) -> (Vec<String>, Vec<CommandRecord>) {
    let place = tempfile::tempdir().unwrap();
    let (address, told) = server().await;
    let (from, result) = (place.path().join("from"), place.path().join("result"));
    let mut capture = FolderWriter::create(&from, Head::default(), FILE_MAX, None).unwrap();
    let of_replay = Head {
        kind: "replay".to_owned(),
        replay: Some(ReplayOf::default()),
        ..Head::default()
    };
    let mut killed = FolderWriter::create(&result, of_replay, FILE_MAX, None).unwrap();
    let mut journal = Journal::open(&result, true).unwrap();
    let session = SessionRecord {
        id: 1,
        user: "app".to_owned(),
        ..SessionRecord::default()
    };
    for folder in [&mut capture, &mut killed] {
        folder.put(&Record::Session(session.clone())).unwrap();
    }
    let mut done = 0;
    for (number, (command, was)) in commands.iter().enumerate() {
        let mut command = command.clone();
        command.number = number as u64;
        command.start_us = number as u64;
        capture.put(&Record::Command(Box::new(command.clone()))).unwrap();
        match was {
            Was::Open => continue,
            Was::Sent => {}
            Was::Done(flags) => {
                done += 1;
                command.flags = *flags;
                killed.put(&Record::Command(Box::new(command.clone()))).unwrap();
            }
        }
        journal.note(&command, Duration::ZERO, Duration::ZERO).unwrap();
    }
    capture.finish().unwrap();
    killed.finish().unwrap();
    drop(journal);
    let order = order(&from, &result, address, freezes_time);
    let before = Before::read(&result, None).unwrap();
    let survey = survey(&from, None, order.permitted, &order.selection, Some(&before)).unwrap();
    replay(order, &survey, Some(before), "test", |_| {})
        .await
        .unwrap();
    let mut folder = Folder::open(&result, None).unwrap();
    let mut records = Vec::new();
    while let Some(record) = folder.next_record().unwrap() {
        if let Record::Command(command) = record {
            records.push(*command);
        }
    }
    let mut told = told.lock().unwrap().clone();
    told.retain(|words| !words.starts_with("SELECT VERSION()") && !words.starts_with("SELECT @@GLOBAL"));
    told.retain(|words| !words.starts_with("SHOW ") && !words.starts_with("SELECT table_schema,"));
    (told, records.split_off(done))
}

/// What the server is told.
async fn told(commands: &[(CommandRecord, Was)]) -> Vec<String> {
    resumed(commands).await.0
}

#[tokio::test]
async fn the_rest_of_a_transaction_is_left_out_whatever_was_written_last() {
    let inside = [
        (prepare(5, "SELECT 1"), DONE),
        (query("BEGIN"), DONE_IN_TRANSACTION),
        (query("INSERT INTO t VALUES (1)"), DONE_IN_TRANSACTION),
        (with(Command::STMT_CLOSE, 5), DONE_IN_TRANSACTION),
        (query("INSERT INTO t VALUES (2)"), Was::Open),
        (query("SET @a = 1"), Was::Open),
        (query("CREATE TEMPORARY TABLE u (a INT)"), Was::Open),
        (query("INSERT INTO t VALUES (3)"), Was::Open),
        (query("COMMIT"), Was::Open),
        (query("INSERT INTO t VALUES (4)"), Was::Open),
    ];
    let (told, records) = resumed(&inside).await;
    let again = format!("{:?}", Command::STMT_CLOSE);
    assert_eq!(told[0], "PREPARE SELECT 1");
    assert!(told[1].starts_with(&again), "{told:?}");
    assert_eq!(told[2..], ["SET @a = 1", "INSERT INTO t VALUES (4)"]);
    // Who is killed now leaves the same behind, up to the end of the transaction.
    let flags: Vec<_> = records
        .iter()
        .map(|record| record.flags.has(IN_TRANSACTION))
        .collect();
    assert_eq!(flags, [true, true, true, true, false, false]);
    let left_out: Vec<_> = records
        .iter()
        .map(|record| record.flags.has(Flags::LEFT_OUT))
        .collect();
    assert_eq!(left_out, [true, false, true, true, true, false]);
}

#[tokio::test]
async fn a_replay_writes_of_each_command_whether_a_transaction_is_open() {
    let (_, records) = resumed(&[
        (prepare(5, "SELECT 1"), Was::Open),
        (query("BEGIN"), Was::Open),
        (with(Command::STMT_SEND_LONG_DATA, 5), Was::Open),
        (with(Command::STMT_EXECUTE, 5), Was::Open),
        (with(Command::STMT_CLOSE, 5), Was::Open),
        (query("KILL 5"), Was::Open),
        (query("COMMIT"), Was::Open),
        (command(Command::PING, 0, b""), Was::Open),
    ])
    .await;
    let flags: Vec<_> = records
        .iter()
        .map(|record| record.flags.has(IN_TRANSACTION))
        .collect();
    assert_eq!(flags, [false, true, true, true, true, true, false, false]);
}

#[tokio::test]
async fn a_transaction_without_begin_is_undone_too_and_ends_as_it_does() {
    let insert = |number| query(&format!("INSERT INTO t VALUES ({number})"));
    let heard = told(&[
        (query("SET autocommit = 0"), DONE),
        (insert(1), Was::Sent),
        (insert(2), Was::Open),
        (query("COMMIT"), Was::Open),
        (insert(3), Was::Open),
    ])
    .await;
    assert_eq!(heard, ["SET autocommit = 0", "INSERT INTO t VALUES (3)"]);
    let heard = told(&[
        (query("SET autocommit = 0"), DONE),
        (insert(1), DONE_IN_TRANSACTION),
        (insert(2), Was::Open),
        (query("SET autocommit = 1"), Was::Open),
        (insert(3), Was::Open),
    ])
    .await;
    let all = [
        "SET autocommit = 0",
        "SET autocommit = 1",
        "INSERT INTO t VALUES (3)",
    ];
    assert_eq!(heard, all);
    let heard = told(&[
        (query("XA START 'a'"), DONE_IN_TRANSACTION),
        (insert(1), Was::Open),
        (query("XA END 'a'"), Was::Open),
        (query("XA COMMIT 'a' ONE PHASE"), Was::Open),
        (insert(2), Was::Open),
    ])
    .await;
    assert_eq!(heard, ["INSERT INTO t VALUES (2)"]);
}

#[tokio::test]
async fn a_transaction_that_is_prepared_outlives_its_connection() {
    const START: &str = "XA START 'a'";
    const INSERT: &str = "INSERT INTO t VALUES (1)";
    const END: &str = "XA END 'a'";
    const PREPARE: &str = "XA PREPARE 'a'";
    const COMMIT: &str = "XA COMMIT 'a'";
    let with = |texts: &[&str], was| -> Vec<_> { texts.iter().map(|text| (query(text), was)).collect() };
    let all = [START, INSERT, END, PREPARE];
    let begun = with(&all[..3], DONE_IN_TRANSACTION);
    // A replayer that is killed behind it leaves nothing undone, whatever the server shows.
    let ping = (command(Command::PING, 0, b""), Was::Open);
    let (_, records) =
        resumed(&[with(&all, Was::Open), vec![ping], with(&[COMMIT], Was::Open)].concat()).await;
    let flags = records.iter().map(|record| record.flags.has(IN_TRANSACTION));
    assert_eq!(flags.collect::<Vec<_>>(), [true, true, true, false, false, false]);
    for was in [DONE, Was::Sent] {
        let rest = [with(&[PREPARE], was), with(&[COMMIT, INSERT], Was::Open)].concat();
        assert_eq!(told(&[begun.clone(), rest].concat()).await, [COMMIT, INSERT]);
    }
    // A transaction that is not prepared is gone.
    let end = [PREPARE, "XA ROLLBACK 'a'", INSERT];
    let undone = [begun, with(&end, Was::Open)].concat();
    assert_eq!(told(&undone).await, [INSERT]);
    // A connection is lost, and with it what the session had set.
    for (prepare, lost) in [(PREPARE, "SELECT LOST"), ("XA PREPARE 'a' -- LOST", "")] {
        let texts = ["SET @a = 1", START, INSERT, END, prepare, lost, COMMIT, INSERT];
        let texts: Vec<_> = texts.into_iter().filter(|text| !text.is_empty()).collect();
        let heard = told(&with(&texts, Was::Open)).await;
        assert_eq!(heard, texts[..texts.len() - 1]);
    }
    let texts = ["SET @a = 1", START, "INSERT LOST", END, PREPARE, COMMIT, INSERT];
    assert_eq!(told(&with(&texts, Was::Open)).await, texts[..3]);
}

#[tokio::test]
async fn a_prepared_statement_is_in_a_transaction_as_its_text_is() {
    let insert = |number| query(&format!("INSERT INTO t VALUES ({number})"));
    let heard = told(&[
        (prepare(1, "COMMIT"), DONE),
        (prepare(2, "SET @a = ?"), DONE),
        (with(Command::STMT_EXECUTE, 2), DONE),
        (query("BEGIN"), Was::Sent),
        (insert(1), Was::Open),
        (with(Command::STMT_EXECUTE, 1), Was::Open),
        (insert(2), Was::Open),
    ])
    .await;
    let all = [
        "PREPARE COMMIT",
        "PREPARE SET @a = ?",
        "EXECUTE 2",
        "INSERT INTO t VALUES (2)",
    ];
    assert_eq!(heard, all);
}

#[tokio::test]
async fn nothing_that_writes_is_said_again_as_a_setting() {
    let insert = query("INSERT INTO t VALUES (1)");
    let writes = "SET STATEMENT max_statement_time=1 FOR INSERT INTO t VALUES (0)";
    let heard = told(&[
        (query(writes), DONE),
        // It was for a transaction that is over.
        (query("/* x */ SET TRANSACTION READ ONLY"), DONE),
        (query("SET @a = 1"), DONE),
        (insert.clone(), Was::Open),
    ])
    .await;
    assert_eq!(heard, ["SET @a = 1", "INSERT INTO t VALUES (1)"]);
    for text in [
        "SET @x = f()",
        "SET a=1; SELECT f()",
        "SET @id = LAST_INSERT_ID()",
    ] {
        for was in [DONE, Was::Sent] {
            // Behind what is not set nothing is sent, until the session is as new.
            let (told, records) = resumed(&[
                (query("SET NAMES utf8mb4"), DONE),
                (query(text), was),
                (insert.clone(), Was::Open),
                (query("BEGIN"), Was::Open),
                (insert.clone(), Was::Open),
                (command(Command::RESET_CONNECTION, 0, b""), Was::Open),
                (insert.clone(), Was::Open),
            ])
            .await;
            let all = ["SET NAMES utf8mb4", "RESET", "INSERT INTO t VALUES (1)"];
            assert_eq!(told, all, "{text}");
            let flags = records.iter().map(|record| record.flags.has(Flags::LEFT_OUT));
            let flags: Vec<_> = flags.skip(records.len() - 5).collect();
            assert_eq!(flags, [true, true, true, false, false], "{text}");
        }
    }
}

#[tokio::test]
async fn a_setting_is_made_again_where_nobody_knows_whether_it_was_made() {
    let heard = told(&[
        (command(Command::INIT_DB, 0, b"shop"), Was::Sent),
        (query("USE stock"), Was::Sent),
        (query("SET NAMES utf8mb4"), Was::Sent),
        (prepare(7, "INSERT INTO t VALUES (1)"), Was::Sent),
        (query("INSERT INTO t VALUES (2)"), Was::Sent),
        (with(Command::STMT_EXECUTE, 7), Was::Open),
    ])
    .await;
    let all = [
        "USE shop",
        "USE stock",
        "SET NAMES utf8mb4",
        "PREPARE INSERT INTO t VALUES (1)",
        "EXECUTE 1",
    ];
    assert_eq!(heard, all);
    let heard = told(&[
        (prepare(7, "SELECT 1"), DONE),
        (command(Command::RESET_CONNECTION, 0, b""), Was::Sent),
        (with(Command::STMT_EXECUTE, 7), Was::Open),
    ])
    .await;
    assert_eq!(heard, ["PREPARE SELECT 1", "RESET"]);
}

#[tokio::test]
async fn no_execution_is_sent_without_the_parts_that_were_sent_before() {
    let part = with(Command::STMT_SEND_LONG_DATA, 7);
    let execution = with(Command::STMT_EXECUTE, 7);
    for was in [DONE, Was::Sent] {
        let (told, records) = resumed(&[
            (prepare(7, "INSERT INTO t VALUES (?)"), DONE),
            (part.clone(), was),
            (part.clone(), Was::Open),
            (execution.clone(), Was::Open),
            (part.clone(), Was::Open),
            (execution.clone(), Was::Open),
        ])
        .await;
        let all = ["PREPARE INSERT INTO t VALUES (?)", "PART 1", "EXECUTE 1"];
        assert_eq!(told, all);
        let left_out = records.iter().filter(|record| record.flags.has(Flags::LEFT_OUT));
        assert_eq!(left_out.count(), records.len() - 2);
    }
    let mut cut = part.clone();
    cut.flags.set(Flags::CUT);
    let heard = told(&[
        (prepare(7, "INSERT INTO t VALUES (?)"), Was::Open),
        (part.clone(), Was::Open),
        (cut, Was::Open),
        (execution.clone(), Was::Open),
        (part, Was::Open),
        (execution, Was::Open),
    ])
    .await;
    let reset = format!("{:?}\u{1}\0\0\0", Command::STMT_RESET);
    let all = [
        "PREPARE INSERT INTO t VALUES (?)",
        "PART 1",
        &reset,
        "PART 1",
        "EXECUTE 1",
    ];
    assert_eq!(heard, all);
}

#[tokio::test]
async fn an_execution_has_types_whatever_was_sent_before_it() {
    let prepared = CommandRecord {
        parameters: 1,
        ..prepare(7, "INSERT INTO t VALUES (?)")
    };
    let execution = |rest: &[u8]| {
        let mut execution = with(Command::STMT_EXECUTE, 7);
        execution.body.extend_from_slice(rest);
        execution
    };
    let (typed, untyped) = (execution(&[0, 1, 1, 0, 5]), execution(&[0, 0, 6]));
    let heard = told(&[
        (prepared.clone(), DONE),
        (typed.clone(), DONE),
        (untyped.clone(), Was::Open),
    ])
    .await;
    let expected = ["PREPARE INSERT INTO t VALUES (?)", "EXECUTE 1 [0, 1, 1, 0, 6]"];
    assert_eq!(heard, expected);
    // Which types those had that were too long to be captured nobody knows.
    let mut cut = command(Command::STMT_EXECUTE, 7, b"");
    cut.flags.set(Flags::CUT);
    let heard = told(&[
        (prepared, Was::Open),
        (cut, Was::Open),
        (untyped.clone(), Was::Open),
        (typed, Was::Open),
        (untyped, Was::Open),
    ])
    .await;
    let expected = [
        "PREPARE INSERT INTO t VALUES (?)",
        "EXECUTE 1 [0, 1, 1, 0, 5]",
        "EXECUTE 1 [0, 1, 1, 0, 6]",
    ];
    assert_eq!(heard, expected);
}

#[tokio::test]
async fn the_rest_of_a_transaction_goes_with_its_connection() {
    let open = |text| (query(text), Was::Open);
    let all = ["BEGIN", "INSERT LOST", "INSERT 2", "COMMIT", "INSERT 3"].map(open);
    assert_eq!(told(&all).await, ["BEGIN", "INSERT LOST", "INSERT 3"]);
    let all = ["BEGIN -- LOST", "INSERT 1", "ROLLBACK", "INSERT 2"].map(open);
    assert_eq!(told(&all).await, ["BEGIN -- LOST", "INSERT 2"]);
    // Alone it is one of its own.
    let all = ["INSERT LOST", "INSERT 2"].map(open);
    assert_eq!(told(&all).await, ["INSERT LOST", "INSERT 2"]);
}

#[tokio::test]
async fn nothing_is_sent_without_the_settings_that_went_with_a_connection() {
    let open = |text| (query(text), Was::Open);
    for sets in ["SET @a = 1", "USE shop", "CREATE TEMPORARY TABLE t (a INT)"] {
        let mut all = [sets, "INSERT LOST", "INSERT 2", "BEGIN", "INSERT 3"]
            .map(open)
            .to_vec();
        all.push((command(Command::RESET_CONNECTION, 0, b""), Was::Open));
        all.push(open("INSERT 4"));
        let mut expected = vec![sets, "INSERT LOST", "RESET", "INSERT 4"];
        if sets == "USE shop" {
            // A reset keeps the schema.
            all[1..]
                .iter_mut()
                .for_each(|(command, _)| command.schema = b"shop".to_vec());
            expected.insert(2, sets);
        }
        let (told, records) = resumed(&all).await;
        assert_eq!(told, expected);
        let left_out = records.iter().filter(|record| record.flags.has(Flags::LEFT_OUT));
        assert_eq!(left_out.count(), 3);
    }
}

#[tokio::test]
async fn a_session_is_in_its_schema_behind_a_reset() {
    let of = |schema: &str, mut command: CommandRecord, was| {
        command.schema = schema.as_bytes().to_vec();
        (command, was)
    };
    let reset = || command(Command::RESET_CONNECTION, 0, b"");
    // Nothing is set any more when the connection is lost, but the schema.
    let heard = told(&[
        of("", query("USE stock"), Was::Open),
        of("stock", reset(), Was::Open),
        of("stock", query("INSERT LOST"), Was::Open),
        of("stock", query("INSERT 2"), Was::Open),
    ])
    .await;
    assert_eq!(
        heard,
        ["USE stock", "RESET", "INSERT LOST", "USE stock", "INSERT 2"]
    );
    // What goes there is left out.
    for was in [DONE, Was::Open] {
        let heard = told(&[
            of("", query("SET @x = f()"), DONE),
            of("", query("USE stock"), was),
            of("stock", reset(), was),
            of("stock", query("INSERT 1"), Was::Open),
        ])
        .await;
        assert_eq!(heard, ["USE stock", "RESET", "INSERT 1"]);
    }
}

#[tokio::test]
async fn a_session_that_has_changed_its_user_is_in_the_schema_that_it_has_then() {
    let of = |schema: &str, mut command: CommandRecord| {
        command.schema = schema.as_bytes().to_vec();
        (command, Was::Open)
    };
    let heard = told(&[
        of("", query("USE stock")),
        of("stock", command(Command::CHANGE_USER, 0, b"")),
        of("shop", query("INSERT 1")),
        of("shop", command(Command::CHANGE_USER, 0, b"")),
        of("", query("INSERT 2")),
    ])
    .await;
    assert_eq!(heard, ["USE stock", "USE shop", "INSERT 1", "INSERT 2"]);
}

#[tokio::test]
async fn nobody_is_asked_about_statements_of_another_connection() {
    let open = |text| (query(text), Was::Open);
    let asks = "INSERT INTO t VALUES (LAST_INSERT_ID())";
    let rest = [
        asks,
        "INSERT 2",
        asks,
        "SELECT ROW_COUNT()",
        "INSERT -- makes an id",
        asks,
    ]
    .map(open);
    let expected = ["INSERT 2", "SELECT ROW_COUNT()", "INSERT -- makes an id", asks];
    for first in [
        open("INSERT 1 LOST"),
        (query("INSERT 1"), DONE),
        (query("INSERT 1"), Was::Sent),
    ] {
        let is_open = matches!(first.1, Was::Open);
        let (heard, records) = resumed(&[&[first], &rest[..]].concat()).await;
        assert_eq!(heard[usize::from(is_open)..], expected);
        let rest = &records[records.len() - rest.len()..];
        let left_out: Vec<_> = rest
            .iter()
            .map(|record| record.flags.has(Flags::LEFT_OUT))
            .collect();
        assert_eq!(left_out, [true, false, true, false, false, false]);
    }
    // Rows that were found are not those of a statement without any.
    let all = [
        "INSERT LOST",
        "SELECT ROW_COUNT()",
        "INSERT 2",
        "SELECT FOUND_ROWS()",
    ]
    .map(open);
    assert_eq!(told(&all).await, ["INSERT LOST", "INSERT 2"]);
    let sets = "UPDATE t SET a = LAST_INSERT_ID(a + 1)";
    assert_eq!(
        told(&["INSERT LOST", sets].map(open)).await,
        ["INSERT LOST", sets]
    );
    // What is set to it is missed.
    let all = ["INSERT LOST", "SET @id = LAST_INSERT_ID()", "INSERT 2"].map(open);
    assert_eq!(told(&all).await, ["INSERT LOST"]);
    let reset = (command(Command::RESET_CONNECTION, 0, b""), Was::Open);
    let all = [open("INSERT LOST"), reset, open(asks)];
    assert_eq!(told(&all).await, ["INSERT LOST", "RESET", asks]);
    // An execution asks as its text does.
    let all = [
        (prepare(5, asks), DONE),
        (query("INSERT 1"), DONE),
        (with(Command::STMT_EXECUTE, 5), Was::Open),
        open("INSERT 2"),
    ];
    assert_eq!(told(&all).await, [&format!("PREPARE {asks}"), "INSERT 2"]);
}

#[tokio::test]
async fn a_setting_that_is_lost_itself_is_missed() {
    let open = |text| (query(text), Was::Open);
    for sets in [
        "SET @a = 1 -- LOST",
        "USE shop -- LOST",
        "CREATE TEMPORARY TABLE t (a INT) -- LOST",
        "SET @a = 1; INSERT LOST",
        "PREPARE s FROM 'SELECT 1' -- LOST",
    ] {
        let (heard, records) = resumed(&[sets, "INSERT 2"].map(open)).await;
        assert_eq!(heard, [sets], "{sets}");
        assert!(records[1].flags.has(Flags::LEFT_OUT), "{sets}");
    }
    let all = [(prepare(5, "SELECT 1 -- LOST"), Was::Open), open("INSERT 2")];
    assert_eq!(told(&all).await, ["PREPARE SELECT 1 -- LOST"]);
    // The one that has failed then may have come behind one that has set something.
    let mut several = query("SET @a = 1; INSERT LOST");
    several.error = 1146;
    let all = [(several, Was::Open), open("INSERT 2")];
    assert_eq!(told(&all).await, ["SET @a = 1; INSERT LOST"]);
    let mut failed = query("SET nothing = 1 -- LOST");
    failed.error = 1193;
    let all = [(failed, Was::Open), open("INSERT 2")];
    assert_eq!(told(&all).await, ["SET nothing = 1 -- LOST", "INSERT 2"]);
}

#[tokio::test]
async fn times_are_frozen_for_what_was_prepared_before_and_until_the_session_has_its_own() {
    let executes = (with(Command::STMT_EXECUTE, 5), Was::Open);
    let all = [
        (prepare(5, "INSERT INTO t VALUES (NOW())"), DONE),
        executes.clone(),
        (query("SET timestamp = 7"), Was::Open),
        executes.clone(),
        (query("SET timestamp = DEFAULT"), Was::Open),
        executes,
    ];
    let (told, _) = resumed_with(&all, true).await;
    let expected = [
        "PREPARE INSERT INTO t VALUES (NOW())",
        "SET TIMESTAMP = 0.000001",
        "EXECUTE 1",
        "SET timestamp = 7",
        "EXECUTE 1",
        "SET timestamp = DEFAULT",
        "SET TIMESTAMP = 0.000005",
        "EXECUTE 1",
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn times_are_frozen_on_a_new_connection_as_well() {
    let all = [
        (query("INSERT LOST"), Was::Open),
        (query("INSERT 2"), Was::Open),
        (command(Command::CHANGE_USER, 0, b""), Was::Open),
        (query("INSERT 3"), Was::Open),
    ];
    let (told, _) = resumed_with(&all, true).await;
    let expected = [
        "SET TIMESTAMP = 0.000000",
        "INSERT LOST",
        "SET TIMESTAMP = 0.000001",
        "INSERT 2",
        "SET TIMESTAMP = 0.000003",
        "INSERT 3",
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn nothing_stands_between_a_statement_and_who_asks_for_its_rows() {
    let asks = "INSERT INTO t VALUES (ROW_COUNT())";
    let all = [
        (query("INSERT 1"), Was::Open),
        (query(asks), Was::Open),
        (prepare(5, asks), Was::Open),
        (with(Command::STMT_EXECUTE, 5), Was::Open),
    ];
    let (told, _) = resumed_with(&all, true).await;
    let prepare = format!("PREPARE {asks}");
    let expected = [
        "SET TIMESTAMP = 0.000000",
        "INSERT 1",
        asks,
        &prepare,
        "EXECUTE 1",
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn only_what_sets_nothing_else_gives_the_time_back() {
    for (sets, gives_back) in [
        ("set @@session.timestamp = 0;", true),
        ("SET SESSION timestamp=default", true),
        ("/* x */ SET timestamp = 0", true),
        ("SET timestamp = 9, @a = 0", false),
        ("SET timestamp = 9, sql_mode = DEFAULT", false),
        ("SET @a = 'timestamp=0'", false),
        ("SET timestamp = 1.0", false),
        ("SET timestamp = 0.5", false),
        ("SET timestamp = 0, timestamp = 9", false),
    ] {
        let all = ["SET timestamp = 7", sets, "INSERT 1"].map(|text| (query(text), Was::Open));
        let (told, _) = resumed_with(&all, true).await;
        assert_eq!(told.len(), 3 + usize::from(gives_back), "{told:?}");
    }
    // It is another variable.
    let all = ["SET explicit_defaults_for_timestamp = 1", "INSERT 1"].map(|text| (query(text), Was::Open));
    assert_eq!(resumed_with(&all, true).await.0.len(), 3);
}

#[tokio::test]
async fn statements_that_were_prepared_by_text_are_prepared_again() {
    let all = [
        (query("PREPARE s FROM 'SELECT 1'"), DONE),
        (query("EXECUTE s"), Was::Open),
    ];
    assert_eq!(told(&all).await, ["PREPARE s FROM 'SELECT 1'", "EXECUTE s"]);
    let all = [
        (query("SET autocommit = 0; INSERT 1"), DONE),
        (query("INSERT 2"), Was::Open),
    ];
    assert_eq!(told(&all).await, [""; 0], "what it has set is not set again");
}

/// Makes a capture of one session of several users.
fn captured(folder: &Path, commands: &[(&str, CommandRecord)]) {
    let mut capture = FolderWriter::create(folder, Head::default(), FILE_MAX, None).unwrap();
    for (number, (user, command)) in (0..).zip(commands) {
        let session = SessionRecord {
            id: 1,
            user: (*user).to_owned(),
            capabilities: Capabilities::LOCAL_FILES.0,
            ..SessionRecord::default()
        };
        let command = CommandRecord {
            number,
            ..command.clone()
        };
        capture.put(&Record::Session(session)).unwrap();
        capture.put(&Record::Command(Box::new(command))).unwrap();
    }
    capture.finish().unwrap();
}

#[test]
fn a_session_that_begins_anew_is_counted_once() {
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("from");
    let change = || command(Command::CHANGE_USER, 0, b"");
    let commands = [
        ("app", query("INSERT 1")),
        ("app", change()),
        ("app", change()),
        ("other", change()),
    ];
    captured(&from, &commands);
    let survey = survey(&from, None, Permitted::default(), &Selection::default(), None).unwrap();
    let users = BTreeMap::from([("app".to_owned(), 1), ("other".to_owned(), 1)]);
    assert_eq!(survey.users, users);
}

/// Thousands of them, at once, would be more than a server takes.
#[tokio::test]
async fn sessions_in_which_nothing_is_chosen_are_not_connected() {
    let place = tempfile::tempdir().unwrap();
    let (address, told) = server().await;
    let (from, result) = (place.path().join("from"), place.path().join("result"));
    let mut capture = FolderWriter::create(&from, Head::default(), FILE_MAX, None).unwrap();
    let times: [&[u64]; 4] = [&[0, 1], &[0, 10], &[20, 21], &[]];
    for (id, times) in (1..).zip(times) {
        let session = SessionRecord {
            id,
            user: "app".to_owned(),
            schema: format!("shop{id}").into_bytes(),
            was_open: true,
            ..SessionRecord::default()
        };
        capture.put(&Record::Session(session)).unwrap();
        for (number, start_us) in (0..).zip(times) {
            let text = if number == 0 { "SET @a = 1" } else { "INSERT 1" };
            let command = CommandRecord {
                session: id,
                number,
                start_us: *start_us,
                ..query(text)
            };
            capture.put(&Record::Command(Box::new(command))).unwrap();
        }
    }
    capture.finish().unwrap();
    let mut order = order(&from, &result, address, false);
    (order.selection.from_us, order.selection.until_us) = (5, Some(15));
    let survey = survey(&from, None, order.permitted, &order.selection, None).unwrap();
    assert_eq!((survey.commands, survey.left_out[&LeftOut::NotChosen]), (6, 4));
    let outcome = replay(order, &survey, None, "test", |_| {}).await.unwrap();
    assert_eq!((outcome.sessions, outcome.was_open, outcome.sent), (1, 1, 2));
    assert_eq!(outcome.left_out[&LeftOut::NotChosen], 4);
    let mut told = told.lock().unwrap().clone();
    told.retain(|words| words.starts_with("USE ") || words.starts_with("INSERT"));
    assert_eq!(told, ["USE shop2", "INSERT 1"]);
}

/// Transactions of others do not wait for the commits of the session that has failed.
#[tokio::test]
async fn a_session_that_fails_is_named_and_the_others_go_on() {
    let place = tempfile::tempdir().unwrap();
    let (address, told) = server().await;
    let (from, result) = (place.path().join("from"), place.path().join("result"));
    let mut capture = FolderWriter::create(&from, Head::default(), FILE_MAX, None).unwrap();
    for id in [1, 2] {
        let session = SessionRecord {
            id,
            user: "app".to_owned(),
            ..SessionRecord::default()
        };
        capture.put(&Record::Session(session)).unwrap();
    }
    // Transactions of the second session had begun long after those before had ended.
    let texts = [
        (1, 0, "INSERT 1"),
        (1, 1, "INSERT PANICS"),
        (1, 2, "INSERT 2"),
        (2, 0, "INSERT 3"),
        (2, 1, "INSERT 4"),
    ];
    for (at, (session, number, text)) in (0..).zip(texts) {
        let command = CommandRecord {
            session,
            number,
            start_us: at * 1_000_000,
            ..query(text)
        };
        capture.put(&Record::Command(Box::new(command))).unwrap();
    }
    capture.finish().unwrap();
    let mut order = order(&from, &result, address, false);
    order.orders_commits = true;
    let survey = survey(&from, None, order.permitted, &order.selection, None).unwrap();
    let outcome = replay(order, &survey, None, "test", |_| {}).await.unwrap();
    assert_eq!(
        outcome.failed,
        BTreeMap::from([(1, "as a test wants it".to_owned())])
    );
    assert_eq!(outcome.left_out, BTreeMap::from([(LeftOut::SessionFailed, 1)]));
    assert_eq!((outcome.sent, outcome.out_of_order), (3, 0));
    let told = told.lock().unwrap();
    let inserts: Vec<_> = told.iter().filter(|words| words.starts_with("INSERT")).collect();
    assert_eq!(inserts, ["INSERT 1", "INSERT 3", "INSERT 4"]);
    let mut folder = Folder::open(&result, None).unwrap();
    let records: Vec<_> = std::iter::from_fn(|| folder.next_record().unwrap()).collect();
    let left_out = records.iter().find_map(|record| match record {
        Record::Command(command) if command.flags.has(Flags::LEFT_OUT) => Some(command.flags),
        _ => None,
    });
    assert!(
        left_out.is_some_and(|flags| flags.has(Flags::IN_TRANSACTION)),
        "a replay that goes on with it would send the rest of a transaction"
    );
    let Some(Record::End(end)) = records.last() else {
        panic!("it has no end");
    };
    assert_eq!(
        (&end.reason[..], &end.words[..]),
        ("error", "sessions that have failed: 1")
    );
}

/// Whoever goes on with a result takes all before a session's last record for done.
#[tokio::test]
async fn what_is_left_out_of_a_session_is_written_in_its_order() {
    let place = tempfile::tempdir().unwrap();
    let (address, told) = server().await;
    let (from, result) = (place.path().join("from"), place.path().join("result"));
    let change = || command(Command::CHANGE_USER, 0, b"");
    let commands = [
        ("app", query("INSERT 1")),
        ("app", query("INSERT 2")),
        ("other", change()),
        ("other", query("INSERT 3")),
        ("app", change()),
        ("app", query("INSERT 4")),
    ];
    captured(&from, &commands);
    let mut order = order(&from, &result, address, false);
    order.selection.user = Some("app".to_owned());
    let survey = survey(&from, None, order.permitted, &order.selection, None).unwrap();
    replay(order, &survey, None, "test", |_| {}).await.unwrap();
    let told = told.lock().unwrap();
    let inserts: Vec<_> = told.iter().filter(|words| words.starts_with("INSERT")).collect();
    assert_eq!(inserts, ["INSERT 1", "INSERT 2", "INSERT 4"]);
    let mut folder = Folder::open(&result, None).unwrap();
    let mut records = Vec::new();
    while let Some(record) = folder.next_record().unwrap() {
        if let Record::Command(command) = record {
            records.push((command.number, command.flags.has(Flags::LEFT_OUT)));
        }
    }
    let expected = [false, false, true, true, false, false];
    assert_eq!(records, (0..).zip(expected).collect::<Vec<_>>());
}

#[test]
fn nothing_is_written_behind_what_could_not_be() {
    let place = tempfile::tempdir().unwrap();
    let (from, result) = (place.path().join("from"), place.path().join("result"));
    let target = SocketAddr::from(([127, 0, 0, 1], 1));
    let shared = Shared {
        order: order(&from, &result, target, false),
        writer: RefCell::new(FolderWriter::create(&result, Head::default(), FILE_MAX, None).unwrap()),
        journal: RefCell::new(Journal::open(&result, true).unwrap()),
        before: None,
        commits: Rc::default(),
        ids: Rc::new(Ids::new(Keys::default())),
        captured_unix_us: 0,
        failed: RefCell::default(),
        began: Instant::now(),
        progress: RefCell::default(),
        outcome: RefCell::default(),
        timeline: RefCell::default(),
    };
    let put = |number| {
        let command = CommandRecord {
            number,
            ..query("SELECT 1")
        };
        shared.put(&Record::Command(Box::new(command)));
    };
    put(0);
    let file = crate::file::files_of(&result).unwrap().remove(0);
    let len = || file.metadata().unwrap().len();
    let head_len = len();
    *shared.failed.borrow_mut() = Some(FileError::Empty(result.clone()));
    put(1);
    shared.flush();
    assert_eq!(len(), head_len, "nothing is flushed");
    shared.writer.into_inner().finish().unwrap();
    let mut folder = Folder::open(&result, None).unwrap();
    let written = std::iter::from_fn(|| folder.next_record().unwrap());
    assert_eq!(written.count(), 1);
}

#[tokio::test]
async fn results_are_kept_in_front_of_their_commands_where_they_are_to_be() {
    let place = tempfile::tempdir().unwrap();
    let (address, _) = server().await;
    let from = place.path().join("from");
    let commands = ["SELECT 1 AS a_short", "INSERT 1", "SELECT 1 AS a_long"];
    captured(&from, &commands.map(|text| ("app", query(text))));
    for keeps_results in [true, false] {
        let result = place.path().join(keeps_results.to_string());
        let mut order = order(&from, &result, address, false);
        order.keeps_results = keeps_results;
        let survey = survey(&from, None, order.permitted, &order.selection, None).unwrap();
        replay(order, &survey, None, "test", |_| {}).await.unwrap();
        let mut folder = Folder::open(&result, None).unwrap();
        let mut records = Vec::new();
        while let Some(record) = folder.next_record().unwrap() {
            match record {
                Record::Result(result) => records.push(format!("{} {}", result.number, result.text)),
                Record::Command(command) => records.push(command.number.to_string()),
                _ => {}
            }
        }
        match keeps_results {
            true => assert_eq!(records, ["0 a\\tb\n", "0", "1", "2 …\n", "2"]),
            false => assert_eq!(records, ["0", "1", "2"]),
        }
    }
}

#[tokio::test]
async fn the_end_of_a_replay_in_time_says_how_late_it_was() {
    let place = tempfile::tempdir().unwrap();
    let (address, _) = server().await;
    let from = place.path().join("from");
    captured(&from, &[("app", query("INSERT 1"))]);
    for (speed, limit, is_late) in [
        (Speed::Times(1.0), Some(Duration::ZERO), Some(true)),
        (Speed::Times(1.0), Some(Duration::from_secs(3600)), Some(false)),
        (Speed::Times(1.0), None, Some(false)),
        (Speed::Max, None, None),
    ] {
        let result = place.path().join(format!("{speed:?} {limit:?}"));
        let mut order = order(&from, &result, address, false);
        (order.speed, order.max_lateness) = (speed, limit);
        let survey = survey(&from, None, order.permitted, &order.selection, None).unwrap();
        let outcome = replay(order, &survey, None, "test", |_| {}).await.unwrap();
        let verdict = |lateness: &Lateness| lateness.verdict().is_some();
        assert_eq!(
            outcome.lateness.as_ref().map(verdict),
            is_late,
            "{speed:?} {limit:?}"
        );
        let mut folder = Folder::open(&result, None).unwrap();
        let records = std::iter::from_fn(|| folder.next_record().unwrap());
        let Some(Record::End(end)) = records.last() else {
            panic!("it has no end");
        };
        assert_eq!(end.lateness, outcome.lateness);
        assert_eq!(
            end.lateness.is_some_and(|lateness| !lateness.timeline.is_empty()),
            is_late.is_some()
        );
    }
}

#[tokio::test]
async fn a_replay_that_goes_on_says_how_late_it_was_before() {
    let place = tempfile::tempdir().unwrap();
    let (address, _) = server().await;
    let (from, result) = (place.path().join("from"), place.path().join("result"));
    captured(&from, &["INSERT 1", "INSERT 2"].map(|text| ("app", query(text))));
    let of_replay = Head {
        kind: "replay".to_owned(),
        replay: Some(ReplayOf::default()),
        ..Head::default()
    };
    let mut killed = FolderWriter::create(&result, of_replay, FILE_MAX, None).unwrap();
    let done = query("INSERT 1");
    let (at, late) = (Duration::from_millis(100), Duration::from_secs(7));
    let mut journal = Journal::open(&result, true).unwrap();
    journal.note(&done, at, late).unwrap();
    drop(journal);
    killed.put(&Record::Command(Box::new(done))).unwrap();
    killed.finish().unwrap();
    let before = Before::read(&result, None).unwrap();
    let mut order = order(&from, &result, address, false);
    order.speed = Speed::Times(1.0);
    let survey = survey(&from, None, order.permitted, &order.selection, Some(&before)).unwrap();
    let outcome = replay(order, &survey, Some(before), "test", |_| {})
        .await
        .unwrap();
    assert_eq!((survey.done_before, outcome.sent), (1, 1));
    let lateness = outcome.lateness.unwrap();
    assert!(lateness.p99_us >= 7_000_000, "{lateness:?}");
    assert_eq!(lateness.timeline[1], 7_000_000);
}

#[tokio::test]
async fn files_that_were_captured_are_loaded_and_no_others() {
    const ONE: &str = "LOAD DATA LOCAL INFILE 'a' INTO TABLE t";
    const TWO: &str = "LOAD DATA LOCAL INFILE 'a' INTO TABLE t; LOAD DATA LOCAL INFILE 'b' INTO TABLE t";

    let place = tempfile::tempdir().unwrap();
    let (address, told) = server().await;
    let (from, result) = (place.path().join("from"), place.path().join("result"));
    let load = |text: &str, files: &[&str]| {
        let files = files.iter().map(|file| file.as_bytes().to_vec());
        let command = CommandRecord {
            files: files.collect(),
            ..query(text)
        };
        ("app", command)
    };
    let long = "1234567\n".repeat(10_000);
    let commands = [
        load(ONE, &[&long]),
        load(TWO, &["2\n", ""]),
        load(ONE, &[]),
        // The target asks for one more than the source did.
        load(TWO, &["3\n"]),
        load("INSERT 1", &[]),
    ];
    captured(&from, &commands);
    let order = order(&from, &result, address, false);
    let survey = survey(&from, None, order.permitted, &order.selection, None).unwrap();
    assert_eq!(survey.left_out, BTreeMap::from([(LeftOut::LocalFile, 1)]));
    let outcome = replay(order, &survey, None, "test", |_| {}).await.unwrap();
    assert_eq!(outcome.left_out, BTreeMap::from([(LeftOut::LocalFile, 2)]));
    let told = told.lock().unwrap();
    let begin = told.iter().position(|words| words == ONE).unwrap();
    let long = format!("FILE {long}");
    let expected = [
        ONE, &long, TWO, "FILE 2\n", "FILE ", TWO, "FILE 3\n", "FILE ", "INSERT 1",
    ];
    assert_eq!(told[begin..], expected);
    let mut folder = Folder::open(&result, None).unwrap();
    let mut left_out = Vec::new();
    while let Some(record) = folder.next_record().unwrap() {
        if let Record::Command(command) = record {
            assert!(command.files.is_empty(), "a result has no files");
            left_out.push(command.flags.has(Flags::LEFT_OUT));
        }
    }
    assert_eq!(left_out, [false, false, true, true, false]);
}

#[tokio::test]
async fn a_user_that_may_not_log_in_keeps_no_other_out() {
    let place = tempfile::tempdir().unwrap();
    let (address, told) = server().await;
    let (from, result) = (place.path().join("from"), place.path().join("result"));
    let commands = [
        ("nobody", query("INSERT 1")),
        ("app", command(Command::CHANGE_USER, 0, b"")),
        ("app", query("INSERT 2")),
    ];
    captured(&from, &commands);
    let mut order = order(&from, &result, address, false);
    let nobody = Login {
        user: "nobody".to_owned(),
        password: String::new(),
    };
    order.logins.by_user.insert("nobody".to_owned(), nobody);
    let survey = survey(&from, None, order.permitted, &order.selection, None).unwrap();
    let outcome = replay(order, &survey, None, "test", |_| {}).await.unwrap();
    assert!(outcome.no_login.is_some());
    let told = told.lock().unwrap();
    let inserts: Vec<_> = told.iter().filter(|words| words.starts_with("INSERT")).collect();
    assert_eq!(inserts, ["INSERT 2"]);
}

#[tokio::test]
async fn of_a_list_that_is_too_long_nothing_is_used() {
    let (address, _) = server().await;
    let login = Login {
        user: "app".to_owned(),
        password: String::new(),
    };
    let session = SessionRecord::default();
    let mut client = client::Client::connect(address, &login, &session).await.unwrap();
    assert!(client.rows("SELECT short").await.unwrap().is_empty());
    assert!(matches!(
        client.rows("SELECT long").await,
        Err(ClientError::TooLong)
    ));
}

#[tokio::test]
async fn of_a_cluster_the_first_server_that_takes_writes_is_the_target() {
    let (replica, _) = server_that_ends(READ_ONLY).await;
    let (fails, _) = server_that_ends(b"SELECT @@GLOBAL.read_only").await;
    let ((primary, _), (other, _)) = (server().await, server().await);
    // The kernel gives nobody this port by itself.
    let gone = SocketAddr::from(([127, 0, 0, 1], 1));
    let logins = order(Path::new(""), Path::new(""), gone, false).logins;
    let found = primary_of(&[gone, replica, fails, primary, other], &logins).await;
    assert_eq!(found.unwrap(), primary);
    let none = primary_of(&[gone, replica], &logins)
        .await
        .unwrap_err()
        .to_string();
    assert!(none.contains(&format!("{gone}: no connection")), "{none}");
    assert!(none.contains(&format!("{replica} is read_only")), "{none}");
}

#[test]
fn long_commands_that_are_read_ahead_have_little_memory() {
    let of = |len| places(&command(Command::QUERY, 0, &vec![b'x'; len]));
    assert_eq!((of(0), of(AHEAD_BYTES - 1), of(AHEAD_BYTES)), (1, 1, 2));
    assert_eq!(of(1 << 20), 257);
    let loads = CommandRecord {
        files: vec![vec![0; AHEAD_BYTES]; 2],
        ..query("")
    };
    assert_eq!(places(&loads), 3);
}

#[tokio::test]
async fn who_cannot_ask_for_ids_is_told_of_the_option() {
    let (address, _) = server_that_ends(b"WHERE referenced_table_name IS NOT NULL").await;
    let place = tempfile::tempdir().unwrap();
    let (from, result) = (place.path().join("from"), place.path().join("result"));
    let capture = FolderWriter::create(&from, Head::default(), FILE_MAX, None).unwrap();
    capture.finish().unwrap();
    let survey = Survey::default();
    let replayed = |maps_ids| {
        let order = Order {
            maps_ids,
            ..order(&from, &result, address, false)
        };
        replay(order, &survey, None, "test", |_| {})
    };
    let error = replayed(true).await.unwrap_err().to_string();
    assert!(error.contains("--map-ids no"), "{error}");
    replayed(false).await.unwrap();
}

#[test]
fn a_target_at_another_position_than_the_captured_primary_is_refused() {
    const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    let server = |role: &str, server_uuid: Option<&str>, gtid_position: &str| ServerAtStart {
        name: format!("the {role}"),
        role: role.to_owned(),
        server_uuid: server_uuid.map(str::to_owned),
        gtid_position: Some(gtid_position.to_owned()),
        ..ServerAtStart::default()
    };
    let refused = |servers: &[ServerAtStart], target: ServerAtStart| {
        let head = Head {
            servers: servers.to_vec(),
            ..Head::default()
        };
        refuse_position(&head, &target)
            .err()
            .map(|error| error.to_string())
    };
    let mysql = |numbers: &str| server("primary", Some(UUID), &format!("{UUID}:{numbers}"));
    let mariadb = |position: &str| server("primary", None, position);
    // The same set may be written in several ways.
    assert_eq!(refused(&[mysql("1-5:7")], mysql("7:1-3:4-5")), None);
    assert_eq!(refused(&[mariadb("0-1-7,1-1-2")], mariadb("1-1-2,0-1-7")), None);
    let words = refused(&[mysql("1-5")], mysql("1-6")).unwrap();
    assert!(
        words.contains("the primary") && words.contains("--any-position"),
        "{words}"
    );
    for part in ["1-5;", "1-6,"].map(|numbers| format!("{UUID}:{numbers}")) {
        assert!(words.contains(&part), "{part}: {words}");
    }
    let words = refused(&[mariadb("0-1-7")], mariadb("0-1-8")).unwrap();
    assert!(words.contains("0-1-7") && words.contains("0-1-8"), "{words}");
    // A copy of one of several clusters is at that one's position.
    assert_eq!(refused(&[mysql("1-5"), mysql("1-6")], mysql("1-6")), None);
    // Nobody can tell: another kind, no position, a replica alone.
    assert_eq!(refused(&[mysql("1-5")], mariadb("0-1-7")), None);
    assert_eq!(refused(&[mariadb("")], mariadb("0-1-7")), None);
    assert_eq!(refused(&[mariadb("0-1-7")], mariadb("")), None);
    assert_eq!(
        refused(&[server("replica", None, "0-1-6")], mariadb("0-1-7")),
        None
    );
    assert_eq!(refused(&[], mariadb("0-1-7")), None);
}
