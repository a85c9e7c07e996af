//! The table of `docs/design/2026-11-20-sessions.md` row by row on the servers themselves, without a gateway:
//! what trackers show of a statement, what they hide, and what they show late. A server that shows something
//! else is a session that sees another one's state.

use std::sync::OnceLock;

use e2e::kind;
use e2e::packets::{Client, Identity};
use mysql_wire::session_state::{Change, changes};
use mysql_wire::{Capabilities, OkPacket, StatusFlags};
use sandbox::{Kind, PASSWORD, Sandbox, Spec, USER};

use crate::cluster;

const SCHEMA: &str = "believed";
const CAPABILITIES: Capabilities = Capabilities::PROTOCOL_41
    .with(Capabilities::SECURE_CONNECTION)
    .with(Capabilities::PLUGIN_AUTH)
    .with(Capabilities::CONNECT_WITH_DB)
    .with(Capabilities::TRANSACTIONS)
    .with(Capabilities::MULTI_STATEMENTS)
    .with(Capabilities::MULTI_RESULTS)
    .with(Capabilities::SESSION_TRACK)
    .with(Capabilities::DEPRECATE_EOF);

/// A server of their own: there are locks of everything among the rows.
fn server() -> &'static Sandbox {
    static SERVER: OnceLock<Sandbox> = OnceLock::new();
    SERVER.get_or_init(|| {
        let server = Sandbox::start(Spec::new(kind())).unwrap();
        cluster::schema(
            &server,
            SCHEMA,
            "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v INT); INSERT INTO t VALUES (1, 1), (2, 2), (3, 3);
             CREATE TABLE triggering (n INT);
             CREATE TRIGGER sets BEFORE INSERT ON triggering FOR EACH ROW SET @by_trigger = 1;
             CREATE FUNCTION assigns_variable() RETURNS INT DETERMINISTIC NO SQL RETURN @by_function := 2;
             CREATE FUNCTION takes_lock() RETURNS INT DETERMINISTIC NO SQL RETURN GET_LOCK('believed', 0);
             CREATE PROCEDURE sets_variable() SET @by_procedure = 1;
             CREATE PROCEDURE takes_lock() DO GET_LOCK('believed', 0);
             CREATE PROCEDURE makes_table() CREATE TEMPORARY TABLE made (n INT);
             DELIMITER //
             CREATE FUNCTION sets_variable() RETURNS INT DETERMINISTIC NO SQL BEGIN SET @by_function = 1; RETURN 1; END//
             DELIMITER ;",
        );
        server
    })
}

/// A connection to the server whose trackers are armed.
struct Direct(Client);

/// What one statement was answered by.
#[derive(Default)]
struct Answer {
    /// What its OK packets say of the session, one word or more for each change.
    seen: Vec<String>,
    /// Of the last one.
    ok: OkPacket,
    /// First columns of rows, NULL as `NULL`.
    values: Vec<String>,
    error: Option<u16>,
}

/// Named, these are not told as others that are kept in the same place.
const OF_MARIADB: &str = "autocommit,last_gtid,collation_connection,collation_database,collation_server,*";

impl Direct {
    fn connect() -> Self {
        let identity = Identity {
            user: USER,
            password: PASSWORD,
            database: Some(SCHEMA),
            charset: 45,
            capabilities: CAPABILITIES,
        };
        let address = server().primary().address();
        let (client, verdict) = Client::connect(&address, &identity).unwrap();
        assert_eq!(verdict.payload[0], 0, "{:?}", verdict.payload);
        let mut direct = Self(client);
        direct.arm();
        direct
    }

    fn arm(&mut self) {
        let (list, gtids) = match kind() {
            Kind::Mysql => {
                self.run("SET SESSION group_concat_max_len = 1048576");
                let mut names = self.run(
                    "SELECT GROUP_CONCAT(VARIABLE_NAME) FROM performance_schema.variables_metadata
                     WHERE VARIABLE_SCOPE <> 'GLOBAL' AND VARIABLE_NAME <> 'statement_id'",
                );
                if names.error.is_some() {
                    // Before MySQL 9 nothing tells the scopes; to watch a global variable does nothing.
                    names = self.run(
                        "SELECT GROUP_CONCAT(VARIABLE_NAME) FROM performance_schema.session_variables
                         WHERE VARIABLE_NAME <> 'statement_id'",
                    );
                }
                (names.values[0].clone(), ", session_track_gtids = 'OWN_GTID'")
            }
            _ => (OF_MARIADB.to_owned(), ""),
        };
        let armed = self.run(&format!(
            "SET SESSION session_track_system_variables = '{list}', session_track_schema = ON,
             session_track_state_change = ON, session_track_transaction_info = 'CHARACTERISTICS'{gtids}"
        ));
        assert_eq!(armed.error, None);
    }

