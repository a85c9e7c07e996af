//! A lookup that was answered from memory leaves behind what it would have left behind on the server; and in the middle of
//! something it is the server's.

use mysql_wire::Capabilities as C;

use crate::stage::{Stage, differs, on_all, query};

on_all!(sequences);

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
    // What a stored function reads is not known in mode split, lookups or not.
    let asks_by_function = |sequence: &&&[&str]| sequence.contains(&"SELECT fr()");
    for sequence in SEQUENCES
        .iter()
        .filter(|sequence| !stage.is_split || !asks_by_function(sequence))
    {
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
