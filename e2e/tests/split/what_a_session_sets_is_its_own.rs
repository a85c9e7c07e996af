//! The rows of "What trackers show and hide" in which something is set: it lasts for whoever set it, and
//! nobody else sees it.

use std::sync::Once;

use e2e::{Gateway, eventually, kind};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::Kind;

use crate::cluster::{self, ask};

/// A session sets something; a question shows it.
struct Row {
    sets: &'static [&'static str],
    question: &'static str,
    /// What the question is answered by who has set it: a value, or the number of an error.
    answer: Result<Option<&'static str>, u16>,
}

const fn row(
    sets: &'static [&'static str],
    question: &'static str,
    answer: Result<Option<&'static str>, u16>,
) -> Row {
    Row {
        sets,
        question,
        answer,
    }
}

/// What is carried from connection to connection: sessions need only one for all of them.
const CARRIED: &[Row] = &[
    row(&["USE mysql"], "SELECT DATABASE()", Ok(Some("mysql"))),
    row(
        &["SET SESSION sort_buffer_size = 131072"],
        "SELECT @@sort_buffer_size",
        Ok(Some("131072")),
    ),
    row(
        &["SET @@session.group_concat_max_len = 77, net_write_timeout = 99"],
        "SELECT CONCAT(@@group_concat_max_len, @@net_write_timeout)",
        Ok(Some("7799")),
    ),
    row(
        &["SET NAMES latin1"],
        "SELECT CONCAT(@@character_set_client, @@character_set_results, @@character_set_connection)",
        Ok(Some("latin1latin1latin1")),
    ),
    row(
        &["SET NAMES utf8mb4 COLLATE utf8mb4_bin"],
        "SELECT 'a' = 'A'",
        Ok(Some("0")),
    ),
    row(
        &["SET sql_mode = 'ANSI_QUOTES'"],
        "SELECT \"n\" FROM (SELECT 1 AS n) AS t",
        Ok(Some("1")),
    ),
    row(
        &["SET sql_mode = 'NO_BACKSLASH_ESCAPES'"],
        r"SELECT LENGTH('\\')",
        Ok(Some("2")),
    ),
    row(
        &["SET sql_mode = 'HIGH_NOT_PRECEDENCE'"],
        "SELECT NOT 1 BETWEEN -5 AND 5",
        Ok(Some("1")),
    ),
    row(
        &["SET time_zone = '+05:00'"],
        "SELECT @@time_zone",
        Ok(Some("+05:00")),
    ),
    row(
        &["SET lc_time_names = 'de_DE'"],
        "SELECT DATE_FORMAT('2000-01-01', '%M')",
        Ok(Some("Januar")),
    ),
    row(&["SET autocommit = 0"], "SELECT @@autocommit", Ok(Some("0"))),
    row(
        &["SET foreign_key_checks = 0"],
        "SELECT @@foreign_key_checks",
        Ok(Some("0")),
    ),
    row(
        &["SET unique_checks = OFF"],
        "SELECT @@unique_checks",
        Ok(Some("0")),
    ),
    // One of a storage engine with another one: some MariaDB report the latter alone.
    row(
        &["SET sort_buffer_size = 262144, innodb_lock_wait_timeout = 7"],
        "SELECT @@innodb_lock_wait_timeout",
        Ok(Some("7")),
    ),
    row(
        &["SET SESSION innodb_lock_wait_timeout = 8"],
        "SELECT @@innodb_lock_wait_timeout",
        Ok(Some("8")),
    ),
    row(
        &[
            "SET collation_server = latin1_bin",
            "SET character_set_server = latin1",
        ],
        "SELECT @@collation_server",
        Ok(Some("latin1_swedish_ci")),
    ),
    row(
        &["SET foreign_key_checks = 0, unique_checks = OFF"],
        "SELECT @@foreign_key_checks + @@unique_checks",
        Ok(Some("0")),
    ),
    row(
        &["SET sql_select_limit = 1"],
        "SELECT COUNT(*) FROM (SELECT 1 UNION ALL SELECT 2) AS t",
        Ok(Some("2")),
    ),
    row(
        &[
            "SET SESSION sort_buffer_size = 131072",
            "SET SESSION sort_buffer_size = DEFAULT",
        ],
        "SELECT @@sort_buffer_size = @@global.sort_buffer_size",
        Ok(Some("1")),
    ),
    row(
        &["SET max_join_size = 4096"],
        "SELECT CONCAT(@@max_join_size, '/', @@sql_big_selects + 0)",
        Ok(Some("4096/0")),
    ),
];

