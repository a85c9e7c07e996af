//! User variables hold their session's connection only as long as nobody else wants it. The session leaves it
//! with them, and has them on the next one: its own, and nobody else's.

use std::sync::{Arc, OnceLock};

use e2e::{Gateway, client, eventually, kind};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row};
use sandbox::{Kind, Lent, Sandbox};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::cluster::{self, narrow};

const LEFT: &str = "forebay_split_user_variables_left_total";

/// MySQL knows by its Performance Schema which variables there are.
const LISTS: &[&str] = &["--performance-schema=ON"];

/// One server for all of these tests that do it no harm.
fn server() -> &'static Sandbox {
    static SERVER: OnceLock<Vec<Lent>> = OnceLock::new();
    &SERVER.get_or_init(|| e2e::servers_with(1, LISTS))[0]
}

/// Columns and rows, or the error: all that a client is told.
async fn told(session: &mut Conn, statement: &str) -> String {
    let mut result = match session.query_iter(statement).await {
        Ok(result) => result,
        Err(error) => return format!("error {}", client::code(&error)),
    };
    let rows: Vec<Row> = match result.collect().await {
        Ok(rows) => rows,
        Err(error) => return format!("error {}", client::code(&error)),
    };
    let mut all = format!("{} affected\n", result.affected_rows());
    for row in rows {
        for (at, column) in row.columns_ref().iter().enumerate() {
            all.push_str(&format!(
                "{:?} {:?} {} {} {} = {:?}; ",
                column.column_type(),
                column.flags(),
                column.character_set(),
                column.decimals(),
                column.column_length(),
                row.as_ref(at)
            ));
        }
        all.push('\n');
    }
    all
}

/// Whether another session gets the only connection for a moment, within `queue_timeout`.
async fn is_taken(other: &mut Conn) -> bool {
    match other.query_first::<u8, _>("SELECT 1").await {
        Ok(one) => one == Some(1),
        Err(error) => {
            assert_eq!(client::code(&error), 1040, "{error}");
            false
        }
    }
}

/// The same, asked again where that is expected: on a busy machine a session may leave too late for the one
/// that waits, who finds the connection free then.
async fn is_taken_in_the_end(other: &mut Conn, is_expected: bool) -> bool {
    const TRIES: usize = 10;
    for _ in 0..TRIES {
        let is_taken = is_taken(other).await;
        if is_taken || !is_expected {
            return is_taken;
        }
    }
    false
}

/// A gateway with one connection, for which nobody waits for long.
fn one_connection() -> Gateway {
    narrow(server(), 1)
        .cluster("pool = { adaptive = false }\nqueue_timeout = \"2s\"")
        .start()
}

async fn directly(schema: &str) -> Conn {
    let options = client::options_at(server().primary().port());
    let mut direct = Conn::new(options).await.unwrap();
    for statement in [
        &*format!("CREATE DATABASE {schema}"),
        &*format!("USE {schema}"),
        "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v INT)",
        "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)",
    ] {
        direct.query_drop(statement).await.unwrap();
    }
    direct
}

fn left(gateway: &Gateway) -> f64 {
    gateway.metric(LEFT, &[])
}

