//! What a client sees of statements of all kinds, one after the other, is what it sees on a connection of its
//! own, whoever else has used the shared ones in between, and wherever its reads go.

use e2e::{Gateway, client, eventually, kind};
use mysql_async::prelude::Queryable;
use mysql_async::{ChangeUserOpts, Conn, QueryResult, Row};
use sandbox::{Kind, Sandbox};

use crate::cluster;

/// In a schema of the session's own.
const SCHEMA: &[&str] = &[
    "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)",
    "INSERT INTO t (v) VALUES (10), (20), (30)",
    "CREATE TABLE five (n INT PRIMARY KEY)",
    "INSERT INTO five VALUES (1), (2), (3), (4), (5)",
    "CREATE TABLE log (id INT AUTO_INCREMENT PRIMARY KEY, v BIGINT) AUTO_INCREMENT = 700",
    "CREATE TABLE logged (id INT AUTO_INCREMENT PRIMARY KEY, v INT) AUTO_INCREMENT = 900",
    "CREATE TRIGGER logs AFTER INSERT ON logged FOR EACH ROW INSERT INTO log (v) VALUES (NEW.id)",
    "CREATE PROCEDURE two_results() BEGIN SELECT n FROM five WHERE n < 3; SELECT 'x' AS x; END",
    "CREATE PROCEDURE gives(IN a INT, OUT b INT, INOUT c INT) BEGIN SET b = a + 1, c = c + a; END",
    "CREATE PROCEDURE inserts() INSERT INTO log (v) VALUES (1), (2)",
    "CREATE PROCEDURE asks() SELECT n FROM five WHERE n = 2 INTO @n",
    "CREATE PROCEDURE warns() SELECT CAST('x' AS SIGNED) AS x",
    "CREATE PROCEDURE fails() BEGIN INSERT INTO log (v) VALUES (1); SIGNAL SQLSTATE '45000'; END",
    "CREATE PROCEDURE begins() START TRANSACTION",
    "CREATE PROCEDURE makes_temporary() CREATE TEMPORARY TABLE made (a INT)",
    "CREATE PROCEDURE sets() SET @p = 5, SESSION sort_buffer_size = 65536",
    "CREATE PROCEDURE nested() BEGIN CALL two_results(); SELECT 'between' AS b; CALL gives(1, @n1, @n2); CALL two_results(); END",
    "CREATE PROCEDURE recovers() BEGIN DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SELECT 'handled' AS h; \
     SELECT nothing FROM five; SELECT 5 AS v; END",
    "CREATE FUNCTION last_id() RETURNS BIGINT DETERMINISTIC NO SQL RETURN LAST_INSERT_ID()",
    "CREATE FUNCTION counts() RETURNS INT DETERMINISTIC NO SQL BEGIN SET @c = IFNULL(@c, 0) + 1; RETURN @c; END",
];

/// What MariaDB alone has.
const SCHEMA_OF_MARIADB: &[&str] = &[
    "CREATE SEQUENCE s",
    "CREATE TABLE numbered (id INT DEFAULT NEXTVAL(s), v INT)",
];