const CARRIED_ON_MARIADB: &[Row] = &[
    row(
        &["SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE"],
        "SELECT @@tx_isolation",
        Ok(Some("SERIALIZABLE")),
    ),
    row(
        &["SET max_statement_time = 12.5"],
        "SELECT @@max_statement_time",
        Ok(Some("12.500000")),
    ),
];

const CARRIED_ON_MYSQL: &[Row] = &[
    row(
        &["SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE"],
        "SELECT @@transaction_isolation",
        Ok(Some("SERIALIZABLE")),
    ),
    row(
        &["SET max_execution_time = 12500"],
        "SELECT @@max_execution_time",
        Ok(Some("12500")),
    ),
    row(
        &["SELECT /*+ SET_VAR(sort_buffer_size = 131072) */ 1"],
        "SELECT @@sort_buffer_size = @@global.sort_buffer_size",
        Ok(Some("1")),
    ),
];

/// What may bind a session to its connection.
const BOUND: &[Row] = &[
    row(
        &["SET CHARACTER SET latin1"],
        "SELECT CONCAT(@@character_set_client, @@character_set_results)",
        Ok(Some("latin1latin1")),
    ),
    row(
        &["SET div_precision_increment = 1; SET lc_time_names = 'fr_FR'; SELECT 1"],
        "SELECT CONCAT(@@div_precision_increment, @@lc_time_names)",
        Ok(Some("1fr_FR")),
    ),
    row(&["SET @x = 1"], "SELECT @x", Ok(Some("1"))),
    row(&["SELECT 1 INTO @x"], "SELECT @x", Ok(Some("1"))),
    row(&["SELECT @x := 1"], "SELECT @x", Ok(Some("1"))),
    row(&["SELECT 1; SET @x = 1; SELECT 2"], "SELECT @x", Ok(Some("1"))),
    row(&["SET @`odd name` = 1"], "SELECT @`odd name`", Ok(Some("1"))),
    row(&["CALL sets_variable()"], "SELECT @x", Ok(Some("1"))),
    row(&["SELECT sets_variable()"], "SELECT @x", Ok(Some("1"))),
    row(&["INSERT INTO triggering VALUES (1)"], "SELECT @x", Ok(Some("1"))),
    row(
        &["CREATE TEMPORARY TABLE hidden SELECT 2 AS n"],
        "SELECT n FROM hidden",
        Ok(Some("2")),
    ),
    row(
        &["CREATE TEMPORARY TABLE hidden SELECT 2 AS n", "DROP TABLE hidden"],
        "SELECT n FROM hidden",
        Ok(Some("1")),
    ),
    row(&["CALL makes_temporary()"], "SELECT n FROM hidden", Ok(Some("2"))),
    row(&["PREPARE s FROM 'SELECT 3'"], "EXECUTE s", Ok(Some("3"))),
    row(
        &["PREPARE s FROM 'SELECT 3'", "DEALLOCATE PREPARE s"],
        "EXECUTE s",
        Err(1243),
    ),
    row(
        &["SET timestamp = 1000000000"],
        "SELECT UNIX_TIMESTAMP() = 1000000000",
        Ok(Some("1")),
    ),
    row(
        &["SET timestamp = 1000000000", "SET timestamp = DEFAULT"],
        "SELECT UNIX_TIMESTAMP() = 1000000000",
        Ok(Some("0")),
    ),
    row(
        &["SET ROLE chief"],
        "SELECT CURRENT_ROLE() LIKE '%chief%'",
        Ok(Some("1")),
    ),
    // It is the error that binds: its text may be asked for.
    row(
        &["SET SESSION TRANSACTION READ ONLY"],
        "INSERT INTO written VALUES (1)",
        Err(1792),
    ),
    row(&["SET sql_log_bin = 0"], "SELECT @@sql_log_bin", Ok(Some("0"))),
];

