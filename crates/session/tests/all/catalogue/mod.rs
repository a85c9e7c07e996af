//! The rows of the design's table of statements, read by the classifier that the gateway uses: which of them
//! pin, and until what.

mod doubts;
mod reported;
mod writes;

use std::rc::Rc;

use mysql_wire::session_state::Change;
use mysql_wire::{Command, OkPacket, Outcome, StatusFlags};
use session::{Baseline, ClientTrackers, PinReason, Prepared, Request, Session, Start};
use sql_class::Dialect;

const MYSQL: Dialect = Dialect::MySql { version: 90_704 };
const MARIADB: Dialect = Dialect::MariaDb { version: 101_119 };

fn start(dialect: Dialect) -> Start {
    Start {
        schema: None,
        dialect,
        multi_statements: true,
        wants: ClientTrackers::server_defaults(),
        baseline: Rc::new(Baseline::default()),
        session_pooling: false,
        trusts_functions: false,
        statements_max: 4,
    }
}

fn session(dialect: Dialect) -> Session {
    Session::new(start(dialect))
}

/// What a response says.
struct Says<'a> {
    status: StatusFlags,
    changes: &'a [Change<'a>],
    error: Option<u16>,
    rows: Option<u64>,
}

const FINE: Says<'_> = Says {
    status: StatusFlags::AUTOCOMMIT,
    changes: &[],
    error: None,
    rows: None,
};

fn statement<'a>(
    command: Command,
    text: &'a str,
    facts: Option<&'a sql_class::Facts>,
    argument: u32,
) -> Request<'a> {
    Request {
        command,
        facts,
        argument,
        digest: 1,
        text: text.as_bytes(),
        now_ms: 5,
    }
}

/// Runs a text and gives back what the client itself sees of the session state.
fn run(session: &mut Session, text: &str, says: &Says<'_>) -> Vec<u8> {
    let facts = sql_class::facts(text.as_bytes(), session.syntax());
    session.begin(&statement(Command::QUERY, text, Some(&facts), 0));
    finish(session, says)
}

fn finish(session: &mut Session, says: &Says<'_>) -> Vec<u8> {
    let mut ok = OkPacket {
        status: says.status,
        ..OkPacket::default()
    };
    says.changes
        .iter()
        .for_each(|change| change.encode(&mut ok.session_state));
    let shown = match (says.error, says.changes) {
        (Some(_), _) | (_, []) => Vec::new(),
        _ => session.observe_ok(&ok),
    };
    session.end(&Outcome {
        status: says.status,
        error: says.error,
        has_status: says.error.is_none(),
        is_result_set: says.rows.is_some(),
        rows: says.rows.unwrap_or(0),
        ..Outcome::default()
    });
    shown
}

fn reasons(session: &Session) -> Vec<PinReason> {
    session.pins().iter().map(|pin| pin.reason).collect()
}

fn pins_of(dialect: Dialect, text: &str) -> Vec<PinReason> {
    let mut session = session(dialect);
    run(&mut session, text, &FINE);
    reasons(&session)
}

