//! What rules do with statements besides sending them somewhere: limits that are shared, times after which a
//! statement is killed, and copies for another cluster.

use std::time::{Duration, Instant};

use mysql_wire::Command;

use super::stage::{Session, Setup, Stage, USUAL};

const STALLS: &str = "INSERT INTO t VALUES ('STALL')";
const READ: &str = "SELECT 'ROWS 1'";

/// Those of a rule are shared by all sessions that it is about.
#[tokio::test]
async fn a_limit_is_of_all_of_its_sessions() {
    let rules = r#"
        [[user]]
        name = "batch"
        password = "secret"
        [[rule]]
        name = "few"
        user = ["batch"]
        max_concurrency = 2
    "#;
    let stage = Stage::with_rules(rules).await;
    let mut holders = Vec::new();
    for at in 1..=2 {
        let mut holder = stage.connect_as("batch").await;
        holder.send(Command::QUERY, STALLS.as_bytes()).await;
        stage.has_come(0, STALLS, at).await;
        holders.push(holder);
    }
    let (mut third, mut other) = (stage.connect_as("batch").await, stage.connect().await);
    assert_eq!(third.query(READ).await, Err(1226));
    let id = third.prepare("SELECT a FROM t").await;
    assert_eq!(third.execute(id).await, Err(1226));
    assert_eq!(other.query(READ).await, Ok(1), "others are not meant");
    drop(holders.pop());
    let began = Instant::now();
    while third.query(READ).await != Ok(1) {
        assert!(began.elapsed() < Duration::from_secs(10), "a turn is free");
    }
    assert_eq!(stage.had("", true), [0, 0]);
    assert_eq!(third.execute(id).await, Ok(0));
}

/// A statement needs its turn with each rule that is about it, and has none where it lacks one.
#[tokio::test]
async fn several_limits_add_up() {
    let rules = r#"
        [[rule]]
        name = "writes"
        class = ["write"]
        max_concurrency = 1
        [[rule]]
        name = "tagged"
        tag = ["tagged"]
        max_concurrency = 1
    "#;
    let stage = Stage::with_rules(rules).await;
    let mut sessions = Vec::new();
    for _ in 0..3 {
        sessions.push(stage.connect().await);
    }
    let tagged_read = format!("/* forebay: tag=tagged */ {READ}");
    let tagged_write = "/* forebay: tag=tagged */ INSERT INTO t VALUES ('OK')";
    sessions[0].send(Command::QUERY, STALLS.as_bytes()).await;
    stage.has_come(0, STALLS, 1).await;
    let name = async |session: &mut Session, text: &str| session.refused(text).await.1;
    let words = name(&mut sessions[1], tagged_write).await;
    assert!(words.contains("of the rule writes"), "{words}");
    // It has given back what it had of the other rule.
    for _ in 0..2 {
        assert_eq!(sessions[2].query(&tagged_read).await, Ok(1));
    }
    drop(sessions.remove(0));
    let began = Instant::now();
    while sessions[0].query(tagged_write).await != Ok(0) {
        assert!(began.elapsed() < Duration::from_secs(10), "a turn is free");
    }
}

/// The limits of a client that says nothing are not those of a statement that a rule holds back.
#[tokio::test]
async fn a_session_whose_statement_waits_for_its_rules_is_not_silent() {
    let stage = Stage::with_rules("[[rule]]\ntext = 'ROWS'\ndelay = \"1m\"").await;
    let mut session = stage.connect().await;
    session.send(Command::QUERY, READ.as_bytes()).await;
    stage.waits(1, "seat").await;
    assert!(stage.sent(READ).is_empty());
}

/// A statement that ends in time is let alone. On a busy machine not every statement does.
#[tokio::test]
async fn and_one_within_its_time_is_not() {
    const TIME: Duration = Duration::from_millis(500);
    let stage = Stage::set(Setup {
        servers: 1,
        cluster: "monitor = { user = \"app\", password = \"secret\", interval = \"1h\" }",
        tables: "[[rule]]\ntext = 'ROWS'\ntimeout = \"500ms\"",
        ..USUAL
    })
    .await;
    let mut session = stage.connect().await;
    // For longer than one of them may take.
    let (mut in_time, mut late) = (Duration::ZERO, 0);
    while in_time < 2 * TIME {
        let began = Instant::now();
        let told = session.query("SELECT 'ROWS 3'").await;
        match began.elapsed() {
            took if took < TIME => {
                assert_eq!(told, Ok(3));
                in_time += took;
            }
            _ => late += 1,
        }
        assert!(stage.sent("KILL").len() <= late);
    }
}

/// A primary and another cluster of one server, which gets copies of writes.
async fn mirrored() -> Stage {
    Stage::set(Setup {
        servers: 2,
        tables: "[cluster.copies]\nservers = [{ address = \"{1}\", role = \"primary\" }]\n\
                 check = { interval = \"1h\", rise = 1, timeout = \"1m\" }\n\
                 [[rule]]\nclass = [\"write\"]\nmirror = \"copies\"",
        ..USUAL
    })
    .await
}

