use super::*;
use crate::record::{Check, Head, SessionRecord};

fn making() -> Making {
    Making {
        pseudonyms: Pseudonyms::new(Key::of(&[7; 32]).as_ref()),
        wanted: Wanted::default(),
        prepared: HashMap::new(),
        may_mean_backslash: false,
    }
}

fn text(sql: &str) -> Option<String> {
    let other = making().text(sql.as_bytes());
    other.map(|other| String::from_utf8(other).unwrap())
}

#[test]
fn texts_keep_their_digest_and_lose_their_values() {
    for sql in [
        "SELECT * FROM t WHERE name = 'Miller' AND age > 42 -- Miller",
        "INSERT INTO t VALUES ('Müller', \"it's Müller\", 1234567, -12.75, 3.5e10, '2026-11-28 10:11:12')",
        "SELECT /*+ MAX_EXECUTION_TIME(1000) */ a FROM t WHERE b LIKE 'Mill\\%er''s%' LIMIT 100",
        "UPDATE t SET a = x'4d696c6c6572', b = 0x4d696c6c6572 /* Miller */ WHERE c IN (10, 20, 30)",
        "SELECT '日本', _utf8mb4'Miller', N'Miller' FROM t WHERE a = -77",
        "/* by Miller */ SELECT 'Miller' -- Miller\n, 'Miller'",
    ] {
        let other = text(sql).unwrap_or_else(|| panic!("{sql}"));
        let hash = |sql: &str| digest(sql.as_bytes(), Syntax::default()).hash;
        assert_eq!(hash(&other), hash(sql), "{other}");
        for value in ["Mill", "Müll", "it's", "日", "1234567", "2026-11-28", "4d69"] {
            assert!(!other.contains(value), "{other}");
        }
        assert_eq!(text(sql).as_ref(), Some(&other));
    }
    // The same value in all of its forms.
    let [one, two, three] = ["'it''s me'", "\"it's me\"", "'it''s\\ me'"].map(|value| {
        let other = text(&format!("SELECT {value}")).unwrap();
        other[8..other.len() - 1].replace("''", "'")
    });
    assert!(one == two && two == three, "{one} {two} {three}");
}

#[test]
fn what_is_not_sure_is_kept_as_a_digest() {
    for sql in [
        "SELECT 'open",
        "PREPARE s FROM 'SELECT \"Miller\"'",
        "EXECUTE IMMEDIATE 'SELECT \"Miller\"'",
        "DROP USER 'miller'@'10.0.0.1'",
        "SELECT /*!99999 'Miller' */ 1",
        "CREATE DEFINER = miller@localhost VIEW v AS SELECT 1",
        "ALTER DEFINER=`miller`@`%` EVENT e ENABLE",
        "SHOW GRANTS FOR miller",
        "SELECT 1; show grants for miller",
        "SHOW CREATE USER miller",
        "KILL HARD USER miller",
        "SELECT @'Miller'",
        "SELECT 'miller'@`Miller`",
    ] {
        assert_eq!(text(sql), None, "{sql}");
    }
    let mut making = making();
    assert!(making.text(b"SELECT 'a\\n'").is_some());
    making.look_for_modes(b"SET sql_mode = 'no_backslash_escapes'");
    assert_eq!(making.text(b"SELECT 'a\\', 'Miller"), None);
    assert_eq!(making.text(b"SELECT 'a\\n'"), None);
}

#[test]
fn what_sessions_set_and_lengths_of_columns_stay() {
    for sql in [
        "SET NAMES 'utf8mb4'",
        "SET SESSION sql_mode = 'ANSI', time_zone = '+01:00'",
        "CREATE TABLE t (a VARCHAR(255), b DECIMAL(10, 2))",
        "CREATE OR REPLACE TEMPORARY TABLE t (a VARCHAR(255))",
        "CREATE INDEX i ON t (a(100))",
        "SELECT a FROM t WHERE b = 0 OR b = 1",
        "SELECT /*+ SET_VAR(a = 10) JOIN_ORDER(t, u@b) */ a FROM t, u",
    ] {
        assert_eq!(text(sql).as_deref(), Some(sql));
    }
}

#[test]
fn only_plain_settings_of_a_session_stay() {
    for sql in [
        "SET NAMES utf8mb4; SELECT a FROM t WHERE name = 'Miller' AND id = 424242",
        "SET SESSION x = (SELECT a FROM t WHERE name = 'Miller' AND id = 424242)",
        "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'Miller 424242'",
        "SET STATEMENT max_statement_time = 1 FOR SELECT a FROM t WHERE name = 'Miller' AND id = 424242",
        "SET @name = 'Miller'",
        "SET /*! STATEMENT */ a = 1 FOR SELECT 'Miller'",
    ] {
        let other = text(sql).unwrap_or_default();
        assert!(!other.contains("Miller") && !other.contains("424242"), "{other}");
    }
    for sql in ["SET ROLE 'miller'", "SET DEFAULT ROLE 'miller' TO me"] {
        assert_eq!(text(sql), None, "{sql}");
    }
}