#[test]
fn what_no_tracker_shows_pins_by_its_text() {
    for (text, expected) in [
        ("SELECT 1 FROM t", vec![]),
        ("SELECT 1 INTO @x", vec![PinReason::UserVariables]),
        ("SELECT @x:=1", vec![PinReason::UserVariables]),
        ("SET @x=1", vec![PinReason::UserVariables]),
        ("DO GET_LOCK('a', 1)", vec![PinReason::UserLock]),
        (
            "PREPARE s FROM 'SELECT 1'",
            vec![PinReason::TextPrepare, PinReason::NotUnderstood],
        ),
        (
            "CREATE TEMPORARY TABLE t (a INT)",
            vec![PinReason::TemporaryTable],
        ),
        ("LOCK TABLES t READ", vec![PinReason::TableLocks]),
        ("FLUSH TABLES WITH READ LOCK", vec![PinReason::GlobalLock]),
        ("LOCK INSTANCE FOR BACKUP", vec![PinReason::GlobalLock]),
        ("HANDLER t OPEN", vec![PinReason::Handler]),
        ("XA START 'a'", vec![]), // the fake answer says that there is no transaction
        ("SET TRANSACTION READ ONLY", vec![PinReason::NextTransaction]),
        ("CALL p()", vec![PinReason::Procedure, PinReason::LastInsertId]),
        ("SELECT f(1)", vec![PinReason::UnknownFunction]),
        ("SET ROLE r", vec![PinReason::Role]),
        ("SET timestamp=5", vec![PinReason::Uncarried]),
        ("SET insert_id=5", vec![PinReason::Uncarried]),
        ("SELECT SQL_CALC_FOUND_ROWS * FROM t", vec![PinReason::FoundRows]),
        ("SELECT LAST_INSERT_ID(5)", vec![PinReason::LastInsertId]),
        ("SELECT 'not closed", vec![PinReason::Incomplete]),
        ("SET sql_mode=''", vec![]),
        ("USE shop", vec![]),
        ("COMMIT", vec![]),
    ] {
        let mut found = pins_of(MYSQL, text);
        found.retain(|reason| expected.contains(reason) || *reason != PinReason::NotUnderstood);
        assert_eq!(found, expected, "{text}");
    }
    assert_eq!(
        pins_of(MARIADB, "SET STATEMENT max_statement_time=1 FOR SELECT 1"),
        [PinReason::SetStatement]
    );
}

#[test]
fn every_pin_says_which_statement_and_since_when() {
    let mut session = session(MYSQL);
    run(&mut session, "SET @x=1", &FINE);
    let pin = session.pins()[0];
    assert_eq!((pin.digest, pin.since_ms), (1, 5));
}

#[test]
fn locks_end_with_what_releases_them() {
    let mut session = session(MYSQL);
    run(
        &mut session,
        "SELECT GET_LOCK('a', 1)",
        &Says {
            rows: Some(1),
            ..FINE
        },
    );
    run(
        &mut session,
        "SELECT RELEASE_LOCK('a')",
        &Says {
            rows: Some(1),
            ..FINE
        },
    );
    // The function may not have been called.
    for (text, rows) in [
        ("SELECT RELEASE_ALL_LOCKS() FROM t WHERE 0", Some(0)),
        ("SELECT RELEASE_ALL_LOCKS()", Some(0)),
        ("SELECT IF(0, RELEASE_ALL_LOCKS(), 1)", Some(1)),
        ("SELECT 1 FROM t WHERE a = 1 OR RELEASE_ALL_LOCKS()", Some(1)),
        ("EXPLAIN SELECT RELEASE_ALL_LOCKS()", Some(1)),
        ("DO IF(0, RELEASE_ALL_LOCKS(), 1)", None),
    ] {
        run(&mut session, text, &Says { rows, ..FINE });
        assert_eq!(reasons(&session), [PinReason::UserLock], "{text}");
    }
    run(
        &mut session,
        "SELECT RELEASE_ALL_LOCKS()",
        &Says {
            rows: Some(1),
            ..FINE
        },
    );
    assert!(!session.is_pinned());
    run(&mut session, "DO GET_LOCK('a', 1)", &FINE);
    assert_eq!(reasons(&session), [PinReason::UserLock]);
    run(&mut session, " do release_all_locks() ; ", &FINE);
    assert!(!session.is_pinned());

    run(&mut session, "FLUSH TABLES WITH READ LOCK", &FINE);
    run(&mut session, "UNLOCK INSTANCE", &FINE);
    assert_eq!(reasons(&session), [PinReason::GlobalLock]);
    run(&mut session, "UNLOCK TABLES", &FINE);
    assert!(!session.is_pinned());

    let locked = [Change::TransactionState(b"_______L")];
    run(
        &mut session,
        "LOCK TABLES t READ",
        &Says {
            changes: &locked,
            ..FINE
        },
    );
    assert_eq!(reasons(&session), [PinReason::TableLocks]);
    let free = [Change::TransactionState(b"________")];
    run(
        &mut session,
        "BEGIN",
        &Says {
            changes: &free,
            ..FINE
        },
    );
    assert!(!session.is_pinned());
}

