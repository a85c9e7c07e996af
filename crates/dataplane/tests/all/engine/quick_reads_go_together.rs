//! Reads that would wait for the one connection there is, and were quick when they ran alone, go down it
//! together: each is answered with its own, and whoever gets no such answer is executed again, alone.

use mysql_wire::Command;
use tokio::task::JoinSet;

use super::stage::{Setup, Stage, Told};

const WAIT_TOGETHER: &str = "forebay_split_reads_in_pipelines";
const WAIT: &str = "forebay_pool_waiting";

/// One connection to one server. `pool`: its options, behind a comma.
async fn start(pool: &str) -> Stage {
    let cluster = format!("queue_timeout = \"1m\"\npool = {{ adaptive = false {pool} }}");
    Stage::set(Setup {
        servers: 1,
        options: ", max_connections = 1",
        cluster: &cluster,
        ..Setup::default()
    })
    .await
}

/// What came of statements that waited together.
struct Line {
    /// In the order of the statements.
    answers: Vec<Told>,
    together: f64,
    /// Those that went alone after that: unclean, long, slow, lost.
    left: [f64; 4],
}

fn left(stage: &Stage) -> [f64; 4] {
    ["unclean", "long", "slow", "lost"].map(|why| {
        let label = format!("why={why:?}");
        stage.metric("forebay_split_reads_left_pipeline_total", &[&label])
    })
}

fn together(stage: &Stage) -> f64 {
    stage.metric("forebay_split_reads_pipelined_total", &[])
}

/// Sessions that wait: one of those who wait together waits in line, for all.
fn waiting(stage: &Stage) -> f64 {
    let together = stage.metric(WAIT_TOGETHER, &[]);
    together + stage.metric(WAIT, &[]) - f64::from(together > 0.0)
}

/// Sends each statement in a session of its own, all while a transaction holds the connection. Each session
/// has run `first` before; on a busy machine that is not always quick, and it begins anew. So it does where
/// more than `slow` of them have gone alone since an answer did not come within 20 ms.
async fn in_line(stage: &Stage, first: &str, statements: &[&str], slow: f64) -> Line {
    for _ in 0..200 {
        let before = (together(stage), left(stage));
        let mut holder = stage.connect().await;
        let mut sessions = Vec::new();
        for _ in statements {
            let mut session = stage.connect().await;
            assert!(session.query(first).await.is_ok());
            sessions.push(session);
        }
        assert_eq!(holder.query("BEGIN").await, Ok(0));
        let mut all_together = true;
        for (at, (session, statement)) in sessions.iter_mut().zip(statements).enumerate() {
            session.send(Command::QUERY, statement.as_bytes()).await;
            stage
                .until("it waits", |stage| waiting(stage) == at as f64 + 1.0)
                .await;
            all_together &= stage.metric(WAIT_TOGETHER, &[]) == at as f64 + 1.0;
        }
        assert_eq!(holder.query("COMMIT").await, Ok(0));
        // A session with a warning or an error to show holds the connection until it has gone: others that do
        // not go together would wait for that.
        let mut answering = JoinSet::new();
        for (at, mut session) in sessions.into_iter().enumerate() {
            answering.spawn(async move { (at, session.answer().await) });
        }
        let mut answers = answering.join_all().await;
        answers.sort_unstable_by_key(|(at, _)| *at);
        assert_eq!(stage.metric(WAIT_TOGETHER, &[]), 0.0);
        let now = left(stage);
        let left: [f64; 4] = std::array::from_fn(|why| now[why] - before.1[why]);
        if all_together && left[2] == slow {
            return Line {
                answers: answers.into_iter().map(|(_, told)| told).collect(),
                together: together(stage) - before.0,
                left,
            };
        }
    }
    panic!("never was {first} quick enough, or the answers that came together");
}

/// What the server was sent over its one connection, in a row: without a wait for answers.
#[tokio::test]
async fn and_each_gets_its_own_answer() {
    let stage = start("").await;
    let statements = [
        "SELECT 'ROWS 1' FROM t",
        "SELECT 'ROWS 2' FROM t",
        "SELECT 'ROWS 3' FROM t",
        "SELECT 'ROWS 4' FROM t",
    ];
    let line = in_line(&stage, "SELECT 'ROWS 0' FROM t", &statements, 0.0).await;
    assert_eq!(line.answers, [Ok(1), Ok(2), Ok(3), Ok(4)]);
    assert_eq!(line.together, 4.0);
    let (place, _) = stage.sent("'ROWS 4'").pop().unwrap();
    let requests = stage.requests(place);
    let sent = statements.map(|text| [&[Command::QUERY.0], text.as_bytes()].concat());
    assert_eq!(requests[requests.len() - 4..], sent);
}

