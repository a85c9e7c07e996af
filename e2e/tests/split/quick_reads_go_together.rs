//! More sessions than connections, which all read what is quick: their statements share connections without
//! waiting for each other's answers, and nobody can tell.

use e2e::{Gateway, eventually};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use tokio::task::JoinSet;

use crate::cluster::{self, narrow};

const SESSIONS: usize = 24;

/// Reads that were answered together with others.
fn together(gateway: &Gateway) -> f64 {
    gateway.metric("forebay_split_reads_pipelined_total", &[])
}

/// Reads that had to go alone after that.
fn left(gateway: &Gateway, why: &str) -> f64 {
    let label = format!("why=\"{why}\"");
    gateway.metric("forebay_split_reads_left_pipeline_total", &[&label])
}

/// Rows 0 to 999, each with its number and a word of its schema.
fn numbers(schema: &str) -> String {
    format!(
        "CREATE DATABASE {schema}; USE {schema}; CREATE TABLE numbers (id INT PRIMARY KEY, word VARCHAR(40)); \
         INSERT INTO numbers SELECT a.n + 10 * b.n + 100 * c.n, CONCAT('{schema} ', a.n + 10 * b.n + 100 * c.n) \
         FROM (SELECT 0 n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 \
         UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) a, \
         (SELECT 0 n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 \
         UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) b, \
         (SELECT 0 n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 \
         UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) c;"
    )
}

