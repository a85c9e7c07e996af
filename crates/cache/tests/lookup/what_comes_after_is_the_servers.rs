//! A lookup that was answered from memory leaves behind what it would have left behind on the server; and in
//! the middle of something it is the server's.

use mysql_wire::{Capabilities as C, Command};

use crate::stage::{Stage, differs, execute, on_all, query};

on_all!(sequences statements_that_are_gone);

const LOOKUP: &str = "SELECT c FROM t WHERE id=1";
const NOTHING: &str = "SELECT c FROM t WHERE id=99";

const SEQUENCES: &[&[&str]] = &[
    &["SELECT 1 UNION SELECT 2", LOOKUP, "SELECT FOUND_ROWS()"],
    &["SELECT 1 UNION SELECT 2", NOTHING, "SELECT FOUND_ROWS()"],
    &[
        "SELECT 1 UNION SELECT 2",
        LOOKUP,
        "SET @a=1",
        "SELECT FOUND_ROWS()",
    ],
    &["SELECT id FROM u", LOOKUP, "SELECT fr()"],
    &["SELECT id FROM u", NOTHING, "SELECT fr()", "SELECT fr()"],
    &[
        "SELECT LAST_INSERT_ID(5)",
        LOOKUP,
        "SELECT LAST_INSERT_ID(), fr()",
    ],
    &["UPDATE u SET x=x+1", LOOKUP, "SELECT ROW_COUNT(), rc()"],
    &["SELECT id FROM u", LOOKUP, "CALL what_it_found()"],
    &["SELECT id FROM u", LOOKUP, "SHOW WARNINGS", "SELECT FOUND_ROWS()"],
    &["UPDATE u SET x=x+1", LOOKUP, "SELECT ROW_COUNT()"],
    &[
        "UPDATE u SET x=x+1",
        LOOKUP,
        "UPDATE u SET x=x+1",
        "SELECT ROW_COUNT()",
    ],
    &[LOOKUP, "DO 1", "SELECT ROW_COUNT()", "SELECT ROW_COUNT()"],
    &["SELECT LAST_INSERT_ID(5)", LOOKUP, "SELECT LAST_INSERT_ID()"],
    &["SELECT CAST('a' AS SIGNED)", LOOKUP, "SHOW WARNINGS"],
    &["SELECT CAST('a' AS SIGNED)", LOOKUP, "SELECT @@warning_count"],
    &["SELECT CAST('a' AS SIGNED)", LOOKUP, "SET @a=1", "SHOW WARNINGS"],
    &["SELECT nothing", LOOKUP, "SHOW COUNT(*) ERRORS"],
    &["SELECT nothing", LOOKUP, "BEGIN", "SHOW WARNINGS", "COMMIT"],
    &[
        "PREPARE s FROM 'SELECT FOUND_ROWS()'",
        "SELECT id FROM u",
        LOOKUP,
        "EXECUTE s",
    ],
    &[
        "BEGIN",
        LOOKUP,
        "UPDATE t SET c='mine' WHERE id=1",
        LOOKUP,
        "ROLLBACK",
        LOOKUP,
    ],
    &[
        "START TRANSACTION WITH CONSISTENT SNAPSHOT",
        LOOKUP,
        "COMMIT",
        LOOKUP,
    ],
    &[
        "SET autocommit=0",
        LOOKUP,
        "UPDATE t SET c='mine' WHERE id=1",
        LOOKUP,
        "ROLLBACK",
        "SET autocommit=1",
        LOOKUP,
    ],
    &[
        "CREATE TEMPORARY TABLE t (id INT PRIMARY KEY, c INT)",
        LOOKUP,
        "INSERT INTO t VALUES (1, 2)",
        LOOKUP,
        "DROP TEMPORARY TABLE t",
        LOOKUP,
    ],
    &["LOCK TABLES u READ", LOOKUP, "UNLOCK TABLES", LOOKUP],
    &[
        "SET NAMES latin1",
        LOOKUP,
        "SELECT l FROM t WHERE id=1",
        "SET NAMES utf8mb4",
        LOOKUP,
    ],
    &["SET NAMES utf8mb4 COLLATE utf8mb4_bin", LOOKUP, LOOKUP],
    &[
        "SET character_set_results=NULL",
        "SELECT l FROM t WHERE id=1",
        "SELECT l FROM t WHERE id=1",
    ],
    &[
        "SET sql_mode='ANSI_QUOTES'",
        "SELECT \"c\" FROM t WHERE \"id\"=1",
        "SELECT v FROM k WHERE a=\"Key\" AND b=7",
        LOOKUP,
    ],
    &[
        "SET sql_mode='PAD_CHAR_TO_FULL_LENGTH'",
        "SELECT ch FROM t WHERE id=1",
        "SELECT ch FROM t WHERE id=1",
    ],
    &[
        "USE other",
        LOOKUP,
        LOOKUP,
        "SELECT c FROM test.t WHERE id=1",
        "USE test",
        LOOKUP,
    ],
    &[
        "SET sql_select_limit=0",
        LOOKUP,
        LOOKUP,
        "SET sql_select_limit=DEFAULT",
        LOOKUP,
    ],
    &[
        "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        LOOKUP,
        LOOKUP,
    ],
    &["SET TRANSACTION READ ONLY", LOOKUP, "UPDATE u SET x=x", LOOKUP],
    &[
        "SET @@session.sql_select_limit=1, @a=2",
        LOOKUP,
        "SELECT @a",
        LOOKUP,
    ],
    &[
        "SELECT GET_LOCK('a', 0)",
        LOOKUP,
        "SELECT RELEASE_LOCK('a')",
        LOOKUP,
    ],
    &[
        "DELETE FROM t WHERE id=50",
        "INSERT INTO t (id, c) VALUES (50, 'new')",
        "SELECT c FROM t WHERE id=50",
        "DELETE FROM t WHERE id=50",
        "SELECT c FROM t WHERE id=50",
    ],
    &[
        "HANDLER u OPEN",
        LOOKUP,
        "HANDLER u READ FIRST",
        LOOKUP,
        "HANDLER u CLOSE",
    ],
    &[LOOKUP, "SHOW STATUS LIKE 'Slave_running'", LOOKUP],
];