/// Tries go on until all of them have been quick.
#[tokio::test]
async fn and_leave_the_line_when_all_their_clients_have_gone() {
    const TEXT: &str = "SELECT 'ROWS 1' FROM t";
    let stage = start("").await;
    for _ in 0..200 {
        let mut holder = stage.connect().await;
        let mut sessions = Vec::new();
        for _ in 0..3 {
            let mut session = stage.connect().await;
            assert_eq!(session.query(TEXT).await, Ok(1));
            sessions.push(session);
        }
        assert_eq!(holder.query("BEGIN").await, Ok(0));
        for session in &mut sessions {
            session.send(Command::QUERY, TEXT.as_bytes()).await;
        }
        stage.until("all wait", |stage| waiting(stage) == 3.0).await;
        let wait_together = stage.metric(WAIT_TOGETHER, &[]) == 3.0;
        // The last first: the batch hears of that once the first has gone.
        while let Some(session) = sessions.pop() {
            drop(session);
            let left = sessions.len() as f64;
            stage.until("it has left", |stage| waiting(stage) == left).await;
        }
        assert_eq!(stage.metric(WAIT, &[]), 0.0);
        assert_eq!(holder.query("COMMIT").await, Ok(0));
        if wait_together {
            return;
        }
    }
    panic!("never were all three quick enough");
}

/// What a statement does to its session's connection would be done to that of all. As often as is needed for
/// one of them to have been quick.
#[tokio::test]
async fn unless_they_do_more_than_read() {
    const TRIES: usize = 20;
    let stage = start("").await;
    for text in ["SELECT 'ROWS 1', @a FROM t", "SELECT 'ROWS 1' FROM t FOR UPDATE"] {
        for _ in 0..TRIES {
            let mut session = stage.connect().await;
            assert_eq!(session.query(text).await, Ok(1));
            session.reset().await;
            let mut holder = stage.connect().await;
            assert_eq!(holder.query("BEGIN").await, Ok(0));
            session.send(Command::QUERY, text.as_bytes()).await;
            stage
                .until("it waits", |stage| stage.metric(WAIT, &[]) == 1.0)
                .await;
            assert_eq!(stage.metric(WAIT_TOGETHER, &[]), 0.0, "{text}");
            assert_eq!(holder.query("COMMIT").await, Ok(0));
            assert_eq!(session.answer().await, Ok(1));
        }
    }
    assert_eq!(together(&stage), 0.0);
}

#[tokio::test]
async fn unless_they_are_not_to() {
    let stage = start(", pipeline_max = 1").await;
    let mut sessions = Vec::new();
    let mut holder = stage.connect().await;
    for _ in 0..4 {
        let mut session = stage.connect().await;
        assert_eq!(session.query("SELECT 'ROWS 1' FROM t").await, Ok(1));
        sessions.push(session);
    }
    assert_eq!(holder.query("BEGIN").await, Ok(0));
    for (at, session) in sessions.iter_mut().enumerate() {
        session.send(Command::QUERY, b"SELECT 'ROWS 1' FROM t").await;
        stage
            .until("it waits alone", |stage| {
                stage.metric(WAIT, &[]) == at as f64 + 1.0
            })
            .await;
    }
    assert_eq!(stage.metric(WAIT_TOGETHER, &[]), 0.0);
    assert_eq!(holder.query("COMMIT").await, Ok(0));
    for mut session in sessions {
        assert_eq!(session.answer().await, Ok(1));
    }
    assert_eq!(together(&stage), 0.0);
}

