//! INSERT, UPDATE, DELETE and the like; definitions of tables and all else.

use super::Maker;

const WRITES: &[&str] = &[
    "INSERT INTO small (name, amount) VALUES ('n%', %)",
    "INSERT INTO small (name) VALUES ('a%'), ('b%'), (NULL)",
    "INSERT IGNORE INTO small (name, amount) VALUES ('ann', %), ('z%', 'no number')",
    "REPLACE INTO small (id, name) VALUES (%, 'r%')",
    "INSERT INTO small (name, amount) VALUES ('bob', 1) ON DUPLICATE KEY UPDATE amount = amount + %",
    "INSERT INTO small (name, amount) SELECT CONCAT(name, '%'), amount FROM (SELECT * FROM small LIMIT 3) s",
    "UPDATE small SET amount = amount + 1",
    "UPDATE small SET amount = amount WHERE id = %",
    "UPDATE small SET note = 'u%' WHERE id = %",
    "UPDATE small s JOIN child c ON c.small_id = s.id SET s.amount = %",
    "DELETE FROM small WHERE id = %",
    "DELETE FROM child WHERE id = %",
    "DELETE FROM bare",
    "INSERT INTO bare VALUES (%, 'e')",
    "INSERT INTO bare () VALUES ()",
    "UPDATE types SET t = % WHERE id = 2",
    "INSERT INTO child VALUES (%, %)",
    "DELETE s FROM small s LEFT JOIN child c ON c.small_id = s.id WHERE c.id IS NULL",
    "INSERT INTO memory VALUES (%, 'mem')",
    "UPDATE small SET amount = % ORDER BY id LIMIT 2",
    "INSERT INTO small SET name = 's%'",
    "REPLACE INTO bare SELECT id, LEFT(name, 5) FROM small",
    "INSERT INTO blobs VALUES (%, REPEAT('b', 100000))",
    "UPDATE blobs SET b = CONCAT(b, b) WHERE id = %",
    "DELETE FROM blobs",
    "INSERT INTO shown (name) VALUES ('view%')",
    "INSERT INTO small (name, amount) VALUES ('long%', 123456789012.5)",
    "UPDATE IGNORE small SET name = 'ann'",
];

const MARIADB_WRITES: &[&str] = &[
    "INSERT INTO small (name) VALUES ('ret%') RETURNING id, name",
    "DELETE FROM small WHERE id = % RETURNING *",
    "REPLACE INTO bare VALUES (%, 'x') RETURNING id",
    "INSERT INTO small (name) SELECT 'ret' FROM bare RETURNING id",
];

pub fn add(make: &mut Maker) {
    let choices = if make.is_mariadb() && make.dice.one_in(5) {
        MARIADB_WRITES
    } else {
        WRITES
    };
    let text = make.statement(choices);
    make.add_query(&text);
}

const DEFINITIONS: &[&str] = &[
    "CREATE TABLE new% (id INT, v VARCHAR(%0))",
    "CREATE TABLE IF NOT EXISTS new% (id INT)",
    "DROP TABLE new%",
    "DROP TABLE IF EXISTS new%, new%",
    "CREATE TABLE copy% LIKE small",
    "CREATE TABLE made% AS SELECT * FROM small",
    "ALTER TABLE small ADD COLUMN extra% INT DEFAULT %",
    "ALTER TABLE small DROP COLUMN extra%",
    "ALTER TABLE bare MODIFY v VARCHAR(2%)",
    "ALTER TABLE bare RENAME TO bare%",
    "RENAME TABLE bare% TO bare",
    "TRUNCATE TABLE bare",
    "TRUNCATE TABLE small",
    "CREATE INDEX i% ON small (amount)",
    "DROP INDEX i% ON small",
    "CREATE OR REPLACE VIEW view% AS SELECT id FROM small",
    "DROP VIEW IF EXISTS view%",
    "CREATE TEMPORARY TABLE tmp (id INT, v TEXT)",
    "INSERT INTO tmp VALUES (%, 'tmp')",
    "SELECT * FROM tmp",
    "DROP TEMPORARY TABLE IF EXISTS tmp",
    "ALTER TABLE tmp ADD COLUMN x INT",
    "CREATE DATABASE diff_second",
    "DROP DATABASE IF EXISTS diff_second",
    "DROP DATABASE diff_second",
    "USE diff_second",
    "USE diff",
    "CREATE PROCEDURE proc%() SELECT %",
    "CALL proc%()",
    "DROP PROCEDURE IF EXISTS proc%",
    "ALTER TABLE small ENGINE=InnoDB",
    "CREATE FUNCTION func%() RETURNS INT DETERMINISTIC RETURN %",
    "DROP FUNCTION IF EXISTS func%",
    "ALTER DATABASE diff CHARACTER SET utf8mb4",
    "CREATE TRIGGER trig% AFTER DELETE ON bare FOR EACH ROW SET @deleted = OLD.id",
    "DROP TRIGGER IF EXISTS trig%",
    "CHECK TABLE small",
    "ANALYZE TABLE bare, missing",
    "OPTIMIZE TABLE memory",
    "CHECKSUM TABLE small, missing",
    "REPAIR TABLE memory",
    "ALTER TABLE missing ADD COLUMN x INT",
    "CREATE TABLE small (id INT)",
    "DROP TABLE missing",
    "DROP TABLE small",
    "COMMENT ON nothing",
];

pub fn add_definition(make: &mut Maker) {
    let text = make.statement(DEFINITIONS);
    make.add_query(&text);
}
