use std::path::Path;

use mysql_wire::{Capabilities, ChangeUser, Command, write_packet};

use super::{From, ImportError, Imported, Importer};
use crate::capture::{COMMAND_MAX, STATEMENTS_MAX};
use crate::file::Folder;
use crate::record::{CommandRecord, Flags, Record, SessionRecord};

/// What an import has made of one file.
struct Made {
    imported: Imported,
    sessions: Vec<SessionRecord>,
    commands: Vec<CommandRecord>,
}

impl Made {
    fn texts(&self) -> Vec<&str> {
        let text = |command: &'_ CommandRecord| std::str::from_utf8(&command.body).unwrap().len();
        assert!(self.commands.iter().map(text).sum::<usize>() > 0);
        self.commands
            .iter()
            .map(|command| std::str::from_utf8(&command.body).unwrap())
            .collect()
    }
}

fn import(from: From, bytes: &[u8]) -> Result<Made, ImportError> {
    let place = tempfile::tempdir().unwrap();
    let to = place.path().join("imported");
    let mut importer = Importer::new(from, &to, None, "test");
    importer.file(Path::new("a.log"), bytes)?;
    let imported = importer.finish()?;
    let mut folder = Folder::open(&to, None).unwrap();
    assert_eq!(folder.head().imported.as_deref(), Some(from.name()));
    let mut made = Made {
        imported,
        sessions: Vec::new(),
        commands: Vec::new(),
    };
    while let Some(record) = folder.next_record().unwrap() {
        match record {
            Record::Session(session) => made.sessions.push(session),
            Record::Command(command) => made.commands.push(*command),
            _ => {}
        }
    }
    assert_eq!(folder.stops(), []);
    Ok(made)
}