    fn command(&mut self, payload: &[u8]) -> Answer {
        self.0.send_payload(0, payload).unwrap();
        let mut answer = Answer::default();
        loop {
            let first = self.0.packet().unwrap().payload;
            let last = match first[0] {
                0xff => {
                    answer.error = Some(u16::from_le_bytes([first[1], first[2]]));
                    return answer;
                }
                0 => first,
                columns => {
                    for _ in 0..columns {
                        self.0.packet().unwrap();
                    }
                    self.rows(&mut answer)
                }
            };
            let ok = OkPacket::decode(&last, self.0.capabilities).unwrap();
            answer.seen.extend(words(&ok.session_state));
            let more = ok.status.contains(StatusFlags::MORE_RESULTS);
            answer.ok = ok;
            if !more {
                return answer;
            }
        }
    }

    /// Reads rows, and returns the packet behind them.
    fn rows(&mut self, answer: &mut Answer) -> Vec<u8> {
        loop {
            let row = self.0.packet().unwrap().payload;
            match row[0] {
                0xfe => return row,
                0xfb => answer.values.push("NULL".to_owned()),
                0xfc => {
                    let len = usize::from(u16::from_le_bytes([row[1], row[2]]));
                    answer
                        .values
                        .push(String::from_utf8_lossy(&row[3..3 + len]).into_owned());
                }
                0xfd => {
                    let len = usize::from(row[1]) | usize::from(row[2]) << 8 | usize::from(row[3]) << 16;
                    answer
                        .values
                        .push(String::from_utf8_lossy(&row[4..4 + len]).into_owned());
                }
                len => {
                    let value = &row[1..=usize::from(len)];
                    answer.values.push(String::from_utf8_lossy(value).into_owned());
                }
            }
        }
    }

    fn run(&mut self, statement: &str) -> Answer {
        self.command(&[b"\x03", statement.as_bytes()].concat())
    }

    /// What trackers show of it: it must succeed.
    fn seen(&mut self, statement: &str) -> Vec<String> {
        let answer = self.run(statement);
        assert_eq!(answer.error, None, "{statement}");
        answer.seen
    }

    fn value(&mut self, question: &str) -> String {
        let answer = self.run(question);
        assert_eq!(answer.error, None, "{question}");
        answer.values[0].clone()
    }
}

/// Every change in words, in alphabetical order. What changes with every write is left out.
fn words(encoded: &[u8]) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let word = |change: Change<'_>| match change {
        Change::Variable {
            name: b"last_gtid", ..
        }
        | Change::Gtids(_) => None,
        Change::Variable { name, value } => Some(format!("{} = {}", text(name), text(value))),
        Change::Schema(name) => Some(format!("schema {}", text(name))),
        Change::StateChanged(_) => Some("state".to_owned()),
        Change::Characteristics(said) => Some(format!("characteristics {}", text(said))),
        Change::TransactionState(state) => Some(format!("transaction {}", text(state))),
        Change::Other { kind, .. } => Some(format!("kind {kind}")),
    };
    let mut words: Vec<String> = changes(encoded)
        .filter_map(|change| word(change.unwrap()))
        .collect();
    words.sort();
    words
}

/// Statements in their order, on one connection, and all that trackers show of each.
#[track_caller]
fn shows(rows: &[(&str, &[&str])]) {
    let mut direct = Direct::connect();
    let shares_names = shares_names(&mut direct);
    let mut different = Vec::new();
    for (statement, believed) in rows {
        let seen = direct.seen(statement);
        let mut believed: Vec<_> = believed.iter().map(|word| (*word).to_owned()).collect();
        if shares_names && let Some(charset) = believed.iter_mut().find(|word| is_charset(word)) {
            *charset = format!(
                "collation_connection = {}",
                direct.value("SELECT @@collation_connection")
            );
            believed.sort();
        }
        if seen != believed {
            different.push(format!("{statement}: {seen:?}, and not {believed:?}"));
        }
    }
    assert!(different.is_empty(), "{different:#?}");
}

fn is_charset(word: &str) -> bool {
    word.starts_with("character_set_connection = ")
}

/// MariaDB 11 has one name for all variables that are kept in the same place: it tells the first of them that
/// was named when the trackers were armed.
fn shares_names(direct: &mut Direct) -> bool {
    let seen = direct.seen("SET foreign_key_checks = @@foreign_key_checks");
    assert!(
        seen == ["autocommit = ON", "state"] || seen == ["foreign_key_checks = ON", "state"],
        "{seen:?}"
    );
    seen[0].starts_with("autocommit")
}