/// One a line, with `|` between statements; `M` in front: on MariaDB only, `9`: on MySQL only. A statement
/// behind `p:` is prepared; `r:` is COM_RESET_CONNECTION, `u:` COM_CHANGE_USER, `ping:` COM_PING. `{me}` is a
/// name of the session's own.
const SCRIPTS: &str = "
INSERT INTO t (v) VALUES (1), (2) | SELECT LAST_INSERT_ID(), ROW_COUNT() | SELECT ROW_COUNT() | SELECT FOUND_ROWS()
SELECT n FROM five LIMIT 4 | SET @x = 1; SELECT FOUND_ROWS() | SELECT FOUND_ROWS()
SELECT n FROM five LIMIT 4 | SET @x = 1; SET @y = 2; SELECT FOUND_ROWS() AS f, @x
SELECT n FROM five LIMIT 4 | INSERT INTO log (v) VALUES (9); SELECT FOUND_ROWS() | SELECT FOUND_ROWS()
SELECT n FROM five LIMIT 4 | BEGIN; SELECT FOUND_ROWS(); COMMIT
SELECT n FROM five LIMIT 4 | DO 1; DELETE FROM log WHERE v = 77; SELECT FOUND_ROWS(); SELECT FOUND_ROWS()
SELECT n FROM five LIMIT 4 | USE {schema}; SELECT FOUND_ROWS()
SELECT n FROM five LIMIT 4 | SELECT 1; SET @x = 1; SELECT FOUND_ROWS()
SELECT n FROM five LIMIT 4 | SELECT 9 - FOUND_ROWS(), FOUND_ROWS()+1 x, IF( FOUND_ROWS() > 3, 'some', FOUND_ROWS() ) /* c */ , ROW_COUNT()
UPDATE t SET v = v + 1 WHERE id = 1 | SELECT (SELECT ROW_COUNT()) + 1, CONCAT(`n`, ':', ROW_COUNT()) FROM five WHERE n = 1
UPDATE t SET v = v + 1 WHERE id = 1 | SELECT * FROM (SELECT -ROW_COUNT()) d | SELECT -ROW_COUNT() UNION SELECT 2 ORDER BY 1
UPDATE t SET v = v + 1 WHERE id = 1 | SELECT CASE WHEN ROW_COUNT() > 0 THEN 'some' ELSE 'none' END, ROW_COUNT() IS NULL, ROW_COUNT() + 1 AS y
INSERT INTO log (v) VALUES (1) | CREATE TABLE made AS SELECT 1 + ROW_COUNT() FROM five LIMIT 0 | SELECT * FROM made | DROP TABLE made
SELECT CONNECTION_ID() - CONNECTION_ID() | SELECT DISTINCT CONNECTION_ID() * 0 LIMIT 1 | SELECT CONNECTION_ID()>0 known
SELECT n FROM five LIMIT 4 | SET SESSION sort_buffer_size = 65536; SELECT FOUND_ROWS(), ROW_COUNT()
SELECT SQL_CALC_FOUND_ROWS n FROM five LIMIT 2 | SELECT FOUND_ROWS() | SELECT FOUND_ROWS()
/* forebay: replica */ SELECT SQL_CALC_FOUND_ROWS n FROM five LIMIT 2 | p:SELECT FOUND_ROWS()
/* forebay: replica */ SELECT SQL_CALC_FOUND_ROWS n FROM five LIMIT 2 | SET @n = FOUND_ROWS() | SELECT @n
INSERT INTO t (v) VALUES (1); INSERT INTO log (id, v) VALUES (5600, 1) | SELECT LAST_INSERT_ID() = MAX(id) FROM t
SELECT `connection_id`() = CONNECTION_ID() AS c
SELECT n FROM five LIMIT 3 | INSERT INTO log (v) VALUES (1) | SELECT FOUND_ROWS()
SELECT n FROM five LIMIT 3 | DELETE FROM log WHERE v = 1 | DELETE FROM log WHERE v = 2 | SELECT FOUND_ROWS()
SELECT n FROM five LIMIT 3 | DELETE log FROM log, five WHERE log.v = five.n | SELECT FOUND_ROWS()
SELECT n FROM five LIMIT 3 | DO 1 | SELECT FOUND_ROWS()
SELECT n FROM five LIMIT 3 | BEGIN | SELECT FOUND_ROWS() | COMMIT | SELECT FOUND_ROWS()
SELECT n FROM five LIMIT 3 | SET sort_buffer_size = 65536 | SELECT FOUND_ROWS()
SELECT n FROM five LIMIT 3 | SET div_precision_increment = (SELECT MAX(n) - 1 FROM five) | SELECT FOUND_ROWS()
SELECT n FROM five LIMIT 3 | INSERT INTO log (id, v) VALUES (1, 1) ON DUPLICATE KEY UPDATE v = 2 | SELECT FOUND_ROWS()
9 SELECT n FROM five LIMIT 3 | UPDATE log, five SET v = 5 WHERE v = n | SELECT FOUND_ROWS()
SELECT n FROM five LIMIT 3 | TRUNCATE TABLE log | SELECT FOUND_ROWS() | SELECT ROW_COUNT()
UPDATE t SET v = v + 1 | SELECT ROW_COUNT(); SELECT ROW_COUNT() | SELECT FOUND_ROWS()
CALL two_results() | SELECT ROW_COUNT() | SELECT FOUND_ROWS()
CALL gives(3, @b, @c) | SELECT @b, @c | SET @c = 10 | CALL gives(3, @b, @c) | SELECT @b, @c
p:CALL two_results() | p:CALL gives(4, @b, @c) | p:SELECT @b | SELECT @b
CALL inserts() | SELECT LAST_INSERT_ID(), ROW_COUNT() | INSERT INTO t (v) VALUES (1) | SELECT LAST_INSERT_ID()
CALL warns() | SHOW WARNINGS | SELECT @@warning_count
CALL fails() | SHOW WARNINGS | SELECT COUNT(*) FROM log | SELECT LAST_INSERT_ID()
CALL begins() | INSERT INTO log (v) VALUES (5) | ROLLBACK | SELECT COUNT(*) FROM log
CALL makes_temporary() | INSERT INTO made VALUES (1) | SELECT * FROM made | DROP TABLE made | SELECT * FROM made
CALL sets() | SELECT @p, @@sort_buffer_size
INSERT INTO t (v) VALUES (7) | SELECT last_id() - LAST_INSERT_ID() | SELECT last_id() = (SELECT MAX(id) FROM t)
SELECT counts() | SELECT counts() | SELECT @c
BEGIN | INSERT INTO t (v) VALUES (1) | SAVEPOINT a | INSERT INTO t (v) VALUES (2) | ROLLBACK TO SAVEPOINT a | RELEASE SAVEPOINT a | COMMIT | SELECT COUNT(*) FROM t
SAVEPOINT a | ROLLBACK TO SAVEPOINT a | SELECT 1
BEGIN | INSERT INTO t (v) VALUES (1) | COMMIT AND CHAIN | INSERT INTO t (v) VALUES (2) | ROLLBACK | SELECT COUNT(*) FROM t
BEGIN | INSERT INTO t (v) VALUES (1) | ROLLBACK AND CHAIN | INSERT INTO t (v) VALUES (2) | COMMIT | SELECT COUNT(*) FROM t
COMMIT AND CHAIN | INSERT INTO t (v) VALUES (1) | ROLLBACK | SELECT COUNT(*) FROM t
SET completion_type = 1 | BEGIN | INSERT INTO t (v) VALUES (1) | COMMIT | INSERT INTO t (v) VALUES (2) | ROLLBACK | ROLLBACK AND NO CHAIN | SELECT COUNT(*) FROM t
SET TRANSACTION READ ONLY | BEGIN | INSERT INTO t (v) VALUES (1) | COMMIT | INSERT INTO t (v) VALUES (2) | SELECT COUNT(*) FROM t
SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED | SELECT COUNT(*) FROM t | BEGIN | SELECT COUNT(*) FROM t | COMMIT
SET SESSION TRANSACTION READ ONLY | INSERT INTO t (v) VALUES (1) | SET SESSION TRANSACTION READ WRITE | INSERT INTO t (v) VALUES (1)
SET autocommit = 0 | INSERT INTO t (v) VALUES (1) | ROLLBACK | SELECT COUNT(*) FROM t | SET autocommit = 1 | SELECT COUNT(*) FROM t
p:SET autocommit = 0 | p:INSERT INTO t (v) VALUES (1) | p:ROLLBACK | SELECT COUNT(*) FROM t | p:SET autocommit = 1 | INSERT INTO t (v) VALUES (1) | ROLLBACK | SELECT COUNT(*) FROM t
SET autocommit = 0 | INSERT INTO t (v) VALUES (1) | SET autocommit = 1 | ROLLBACK | SELECT COUNT(*) FROM t
p:BEGIN | p:INSERT INTO t (v) VALUES (1) | p:COMMIT | p:SELECT COUNT(*) FROM t
BEGIN | INSERT INTO t (v) VALUES (1) | CREATE TABLE made (a INT) | ROLLBACK | SELECT COUNT(*) FROM t | DROP TABLE made
BEGIN | INSERT INTO t (v) VALUES (1) | BEGIN | ROLLBACK | SELECT COUNT(*) FROM t
XA START '{me}' | INSERT INTO t (v) VALUES (1) | XA END '{me}' | XA PREPARE '{me}' | XA COMMIT '{me}' | SELECT COUNT(*) FROM t
XA START '{me}' | INSERT INTO t (v) VALUES (1) | COMMIT | XA END '{me}' | XA COMMIT '{me}' ONE PHASE | SELECT COUNT(*) FROM t
XA START '{me}' | INSERT INTO t (v) VALUES (1) | XA END '{me}' | XA PREPARE '{me}' | XA ROLLBACK '{me}' | SELECT COUNT(*) FROM t
CREATE TEMPORARY TABLE t (id INT) | INSERT INTO t VALUES (99) | SELECT * FROM t | DROP TEMPORARY TABLE t | SELECT COUNT(*) FROM t
CREATE TEMPORARY TABLE five AS SELECT 1 AS n | SELECT COUNT(*) FROM five | DROP TABLE five | SELECT COUNT(*) FROM five
SET @a = 1, @b := @a + 1 | SELECT @a, @b, @a := 7 | SELECT n INTO @n FROM five WHERE n = 3 | SELECT @n, @a
SELECT n FROM five WHERE n = 2 INTO @n | SELECT @n | SELECT MAX(n), MIN(n) INTO @a, @b FROM five | SELECT @a, @b
INSERT INTO t (v) VALUES (@u := 5) | SELECT @u | UPDATE t SET v = (@w := v) WHERE id = 1 | SELECT @w
LOCK TABLES t WRITE | INSERT INTO t (v) VALUES (1) | SELECT COUNT(*) FROM five | UNLOCK TABLES | SELECT COUNT(*) FROM five
LOCK TABLES t READ, five WRITE | INSERT INTO t (v) VALUES (1) | BEGIN | INSERT INTO t (v) VALUES (1) | COMMIT
SELECT GET_LOCK('{me}', 0) | SELECT IS_FREE_LOCK('{me}') | SELECT IS_USED_LOCK('{me}') = CONNECTION_ID() | SELECT RELEASE_LOCK('{me}'), RELEASE_LOCK('{me}')
DO GET_LOCK('{me}', 0) | p:SELECT IS_USED_LOCK('{me}') = CONNECTION_ID() | SELECT RELEASE_ALL_LOCKS() | SELECT IS_FREE_LOCK('{me}')
PREPARE p FROM 'SELECT ? + 1 AS x' | SET @a = 4 | EXECUTE p USING @a | DEALLOCATE PREPARE p | EXECUTE p USING @a
PREPARE p FROM 'INSERT INTO t (v) VALUES (8)' | EXECUTE p | SELECT LAST_INSERT_ID() = MAX(id) FROM t | SELECT ROW_COUNT()
SET @q = 'SELECT COUNT(*) AS c FROM five' | PREPARE p FROM @q | EXECUTE p | DROP PREPARE p
HANDLER five OPEN | HANDLER five READ FIRST | HANDLER five READ NEXT | HANDLER five CLOSE | HANDLER five READ FIRST
SELECT LAST_INSERT_ID(41) | SELECT LAST_INSERT_ID() | UPDATE t SET v = LAST_INSERT_ID(v + 1) WHERE id = 1 | SELECT LAST_INSERT_ID()
INSERT INTO t (id, v) VALUES (1, 5) ON DUPLICATE KEY UPDATE id = LAST_INSERT_ID(id), v = 6 | SELECT LAST_INSERT_ID(), ROW_COUNT()
SET last_insert_id = 17 | SELECT LAST_INSERT_ID(), @@identity | INSERT INTO t (v) VALUES (1) | SELECT @@last_insert_id = MAX(id) FROM t
SET insert_id = 1000 | INSERT INTO t (v) VALUES (1) | SELECT LAST_INSERT_ID() | INSERT INTO t (v) VALUES (1) | SELECT LAST_INSERT_ID()
INSERT INTO logged (v) VALUES (1) | SELECT LAST_INSERT_ID() | SELECT COUNT(*) FROM log | SELECT ROW_COUNT()
INSERT INTO t (id, v) VALUES (5000, 1) | SELECT LAST_INSERT_ID() | REPLACE INTO t (id, v) VALUES (5000, 2) | SELECT ROW_COUNT(), LAST_INSERT_ID()
INSERT IGNORE INTO t (id, v) VALUES (1, 1), (NULL, 2) | SHOW WARNINGS | SELECT LAST_INSERT_ID(), ROW_COUNT()
INSERT INTO t (v) SELECT n FROM five | SELECT LAST_INSERT_ID(), ROW_COUNT() | SELECT FOUND_ROWS()
SELECT CAST('x' AS SIGNED) | SHOW WARNINGS | SHOW COUNT(*) WARNINGS | SELECT @@warning_count | SHOW WARNINGS
SELECT CAST('x' AS SIGNED) | GET DIAGNOSTICS @n = NUMBER | GET DIAGNOSTICS CONDITION 1 @e = MYSQL_ERRNO, @m = MESSAGE_TEXT | SELECT @n, @e, @m
SELECT CAST('x' AS SIGNED) | SET @a = 1 | INSERT INTO t (v) VALUES (@a) | SELECT @a
SELECT CAST('x' AS SIGNED) | SET TRANSACTION ISOLATION LEVEL READ COMMITTED | BEGIN | INSERT INTO t (v) VALUES (1) | COMMIT
SELECT CAST('x' AS SIGNED) | SET ROLE NONE | INSERT INTO t (v) VALUES (1) | SELECT COUNT(*) FROM t
SELECT CAST('x' AS SIGNED) FROM five | SET timestamp = 2000000000 | INSERT INTO t (v) VALUES (1) | SELECT UNIX_TIMESTAMP()
SELECT nothing | SET @a = 1 | INSERT INTO t (v) VALUES (1) | SHOW WARNINGS
SELECT nothing FROM five | SHOW ERRORS | SET @a = 2 | INSERT INTO t (v) VALUES (@a)
SELECT CAST('x' AS SIGNED) | SET sort_buffer_size = 65536 | SHOW WARNINGS | SELECT @@sort_buffer_size
SELECT CAST('x' AS SIGNED) | p:SET @a = 1 | p:INSERT INTO t (v) VALUES (@a)
SELECT CAST('x' AS SIGNED) | SET autocommit = 0 | INSERT INTO t (v) VALUES (1) | ROLLBACK | SELECT COUNT(*) FROM t
SELECT CAST('x' AS SIGNED) | CREATE TEMPORARY TABLE tt (a INT) | INSERT INTO tt VALUES (1) | INSERT INTO t (v) SELECT a FROM tt
SELECT CAST('x' AS SIGNED) | SELECT GET_LOCK('{me}', 0) | INSERT INTO t (v) VALUES (1) | DO RELEASE_ALL_LOCKS()
SELECT CAST('x' AS SIGNED) | LOCK TABLES t WRITE | INSERT INTO t (v) VALUES (1) | UNLOCK TABLES
SELECT CAST('x' AS SIGNED) | PREPARE p FROM 'INSERT INTO t (v) VALUES (8)' | EXECUTE p
SELECT CAST('x' AS SIGNED) | CALL inserts() | SELECT COUNT(*) FROM log
SELECT SQL_CALC_FOUND_ROWS n FROM five LIMIT 1 | SET @a = 1 | SELECT FOUND_ROWS() | INSERT INTO t (v) VALUES (@a)
SELECT SQL_CALC_FOUND_ROWS n FROM five LIMIT 1 | SELECT FOUND_ROWS() INTO @f | INSERT INTO t (v) VALUES (@f) | SELECT @f
EXPLAIN SELECT 1 | SHOW WARNINGS | SELECT 1
SET NAMES latin1 | SELECT @@character_set_client, @@collation_connection, HEX('e') | SET NAMES utf8mb4 COLLATE utf8mb4_bin | SELECT @@collation_connection
SET CHARACTER SET latin1 | SELECT @@character_set_client, @@collation_connection | p:SELECT @@collation_connection
p:SELECT @@collation_connection, 'a' = 'A' AS c | SET CHARACTER SET utf8mb4 | p:SELECT @@collation_connection, 'a' = 'A' AS c
p:SELECT 'a' = 'A' AS c, 1 / 3 AS d | SET NAMES DEFAULT | SET div_precision_increment = 2 | p:SELECT 'a' = 'A' AS c, 1 / 3 AS d
SET sql_mode = 'ANSI_QUOTES' | SELECT \"n\" FROM five LIMIT 1 | SET sql_mode = DEFAULT | SELECT \"n\" FROM five LIMIT 1
SET sql_mode = 'NO_BACKSLASH_ESCAPES' | SELECT 'a\\' AS x, @@sql_mode | SET sql_mode = DEFAULT | SELECT 'a\\'' AS x
SET sql_select_limit = 2 | SELECT n FROM five | SELECT FOUND_ROWS() | SET sql_select_limit = DEFAULT | SELECT n FROM five
SET SESSION group_concat_max_len = 4 | SELECT GROUP_CONCAT(n) FROM five | SHOW WARNINGS
SET @@session.time_zone = '+03:00', @a = 2 | SELECT @@time_zone, @a | INSERT INTO t (v) VALUES (1)
SET sql_log_bin = 0 | SELECT @@sql_log_bin | SET sql_log_bin = 1 | SELECT @@sql_log_bin
SET timestamp = 100 | SELECT UNIX_TIMESTAMP() | SET timestamp = DEFAULT | SELECT UNIX_TIMESTAMP() > 100
SET sql_auto_is_null = 1 | INSERT INTO t (v) VALUES (1) | SELECT COUNT(*) FROM t WHERE id IS NULL | SELECT COUNT(*) FROM t WHERE id IS NULL
SET a = 1; SELECT 2 | SELECT 1; SELECT nothing; SELECT 3 | SHOW WARNINGS
INSERT INTO t (v) VALUES (1); INSERT INTO log (v) VALUES (1); SELECT ROW_COUNT() | SELECT LAST_INSERT_ID(), ROW_COUNT()
SELECT 1; INSERT INTO t (v) VALUES (1); SELECT LAST_INSERT_ID() = MAX(id) FROM t; SELECT 4 | SELECT ROW_COUNT()
/*!50000 SET @v = 3 */ | SELECT @v | SELECT /*!99999 nonsense */ 1 AS one | /*!50000 INSERT INTO t (v) VALUES (4) */ | SELECT ROW_COUNT()
CREATE USER {me} | SET PASSWORD FOR {me} = 'secret1' | DROP USER {me} | SELECT 1
SET GLOBAL div_precision_increment = 4 | SELECT @@div_precision_increment
USE information_schema | SELECT DATABASE() | USE {schema} | SELECT COUNT(*) FROM five
CREATE DATABASE {me}_d | USE {me}_d | SELECT DATABASE() IS NULL | DROP DATABASE {me}_d | SELECT DATABASE() | USE {schema} | SELECT COUNT(*) FROM five
TABLE five | WITH w AS (SELECT n FROM five) SELECT COUNT(*) FROM w | VALUES (1, 2) | SELECT FOUND_ROWS()
SELECT n FROM five WHERE n > 9 | SELECT FOUND_ROWS(), ROW_COUNT() | DELETE FROM five WHERE n > 9 | SELECT ROW_COUNT()
SELECT n FROM five FOR UPDATE | SELECT FOUND_ROWS() | SELECT n FROM five LOCK IN SHARE MODE | SELECT ROW_COUNT()
SHOW TABLES LIKE 'fi%' | SELECT FOUND_ROWS() | SHOW VARIABLES LIKE 'sql_select_limit' | SELECT FOUND_ROWS()
DESCRIBE five | SELECT FOUND_ROWS() | CHECKSUM TABLE five | SELECT FOUND_ROWS(), ROW_COUNT()
SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'x' | SHOW WARNINGS | SELECT 1
SET @@rand_seed1 = 1, @@rand_seed2 = 2 | SELECT RAND() | SELECT RAND()
CREATE TABLE made AS SELECT n FROM five LIMIT 2 | SELECT ROW_COUNT() | SELECT FOUND_ROWS() | DROP TABLE made
ALTER TABLE log ADD COLUMN w INT | SELECT ROW_COUNT() | p:SELECT * FROM log WHERE id < 0 | ALTER TABLE log DROP COLUMN w | p:SELECT * FROM log WHERE id < 0
SET autocommit = 0 | SAVEPOINT a | INSERT INTO t (v) VALUES (1) | ROLLBACK TO a | RELEASE SAVEPOINT a | COMMIT | SELECT COUNT(*) FROM t | SET autocommit = 1
LOCK TABLES t WRITE | ALTER TABLE t COMMENT 'x' | SELECT COUNT(*) FROM five | UNLOCK TABLES | SELECT COUNT(*) FROM five
LOCK TABLES t READ | START TRANSACTION | INSERT INTO t (v) VALUES (1) | ROLLBACK | SELECT COUNT(*) FROM t
SET @@sql_mode := 'NO_BACKSLASH_ESCAPES' | SELECT '\\' AS x, @z := 4 | SELECT @z
SET @@sql_mode = 'ANSI_QUOTES', @@sort_buffer_size = 65536 | SELECT \"n\" FROM five LIMIT 1 | SELECT @@sort_buffer_size
SET @@global.div_precision_increment = 4, @@div_precision_increment = 1 | SELECT 1 / 3
SET @@collation_connection = latin1_bin | SELECT 'a' = 'A' | p:SELECT 'a' = 'A' | SELECT @@character_set_connection
SET @@nothing = 1 | SET @@sort_buffer_size = 65536, @@nothing = 1 | SELECT @@sort_buffer_size > 65536
9 SET xa_detach_on_prepare = OFF | XA START '{me}' | INSERT INTO t (v) VALUES (1) | XA END '{me}' | XA PREPARE '{me}' | SELECT COUNT(*) FROM five | XA ROLLBACK '{me}' | SELECT COUNT(*) FROM t
CALL nested() | SELECT @n1, @n2 | SELECT FOUND_ROWS() | SELECT ROW_COUNT()
CALL recovers() | SHOW WARNINGS | SELECT 1
SELECT /*!99999 @v := 9, */ 1 | SELECT /*M!100100 @m := 3, */ 1 | SELECT /*!50701 @w := 3, */ 1 | SELECT @v, @m, @w
SET sort_buffer_size = 65536; SELECT nothing | SELECT @@sort_buffer_size | LOCK TABLES t WRITE; SELECT nothing | SELECT COUNT(*) FROM five | UNLOCK TABLES
p:SELECT COUNT(*) FROM five | CREATE TEMPORARY TABLE five (n INT) | p:SELECT COUNT(*) FROM five | DROP TEMPORARY TABLE five | p:SELECT COUNT(*) FROM five
p:SELECT DATABASE() | USE information_schema | p:SELECT DATABASE() | USE {schema} | p:SELECT DATABASE()
BEGIN | INSERT INTO t (v) VALUES (1) | r: | SELECT COUNT(*) FROM t | LOCK TABLES t WRITE | r: | SELECT COUNT(*) FROM five
SELECT GET_LOCK('{me}', 0) | r: | SELECT IS_FREE_LOCK('{me}') | XA START '{me}' | INSERT INTO t (v) VALUES (1) | r: | SELECT COUNT(*) FROM t
SELECT nothing | r: | SHOW WARNINGS | SELECT @@error_count | SET @a = 1 | u: | SELECT @a IS NULL, DATABASE() | SELECT nothing | u: | SHOW WARNINGS
BEGIN | INSERT INTO t (v) VALUES (1) | u: | USE {schema} | SELECT COUNT(*) FROM t | SET sql_mode = 'ANSI_QUOTES' | u: | SELECT \"n\"
9 SELECT /*+ SET_VAR(div_precision_increment = 1) */ 1 / 3 | SELECT 1 / 3 | SELECT @@div_precision_increment
9 SET PERSIST div_precision_increment = 4 | SELECT @@div_precision_increment
9 INSERT INTO t (v) VALUES ROW(1), ROW(2) | SELECT ROW_COUNT(), LAST_INSERT_ID() | TABLE t LIMIT 2 | SELECT FOUND_ROWS()
9 SET resultset_metadata = FULL | SELECT 1
9 TABLE five LIMIT 2 INTO @a | VALUES ROW(1, 2) INTO @a, @b | SELECT @a, @b
9 EXPLAIN FORMAT=JSON INTO @j SELECT 1 | SELECT @j IS NULL
9 SELECT 1 FROM five WHERE n = 1 FOR SHARE | SELECT FOUND_ROWS()
9 SELECT n FROM five LIMIT 3 | UPDATE t SET v = 1 WHERE id = 1; SELECT FOUND_ROWS() | SELECT FOUND_ROWS()
M SELECT NEXTVAL(s) | SELECT LASTVAL(s) | SELECT SETVAL(s, 100) | SELECT NEXT VALUE FOR s | SELECT PREVIOUS VALUE FOR s
M INSERT INTO numbered (v) VALUES (1) | SELECT COUNT(id) FROM numbered
M BEGIN NOT ATOMIC SET @x = 4; INSERT INTO t (v) VALUES (@x); END | SELECT @x | SELECT ROW_COUNT()
M IF 1 THEN SET @x = 9; END IF | SELECT @x
M EXECUTE IMMEDIATE 'SET @x = 4' | SELECT @x | EXECUTE IMMEDIATE 'SELECT ?' USING 5
M INSERT INTO t (v) VALUES (1), (2) RETURNING v | SELECT ROW_COUNT() | SELECT LAST_INSERT_ID() = MAX(id) - 1 FROM t | SELECT FOUND_ROWS()
M SELECT 1 | SET @x = 1 | INSERT INTO t (v) VALUES (1) | SELECT n FROM five LIMIT 4 | p:SELECT FOUND_ROWS(), LAST_INSERT_ID()
M DELETE FROM t WHERE v >= 20 RETURNING v | SELECT ROW_COUNT() | SELECT FOUND_ROWS()
M REPLACE INTO t (id, v) VALUES (1, 3) RETURNING id, v | SELECT ROW_COUNT(), LAST_INSERT_ID()
M SET STATEMENT div_precision_increment = 1 FOR SELECT 1 / 3 | SELECT 1 / 3 | SELECT @@div_precision_increment
M SET STATEMENT sql_mode = 'ANSI_QUOTES' FOR SELECT \"a\" FROM (SELECT 1 AS a) d | SELECT \"a\" AS x
M SET STATEMENT div_precision_increment = 1 FOR SET @y = 1 / 3 | SELECT @y | INSERT INTO t (v) VALUES (1)
M SET sql_mode = 'ORACLE' | SELECT s.NEXTVAL > 0 | BEGIN INSERT INTO t (v) VALUES (1); END | SELECT COUNT(*) FROM t
M INSERT DELAYED INTO t (v) VALUES (1) | SELECT 1
M SELECT n FROM five LIMIT 3 | UPDATE t SET v = 1 WHERE id = 1; SELECT FOUND_ROWS() | SELECT FOUND_ROWS()
M ANALYZE SELECT n FROM five LIMIT 2 | SELECT FOUND_ROWS()
M SELECT n FROM five LIMIT 2 OFFSET 1 | SELECT n FROM five ORDER BY n LIMIT 2 | SELECT FOUND_ROWS()
M CREATE TEMPORARY SEQUENCE ts | SELECT NEXTVAL(ts) | DROP SEQUENCE ts
M CREATE OR REPLACE TEMPORARY TABLE five (n INT) | SELECT COUNT(*) FROM five | DROP TEMPORARY TABLE five | SELECT COUNT(*) FROM five
SELECT n FROM five LIMIT 3 | r: | SELECT FOUND_ROWS() | SELECT ROW_COUNT()
SELECT n FROM five LIMIT 3 | u: | SELECT FOUND_ROWS()
SELECT SQL_CALC_FOUND_ROWS n FROM five LIMIT 3 | r: | SELECT FOUND_ROWS()
SELECT n FROM five LIMIT 4 | SHOW GRANTS | SELECT FOUND_ROWS() | SHOW CREATE TABLE five | SELECT ROW_COUNT()
SELECT n FROM five LIMIT 4 | SHOW CREATE TABLE five | SELECT FOUND_ROWS() | CHECK TABLE five | SELECT FOUND_ROWS()
SELECT n FROM five LIMIT 4 | KILL QUERY 999999999 | SELECT FOUND_ROWS() | HELP 'nothing at all' | SELECT FOUND_ROWS()
SELECT n FROM five LIMIT 4 | SHOW WARNINGS | SELECT FOUND_ROWS() | SELECT @@warning_count | SELECT FOUND_ROWS()
SELECT n FROM five LIMIT 4 | EXPLAIN SELECT n FROM five | SELECT FOUND_ROWS() | ANALYZE TABLE five | SELECT FOUND_ROWS()
SELECT n FROM five LIMIT 4 | PREPARE fp FROM 'SELECT 1' | SELECT FOUND_ROWS() | EXECUTE fp | SELECT FOUND_ROWS() | DEALLOCATE PREPARE fp | SELECT FOUND_ROWS()
SELECT n FROM five LIMIT 4 | CALL two_results() | SELECT FOUND_ROWS() | CALL asks() | SELECT FOUND_ROWS()
SELECT n FROM five LIMIT 4 | ping: | SELECT FOUND_ROWS() | BEGIN | ping: | SELECT FOUND_ROWS() | COMMIT
SELECT n FROM five LIMIT 4 | SELECT n, n FROM five WHERE n = 2 INTO @n1, @n2 | SELECT FOUND_ROWS()
SELECT n FROM five LIMIT 4 | HANDLER five OPEN | HANDLER five READ FIRST | SELECT FOUND_ROWS() | HANDLER five CLOSE | SELECT FOUND_ROWS()
M SELECT n FROM five LIMIT 4 | DELETE FROM log RETURNING 1 | SELECT FOUND_ROWS() | SELECT ROW_COUNT()
KILL QUERY CONNECTION_ID() | SELECT 1
SELECT CONNECTION_ID() = @@pseudo_thread_id AS same | SET @cid = CONNECTION_ID() | SELECT @cid = @@session.pseudo_thread_id AS same
START TRANSACTION READ ONLY | SELECT COUNT(*) FROM five | CREATE TABLE made (a INT) | COMMIT | SELECT COUNT(*) FROM made | DROP TABLE made
START TRANSACTION READ ONLY | SELECT COUNT(*) FROM five | CREATE TABL x | SHOW ERRORS | CREATE TABLE made (a INT) | ROLLBACK | DROP TABLE made
M START TRANSACTION READ ONLY | SELECT COUNT(*) FROM five | CREATE TABL x | SELECT @@in_transaction | ROLLBACK
M START TRANSACTION READ ONLY | SELECT COUNT(*) FROM five | XA COMMIT '{me}' ONE PHASE | START TRANSACTION WITH CONSISTENT SNAPSHOT | ROLLBACK
START TRANSACTION READ ONLY | LOCK TABLES t WRITE | INSERT INTO t (v) VALUES (1) | SELECT COUNT(*) FROM five | UNLOCK TABLES
START TRANSACTION READ ONLY | SELECT n FROM five LIMIT 2 | START TRANSACTION READ ONLY | SELECT FOUND_ROWS() | UNLOCK TABLES | COMMIT
M START TRANSACTION READ ONLY | BEGIN | INSERT INTO t (v) VALUES (9) | COMMIT | SELECT COUNT(*) FROM t WHERE v = 9
M START TRANSACTION READ ONLY | SELECT COUNT(*) FROM five | p:BEGIN | INSERT INTO t (v) VALUES (9) | ROLLBACK | SELECT COUNT(*) FROM t WHERE v = 9
9 INSERT INTO t (v) VALUES (1) | USE performance_schema | SELECT * FROM session_variables WHERE VARIABLE_NAME IN ('last_insert_id', 'identity') | TABLE session_account_connect_attrs LIMIT 0
9 USE performance_schema | SELECT VARIABLE_VALUE = @@port FROM global_variables WHERE VARIABLE_NAME = 'port' | p:SELECT VARIABLE_VALUE FROM global_variables WHERE VARIABLE_NAME = 'port'
9 USE information_schema | SELECT COUNT(*) FROM processlist WHERE ID = CONNECTION_ID() | USE mysql | SELECT COUNT(*) FROM user WHERE user = 'root'
M INSERT INTO t (v) VALUES (1) | USE information_schema | SELECT VARIABLE_VALUE FROM session_variables WHERE VARIABLE_NAME IN ('LAST_INSERT_ID', 'IDENTITY')
M INSERT INTO t (v) VALUES (1) | SELECT SESSION_VALUE FROM information_schema.system_variables WHERE VARIABLE_NAME IN ('LAST_INSERT_ID', 'IDENTITY')
M USE information_schema | SELECT COUNT(*) FROM processlist WHERE ID = CONNECTION_ID() | SELECT VARIABLE_VALUE FROM global_variables WHERE VARIABLE_NAME = 'PORT'
INSERT INTO t (v) VALUES (1) | SHOW VARIABLES LIKE 'last_insert_id' | SHOW SESSION VARIABLES LIKE 'identity' | p:SHOW VARIABLES LIKE 'last_insert_id' | SHOW VARIABLES LIKE 'sql_log_bin'
SET insert_id = 70000 | SHOW VARIABLES LIKE 'insert_id' | SET timestamp = 1000 | SHOW VARIABLES LIKE 'timestamp'
M SELECT CAST('x' AS SIGNED) | SELECT 1 | SHOW WARNINGS | SELECT LAST_INSERT_ID(), ROW_COUNT() | SHOW WARNINGS | SELECT n FROM five LIMIT 1 | SHOW WARNINGS
M SELECT CAST('x' AS SIGNED) | SELECT 1 FROM DUAL | SELECT EXTRACT(YEAR FROM '2020-01-01') | DO 1 | SELECT 1 UNION SELECT 2 | SHOW WARNINGS
M SELECT CAST('x' AS SIGNED) | p:SELECT 1 | SELECT CONNECTION_ID() > 0 AS known | SELECT 1; SELECT 2 | SHOW WARNINGS | DO (SELECT MAX(n) FROM five) | SHOW WARNINGS
M SELECT CAST('x' AS SIGNED) | SELECT * FROM (SELECT 1) d | SHOW WARNINGS
M SELECT nothing | SELECT 1 | SHOW WARNINGS | DO 1 | p:SELECT 1 | SHOW ERRORS
M INSERT IGNORE INTO t (id, v) VALUES (1, 1) | SELECT LAST_INSERT_ID(), ROW_COUNT() | SHOW WARNINGS
M CREATE TABLE sv (a INT) WITH SYSTEM VERSIONING | SET system_versioning_asof = '2001-01-01 00:00:00' | SELECT COUNT(*) FROM sv | SELECT @@system_versioning_asof | DROP TABLE sv
SET character_set_connection = ucs2 | SELECT HEX('a') | p:SELECT HEX('a') | SET character_set_connection = DEFAULT | p:SELECT HEX('a')
SET sql_mode = 'NO_BACKSLASH_ESCAPES'; SELECT '\\'; DO GET_LOCK('{me}', 0); SELECT '' | SELECT IS_USED_LOCK('{me}') = CONNECTION_ID() | DO RELEASE_ALL_LOCKS()
SET sql_mode = 'ANSI_QUOTES'; SELECT 1 AS \"a'b\"; DO GET_LOCK('{me}', 0); SELECT 1 AS \"c'd\" | SELECT IS_USED_LOCK('{me}') = CONNECTION_ID() | DO RELEASE_ALL_LOCKS()
SET sql_mode = 'IGNORE_SPACE' | SELECT COUNT (*) FROM five | SET sql_mode = '' | SELECT COUNT (*) FROM five
p:SELECT 'a' || 'b' | SET sql_mode = 'PIPES_AS_CONCAT' | p:SELECT 'a' || 'b' | SELECT 'a' || 'b' | r: | SELECT 'a' || 'b'
p:INSERT INTO t (v) VALUES ('x') | SET sql_mode = '' | p:INSERT INTO t (v) VALUES ('x') | SHOW WARNINGS | SET sql_mode = DEFAULT | p:INSERT INTO t (v) VALUES ('x')
p:SELECT WEEK('2020-01-05') | SET default_week_format = 3 | p:SELECT WEEK('2020-01-05') | p:SELECT FROM_UNIXTIME(0) | SET time_zone = '-08:00' | p:SELECT FROM_UNIXTIME(0)
SET lc_time_names = 'de_DE' | p:SELECT MONTHNAME('2020-05-01') | SET lc_time_names = 'fr_FR' | p:SELECT MONTHNAME('2020-05-01') | SET lc_messages = 'de_DE' | SELECT nothing | SHOW WARNINGS
SET character_set_results = NULL | SELECT 'ä', _latin1 x'e4' | SET character_set_results = latin1 | p:SELECT 'ä' | SET character_set_results = binary | SELECT 'ä', _latin1 x'e4'
SET max_error_count = 0 | SELECT CAST('x' AS SIGNED) | SHOW WARNINGS | SET max_error_count = 1 | SELECT CAST('x' AS SIGNED), CAST('y' AS SIGNED) | SHOW WARNINGS | SHOW COUNT(*) WARNINGS
SET NAMES gbk | SELECT HEX('中'), @g := 1 | SELECT @g | SET NAMES sjis | SELECT 'ソ\\', @j := 2, ' | SELECT @j
SELECT /*!50000 1 /* inner */ + 1 */ AS a | SELECT /*!99999 1, /* x */ */ 2 AS b | /*!50000 SET @c = 4; */ SELECT @c | SELECT 1 /*!99999 INTO @d */ | SELECT @d
SELECT 1--1 | SELECT 1 ; garbage | SELECT 1;; | ;; SELECT 2 | /* c */ | SELECT 1;  ; SELECT 3 | SELECT 'x | SELECT 4 # ; SET @h = 3
CREATE TEMPORARY TABLE tt LIKE t | INSERT INTO tt (v) VALUES (3) | SELECT LAST_INSERT_ID() | TRUNCATE TABLE tt | INSERT INTO tt (v) VALUES (4) | SELECT LAST_INSERT_ID(), id FROM tt | r: | SELECT * FROM tt
CREATE VIEW vf AS SELECT n FROM five | LOCK TABLES vf READ | SELECT COUNT(*) FROM vf | SELECT COUNT(*) FROM five | SELECT COUNT(*) FROM t | UNLOCK TABLES | DROP VIEW vf
CREATE FUNCTION locks() RETURNS INT DETERMINISTIC NO SQL RETURN GET_LOCK('{me}', 0) | SELECT locks() | SELECT IS_USED_LOCK('{me}') = CONNECTION_ID() | DO RELEASE_ALL_LOCKS() | DROP FUNCTION locks
CREATE FUNCTION writes() RETURNS INT DETERMINISTIC MODIFIES SQL DATA BEGIN INSERT INTO log (v) VALUES (66); RETURN 1; END | SELECT writes() | SELECT COUNT(*) FROM log WHERE v = 66 | SELECT LAST_INSERT_ID() | p:SELECT writes() | SELECT COUNT(*) FROM log WHERE v = 66
BEGIN | SAVEPOINT a | INSERT INTO t (id, v) VALUES (1, 1) | SELECT nothing | ROLLBACK TO a | COMMIT | SELECT ROW_COUNT() | BEGIN; INSERT INTO t (v) VALUES (1); SELECT nothing | ROLLBACK | SELECT COUNT(*) FROM t
SELECT n FROM five WHERE n = 1 FOR UPDATE SKIP LOCKED | SELECT FOUND_ROWS() | SELECT n FROM five WHERE n = 1 FOR UPDATE NOWAIT | WITH w AS (SELECT @cte := 4 AS a) SELECT a FROM w | SELECT @cte
EXPLAIN UPDATE t SET v = 1 WHERE id = 1 | SELECT ROW_COUNT() | EXPLAIN DELETE FROM t WHERE id = 1 | SELECT COUNT(*) > 0 FROM t | EXPLAIN SELECT @ex := 5 | SELECT @ex
9 SELECT /*+ SET_VAR(sql_select_limit = 2) */ n FROM five | SELECT FOUND_ROWS() | SELECT n FROM five | p:SELECT /*+ SET_VAR(sort_buffer_size = 65536) */ @@sort_buffer_size = 65536 | SELECT @@sort_buffer_size = 65536
9 WITH w AS (SELECT 1 AS id) UPDATE t JOIN w USING (id) SET v = 5 | SELECT ROW_COUNT() | SELECT FOUND_ROWS()
M SET STATEMENT last_insert_id = 5 FOR SELECT LAST_INSERT_ID() | SELECT LAST_INSERT_ID() | SET STATEMENT sql_select_limit = 2 FOR SELECT n FROM five | SELECT FOUND_ROWS() | SET STATEMENT timestamp = 100 FOR SELECT UNIX_TIMESTAMP() | SELECT UNIX_TIMESTAMP() > 100
M BEGIN | INSERT INTO t (v) VALUES (1) | SELECT n FROM five LIMIT 4 | p:SELECT FOUND_ROWS(), LAST_INSERT_ID() | COMMIT | SELECT n FROM five LIMIT 3 | p:SELECT FOUND_ROWS()
p:SELECT ROW_COUNT() | INSERT INTO t (v) VALUES (1), (2) | p:SELECT ROW_COUNT()
SELECT n FROM five LIMIT 4 | EXPLAIN SELECT 1 | SELECT FOUND_ROWS() | SELECT n FROM five LIMIT 4 | EXPLAIN FORMAT=JSON SELECT 1 FROM DUAL | SELECT FOUND_ROWS()
SELECT n FROM five LIMIT 4 | EXPLAIN SELECT 1 UNION SELECT 2 | SELECT FOUND_ROWS() | SELECT n FROM five LIMIT 4 | EXPLAIN SELECT n FROM five UNION SELECT n + 1 FROM five | SELECT FOUND_ROWS()
SELECT n FROM five LIMIT 4 | EXPLAIN UPDATE t SET v = 1 WHERE 1 = 0 | SELECT FOUND_ROWS() | EXPLAIN SELECT n FROM five WHERE n = 9 | SELECT FOUND_ROWS()
SELECT n FROM five LIMIT 4 | DO (SELECT MAX(n) FROM five) | SELECT FOUND_ROWS() | SELECT n FROM five LIMIT 4 | DO (SELECT n FROM five WHERE n = 2) | SELECT FOUND_ROWS()
SELECT n FROM five LIMIT 4 | DO (SELECT 1) | SELECT FOUND_ROWS() | SELECT n FROM five LIMIT 4 | DO (SELECT n FROM (SELECT 1 AS n) d) | SELECT FOUND_ROWS() | p:DO EXISTS (SELECT 1 FROM five) | SELECT FOUND_ROWS()
M SELECT n FROM five LIMIT 4 | VALUES ((SELECT MAX(n) FROM five)) | SELECT FOUND_ROWS() | SELECT n FROM five LIMIT 4 | VALUES ((SELECT n FROM five WHERE n = 2)), (3) | SELECT FOUND_ROWS()
SELECT n FROM five LIMIT 4 | SHOW PROFILE | SELECT FOUND_ROWS() | SELECT n FROM five LIMIT 4 | SHOW OPEN TABLES LIKE 'no_such_table' | SELECT FOUND_ROWS() | SHOW ENGINE INNODB MUTEX | SHOW BINARY LOGS
SELECT n FROM five LIMIT 4 | CREATE TABLE made AS SELECT n FROM five LIMIT 2 | DROP TABLE made | SELECT FOUND_ROWS()
9 SELECT n FROM five LIMIT 4 | CREATE TABLE made AS SELECT n FROM five LIMIT 2 | SELECT FOUND_ROWS() | DROP TABLE made
p:SET @@session.pseudo_thread_id = CONNECTION_ID() | SELECT @@pseudo_thread_id > 0 AS known
START TRANSACTION READ ONLY | SELECT COUNT(*) FROM five | CACHE INDEX five IN default | CREATE TEMPORARY TABLE tt (a INT) | ROLLBACK
START TRANSACTION READ ONLY | SELECT COUNT(*) FROM five | LOAD INDEX INTO CACHE five | CREATE TEMPORARY TABLE tt (a INT) | ROLLBACK
M START TRANSACTION READ ONLY | SELECT COUNT(*) FROM five | BACKUP LOCK five | BACKUP UNLOCK | SELECT @@in_transaction | INSERT INTO t (v) VALUES (1) | ROLLBACK
M FOR i IN 1..3 DO INSERT INTO log (v) VALUES (i); END FOR | SELECT COUNT(*) FROM log | BEGIN NOT ATOMIC CREATE TEMPORARY TABLE na (a INT); DO GET_LOCK('{me}', 0); END | SELECT * FROM na | SELECT IS_USED_LOCK('{me}') = CONNECTION_ID() | DO RELEASE_ALL_LOCKS()
";