/// Of MariaDB 10.11, as it has written it, but for the names.
const SLOW_MARIADB: &str = "\
/usr/sbin/mariadbd, Version: 10.11.19-MariaDB-log (Debian 12). started with:
Tcp port: 20375  Unix socket: /run/socket
Time\t\t    Id Command\tArgument
# Time: 261128  3:19:01
# User@Host: app[app] @ localhost [127.0.0.1]
# Thread_id: 6  Schema: test  QC_hit: No
# Query_time: 0.000105  Lock_time: 0.000000  Rows_sent: 1  Rows_examined: 0
# Rows_affected: 0  Bytes_sent: 58
use `test`;
SET timestamp=1795835941;
SELECT 1;
# User@Host: app[app] @ localhost [127.0.0.1]
# Thread_id: 6  Schema: test  QC_hit: No
# Query_time: 0.000493  Lock_time: 0.000335  Rows_sent: 0  Rows_examined: 0
# Rows_affected: 2  Bytes_sent: 50
SET last_insert_id=7,insert_id=8,timestamp=1795835941;
INSERT INTO t (a) VALUES ('x;
# Time: 1
y'), ('z');
# User@Host: app[app] @ localhost [127.0.0.1]
# Thread_id: 6  Schema: other  QC_hit: No
# Query_time: 1.200195  Lock_time: 0.000000  Rows_sent: 1  Rows_examined: 0
# Rows_affected: 0  Bytes_sent: 67
use `other`;
SET timestamp=1795835941;
SELECT SLEEP(1.2);
# User@Host: app[app] @ localhost [127.0.0.1]
# Thread_id: 7  Schema:   QC_hit: No
# Query_time: 0.034062  Lock_time: 0.000027  Rows_sent: 0  Rows_examined: 0
# Rows_affected: 0  Bytes_sent: 11
SET timestamp=1795835942;
CREATE USER xx IDENTIFIED BY 'Geheim';
";

#[test]
fn the_slow_log_of_mariadb_is_read() {
    let made = import(From::SlowLog, SLOW_MARIADB.as_bytes()).unwrap();
    assert_eq!(made.imported.stops, Vec::<String>::new());
    assert_eq!(
        (
            made.imported.commands,
            made.imported.sessions,
            made.imported.withheld
        ),
        (5, 2, 1)
    );
    let insert = "INSERT INTO t (a) VALUES ('x;\n# Time: 1\ny'), ('z')";
    assert_eq!(
        made.texts(),
        ["SELECT 1", insert, "other", "SELECT SLEEP(1.2)", ""]
    );
    assert_eq!(
        (made.sessions[0].user.as_str(), &made.sessions[0].schema[..]),
        ("app", &b"test"[..])
    );
    let starts: Vec<_> = made
        .commands
        .iter()
        .map(|command| (command.session, command.start_us))
        .collect();
    assert_eq!(starts, [(6, 0), (6, 105), (6, 598), (6, 598), (7, 1_000_000)]);
    let insert = &made.commands[1];
    assert_eq!(
        (insert.affected_rows, insert.insert_id, insert.took_us),
        (2, 8, 493)
    );
    let unknown = [Flags::ERROR_UNKNOWN, Flags::WARNINGS_UNKNOWN, Flags::UNCHECKED];
    assert!(unknown.iter().all(|flag| insert.flags.has(*flag)));
    assert!(!insert.flags.has(Flags::ROWS_UNKNOWN) && !insert.flags.has(Flags::TIME_UNKNOWN));
}

/// Of MySQL 9.7, the last two with `log_slow_extra`.
const SLOW_MYSQL: &str = "\
/usr/sbin/mysqld, Version: 9.7.4 ((Debian)). started with:
Tcp port: 21150  Unix socket: /run/socket
Time                 Id Command    Argument
# Time: 2026-11-28T03:19:04.053608Z
# User@Host: app[app] @ localhost [127.0.0.1]  Id:    10
# Query_time: 0.000125  Lock_time: 0.000000 Rows_sent: 1  Rows_examined: 1
use test;
SET timestamp=1795835944;
SELECT 1;
# Time: 2026-11-28T03:19:05.262316Z
# User@Host: app[app] @ localhost [127.0.0.1]  Id:    10
# Query_time: 0.000053  Lock_time: 0.000000 Rows_sent: 1  Rows_examined: 1
use mysql;
SET timestamp=1795835945;
# administrator command: Init DB;
# Time: 2026-11-28T03:19:05.262395Z
# User@Host: app[app] @ localhost [127.0.0.1]  Id:    10
# Query_time: 0.000046  Lock_time: 0.000000 Rows_sent: 0  Rows_examined: 0
SET timestamp=1795835945;
PREPARE s FROM ...;
# Time: 2026-11-28T03:19:05.291280Z
# User@Host: app[app] @ localhost [127.0.0.1]  Id:    10
# Query_time: 0.000386  Lock_time: 0.000001 Rows_sent: 0  Rows_examined: 0 Thread_id: 10 Errno: 1146 Killed: 0 Bytes_received: 26 Start: 2026-11-28T03:19:05.290894Z End: 2026-11-28T03:19:05.291280Z
SET timestamp=1795835945;
select * from nothing;
# Time: 2026-11-28T03:19:05.291741Z
# User@Host: app[app] @ localhost [127.0.0.1]  Id:    10
# Query_time: 0.000005  Lock_time: 0.000000 Rows_sent: 0  Rows_examined: 0 Thread_id: 10 Errno: 0 Killed: 0
SET timestamp=1795835945;
# administrator command: Quit;
";

#[test]
fn the_slow_log_of_mysql_is_read() {
    let made = import(From::SlowLog, SLOW_MYSQL.as_bytes()).unwrap();
    assert_eq!(made.imported.stops, Vec::<String>::new());
    assert_eq!(
        made.texts(),
        ["SELECT 1", "mysql", "", "select * from nothing", ""]
    );
    let starts: Vec<_> = made.commands.iter().map(|command| command.start_us).collect();
    assert_eq!(starts, [0, 1_208_780, 1_208_866, 1_237_411, 1_238_253]);
    let [select, _, prepare, nothing, quit] = &made.commands[..] else {
        panic!()
    };
    assert!(select.flags.has(Flags::ERROR_UNKNOWN) && select.flags.has(Flags::AFFECTED_UNKNOWN));
    assert!(
        prepare.flags.has(Flags::WITHHELD),
        "the server has left its text out"
    );
    assert!(nothing.error == 1146 && !nothing.flags.has(Flags::ERROR_UNKNOWN));
    assert_eq!(quit.command, Command::QUIT.0);
}

#[test]
fn a_slow_log_that_is_broken_is_read_up_to_there() {
    let at = SLOW_MARIADB.find("SELECT SLEEP").unwrap() + 8;
    let made = import(From::SlowLog, &SLOW_MARIADB.as_bytes()[..at]).unwrap();
    assert_eq!(made.texts().len(), 2);
    assert_eq!(
        made.imported.stops,
        ["a.log:20: the file ends within this entry, which is left out"]
    );
    let error = import(From::SlowLog, b"nothing of the kind\n").err().unwrap();
    let words =
        "no command was found: is it a slow-log?\n         1  left out: lines that belong to no entry";
    assert_eq!(error.to_string(), words);
}

#[test]
fn sessions_that_are_silent_are_forgotten() {
    let mut importer = Importer::new(From::SlowLog, Path::new("nowhere"), None, "test");
    for thread in 0..10 {
        importer.begins(thread, 100 + thread, super::Who::default());
    }
    // A number that is taken is not given twice.
    importer.begins(3, 103, super::Who::default());
    importer.begins(3 << 32 | 3, 104, super::Who::default());
    let mut ids: Vec<_> = importer.sessions.values().map(|known| known.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 11);
    importer.sessions.remove(&(3 << 32 | 3));
    importer.forget(11);
    assert_eq!(importer.sessions.len(), 10);
    importer.forget(10);
    let mut left: Vec<_> = importer.sessions.keys().copied().collect();
    left.sort_unstable();
    assert_eq!(left, [6, 7, 8, 9]);
}

/// Clients need not close what they have prepared.
#[test]
fn statements_that_are_known_have_a_limit() {
    let place = tempfile::tempdir().unwrap();
    let to = place.path().join("imported");
    let mut importer = Importer::new(From::Tiproxy, &to, None, "test");
    importer.begins(1, 0, super::Who::default());
    let say = |importer: &mut Importer, command: Command, body: &[u8], answer: &[u8]| {
        let said = super::Said {
            thread: 1,
            command: command.0,
            body,
            answer,
            ..super::Said::default()
        };
        importer.say(&said).unwrap();
        importer.statement_bytes
    };
    let prepare = |importer: &mut Importer, number: u8| {
        let mut answer = Vec::new();
        write_packet(&mut answer, &mut 1, &[0, number, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        say(importer, Command::STMT_PREPARE, b"SELECT 1", &answer)
    };
    let execute = [1, 0, 0, 0, 0, 1, 0, 0, 0];
    let one = prepare(&mut importer, 1);
    assert_eq!(
        (prepare(&mut importer, 1), prepare(&mut importer, 2)),
        (one, 2 * one)
    );
    say(&mut importer, Command::STMT_CLOSE, &[2, 0, 0, 0], &[]);
    assert_eq!(say(&mut importer, Command::STMT_EXECUTE, &execute, &[]), 2 * one);
    // Statements that have gone are counted until there seem to be too many.
    importer.statement_bytes = STATEMENTS_MAX + 1;
    assert_eq!(say(&mut importer, Command::STMT_EXECUTE, &execute, &[]), one);
    importer.forget_statements(one - 1);
    assert_eq!(say(&mut importer, Command::STMT_EXECUTE, &execute, &[]), 0);
    assert_eq!(importer.finish().unwrap().withheld, 1);
}

fn change_user(user: &str, database: &str) -> ChangeUser {
    ChangeUser {
        user: user.into(),
        auth_response: Vec::new(),
        database: database.into(),
        charset: Some(33),
        auth_plugin: None,
        attributes: None,
    }
}

#[test]
fn a_session_that_changes_its_user_begins_anew() {
    let place = tempfile::tempdir().unwrap();
    let to = place.path().join("imported");
    let mut importer = Importer::new(From::Pcap, &to, None, "test");
    let who = super::Who {
        user: "app".to_owned(),
        schema: Some(b"shop".to_vec()),
        collation: 8,
        ..super::Who::default()
    };
    importer.begins(1, 0, who);
    let say = |importer: &mut Importer| {
        let said = super::Said {
            thread: 1,
            command: Command::QUERY.0,
            body: b"SELECT 1",
            ..super::Said::default()
        };
        importer.say(&said).unwrap();
    };
    say(&mut importer);
    for database in ["", "stock"] {
        importer.changes_user(1, 1, &change_user("app", database));
        say(&mut importer);
    }
    importer.finish().unwrap();
    let mut folder = Folder::open(&to, None).unwrap();
    let (mut sessions, mut commands) = (Vec::new(), Vec::new());
    while let Some(record) = folder.next_record().unwrap() {
        match record {
            Record::Session(session) => sessions.push((session.schema, session.collation)),
            Record::Command(command) => commands.push(command.schema),
            _ => {}
        }
    }
    let schemas = [&b"shop"[..], b"", b"stock"];
    assert_eq!(commands, schemas);
    let begun = schemas.into_iter().map(<[u8]>::to_vec).zip([8, 33, 33]);
    assert_eq!(sessions, begun.collect::<Vec<_>>());
}

#[test]
fn executions_without_definitions_are_checked() {
    const COLUMN: &[u8] = &[3, 0, 0, 0, 0, 0];
    const ROW: &[u8] = &[0, 0, 7, 0, 0, 0];
    const END: &[u8] = &[0xfe, 0, 0, 2, 0, 0, 0];
    let place = tempfile::tempdir().unwrap();
    let to = place.path().join("imported");
    let mut importer = Importer::new(From::Pcap, &to, None, "test");
    let who = super::Who {
        capabilities: Capabilities::PROTOCOL_41
            | Capabilities::DEPRECATE_EOF
            | Capabilities::MARIADB_CACHE_METADATA,
        ..super::Who::default()
    };
    importer.begins(1, 0, who);
    let mut say = |command: Command, body: &[u8], payloads: &[&[u8]]| {
        let (mut answer, mut sequence) = (Vec::new(), 1);
        for payload in payloads {
            write_packet(&mut answer, &mut sequence, payload);
        }
        let said = super::Said {
            thread: 1,
            command: command.0,
            body,
            answer: &answer,
            ..super::Said::default()
        };
        importer.say(&said).unwrap();
    };
    let execute = [7, 0, 0, 0, 0, 1, 0, 0, 0];
    say(
        Command::STMT_PREPARE,
        b"SELECT a FROM t",
        &[&[0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0], COLUMN],
    );
    say(Command::STMT_EXECUTE, &execute, &[&[1, 1], COLUMN, ROW, END]);
    say(Command::STMT_EXECUTE, &execute, &[&[1, 0], ROW, END]);
    // An answer that is cut may have told other columns.
    say(Command::STMT_EXECUTE, &execute, &[]);
    say(Command::STMT_EXECUTE, &execute, &[&[1, 0], ROW, END]);
    importer.finish().unwrap();
    let mut folder = Folder::open(&to, None).unwrap();
    let mut checks = Vec::new();
    while let Some(record) = folder.next_record().unwrap() {
        if let Record::Command(command) = record {
            checks.push((!command.flags.has(Flags::UNCHECKED)).then_some(command.checks));
        }
    }
    let [_, with, without, cut, unknown] = &checks[..] else {
        panic!("{checks:?}");
    };
    assert!(with.as_ref().is_some_and(|checks| checks.len() == 2) && with == without);
    assert!(cut.is_none() && unknown.is_none());
}

/// Names that fill a record are left out with their sessions; those of others are taken over.
#[test]
fn names_that_are_too_long_end_no_import() {
    let place = tempfile::tempdir().unwrap();
    let to = place.path().join("imported");
    let mut importer = Importer::new(From::Pcap, &to, None, "test");
    importer.version = Some("\u{1}".repeat(5 << 20));
    let long = "a".repeat(5 << 20);
    let whos = [("app", ""), (&long, ""), ("app", &long), ("app", ""), ("app", "")];
    for (thread, (user, schema)) in (1..).zip(whos) {
        let who = super::Who {
            user: user.to_owned(),
            schema: Some(schema.into()),
            ..super::Who::default()
        };
        importer.begins(thread, 0, who);
    }
    let say = |importer: &mut Importer, thread: u64, body: &str| {
        let said = super::Said {
            thread,
            command: Command::QUERY.0,
            body: body.as_bytes(),
            ..super::Said::default()
        };
        importer.say(&said).unwrap();
    };
    say(&mut importer, 1, &format!("USE {}", &long[..100_000]));
    importer.changes_user(4, 1, &change_user(&long, ""));
    importer.is_in(5, 1, long.as_bytes()).unwrap();
    for thread in 1..=5 {
        say(&mut importer, thread, "SELECT 1");
    }
    for number in 0..1000 {
        importer.stop(Path::new("a.log"), number, &"\u{1}".repeat(10_000));
        importer.leave_out(&number.to_string());
    }
    let imported = importer.finish().unwrap();
    assert_eq!((imported.commands, imported.sessions), (2, 1));
    let words = "commands of sessions with a name that no server takes";
    assert_eq!(imported.left_out.get(words), Some(&4));
    assert_eq!(imported.left_out.values().sum::<u64>(), 4 + 900 + 1000);
    assert!(imported.stops.len() == 100 && imported.left_out.len() < 110);
    let mut folder = Folder::open(&to, None).unwrap();
    let mut schemas = Vec::new();
    while let Some(record) = folder.next_record().unwrap() {
        if let Record::Command(command) = record {
            schemas.push(command.schema.len());
        }
    }
    assert_eq!((schemas, folder.stops().len()), (vec![0, 0], 0));
}

/// Of MariaDB 10.11.
const GENERAL_MARIADB: &str = "\
/usr/sbin/mariadbd, Version: 10.11.19-MariaDB-log (Debian 12). started with:
Tcp port: 20375  Unix socket: /run/socket
Time\t\t    Id Command\tArgument
261128  3:19:01\t     5 Quit\t
\t\t     6 Connect\tapp@localhost on test using TCP/IP
\t\t     6 Query\tINSERT INTO t (a) VALUES ('x;
# Time: 1
/x, Version: 1 started with:
\ty'), ('z')
261128  3:19:02\t     6 Init DB\tother
\t\t     6 Query\tPREPARE s FROM 'SELECT ?'
\t\t     6 Prepare\tSELECT ?
\t\t     6 Query\tSET @a=4
\t\t     6 Query\tEXECUTE s USING @a
\t\t     6 Execute\tSELECT 4
\t\t     7 Connect\tAccess denied for user 'x'@'localhost' (using password: YES)
\t\t     8 Query\tEXECUTE gone
\t\t     6 Query\tDROP USER xx
\t\t     6 Quit\t
";

#[test]
fn the_general_log_of_mariadb_is_read() {
    let made = import(From::GeneralLog, GENERAL_MARIADB.as_bytes()).unwrap();
    let insert = "INSERT INTO t (a) VALUES ('x;\n# Time: 1\n/x, Version: 1 started with:\n\ty'), ('z')";
    let texts = [
        insert,
        "other",
        "PREPARE s FROM 'SELECT ?'",
        "SET @a=4",
        "SELECT 4",
        "",
        "",
        "EXECUTE gone",
    ];
    assert_eq!(made.texts(), texts);
    let users: Vec<_> = made
        .sessions
        .iter()
        .map(|session| (session.id, session.user.as_str()))
        .collect();
    assert_eq!(users, [(6, "app"), (8, "")]);
    assert_eq!(made.sessions[0].schema, b"test");
    assert_eq!(
        (made.commands[0].start_us, made.commands[1].start_us),
        (0, 1_000_000)
    );
    for flag in [Flags::ERROR_UNKNOWN, Flags::ROWS_UNKNOWN, Flags::TIME_UNKNOWN] {
        assert!(made.commands.iter().all(|command| command.flags.has(flag)));
    }
}

/// A shorter text would be another statement.
#[test]
fn a_text_is_whole_or_cut() {
    let select = |len: usize| "SELECT 1".to_owned() + &",1".repeat((len - 8) / 2);
    for (text, is_cut) in [
        (select(COMMAND_MAX), false),
        (select(COMMAND_MAX + 2), true),
        (select(COMMAND_MAX + 100_000), true),
    ] {
        let log = format!("2026-11-28T03:19:04.052062Z\t   10 Query\t{text}\n");
        let made = import(From::GeneralLog, log.as_bytes()).unwrap();
        let [command] = &made.commands[..] else { panic!() };
        assert_eq!(command.flags.has(Flags::CUT), is_cut, "{}", text.len());
        assert_eq!(command.body.len(), if is_cut { 0 } else { text.len() });
        assert!(!command.flags.has(Flags::WITHHELD));
    }
}

/// Of MySQL 9.7.
const GENERAL_MYSQL: &str = "\
/usr/sbin/mysqld, Version: 9.7.4 ((Debian)). started with:
Tcp port: 21150  Unix socket: /run/socket
Time                 Id Command    Argument
2026-11-28T03:19:04.052062Z\t   10 Connect\tapp@localhost on  using TCP/IP
2026-11-28T03:19:04.053519Z\t   10 Query\tSELECT 1
2026-11-28T03:19:05.262357Z\t   10 Query\tPREPARE s FROM ...
2026-11-28T03:19:05.262378Z\t   10 Prepare\tSELECT ?
2026-11-28T03:19:05.262440Z\t   10 Query\tEXECUTE s USING @a
2026-11-28T03:19:05.262455Z\t   10 Prepare\tSELECT ?
2026-11-28T03:19:05.262460Z\t   10 Execute\tSELECT 4
2026-11-28T03:19:05.269317Z\t   10 Query\tCREATE USER 'xx'@'%' IDENTIFIED BY <secret>
2026-11-28T03:19:05.276433Z\t   10 Quit\t
";

#[test]
fn the_general_log_of_mysql_is_read() {
    let made = import(From::GeneralLog, GENERAL_MYSQL.as_bytes()).unwrap();
    assert_eq!(made.texts(), ["SELECT 1", "", "SELECT 4", "", ""]);
    let starts: Vec<_> = made.commands.iter().map(|command| command.start_us).collect();
    assert_eq!(starts, [0, 1_208_838, 1_208_941, 1_215_798, 1_222_914]);
    assert_eq!(made.imported.withheld, 2);
}

/// Of tcpdump 4.99 on `lo`: the client of MariaDB and a server of 10.11, once plain, once compressed, once
/// with TLS, once with a wrong password.
const PCAP: &[u8] = include_bytes!("../../samples/mariadb.pcap");

/// What was said on the plain connection; empty where it is kept as a digest.
const PCAP_TEXTS: [&str; 18] = [
    "SELECT 1",
    "CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY AUTO_INCREMENT, a VARCHAR(30))",
    "INSERT INTO t (a) VALUES ('x;\n# Time: 1\ny'), ('z')",
    "UPDATE t SET a='q'",
    "SELECT * FROM nothing",
    "SELECT SLEEP(1.2)",
    "SELECT id,a FROM t",
    "SELECT DATABASE()",
    "mysql",
    "SELECT 5",
    "",
    "SET @a=4",
    "",
    "",
    "",
    "",
    "",
    "",
];

#[test]
fn packets_of_a_network_are_read() {
    let made = import(From::Pcap, PCAP).unwrap();
    assert_eq!(made.imported.stops, Vec::<String>::new());
    let left_out: Vec<_> = made.imported.left_out.keys().map(String::as_str).collect();
    let known = [
        "connections with TLS",
        "connections with compression",
        "logins that were refused",
    ];
    assert_eq!(left_out, known);
    assert_eq!(made.texts(), PCAP_TEXTS);
    let session = &made.sessions[0];
    assert_eq!(
        (session.user.as_str(), &session.schema[..], session.was_open),
        ("forebay", &b"test"[..], false)
    );
    let select = &made.commands[6];
    assert_eq!(
        (select.rows, select.error, select.checks.len(), select.flags),
        (2, 0, 3, Flags::default())
    );
    assert_eq!(
        (made.commands[2].affected_rows, made.commands[2].insert_id),
        (2, 1)
    );
    assert_eq!(made.commands[4].error, 1146);
    assert!(made.commands[5].took_us > 1_200_000, "it has slept");
}

/// The packets of the sample: what is in front of each, and itself.
fn packets_of_sample() -> Vec<(&'static [u8], &'static [u8])> {
    let mut packets = Vec::new();
    let mut rest = &PCAP[24..];
    while let Some((head, behind)) = rest.split_at_checked(16) {
        let len = u32::from_le_bytes(head[8..12].try_into().unwrap()) as usize;
        packets.push((head, &behind[..len]));
        rest = &behind[len..];
    }
    packets
}

/// A pcap of other packets with the link that they have.
fn pcap(link: u8, packets: &[(&[u8], Vec<u8>)]) -> Vec<u8> {
    let mut bytes = PCAP[..24].to_vec();
    bytes[20] = link;
    for (head, packet) in packets {
        bytes.extend_from_slice(&head[..8]);
        bytes.extend_from_slice(&(packet.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(packet.len() as u32).to_le_bytes());
        bytes.extend_from_slice(packet);
    }
    bytes
}

/// The same conversation over IPv6.
fn over_ipv6(packet: &[u8]) -> Vec<u8> {
    let segment = &packet[20..];
    let mut other = vec![0x60, 0, 0, 0];
    other.extend_from_slice(&(segment.len() as u16).to_be_bytes());
    other.extend_from_slice(&[6, 64]);
    other.extend_from_slice(&[1; 16]);
    other.extend_from_slice(&[1; 16]);
    other.extend_from_slice(segment);
    other
}

#[test]
fn packets_are_read_from_all_links() {
    const ETHERNET_LEN: usize = 14;
    type Wrap = fn(&[u8]) -> Vec<u8>;
    let wraps: [(u8, Wrap); 5] = [
        (101, |ip| ip.to_vec()),
        (101, over_ipv6),
        (0, |ip| [&[2, 0, 0, 0], ip].concat()),
        (113, |ip| [&[0; 14][..], &[8, 0], ip].concat()),
        (1, |ip| [&[0; 12][..], &[0x81, 0, 0, 7, 8, 0], ip].concat()),
    ];
    for (link, wrap) in wraps {
        let packets: Vec<_> = packets_of_sample()
            .into_iter()
            .map(|(head, packet)| (head, wrap(&packet[ETHERNET_LEN..])))
            .collect();
        assert_eq!(
            import(From::Pcap, &pcap(link, &packets)).unwrap().texts(),
            PCAP_TEXTS,
            "{link}"
        );
    }
}

#[test]
fn packets_that_come_twice_or_in_another_order_are_put_in_order() {
    let mut packets: Vec<_> = packets_of_sample()
        .into_iter()
        .map(|(head, packet)| (head, packet.to_vec()))
        .collect();
    let twice: Vec<_> = packets
        .iter()
        .flat_map(|packet| [packet.clone(), packet.clone()])
        .collect();
    assert_eq!(import(From::Pcap, &pcap(1, &twice)).unwrap().texts(), PCAP_TEXTS);
    // Two packets of the same side change places. The first three open the connection.
    let is_data = |packet: &Vec<u8>| packet.len() > 66;
    let at = packets[3..]
        .windows(2)
        .position(|pair| {
            pair.iter().all(|(_, packet)| is_data(packet)) && pair[0].1[34..36] == pair[1].1[34..36]
        })
        .map(|at| at + 3);
    if let Some(at) = at {
        packets.swap(at, at + 1);
        assert_eq!(
            import(From::Pcap, &pcap(1, &packets)).unwrap().texts(),
            PCAP_TEXTS
        );
    }
    // One that is missing ends what is known of its connection, without a word that was not said.
    let at = packets
        .iter()
        .rposition(|(_, packet)| packet.windows(8).any(|part| part == b"SELECT 5"))
        .unwrap();
    packets.remove(at);
    let made = import(From::Pcap, &pcap(1, &packets)).unwrap();
    assert_eq!(made.texts(), PCAP_TEXTS[..9]);
}

#[test]
fn the_files_of_wireshark_are_read() {
    let block = |kind: u32, body: &[u8]| {
        let len = (12 + body.len().next_multiple_of(4)) as u32;
        let filled = [body, &vec![0; body.len().next_multiple_of(4) - body.len()]].concat();
        [
            &kind.to_le_bytes()[..],
            &len.to_le_bytes(),
            &filled,
            &len.to_le_bytes(),
        ]
        .concat()
    };
    let mut bytes = block(
        0x0a0d_0d0a,
        &[
            0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255,
        ],
    );
    // Times in nanoseconds.
    bytes.extend(block(
        1,
        &[1, 0, 0, 0, 0, 0, 4, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0],
    ));
    for (head, packet) in packets_of_sample() {
        let number = |at: usize| u64::from(u32::from_le_bytes(head[at..at + 4].try_into().unwrap()));
        let ticks = number(0) * 1_000_000_000 + number(4) * 1000;
        let len = (packet.len() as u32).to_le_bytes();
        let high = ((ticks >> 32) as u32).to_le_bytes();
        bytes.extend(block(
            6,
            &[
                &[0; 4][..],
                &high,
                &(ticks as u32).to_le_bytes(),
                &len,
                &len,
                packet,
            ]
            .concat(),
        ));
    }
    let (made, of_pcap) = (
        import(From::Pcap, &bytes).unwrap(),
        import(From::Pcap, PCAP).unwrap(),
    );
    assert_eq!(made.imported.stops, Vec::<String>::new());
    assert_eq!(made.commands, of_pcap.commands);
}

#[test]
fn a_pcap_that_is_broken_is_read_up_to_there() {
    let made = import(From::Pcap, &PCAP[..PCAP.len() / 4]).unwrap();
    assert!(
        made.imported.stops[0].contains("the file ends within a packet"),
        "{:?}",
        made.imported.stops
    );
    let error = import(From::Pcap, b"nothing of the kind").err().unwrap();
    assert!(
        error
            .to_string()
            .contains("a.log:4: this is neither a pcap nor a pcapng"),
        "{error}"
    );
}

/// As its format says; there was no TiProxy to make it.
const TIPROXY: &[u8] = b"\
# Time: 2026-11-28T10:00:00.000000001+08:00
# Conn_ID: 9000000001
# Cmd_type: InitDB
# Payload_len: 4
test
# Time: 2026-11-28T10:00:00.5+08:00
# Conn_ID: 9000000001
# Payload_len: 17
SELECT 1\nSELECT 2
# Time: 2026-11-28T10:00:00.6+08:00
# Conn_ID: 9000000001
# Cmd_type: StmtPrepare
# Payload_len: 8
SELECT ?
# Time: 2026-11-28T10:00:00.7+08:00
# Conn_ID: 9000000001
# Cmd_type: StmtExecute
# Captured_ps_id: 1
# Prepared_stmt: \"SELECT ?\"
# Payload_len: 15
\x01\x00\x00\x00\x00\x01\x00\x00\x00\x00\x01\x02\x00\n\x00
# Time: 2026-11-28T10:00:00.8+08:00
# Conn_ID: 5
# Cmd_type: ResetConnect
# Payload_len: 0

# Time: 2026-11-28T10:00:00.9+08:00
# Conn_ID: 9000000001
# Payload_len: 31
SET SESSION_STATES '{\"a\": \"b\"}'
# Time: 2026-11-28T10:00:01+08:00
# Conn_ID: 9000000001
# Cmd_type: Quit
# Payload_len: 0

";

#[test]
fn what_tiproxy_has_captured_is_read() {
    let made = import(From::Tiproxy, TIPROXY).unwrap();
    assert_eq!(made.imported.stops, Vec::<String>::new());
    let told: Vec<_> = made
        .commands
        .iter()
        .map(|command| (command.session, command.start_us, command.statement))
        .collect();
    let one = 9_000_000_001_u64 as u32;
    let known = [
        (one, 0, 0),
        (one, 500_000, 0),
        (one, 600_000, 1),
        (one, 700_000, 1),
        (5, 800_000, 0),
        (one, 1_000_000, 0),
    ];
    assert_eq!(told, known);
    assert_eq!(made.commands[1].body, b"SELECT 1\nSELECT 2");
    assert_eq!(
        (
            made.commands[3].body[5],
            made.commands[3].flags.has(Flags::WITHHELD)
        ),
        (1, false)
    );
    let made = import(From::Tiproxy, &TIPROXY[..TIPROXY.len() - 80]).unwrap();
    assert!(
        made.imported.stops[0].starts_with("a.log:"),
        "{:?}",
        made.imported.stops
    );
}

/// A session goes on in the next file, and begins anew with a reset.
#[test]
fn statements_are_numbered_as_tidb_does() {
    let place = tempfile::tempdir().unwrap();
    let to = place.path().join("imported");
    let one = |command: &str, text: &str| {
        let len = text.len();
        let head = "# Time: 2026-11-28T10:00:00Z\n# Conn_ID: 1\n";
        format!("{head}# Cmd_type: {command}\n# Payload_len: {len}\n{text}\n")
    };
    let first = one("StmtPrepare", "SELECT ?, '?'");
    let second = [
        one("Query", "PREPARE s FROM 'SELECT 2'"),
        one("StmtPrepare", "SELECT 1"),
        one("ResetConnect", ""),
        one("StmtPrepare", "SELECT ? + ?"),
    ];
    let mut importer = Importer::new(From::Tiproxy, &to, None, "test");
    for file in [first, second.concat()] {
        importer.file(Path::new("a.log"), file.as_bytes()).unwrap();
    }
    importer.finish().unwrap();
    let mut folder = Folder::open(&to, None).unwrap();
    let mut prepared = Vec::new();
    while let Some(record) = folder.next_record().unwrap() {
        if let Record::Command(command) = record {
            prepared.push((command.statement, command.parameters));
        }
    }
    assert_eq!(prepared, [(1, 1), (0, 0), (3, 0), (0, 0), (1, 2)]);
}

#[test]
fn the_last_number_of_a_statement_is_no_end() {
    let one = "# Time: 2026-11-28T10:00:00Z\n# Conn_ID: 1\n# Cmd_type: StmtPrepare\n";
    let log = format!(
        "{one}# Captured_ps_id: 4294967295\n# Payload_len: 8\nSELECT ?\n{one}# Payload_len: 8\nSELECT ?\n"
    );
    let made = import(From::Tiproxy, log.as_bytes()).unwrap();
    let numbers: Vec<_> = made.commands.iter().map(|command| command.statement).collect();
    assert_eq!(numbers, [u32::MAX, 0]);
}

proptest::proptest! {
    /// What is read ends and does not panic, whatever has become of a file, and what is made of it can be
    /// read.
    #[test]
    fn broken_files_harm_nothing(
        which in 0..6_usize,
        changes in proptest::collection::vec((proptest::prelude::any::<proptest::sample::Index>(), 0..=255_u8), 0..12),
        cut in proptest::prelude::any::<proptest::sample::Index>(),
    ) {
        let samples = [
            (From::SlowLog, SLOW_MARIADB.as_bytes()),
            (From::SlowLog, SLOW_MYSQL.as_bytes()),
            (From::GeneralLog, GENERAL_MARIADB.as_bytes()),
            (From::GeneralLog, GENERAL_MYSQL.as_bytes()),
            (From::Tiproxy, TIPROXY),
            (From::Pcap, PCAP),
        ];
        let (from, sample) = samples[which];
        let mut bytes = sample.to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(bytes.len() - cut.index(bytes.len()) / 2);
        let _ = import(from, &bytes);
    }
}

#[test]
fn no_secret_of_a_log_gets_into_a_folder() {
    let secrets: &[&str] = &include!("../secrets_list.rs");
    let (mut slow, mut general) = (String::new(), String::new());
    for (number, text) in secrets.iter().enumerate() {
        slow += &format!(
            "# Time: 2026-11-28T03:19:05Z\n# User@Host: a[a] @ h []  Id: {number}\n# Query_time: 0.1\nSET \
             timestamp=1;\n{text};\n"
        );
        general += &format!("2026-11-28T03:19:05Z\t   {number} Query\t{text}\n");
    }
    for (from, log) in [(From::SlowLog, slow), (From::GeneralLog, general)] {
        let made = import(from, log.as_bytes()).unwrap();
        assert_eq!(made.imported.commands, secrets.len() as u64, "{from}");
        for command in &made.commands {
            let body = String::from_utf8_lossy(&command.body);
            assert!(
                command.flags.has(Flags::WITHHELD) && body.is_empty(),
                "{from}: {body}"
            );
        }
    }
}
