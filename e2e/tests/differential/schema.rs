//! The accounts and tables that scripts work on, put back before each side's run.

use std::time::{Duration, Instant};

use e2e::packets::{Client, Identity};
use sandbox::{Kind, PASSWORD, USER};

/// The database of the scripts.
pub const DATABASE: &str = "diff";
/// Rows that another session has locked are in this one.
pub const HELD: &str = "held";
/// Where the sessions write that run beside the scripts.
pub const NOISE: &str = "noise";
/// An account that may read [`DATABASE`] and nothing else.
pub const READER: &str = "diff_reader";
/// An account with all rights on [`DATABASE`] and no password.
pub const OPEN: &str = "diff_open";
/// The password of [`READER`].
pub const READER_PASSWORD: &str = "a password with ünïcode";
/// Names of the XA transactions of scripts; some may be left prepared.
pub const XA_NAMES: [&str; 2] = ["'one'", "'two','branch',7"];
/// How long a session may take to be gone from the server after its connection was closed.
const GONE_LIMIT: Duration = Duration::from_secs(30);
/// Between two looks whether it is. Without a pause the looks would take the core from what they wait for.
const LOOK: Duration = Duration::from_millis(2);

/// Direct connections beside those that are compared.
pub struct Stage {
    director: Client,
    holder: Client,
    has_vectors: bool,
}

impl Stage {
    /// Makes the accounts, and locks a row.
    pub fn new(address: &str) -> Self {
        let identity = Identity {
            user: USER,
            password: PASSWORD,
            database: None,
            charset: 45,
            capabilities: crate::session::ALWAYS,
        };
        let open = || Client::connect(address, &identity).unwrap().0;
        let (mut director, mut holder) = (open(), open());
        for statement in [
            format!("CREATE DATABASE {HELD}"),
            format!("CREATE TABLE {HELD}.held (id INT PRIMARY KEY, value INT) ENGINE=InnoDB"),
            format!("INSERT INTO {HELD}.held VALUES (1, 1), (2, 2)"),
            format!("CREATE USER {READER} IDENTIFIED BY '{READER_PASSWORD}'"),
            format!("CREATE USER {OPEN} IDENTIFIED BY ''"),
            format!("GRANT SELECT ON {DATABASE}.* TO {READER}"),
            format!("GRANT ALL ON {DATABASE}.* TO {OPEN}"),
            format!("GRANT SELECT, CREATE TEMPORARY TABLES ON {NOISE}.* TO {READER}"),
            format!("GRANT ALL ON {NOISE}.* TO {OPEN}"),
            format!("CREATE DATABASE {NOISE} CHARACTER SET latin1"),
            format!(
                "CREATE TABLE {NOISE}.numbers (id INT AUTO_INCREMENT PRIMARY KEY, v INT DEFAULT 0) AUTO_INCREMENT = 700000"
            ),
            format!("CREATE TABLE {NOISE}.small (id INT PRIMARY KEY, name VARCHAR(9)) ENGINE=InnoDB"),
            format!("INSERT INTO {NOISE}.small VALUES (991, 'noise'), (992, 'noise')"),
            format!("CREATE TABLE {NOISE}.blobs (b VARCHAR(9000), id VARCHAR(9000)) ENGINE=InnoDB"),
        ] {
            director.ask(&statement);
        }
        holder.ask("BEGIN");
        holder.ask(&format!("SELECT * FROM {HELD}.held WHERE id = 1 FOR UPDATE"));
        holder.ask("SELECT GET_LOCK('held', 0)");
        let has_vectors = !is_mysql_8(&director);
        Self {
            director,
            holder,
            has_vectors,
        }
    }

    /// Waits until nobody else is on the server, and makes the database anew.
    pub fn set(&mut self, kind: Kind) {
        self.wait_until_alone();
        for name in XA_NAMES {
            self.director.attempt(&format!("XA ROLLBACK {name}"));
        }
        for statement in reset(kind, kind == Kind::Mysql && self.has_vectors) {
            self.director.ask(&statement);
        }
    }

    pub fn is_mysql_8(&self) -> bool {
        is_mysql_8(&self.director)
    }

    /// Makes tables as an older server has them from here on.
    pub fn has_no_vectors(&mut self) {
        self.has_vectors = false;
    }

    fn wait_until_alone(&mut self) {
        let holder = self.holder.greeting.connection_id;
        let others = format!(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE user IN ('{USER}', '{READER}', '{OPEN}') \
             AND id NOT IN (CONNECTION_ID(), {holder})"
        );
        let begin = Instant::now();
        while self.director.ask(&others) != [b"\x010"] {
            assert!(
                begin.elapsed() < GONE_LIMIT,
                "a session does not leave the server"
            );
            std::thread::sleep(LOOK);
        }
    }
}

fn is_mysql_8(session: &Client) -> bool {
    session.greeting.server_version.starts_with(b"8.")
}