/// A session, and what it is called.
struct Player {
    session: Conn,
    name: String,
    schema: &'static str,
}

impl Player {
    async fn play(&mut self, statement: &str) -> String {
        let text = statement
            .replace("{me}", &self.name)
            .replace("{schema}", self.schema);
        let told = match text.strip_prefix("p:") {
            Some(text) => match self.session.exec_iter(text, ()).await {
                Ok(result) => in_words(result).await,
                Err(error) => format!("error {}", client::code(&error)),
            },
            None if text == "r:" => match self.session.reset().await {
                Ok(done) => format!("reset {done}"),
                Err(error) => format!("error {}", client::code(&error)),
            },
            None if text == "ping:" => match self.session.ping().await {
                Ok(()) => "alive".to_owned(),
                Err(error) => format!("error {}", client::code(&error)),
            },
            None if text == "u:" => match self.session.change_user(ChangeUserOpts::default()).await {
                Ok(()) => "changed".to_owned(),
                Err(error) => format!("error {}", client::code(&error)),
            },
            None => match self.session.query_iter(text).await {
                Ok(result) => in_words(result).await,
                Err(error) => format!("error {}", client::code(&error)),
            },
        };
        told.replace(&self.name, "{me}").replace(self.schema, "{schema}")
    }
}

/// All results of a statement: columns, rows, and what its OK says.
pub(crate) async fn in_words<P: mysql_async::prelude::Protocol>(
    mut result: QueryResult<'_, '_, P>,
) -> String {
    let mut words = Vec::new();
    while !result.is_empty() {
        let columns = result.columns().map(|columns| {
            let names = columns.iter().map(|column| column.name_str().into_owned());
            names.collect::<Vec<_>>().join(", ")
        });
        let rows: Result<Vec<Row>, _> = result.collect().await;
        match rows {
            Ok(rows) => {
                let rows: Vec<_> = rows.into_iter().map(in_text).collect();
                let (affected, id) = (result.affected_rows(), result.last_insert_id());
                let warnings = result.warnings();
                words.push(format!(
                    "[{}] {rows:?}, {affected} affected, id {id:?}, {warnings} warnings",
                    columns.unwrap_or_default()
                ));
            }
            Err(error) => {
                words.push(format!("error {}", client::code(&error)));
                break;
            }
        }
    }
    words.join("; ")
}