/// Texts that other character sets or modes cut otherwise: there `Miller` is in a text.
#[test]
fn texts_that_can_be_cut_otherwise_are_withheld() {
    for sql in [
        r"SELECT 'C:\', a, 'Miller'",
        r"SELECT 'x\', 'Miller', \'y'",
        r"SELECT 'a\', 'b\'",
        r"SELECT 'a\', Miller, 'b'",
        r#"SELECT "a\", Miller, 'b'"#,
        "SELECT 1 --\u{a0}Miller",
        "SELECT `m\u{fc}`, `Miller`",
    ] {
        assert_eq!(text(sql), None, "{sql}");
    }
    let making = making();
    for sql in [
        &b"SELECT '\x83\x5c', Miller, 'b'"[..],
        b"SELECT \x83\x60Miller\x83\x60",
        b"SELECT '\x83\\",
    ] {
        assert_eq!(making.text(sql), None, "{}", sql.escape_ascii());
    }
    for sql in [
        r"SELECT 'a\nb', 'C:\\x'",
        "SELECT 'M\u{fc}ller', m\u{fc} FROM `t`",
    ] {
        assert!(text(sql).is_some(), "{sql}");
    }
}

#[test]
fn hints_and_definitions_have_no_values() {
    for sql in [
        "CREATE TABLE t AS SELECT a FROM u WHERE id = 424242",
        "CREATE TABLE t (a INT); DELETE FROM t WHERE id = 424242",
        "CREATE TABLE t AS VALUES (424242)",
        "CREATE VIEW v AS WITH c AS (SELECT 424242) TABLE c",
        "CREATE PROCEDURE p() DELETE FROM t WHERE id = 424242",
        "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO DELETE FROM t WHERE id = 424242",
        "SELECT /*+ 424242 */ a FROM t",
        "SELECT /*+ NO_MERGE(`424242`) */ a FROM t",
        "SELECT /*+ M\u{fc}ller: a(424242) */ a FROM t",
        "SELECT /*+ it's 424242 (so) */ a, /*+ it's */ b FROM t",
    ] {
        let other = text(sql).unwrap_or_default();
        assert!(!other.contains("424242"), "{other}");
    }
    assert_eq!(
        text("SELECT /*+*/ a FROM t").as_deref(),
        Some("SELECT   a FROM t")
    );
}

#[test]
fn what_stands_behind_a_schema_does_not_stay() {
    let body = |keeps_schemas: bool, command: Command, sql: &str| {
        let mut making = making();
        making.wanted.keeps_schemas = keeps_schemas;
        let command = CommandRecord {
            command: command.0,
            body: sql.as_bytes().to_vec(),
            ..CommandRecord::default()
        };
        making.body(&command).map(|body| String::from_utf8(body).unwrap())
    };
    let kept = |sql: &str| body(true, Command::QUERY, sql).unwrap_or_default();
    for sql in ["USE shop", "use `shop` ;", "USE\tshop;"] {
        assert_eq!(kept(sql), "USE `shop`");
        let other = body(false, Command::QUERY, sql).unwrap();
        assert!(other.starts_with("USE `") && !other.contains("shop"), "{other}");
    }
    for sql in [
        "USE shop; SELECT a FROM t WHERE name = 'Miller'",
        "USE shop /* Miller */",
        "USE `shop`; SELECT a FROM t WHERE name = 'Miller' AND `b` = `c`",
        "USE shop -- Miller",
    ] {
        assert!(!kept(sql).contains("Miller"), "{}", kept(sql));
        assert_eq!(body(false, Command::QUERY, sql), None, "{sql}");
    }
    assert_eq!(body(false, Command::STMT_PREPARE, "USE shop"), None);
}

#[test]
fn numbers_become_lesser_ones() {
    let pseudonyms = making().pseudonyms;
    for number in (10_u64..3000).chain([u64::MAX, 2_147_483_647, 100_000]) {
        for token in [number.to_string(), format!("{number:025}")] {
            let other = String::from_utf8(pseudonyms.literal(token.as_bytes()).unwrap()).unwrap();
            assert!(other.parse::<u64>().unwrap() < number, "{token}: {other}");
        }
        // A text keeps its length.
        let token = number.to_string();
        let other = String::from_utf8(pseudonyms.bytes(token.as_bytes())).unwrap();
        assert_eq!(other.len(), token.len());
        assert!(other.parse::<u64>().unwrap() < number, "{token}: {other}");
    }
}