#[test]
fn a_transaction_pins_from_its_first_to_its_last_answer() {
    let mut session = session(MYSQL);
    let open = StatusFlags::AUTOCOMMIT.with(StatusFlags::IN_TRANS);
    run(&mut session, "BEGIN", &Says { status: open, ..FINE });
    assert!(session.in_transaction() && !session.has_written());
    run(
        &mut session,
        "INSERT INTO t VALUES (1)",
        &Says { status: open, ..FINE },
    );
    assert!(session.has_written());
    run(
        &mut session,
        "INSERT INTO t VALUES (1)",
        &Says {
            error: Some(1213),
            ..FINE
        },
    );
    assert!(session.is_pinned(), "an error does not say whether it is over");
    run(&mut session, "COMMIT", &FINE);
    assert!(!session.is_pinned() && !session.has_written());
    assert!(session.has_untracked_writes(), "no GTID came");
}

#[test]
fn a_transaction_of_reads_may_go_on_elsewhere() {
    let mut session = session(MARIADB);
    let open = StatusFlags::AUTOCOMMIT.with(StatusFlags::IN_TRANS);
    let [begun, has_read, over] =
        [b"T_______", b"T_R___S_", b"________"].map(|state| [Change::TransactionState(state)]);
    let says = |session: &mut Session, text, status, changes| {
        let says = Says {
            status,
            changes,
            ..FINE
        };
        run(session, text, &says);
    };
    says(&mut session, "BEGIN", open, &begun);
    says(&mut session, "SELECT 1 FROM t", open, &has_read);
    let failed = Says {
        error: Some(1146),
        ..FINE
    };
    run(&mut session, "SELECT 1 FROM nope", &failed);
    assert!(
        session
            .pins()
            .iter()
            .any(|pin| pin.reason == PinReason::Unsettled)
    );
    let since = session.pins()[0];
    let mut there = OkPacket {
        status: open,
        ..OkPacket::default()
    };
    begun[0].encode(&mut there.session_state);
    let left = session.move_transaction(&there);
    let own = session.carried();
    assert!(
        session::cost(own, &left) > 0,
        "the error is still to be seen there"
    );
    assert_eq!(session::cost(own, own), 0);
    assert_eq!(session.pins(), [since], "begun when it was begun");
    assert!(session.in_transaction() && !session.has_written());
    says(&mut session, "COMMIT", StatusFlags::AUTOCOMMIT, &over);
    run(&mut session, "SELECT 1 FROM t", &FINE);
    assert!(!session.is_pinned() && !session.in_transaction());
}

/// A session whose last statement has failed.
fn holding_an_error(dialect: Dialect) -> Session {
    let mut session = session(dialect);
    run(
        &mut session,
        "SELECT * FROM nope",
        &Says {
            error: Some(1146),
            ..FINE
        },
    );
    assert_eq!(reasons(&session), [PinReason::Diagnostics]);
    session
}

/// Whether a statement has to be executed where the session is.
fn needs(session: &Session, text: &str) -> bool {
    let facts = sql_class::facts(text.as_bytes(), session.syntax());
    session.needs_its_connection(&statement(Command::QUERY, text, Some(&facts), 0))
}

#[test]
fn what_may_be_asked_for_next_is_held_until_something_else_is_asked() {
    let mut session = holding_an_error(MYSQL);
    assert!(needs(&session, "SHOW WARNINGS"));
    assert!(!needs(&session, "SELECT 1 FROM t"));
    run(
        &mut session,
        "SHOW WARNINGS",
        &Says {
            rows: Some(1),
            ..FINE
        },
    );
    assert_eq!(reasons(&session), [PinReason::Diagnostics]);
    run(
        &mut session,
        "SELECT 1 FROM t",
        &Says {
            rows: Some(1),
            ..FINE
        },
    );
    assert!(!session.is_pinned());
}

