//! Every form of every statement has its class and its effects, and nothing beyond them.

use sql_class::{Dialect, Effects, Facts, Syntax, facts};

const MYSQL: Syntax = Syntax {
    ansi_quotes: false,
    no_backslash_escapes: false,
    charset: sql_class::Charset::Utf8,
    dialect: Dialect::MySql { version: 90_704 },
};
const MARIADB: Syntax = Syntax {
    dialect: Dialect::MariaDb { version: 110_809 },
    ..MYSQL
};

/// `class effect effect | statement`, one a line; `M` in front of the class: on MariaDB only, `9`: on MySQL
/// only.
fn check(table: &str) {
    let mut wrong = String::new();
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (expected, sql) = line.split_once(" | ").unwrap();
        let (servers, expected) = match expected.split_once(' ') {
            Some(("M", rest)) => (&[MARIADB][..], rest),
            Some(("9", rest)) => (&[MYSQL][..], rest),
            _ => (&[MYSQL, MARIADB][..], expected),
        };
        for &syntax in servers {
            let found = described(&facts(sql.as_bytes(), syntax));
            if found != expected {
                wrong += &format!(
                    "{sql}\n  expected {expected}\n  found    {found} ({:?})\n",
                    syntax.dialect
                );
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

fn described(facts: &Facts) -> String {
    let effects = Effects::ALL
        .iter()
        .filter(|(effect, _)| facts.effects.contains(*effect));
    effects.fold(facts.class.label().to_owned(), |text, (_, word)| {
        text + " " + word
    })
}

#[test]
fn reads() {
    check(
        "
        read | SELECT c FROM sbtest1 WHERE id=12345
        read | select distinct `a`.b, count(*), max(x) from t join u using (id) where a in (1,2) group by 1 order by 2 limit 3
        read | (SELECT 1) UNION (SELECT 2)
        read | ((SELECT 1))
        read | (WITH a AS (SELECT 1) SELECT * FROM a)
        read | TABLE t
        read | VALUES ROW(1,2), ROW(3,4)
        read | SELECT 'FOR UPDATE', \"; DROP TABLE t\", `GET_LOCK(` FROM t
        read | SELECT 1 -- ; DELETE FROM t
        read | SELECT 1 # ; DELETE FROM t
        read | SELECT 1 /* ; DELETE FROM t */
        read | WITH a (x, y) AS (SELECT 1, 2), b (z) AS (SELECT 3) SELECT * FROM a, b
        read | WITH RECURSIVE a AS (SELECT 1 UNION ALL SELECT x+1 FROM a WHERE x < 5) SELECT * FROM a
        read | SELECT * FROM (SELECT 1) AS d (x), (SELECT 2) e (y)
        read | SELECT MATCH (a) AGAINST ('x' IN BOOLEAN MODE), CAST(a AS CHAR(10)), a = ANY (SELECT 1) FROM t
        read | SELECT row_number() OVER (PARTITION BY a ORDER BY b), SUM(x) OVER w FROM t WINDOW w AS (ORDER BY a)
        read | SELECT * FROM JSON_TABLE('[]', '$[*]' COLUMNS (a INT PATH '$.a')) AS j
        read | SELECT * FROM t USE INDEX FOR ORDER BY (i) PARTITION (p0)
        read | SELECT SLEEP(1), BENCHMARK(10, MD5('x')), UUID(), NOW(), VERSION(), USER(), DATABASE()
        read | SELECT @@version, @@session.sql_mode, @@max_allowed_packet
        read | SELECT next, value, previous, share FROM t
        read | DO SLEEP(1)
        read | HELP 'select'
        read | CHECKSUM TABLE t
        read | DESC t
        read | DESCRIBE s.t c
        read | EXPLAIN t 'a%'
        read | EXPLAIN SELECT 1
        read | EXPLAIN FORMAT=JSON SELECT 1
        9 read calculates-found-rows | EXPLAIN ANALYZE SELECT 1
        M read calculates-found-rows | ANALYZE SELECT 1
        read | EXPLAIN (SELECT 1)
        9 read | EXPLAIN FOR SCHEMA s SELECT 1
        read user-variables | EXPLAIN FORMAT=JSON INTO @x SELECT 1
        M read calculates-found-rows | ANALYZE FORMAT=JSON SELECT 1
        read user-variables | SELECT 1 INTO @a
        read user-variables | SELECT @a := 1
        read user-variables | SELECT @`a b`
        read calculates-found-rows | SELECT SQL_CALC_FOUND_ROWS 1
        write server-file | SELECT 1 INTO OUTFILE '/tmp/x'
        write server-file | SELECT 1 FROM t INTO DUMPFILE '/tmp/x'
        read server-file | SELECT LOAD_FILE('/x')
        locking-read | SELECT 1 FROM t FOR UPDATE
        locking-read | SELECT 1 FROM t FOR UPDATE OF t SKIP LOCKED
        locking-read | SELECT 1 FROM t FOR SHARE
        locking-read | SELECT 1 FROM t LOCK IN SHARE MODE
        locking-read | SELECT * FROM (SELECT 1 FROM t FOR/**/UPDATE) x
        locking-read | SELECT 1 FROM t /*!50000 FOR UPDATE */
        ",
    );
}

#[test]
fn functions() {
    check(
        "
        read takes-user-lock | SELECT GET_LOCK('a', 1)
        read takes-user-lock | DO get_lock ('a', 1)
        read takes-user-lock unknown-function | SELECT `GET_LOCK`('a', 1)
        read needs-user-locks | SELECT RELEASE_LOCK('a'), IS_FREE_LOCK('a'), IS_USED_LOCK('b')
        read releases-all-locks | SELECT RELEASE_ALL_LOCKS()
        read reads-last-insert-id | SELECT LAST_INSERT_ID()
        read reads-last-insert-id | SELECT LAST_INSERT_ID( /* none */ )
        read reads-last-insert-id | SELECT @@identity, @@session.last_insert_id
        write reads-last-insert-id sets-uncarried | UPDATE t SET id = LAST_INSERT_ID(id + 1)
        read reads-row-count | SELECT ROW_COUNT()
        read reads-found-rows | SELECT FOUND_ROWS()
        read reads-connection-id | SELECT CONNECTION_ID()
        read reads-connection-id | SELECT @@pseudo_thread_id
        9 read reads-connection-id | SELECT PS_CURRENT_THREAD_ID()
        read reads-diagnostics | SELECT @@warning_count, @@local.error_count
        M read reads-last-gtid | SELECT @@last_gtid, @@session.last_gtid
        read reads-server | SELECT @@hostname
        read reads-server | SELECT @@global.max_connections
        read reads-server | SELECT @@GLOBAL . `read_only`
        read reads-server | SELECT @@gtid_executed
        read reads-server | SELECT MASTER_POS_WAIT('x', 4)
        read reads-server | SELECT * FROM performance_schema.threads
        read reads-server | SELECT * FROM `performance_schema` . threads
        read reads-server | SELECT * FROM information_schema.processlist
        read reads-server | SELECT * FROM mysql.slow_log
        read | SELECT * FROM information_schema.tables
        M write sequence | SELECT NEXTVAL(s)
        M write sequence | SELECT NEXT VALUE FOR s
        M write sequence | SELECT s.nextval
        M write sequence | SELECT SETVAL(s, 1)
        M read sequence | SELECT LASTVAL(s)
        M read sequence | SELECT PREVIOUS VALUE FOR s
        9 read unknown-function | SELECT NEXTVAL('s')
        read unknown-function | SELECT f(1)
        read unknown-function | SELECT f (1)
        read unknown-function | SELECT s.concat('a')
        read unknown-function | SELECT `f`(1)
        read unknown-function | SELECT 1 FROM t WHERE a > f(1)
        read unknown-function | SELECT COUNT (1)
        read unknown-function | SELECT SQL_NO_CACHE f(1)
        write unknown-function | INSERT INTO t VALUES (f(1))
        write unknown-function | UPDATE t SET a = f(a)
        session user-variables unknown-function | SET @x = f(1)
        "
        .replace(
            "session unknown-function user-variables",
            "session user-variables unknown-function",
        )
        .as_str(),
    );
}

#[test]
fn changes() {
    check(
        "
        write | INSERT INTO t (a, b) VALUES (1, 2) ON DUPLICATE KEY UPDATE a = VALUES(a)
        write | INSERT t VALUE (1)
        9 write | INSERT INTO s.t (a) VALUES (1) RETURNING a
        M write returns-inserted | INSERT INTO s.t (a) VALUES (1) RETURNING a
        M write returns-inserted | REPLACE t SELECT 1 RETURNING *
        write | INSERT HIGH_PRIORITY IGNORE INTO `t` (a) SELECT 1
        write | INSERT INTO t PARTITION (p0) (a) VALUES (1)
        write | REPLACE t SET a = 1
        write | UPDATE t, u SET t.a = u.b
        write | DELETE FROM t WHERE a = 1 RETURNING a
        write | WITH a AS (SELECT 1) UPDATE t JOIN a SET b = 1
        write | WITH a (x) AS (SELECT 1) DELETE FROM t
        write | EXPLAIN UPDATE t SET a = 1
        write | EXPLAIN ANALYZE DELETE t FROM t JOIN u
        M write | ANALYZE UPDATE t SET a = 1
        write | EXPLAIN INSERT INTO t (a) VALUES (1)
        write loads-data server-file | LOAD DATA INFILE 'x' INTO TABLE t (a, b)
        write loads-data | LOAD DATA LOW_PRIORITY LOCAL INFILE 'x' INTO TABLE t (a) SET b = 1
        write user-variables loads-data | LOAD DATA LOCAL INFILE 'x' INTO TABLE t (a, @b)
        write loads-data server-file | LOAD XML INFILE 'x' INTO TABLE t
        write sets-uncarried | BINLOG 'xxxx'
        unknown calls-procedure | CALL p(1)
        unknown calls-procedure | CALL s.p
        unknown user-variables calls-procedure | CALL p(@a)
        unknown text-prepare | PREPARE s FROM 'SELECT 1'
        unknown user-variables text-prepare | EXECUTE s USING @a
        session text-prepare | DEALLOCATE PREPARE s
        session text-prepare | DROP PREPARE s
        unknown calls-procedure | EXECUTE IMMEDIATE 'SELECT 1'
        unknown calls-procedure | BEGIN NOT ATOMIC SELECT 1; END
        unknown calls-procedure | IF 1 THEN SELECT 1; END IF
        unknown | FROBNICATE t
        unknown user-variables | SET SESSION AUTHORIZATION u@h
        unknown | 42
        unknown | (DELETE FROM t)
        unknown | WITH a AS SELECT 1
        unknown | WITH a AS (SELECT 1) CALL p
        unknown | `select` 1
        ",
    );
}

#[test]
fn sessions() {
    check(
        "
        session | SET NAMES utf8mb4
        session | SET CHARACTER SET utf8
        session | SET sql_mode = 'ANSI', time_zone = '+00:00'
        session | SET @@session.sql_mode = CONCAT(@@sql_mode, ',ANSI')
        session | SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED
        session | SET LOCAL max_join_size = DEFAULT
        session next-transaction | SET TRANSACTION READ ONLY
        session next-transaction | SET @@transaction_isolation = 'READ-COMMITTED'
        session | SET transaction_isolation = 'READ-COMMITTED', @@session.tx_read_only = 1
        session user-variables | SET @a = 1, @b := 2
        session user-variables | SET sql_mode = @old
        session sets-autocommit | SET autocommit = 0
        session sets-autocommit | SET @@autocommit := 1
        session sets-autocommit | SET NAMES utf8, SESSION autocommit = ON
        session sets-uncarried | SET sql_log_bin = 0
        session sets-uncarried | SET @@session.gtid_next = 'AUTOMATIC'
        session sets-uncarried | SET pseudo_slave_mode = 1
        session sets-uncarried | SET `timestamp` = 1
        session sets-uncarried | SET a = (1, 2), last_insert_id = 5
        session sets-uncarried | SET RESOURCE GROUP g
        session set-role | SET ROLE r
        administration set-role commits changes-account | SET DEFAULT ROLE r TO u@h
        administration commits changes-account | SET PASSWORD FOR 'u'@'h' = 'x'
        administration sets-global | SET GLOBAL max_connections = 5
        administration sets-global | SET @@global.read_only = 1
        administration sets-global | SET PERSIST max_connections = 5
        administration sets-global | SET @@PERSIST_ONLY.max_connections = 5
        administration sets-global | SET GLOBAL TRANSACTION READ ONLY
        administration sets-global sets-autocommit | SET GLOBAL max_connections = 5, SESSION autocommit = 0
        administration sets-global | SET GLOBAL autocommit = 0
        M session set-statement | SET STATEMENT max_statement_time=1 FOR SELECT 1
        M write set-statement | SET STATEMENT max_statement_time=1, sql_mode='' FOR UPDATE t SET a = 1
        M unknown set-statement | SET STATEMENT a=1
        M unknown calls-procedure set-statement | SET STATEMENT a=1 FOR CALL p()
        session changes-database | USE s
        session reads-diagnostics | GET DIAGNOSTICS CONDITION 1 x = MESSAGE_TEXT
        session user-variables reads-diagnostics | GET DIAGNOSTICS @n = NUMBER
        session user-variables reads-row-count reads-diagnostics | GET DIAGNOSTICS @n = NUMBER, @r = ROW_COUNT
        session | SIGNAL SQLSTATE '45000'
        ",
    );
}

#[test]
fn transactions_and_locks() {
    check(
        "
        begin | BEGIN
        begin | BEGIN WORK
        begin | START TRANSACTION
        begin | START TRANSACTION WITH CONSISTENT SNAPSHOT, READ WRITE
        begin-read-only | START TRANSACTION READ ONLY
        begin-read-only | START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY
        transaction | COMMIT AND CHAIN
        transaction | ROLLBACK TO SAVEPOINT a
        transaction | SAVEPOINT a
        transaction | RELEASE SAVEPOINT a
        transaction | COMMIT AND NO CHAIN NO RELEASE
        transaction sets-uncarried | COMMIT RELEASE
        transaction sets-uncarried | ROLLBACK AND NO CHAIN RELEASE
        begin xa | XA START 'x'
        begin xa | XA BEGIN 'x'
        transaction xa | XA END 'x'
        transaction xa | XA COMMIT 'x' ONE PHASE
        administration reads-server | XA RECOVER
        locking-read locks-tables commits | LOCK TABLES t READ, u WRITE
        transaction unlocks-tables commits | UNLOCK TABLES
        administration global-lock | LOCK INSTANCE FOR BACKUP
        administration releases-global-lock | UNLOCK INSTANCE
        administration global-lock commits | BACKUP STAGE START
        administration releases-global-lock commits | BACKUP STAGE END
        administration global-lock commits | BACKUP LOCK t
        administration releases-global-lock commits | BACKUP UNLOCK
        administration global-lock commits | FLUSH TABLES WITH READ LOCK
        administration global-lock commits | FLUSH NO_WRITE_TO_BINLOG TABLES t FOR EXPORT
        locking-read handler | HANDLER t OPEN
        locking-read handler | HANDLER t READ FIRST
        ",
    );
}

#[test]
fn definitions_and_accounts() {
    check(
        "
        ddl commits changes-schema | CREATE TABLE t (id INT(11), KEY k (id), CHECK (f(id)))
        ddl commits changes-schema | CREATE OR REPLACE ALGORITHM=MERGE DEFINER=`a`@`b` SQL SECURITY DEFINER VIEW v AS SELECT 1
        ddl unknown-function commits changes-schema | CREATE TABLE t (a INT) AS SELECT f(1)
        ddl commits changes-schema | CREATE TABLE t (a INT, FULLTEXT KEY (b) WITH PARSER x, KEY k (a)) PARTITION BY RANGE (a) (PARTITION p VALUES LESS THAN (10), PARTITION q (r))
        ddl unknown-function commits changes-schema | CREATE TABLE t AS VALUES ROW(f(1))
        ddl temporary-table changes-schema | CREATE TEMPORARY TABLE t (a INT)
        ddl temporary-table changes-schema | CREATE OR REPLACE TEMPORARY TABLE t AS SELECT 1
        ddl changes-schema | DROP TEMPORARY TABLE t
        ddl commits changes-schema | ALTER TABLE t ADD COLUMN a INT
        ddl commits changes-schema | DROP TABLE IF EXISTS t
        ddl commits changes-schema | CREATE UNIQUE INDEX i ON t (a)
        ddl commits changes-schema | CREATE DATABASE d
        ddl commits changes-schema | DROP FUNCTION IF EXISTS user
        ddl commits changes-schema | CREATE TABLE role (user INT)
        ddl commits changes-schema | RENAME TABLE a TO b
        ddl commits changes-schema | TRUNCATE t
        ddl commits changes-schema | CREATE PROCEDURE p() SET @x = GET_LOCK('a', 1)
        ddl commits changes-schema | CREATE DEFINER='a'@'b' TRIGGER g BEFORE INSERT ON t FOR EACH ROW SET @x = 1
        ddl commits changes-schema | ALTER EVENT e DISABLE
        ddl commits changes-schema | CREATE AGGREGATE FUNCTION f RETURNS STRING SONAME 'x.so'
        administration commits changes-account | CREATE USER 'u'@'h' IDENTIFIED BY 'x'
        administration commits changes-account | ALTER USER USER() IDENTIFIED BY 'x'
        administration commits changes-account | DROP ROLE r
        administration commits changes-account | GRANT SELECT (a), UPDATE (b) ON *.* TO u@h
        administration commits changes-account | REVOKE ALL ON s.* FROM 'u'@'h'
        administration commits changes-account | RENAME USER a@h TO b@h
        administration commits | ALTER INSTANCE RELOAD TLS
        ",
    );
}

#[test]
fn administration() {
    check(
        "
        read | SHOW TABLES
        read | SHOW FULL COLUMNS FROM t
        read | SHOW CREATE TABLE t
        read | SHOW TABLE STATUS
        read | SHOW GRANTS FOR 'u'@'h'
        read | SHOW DATABASES LIKE 'a%'
        read reads-diagnostics | SHOW WARNINGS
        read reads-diagnostics | SHOW COUNT(*) ERRORS
        read reads-last-insert-id reads-server | SHOW VARIABLES LIKE 'x'
        read reads-server | SHOW GLOBAL VARIABLES LIKE 'x'
        read reads-server | SHOW GLOBAL STATUS
        administration reads-server | SHOW PROCESSLIST
        administration reads-server | SHOW FULL PROCESSLIST
        administration reads-server | SHOW MASTER STATUS
        administration reads-server | SHOW REPLICA STATUS
        administration reads-server | SHOW ENGINE INNODB STATUS
        administration reads-server | SHOW BINARY LOGS
        administration reads-server | SHOW PROFILES
        administration reads-server | EXPLAIN FOR CONNECTION 5
        administration kill | KILL QUERY 5
        administration reads-connection-id kill | KILL CONNECTION_ID()
        administration commits changes-account | FLUSH PRIVILEGES
        administration commits | FLUSH LOCAL STATUS
        administration commits | ANALYZE TABLE t
        administration commits | ANALYZE NO_WRITE_TO_BINLOG TABLE t
        administration commits | CHECK TABLE t
        administration commits | OPTIMIZE LOCAL TABLE t
        administration commits | REPAIR TABLE t
        9 administration commits | CACHE INDEX t IN c
        M administration | CACHE INDEX t IN c
        9 administration commits | LOAD INDEX INTO CACHE t
        M administration | LOAD INDEX INTO CACHE t
        administration commits | INSTALL PLUGIN p SONAME 'x'
        administration commits | RESET MASTER
        administration sets-global | RESET PERSIST
        administration | PURGE BINARY LOGS TO 'x'
        9 administration commits | CHANGE REPLICATION SOURCE TO SOURCE_HOST='x'
        M administration | CHANGE REPLICATION SOURCE TO SOURCE_HOST='x'
        9 administration commits | START REPLICA
        M administration | START REPLICA
        9 administration commits | STOP SLAVE
        M administration | STOP SLAVE
        administration | SHUTDOWN
        administration gateway | FOREBAY EXPLAIN SELECT GET_LOCK('a', 1), @x
        ",
    );
}

#[test]
fn several_statements() {
    check(
        "
        read | SELECT 1; SELECT 2;
        write | SELECT 1; UPDATE t SET a = 1; SELECT 2
        transaction user-variables | SET @a = 1; COMMIT
        ddl commits changes-schema | CREATE PROCEDURE p() BEGIN SELECT 1; SELECT 2; END
        ddl takes-user-lock commits changes-schema | CREATE PROCEDURE p() SELECT 1; SELECT GET_LOCK('a', 1)
        read | ;;
        read | -- nothing
        ",
    );
    let statements = |sql: &str| facts(sql.as_bytes(), MYSQL).statements;
    assert_eq!(statements("SELECT 1; SELECT ';' ; -- ;\n"), 2);
    assert_eq!(statements("/* nothing */ ;"), 0);
    assert_eq!(
        statements("CREATE PROCEDURE p() BEGIN SELECT 1; SELECT 2; END"),
        1
    );
}

#[test]
fn every_effect_has_been_seen() {
    let source = include_str!("classes.rs");
    for (_, word) in Effects::ALL {
        let seen = source.lines().any(|line| {
            line.split_once(" | ")
                .is_some_and(|(expected, _)| expected.split_whitespace().any(|found| found == *word))
        });
        // The one is of what is cut off, the other of no text at all; and one is seen in `set_targets`.
        let is_of_no_line = ["incomplete", "leaves-nothing", "sets-unseen"].contains(word);
        assert!(seen || is_of_no_line, "{word}");
    }
}
