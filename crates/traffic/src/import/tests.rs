use std::path::Path;

use super::{From, ImportError, Imported, Importer};
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
    let mut importer = Importer::new(from, &to, "test");
    importer.file(Path::new("a.log"), bytes)?;
    let imported = importer.finish()?;
    let mut folder = Folder::open(&to).unwrap();
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
    assert_eq!(quit.command, mysql_wire::Command::QUIT.0);
}

#[test]
fn a_slow_log_that_is_broken_is_read_up_to_there() {
    let at = SLOW_MARIADB.find("SELECT SLEEP").unwrap() + 8;
    let made = import(From::SlowLog, SLOW_MARIADB[..at].as_bytes()).unwrap();
    assert_eq!(made.texts().len(), 2);
    assert_eq!(
        made.imported.stops,
        ["a.log:20: the file ends within this entry, which is left out"]
    );
    let error = import(From::SlowLog, b"nothing of the kind\n").err().unwrap();
    assert_eq!(error.to_string(), "no command was found: is it a slow-log?");
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
    let insert = "INSERT INTO t (a) VALUES ('x;\n# Time: 1\n\ty'), ('z')";
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
    for flag in [
        Flags::ERROR_UNKNOWN,
        Flags::ROWS_UNKNOWN,
        Flags::TIME_UNKNOWN,
        Flags::UNCHECKED,
    ] {
        assert!(made.commands.iter().all(|command| command.flags.has(flag)));
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