#[test]
fn warnings_are_not_held_for_what_asks_a_server() {
    let session = holding_an_error(MARIADB);
    for keeps in ["SELECT 1", "DO 1+1", "SHOW WARNINGS", "BEGIN"] {
        assert!(needs(&session, keeps), "{keeps}");
    }
    for elsewhere in [
        "SELECT @@read_only",
        "SELECT IS_FREE_LOCK('a')",
        "SHOW TABLES",
        "FLUSH STATUS",
        "SELECT 1 FROM t",
    ] {
        assert!(!needs(&session, elsewhere), "{elsewhere}");
    }
}

#[test]
fn a_syntax_error_has_done_nothing() {
    let mut session = session(MYSQL);
    run(
        &mut session,
        "SELEC 1",
        &Says {
            error: Some(1064),
            ..FINE
        },
    );
    assert_eq!(reasons(&session), [PinReason::Diagnostics]);
    session.begin(&statement(Command::STMT_PREPARE, "SELECT 1", None, 0));
    finish(&mut session, &FINE);
    assert!(!session.is_pinned(), "MySQL forgets an error when it prepares");
}

#[test]
fn variables_are_carried_and_some_are_not() {
    let mut session = session(MYSQL);
    let set = |name: &'static [u8], value: &'static [u8]| [Change::Variable { name, value }];
    run(
        &mut session,
        "SET sql_mode='ANSI_QUOTES'",
        &Says {
            changes: &set(b"sql_mode", b"ANSI_QUOTES"),
            ..FINE
        },
    );
    assert!(session.syntax().ansi_quotes && !session.is_pinned());
    assert_eq!(session.carried().variable(b"sql_mode"), Some(&b"ANSI_QUOTES"[..]));
    run(
        &mut session,
        "SELECT 1",
        &Says {
            changes: &set(b"statement_id", b"77"),
            ..FINE
        },
    );
    assert!(session.carried().variable(b"statement_id").is_none() && !session.is_pinned());
    run(
        &mut session,
        "SET sql_log_bin=0",
        &Says {
            changes: &set(b"sql_log_bin", b"OFF"),
            ..FINE
        },
    );
    assert!(reasons(&session).contains(&PinReason::BinlogOff));
    let shown = run(
        &mut session,
        "SELECT 1",
        &Says {
            changes: &set(b"redirect_url", b"mysql://x"),
            ..FINE
        },
    );
    assert!(shown.is_empty() && session.carried().variable(b"redirect_url").is_none());
}

#[test]
fn a_state_change_that_nothing_explains_pins() {
    let mut session = session(MYSQL);
    run(
        &mut session,
        "DO 1",
        &Says {
            changes: &[Change::StateChanged(true)],
            ..FINE
        },
    );
    assert_eq!(reasons(&session), [PinReason::StateChange]);
}

#[test]
fn a_client_that_sets_its_trackers_does_not_get_at_ours() {
    let mut session = session(MYSQL);
    let change = [Change::Variable {
        name: b"session_track_schema",
        value: b"OFF",
    }];
    run(
        &mut session,
        "SET session_track_schema=OFF",
        &Says {
            changes: &change,
            ..FINE
        },
    );
    assert!(session.needs_rearming() && session.is_pinned());
    session.rearmed();
    assert!(!session.is_pinned());
    let shown = run(
        &mut session,
        "USE shop",
        &Says {
            changes: &[Change::Schema(b"shop")],
            ..FINE
        },
    );
    assert!(shown.is_empty());
    assert_eq!(session.carried().schema(), Some(&b"shop"[..]));
    // The server does not say this one.
    run(
        &mut session,
        "SET @@session.session_track_system_variables=''",
        &FINE,
    );
    assert!(session.needs_rearming());
}

/// To arm the trackers again would wipe the error.
#[test]
fn a_tracker_that_was_not_set_is_still_armed() {
    for (text, is_armed) in [
        ("SET session_track_schema='bad'", true),
        ("SET @@SESSION.session_track_system_variables=5", true),
        ("SET session_track_schema=OFF, sql_mode='bad'", false),
        ("SET session_track_schema=OFF, @x=f()", false),
        ("SET session_track_schema=OFF; SELECT 1 FROM nope", false),
    ] {
        let mut session = session(MYSQL);
        let failed = Says {
            error: Some(1231),
            ..FINE
        };
        run(&mut session, text, &failed);
        assert_eq!(session.needs_rearming(), !is_armed, "{text}");
        assert!(session.is_pinned(), "{text}");
    }
}

