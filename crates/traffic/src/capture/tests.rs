//! A capture without a gateway: what its observer is told, and what is in the files.

use std::cell::RefCell;
use std::path::Path;

use dataplane::finished::{Copied, End, Finished};
use mysql_wire::{Capabilities, Command, write_packet};

use super::*;
use crate::file::Folder;
use crate::record::{CommandRecord, Flags, Record};

pub(super) fn packet(payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    write_packet(&mut packet, &mut 0, payload);
    packet
}

/// A command that has ended, as the data plane tells it.
pub(super) fn finished(session: u32, payload: &[u8], answer: &[u8]) -> Finished<'static> {
    Finished {
        is_first: false,
        session,
        user: "app",
        listener: "clients",
        command: Command(payload[0]),
        class: None,
        digest: 0,
        end: End::Relayed,
        server: Some("db1"),
        resent: 0,
        queue_time: Duration::ZERO,
        lease_time: Duration::ZERO,
        server_time: Duration::from_millis(1),
        relay_time: Duration::ZERO,
        total: Duration::from_millis(1),
        ended: Instant::now(),
        rows: 0,
        affected_rows: 0,
        bytes_from_client: 0,
        bytes_to_client: 0,
        error: None,
        warnings: 0,
        last_insert_id: 0,
        schema: None,
        login_schema: Some(b"shop"),
        login_collation: 8,
        capabilities: Capabilities(Capabilities::PROTOCOL_41.0 | Capabilities::DEPRECATE_EOF.0),
        copied: RefCell::new(Some(Copied::whole(&packet(payload), &packet(answer)))),
    }
}

/// The OK packet of a statement.
const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];

fn query(session: u32, text: &str) -> Finished<'static> {
    finished(session, &[&[Command::QUERY.0][..], text.as_bytes()].concat(), OK)
}

fn order(to: &Path, when_full: WhenFull) -> Order {
    Order {
        to: to.to_owned(),
        upload: None,
        duration: None,
        max_size: None,
        free_disk: 0,
        filters: Filters::default(),
        load_data: None,
        when_full,
        key_file: None,
    }
}

/// A capture whose thread does not run.
pub(super) fn stalled(when_full: WhenFull, sample: f64) -> (Arc<Shared>, Arc<Run>) {
    let run = Arc::new(Run {
        order: order(Path::new("/nowhere"), when_full),
        began: Instant::now(),
        queues: Mutex::default(),
        has_ended: AtomicBool::new(false),
        share: (sample * (1_u64 << 32) as f64) as u64,
        digest: None,
        queued: Arc::default(),
        is_to_stop: AtomicBool::new(false),
        is_overrun: AtomicBool::new(false),
        counts: Counts::default(),
        upload: None,
        end: Mutex::default(),
    });
    let shared = Shared {
        run: Mutex::new(Some(Arc::clone(&run))),
        generation: AtomicU64::new(1),
        ..Shared::default()
    };
    shared.interest.set(true);
    (Arc::new(shared), run)
}

/// Takes the batch of the only worker, as the thread would: the number of its commands, and the sessions that
/// are captured no further.
fn waiting(run: &Run) -> (usize, Vec<u32>) {
    let batch = std::mem::take(&mut *lock(&lock(&run.queues)[0]));
    (batch.commands.len(), batch.thinned)
}

#[test]
fn a_full_queue_leaves_out_whole_sessions() {
    let (shared, run) = stalled(WhenFull::Thin, 1.0);
    let observer = WorkerObserver::new(shared);
    observer.finished(&query(1, "SELECT 1"));
    assert_eq!(waiting(&run), (1, vec![]));
    let held = QUEUE_MAX - run.queued.load(Relaxed);
    run.queued.fetch_add(held, Relaxed);
    observer.finished(&query(2, "SELECT 2"));
    assert_eq!(waiting(&run), (0, vec![2]));
    assert_eq!(
        run.queued.load(Relaxed),
        QUEUE_MAX,
        "what was left out does not wait"
    );
    run.queued.fetch_sub(held, Relaxed);
    assert!(
        observer.copies(2).is_none(),
        "nothing more of it, although there is room again"
    );
    assert!(observer.copies(1).is_some() && observer.copies(3).is_some());
}

