//! Whatever a session has set, holds or asks in another way: its answers are those of the server, byte for
//! byte.

use mysql_wire::Capabilities as C;

use crate::stage::{Stage, differs, execute, on_all, query};

on_all!(statements what_sessions_wish bytes_that_are_no_text);

const LOOKUP: &str = "SELECT c FROM t WHERE id=1";
const TIMESTAMP: &str = "SELECT ts FROM t WHERE id=1";
const TWO_ROWS: &str = "SELECT 1 UNION SELECT 2";
const FOUND: &str = "SELECT FOUND_ROWS()";

const SEQUENCES: &[&[&str]] = &[
    // What fails leaves something else behind than what succeeds.
    &[TWO_ROWS, LOOKUP, "SELECT nothing", FOUND],
    &[TWO_ROWS, LOOKUP, "SELECT FROM", FOUND],
    &[TWO_ROWS, LOOKUP, "SELECT c FROM t WHERE nothing=1", FOUND],
    &[TWO_ROWS, LOOKUP, "BEGIN", "SELECT nothing", FOUND, "COMMIT"],
    &[TWO_ROWS, LOOKUP, "UPDATE u SET x=x+1", FOUND],
    &[
        "UPDATE u SET x=x+1",
        LOOKUP,
        "SELECT nothing",
        "SELECT ROW_COUNT()",
    ],
    &["UPDATE u SET x=x+1", LOOKUP, "SELECT 1", "SELECT ROW_COUNT()"],
    &[
        "UPDATE u SET x=x+1",
        LOOKUP,
        "UPDATE nothing SET x=1",
        "SELECT ROW_COUNT()",
        FOUND,
    ],
    &["SELECT nothing", LOOKUP, "SELECT 1", "SHOW WARNINGS"],
    &[
        "SELECT CAST('a' AS SIGNED)",
        LOOKUP,
        "SELECT nothing",
        "SHOW WARNINGS",
        "SELECT @@error_count",
    ],
    &[
        "SELECT CAST('a' AS SIGNED)",
        LOOKUP,
        "GET DIAGNOSTICS @n = NUMBER",
        "SELECT @n",
    ],
    &["SELECT SQL_CALC_FOUND_ROWS id FROM u LIMIT 1", LOOKUP, FOUND],
    &["SELECT SQL_CALC_FOUND_ROWS c FROM t WHERE id=1 LIMIT 1", FOUND],
    &[
        "SELECT SQL_CALC_FOUND_ROWS id FROM u LIMIT 1",
        LOOKUP,
        "SELECT nothing",
        FOUND,
    ],
    // Values and names that only seem to be plain.
    &[
        "SELECT c FROM t WHERE id='1 '",
        "SELECT c FROM t WHERE id=' 1'",
        "SELECT c FROM t WHERE id=1e0",
    ],
    &[
        "SELECT c FROM t WHERE id=TRUE",
        "SELECT c FROM t WHERE id=+1",
        "SELECT c FROM t WHERE id=- 3",
    ],
    &[
        "SELECT c FROM t WHERE id=-(-1)",
        "SELECT c FROM t WHERE id=X'31'",
        "SELECT c FROM t WHERE id=b'1'",
    ],
    &[
        "SELECT c FROM t WHERE id=9223372036854775808",
        "SELECT c FROM t WHERE id=-9223372036854775809",
    ],
    &[
        "SELECT c FROM t WHERE id=18446744073709551616",
        "SELECT c FROM t WHERE id=00001",
    ],
    &[
        "SELECT c FROM t WHERE id=1 AND id=2",
        "SELECT c FROM t WHERE id=-0",
        "SELECT c FROM t WHERE id=DATE'2020-01-01'",
    ],
    &[
        "SELECT v FROM k WHERE a='key' AND b='7'",
        "SELECT v FROM k WHERE a='Key ' AND b=7",
    ],
    &[
        "SELECT v FROM k WHERE a=_latin1'Key' AND b=7",
        "SELECT v FROM k WHERE a=N'Key' AND b=7",
    ],
    &[
        "SELECT v FROM k WHERE a='K' 'ey' AND b=7",
        "SELECT v FROM k WHERE a='Key' COLLATE utf8mb4_bin AND b=7",
    ],
    &[
        "SELECT v FROM k WHERE a=BINARY 'kEY' AND b=7",
        "SELECT v FROM k WHERE a LIKE 'ke_' AND b=7",
    ],
    &[
        "SELECT v FROM k WHERE a='Ke''y' AND b=7",
        "SELECT v FROM k WHERE a='\\Key' AND b=7",
    ],
    &[
        "SELECT v FROM k WHERE a='Key' AND b=7.0",
        "SELECT v FROM k WHERE a='Key' AND a='key'",
    ],
    &[
        "SELECT v FROM k WHERE a='Key' AND b=7 AND b=8",
        "SELECT v FROM k WHERE a='\\0' AND b=7",
    ],
    &[
        "SELECT v FROM bytes WHERE k='e '",
        "SELECT v FROM bytes WHERE k=''",
        "SELECT v FROM bytes WHERE k='E'",
    ],
    &[
        "SELECT v FROM older WHERE k='E'",
        "SELECT v FROM older WHERE k='e '",
        "SELECT v FROM older WHERE k=''",
    ],
    &[
        "SELECT c FROM t WHERE id=1 LIMIT 0",
        "SELECT c FROM t WHERE id=1 LIMIT 1 OFFSET 1",
    ],
    &[
        "SELECT c FROM t WHERE id=1 LIMIT 1,1",
        "SELECT c FROM t WHERE id=1 LIMIT 0,1",
        LOOKUP,
    ],
    &[
        "SELECT t.c FROM t AS x WHERE t.id=1",
        "SELECT c FROM t AS t WHERE test.t.id=1",
    ],
    &[
        "SELECT c FROM t WHERE other.t.id=1",
        "SELECT c AS id FROM t WHERE id=1",
        "SELECT id AS c FROM t WHERE c=1",
    ],
    &[
        "SELECT c, c, id AS c FROM t WHERE id=1",
        "SELECT c, t.c, test.t.c FROM t WHERE id=1",
    ],
    &[
        "SELECT _rowid FROM t WHERE id=1",
        "SELECT c FROM t WHERE _rowid=1",
        "SELECT DISTINCT c FROM t WHERE id=1",
    ],
    &[
        "SELECT c FROM T WHERE id=1",
        "SELECT c FROM TEST.t WHERE id=1",
        "SELECT `c ` FROM t WHERE id=1",
    ],
    &[
        "CREATE OR REPLACE VIEW test.w AS SELECT id, c FROM t",
        "SELECT c FROM w WHERE id=1",
        LOOKUP,
        "SELECT c FROM w WHERE id=1",
    ],
    &[
        "CREATE OR REPLACE VIEW other.k AS SELECT 'Key' a, 7 b, 'view' v",
        "USE other",
        "SELECT v FROM k WHERE a='Key' AND b=7",
    ],
    // Comments that mean something to one server or the other.
    &[
        "SELECT /*+ MAX_EXECUTION_TIME(1000) */ c FROM t WHERE id=1",
        "SELECT /*!40001 SQL_NO_CACHE */ c FROM t WHERE id=1",
    ],
    &[
        "SELECT c FROM t WHERE id=1 /*! AND 1=0 */",
        "SELECT c FROM t WHERE id=/*!50000 1+*/1",
    ],
    &[
        "SELECT c FROM t WHERE id=1 /*M! AND 1=0 */",
        "SELECT c FROM t WHERE id=1 -- x",
        "SELECT c FROM t WHERE id=1 #x",
    ],
    &[
        "SELECT c FROM t WHERE id=1--1",
        "SELECT c FROM t WHERE id=1/**/",
        "SELECT c FROM t WHERE id=1/*",
    ],
    // Settings, however they are set.
    &["SET @z='+07:00'", "SET time_zone=@z", TIMESTAMP, TIMESTAMP],
    &[
        "SET @@time_zone='-03:00', @@sql_mode=''",
        TIMESTAMP,
        TIMESTAMP,
        "SET time_zone=DEFAULT",
        TIMESTAMP,
    ],
    &[
        "SET SESSION time_zone=CONCAT('+0', 1, ':00')",
        TIMESTAMP,
        "SET LOCAL time_zone='+04:00'",
        TIMESTAMP,
        TIMESTAMP,
    ],
    &[
        "SET STATEMENT time_zone='+01:00' FOR SELECT ts FROM t WHERE id=1",
        TIMESTAMP,
        TIMESTAMP,
    ],
    &[
        "SET STATEMENT sql_select_limit=0 FOR SELECT c FROM t WHERE id=1",
        LOOKUP,
    ],
    &[
        "SET sql_mode=CONCAT(@@sql_mode, ',ANSI_QUOTES')",
        "SELECT \"c\" FROM t WHERE id=1",
        "SELECT \"c\" FROM t WHERE id=1",
    ],
    &[
        "SELECT \"c\" FROM t WHERE id=1",
        LOOKUP,
        "SELECT \"c\" FROM t WHERE id=1",
    ],
    &[
        "SET sql_mode='NO_BACKSLASH_ESCAPES'",
        "SELECT v FROM k WHERE a='\\' AND b=7",
        "SELECT v FROM k WHERE a='\\' AND b=7",
    ],
    &[
        "SET sql_mode='EMPTY_STRING_IS_NULL'",
        "SELECT v FROM k WHERE a='' AND b=7",
        LOOKUP,
    ],
    &[
        "SET sql_mode='ORACLE'",
        LOOKUP,
        LOOKUP,
        "SELECT v FROM k WHERE a='' AND b=7",
    ],
    &[
        "SET sql_buffer_result=1",
        LOOKUP,
        LOOKUP,
        "SELECT * FROM k WHERE a='Key' AND b=7",
    ],
    &["SET sql_safe_updates=1, max_join_size=1", LOOKUP, LOOKUP],
    &["SET big_tables=1", LOOKUP, LOOKUP],
    &["SET system_versioning_asof='2020-01-01 00:00:00'", LOOKUP, LOOKUP],
    &["SET old_mode='ZERO_DATE_TIME_CAST'", LOOKUP, LOOKUP],
    &[
        "SET default_collation_for_utf8mb4=utf8mb4_general_ci",
        LOOKUP,
        LOOKUP,
    ],
    &["SET use_secondary_engine=FORCED", LOOKUP, LOOKUP],
    &[
        "SET max_execution_time=1000",
        LOOKUP,
        "SET max_statement_time=10",
        LOOKUP,
    ],
    &["SET character_set_results=utf16", LOOKUP, LOOKUP],
    &["SET NAMES binary", LOOKUP, LOOKUP, "SELECT l FROM t WHERE id=1"],
    &[
        "SET CHARACTER SET latin1",
        LOOKUP,
        "SELECT l FROM t WHERE id=1",
        "SELECT l FROM t WHERE id=1",
    ],
    &[
        "SET character_set_client=binary",
        "SELECT v FROM k WHERE a='Key' AND b=7",
        LOOKUP,
    ],
    &[
        "SET collation_connection=utf8mb4_unicode_ci",
        "SELECT v FROM k WHERE a='kEY' AND b=7",
        LOOKUP,
    ],
    &["SET ROLE NONE", LOOKUP, LOOKUP],
    &[
        "SET SESSION TRANSACTION READ ONLY",
        LOOKUP,
        LOOKUP,
        "UPDATE u SET x=x",
        LOOKUP,
    ],
    // What is said of the next transaction is over with a lookup.
    &["SET TRANSACTION READ ONLY", LOOKUP, "UPDATE u SET x=x", LOOKUP],
    &[
        "SET TRANSACTION READ ONLY",
        "UPDATE u SET x=x",
        LOOKUP,
        "UPDATE u SET x=x",
    ],
    &[
        "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        LOOKUP,
        LOOKUP,
        "START TRANSACTION WITH CONSISTENT SNAPSHOT",
        LOOKUP,
        "COMMIT",
    ],
    // Words behind the table that are no alias.
    &[
        "SELECT c FROM t FOR SYSTEM_TIME ALL WHERE id=1",
        "SELECT c FROM t USE INDEX (PRIMARY) WHERE id=1",
        "SELECT c FROM t PARTITION (p0) WHERE id=1",
        "SELECT c FROM t FORCE WHERE id=1",
    ],
    &[
        "SELECT c FROM t WHERE id=1 LOCK IN SHARE MODE",
        "SELECT c FROM t WHERE id=1 FOR SHARE",
        "SELECT c FROM t WHERE id=1 LIMIT 1 FOR UPDATE",
        "SELECT c FROM t WHERE id=1 PROCEDURE ANALYSE()",
        "SELECT c FROM t WHERE id=1 ORDER BY c",
        "SELECT c FROM t WHERE id=1 AND id=1",
    ],
    &["SELECT c FROM t WHERE id=1; ", "SELECT c FROM t WHERE id=1;;"],
    &[
        "SELECT ALL c FROM t WHERE id=1",
        "SELECT HIGH_PRIORITY c FROM t WHERE id=1",
    ],
    &[
        "SELECT rownum FROM t WHERE id=1",
        "SELECT current_role FROM t WHERE id=1",
    ],
    &["SET profiling=1", LOOKUP, LOOKUP],
    &["SET long_query_time=0", LOOKUP, LOOKUP],
    &[
        "SET sql_select_limit=0",
        LOOKUP,
        LOOKUP,
        "SET sql_select_limit=DEFAULT",
        LOOKUP,
    ],
    &[
        "SET autocommit=0",
        LOOKUP,
        "UPDATE u SET x=x+1",
        LOOKUP,
        "ROLLBACK",
        "SET autocommit=1",
        LOOKUP,
    ],
    &[
        "HANDLER t OPEN",
        LOOKUP,
        "HANDLER t READ `PRIMARY` FIRST",
        "HANDLER t CLOSE",
        LOOKUP,
    ],
    &["DO 1", LOOKUP, "SELECT ROW_COUNT()", "DO 1", "SELECT ROW_COUNT()"],
    &[
        "SET STATEMENT max_statement_time=10 FOR SELECT c FROM t WHERE id=1",
        LOOKUP,
    ],
    &[
        "SET sql_mode='PAD_CHAR_TO_FULL_LENGTH'",
        "SELECT ch FROM t WHERE id=1",
        "SELECT ch FROM t WHERE id=1",
    ],
    &[
        "SET sql_mode='ANSI'",
        LOOKUP,
        "SELECT \"c\" FROM t WHERE id=1",
        "SELECT zero, y, b FROM t WHERE id=1",
    ],
    &[
        "SET sql_mode='HIGH_NOT_PRECEDENCE,ALLOW_INVALID_DATES'",
        "SELECT da, dt FROM t WHERE id=-3",
        LOOKUP,
    ],
    // Transactions, locks and tables that only the session sees.
    &[
        "ROLLBACK AND CHAIN",
        LOOKUP,
        "UPDATE t SET c='chained' WHERE id=1",
        LOOKUP,
        "ROLLBACK",
        LOOKUP,
    ],
    &[
        "XA START 'x'",
        LOOKUP,
        "UPDATE t SET c='xa' WHERE id=1",
        LOOKUP,
        "XA END 'x'",
        "XA ROLLBACK 'x'",
        LOOKUP,
    ],
    &["SAVEPOINT a", LOOKUP, "ROLLBACK TO a", LOOKUP],
    &[
        "LOCK TABLES t WRITE",
        LOOKUP,
        "UPDATE t SET c='one' WHERE id=1",
        LOOKUP,
        "UNLOCK TABLES",
        LOOKUP,
    ],
    &[
        "PREPARE s FROM 'CREATE TEMPORARY TABLE t SELECT 1 id, 2 c'",
        "EXECUTE s",
        LOOKUP,
        LOOKUP,
    ],
    &[
        "CREATE TEMPORARY TABLE other.t2 SELECT 1 id",
        "ALTER TABLE other.t2 RENAME test.t",
        LOOKUP,
        LOOKUP,
    ],
    &[
        "PREPARE s FROM 'SELECT c FROM t WHERE id=?'",
        "SET @i=1",
        TWO_ROWS,
        "EXECUTE s USING @i",
        FOUND,
    ],
    &["SELECT c FROM t WHERE id=1 INTO @x", "SELECT @x", LOOKUP],
    &[
        "SET @v=1",
        LOOKUP,
        "SELECT c FROM t WHERE id=@v",
        "SELECT @v:=5",
        "SELECT c FROM t WHERE id=@v",
    ],
];