/// What was never quick, and what is no plain read, waits for a connection of its own.
#[tokio::test]
async fn unless_they_are_no_plain_reads() {
    let stage = start("").await;
    let statements = [
        "SELECT 'ROWS 1' FROM t FOR UPDATE",
        "INSERT INTO t VALUES ('OK')",
        "SELECT 'ROWS 1', LAST_INSERT_ID() FROM t",
        "SELECT 'ROWS 1' FROM never_seen",
    ];
    let mut holder = stage.connect().await;
    let mut sessions = Vec::new();
    for statement in statements {
        let mut session = stage.connect().await;
        if !statement.contains("never_seen") {
            assert!(session.query(statement).await.is_ok());
        }
        sessions.push(session);
    }
    assert_eq!(holder.query("BEGIN").await, Ok(0));
    for (at, (session, statement)) in sessions.iter_mut().zip(statements).enumerate() {
        session.send(Command::QUERY, statement.as_bytes()).await;
        stage
            .until("it waits alone", |stage| {
                stage.metric(WAIT, &[]) == at as f64 + 1.0
            })
            .await;
    }
    assert_eq!(stage.metric(WAIT_TOGETHER, &[]), 0.0);
    assert_eq!(holder.query("COMMIT").await, Ok(0));
    for mut session in sessions {
        assert!(session.answer().await.is_ok());
    }
    assert_eq!(together(&stage), 0.0);
}

#[tokio::test]
async fn and_what_one_leaves_is_its_own() {
    let stage = start("").await;
    let statements = [
        "SELECT 'ROWS 1' FROM t WHERE a = 'a'",
        "SELECT 'ROWS 1' FROM t WHERE a = 'WARNS'",
        "SELECT 'ROWS 1' FROM t WHERE a = 'c'",
    ];
    let first = "SELECT 'ROWS 1' FROM t WHERE a = 'b'";
    let line = in_line(&stage, first, &statements, 0.0).await;
    assert_eq!(line.answers, [Ok(1); 3]);
    assert_eq!((line.together, line.left), (2.0, [1.0, 0.0, 0.0, 0.0]));
    // Who was warned has been executed again, alone, and was sent once more.
    assert!(stage.sent("a = 'WARNS'").len() > stage.sent("a = 'c'").len());
}

/// What comes of a statement between two quick reads, and of those.
async fn between_two(statement: &str, slow: f64) -> Line {
    let statements = ["SELECT 'ROWS 1' FROM t", statement, "SELECT 'ROWS 3' FROM t"];
    in_line(&start("").await, "SELECT 'ROWS 0' FROM t", &statements, slow).await
}

#[tokio::test]
async fn and_an_error_is_told_to_the_one_who_made_it() {
    let line = between_two("SELECT 'ERROR' FROM t", 0.0).await;
    assert_eq!(line.answers, [Ok(1), Err(1064), Ok(3)]);
    assert_eq!((line.together, line.left), (2.0, [1.0, 0.0, 0.0, 0.0]));
}

#[tokio::test]
async fn and_a_long_answer_comes_whole() {
    let line = between_two("SELECT 'ROWS 2000' FROM t", 1.0).await;
    assert_eq!(line.answers, [Ok(1), Ok(2000), Ok(3)]);
    assert_eq!((line.together, line.left), (1.0, [0.0, 1.0, 1.0, 0.0]));
}

/// The connection is lost in the middle of them: the others are executed again.
#[tokio::test]
async fn and_a_lost_connection_mixes_nothing_up() {
    let line = between_two("SELECT 'CUT' FROM t", 0.0).await;
    assert_eq!(line.answers, [Ok(1), Err(1158), Ok(3)]);
    assert_eq!((line.together, line.left), (1.0, [0.0, 0.0, 0.0, 2.0]));
}

#[tokio::test]
async fn and_one_whose_client_has_gone_holds_nobody_up() {
    let stage = start("").await;
    let mut holder = stage.connect().await;
    let mut sessions = Vec::new();
    for _ in 0..3 {
        let mut session = stage.connect().await;
        assert_eq!(session.query("SELECT 'ROWS 0' FROM t").await, Ok(0));
        sessions.push(session);
    }
    assert_eq!(holder.query("BEGIN").await, Ok(0));
    for (at, session) in sessions.iter_mut().enumerate() {
        let text = format!("SELECT 'ROWS {}' FROM t", at + 1);
        session.send(Command::QUERY, text.as_bytes()).await;
    }
    let gone = sessions.remove(0);
    drop(gone);
    assert_eq!(holder.query("COMMIT").await, Ok(0));
    for (mut session, rows) in sessions.into_iter().zip([2, 3]) {
        assert_eq!(session.answer().await, Ok(rows));
    }
}
