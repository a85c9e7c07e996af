//! What servers report of a session, and how it is taken.

use std::rc::Rc;

use mysql_wire::session_state::Change;
use mysql_wire::{Command, OkPacket, Outcome, StatusFlags};
use session::{KnownConnection, PinReason, Session};
use sql_class::Dialect;

use super::{FINE, MARIADB, MYSQL, Says, reasons, run, session, start, statement};

const MARIADB_11: Dialect = Dialect::MariaDb { version: 110_405 };

fn reports<'a>(changes: &'a [Change<'a>]) -> Says<'a> {
    Says { changes, ..FINE }
}

fn variable<'a>(name: &'a str, value: &'a str) -> Change<'a> {
    let (name, value) = (name.as_bytes(), value.as_bytes());
    Change::Variable { name, value }
}

/// What is asked for, by its names, and answered.
fn asked_for(session: &mut Session, answers: &[(&str, Option<&str>)]) {
    assert_eq!(session.has_unseen(), !answers.is_empty());
    assert_eq!(session.ask_unseen(), None);
    let names = session.take_unnamed();
    assert_eq!(names.len(), answers.len(), "{names:?}");
    for (name, (expected, answer)) in names.iter().zip(answers) {
        assert_eq!(**name, *expected.as_bytes());
        session.learn_value(name, answer.map(str::as_bytes));
    }
}

fn observe(session: &mut Session, changes: &[Change<'_>]) {
    let mut ok = OkPacket::default();
    ok.status.insert(mysql_wire::StatusFlags::AUTOCOMMIT);
    changes
        .iter()
        .for_each(|change| change.encode(&mut ok.session_state));
    session.observe_ok(&ok);
}

#[test]
fn what_mariadb_reports_under_another_name_is_asked_for() {
    let mut session = session(MARIADB_11);
    let of_switches = [variable("autocommit", "ON"), Change::StateChanged(true)];
    run(&mut session, "SET foreign_key_checks=0", &reports(&of_switches));
    asked_for(&mut session, &[("foreign_key_checks", Some("0"))]);
    assert_eq!(session.carried().variable(b"foreign_key_checks"), Some(&b"0"[..]));
    assert!(!session.is_pinned());
    // Of a storage engine, with one that is reported.
    let mode = [
        variable("sql_mode", ""),
        variable("last_gtid", ""),
        Change::StateChanged(true),
    ];
    let text = "SET sql_mode='', SESSION innodb_lock_wait_timeout=7, @@global.x=1";
    run(&mut session, text, &reports(&mode));
    asked_for(&mut session, &[("innodb_lock_wait_timeout", Some("7"))]);
    assert_eq!(
        session.carried().variable(b"innodb_lock_wait_timeout"),
        Some(&b"7"[..])
    );
    assert_eq!(session.carried().variable(b"sql_mode"), Some(&b""[..]));
    assert!(session.gtid().is_none() && !session.is_pinned());
    // By its other name, and by its collation.
    let others = [
        variable("tx_isolation", "SERIALIZABLE"),
        variable("collation_connection", "latin1_bin"),
        Change::StateChanged(true),
    ];
    let text = "SET SESSION transaction_isolation='SERIALIZABLE', character_set_connection=latin1";
    run(&mut session, text, &reports(&others));
    asked_for(&mut session, &[]);
    assert_eq!(session.carried().variable(b"tx_isolation"), None);
    let isolation = session.carried().variable(b"transaction_isolation");
    assert_eq!(isolation, Some(&b"SERIALIZABLE"[..]));
    assert_eq!(
        session.carried().variable(b"collation_connection"),
        Some(&b"latin1_bin"[..])
    );
    assert!(!session.is_pinned());
    // A statement that fails has set nothing.
    let failed = Says {
        error: Some(1231),
        ..FINE
    };
    run(&mut session, "SET unique_checks='x'", &failed);
    asked_for(&mut session, &[]);
    // One that does not say what it sets.
    run(&mut session, "SELECT 1 FROM t", &FINE);
    run(&mut session, "SET unique_checks=0", &reports(&of_switches));
    asked_for(&mut session, &[("unique_checks", None)]);
    assert_eq!(reasons(&session), [PinReason::Uncarried]);
}

#[test]
fn what_a_text_would_have_set_that_failed_is_asked_for_by_setting_it() {
    let mut session = session(MARIADB_11);
    // A charset with its collation, which need not be the charset's own.
    let failed = Says {
        error: Some(1064),
        ..FINE
    };
    let text = "INSERT INTO t VALUES (1); SET character_set_connection=utf8mb4";
    run(&mut session, text, &failed);
    let question = session.ask_unseen();
    let asked = b"\x03SET collation_connection=@@collation_connection";
    assert_eq!(question.as_deref(), Some(&asked[..]));
    observe(
        &mut session,
        &[variable("collation_connection", "utf8mb4_unicode_ci")],
    );
    assert!(session.take_unnamed().is_empty());
    let carried = |name: &str| session.carried().variable(name.as_bytes());
    assert_eq!(carried("collation_connection"), Some(&b"utf8mb4_unicode_ci"[..]));
    assert_eq!(carried("character_set_connection"), Some(&b"utf8mb4"[..]));
    run(&mut session, "SELECT 1 FROM t", &FINE);
    assert!(!session.is_pinned());
    // What may not be set is not carried to where it would be refused.
    run(
        &mut session,
        "SET time_zone='+00:00'; SET max_allowed_packet=1",
        &failed,
    );
    assert!(session.ask_unseen().is_some());
    session.remains_unseen();
    run(&mut session, "SELECT 1 FROM t", &FINE);
    assert_eq!(reasons(&session), [PinReason::Uncarried]);
    let mut session = super::session(MARIADB);
    run(&mut session, "SET @@nosuch=1", &failed);
    assert!(!session.has_unseen());
}

#[test]
fn a_charset_of_the_server_goes_with_its_collation() {
    for dialect in [MYSQL, MARIADB] {
        let mut session = session(dialect);
        let charset = variable("character_set_server", "latin1");
        let collation = variable("collation_server", "latin1_bin");
        run(
            &mut session,
            "SET collation_server=latin1_bin",
            &reports(&[collation]),
        );
        run(
            &mut session,
            "SET character_set_server=latin1",
            &reports(&[charset]),
        );
        assert_eq!(session.carried().variable(b"collation_server"), None);
        assert_eq!(
            session.carried().variable(b"character_set_server"),
            Some(&b"latin1"[..])
        );
        let both = [charset, collation];
        run(
            &mut session,
            "SET character_set_server=latin1, collation_server=latin1_bin",
            &reports(&both),
        );
        assert_eq!(
            session.carried().variable(b"collation_server"),
            Some(&b"latin1_bin"[..])
        );
    }
}

#[test]
fn a_transaction_that_is_told_again_is_no_new_one() {
    let mut session = session(MARIADB_11);
    let told = |gtid| [variable("last_gtid", gtid)];
    let insert = "INSERT INTO t VALUES (1)";
    run(&mut session, insert, &reports(&told("0-1-10")));
    assert_eq!(session.gtid(), Some(&b"0-1-10"[..]));
    assert!(session.has_just_written());
    // Another connection, on which somebody else was the last to write. What the gateway sets on it has it
    // told.
    let mut other = Session::new(start(MARIADB_11));
    other.note_connection(KnownConnection::FRESH);
    run(&mut other, insert, &reports(&told("0-1-5")));
    session.note_connection(other.connection_left(KnownConnection::FRESH));
    let mut ok = OkPacket::default();
    told("0-1-5")[0].encode(&mut ok.session_state);
    Change::StateChanged(true).encode(&mut ok.session_state);
    session.observe_primed(&ok);
    // And so does what the client sets.
    let set = [
        variable("last_gtid", "0-1-5"),
        variable("sql_mode", ""),
        Change::StateChanged(true),
    ];
    run(
        &mut session,
        "SET sql_mode='', innodb_lock_wait_timeout=7",
        &reports(&set),
    );
    asked_for(&mut session, &[("innodb_lock_wait_timeout", Some("7"))]);
    assert_eq!(session.gtid(), Some(&b"0-1-10"[..]));
    assert!(!session.has_just_written() && !session.is_pinned());
    run(&mut session, insert, &reports(&told("0-1-11")));
    assert_eq!(session.gtid(), Some(&b"0-1-11"[..]));
    for nothing in ["", "5", "x-1-2"] {
        run(&mut session, insert, &reports(&told(nothing)));
        assert_eq!(session.gtid(), Some(&b"0-1-11"[..]), "{nothing}");
    }
}

#[test]
fn what_was_written_is_read_once_until_the_next_write() {
    let mut session = session(MARIADB_11);
    assert_eq!(session.written(), Ok(None));
    let insert = "INSERT INTO t VALUES (1)";
    for (told, all) in [("0-1-10", "0-1-10"), ("1-1-3", "0-1-10,1-1-3")] {
        run(&mut session, insert, &reports(&[variable("last_gtid", told)]));
        let written = Rc::clone(session.written().unwrap().unwrap());
        assert_eq!(written.to_string(), all);
        assert!(Rc::ptr_eq(&written, session.written().unwrap().unwrap()));
    }
    session.keep_gtids(b"0-1-9");
    assert_eq!(session.written().unwrap().unwrap().to_string(), "0-1-9");
    session.keep_gtids(b"*");
    assert!(session.written().is_err(), "more than can be told");
}

/// Nobody has looked at what the connection had written before. What is told when `SET autocommit=1` commits
/// is of this session all the same.
#[test]
fn what_set_autocommit_commits_is_known() {
    let mut session = session(MARIADB_11);
    let told = |gtid| [variable("last_gtid", gtid)];
    let insert = "INSERT INTO t VALUES (1)";
    run(&mut session, insert, &reports(&told("0-1-10")));
    session.note_connection(KnownConnection::UNKNOWN);
    let in_status = |status| Says { status, ..FINE };
    run(
        &mut session,
        "SET autocommit=0",
        &in_status(StatusFlags::default()),
    );
    run(&mut session, insert, &in_status(StatusFlags::IN_TRANS));
    run(&mut session, "SET autocommit=1", &reports(&told("0-1-11")));
    assert_eq!(session.gtid(), Some(&b"0-1-11"[..]));
    assert!(session.has_just_written());
}

/// An answer to an INSERT has the id that the statement gave as well as one that the server made.
#[test]
fn ids_that_a_statement_gives_are_told_from_those_that_the_server_makes() {
    let mut session = session(MARIADB);
    let inserts = |session: &mut Session, text: &str, id: u64| {
        let facts = sql_class::facts(text.as_bytes(), session.syntax());
        session.begin(&statement(Command::QUERY, text, Some(&facts), 0));
        session.end(&Outcome {
            status: FINE.status,
            has_status: true,
            affected_rows: 1,
            last_insert_id: id,
            ..Outcome::default()
        });
    };
    // What the connection is asked, its answer, and what the session's id is then.
    let asked = |session: &mut Session, answer: &'static [u8]| {
        let question = session.ask_last_insert_id().unwrap();
        assert_eq!(question, b"\x03VALUES (LAST_INSERT_ID()) LIMIT 1");
        assert!(session.asks_by_a_row());
        session.observe_primed(&OkPacket::default());
        session.learn_insert_id_asked(str::from_utf8(answer).unwrap().parse().unwrap());
        assert!(session.knows_last_insert_id() && session.ask_last_insert_id().is_none());
        let _ = session.leave();
        session.last_insert_id()
    };
    inserts(&mut session, "INSERT INTO t (v) VALUES (1)", 7);
    assert_eq!(asked(&mut session, b"7"), 7);
    inserts(&mut session, "INSERT INTO t VALUES (500)", 500);
    assert_eq!(asked(&mut session, b"99"), 7, "99 is another session's");
    for id in [8, 600, 601] {
        inserts(&mut session, "INSERT INTO t VALUES (?)", id);
    }
    assert_eq!(asked(&mut session, b"8"), 8);
    for id in [602, 603] {
        inserts(&mut session, "INSERT INTO t VALUES (?)", id);
    }
    assert_eq!(asked(&mut session, b"99"), 8);
    inserts(&mut session, "INSERT INTO t VALUES () RETURNING id", 0);
    assert_eq!(asked(&mut session, b"9"), 9);
    inserts(&mut session, "DELETE FROM t RETURNING id", 0);
    assert!(session.knows_last_insert_id());
    // Where nobody asks, the answer is believed.
    inserts(&mut session, "INSERT INTO t (v) VALUES (1)", 10);
    let _ = session.leave();
    assert!(session.knows_last_insert_id() && session.last_insert_id() == 10);
}

/// What only a connection that is gone knew ends no session that does not ask for it.
#[test]
fn an_id_that_is_lost_is_only_missed_by_who_may_read_it() {
    let run = |session: &mut Session, text: &str, id: u64| {
        let facts = sql_class::facts(text.as_bytes(), session.syntax());
        let statement = statement(Command::QUERY, text, Some(&facts), 0);
        let primed = session.prime(&statement);
        session.begin(&statement);
        session.end(&Outcome {
            last_insert_id: id,
            has_status: true,
            status: FINE.status,
            ..Outcome::default()
        });
        primed.is_some()
    };
    let lost = || {
        let mut session = session(MARIADB);
        run(&mut session, "INSERT INTO t VALUES (500)", 500);
        session.move_on_without();
        assert!(session.has_lost_insert_id());
        session
    };
    let mut busy = lost();
    for id in 1..=20 {
        let text = format!("INSERT INTO t VALUES ({id})");
        assert!(
            !run(&mut busy, &text, id) && !busy.has_many_insert_ids(),
            "{text}"
        );
    }
    assert!(run(&mut busy, "SELECT LAST_INSERT_ID()", 0));
    for text in [
        "LOAD DATA INFILE 'f' INTO TABLE t",
        "INSERT INTO t VALUES () RETURNING id",
        "INSERT INTO t VALUES (1); DELETE FROM t",
        "UPDATE t SET v = LAST_INSERT_ID(v + 1)",
        "SELECT 1",
    ] {
        assert!(!run(&mut lost(), text, 0), "{text}");
    }
    for text in [
        "SELECT LAST_INSERT_ID()",
        "SELECT @@last_insert_id, @@identity",
        "UPDATE t SET v = LAST_INSERT_ID(LAST_INSERT_ID() + 1)",
        "UPDATE t SET v = LAST_INSERT_ID(@@identity)",
        "INSERT INTO t VALUES (1); SELECT LAST_INSERT_ID()",
        "SHOW VARIABLES",
        "CALL p()",
        "SELECT f()",
        "EXECUTE s",
        "SELECT 'cut",
    ] {
        assert!(run(&mut lost(), text, 0), "{text}");
    }
}

/// A session that moves goes by the names in its texts where its server lists none. What may have set others
/// keeps it.
#[test]
fn user_variables_are_known_by_their_names_or_not() {
    let changed = [Change::StateChanged(true)];
    let failed = Says {
        error: Some(1062),
        ..FINE
    };
    let rows = |changes| Says {
        rows: Some(1),
        ..reports(changes)
    };
    let set = || ("SET @x=1", reports(&changed));
    let insert = "INSERT INTO t VALUES (1)";
    for (is_known, texts) in [
        (true, vec![set()]),
        (true, vec![set(), ("SELECT @x FROM t", rows(&[]))]),
        (true, vec![set(), ("INSERT INTO t VALUES (@x)", FINE)]),
        (true, vec![(insert, FINE), set()]),
        // A function behind a view may have set another one.
        (false, vec![("SET @x=(SELECT a FROM v)", reports(&changed))]),
    ] {
        let mut session = session(MYSQL);
        let all: Vec<_> = texts.iter().map(|(text, _)| *text).collect();
        for (text, says) in &texts {
            run(&mut session, text, says);
        }
        assert_eq!(reasons(&session), [PinReason::UserVariables], "{all:?}");
        let mut plan = session.move_plan().unwrap();
        assert!(plan.list_user_variables().is_some());
        let none = None::<std::iter::Empty<Vec<u8>>>;
        assert_eq!(plan.learn_user_variables(none), is_known, "{all:?}");
        // The server knows.
        let listed = ["7A 1024", "2D 1024"].map(|row| row.as_bytes().to_vec());
        assert!(plan.learn_user_variables(Some(listed.into_iter())), "{all:?}");
        assert_eq!(plan.user_variables_columns(), 4);
    }
    // A function behind a view, or a trigger, has set another one, or made a temporary table.
    for texts in [
        vec![set(), ("SELECT @x FROM v", rows(&changed))],
        vec![set(), ("INSERT INTO t VALUES (@x)", reports(&changed))],
        vec![(insert, failed), set()],
    ] {
        let mut session = session(MYSQL);
        for (text, says) in &texts {
            run(&mut session, text, says);
        }
        let reasons = reasons(&session);
        assert!(reasons.contains(&PinReason::StateChange), "{reasons:?}");
        assert!(session.move_plan().is_err());
    }
    let mut session = session(MYSQL);
    run(&mut session, "SELECT 1", &FINE);
    assert_eq!(session.move_plan().unwrap().list_user_variables(), None);
}