/// What the gateway counts on: a new transaction is told as such, whatever has been told before, and nothing
/// else as one that is another than the last. What was set and is told by no name of its own it asks for.
#[test]
fn what_mariadb_tells_as_something_else() {
    if is_mysql() {
        return;
    }
    let mut direct = Direct::connect();
    let gtid_in = |answer: &Answer| {
        let mut all = changes(&answer.ok.session_state).map(Result::unwrap);
        all.find_map(|change| match change {
            Change::Variable {
                name: b"last_gtid",
                value,
            } => Some(String::from_utf8_lossy(value).into_owned()),
            _ => None,
        })
    };
    for round in 0..2 {
        for set in [
            "last_insert_id = 7",
            "identity = 8",
            "innodb_lock_wait_timeout = 9",
            "timestamp = 10",
        ] {
            let before = direct.value("SELECT @@last_gtid");
            let answer = direct.run(&format!("SET {set}"));
            assert_eq!(answer.error, None, "{set}");
            let told = gtid_in(&answer);
            assert!(
                told.is_none_or(|gtid| gtid == before),
                "{set}, {round}: {before:?}"
            );
        }
        let answer = direct.run("INSERT INTO t (v) VALUES (5)");
        let gtid = direct.value("SELECT @@last_gtid");
        assert_eq!(gtid_in(&answer), Some(gtid), "{round}");
    }
    // With nothing that tells it by its name there is that some state has changed, except where one without a
    // scope is set by `@@`.
    for set in [
        "foreign_key_checks = 0",
        "sql_auto_is_null = 1",
        "innodb_lock_wait_timeout = 11",
    ] {
        let seen = direct.seen(&format!("SET {set}"));
        assert!(seen.contains(&"state".to_owned()), "{set}: {seen:?}");
    }
}

fn is_mysql() -> bool {
    kind() == Kind::Mysql
}

#[test]
fn what_is_set() {
    shows(&[
        ("USE mysql", &["schema mysql", "state"]),
        ("USE believed", &["schema believed", "state"]),
        (
            "SET SESSION sort_buffer_size = 131072",
            &["sort_buffer_size = 131072", "state"],
        ),
        (
            "SET NAMES latin1",
            &[
                "character_set_client = latin1",
                "character_set_connection = latin1",
                "character_set_results = latin1",
                "state",
            ],
        ),
        // No collation, although it is another one.
        (
            "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
            &[
                "character_set_client = utf8mb4",
                "character_set_connection = utf8mb4",
                "character_set_results = utf8mb4",
                "state",
            ],
        ),
        // No charset, although it is another one.
        (
            "SET collation_connection = latin1_bin",
            &["collation_connection = latin1_bin", "state"],
        ),
        ("SET @x = 1", &["state"]),
        ("PREPARE s FROM 'SELECT 1'", &["state"]),
        ("DEALLOCATE PREPARE s", &["state"]),
        ("CREATE TEMPORARY TABLE temporary_one (n INT)", &["state"]),
        ("SELECT sets_variable()", &["state"]),
        ("CALL sets_variable()", &["state"]),
        ("CALL makes_table()", &["state"]),
        ("DROP TABLE made", &[]),
        ("INSERT INTO triggering VALUES (1)", &["state"]),
    ]);
}

#[test]
fn transactions_and_table_locks() {
    shows(&[
        (
            "BEGIN",
            &["characteristics START TRANSACTION;", "transaction T_______"],
        ),
        ("COMMIT", &["characteristics ", "transaction ________"]),
        (
            "SET TRANSACTION READ ONLY",
            &["characteristics SET TRANSACTION READ ONLY;"],
        ),
        ("SELECT COUNT(*) FROM t", &["characteristics "]),
        ("LOCK TABLES t WRITE", &["transaction _______L"]),
        ("UNLOCK TABLES", &["transaction ________"]),
        ("SET autocommit = 0", &["autocommit = OFF", "state"]),
        ("SELECT COUNT(*) FROM t", &["transaction I_R___S_"]),
        ("COMMIT", &["transaction ________"]),
        ("SET autocommit = 1", &["autocommit = ON", "state"]),
    ]);
}