/// Has sessions ask for rows of their own until enough have been answered together. A busy machine may take
/// too long for most of them.
async fn ask_together(gateway: &Gateway, schemas: &[&'static str], may_fail: bool) {
    let before = together(gateway);
    for _ in 0..20 {
        ask_at_once(gateway, schemas, may_fail).await;
        if together(gateway) - before > 100.0 {
            return;
        }
    }
    panic!("only {} were answered together", together(gateway) - before);
}

/// Each session asks 200 times, a third of them in prepared statements, and compares its answers. `may_fail`:
/// a statement may lose its connection.
async fn ask_at_once(gateway: &Gateway, schemas: &[&'static str], may_fail: bool) {
    let mut asking = JoinSet::new();
    for number in 0..SESSIONS {
        let schema = schemas[number % schemas.len()];
        let mut session = cluster::connect_to(gateway, schema).await;
        asking.spawn(async move {
            let prepared = loop {
                match session.prep("SELECT word FROM numbers WHERE id = ?").await {
                    Ok(prepared) => break prepared,
                    Err(error) => assert!(may_fail, "session {number}: {error}"),
                }
            };
            for turn in 0..200 {
                let id = (number * 41 + turn * 7) % 1000;
                let word: Result<Option<String>, _> = if number % 3 == 0 {
                    session.exec_first(&prepared, (id,)).await
                } else {
                    let statement = format!("SELECT word FROM numbers WHERE id = {id}");
                    session.query_first(statement).await
                };
                match word {
                    Ok(word) => {
                        assert_eq!(
                            word,
                            Some(format!("{schema} {id}")),
                            "session {number}, turn {turn}"
                        );
                    }
                    Err(error) => assert!(may_fail, "session {number}, turn {turn}: {error}"),
                }
            }
        });
    }
    while let Some(asked) = asking.join_next().await {
        asked.unwrap();
    }
}

#[tokio::test]
async fn and_each_gets_its_own_answer() {
    let primary = cluster::single().primary();
    primary.sql(&numbers("together_a")).unwrap();
    primary.sql(&numbers("together_b")).unwrap();
    let gateway = narrow(cluster::single(), 2).start();
    ask_together(&gateway, &["together_a", "together_b"], false).await;
}

/// What came of statements that waited together.
struct Line {
    /// With their sessions.
    answers: Vec<(Conn, Result<Option<String>, u16>)>,
    together: f64,
    /// By why.
    left: [(&'static str, f64); 5],
}

impl Line {
    fn left(&self, why: &str) -> f64 {
        let (_, count) = self.left.iter().find(|(known, _)| *known == why).unwrap();
        *count
    }
}

fn counts(gateway: &Gateway) -> (f64, [(&'static str, f64); 5]) {
    let whys = ["slow", "unclean", "long", "lost", "no_connection"];
    (together(gateway), whys.map(|why| (why, left(gateway, why))))
}

/// Sends each statement in a session of its own, all while transactions hold all connections, so that they
/// wait together. Each session has run the statement `first` before; on a busy machine that is not always
/// quick, and it begins anew. So it does where more than `slow` of them have gone alone since an answer did
/// not come within 20 ms.
async fn in_line(gateway: &Gateway, connections: usize, first: &str, statements: &[&str], slow: f64) -> Line {
    for _ in 0..50 {
        let (together, left) = counts(gateway);
        let (answers, all_together) = try_in_line(gateway, connections, first, statements).await;
        if all_together {
            let (together_now, left_now) = counts(gateway);
            let mut left = left;
            for ((_, before), (_, now)) in left.iter_mut().zip(left_now) {
                *before = now - *before;
            }
            let line = Line {
                answers,
                together: together_now - together,
                left,
            };
            if line.left("slow") == slow {
                return line;
            }
        }
    }
    panic!("never was {first} quick enough, or the answers that came together");
}

/// One attempt, and whether they have waited together.
async fn try_in_line(
    gateway: &Gateway,
    connections: usize,
    first: &str,
    statements: &[&str],
) -> (Vec<(Conn, Result<Option<String>, u16>)>, bool) {
    let mut sessions = Vec::new();
    for _ in statements {
        let mut session = cluster::connect_to(gateway, "in_line").await;
        cluster::ask(&mut session, first).await.unwrap();
        sessions.push(session);
    }
    let mut holders = Vec::new();
    while holders.len() < connections {
        let mut holder = cluster::connect(gateway).await;
        holder.query_drop("BEGIN").await.unwrap();
        holders.push(holder);
    }
    let mut asking = Vec::new();
    for (mut session, statement) in sessions.into_iter().zip(statements) {
        let statement = (*statement).to_owned();
        asking.push(tokio::spawn(async move {
            let answer = cluster::ask(&mut session, &statement).await;
            (session, answer)
        }));
        let wanted = asking.len() as f64;
        eventually("it waits", async || {
            // One of those who wait together waits in line, for all.
            let together = gateway.metric("forebay_split_reads_in_pipelines", &[]);
            together + gateway.metric("forebay_pool_waiting", &[]) - f64::from(together > 0.0) == wanted
        })
        .await;
    }
    let all_together = gateway.metric("forebay_pool_waiting", &[]) == 1.0 && asking.len() > 1;
    for mut holder in holders {
        holder.query_drop("COMMIT").await.unwrap();
    }
    let mut answers = Vec::new();
    for asked in asking {
        answers.push(asked.await.unwrap());
    }
    assert_eq!(gateway.metric("forebay_split_reads_in_pipelines", &[]), 0.0);
    (answers, all_together)
}

/// All wait in line until the last of them does, which a busy machine takes its time for.
const PATIENT: &str = "queue_timeout = \"60s\"";

fn in_line_gateway() -> Gateway {
    let primary = cluster::single().primary();
    primary.sql("CREATE DATABASE IF NOT EXISTS in_line").unwrap();
    narrow(cluster::single(), 1).cluster(PATIENT).start()
}

#[tokio::test]
async fn and_one_that_takes_long_is_not_waited_for() {
    let gateway = in_line_gateway();
    let statements = [
        "SELECT CONCAT('a', SLEEP(0 / 10))",
        "SELECT CONCAT('b', SLEEP(3 / 10))",
        "SELECT CONCAT('c', SLEEP(1 / 1000))",
        "SELECT CONCAT('d', SLEEP(1 / 1000))",
    ];
    let line = in_line(&gateway, 1, "SELECT CONCAT('', SLEEP(0 / 10))", &statements, 3.0).await;
    let answers: Vec<_> = line.answers.iter().map(|(_, answer)| answer.clone()).collect();
    let wanted = ["a0", "b0", "c0", "d0"].map(|word| Ok(Some(word.to_owned())));
    assert_eq!(answers, wanted);
    assert_eq!((line.together, line.left("slow")), (1.0, 3.0));
    // It is known for it now.
    let mut session = cluster::connect_to(&gateway, "in_line").await;
    cluster::ask(&mut session, "SELECT CONCAT('e', SLEEP(1 / 10))")
        .await
        .unwrap();
    let mut holder = cluster::connect(&gateway).await;
    holder.query_drop("BEGIN").await.unwrap();
    let asking =
        tokio::spawn(async move { cluster::ask(&mut session, "SELECT CONCAT('f', SLEEP(0 / 10))").await });
    eventually("it waits alone", async || {
        gateway.metric("forebay_pool_waiting", &[]) == 1.0
    })
    .await;
    assert_eq!(gateway.metric("forebay_split_reads_in_pipelines", &[]), 0.0);
    holder.query_drop("COMMIT").await.unwrap();
    assert_eq!(asking.await.unwrap(), Ok(Some("f0".to_owned())));
}

/// Ends warnings on every server.
const USES_A_TABLE: &str = "DO (SELECT COUNT(*) FROM information_schema.schemata)";

#[tokio::test]
async fn and_what_one_leaves_is_its_own() {
    let gateway = in_line_gateway();
    let statements = [
        "SELECT CAST('1' AS SIGNED)",
        "SELECT CAST('2x' AS SIGNED)",
        "SELECT CAST('3' AS SIGNED)",
    ];
    let mut line = in_line(&gateway, 1, "SELECT CAST('0' AS SIGNED)", &statements, 0.0).await;
    // Who was warned holds the connection, and comes first.
    for at in [1, 0, 2] {
        let (session, answer) = &mut line.answers[at];
        assert_eq!(*answer, Ok(Some((at + 1).to_string())));
        let warnings: Vec<(String, u16, String)> = session.query("SHOW WARNINGS").await.unwrap();
        let numbers: Vec<u16> = warnings.iter().map(|(_, number, _)| *number).collect();
        let wanted: &[u16] = if at == 1 { &[1292] } else { &[] };
        assert_eq!(numbers, wanted, "statement {at}: {warnings:?}");
        session.query_drop(USES_A_TABLE).await.unwrap();
    }
    assert_eq!((line.together, line.left("unclean")), (2.0, 1.0));
}

/// Whoever is warned is warned on another connection than that on which the others were answered: what is
/// left there is for nobody.
#[tokio::test]
async fn and_nobody_is_told_what_another_has_left() {
    let primary = cluster::single().primary();
    primary.sql("CREATE DATABASE IF NOT EXISTS in_line").unwrap();
    // Who goes alone takes the connection that the others did not have.
    let gateway = narrow(cluster::single(), 2)
        .cluster("pool = { reuse = \"oldest\" }")
        .cluster(PATIENT)
        .start();
    let statements = ["SELECT CAST('1' AS SIGNED)", "SELECT CAST('2x' AS SIGNED)"];
    for _ in 0..10 {
        let mut line = in_line(&gateway, 2, "SELECT CAST('0' AS SIGNED)", &statements, 0.0).await;
        let (other, _) = &mut line.answers[0];
        let warnings: Vec<(String, u16, String)> = other.query("SHOW WARNINGS").await.unwrap();
        assert_eq!(warnings, [], "of another session");
        other.query_drop("DO 1").await.unwrap();
    }
}

#[tokio::test]
async fn and_an_error_is_told_to_the_one_who_made_it() {
    let gateway = in_line_gateway();
    let two = "SELECT (SELECT 7 AS n UNION ALL SELECT 8 ORDER BY n LIMIT 2)";
    let one = "SELECT (SELECT 7 AS n UNION ALL SELECT 8 ORDER BY n LIMIT 1)";
    let mut line = in_line(&gateway, 1, one, &[one, two, one], 0.0).await;
    const ER_SUBQUERY_NO_1_ROW: u16 = 1242;
    let told: Vec<_> = line.answers.iter().map(|(_, answer)| answer.clone()).collect();
    let right = Ok(Some("7".to_owned()));
    assert_eq!(told, [right.clone(), Err(ER_SUBQUERY_NO_1_ROW), right]);
    let warnings: Vec<(String, u16, String)> = line.answers[1].0.query("SHOW WARNINGS").await.unwrap();
    assert_eq!(warnings[0].1, ER_SUBQUERY_NO_1_ROW);
    assert_eq!((line.together, line.left("unclean")), (2.0, 1.0));
}

/// Without autocommit a read begins a transaction, which has a connection of its own.
#[tokio::test]
async fn unless_they_begin_a_transaction() {
    let gateway = in_line_gateway();
    let mut holder = cluster::connect(&gateway).await;
    let mut sessions = Vec::new();
    for _ in 0..3 {
        let mut session = cluster::connect_to(&gateway, "in_line").await;
        session.query_drop("SET autocommit = 0").await.unwrap();
        cluster::ask(&mut session, "SELECT 'x'").await.unwrap();
        session.query_drop("COMMIT").await.unwrap();
        sessions.push(session);
    }
    holder.query_drop("BEGIN").await.unwrap();
    let mut asking = JoinSet::new();
    for (at, mut session) in sessions.into_iter().enumerate() {
        asking.spawn(async move {
            let answer = cluster::ask(&mut session, "SELECT 'y'").await;
            session.query_drop("COMMIT").await.unwrap();
            answer
        });
        eventually("it waits alone", async || {
            gateway.metric("forebay_pool_waiting", &[]) == at as f64 + 1.0
        })
        .await;
    }
    assert_eq!(gateway.metric("forebay_split_reads_in_pipelines", &[]), 0.0);
    holder.query_drop("COMMIT").await.unwrap();
    for answer in asking.join_all().await {
        assert_eq!(answer, Ok(Some("y".to_owned())));
    }
}

/// Connections that are killed under them: a statement that ran alone is told so, and nobody gets another
/// one's answer.
#[tokio::test]
async fn and_a_lost_connection_mixes_nothing_up() {
    let primary = cluster::single().primary();
    primary.sql(&numbers("lossy")).unwrap();
    let gateway = narrow(cluster::single(), 2).start();
    let killer = std::thread::spawn(|| {
        let find = "SELECT id FROM information_schema.processlist WHERE db = 'lossy'";
        let mut killed = 0;
        while killed < 8 {
            // Either may be gone already.
            if let Ok(ids) = primary.sql(find)
                && let Some(id) = ids.lines().next()
            {
                killed += u32::from(primary.sql(&format!("KILL {id}")).is_ok());
            }
        }
    });
    while !killer.is_finished() {
        ask_together(&gateway, &["lossy"], true).await;
    }
    killer.join().unwrap();
    println!("{} answers were lost with a connection", left(&gateway, "lost"));
}