#[tokio::test]
async fn but_many_sessions_share_few() {
    const SESSIONS: u32 = 40;
    const TURNS: u32 = 12;
    let _direct = directly("variables_of_many").await;
    let gateway = narrow(server(), 4)
        .cluster("pool = { adaptive = false }\nqueue_timeout = \"50s\"")
        .start();
    let mut all = JoinSet::new();
    let all_have_set = Arc::new(Barrier::new(SESSIONS as usize));
    for own in 0..SESSIONS {
        let mut session = cluster::connect_to(&gateway, "variables_of_many").await;
        let all_have_set = Arc::clone(&all_have_set);
        all.spawn(async move {
            let set = format!(
                "SET @number = {own}, @text = 'text {own}', @exact = {own}.50, @real = {own}e-1, @bytes = x'00{own:02x}', \
                 @nothing = NULL"
            );
            session.query_drop(set).await.unwrap();
            // All but a few have left their connection then.
            all_have_set.wait().await;
            for turn in 0..TURNS {
                let read = "SELECT @number, @text, CAST(@exact AS CHAR), @real, HEX(@bytes), @nothing, @never";
                type Values = (u32, String, String, f64, String, Option<String>, Option<String>);
                let values: Option<Values> = session.query_first(read).await.unwrap();
                let expected = (
                    own + turn,
                    format!("text {own}"),
                    format!("{own}.50"),
                    f64::from(own) / 10.0,
                    format!("00{own:02X}"),
                    None,
                    None,
                );
                assert_eq!(values, Some(expected), "session {own}, turn {turn}");
                if turn % 3 == 2 {
                    let of_this_one = format!("SET @never_{own} = 1");
                    session.query_drop(of_this_one).await.unwrap();
                    let before = (own + SESSIONS - 1) % SESSIONS;
                    let others = format!("SELECT @never_{own}, @never_{before}");
                    let seen: Option<(Option<u8>, Option<u8>)> = session.query_first(others).await.unwrap();
                    assert_eq!(seen, Some((Some(1), None)));
                }
                match turn % 2 {
                    0 => session.query_drop("SET @number = @number + 1").await.unwrap(),
                    _ => session.exec_drop("SET @number = @number + ?", (1,)).await.unwrap(),
                }
            }
        });
    }
    all.join_all().await;
    assert!(left(&gateway) >= f64::from(SESSIONS - 4), "{}", left(&gateway));
    let held = gateway.metric("forebay_pool_idle", &[]) + gateway.metric("forebay_pool_busy", &[]);
    assert!(held <= 4.0, "{held} connections");
}

/// What is set, and whether that can be carried.
const VALUES: [(&str, bool); 29] = [
    ("SET @x = 1", true),
    ("SET @x = -9223372036854775807", true),
    ("SET @x = CAST(18446744073709551615 AS UNSIGNED)", true),
    ("SET @x = TRUE", true),
    ("SET @x = 1.50", true),
    ("SET @x = -0.000000000000000000012", true),
    ("SET @x = 123456789012345.678", true),
    ("SET @x = 0.1e0 + 0.2e0", true),
    ("SET @x = -1.7976931348623157e308", true),
    ("SET @x = 3e0", true),
    ("SET @x = ''", true),
    ("SET @x = 'it''s \\\\ \"quoted\"\\n'", true),
    ("SET @x = 'ä€𝄞'", true),
    ("SET @x = _latin1 0xE4", true),
    ("SET @x = _latin1 0xE4 COLLATE latin1_bin", true),
    ("SET @x = _utf8mb4 'a' COLLATE utf8mb4_unicode_ci", true),
    ("SET @x = x'00FF27'", true),
    ("SET @x = CAST('bytes' AS BINARY)", true),
    ("SET @x = NULL", true),
    ("SET @x = CAST('2026-11-26 10:11:12' AS DATETIME)", true),
    ("SET @x = (SELECT MAX(v) FROM t)", true),
    ("SELECT 5 INTO @x", true),
    ("SELECT id, v INTO @x, @y FROM t WHERE id = 2", true),
    ("SET @x = 7, @x = NULL", true),
    ("SET @`x` = 7, @'y' = @x, @z.a$b = 'c'", true),
    ("SET @x = REPEAT('x', 8000)", true),
    ("SET @x = REPEAT('x', 9000)", false),
    ("SET @x = REPEAT('x', 17000)", false),
    ("SET @x = 1, @`no word` = 2", false),
];