const BOUND_ON_MARIADB: &[Row] = &[
    row(
        &["SET STATEMENT sort_buffer_size = 131072 FOR SELECT 1"],
        "SELECT @@sort_buffer_size = @@global.sort_buffer_size",
        Ok(Some("1")),
    ),
    row(
        &["SELECT NEXTVAL(numbers)"],
        "SELECT LASTVAL(numbers) IS NOT NULL",
        Ok(Some("1")),
    ),
];

fn prepare() {
    static ONCE: Once = Once::new();
    let on_mariadb = if kind() == Kind::Mariadb {
        "CREATE SEQUENCE numbers;"
    } else {
        ""
    };
    ONCE.call_once(|| {
        cluster::schema(
            cluster::single(),
            "settings",
            &format!(
                "CREATE TABLE hidden SELECT 1 AS n;
                 CREATE TABLE written (id INT);
                 CREATE TABLE triggering (id INT);
                 CREATE TRIGGER sets BEFORE INSERT ON triggering FOR EACH ROW SET @x = NEW.id;
                 CREATE PROCEDURE sets_variable() SET @x = 1;
                 CREATE PROCEDURE makes_temporary() CREATE TEMPORARY TABLE hidden SELECT 2 AS n;
                 CREATE FUNCTION sets_variable() RETURNS INT NO SQL RETURN (@x := 1);
                 CREATE ROLE chief; GRANT chief TO forebay@'%'; {on_mariadb}"
            ),
        );
    });
}

/// Sessions of one gateway that take turns.
struct Turns {
    gateway: Gateway,
    connections: u32,
}

impl Turns {
    fn over(connections: u32) -> Self {
        prepare();
        let setup = cluster::narrow(cluster::single(), connections);
        // Nobody waits here for a connection but until a busy machine has made it what it was.
        let gateway = setup.cluster("queue_timeout = \"30s\"").start();
        Self { gateway, connections }
    }

    async fn session(&self) -> Conn {
        cluster::connect_to(&self.gateway, "settings").await
    }

    /// What a session is answered that has set nothing, and is gone after it.
    async fn usual(&self, question: &str) -> Result<Option<String>, u16> {
        let mut session = self.session().await;
        let answer = ask(&mut session, question).await;
        self.leave(session).await;
        answer
    }

    async fn leave(&self, session: Conn) {
        let active = || self.gateway.metric("forebay_sessions_active", &[]);
        let before = active();
        session.disconnect().await.unwrap();
        eventually("the session is gone", async || active() < before).await;
    }

    /// Plays a row. Returns what was wrong.
    async fn play(&self, row: &Row) -> Vec<String> {
        let usual = self.usual(row.question).await;
        let (mut own, mut other) = (self.session().await, self.session().await);
        for statement in row.sets {
            let mut result = own.query_iter(*statement).await.unwrap();
            while !result.is_empty() {
                result.collect::<mysql_async::Row>().await.unwrap();
            }
        }
        let mut wrong = Vec::new();
        let pins = cluster::pins(&mut own).await;
        if self.connections == 1 && !pins.is_empty() {
            wrong.push(format!("after {:?}, the session is bound by {pins:?}", row.sets));
        }
        let expected = row.answer.map(|value| value.map(str::to_owned));
        let mut check = |who: &str, expected: &Result<_, _>, answer: Result<_, _>| {
            if *expected != answer {
                wrong.push(format!(
                    "after {:?}, {who} is told {answer:?} by {}, expected {expected:?}",
                    row.sets, row.question
                ));
            }
        };
        check("another session", &usual, ask(&mut other, row.question).await);
        check("the session", &expected, ask(&mut own, row.question).await);
        check(
            "another session again",
            &usual,
            ask(&mut other, row.question).await,
        );
        check("the session again", &expected, ask(&mut own, row.question).await);
        self.leave(own).await;
        self.leave(other).await;
        // Whatever connection they take, the one of the session that has gone is among them.
        let mut later = [self.session().await, self.session().await];
        for session in &mut later {
            check("a later session", &usual, ask(session, row.question).await);
        }
        for session in later {
            self.leave(session).await;
        }
        wrong
    }
}

