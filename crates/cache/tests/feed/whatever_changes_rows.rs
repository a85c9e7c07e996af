//! Whatever statement changes rows or tables: what memory has behind it is what SELECT shows.

use config::CacheMapping;
use sandbox::Kind;

use crate::fed::{Fed, Wishes, on_both, string};

on_both! { each_way_to_change_rows each_way_to_change_tables }

/// A table with triggers, one whose keys are the same in several ways, one in partitions; and what changes
/// them.
const TABLES: &str = "
    CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(60), n INT NOT NULL DEFAULT 7, at TIMESTAMP(2) NULL,
        g INT GENERATED ALWAYS AS (id * 2) VIRTUAL, UNIQUE (n)) CHARACTER SET utf8mb4;
    INSERT INTO t (id, c, n) VALUES (1, 'one', 1), (2, 'two', 2), (3, 'three', 3), (4, NULL, 4);
    CREATE TABLE k (k CHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY, v VARCHAR(9)) CHARACTER SET utf8mb4;
    INSERT INTO k VALUES ('a', 'first'), ('b ', 'second');
    CREATE TABLE p (id INT PRIMARY KEY, c VARCHAR(60)) PARTITION BY RANGE (id)
        (PARTITION low VALUES LESS THAN (100), PARTITION high VALUES LESS THAN MAXVALUE);
    INSERT INTO p VALUES (1, 'low'), (2, 'low'), (200, 'high');
    CREATE TABLE trail (id INT AUTO_INCREMENT PRIMARY KEY, c VARCHAR(60));
    CREATE TABLE source (id INT PRIMARY KEY, c VARCHAR(60));
    INSERT INTO source VALUES (1, 'from elsewhere'), (9, 'from elsewhere');
    CREATE TABLE parent (id INT PRIMARY KEY);
    INSERT INTO parent VALUES (1), (2), (3), (4);
    CREATE VIEW v AS SELECT id, c, n FROM t WHERE id < 1000;
    CREATE TRIGGER t_ai AFTER INSERT ON t FOR EACH ROW INSERT INTO trail (c) VALUES (CONCAT('new ', NEW.id));
    CREATE TRIGGER t_bu BEFORE UPDATE ON t FOR EACH ROW SET NEW.c = CONCAT(NEW.c, '.');
    CREATE TRIGGER t_ad AFTER DELETE ON t FOR EACH ROW DELETE FROM trail WHERE c = CONCAT('new ', OLD.id);
    DELIMITER //
    CREATE PROCEDURE pr() BEGIN UPDATE t SET c = 'by a procedure' WHERE id = 1; DELETE FROM p WHERE id = 2; END//
    CREATE PROCEDURE tr() BEGIN TRUNCATE t; INSERT INTO t (id, c, n) VALUES (1, 'anew', 1), (2, 'anew', 2); END//
    CREATE FUNCTION fu() RETURNS INT DETERMINISTIC MODIFIES SQL DATA
        BEGIN UPDATE t SET c = 'by a function' WHERE id = 2; RETURN 1; END//
    DELIMITER ;
";

const ROWS: [&str; 31] = [
    "INSERT INTO t (id, c, n) VALUES (1, 'again', 90), (5, 'five', 5) ON DUPLICATE KEY UPDATE c = VALUES(c), n = 91",
    "INSERT INTO t (id, c, n) VALUES (77, 'by n', 2) ON DUPLICATE KEY UPDATE id = 22",
    "INSERT IGNORE INTO t (id, c, n) VALUES (3, 'not there', 3), (6, 'six', 6)",
    "REPLACE INTO t (id, c, n) VALUES (3, 'takes the places of two', 4)",
    "REPLACE INTO k VALUES ('A', 'replaced')",
    "UPDATE k SET k = 'B' WHERE k = 'b'",
    "INSERT INTO k VALUES ('a   ', 'x') ON DUPLICATE KEY UPDATE v = 'padded'",
    "UPDATE k SET k = '\u{f6}' WHERE k = 'b'",
    "DELETE FROM k WHERE k = '\u{d6}'",
    "UPDATE t JOIN source USING (id) SET t.c = source.c, source.c = 'both'",
    "DELETE t, source FROM t JOIN source USING (id) WHERE t.id = 1",
    "INSERT INTO t (id, c, n) SELECT id + 30, c, id + 30 FROM source",
    "UPDATE v SET c = 'by a view' WHERE id = 5",
    "INSERT INTO v (id, c, n) VALUES (50, 'by a view', 50)",
    "CALL pr()",
    "SELECT fu()",
    "DO fu()",
    "UPDATE p SET id = id + 100 WHERE id = 1",
    "UPDATE p SET id = id - 150 ORDER BY id",
    "UPDATE t SET id = id + 1 ORDER BY id DESC",
    "UPDATE t SET n = n + 1000 ORDER BY n DESC LIMIT 2",
    "DELETE FROM t ORDER BY id DESC LIMIT 1",
    "SET time_zone = '+05:00'; UPDATE t SET at = '2026-03-29 02:30:00.12'; SET time_zone = 'SYSTEM'",
    "SET timestamp = 1000000000; UPDATE t SET at = NOW(2) LIMIT 1",
    "BEGIN; UPDATE t SET c = 'kept' LIMIT 1; SAVEPOINT a; DELETE FROM t; ROLLBACK TO a; UPDATE k SET v = 'kept'; COMMIT",
    "SET autocommit = 0; UPDATE t SET c = 'first'; UPDATE t SET c = NULL LIMIT 1; COMMIT",
    "LOCK TABLES t WRITE, trail WRITE; UPDATE t SET c = 'locked'; UNLOCK TABLES",
    "CREATE TEMPORARY TABLE t (id INT, c INT); INSERT INTO t VALUES (1, 1); UPDATE t SET c = 5; DROP TEMPORARY TABLE t; UPDATE t SET n = 555 LIMIT 1",
    "SET foreign_key_checks = 0, unique_checks = 0; INSERT INTO t (id, c, n) VALUES (60, 'sixty', 60)",
    "PREPARE s FROM 'UPDATE t SET c = ? WHERE id > ?'; SET @c = 'prepared', @i = 3; EXECUTE s USING @c, @i",
    "SELECT 'x', 'y' INTO OUTFILE '%FILE%'; DELETE FROM k; LOAD DATA INFILE '%FILE%' INTO TABLE k",
];