#[tokio::test]
async fn but_are_what_they_were() {
    let _there = directly("variables_there").await;
    let gateway = one_connection();
    let mut other = cluster::connect_to(&gateway, "variables_there").await;
    let mut wrong = Vec::new();
    for (set, is_carried) in VALUES {
        let mut here = cluster::connect_to(&gateway, "variables_there").await;
        let options = client::options_at(server().primary().port());
        let mut there = Conn::new(options.db_name(Some("variables_there"))).await.unwrap();
        assert_eq!(told(&mut here, set).await, told(&mut there, set).await, "{set}");
        for asked in [
            "SELECT @x, COLLATION(@x), COERCIBILITY(@x), CHARSET(@x), HEX(@x)",
            "SELECT @x, @y, @z.a$b, @never",
            "SELECT @x = @x, CONCAT(@x, 'a'), @x + 1",
        ] {
            let before = left(&gateway);
            let is_taken = is_taken_in_the_end(&mut other, is_carried).await;
            assert_eq!(left(&gateway), before + f64::from(u8::from(is_taken)), "{set}");
            if is_taken != is_carried {
                wrong.push((set, gateway.get("/sessions?pinned=true").1));
                break;
            }
            assert_eq!(
                told(&mut here, asked).await,
                told(&mut there, asked).await,
                "{set} | {asked}"
            );
        }
        let pins = gateway.get("/sessions?pinned=true").1;
        assert!(!is_carried || pins.contains("user-variables"), "{pins}");
        here.disconnect().await.unwrap();
    }
    assert!(wrong.is_empty(), "carried, or not: {wrong:#?}");
}

/// Statements, each behind others that have the connection in between: the answers are those of a session
/// that has one for itself.
const SCRIPTS: [&[&str]; 13] = [
    &[
        "SET @x = 5",
        "INSERT INTO t (v) VALUES (@x), (@x)",
        "SELECT ROW_COUNT(), LAST_INSERT_ID(), @x",
        "SELECT LAST_INSERT_ID(), ROW_COUNT()",
    ],
    &[
        "SET @x = 2",
        "UPDATE t SET v = v + 1 WHERE id < 3",
        "SELECT ROW_COUNT()",
        "SELECT ROW_COUNT()",
    ],
    &[
        "SET @x = 2",
        "SELECT id FROM t WHERE id <= @x",
        "SELECT FOUND_ROWS()",
        "SELECT FOUND_ROWS(), @x",
    ],
    &[
        "SET @x = 2",
        "SELECT CAST('a' AS SIGNED) + @x",
        "SHOW WARNINGS",
        "SELECT @x",
    ],
    &[
        "SET @x = 2",
        "SELECT * FROM nothing",
        "SHOW WARNINGS",
        "SHOW ERRORS",
        "SELECT @x",
    ],
    // What reads a variable is not seen in the text.
    &[
        "SET @who = 'me'",
        "INSERT INTO audited (id) VALUES (1)",
        "SELECT who FROM audited",
        "SELECT * FROM seen",
    ],
    &[
        "SET @n = 0",
        "SELECT @n := @n + id FROM t WHERE id < 4",
        "SELECT @n",
        "BEGIN",
        "SET @n = 8",
        "ROLLBACK",
        "SELECT @n",
    ],
    // What sets one is not seen in the text either, and no server reports it.
    &[
        "SET @x = 1",
        "INSERT INTO traced VALUES (3)",
        "SELECT @x",
        "SELECT @traced",
        "INSERT INTO traced VALUES (7)",
        "SELECT @x",
        "SELECT @traced, @x",
        "SELECT * FROM counted",
        "SELECT 1",
        "SELECT @calls",
    ],
    &[
        "SET @x = 2",
        "SELECT v INTO @x FROM t WHERE id = 2",
        "SELECT FOUND_ROWS()",
        "SELECT id FROM t LIMIT 1, 1",
        "SELECT FOUND_ROWS(), @x",
    ],
    &[
        "SELECT v INTO @x FROM t ORDER BY id LIMIT 1",
        "SELECT @x",
        "SELECT FOUND_ROWS()",
    ],
    // MySQL warns of the character set each time.
    &[
        "SET @x = _utf8mb3 'a'",
        "SELECT id FROM t",
        "SHOW WARNINGS",
        "SELECT @x",
        "SHOW WARNINGS",
    ],
    &[
        "SET @q = 'SELECT @v + ?', @v = 3, @w = 4",
        "PREPARE s FROM @q",
        "EXECUTE s USING @w",
        "SELECT @v",
    ],
    &[
        "SET @x = 1",
        "CALL sets_out(@x)",
        "SELECT @x, @hidden",
        "SET @x = @x + 1",
        "SELECT @x, @hidden",
    ],
];