/// The branch is nobody's on MySQL since 8.0.29, and the connection's before that and on MariaDB.
#[test]
fn branches_that_are_prepared() {
    let mut direct = Direct::connect();
    for statement in [
        "XA START 'believed'",
        "INSERT INTO t (v) VALUES (4)",
        "XA END 'believed'",
    ] {
        direct.seen(statement);
    }
    let seen = direct.seen("XA PREPARE 'believed'");
    let ends = seen.iter().any(|word| word == "transaction ________");
    let is_nobodys = is_mysql() && server().release() >= [8, 0, 29];
    assert_eq!(ends, is_nobodys, "{seen:?}");
    assert_eq!(direct.run("BEGIN").error.is_none(), is_nobodys);
    direct.run("COMMIT");
    direct.seen("XA ROLLBACK 'believed'");
}

#[test]
fn what_is_hidden() {
    let locks_all: &[&str] = if is_mysql() {
        &["LOCK INSTANCE FOR BACKUP", "UNLOCK INSTANCE"]
    } else {
        &[
            "BACKUP STAGE START",
            "BACKUP STAGE END",
            "BACKUP LOCK t",
            "BACKUP UNLOCK",
        ]
    };
    let rows = [
        "SELECT 1 INTO @hidden",
        "SELECT @hidden := 2",
        "SELECT GET_LOCK('believed', 0)",
        "SELECT RELEASE_LOCK('believed')",
        "DO GET_LOCK('believed', 0)",
        "DO RELEASE_ALL_LOCKS()",
        "HANDLER t OPEN",
        "HANDLER t CLOSE",
        "SELECT assigns_variable()",
        "CALL takes_lock()",
        "SELECT takes_lock()",
        "DO RELEASE_ALL_LOCKS()",
        "DROP TABLE made",
        "FLUSH TABLES WITH READ LOCK",
    ];
    let mut direct = Direct::connect();
    direct.seen("CREATE TEMPORARY TABLE made (n INT)");
    let mut shown = Vec::new();
    for row in locks_all.iter().chain(&rows) {
        let seen = direct.seen(row);
        if !seen.is_empty() {
            shown.push((row, seen));
        }
    }
    assert!(shown.is_empty(), "{shown:#?}");
    // They were done all the same.
    assert_eq!(direct.value("SELECT @hidden"), "2");
    assert_eq!(direct.value("SELECT @by_function"), "2");
    // A role that is none already: MariaDB shows it, MySQL does not.
    assert_eq!(direct.seen("SET ROLE NONE").is_empty(), is_mysql());
}

#[test]
fn what_is_shown_late_or_not_as_it_is() {
    let mut direct = Direct::connect();
    direct.seen("SET timestamp = 1234567890");
    let seen = direct.seen("SET timestamp = DEFAULT");
    assert!(
        seen.iter().any(|word| word.starts_with("timestamp = 1234567890"))
            || !seen.iter().any(|word| word.starts_with("timestamp")),
        "the old value, or none: {seen:?}"
    );
    assert_ne!(direct.value("SELECT FLOOR(@@timestamp)"), "1234567890");

    for variable in ["foreign_key_checks", "unique_checks"] {
        direct.seen(&format!("SET {variable} = DEFAULT"));
        let is = direct.value(&format!(
            "SELECT CONCAT(@@{variable} + 0, @@global.{variable} + 0)"
        ));
        assert_eq!(is, if is_mysql() { "01" } else { "11" }, "{variable}");
    }

    let modes = [("ANSI_QUOTES", 0x8000), ("NO_BACKSLASH_ESCAPES", 0x0200)];
    for (mode, flag) in modes {
        let answer = direct.run(&format!("SET sql_mode = '{mode}'"));
        assert!(
            answer.seen.iter().any(|word| word.contains(mode)),
            "{:?}",
            answer.seen
        );
        let has_flag = answer.ok.status.0 & flag != 0;
        assert_eq!(
            has_flag,
            !(is_mysql() && mode == "ANSI_QUOTES"),
            "{mode}: {:x}",
            answer.ok.status.0
        );
    }
    direct.seen("SET sql_mode = DEFAULT");

    if is_mysql() {
        let seen = direct.seen("SELECT /*+ SET_VAR(sort_buffer_size = 65536) */ 1");
        let own = direct.value("SELECT @@sort_buffer_size");
        let last = seen.iter().rfind(|word| word.starts_with("sort_buffer_size"));
        assert!(
            last.is_none_or(|word| *word == format!("sort_buffer_size = {own}")),
            "{seen:?}"
        );
    } else {
        let before = direct.value("SELECT @@sort_buffer_size");
        let seen = direct.seen("SET STATEMENT sort_buffer_size = 65536 FOR SELECT 1");
        assert!(
            seen.contains(&"sort_buffer_size = 65536".to_owned()),
            "the value for the time being: {seen:?}"
        );
        assert_eq!(direct.value("SELECT @@sort_buffer_size"), before);
        let nothing_else = direct.seen("SELECT 1");
        assert!(nothing_else.is_empty(), "{nothing_else:?}");
        let seen = direct.seen("SET @anything = 1");
        assert!(
            seen.contains(&format!("sort_buffer_size = {before}")),
            "with the next change: {seen:?}"
        );
    }
}