fn reset(kind: Kind, has_vectors: bool) -> Vec<String> {
    let mut statements = vec![
        format!("DROP DATABASE IF EXISTS {DATABASE}"),
        "DROP DATABASE IF EXISTS diff_second".to_owned(),
        format!("CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"),
        format!("USE {DATABASE}"),
    ];
    statements.extend(TABLES.iter().map(|&statement| statement.to_owned()));
    statements.extend(PROGRAMS.iter().map(|&statement| statement.to_owned()));
    if has_vectors {
        statements.push("ALTER TABLE types ADD COLUMN vec VECTOR(3)".into());
    }
    if kind == Kind::Mariadb {
        statements.push("ALTER TABLE types ADD COLUMN ip INET6, ADD COLUMN uid UUID".into());
        statements
            .push("UPDATE types SET ip = '2001:db8::1', uid = '123e4567-e89b-12d3-a456-426655440000'".into());
    }
    statements
}

const TABLES: &[&str] = &[
    "CREATE TABLE types (id INT PRIMARY KEY, t TINYINT, tu TINYINT UNSIGNED, s SMALLINT, m MEDIUMINT, i INT UNSIGNED, \
     b BIGINT, bu BIGINT UNSIGNED, z INT(8) ZEROFILL, f FLOAT, d DOUBLE, n DECIMAL(30,10), c CHAR(20), v VARCHAR(300), \
     bin BINARY(6), vb VARBINARY(70), tx TEXT, mt MEDIUMTEXT, bl BLOB, e ENUM('one','two','three'), st SET('a','b','c'), \
     da DATE, ti TIME(3), dt DATETIME(6), ts TIMESTAMP NULL, y YEAR, bi BIT(12), js JSON, g GEOMETRY, \
     l VARCHAR(20) CHARACTER SET latin1) ENGINE=InnoDB",
    "INSERT INTO types VALUES (1, -128, 255, -32768, -8388608, 4294967295, -9223372036854775808, 18446744073709551615, 42, \
     1.5, -2.25e100, 12345678901234567890.0123456789, 'char', 'varchar', 'bin', x'00ff00fe', 'text', 'medium', x'fbfcfdfeff', \
     'two', 'a,c', '2024-02-29', '-838:59:58.999', '2024-12-31 23:59:59.123456', '2024-06-01 12:00:00', 2024, b'101010101010', \
     '{\"a\": [1, 2, null]}', ST_GeomFromText('POINT(1 2)'), 'äöü')",
    "INSERT INTO types (id) VALUES (2)",
    "INSERT INTO types (id, v, tx, mt, bl) VALUES (3, REPEAT('v', 250), REPEAT('t', 251), REPEAT('m', 65535), \
     REPEAT('b', 65535))",
    "INSERT INTO types (id, v, tx, mt, bl) VALUES (4, '', '', REPEAT('m', 65536), '')",
    "INSERT INTO types (id, c, da, ti, dt, y) VALUES (5, 'zero', '1000-01-01', '00:00:00', '1000-01-01 00:00:00', 1901)",
    "CREATE TABLE small (id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(50) UNIQUE, amount DECIMAL(10,2) NOT NULL DEFAULT 0, \
     note TEXT, KEY (amount)) ENGINE=InnoDB",
    "INSERT INTO small (name, amount, note) VALUES ('ann', 1, 'n'), ('bob', 2.5, NULL), ('cid', -3, ''), ('dee', 99.99, 'x'), \
     ('eve', 0, REPEAT('long ', 200))",
    "CREATE TABLE child (id INT PRIMARY KEY, small_id INT, FOREIGN KEY (small_id) REFERENCES small (id)) ENGINE=InnoDB",
    "INSERT INTO child VALUES (1, 1), (2, 2)",
    "CREATE TABLE bare (id INT PRIMARY KEY, v VARCHAR(10)) ENGINE=InnoDB",
    "CREATE TABLE blobs (id INT PRIMARY KEY, b LONGBLOB) ENGINE=InnoDB",
    "CREATE TABLE loaded (id INT PRIMARY KEY, name VARCHAR(40) NOT NULL, n INT) ENGINE=InnoDB",
    "CREATE TABLE memory (id INT PRIMARY KEY, v VARCHAR(20)) ENGINE=MEMORY",
    "INSERT INTO memory VALUES (1, 'm'), (2, 'n')",
    "CREATE VIEW shown AS SELECT id, name FROM small",
];

const PROGRAMS: &[&str] = &[
    "CREATE PROCEDURE two() BEGIN SELECT id FROM small ORDER BY id; SELECT name, note FROM small ORDER BY id LIMIT 2; END",
    "CREATE PROCEDURE outs(IN a INT, OUT b VARCHAR(20), INOUT c INT) BEGIN SET b = CONCAT('b', a), c = c + a; SELECT a; END",
    "CREATE PROCEDURE only_out(OUT b INT) SET b = 5",
    "CREATE PROCEDURE fails(IN after INT) BEGIN SELECT 'before'; IF after > 0 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = \
     'signalled', MYSQL_ERRNO = 30001; END IF; SELECT 'after'; END",
    "CREATE PROCEDURE nothing() DO 0",
    "CREATE PROCEDURE writes(n INT) BEGIN WHILE n > 0 DO INSERT INTO bare VALUES (n, 'w'); SET n = n - 1; END WHILE; \
     SELECT COUNT(*) FROM bare; END",
    "CREATE FUNCTION twice(a INT) RETURNS INT DETERMINISTIC RETURN a * 2",
    "CREATE TRIGGER stops BEFORE INSERT ON child FOR EACH ROW IF NEW.id > 1000 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = \
     'too big'; END IF",
];