#[tokio::test]
async fn and_what_a_statement_left_is_told() {
    let mut direct = directly("variables_and_figures").await;
    for statement in [
        "CREATE TABLE audited (id INT PRIMARY KEY, who VARCHAR(20))",
        "CREATE TRIGGER audit BEFORE INSERT ON audited FOR EACH ROW SET NEW.who = @who",
        "CREATE FUNCTION who() RETURNS VARCHAR(20) DETERMINISTIC NO SQL RETURN @who",
        "CREATE VIEW seen AS SELECT id, who() AS who FROM audited",
        "CREATE TABLE traced (id INT)",
        "CREATE TRIGGER trace AFTER INSERT ON traced FOR EACH ROW SELECT MAX(id) INTO @traced FROM traced",
        "CREATE FUNCTION counts() RETURNS INT READS SQL DATA \
         BEGIN DECLARE calls INT; SELECT COUNT(*) INTO @calls FROM traced; RETURN 1; END",
        "CREATE VIEW counted AS SELECT counts() AS one FROM traced",
        "CREATE PROCEDURE sets_out(OUT x INT) BEGIN SET x = 9; SET @hidden = 'h'; END",
    ] {
        direct.query_drop(statement).await.unwrap();
    }
    let gateway = one_connection();
    let mut other = cluster::connect_to(&gateway, "variables_and_figures").await;
    for script in SCRIPTS {
        let mut tellings = Vec::new();
        for is_direct in [true, false] {
            direct.query_drop("TRUNCATE TABLE t").await.unwrap();
            direct
                .query_drop("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
                .await
                .unwrap();
            direct.query_drop("TRUNCATE TABLE audited").await.unwrap();
            direct.query_drop("TRUNCATE TABLE traced").await.unwrap();
            let mut session = match is_direct {
                true => {
                    let options = client::options_at(server().primary().port());
                    Conn::new(options.db_name(Some("variables_and_figures")))
                        .await
                        .unwrap()
                }
                false => cluster::connect_to(&gateway, "variables_and_figures").await,
            };
            let mut telling = Vec::new();
            for statement in script {
                telling.push(told(&mut session, statement).await);
                if !is_direct {
                    // The session leaves its connection, if it may.
                    is_taken(&mut other).await;
                }
            }
            tellings.push(telling);
        }
        assert_eq!(tellings[1], tellings[0], "{script:?}");
    }
    assert!(left(&gateway) >= 12.0, "{}", left(&gateway));
}

/// A write fails whose trigger has set a variable that no text names.
#[tokio::test]
async fn and_those_that_no_text_names_are_kept() {
    let mut direct = directly("variables_unknown").await;
    direct
        .query_drop("CREATE TRIGGER sets BEFORE INSERT ON t FOR EACH ROW SET @hidden = NEW.v")
        .await
        .unwrap();
    let gateway = one_connection();
    let mut other = cluster::connect_to(&gateway, "variables_unknown").await;
    let set = ["SET @x = 8", "INSERT INTO t VALUES (1, 8)"];
    let fails_first = ["INSERT INTO t VALUES (1, 8)", "SET @x = 8"];
    let named = ["SET @x = 8", "INSERT INTO t (v) VALUES (@x)"];
    for script in [set, fails_first, named] {
        let mut session = cluster::connect_to(&gateway, "variables_unknown").await;
        for statement in script {
            let done = session.query_drop(statement).await;
            assert_eq!(done.is_err(), statement.contains("(1, 8)"), "{statement}");
        }
        session.query_drop("SELECT id FROM t").await.unwrap();
        session.query_drop("SET @y = 1").await.unwrap();
        let is_taken = is_taken(&mut other).await;
        let hidden: Option<(Option<u32>, u32)> = session.query_first("SELECT @hidden, @y").await.unwrap();
        if script != fails_first || is_taken {
            assert_eq!(hidden, Some((Some(8), 1)), "{script:?}, taken: {is_taken}");
        }
        session.disconnect().await.unwrap();
    }
}

/// MySQL tells who has the right to it which there are.
#[tokio::test]
async fn unless_nobody_knows_which_there_are() {
    let mut direct = directly("variables_untold").await;
    for statement in [
        "CREATE USER untold@'%' IDENTIFIED BY 'untold'",
        "GRANT ALL ON variables_untold.* TO untold@'%'",
        "CREATE TRIGGER sets BEFORE INSERT ON t FOR EACH ROW SELECT NEW.v INTO @hidden",
    ] {
        direct.query_drop(statement).await.unwrap();
    }
    let gateway = narrow(server(), 1)
        .cluster("pool = { adaptive = false }\nqueue_timeout = \"2s\"")
        .tables(&cluster::user("untold", "untold"))
        .start();
    let connect = || {
        let options = cluster::options(&gateway)
            .user(Some("untold"))
            .pass(Some("untold"));
        Conn::new(options.db_name(Some("variables_untold")))
    };
    let (mut session, mut other) = (connect().await.unwrap(), connect().await.unwrap());
    let is_told = kind() == Kind::Mariadb;
    for _ in 0..2 {
        session.query_drop("SET @x = 8").await.unwrap();
        session.query_drop("INSERT INTO t (v) VALUES (8)").await.unwrap();
        assert_eq!(is_taken_in_the_end(&mut other, is_told).await, is_told);
        let stays = gateway.metric("forebay_split_user_variables_stay_total", &["why=\"names\""]);
        assert_eq!(stays >= 1.0, !is_told);
        let hidden: Option<(u32, u32)> = session.query_first("SELECT @x, @hidden").await.unwrap();
        assert_eq!(hidden, Some((8, 8)));
        direct
            .query_drop("GRANT SELECT ON performance_schema.* TO untold@'%'")
            .await
            .unwrap();
        if !is_told {
            break;
        }
    }
    // With the right to it, also on MySQL.
    assert!(session.reset().await.unwrap());
    session.query_drop("SET @x = 8").await.unwrap();
    session.query_drop("INSERT INTO t (v) VALUES (9)").await.unwrap();
    eventually("the connection is taken", async || is_taken(&mut other).await).await;
    let hidden: Option<(u32, u32)> = session.query_first("SELECT @x, @hidden").await.unwrap();
    assert_eq!(hidden, Some((8, 9)));
}

/// A server takes shorter commands only than the one that would set them.
#[tokio::test]
async fn unless_no_server_would_take_them() {
    let sandbox = &e2e::servers_with(1, LISTS)[0];
    let set = |bytes: u32| format!("SET GLOBAL max_allowed_packet = {bytes}, net_buffer_length = 1024");
    sandbox.primary().sql(&set(8192)).unwrap();
    let gateway = narrow(sandbox, 1)
        .cluster("pool = { adaptive = false }\nqueue_timeout = \"2s\"")
        .start();
    let mut session = cluster::connect_to(&gateway, sandbox::DATABASE).await;
    let mut other = cluster::connect_to(&gateway, sandbox::DATABASE).await;
    session.query_drop("SET @x = REPEAT('x', 5000)").await.unwrap();
    assert!(!is_taken(&mut other).await);
    assert!(gateway.metric("forebay_split_user_variables_stay_total", &["why=\"long\""]) >= 1.0);
    let length: Option<u32> = session.query_first("SELECT LENGTH(@x)").await.unwrap();
    assert_eq!(length, Some(5000));
    session.query_drop("SET @x = REPEAT('x', 3000)").await.unwrap();
    eventually("the connection is taken", async || is_taken(&mut other).await).await;
    // Nobody has them, and no server takes them any more: the session says so once, and ends.
    sandbox.primary().sql(&set(4096)).unwrap();
    // Connections of the gateway alone: those of clients that have ended are listed for a moment more.
    let of_pool = format!(
        "SELECT id FROM information_schema.processlist WHERE command = 'Sleep' AND user = '{}'",
        sandbox::USER
    );
    for id in sandbox.primary().sql(&of_pool).unwrap().lines() {
        sandbox.primary().sql(&format!("KILL {id}")).unwrap();
    }
    let told = session.query_first::<u32, _>("SELECT LENGTH(@x)").await;
    assert!(told.is_err(), "{told:?}");
    let told = session.query_first::<u32, _>("SELECT 1").await;
    assert!(
        matches!(
            told,
            Err(mysql_async::Error::Io(_) | mysql_async::Error::Driver(_))
        ),
        "{told:?}"
    );
    other.query_drop("SELECT 1").await.unwrap();
}