const ROWS_OF_MARIADB: [&str; 8] = [
    "INSERT INTO t (id, c, n) VALUES (70, 'seventy', 70) RETURNING id, c",
    "DELETE FROM t WHERE id = 70 RETURNING c",
    "REPLACE INTO t (id, c, n) VALUES (71, 'x', 60) RETURNING id",
    "CREATE SEQUENCE se; INSERT INTO t (id, c, n) VALUES (NEXTVAL(se) + 80, 'by number', 80); DO SETVAL(se, 100); SELECT NEXTVAL(se)",
    "SET STATEMENT max_statement_time = 10 FOR UPDATE t SET c = 'in time'",
    "DELIMITER //\nBEGIN NOT ATOMIC UPDATE t SET c = 'compound' LIMIT 1; END//\nDELIMITER ;",
    "ANALYZE UPDATE t SET c = 'analyzed' LIMIT 1",
    "CREATE TABLE mi (id INT) ENGINE = MyISAM; BEGIN; INSERT INTO mi VALUES (1); UPDATE t SET c = 'gone'; ROLLBACK; UPDATE t, mi SET t.c = 'both', mi.id = 2",
];

const CHANGES: [&str; 18] = [
    "ALTER TABLE t ADD COLUMN e INT NOT NULL DEFAULT 5, ALGORITHM = INSTANT; UPDATE t SET c = 'behind' WHERE id = 1",
    "ALTER TABLE t DROP COLUMN e; INSERT INTO t (id, c, n) VALUES (20, 'twenty', 20)",
    "ALTER TABLE t MODIFY c VARCHAR(80) CHARACTER SET latin1; UPDATE t SET c = '\u{e9}' WHERE id = 2",
    "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4; UPDATE t SET c = CONCAT(c, '\u{20ac}') WHERE id = 2",
    "ALTER TABLE t RENAME COLUMN g TO gg, RENAME INDEX n TO m; DROP INDEX m ON t; UPDATE t SET n = 1",
    "CREATE TABLE w LIKE t; INSERT INTO w (id, c, n) SELECT id, UPPER(c), n FROM t; RENAME TABLE t TO w2, w TO t; DROP TABLE w2",
    "CREATE TABLE x (id INT PRIMARY KEY, c VARCHAR(60)); INSERT INTO x VALUES (7, 'exchanged'); ALTER TABLE p EXCHANGE PARTITION low WITH TABLE x",
    "ALTER TABLE p REORGANIZE PARTITION high INTO (PARTITION a VALUES LESS THAN (500), PARTITION b VALUES LESS THAN MAXVALUE); UPDATE p SET c = 'r'",
    "ALTER TABLE p TRUNCATE PARTITION low; INSERT INTO p VALUES (8, 'eight')",
    "ALTER TABLE p REMOVE PARTITIONING; UPDATE p SET c = 'whole'",
    "ALTER TABLE t ENGINE = InnoDB; ALTER TABLE t ORDER BY c; ALTER TABLE t AUTO_INCREMENT = 50; UPDATE t SET c = 'made anew'",
    "LOCK TABLES t WRITE; UPDATE t SET c = 'held'; ALTER TABLE t ADD INDEX (c(3)); UPDATE t SET c = 'held on'; UNLOCK TABLES",
    "PREPARE s FROM 'TRUNCATE t'; EXECUTE s; INSERT INTO t (id, c, n) VALUES (3, 'three', 3)",
    "CALL tr()",
    "DROP TABLE t; CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(60), n INT, at TIMESTAMP NULL) AS SELECT 6 AS id, 'made' AS c",
    "CREATE OR REPLACE VIEW v AS SELECT * FROM t; UPDATE v SET c = 'seen'",
    "RENAME TABLE k TO k_old, source TO k; DROP TABLE k; RENAME TABLE k_old TO k; UPDATE k SET v = 'back'",
    "OPTIMIZE TABLE t; ANALYZE TABLE t; CHECK TABLE t; FLUSH TABLES t; UPDATE t SET c = 'well'",
];

