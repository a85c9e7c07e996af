//! What may have been written without a GTID that says so.

use mysql_wire::session_state::Change;
use mysql_wire::{Command, OkPacket, StatusFlags};
use session::Session;
use sql_class::Dialect;

use super::{FINE, MARIADB, MYSQL, Says, finish, run, session, statement};

const OPEN: Says<'_> = Says {
    status: StatusFlags(StatusFlags::AUTOCOMMIT.0 | StatusFlags::IN_TRANS.0),
    ..FINE
};

fn failed(error: u16) -> Says<'static> {
    Says {
        error: Some(error),
        ..FINE
    }
}

fn after(dialect: Dialect, texts: &[(&str, &Says<'_>)]) -> Session {
    let mut session = session(dialect);
    for (text, says) in texts {
        run(&mut session, text, says);
    }
    session
}

/// A statement of the schema commits before it fails, and MySQL says no GTID with an error.
#[test]
fn a_commit_behind_an_error_is_looked_for_at_the_primary() {
    for dialect in [MYSQL, MARIADB] {
        for text in [
            "CREATE TABLE t (a INT)",
            "DROP TABLE a, b",
            "LOCK TABLES b READ",
            "CALL p()",
        ] {
            let session = after(
                dialect,
                &[
                    ("BEGIN", &OPEN),
                    ("INSERT INTO t VALUES (1)", &OPEN),
                    (text, &failed(1050)),
                    ("ROLLBACK", &FINE),
                ],
            );
            assert!(session.has_untracked_writes(), "{text}");
        }
        let duplicate = [
            ("BEGIN", &OPEN),
            ("INSERT INTO t VALUES (1)", &failed(1062)),
            ("ROLLBACK", &FINE),
        ];
        assert!(!after(dialect, &duplicate).has_untracked_writes());
    }
}

/// Without a transaction it may have been done in part.
#[test]
fn nor_does_a_server_that_reports_its_writes_tell_of_such() {
    let known = [Change::Gtids(b"u:1")];
    let wrote = Says {
        changes: &known,
        ..FINE
    };
    for (text, error, may_write) in [
        ("DROP TABLE a, b", 1051, true),
        ("DROP USER a, b", 1396, true),
        ("CALL p()", 1644, true),
        ("LOCK TABLES b READ", 1146, false),
        ("INSERT INTO t VALUES (1)", 1062, false),
        ("SELECT a FROM b", 1146, false),
        ("KILL 5", 1094, false),
        ("CREATE TABEL t (a INT)", 1064, false),
    ] {
        let texts = [("INSERT INTO t VALUES (1)", &wrote), (text, &failed(error))];
        assert_eq!(after(MYSQL, &texts).has_untracked_writes(), may_write, "{text}");
    }
    let texts = [
        ("DROP TABLE a, b", &failed(1051)),
        ("INSERT INTO t VALUES (1)", &wrote),
    ];
    assert!(
        !after(MYSQL, &texts).has_untracked_writes(),
        "whoever has the later one has both"
    );
}

/// It is told not to, in the same text.
#[test]
fn nor_does_one_that_reports_no_more() {
    let known = [Change::Gtids(b"u:1")];
    let wrote = Says {
        changes: &known,
        ..FINE
    };
    for (text, may_write) in [
        ("SET session_track_gtids=OFF; INSERT INTO t VALUES (2)", true),
        ("SET session_track_gtids=OFF", false),
        ("SET autocommit=1; INSERT INTO t VALUES (2)", false),
    ] {
        let texts = [("INSERT INTO t VALUES (1)", &wrote), (text, &FINE)];
        assert_eq!(after(MYSQL, &texts).has_untracked_writes(), may_write, "{text}");
    }
}

/// A commit of a branch counts for its session, whichever one has prepared the branch.
#[test]
fn the_commit_of_a_branch_is_a_write_of_whoever_commits_it() {
    for dialect in [MYSQL, MARIADB] {
        let session = after(dialect, &[("XA COMMIT 'x'", &FINE)]);
        assert!(session.has_untracked_writes() && session.has_just_written());
        let known = [Change::Gtids(b"u:1")];
        let wrote = Says {
            changes: &known,
            ..FINE
        };
        assert!(!after(dialect, &[("XA COMMIT 'x'", &wrote)]).has_untracked_writes());
        // In no transaction, although without autocommit.
        let idle = Says {
            status: StatusFlags::default(),
            ..FINE
        };
        let texts = [("SET autocommit=0", &idle), ("XA COMMIT 'x'", &idle)];
        assert!(after(dialect, &texts).has_untracked_writes());
    }
}

/// Where no GTIDs come.
#[test]
fn a_transaction_that_follows_another_does_not_undo_it() {
    for second in [
        "COMMIT AND CHAIN",
        "/* all */ COMMIT AND CHAIN",
        "BEGIN",
        "START TRANSACTION READ ONLY",
    ] {
        let texts = [
            ("BEGIN", &OPEN),
            ("INSERT INTO t VALUES (1)", &OPEN),
            (second, &OPEN),
            ("ROLLBACK", &FINE),
        ];
        assert!(after(MYSQL, &texts).has_untracked_writes(), "{second}");
    }
    for second in ["SAVEPOINT a", "ROLLBACK TO a", "RELEASE SAVEPOINT a", "SELECT 1"] {
        let texts = [
            ("BEGIN", &OPEN),
            ("INSERT INTO t VALUES (1)", &OPEN),
            (second, &OPEN),
            ("ROLLBACK", &FINE),
        ];
        assert!(!after(MYSQL, &texts).has_untracked_writes(), "{second}");
    }
}

/// RETURNING shows the rows in the place of their count, which counts where no GTIDs come.
#[test]
fn rows_that_were_written_are_so_where_they_are_returned() {
    for (text, rows, has_written) in [
        ("INSERT INTO t VALUES (1) RETURNING a", 1, true),
        ("DELETE FROM t RETURNING a", 2, true),
        ("DELETE FROM t RETURNING a", 0, false),
    ] {
        let returned = Says {
            rows: Some(rows),
            ..FINE
        };
        let session = after(MARIADB, &[(text, &returned)]);
        assert_eq!(session.has_untracked_writes(), has_written, "{text}: {rows}");
        assert_eq!(session.has_just_written(), has_written, "{text}: {rows}");
    }
}

/// A server commits the rows of a bulk execution one by one, and says no GTID with an error.
#[test]
fn a_bulk_execution_that_fails_may_have_written() {
    const WRITE: &str = "UPDATE t SET a = 1";
    let known = [Change::Variable {
        name: b"last_gtid",
        value: b"0-1-5",
    }];
    let wrote = Says {
        changes: &known,
        ..FINE
    };
    for (command, before, says, may_write) in [
        (Command::STMT_BULK_EXECUTE, "COMMIT", &FINE, true),
        (Command::STMT_BULK_EXECUTE, "BEGIN", &OPEN, false),
        (Command::STMT_EXECUTE, "COMMIT", &FINE, false),
    ] {
        let mut session = after(MARIADB, &[(WRITE, &wrote), (before, says)]);
        let facts = sql_class::facts(WRITE.as_bytes(), session.syntax());
        session.begin(&statement(command, WRITE, Some(&facts), 0));
        finish(&mut session, &failed(1062));
        assert_eq!(session.has_untracked_writes(), may_write, "{command:?}");
    }
}

/// The gateway ends a transaction on a server that is the primary no more.
#[test]
fn what_the_gateway_commits_was_written() {
    let ok = OkPacket {
        status: StatusFlags::AUTOCOMMIT,
        ..OkPacket::default()
    };
    for (text, has_written) in [("INSERT INTO t VALUES (1)", true), ("SELECT 1", false)] {
        let mut session = after(MARIADB, &[("BEGIN", &OPEN), (text, &OPEN)]);
        session.observe_commit(&ok);
        assert_eq!(session.has_just_written(), has_written, "{text}");
        assert_eq!(session.has_untracked_writes(), has_written, "{text}");
        assert!(!session.has_written() && !session.in_transaction(), "{text}");
    }
}
