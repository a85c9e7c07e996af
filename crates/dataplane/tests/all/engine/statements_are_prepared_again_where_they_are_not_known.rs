//! Prepared statements on connections that do not have them: they are prepared there on the way, and nothing
//! else happens. Every session here is on the one connection of its gateway, which keeps one statement.

use mysql_wire::Command;

use super::stage::{Session, Setup, Stage};

async fn one_statement() -> Stage {
    let setup = Setup {
        cluster: "queue_timeout = \"1m\"\npool = { prepared_max = 1 }",
        ..Setup::one_connection()
    };
    Stage::set(setup).await
}

/// Prepares a statement, which is then not on the connection any more.
async fn elsewhere(session: &mut Session, text: &str) -> u32 {
    let id = session.prepare(text).await;
    session.prepare("DO 'another'").await;
    id
}

async fn all(session: &mut Session, statements: &[&str]) {
    for statement in statements {
        assert_eq!(session.query(statement).await, Ok(0), "{statement}");
    }
}

/// How many requests of this command the server has had.
fn count(stage: &Stage, command: Command) -> usize {
    let requests = stage.all_requests(0).into_iter();
    requests.filter(|request| request[0] == command.0).count()
}

/// The row of an execution with one column, a text.
async fn executed(session: &mut Session, id: u32) -> String {
    session
        .send(
            Command::STMT_EXECUTE,
            &[&id.to_le_bytes()[..], &[0, 1, 0, 0, 0]].concat(),
        )
        .await;
    let count = session.0.receive().await.unwrap().payload;
    assert_eq!(count, [1], "{}", String::from_utf8_lossy(&count));
    session.0.receive().await.unwrap();
    let row = session.0.receive().await.unwrap().payload;
    session.0.receive().await.unwrap();
    // A byte of the row, one of the NULLs, and one of the length.
    String::from_utf8(row[3.min(row.len())..].to_vec()).unwrap()
}

/// What was set when it was prepared, what shows that, and what was set when it is executed.
const MEANINGS: &[(&str, &str, &str)] = &[
    ("USE elsewhere", "DATABASE()", "USE home"),
    ("SET sql_mode = 'ANSI_QUOTES'", "@@sql_mode", "SET sql_mode = ''"),
    (
        "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
        "@@collation_connection",
        "SET NAMES utf8mb4 COLLATE utf8mb4_general_ci",
    ),
    ("SET NAMES latin1", "@@character_set_client", "SET NAMES utf8mb4"),
    (
        "SET group_concat_max_len = 77",
        "@@group_concat_max_len",
        "SET group_concat_max_len = 1000",
    ),
    (
        "SET lc_time_names = 'de_DE'",
        "@@lc_time_names",
        "SET lc_time_names = 'fr_FR'",
    ),
];

#[tokio::test]
async fn and_they_mean_what_they_meant() {
    for (before, shown, after) in MEANINGS {
        let stage = one_statement().await;
        let mut session = stage.connect_to("home").await;
        all(&mut session, &[before]).await;
        let meant = session.value(&format!("SELECT {shown}")).await;
        let id = elsewhere(&mut session, &format!("SELECT {shown} FROM meant")).await;
        all(&mut session, &[after, "BEGIN"]).await;
        let prepared = count(&stage, Command::STMT_PREPARE);
        assert_eq!(executed(&mut session, id).await, meant, "{before}");
        assert_eq!(count(&stage, Command::STMT_PREPARE), prepared + 1, "{before}");
        // The session goes on as it was.
        assert_eq!(session.pins().await, ["transaction"], "{before}");
        let now = session.value(&format!("SELECT {shown}")).await;
        assert!(now != meant && after.contains(&now), "{before}: {now}");
        all(&mut session, &["ROLLBACK"]).await;
        assert_eq!(session.value(&format!("SELECT {shown}")).await, now, "{before}");
    }
}

#[tokio::test]
async fn and_the_transaction_goes_on() {
    for (before, after) in [
        ("SET autocommit = 1", "SET autocommit = 0; BEGIN"),
        ("SET autocommit = 0", "SET autocommit = 1; BEGIN"),
        ("USE elsewhere", "USE home; BEGIN"),
        (
            "USE elsewhere; SET autocommit = 0",
            "USE home; SET autocommit = 1; BEGIN",
        ),
        (
            "USE elsewhere; SET autocommit = 1",
            "USE home; SET autocommit = 0; BEGIN",
        ),
    ] {
        let stage = one_statement().await;
        let mut session = stage.connect_to("home").await;
        all(&mut session, &before.split("; ").collect::<Vec<_>>()).await;
        let first = session.prepare("INSERT INTO t VALUES (1)").await;
        let second = session.prepare("INSERT INTO t VALUES (2)").await;
        all(&mut session, &["COMMIT"]).await;
        all(&mut session, &after.split("; ").collect::<Vec<_>>()).await;
        for statement in [first, second, first] {
            let sent = stage.all_requests(0).len();
            assert_eq!(session.execute(statement).await, Ok(0));
            let pins = session.pins().await;
            assert!(pins.contains(&"transaction".to_owned()), "{after}: {pins:?}");
            // Nothing that ends it has come between.
            let sent = stage.all_requests(0).split_off(sent);
            let ends = |request: &Vec<u8>| {
                let text = String::from_utf8_lossy(request);
                text.contains("COMMIT") || text.contains("autocommit")
            };
            assert!(!sent.iter().any(ends), "{after}: {sent:?}");
        }
        all(&mut session, &["ROLLBACK"]).await;
        assert_eq!(session.pins().await, [""; 0], "{after}");
    }
}

/// A client that prepares and never executes leaves nothing behind: statements that a connection has already
/// are closed.
#[tokio::test]
async fn as_many_as_there_may_be() {
    const ROUNDS: usize = 100;
    let stage = one_statement().await;
    let mut session = stage.connect().await;
    for _ in 0..ROUNDS {
        let id = session.prepare("INSERT INTO t VALUES (?)").await;
        session.send(Command::STMT_CLOSE, &id.to_le_bytes()).await;
    }
    assert_eq!(session.query("SELECT 'ROWS 1'").await, Ok(1));
    let (prepared, closed) = (
        count(&stage, Command::STMT_PREPARE),
        count(&stage, Command::STMT_CLOSE),
    );
    assert!(
        prepared > 0 && prepared <= closed + 2,
        "{prepared} prepared, {closed} closed"
    );
}

/// Sessions with the same text have it prepared once, and each its own where texts differ.
#[tokio::test]
async fn but_no_more_often_than_they_must() {
    let stage = Stage::set(Setup::one_connection()).await;
    let (mut own, mut other) = (stage.connect_to("home").await, stage.connect_to("home").await);
    let of_own = own.prepare("SELECT @@time_zone").await;
    let of_other = other.prepare("SELECT @@sql_mode").await;
    let same = other.prepare("SELECT @@time_zone").await;
    all(&mut own, &["SET time_zone = '+05:00'"]).await;
    for _ in 0..5 {
        assert_eq!(executed(&mut own, of_own).await, "+05:00");
        assert_eq!(executed(&mut other, of_other).await, "STRICT_TRANS_TABLES");
        assert_eq!(executed(&mut other, same).await, "SYSTEM");
    }
    let texts = ["SELECT @@time_zone", "SELECT @@sql_mode"].map(|text| {
        let is_it =
            |request: &&Vec<u8>| request[0] == Command::STMT_PREPARE.0 && request[1..] == *text.as_bytes();
        stage.all_requests(0).iter().filter(is_it).count()
    });
    assert!(texts[0] <= 2 && texts[1] <= 1, "{texts:?}");
}