fn statements(stage: &Stage) {
    compare(stage, C::DEPRECATE_EOF, SEQUENCES);
}

/// What a client wants to be told with every answer, and how.
fn what_sessions_wish(stage: &Stage) {
    let sequences: &[&[&str]] = &[
        &[
            "SET session_track_transaction_info='STATE'",
            LOOKUP,
            LOOKUP,
            "SELECT id FROM u",
            LOOKUP,
        ],
        &[
            "SET session_track_transaction_info='CHARACTERISTICS'",
            LOOKUP,
            LOOKUP,
        ],
        &["SET session_track_gtids='OWN_GTID'", LOOKUP, LOOKUP],
        &["SET session_track_state_change=1", LOOKUP, LOOKUP],
    ];
    let with_trackers = C::DEPRECATE_EOF.with(C::SESSION_TRACK);
    compare(stage, with_trackers, sequences);
    let sequences: &[&[&str]] = &[&[
        "SET resultset_metadata=NONE",
        LOOKUP,
        LOOKUP,
        "SET resultset_metadata=FULL",
        LOOKUP,
    ]];
    let optional = C::DEPRECATE_EOF.with(C::OPTIONAL_RESULTSET_METADATA);
    compare(stage, optional, sequences);
    if stage.is_split {
        return;
    }
    sessions_that_must_not_be_silent(stage);
    let (mut direct, mut through) = stage.both("app", with_trackers);
    // As MariaDB's Connector/J does, after which there are lookups as before.
    let more = "SET @@session_track_system_variables=CONCAT(@@global.session_track_system_variables,',wait_timeout')";
    assert_eq!(through.sql(more)[4], 0);
    stage.until_answered(&mut through, &query(LOOKUP), &direct.sql(LOOKUP));
}