fn in_text(row: Row) -> String {
    let values = row.unwrap().into_iter().map(|value| value.as_sql(true));
    values.collect::<Vec<_>>().join(" ")
}

/// Makes the schema anew.
async fn prepare(admin: &mut Conn, schema: &str) {
    for statement in [
        format!("DROP DATABASE IF EXISTS {schema}"),
        format!("CREATE DATABASE {schema}"),
        format!("USE {schema}"),
    ] {
        admin.query_drop(statement).await.unwrap();
    }
    let further = match kind() {
        Kind::Mariadb => SCHEMA_OF_MARIADB,
        _ => &[],
    };
    for statement in SCHEMA.iter().chain(further) {
        admin.query_drop(*statement).await.unwrap();
    }
}

/// Others on the same connections, who leave what they can.
struct Noise {
    sessions: Vec<Conn>,
}

impl Noise {
    async fn new(gateway: &Gateway, direct: &mut Conn) -> Self {
        for statement in [
            "CREATE DATABASE IF NOT EXISTS kinds_noise",
            "CREATE TABLE IF NOT EXISTS kinds_noise.n (id INT AUTO_INCREMENT PRIMARY KEY, v INT) AUTO_INCREMENT = 100000",
            "INSERT INTO kinds_noise.n (v) VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9)",
        ] {
            direct.query_drop(statement).await.unwrap();
        }
        let mut sessions = Vec::new();
        for _ in 0..2 {
            let mut session = cluster::connect_to(gateway, "kinds_noise").await;
            let set = "SET NAMES latin1, sql_mode = 'ANSI_QUOTES', time_zone = '+05:00', div_precision_increment = 7, \
                       sql_select_limit = 8, completion_type = 0, group_concat_max_len = 99";
            session.query_drop(set).await.unwrap();
            sessions.push(session);
        }
        Self { sessions }
    }