#[test]
fn no_form_of_a_number_stays() {
    for sql in ["SELECT 0b101010", "SELECT b'101010'", "SELECT B'101010'"] {
        assert_eq!(text(sql), None, "{sql}");
    }
    let pseudonyms = making().pseudonyms;
    for value in [
        "0171234567",
        "+171234567",
        " 171234567",
        "-171234567",
        "- 171234567 ",
        "171234567x",
        "1e171234567",
        "0x171234567",
        "0b101010101",
        "000171234567.00",
    ] {
        let mut other = value.as_bytes().to_vec();
        pseudonyms.parameter([246, 0], &mut other);
        let other = String::from_utf8(other).unwrap();
        let is_there = ["171234567", "10101"].iter().any(|digits| other.contains(digits));
        assert!(!is_there, "{value}: {other}");
    }
    for number in [90000.0_f64, 75000.0, 200.0, 50.0, 1e300] {
        let mut value = number.to_le_bytes();
        pseudonyms.parameter([5, 0], &mut value);
        let other = f64::from_le_bytes(value);
        assert!((0.0..number).contains(&other), "{number}: {other}");
    }
    let mut other = b"9e4".to_vec();
    pseudonyms.parameter([246, 0], &mut other);
    assert_ne!(other, b"9e4");
    let mut time = *b"\xea\x07\x0b\x1c\x0a\x0b\x0c\x40\xe2\x01\x00";
    pseudonyms.parameter([12, 0], &mut time);
    assert_ne!(time[7..], *b"\x40\xe2\x01\x00");
    assert!(u32::from_le_bytes(time[7..].try_into().unwrap()) < 1_000_000);
}

/// Of bytes no one stays, but by chance.
#[test]
fn bytes_that_are_no_text_are_drawn() {
    let pseudonyms = making().pseudonyms;
    let same = |one: &[u8], other: &[u8]| {
        assert_eq!(one.len(), other.len());
        one.iter().zip(other).filter(|(one, other)| one == other).count()
    };
    for value in [&[b'!', 0xff].repeat(32)[..], &[b'-', 1].repeat(32)] {
        assert!(same(value, &pseudonyms.bytes(value)) < 8);
        let mut parameter = value.to_vec();
        pseudonyms.parameter([252, 0], &mut parameter);
        assert!(same(value, &parameter) < 8);
    }
    let other = text(&format!("SELECT 0x{}", "2d".repeat(32))).unwrap();
    assert!(other.matches("2d").count() < 8, "{other}");
    // A text with signs is one.
    let other = pseudonyms.bytes(b"one,\ttwo\n");
    assert!(
        other[3..5] == *b",\t" && other[8] == b'\n',
        "{}",
        other.escape_ascii()
    );
}

/// Parts may be so short that a digit would stay, and each letter would always be the same other one.
#[test]
fn of_parts_of_long_parameters_nothing_stays() {
    let mut making = making();
    for part in [&b"7"[..], b"M", b"Miller 424242"] {
        let mut command = CommandRecord {
            session: 1,
            statement: 5,
            command: Command::STMT_SEND_LONG_DATA.0,
            body: [&[5, 0, 0, 0, 0, 0][..], part].concat(),
            ..CommandRecord::default()
        };
        making.command(&mut command);
        assert!(command.body.is_empty() && command.flags.has(Flags::WITHHELD));
    }
}

#[test]
fn statements_of_sessions_that_are_over_are_forgotten() {
    let mut making = making();
    let mut say = |session: u32, statement: u32, command: Command, flags: Flags| {
        making.command(&mut CommandRecord {
            session,
            statement,
            command: command.0,
            flags,
            body: b"SELECT ?".to_vec(),
            ..CommandRecord::default()
        });
        making.prepared.values().map(HashMap::len).sum::<usize>()
    };
    let none = Flags::default();
    for session in 1..=5 {
        say(session, 1, Command::STMT_PREPARE, none);
        say(session, 2, Command::STMT_PREPARE, none);
    }
    assert_eq!(say(5, 1, Command::STMT_CLOSE, none), 9);
    assert_eq!(say(1, 0, Command::QUIT, none), 7);
    assert_eq!(say(2, 0, Command::RESET_CONNECTION, none), 5);
    assert_eq!(say(3, 0, Command::CHANGE_USER, Flags::WITHHELD), 3);
    assert_eq!(say(4, 0, Command::PING, Flags::CLOSED), 1);
}