#[test]
fn cursors_and_long_data_are_of_a_statement() {
    let mut session = session(MYSQL);
    let facts = Rc::new(sql_class::facts(b"SELECT ?", session.syntax()));
    let id = session
        .statements()
        .insert(Prepared::new(Rc::from(&b"SELECT ?"[..]), facts, 9, 1))
        .unwrap();
    session.begin(&statement(Command::STMT_SEND_LONG_DATA, "", None, id));
    assert_eq!(reasons(&session), [PinReason::LongData]);
    session.begin(&statement(Command::STMT_EXECUTE, "", None, id));
    let open = StatusFlags::AUTOCOMMIT.with(StatusFlags::CURSOR_EXISTS);
    finish(
        &mut session,
        &Says {
            status: open,
            rows: Some(0),
            ..FINE
        },
    );
    assert_eq!(reasons(&session), [PinReason::Cursor]);
    session.begin(&statement(Command::STMT_FETCH, "", None, id));
    let last = StatusFlags::AUTOCOMMIT.with(StatusFlags::LAST_ROW_SENT);
    finish(
        &mut session,
        &Says {
            status: last,
            rows: Some(1),
            ..FINE
        },
    );
    assert!(!session.is_pinned());
}

#[test]
fn a_lost_connection_takes_everything_with_it_and_a_reset_too() {
    for lose in [Session::lost, Session::reset] {
        let mut session = Session::new(Start {
            session_pooling: true,
            ..start(MYSQL)
        });
        run(&mut session, "SET @x=1", &FINE);
        run(&mut session, "CREATE TEMPORARY TABLE t (a INT)", &FINE);
        lose(&mut session);
        session.rearmed();
        assert_eq!(reasons(&session), [PinReason::SessionPooling]);
    }
}

#[test]
fn a_session_that_starts_over_has_the_status_of_its_servers_variables() {
    let variable = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
    let baseline = [
        variable("autocommit", "OFF"),
        variable("sql_mode", "ANSI_QUOTES,NO_BACKSLASH_ESCAPES"),
    ];
    let escapes = StatusFlags::NO_BACKSLASH_ESCAPES;
    for (dialect, expected) in [
        (MYSQL, escapes),
        (MARIADB, escapes.with(StatusFlags::ANSI_QUOTES)),
    ] {
        let mut session = Session::new(Start {
            baseline: Rc::new(baseline.iter().cloned().collect()),
            ..start(dialect)
        });
        session.reset();
        assert_eq!(session.status_at_rest(), expected);
    }
    assert_eq!(session(MYSQL).status_at_rest(), StatusFlags::AUTOCOMMIT);
}

/// Found by the simulation (FOREBAY_SEED=1795366439033140963): a statement was prepared again under another
/// collation.
#[test]
fn where_the_collation_is_not_known_it_is_asked_for_before_anything_is_prepared_again() {
    let named = |name, value| Change::Variable { name, value };
    let changes = &[named(b"character_set_connection", b"utf8mb4")];
    let says = Says { changes, ..FINE };
    for further in [
        "",
        " COLLATE utf8mb4_bin",
        " COLLATE utf8mb4_bin; SET @@wait_timeout=9",
    ] {
        let mut session = session(MARIADB);
        run(&mut session, "SET NAMES utf8mb4", &says);
        let context = Rc::clone(session.carried());
        run(&mut session, &format!("SET NAMES utf8mb4{further}"), &says);
        let way = |session: &Session| session.excursion(&context, &Baseline::default());
        assert_eq!(way(&session).is_none(), further.contains(';'));
        if session.ask_meaning().is_some() {
            let mut ok = OkPacket::default();
            named(b"collation_connection", b"utf8mb4_bin").encode(&mut ok.session_state);
            session.learn_meaning(&ok);
        }
        assert_eq!(way(&session).unwrap().0.is_empty(), further.is_empty());
    }
}