const CHANGES_OF_MARIADB: [&str; 4] = [
    "CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, n INT, at TIMESTAMP NULL, c VARCHAR(60)) SELECT 5 AS id, 'replaced' AS c",
    "ALTER TABLE t ADD PERIOD FOR pe (a, b), ADD COLUMN a DATE NOT NULL DEFAULT '2026-01-01', ADD COLUMN b DATE NOT NULL DEFAULT '2027-01-01'; \
     UPDATE t FOR PORTION OF pe FROM '2026-02-01' TO '2028-01-01' SET id = 6; DELETE FROM t FOR PORTION OF pe FROM '2026-01-05' TO '2026-01-09' WHERE id = 9",
    "ALTER TABLE t ADD SYSTEM VERSIONING; UPDATE t SET c = 'versioned'; ALTER TABLE t DROP SYSTEM VERSIONING",
    "SET STATEMENT lock_wait_timeout = 5 FOR TRUNCATE TABLE t; INSERT INTO t (id, c) VALUES (1, 'emptied')",
];

/// Mappings, and how SELECT shows them.
const SHOWN: [(&str, &str); 4] = [
    ("t", "SELECT id, c, n, at FROM t"),
    ("k", "SELECT LOWER(RTRIM(k)), v FROM k"),
    ("p", "SELECT id, c FROM p"),
    ("trail", "SELECT id, c FROM trail"),
];

fn start(kind: Kind) -> Fed {
    let mut wishes = Wishes::of(kind);
    wishes.spec = wishes.spec.option("--secure-file-priv=");
    let mappings = vec![
        CacheMapping::new(
            "t",
            config::MappingKind::Hash,
            "test.t",
            &["id"],
            &["c", "n", "at"],
        ),
        string("k", "test.k", &["k"], "v"),
        string("p", "test.p", &["id"], "c"),
        string("trail", "test.trail", &["id"], "c"),
    ];
    Fed::start(wishes, TABLES, mappings)
}

/// Each mapping is what its SELECT says.
fn compare(fed: &Fed, step: &str) {
    SHOWN.iter().for_each(|(name, _)| drop(fed.until_served(name)));
    fed.until_applied();
    let selects: Vec<String> = SHOWN
        .iter()
        .map(|(name, select)| format!("SELECT '-- {name}'; {select};"))
        .collect();
    let answer = fed.sql(&format!("SET time_zone = '+00:00'; {}", selects.concat()));
    let mut parts = answer.split("-- ").skip(1);
    for (name, _) in SHOWN {
        let mut expected: Vec<&str> = parts.next().unwrap().lines().skip(1).collect();
        expected.sort_unstable();
        assert_eq!(fed.rows(name), expected, "{name} behind {step}");
    }
}

fn each_way_to_change_rows(kind: Kind) {
    let fed = start(kind);
    compare(&fed, "the copy");
    let copies = fed.copies();
    let file = fed.sandbox.folder().join("values").display().to_string();
    let steps = ROWS.iter().chain(match kind {
        Kind::Mariadb => &ROWS_OF_MARIADB[..],
        _ => &[],
    });
    for step in steps {
        fed.sql(&step.replace("%FILE%", &file));
        compare(&fed, step);
    }
    // A temporary table of the same name is dropped by a statement in the log.
    assert!(fed.copies() <= copies + 1, "{} more", fed.copies() - copies);
}

fn each_way_to_change_tables(kind: Kind) {
    let fed = start(kind);
    let steps = CHANGES.iter().chain(match kind {
        Kind::Mariadb => &CHANGES_OF_MARIADB[..],
        _ => &[],
    });
    for step in steps {
        fed.sql(step);
        compare(&fed, step);
    }
    let cascades = "ALTER TABLE p ADD COLUMN r INT, ADD CONSTRAINT fk FOREIGN KEY (id) REFERENCES parent (id) ON DELETE CASCADE ON UPDATE CASCADE";
    fed.sql(&format!("INSERT IGNORE INTO parent SELECT id FROM p; {cascades}"));
    let logs_cascades = fed
        .sql("SHOW GLOBAL VARIABLES LIKE 'innodb_native_foreign_keys'")
        .contains("OFF");
    if !logs_cascades {
        fed.until("it is refused", || {
            fed.phase("p").to_string().contains("constraint fk")
        });
    } else {
        compare(&fed, cascades);
    }
    fed.sql("UPDATE parent SET id = id + 5000; DELETE FROM parent WHERE id = 5008");
    if !logs_cascades {
        fed.sql("ALTER TABLE p DROP FOREIGN KEY fk");
    }
    compare(&fed, "cascades");
}