/// A server does not wait long for a session that is silent, as far as it sees.
fn sessions_that_must_not_be_silent(stage: &Stage) {
    let (mut direct, mut through) = stage.both("app", C::DEPRECATE_EOF);
    through.sql("SET wait_timeout=20");
    let before = stage.answered();
    for _ in 0..3 {
        through.sql(LOOKUP);
    }
    assert_eq!(stage.answered(), before, "{}", stage.left());
    through.sql("SET wait_timeout=20000");
    stage.until_answered(&mut through, &query(LOOKUP), &direct.sql(LOOKUP));
}

/// Each sequence on the server and through the gateway, in sessions of its own.
fn compare(stage: &Stage, capabilities: C, sequences: &[&[&str]]) {
    let (mut direct, mut through) = stage.both("app", capabilities);
    let expected = direct.sql(LOOKUP);
    stage.until_answered(&mut through, &query(LOOKUP), &expected);
    let mut wrong = String::new();
    for sequence in sequences {
        // Some change definitions.
        stage.until_answered(&mut through, &query(LOOKUP), &expected);
        // Again: what is new to the gateway is known then.
        for _ in 0..2 {
            let (mut direct, mut through) = stage.both("app", capabilities);
            let expected: Vec<_> = sequence.iter().map(|text| direct.sql(text)).collect();
            drop(direct);
            for (text, expected) in sequence.iter().zip(expected) {
                let said = through.sql(text);
                // What the gateway says of trackers that are set is its own.
                let is_compared = !text.starts_with("SET session_track");
                if is_compared && said != expected {
                    wrong += &format!("{sequence:?}: {}\n", differs(&query(text), &expected, &said));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}{}", stage.left());
}

fn bytes_that_are_no_text(stage: &Stage) {
    let (mut direct, mut through) = stage.both("app", C::DEPRECATE_EOF);
    let statements: &[(&str, &[u8], &[u8])] = &[
        ("SELECT v FROM bytes WHERE k='", b"e", b"'"),
        ("SELECT v FROM older WHERE k='", b"e", b"'"),
        ("SELECT v FROM k WHERE a='", b"Key", b"' AND b=7"),
    ];
    let of = |&(begin, _, end): &(&str, &[u8], &[u8]), value: &[u8]| [&query(begin), value, end].concat();
    for names in ["SET NAMES utf8mb4", "SET NAMES latin1", "SET NAMES utf8mb3"] {
        assert_eq!(direct.sql(names), through.sql(names));
        for statement in statements {
            let plain = of(statement, statement.1);
            let expected = direct.ask(&plain);
            stage.until_answered(&mut through, &plain, &expected);
            for value in [
                &b"\xe9"[..],
                b"\xff",
                b"\xc3",
                b"\xed\xa0\x80",
                b"\xf4\x90\x80\x80",
                b"e\0",
                b"e\x1a",
            ] {
                let asked = of(statement, value);
                for _ in 0..2 {
                    let (expected, said) = (direct.ask(&asked), through.ask(&asked));
                    assert!(said == expected, "{names}: {}", differs(&asked, &expected, &said));
                }
            }
        }
        let text = "SELECT v FROM bytes WHERE k=?";
        let ids = [direct.prepare(text), through.prepare(text)];
        let with = |value: &[u8]| {
            let value = [&[value.len() as u8], value].concat();
            ids.map(|id| execute(id, &[253, 0], &[0], &value, true))
        };
        let plain = with(b"e");
        let expected = direct.ask(&plain[0]);
        stage.until_answered(&mut through, &plain[1], &expected);
        for value in [&b"\xe9"[..], b"\xff", b"\xed\xa0\x80", b"e\0"] {
            let [at_server, at_gateway] = with(value);
            for _ in 0..2 {
                let (expected, said) = (direct.ask(&at_server), through.ask(&at_gateway));
                assert!(
                    said == expected,
                    "{names}: {}",
                    differs(&at_gateway, &expected, &said)
                );
            }
        }
    }
}