fn sequences(stage: &Stage) {
    let (mut direct, mut through) = stage.both("app", C::DEPRECATE_EOF);
    for text in [LOOKUP, NOTHING] {
        let expected = direct.sql(text);
        stage.until_answered(&mut through, &query(text), &expected);
    }
    let before = stage.answered();
    for sequence in SEQUENCES {
        // Twice: what is new to the gateway is known the second time.
        for _ in 0..2 {
            // One after the other: they change the same rows.
            let (mut direct, mut through) = stage.both("app", C::DEPRECATE_EOF);
            let expected: Vec<_> = sequence.iter().map(|text| direct.sql(text)).collect();
            for (text, expected) in sequence.iter().zip(expected) {
                let said = through.sql(text);
                assert!(
                    said == expected,
                    "{sequence:?}: {}\n{}",
                    differs(&query(text), &expected, &said),
                    stage.left()
                );
            }
        }
    }
    let answered = stage.answered() - before;
    assert!(
        answered > SEQUENCES.len() as u64,
        "only {answered}: {}",
        stage.left()
    );
}

/// The client closes a statement that was answered from memory, or goes on with it.
fn statements_that_are_gone(stage: &Stage) {
    const INT: [u8; 2] = [3, 0];
    let (mut direct, mut through) = stage.both("app", C::DEPRECATE_EOF);
    let text = "SELECT c FROM t WHERE id=?";
    let warm_up = [direct.prepare(text), through.prepare(text)];
    let one = |id: u32| execute(id, &INT, &[0], &1_u32.to_le_bytes(), true);
    let expected = direct.ask(&one(warm_up[0]));
    stage.until_answered(&mut through, &one(warm_up[1]), &expected);
    for command in [
        Command::STMT_CLOSE,
        Command::STMT_RESET,
        Command::STMT_SEND_LONG_DATA,
    ] {
        for after in ["SHOW WARNINGS", "SELECT FOUND_ROWS()"] {
            let ids = [direct.prepare(text), through.prepare(text)];
            let rows = query("SELECT id FROM u");
            let before = stage.answered();
            let mut answers = [&mut direct, &mut through]
                .into_iter()
                .zip(ids)
                .map(|(session, id)| {
                    // The first has the server know the types.
                    session.ask(&one(id));
                    session.ask(&rows);
                    let row = session.ask(&one(id));
                    let mut request = [&[command.0], &id.to_le_bytes()[..]].concat();
                    if command == Command::STMT_SEND_LONG_DATA {
                        request.extend([0, 0, b'1']);
                    }
                    [row, session.ask(&request), session.sql(after)]
                });
            let (expected, said) = (answers.next().unwrap(), answers.next().unwrap());
            for (expected, said) in expected.iter().zip(&said) {
                assert!(
                    said == expected,
                    "{} {}",
                    command.0,
                    differs(&query(after), expected, said)
                );
            }
            drop(answers);
            assert!(stage.answered() > before, "{}", stage.left());
            // What was sent in pieces keeps a session of mode split on its connection.
            for (session, id) in [&mut direct, &mut through].into_iter().zip(ids) {
                session.ask(&[&[Command::STMT_CLOSE.0], &id.to_le_bytes()[..]].concat());
            }
        }
    }
}