fn copies(stage: &Stage, result: &str) -> f64 {
    stage.metric("forebay_mirrored_total", &[&format!("result={result:?}")])
}

/// Its client waits for none of them, and is told nothing of what becomes of them.
#[tokio::test]
async fn copies_go_to_another_cluster() {
    let stage = mirrored().await;
    let mut session = stage.connect().await;
    let mut written = Vec::new();
    while copies(&stage, "sent") < 3.0 {
        let write = format!("INSERT INTO t VALUES ('OK', {})", written.len());
        assert_eq!(session.query(&write).await, Ok(0));
        written.push(write);
        assert!(written.len() < 1000, "none arrives");
        stage
            .until("all are counted", |stage| {
                let counted = ["sent", "failed", "dropped"].map(|result| copies(stage, result));
                counted.iter().sum::<f64>() == written.len() as f64
            })
            .await;
    }
    let had: Vec<_> = written.iter().map(|write| stage.had(write, false)).collect();
    assert!(had.iter().all(|had| had[0] == 1 && had[1] <= 1), "{had:?}");
    let arrived: usize = had.iter().map(|had| had[1]).sum();
    assert_eq!(arrived as f64, copies(&stage, "sent"));
    // What reads, and what asks for something of its session, is not copied.
    assert_eq!(session.query("SELECT 'ROWS 1' FROM t FOR UPDATE").await, Ok(1));
    assert_eq!(stage.had("SELECT 'ROWS 1' FROM t FOR UPDATE", false), [1, 0]);
    let of_session = "INSERT INTO t VALUES ('OK', @nothing)";
    assert_eq!(session.query(of_session).await, Ok(0));
    assert_eq!(copies(&stage, "left_out"), 1.0);
    assert_eq!(stage.had(of_session, false), [1, 0]);
}

/// A copy that fails is counted, and the statement is what it is.
#[tokio::test]
async fn and_what_fails_there_is_nobody_s() {
    let stage = mirrored().await;
    let mut session = stage.connect().await;
    let counted = |stage: &Stage| copies(stage, "failed") + copies(stage, "dropped");
    let before = counted(&stage);
    let cut = "INSERT INTO t VALUES ('CUT')";
    assert_eq!(session.query(cut).await, Err(1158));
    stage
        .until("the copy has failed", |stage| counted(stage) > before)
        .await;
    assert_eq!(session.query("INSERT INTO t VALUES ('OK')").await, Ok(0));
    assert_eq!(session.pins().await, [""; 0]);
}

/// A group gets what rules send to it and nothing else, until they say something else.
#[tokio::test]
async fn a_group_is_for_what_is_sent_to_it() {
    const RULE: &str = "tag = [\"report\"]\nroute = \"reports\"";
    let tables = format!(
        "[cluster.main.group.reports]\nservers = [\"{{2}}\"]\nexclusive = true\n[[rule]]\nname = \"reports\"\n{RULE}"
    );
    let stage = Stage::set(Setup {
        servers: 3,
        tables: &tables,
        ..USUAL
    })
    .await;
    let mut session = stage.connect().await;
    let tagged = &format!("/* forebay: tag=report */ {READ}");
    let tagged_prepared = "/* forebay: tag=report */ SELECT a FROM t";
    assert_eq!(stage.spread(&mut session, READ, false, 10).await, [0, 10, 0]);
    assert_eq!(stage.spread(&mut session, tagged, false, 10).await, [0, 0, 10]);
    assert_eq!(
        stage.spread(&mut session, tagged_prepared, true, 10).await,
        [0, 0, 10]
    );
    let hits = stage.metric("forebay_rule_hits_total", &["rule=\"reports\""]);
    assert_eq!(hits, 20.0);
    assert_eq!(session.query(READ).await, Ok(1));
    let name = stage.name(2).unwrap();
    let explained = [
        ("rule reports", "matches"),
        ("target", "group reports"),
        ("server", name.as_str()),
    ];
    for (what, expected) in explained {
        let said = session.explain(tagged, what).await;
        assert_eq!(said.as_deref(), Some(expected), "{what}");
    }
    // A transaction stays where it began.
    assert_eq!(session.query("BEGIN").await, Ok(0));
    let inside = "/* forebay: tag=report */ SELECT 'ROWS 1', 'TRX'";
    assert_eq!(session.query(inside).await, Ok(1));
    assert_eq!(stage.had(inside, false), [1, 0, 0]);
    assert_eq!(session.query("COMMIT").await, Ok(0));
    // Running sessions see other rules.
    stage.reload(RULE, "class = [\"read\"]\nroute = \"primary\"");
    let began = Instant::now();
    while stage.spread(&mut session, READ, false, 1).await != [1, 0, 0] {
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "it goes by the new rules"
        );
    }
    assert_eq!(stage.spread(&mut session, tagged, false, 3).await, [3, 0, 0]);
}