#[test]
fn files_that_clients_have_sent_are_left_out() {
    let place = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| place.path().join(name));
    let mut writer = FolderWriter::create(&from, Head::default(), 1 << 20, None).unwrap();
    let load = CommandRecord {
        command: Command::QUERY.0,
        body: b"LOAD DATA LOCAL INFILE 'f' INTO TABLE t".to_vec(),
        files: vec![b"1\tMiller\n".to_vec()],
        ..CommandRecord::default()
    };
    writer.put(&Record::Command(Box::new(load))).unwrap();
    writer.finish().unwrap();
    anonymise(&from, &to, None, Wanted::default()).unwrap();
    let mut folder = Folder::open(&to, None).unwrap();
    let Some(Record::Command(made)) = folder.next_record().unwrap() else {
        panic!("it has no command");
    };
    assert!(made.files.is_empty() && made.flags.has(Flags::FILES_CUT));
}

/// All of a folder: names, parameters as texts have them, no hashes of results.
#[test]
fn a_folder_is_made_of_another() {
    let place = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| place.path().join(name));
    let mut writer = FolderWriter::create(&from, Head::default(), 1 << 20, None).unwrap();
    let session = SessionRecord {
        id: 1,
        user: "miller".to_owned(),
        schema: b"shop".to_vec(),
        ..SessionRecord::default()
    };
    writer.put(&Record::Session(session)).unwrap();
    let command = |command: Command, body: &[u8]| {
        Record::Command(Box::new(CommandRecord {
            session: 1,
            command: command.0,
            schema: b"shop".to_vec(),
            body: body.to_vec(),
            statement: 5,
            parameters: 3,
            checks: smallvec::smallvec![Check { sum: 1, chain: 1 }],
            insert_id: 424_242,
            ..CommandRecord::default()
        }))
    };
    let mut execution = vec![5, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1];
    execution.extend_from_slice(&[3, 0, 253, 0, 10, 0]);
    execution.extend_from_slice(&4242_i32.to_le_bytes());
    execution.extend_from_slice(b"\x06Miller\x04\xea\x07\x0b\x1c");
    for record in [
        command(Command::STMT_PREPARE, b"SELECT ?, ?, ?"),
        command(Command::STMT_EXECUTE, &execution),
        command(Command::STMT_EXECUTE, &execution[..execution.len() - 1]),
        command(Command::QUERY, b"SELECT 4242, 'Miller'"),
        command(Command::QUERY, b"USE `shop`"),
        command(Command::INIT_DB, b"shop"),
    ] {
        writer.put(&record).unwrap();
    }
    let result = crate::record::ResultRecord {
        text: "Miller\n".to_owned(),
        ..crate::record::ResultRecord::default()
    };
    writer.put(&Record::Result(result)).unwrap();
    let end = crate::record::End {
        words: "/home/miller/slow.log".to_owned(),
        ..crate::record::End::default()
    };
    writer.put(&Record::End(Box::new(end))).unwrap();
    writer.finish().unwrap();
    let done = anonymise(&from, &to, None, Wanted::default()).unwrap();
    assert_eq!((done.commands, done.withheld), (6, 1));
    let mut folder = Folder::open(&to, None).unwrap();
    assert!(folder.head().is_anonymised);
    let records: Vec<_> = std::iter::from_fn(|| folder.next_record().unwrap()).collect();
    let mut all = Vec::new();
    for record in &records {
        record.encode(&mut all);
        if let Record::Command(command) = record {
            assert!(command.checks.is_empty() && command.flags.has(Flags::UNCHECKED));
            assert_eq!(command.insert_id, 0);
        }
        if let Record::End(end) = record {
            assert_eq!((end.words.as_str(), end.withheld), ("", 1));
        }
    }
    for word in ["Miller", "miller", "shop", "4242"] {
        assert!(
            !all.windows(word.len()).any(|part| part == word.as_bytes()),
            "{word}"
        );
    }
    assert!(matches!(records.last(), Some(Record::End(_))));
    let body = |at: usize| match &records[at] {
        Record::Command(command) => command.body.clone(),
        other => panic!("{other:?}"),
    };
    let (executed, text) = (body(2), String::from_utf8(body(4)).unwrap());
    assert_eq!(executed.len(), execution.len());
    let number = i32::from_le_bytes(executed[17..21].try_into().unwrap());
    let name = String::from_utf8(executed[22..28].to_vec()).unwrap();
    assert_eq!(text, format!("SELECT {number}, '{name}'"));
    assert!((1..=12).contains(&executed[31]) && (1..=28).contains(&executed[32]));
    assert_eq!(
        body(5),
        format!("USE `{}`", String::from_utf8(body(6)).unwrap()).into_bytes()
    );
}