/// Trackers are off, in silence; the schema stays.
#[test]
fn what_a_reset_leaves() {
    let mut direct = Direct::connect();
    direct.seen("USE mysql");
    direct.seen("SET NAMES latin1, @x = 1");
    let reset = direct.command(b"\x1f");
    assert_eq!(reset.error, None);
    assert_eq!(direct.value("SELECT DATABASE()"), "mysql");
    assert_eq!(direct.value("SELECT @x"), "NULL");
    assert_eq!(
        direct.seen("SET SESSION sort_buffer_size = 131072"),
        Vec::<String>::new()
    );
    // MariaDB: that of the login, utf8mb4; MySQL: the global one.
    let (charset, global) = (
        direct.value("SELECT @@character_set_client"),
        direct.value("SELECT @@global.character_set_client"),
    );
    assert_eq!(charset, if is_mysql() { global } else { "utf8mb4".to_owned() });
}

/// MariaDB has reset the session and goes on as who it was; MySQL ends the connection.
#[test]
fn what_a_refused_change_of_user_leaves() {
    let mut direct = Direct::connect();
    direct.seen("SET @x = 1");
    let before = direct.value("SELECT CURRENT_USER()");
    let change = direct.0.change_user_payload(USER, "wrong", "mysql");
    direct.0.send_payload(0, &change).unwrap();
    let verdict = direct.0.authenticate("wrong").unwrap();
    assert_eq!(verdict.payload[0], 0xff);
    if is_mysql() {
        assert!(direct.0.packet().is_err());
        return;
    }
    assert_eq!(direct.value("SELECT @x"), "NULL");
    assert_eq!(direct.value("SELECT CURRENT_USER()"), before);
    assert_eq!(
        direct.seen("SET @x = 1"),
        Vec::<String>::new(),
        "its trackers are off"
    );
}

#[test]
fn what_the_last_statement_leaves() {
    let mut direct = Direct::connect();
    // An id that the statement gave itself is in its OK, and LAST_INSERT_ID() does not say it.
    let given = direct.run("INSERT INTO t (id, v) VALUES (1000, 1)");
    assert_eq!(given.ok.last_insert_id, 1000);
    assert_eq!(direct.value("SELECT LAST_INSERT_ID()"), "0");
    direct.seen("DELETE FROM t WHERE id = 1000");

    // Rows that OFFSET has passed over are counted.
    direct.seen("SELECT id FROM t ORDER BY id LIMIT 1 OFFSET 1");
    assert_eq!(direct.value("SELECT FOUND_ROWS()"), "2");
    direct.seen("SELECT id FROM t WHERE id <= 3 ORDER BY id");
    direct.seen("UPDATE t SET v = v + 1 WHERE id = 1");
    assert_eq!(
        direct.value("SELECT FOUND_ROWS()") == "3",
        !is_mysql(),
        "MySQL: an UPDATE changes it"
    );

    // Warnings are kept over statements without tables on MariaDB alone.
    for (statement, keeps) in [
        ("SET @x = 1", !is_mysql()),
        ("SELECT 1", !is_mysql()),
        ("SELECT COUNT(*) FROM t", false),
    ] {
        direct.seen("SELECT CAST('x' AS SIGNED) FROM t WHERE id = 1");
        direct.seen(statement);
        let left = !direct.run("SHOW WARNINGS").values.is_empty();
        assert_eq!(left, keeps, "{statement}");
    }
    direct.seen("SELECT CAST('x' AS SIGNED) FROM t WHERE id = 1");
    direct.seen("DO (SELECT 1 FROM (SELECT 1) AS t)");
    assert!(direct.run("SHOW WARNINGS").values.is_empty(), "cleared on both");
}

/// Why variables are named one by one there.
#[test]
fn all_variables_of_mysql_are_too_many() {
    if !is_mysql() {
        return;
    }
    let mut direct = Direct::connect();
    direct.seen("SET SESSION session_track_system_variables = '*'");
    let seen = direct.seen("SELECT 1");
    assert!(
        seen.iter().any(|word| word.starts_with("statement_id")),
        "{seen:?}"
    );
}