    /// On every connection that `own` does not hold.
    async fn make(&mut self, gateway: &Gateway, own: u32) {
        // What it holds is known once it waits for its client again: the gateway may have had a question of
        // its own.
        let own = format!("\"id\":{own},");
        let is_settled = || {
            let sessions = gateway.get("/sessions").1;
            let own = sessions.split('{').find(|session| session.contains(&own));
            own.is_none_or(|session| session.contains("\"waits_for\":\"client\""))
        };
        eventually("the session waits for its client", async || is_settled()).await;
        let held = gateway.get("/sessions?pinned=true").1.contains(&own);
        let several = if held { 1 } else { 2 };
        for session in &mut self.sessions[..several] {
            session.query_drop("BEGIN").await.unwrap();
            session.query_drop("SELECT CAST('x' AS SIGNED)").await.unwrap();
            session
                .query_drop("INSERT INTO n (v) VALUES (1), (2)")
                .await
                .unwrap();
            session.query_drop("SELECT v FROM n LIMIT 7").await.unwrap();
        }
        for session in &mut self.sessions[..several] {
            session.query_drop("COMMIT").await.unwrap();
        }
    }
}

/// `FOREBAY_SCRIPT=text` plays those with this text, `FOREBAY_SCRIPTS=file` those of a file.
fn scripts() -> impl Iterator<Item = &'static str> {
    let only = std::env::var("FOREBAY_SCRIPT").ok();
    let of_file = std::env::var("FOREBAY_SCRIPTS").ok();
    let of_file = of_file.map(|path| &*std::fs::read_to_string(path).unwrap().leak());
    let lines = of_file
        .unwrap_or(SCRIPTS)
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let own = lines.filter_map(|line| match (line.split_once(' '), kind()) {
        (Some(("M", script)), Kind::Mariadb) => Some(script),
        (Some(("9", script)), Kind::Mysql) => Some(script),
        (Some(("M" | "9", _)), _) => None,
        _ => Some(line),
    });
    own.filter(move |line| only.as_ref().is_none_or(|only| line.contains(only)))
}