#[test]
fn a_full_queue_ends_the_capture_where_that_is_asked_for() {
    let (shared, run) = stalled(WhenFull::End, 1.0);
    let observer = WorkerObserver::new(shared);
    run.queued.store(QUEUE_MAX, Relaxed);
    observer.finished(&query(1, "SELECT 1"));
    assert!(run.is_overrun.load(Relaxed) && waiting(&run) == (0, vec![]));
}

#[test]
fn a_share_of_the_sessions_is_captured_whole() {
    let (shared, _run) = stalled(WhenFull::Thin, 0.25);
    let observer = WorkerObserver::new(shared);
    let captured = (0..4000).filter(|session| observer.copies(*session).is_some());
    let captured: Vec<_> = captured.collect();
    assert!((800..1200).contains(&captured.len()), "{}", captured.len());
    assert!(captured.iter().all(|session| observer.copies(*session).is_some()));
}

/// What is captured of these commands.
fn captured(commands: &[Finished<'_>]) -> Vec<Record> {
    captured_of(Filters::default(), commands)
}

/// What is captured of these commands with filters.
fn captured_of(filters: Filters, commands: &[Finished<'_>]) -> Vec<Record> {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("captured");
    let capture = Capture::new();
    let observer = capture.observer();
    let order_of = Order {
        filters,
        ..order(&folder, WhenFull::Thin)
    };
    capture.start(order_of, Vec::new(), "test").unwrap();
    let again = capture.start(
        order(&place.path().join("other"), WhenFull::Thin),
        Vec::new(),
        "test",
    );
    assert!(matches!(again, Err(StartError::Running(_))));
    for command in commands {
        assert!(observer.copies(command.session).is_some());
        observer.finished(command);
    }
    capture.finish("stopped", Duration::from_secs(30));
    assert!(!capture.status().unwrap().is_running);
    let mut folder = Folder::open(&folder, None).unwrap();
    let mut records = Vec::new();
    while let Some(record) = folder.next_record().unwrap() {
        records.push(record);
    }
    records
}

fn commands(records: &[Record]) -> Vec<CommandRecord> {
    let commands = records.iter().filter_map(|record| match record {
        Record::Command(command) => Some((**command).clone()),
        _ => None,
    });
    commands.collect()
}

#[test]
fn a_capture_whose_thread_fails_has_ended_and_another_begins() {
    let place = tempfile::tempdir().unwrap();
    let capture = Capture::new();
    let start = |name| {
        let order = order(&place.path().join(name), WhenFull::Thin);
        capture.start(order, Vec::new(), "test")
    };
    start("first").unwrap();
    let run = lock(&capture.shared.run).clone().unwrap();
    let batch = observer::Batch {
        panics: true,
        ..observer::Batch::default()
    };
    lock(&run.queues).push(Arc::new(Mutex::new(batch)));
    let limit = Instant::now() + Duration::from_secs(30);
    while capture.status().unwrap().is_running && Instant::now() < limit {
        std::thread::sleep(Duration::from_millis(1));
    }
    let status = capture.status().unwrap();
    let (reason, words) = status.end.expect("it has ended");
    assert!(reason == "error" && words.contains("failed"), "{reason}: {words}");
    start("second").unwrap();
    capture.finish("stopped", Duration::from_secs(30));
}

#[test]
fn what_clients_say_is_in_the_files_in_order() {
    let records = captured(&[query(7, "SELECT 1"), query(7, "USE other"), query(7, "SELECT 2")]);
    let Record::Session(session) = &records[0] else {
        panic!("{records:?}");
    };
    assert!(
        session.user == "app" && session.schema == b"shop" && session.was_open && session.collation == 8,
        "{session:?}"
    );
    let commands = commands(&records);
    let said: Vec<_> = commands
        .iter()
        .map(|command| (command.number, command.body.as_slice(), command.schema.as_slice()))
        .collect();
    let expected: [(u64, &[u8], &[u8]); 3] = [
        (0, b"SELECT 1", b"shop"),
        (1, b"USE other", b"shop"),
        (2, b"SELECT 2", b"other"),
    ];
    assert_eq!(said, expected);
    let Some(Record::End(end)) = records.last() else {
        panic!("{records:?}");
    };
    assert_eq!(
        (end.reason.as_str(), end.commands, end.sessions),
        ("stopped", 3, 1)
    );
}

#[test]
fn a_session_that_changes_its_user_begins_anew() {
    let change = |login_schema, error| Finished {
        login_schema,
        login_collation: 33,
        error,
        ..finished(7, &[&[Command::CHANGE_USER.0][..], b"app\0"].concat(), OK)
    };
    let records = captured(&[
        query(7, "SELECT 1"),
        change(Some(b"shop"), Some(1045)),
        change(None, None),
        query(7, "SELECT 2"),
    ]);
    let sessions = records.iter().filter_map(|record| match record {
        Record::Session(session) => Some((session.schema.as_slice(), session.collation)),
        _ => None,
    });
    assert_eq!(sessions.collect::<Vec<_>>(), [(&b"shop"[..], 8), (b"", 33)]);
    let schemas: Vec<_> = commands(&records)
        .into_iter()
        .map(|command| command.schema)
        .collect();
    assert_eq!(schemas, [&b"shop"[..], b"shop", b"", b""]);
}

#[test]
fn a_session_that_says_goodbye_in_another_schema_has_ended() {
    let filters = Filters {
        schema: Some("shop".to_owned()),
        ..Filters::default()
    };
    let first = || Finished {
        is_first: true,
        ..query(7, "SELECT 1")
    };
    let others = query(7, "USE stock");
    let quit = finished(7, &[Command::QUIT.0], &[]);
    let records = captured_of(filters, &[first(), others, quit, first()]);
    let is_session = |record: &&Record| matches!(record, Record::Session(_));
    assert_eq!(records.iter().filter(is_session).count(), 2, "of one id");
    let numbers = commands(&records).into_iter().map(|command| command.number);
    assert_eq!(numbers.collect::<Vec<_>>(), [0, 1, 2, 0]);
}

#[test]
fn secrets_are_kept_as_a_digest_alone() {
    let prepare = |text: &str| [&[Command::STMT_PREPARE.0][..], text.as_bytes()].concat();
    let prepared = |id: u8| [&[0, id, 0, 0, 0][..], &[1, 0, 2, 0, 0, 0, 0]].concat();
    let execute = |id: u8| {
        [
            &[Command::STMT_EXECUTE.0, id][..],
            &[0, 0, 0, 0, 1, 0, 0, 0],
            b"Geheim",
        ]
        .concat()
    };
    let records = captured(&[
        query(7, "ALTER USER a IDENTIFIED BY 'Geheim'"),
        finished(7, &prepare("SELECT AES_ENCRYPT(?, ?)"), &prepared(1)),
        finished(7, &execute(1), OK),
        finished(7, &execute(9), OK),
        finished(7, &prepare("SELECT ?, ?"), &prepared(2)),
        finished(7, &[&[Command::CHANGE_USER.0][..], b"app\0Geheim"].concat(), OK),
    ]);
    let commands = commands(&records);
    let withheld: Vec<_> = commands
        .iter()
        .map(|command| command.flags.has(Flags::WITHHELD))
        .collect();
    assert_eq!(withheld, [true, true, true, true, false, true]);
    for command in &commands {
        let has_secret = command.body.windows(6).any(|part| part == b"Geheim");
        assert!(!has_secret, "{command:?}");
    }
    assert_ne!(commands[0].digest, 0);
    assert_eq!(commands[2].digest, commands[1].digest, "that of its statement");
}

/// Which commands were withheld. No file has the secret.
fn withheld(commands: &[Finished<'_>]) -> Vec<bool> {
    let commands = self::commands(&captured(commands));
    for command in &commands {
        let has_secret = command.body.windows(6).any(|part| part == b"Geheim");
        assert!(!has_secret, "{command:?}");
    }
    let flags = commands.iter().map(|command| command.flags);
    flags.map(|flags| flags.has(Flags::WITHHELD)).collect()
}

#[test]
fn parameters_that_are_statements_with_secrets_are_kept_as_a_digest_alone() {
    let prepare = |text: &str| [&[Command::STMT_PREPARE.0][..], text.as_bytes()].concat();
    let prepared = |id: u8| [&[0, id, 0, 0, 0][..], &[0, 0, 1, 0, 0, 0, 0]].concat();
    let execute = |id: u8, value: &str| {
        let head = [Command::STMT_EXECUTE.0, id, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 253, 0];
        [&head[..], &[value.len() as u8], value.as_bytes()].concat()
    };
    let part = |id: u8, value: &str| {
        let head = [Command::STMT_SEND_LONG_DATA.0, id, 0, 0, 0, 0, 0];
        [&head[..], value.as_bytes()].concat()
    };
    let found = withheld(&[
        finished(7, &prepare("INSERT INTO job VALUES (?)"), &prepared(1)),
        finished(7, &execute(1, "SELECT 1"), OK),
        finished(7, &execute(1, "ALTER USER a IDENTIFIED BY 'Geheim'"), OK),
        // Whatever it has: it is put together with others.
        finished(7, &prepare("SET @s = ?"), &prepared(2)),
        finished(7, &execute(2, "Geheim"), OK),
        finished(7, &prepare("SELECT CONCAT(?, ?) INTO @s"), &prepared(3)),
        finished(7, &execute(3, "Geheim"), OK),
        // In parts, and the words in two of them.
        finished(7, &prepare("INSERT INTO job VALUES (?)"), &prepared(4)),
        finished(7, &part(4, "ALTER USER a IDENTI"), b""),
        finished(7, &part(4, "FIED BY 'Geheim'"), b""),
        finished(7, &part(4, "Geheim"), b""),
    ]);
    let expected = [
        false, false, true, false, true, false, true, false, true, true, true,
    ];
    assert_eq!(found, expected);
}

#[test]
fn what_is_written_in_the_schema_of_accounts_is_kept_as_a_digest_alone() {
    let write = || query(7, "UPDATE user SET Password = 'Geheim'");
    let use_other = || query(7, "USE other");
    let init = [&[Command::INIT_DB.0][..], b"mysql"].concat();
    let harmless = || query(7, "UPDATE item SET name = 'x'");
    assert_eq!(withheld(&[use_other(), harmless()]), [false, false]);
    assert_eq!(withheld(&[query(7, "USE mysql"), write()]), [false, true]);
    assert_eq!(withheld(&[query(7, "USE mysql"), harmless()]), [false, true]);
    assert_eq!(withheld(&[finished(7, &init, OK), write()]), [false, true]);
    let logged_in = Finished {
        login_schema: Some(b"mysql"),
        ..write()
    };
    assert_eq!(withheld(&[logged_in]), [true]);
    // Where it was before the capture nobody knows, as long as it says nothing of it.
    assert_eq!(withheld(&[harmless(), write()]), [false, true]);
}

#[test]
fn parameters_of_a_harmless_statement_are_kept() {
    let prepare = [&[Command::STMT_PREPARE.0][..], b"SELECT ?"].concat();
    let prepared = [0, 3, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0];
    let execute = [
        &[Command::STMT_EXECUTE.0, 3][..],
        &[0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 8, 0, 5, 0, 0, 0, 0, 0, 0, 0],
    ]
    .concat();
    let commands = commands(&captured(&[
        finished(7, &prepare, &prepared),
        finished(7, &execute, OK),
    ]));
    assert_eq!((commands[0].statement, commands[0].parameters), (3, 1));
    assert_eq!((commands[1].statement, &commands[1].body[..]), (3, &execute[1..]));
}

#[test]
fn files_are_copied_where_that_is_asked_for() {
    let place = tempfile::tempdir().unwrap();
    let capture = Capture::new();
    for load_data in [None, Some(100)] {
        let order = Order {
            load_data,
            ..order(&place.path().join(format!("{load_data:?}")), WhenFull::Thin)
        };
        capture.start(order, Vec::new(), "test").unwrap();
        let limits = capture.observer().copies(1).unwrap();
        assert_eq!(limits.files, load_data.unwrap_or(0));
        capture.finish("stopped", Duration::from_secs(30));
    }
}

/// A statement whose client has sent these packets of files, or more than is copied of them.
fn load(packets: Option<&[u8]>) -> Finished<'static> {
    let text = "LOAD DATA LOCAL INFILE 'f' INTO TABLE t";
    let payload = [&[Command::QUERY.0][..], text.as_bytes()].concat();
    let answer = [packet(b"\xfbf"), packet(OK)].concat();
    let copied = Copied::whole(&packet(&payload), &answer).with_files(packets);
    Finished {
        copied: RefCell::new(Some(copied)),
        ..query(7, text)
    }
}

#[test]
fn files_are_written_with_their_commands() {
    let packets = [packet(b"1\tof a file\n"), packet(b"")].concat();
    let commands = commands(&captured(&[
        load(Some(&packets)),
        load(None),
        query(7, "SELECT 1"),
    ]));
    let files = commands.into_iter().map(|command| {
        let is_cut = command.flags.has(Flags::FILES_CUT);
        (command.files, is_cut)
    });
    let expected = [
        (vec![b"1\tof a file\n".to_vec()], false),
        (vec![], true),
        (vec![], false),
    ];
    assert_eq!(files.collect::<Vec<_>>(), expected);
}

#[test]
fn files_are_captured_only_where_their_commands_are() {
    let packets = [packet(b"1\tof a file\n"), packet(b"")].concat();
    let others = || Some("others".to_owned());
    for filters in [
        Filters {
            listener: others(),
            ..Filters::default()
        },
        Filters {
            user: others(),
            ..Filters::default()
        },
        Filters {
            schema: others(),
            ..Filters::default()
        },
        Filters {
            digest: Some("00000000000000ff".to_owned()),
            ..Filters::default()
        },
    ] {
        let records = captured_of(filters, &[load(Some(&packets))]);
        assert!(commands(&records).is_empty(), "{records:?}");
    }
}

#[test]
fn of_another_listener_nothing_is_captured() {
    let filters = Filters {
        listener: Some("clients".to_owned()),
        ..Filters::default()
    };
    let other = Finished {
        listener: "others",
        ..query(8, "SELECT 1")
    };
    let records = captured_of(filters, &[query(7, "SELECT 1"), other]);
    let sessions: Vec<_> = commands(&records).iter().map(|command| command.session).collect();
    assert_eq!(sessions, [7]);
}

#[test]
fn of_another_digest_what_sessions_set_is_captured_alone() {
    let wanted = sql_class::digest(b"SELECT a FROM t", sql_class::Syntax::default()).hash;
    let filters = Filters {
        digest: Some(format!("{wanted:016x}")),
        ..Filters::default()
    };
    let records = captured_of(
        filters,
        &[
            query(7, "SELECT b FROM t"),
            query(7, "SET NAMES utf8mb4"),
            finished(7, &[&[Command::INIT_DB.0][..], b"other"].concat(), OK),
            query(7, "SELECT a FROM t"),
            finished(7, &[Command::PING.0], OK),
            finished(7, &[Command::RESET_CONNECTION.0], OK),
            finished(7, &[Command::QUIT.0], b""),
        ],
    );
    // The numbers are those of a capture of all.
    let numbers: Vec<_> = commands(&records).iter().map(|command| command.number).collect();
    assert_eq!(numbers, [1, 2, 3, 5, 6]);
}

#[test]
fn of_another_schema_what_sessions_set_is_captured_alone() {
    let filters = Filters {
        schema: Some("stock".to_owned()),
        ..Filters::default()
    };
    let records = captured_of(
        filters,
        &[
            query(7, "SELECT a FROM t"),
            query(7, "SET NAMES utf8mb4"),
            query(7, "USE stock"),
            query(7, "SELECT a FROM t"),
            query(7, "USE shop"),
            query(7, "SELECT a FROM t"),
            finished(7, &[Command::QUIT.0], b""),
        ],
    );
    let numbers: Vec<_> = commands(&records).iter().map(|command| command.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 6]);
}

#[test]
fn an_order_that_makes_no_sense_is_refused_by_name() {
    let place = tempfile::tempdir().unwrap();
    let capture = Capture::new();
    let mut order = order(Path::new("relative"), WhenFull::Thin);
    let refused = |order: &Order| {
        capture
            .start(order.clone(), Vec::new(), "test")
            .unwrap_err()
            .to_string()
    };
    assert!(refused(&order).contains("absolute path"));
    order.to = place.path().join("captured");
    order.filters.sample = Some(1.5);
    assert!(refused(&order).contains("sample"));
    order.filters.sample = None;
    order.filters.digest = Some("00ff".to_owned());
    assert!(refused(&order).contains("16 hexadecimal digits"));
    order.filters.digest = None;
    order.load_data = Some(FILES_MAX + 1);
    assert!(refused(&order).contains("load_data"));
    order.load_data = None;
    order.free_disk = 101;
    assert!(refused(&order).contains("101 % are to stay free"));
    assert!(!place.path().join("captured").exists());
    assert!(capture.status().is_none() && !capture.stop("stopped"));
}