async fn play_all<'r>(turns: &Turns, rows: impl Iterator<Item = &'r Row>) {
    let mut wrong = Vec::new();
    for row in rows {
        wrong.extend(turns.play(row).await);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn although_all_sessions_share_one_connection() {
    let turns = Turns::over(1);
    let of_kind = match kind() {
        Kind::Mysql => CARRIED_ON_MYSQL,
        _ => CARRIED_ON_MARIADB,
    };
    play_all(&turns, CARRIED.iter().chain(of_kind)).await;
}

#[tokio::test]
async fn also_where_it_binds_a_session_to_its_connection() {
    let turns = Turns::over(2);
    let of_kind = match kind() {
        Kind::Mysql => &[],
        _ => BOUND_ON_MARIADB,
    };
    play_all(&turns, BOUND.iter().chain(of_kind)).await;
}

/// `SET TRANSACTION` is about the next transaction of its session, however many of others are between.
#[tokio::test]
async fn also_for_the_next_transaction_alone() {
    let turns = Turns::over(2);
    let (mut own, mut other) = (turns.session().await, turns.session().await);
    own.query_drop("SET TRANSACTION READ ONLY").await.unwrap();
    for _ in 0..2 {
        other
            .query_drop("START TRANSACTION; INSERT INTO written VALUES (1); COMMIT")
            .await
            .unwrap();
    }
    own.query_drop("START TRANSACTION").await.unwrap();
    assert_eq!(ask(&mut own, "INSERT INTO written VALUES (1)").await, Err(1792));
    own.query_drop("ROLLBACK").await.unwrap();
    own.query_drop("START TRANSACTION").await.unwrap();
    assert_eq!(ask(&mut own, "INSERT INTO written VALUES (1)").await, Ok(None));
    own.query_drop("ROLLBACK").await.unwrap();
}

/// What a client wants to be told of its session is its own affair; the gateway goes on being told
/// everything.
#[tokio::test]
async fn also_where_its_client_is_told_nothing() {
    let turns = Turns::over(1);
    let (mut own, mut other) = (turns.session().await, turns.session().await);
    for script in [
        &[
            "SET session_track_schema = OFF",
            "USE mysql",
            "SET sort_buffer_size = 131072",
        ][..],
        &["BEGIN", "SET session_track_schema = OFF", "USE mysql", "COMMIT"],
        &[
            "BEGIN",
            "SET session_track_system_variables = ''",
            "SET sort_buffer_size = 131072",
            "USE mysql",
            "COMMIT",
        ],
    ] {
        for statement in script {
            own.query_drop(*statement).await.unwrap();
        }
        let question = "SELECT CONCAT(DATABASE(), ' ', @@sort_buffer_size = 131072)";
        for _ in 0..2 {
            let has_buffer = script.iter().any(|statement| statement.contains("buffer"));
            let expected = format!("mysql {}", u8::from(has_buffer));
            assert_eq!(ask(&mut own, question).await, Ok(Some(expected)), "{script:?}");
            let others = Ok(Some("settings 0".to_owned()));
            assert_eq!(ask(&mut other, question).await, others, "{script:?}");
        }
        own.reset().await.unwrap();
        own.query_drop("USE settings").await.unwrap();
    }
}