/// Other tests write to the server: its log may have grown between the two that ask, and locks in it may have
/// been waited for once more.
const OF_THE_MOMENT: [&str; 2] = ["SHOW BINARY LOGS", "SHOW ENGINE INNODB MUTEX"];

/// How often two answers that differ by the moment are asked for anew.
const AGAIN_MAX: usize = 20;

/// Each script directly and through the gateway.
async fn compare(sandbox: &Sandbox, gateway: &Gateway, schemas: [&'static str; 2], with_noise: bool) {
    // Without the questions that the library asks at the start of a session.
    let directly = || {
        let options = client::options_at(sandbox.primary().port());
        options
            .max_allowed_packet(Some(1 << 24))
            .wait_timeout(Some(28_800))
    };
    let mut admin = Conn::new(directly()).await.unwrap();
    let mut noise = match with_noise {
        true => Some(Noise::new(gateway, &mut admin).await),
        false => None,
    };
    let mut wrong = Vec::new();
    for schema in schemas {
        prepare(&mut admin, schema).await;
    }
    sandbox.sync().unwrap();
    for (number, script) in scripts().enumerate() {
        let player = |session, schema: &'static str| Player {
            session,
            name: format!("{schema}_{number}"),
            schema,
        };
        let direct = Conn::new(directly().db_name(Some(schemas[0]))).await.unwrap();
        let mut direct = player(direct, schemas[0]);
        let mut own = player(cluster::connect_to(gateway, schemas[1]).await, schemas[1]);
        let id = own.session.id();
        for statement in script.split(" | ") {
            let mut expected = direct.play(statement).await;
            let mut told = own.play(statement).await;
            for _ in 0..AGAIN_MAX {
                if told == expected || !OF_THE_MOMENT.contains(&statement) {
                    break;
                }
                expected = direct.play(statement).await;
                told = own.play(statement).await;
            }
            if told != expected {
                wrong.push(format!(
                    "{script}\n  {statement}\n    there {expected}\n    here  {told}"
                ));
                break;
            }
            if let Some(noise) = &mut noise {
                noise.make(gateway, id).await;
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[tokio::test]
async fn on_connections_that_others_use_in_between() {
    let sandbox = cluster::single();
    let gateway = cluster::narrow(sandbox, 2).start();
    compare(sandbox, &gateway, ["kinds_there", "kinds_here"], true).await;
}

#[tokio::test]
async fn with_reads_on_replicas() {
    let sandbox = cluster::shared();
    // Each script is a session of its own, and sees what the one before has written.
    let setup = cluster::split(sandbox).listener("read_consistency = \"strong\"");
    let gateway = cluster::start(setup, 2).await;
    compare(sandbox, &gateway, ["kinds_at_once", "kinds_apart"], false).await;
}
