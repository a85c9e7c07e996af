//! How fresh a read is: servers tell with each write what it is, and a replica is waited for that has it
//! yet to apply. A read is answered with as many rows as its server has transactions.

use std::time::{Duration, Instant};

use mysql_wire::Command;
use tokio::task::JoinSet;

use super::replication::{ASKS_PRIMARY, Replication};
use super::stage::{Session, Setup, Stage, USUAL};

const READ: &str = "SELECT 'SEEN' FROM t";
const WAIT: &str = "WAIT_FOR_EXECUTED_GTID_SET";

/// A primary and two replicas. `cluster`: its lines.
async fn start(replication: &Replication, consistency: &str, cluster: &str, tables: &str) -> Stage {
    Stage::set(Setup {
        servers: 3,
        listener: &format!("read_consistency = {consistency:?}"),
        cluster,
        tables,
        replication: Some(replication),
        ..USUAL
    })
    .await
}

async fn writes(session: &mut Session, times: usize) {
    for _ in 0..times {
        assert_eq!(session.query("INSERT INTO t VALUES ('OK')").await, Ok(0));
    }
}

/// The role of the server that has answered last, and why it was that one.
async fn answered_by(session: &mut Session) -> [String; 2] {
    let mut last = session.rows("FOREBAY SHOW LAST").await.swap_remove(0);
    let why = last.pop().unwrap();
    [last.pop().unwrap(), why]
}

fn hold_back(replication: &Replication) {
    [1, 2].into_iter().for_each(|at| replication.hold_back(at));
}

/// Whoever has written nothing waits for nobody.
#[tokio::test]
async fn of_their_own_session() {
    let replication = Replication::new(3);
    let stage = start(&replication, "session", "read_wait = \"1m\"", "").await;
    let (mut session, mut other) = (stage.connect().await, stage.connect().await);
    writes(&mut session, 2).await;
    assert_eq!(session.query(READ).await, Ok(2));
    assert_eq!(answered_by(&mut session).await, ["replica", ""]);
    hold_back(&replication);
    writes(&mut session, 3).await;
    session.send(Command::QUERY, READ.as_bytes()).await;
    stage.waits(1, "position").await;
    // Of the servers that have been waited on, the one that is waited on now.
    let is_asked = |(_, text): &(_, String)| text.contains(":3-5'") || text.contains(":1-5'");
    stage
        .until("it is asked for what was written", |stage| {
            stage.sent(WAIT).iter().any(is_asked)
        })
        .await;
    let (place, _) = stage.sent(WAIT).into_iter().find(is_asked).unwrap();
    for _ in 0..4 {
        assert_eq!(other.query(READ).await, Ok(2), "it has written nothing");
        assert_eq!(answered_by(&mut other).await, ["replica", ""]);
    }
    replication.let_through(place.server);
    assert_eq!(session.answer().await, Ok(5));
    assert_eq!(answered_by(&mut session).await, ["replica", ""]);
    // What has been waited for is known from then on.
    let waited = stage.sent(WAIT).len();
    assert_eq!(session.query(READ).await, Ok(5));
    assert_eq!(stage.sent(WAIT).len(), waited);
}

/// An execution waits as its text would.
#[tokio::test]
async fn in_both_protocols() {
    let replication = Replication::new(3);
    let stage = start(&replication, "session", "read_wait = \"1m\"", "").await;
    let mut session = stage.connect().await;
    let id = session.prepare("SELECT a FROM t").await;
    hold_back(&replication);
    writes(&mut session, 1).await;
    let rest = [&id.to_le_bytes()[..], &[0, 1, 0, 0, 0]].concat();
    session.send(Command::STMT_EXECUTE, &rest).await;
    stage.waits(1, "position").await;
    stage
        .until("it is asked for what was written", |stage| {
            !stage.sent(WAIT).is_empty()
        })
        .await;
    let waits_at = stage.sent(WAIT)[0].0;
    assert_eq!(stage.had("", true), [0; 3]);
    replication.let_through(waits_at.server);
    assert_eq!(session.answer().await, Ok(0));
    let mut executed = [0; 3];
    executed[waits_at.server] = 1;
    assert_eq!(stage.had("", true), executed);
}

/// A replica is waited for once. While none can come that far in time the reads behind that go to the primary
/// at once, until one is seen to have caught up.
#[tokio::test]
async fn but_wait_for_nobody_in_vain() {
    // The gateway gives up a connection whose wait takes twice as long, as one may on a busy machine.
    const WAIT_FOR: Duration = Duration::from_secs(2);
    let replication = Replication::new(3);
    let stage = start(&replication, "session", "read_wait = \"2s\"", "").await;
    let mut session = stage.connect().await;
    hold_back(&replication);
    // The waits of each read, and how long it took.
    let mut reads = Vec::new();
    for written in 1..=6 {
        writes(&mut session, 1).await;
        let (began, before) = (Instant::now(), stage.sent(WAIT).len());
        assert_eq!(session.query(READ).await, Ok(written));
        reads.push((stage.sent(WAIT).len() - before, began.elapsed()));
        assert_eq!(answered_by(&mut session).await, ["primary", "not_fresh"]);
    }
    // Each of the two may be waited for once.
    let waited: usize = reads.iter().map(|(waited, _)| waited).sum();
    assert!((1..=2).contains(&waited), "{reads:?}");
    let all_wait = |(waited, took): &(usize, Duration)| *waited == 0 || *took >= WAIT_FOR;
    assert!(reads.iter().all(all_wait), "{reads:?}");
    let at_once = |(waited, took): &(usize, Duration)| *waited == 0 && *took < WAIT_FOR;
    assert!(reads.iter().any(at_once), "{reads:?}");
    let not_fresh = stage.metric("forebay_split_reads_at_primary_total", &["why=\"not_fresh\""]);
    assert_eq!(not_fresh, 6.0);
    [1, 2].into_iter().for_each(|at| replication.let_through(at));
    let began = Instant::now();
    while answered_by(&mut session).await != ["replica", ""] {
        assert!(began.elapsed() < Duration::from_secs(10));
        assert!(session.query(READ).await.is_ok_and(|seen| seen >= 6));
    }
}

/// Nobody waits where nobody wants to.
#[tokio::test]
async fn or_at_all_where_that_is_forbidden() {
    let replication = Replication::new(3);
    let stage = start(&replication, "session", "read_wait = \"0s\"", "").await;
    let mut session = stage.connect().await;
    hold_back(&replication);
    for written in 1..=3 {
        writes(&mut session, 1).await;
        assert_eq!(session.query(READ).await, Ok(written));
        assert_eq!(answered_by(&mut session).await, ["primary", "not_fresh"]);
    }
    assert!(stage.sent(WAIT).is_empty());
}

/// A strong read sees what anybody has written before it began: the primary is asked for its position, once
/// for all that wait for the answer.
#[tokio::test]
async fn of_everybody_where_they_are_strong() {
    const SESSIONS: usize = 20;
    const ROUNDS: usize = 5;
    let replication = Replication::new(3);
    let stage = start(&replication, "strong", "read_wait = \"1m\"", "").await;
    let mut writer = stage.connect().await;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(stage.connect().await);
    }
    for round in 1..=ROUNDS {
        writes(&mut writer, 1).await;
        let mut reading = JoinSet::new();
        for mut session in sessions.drain(..) {
            reading.spawn(async move { (session.query(READ).await, session) });
        }
        for (told, session) in reading.join_all().await {
            assert_eq!(told, Ok(round));
            sessions.push(session);
        }
    }
    let asked = stage.sent(ASKS_PRIMARY);
    assert!(asked.iter().all(|(place, _)| place.server == 0), "{asked:?}");
    assert!(
        (ROUNDS..SESSIONS * ROUNDS).contains(&asked.len()),
        "{}",
        asked.len()
    );
    let at_primary = stage.had(READ, false)[0];
    assert_eq!(at_primary, 0, "replicas have all that they need");
    // They wait for what another session has written.
    hold_back(&replication);
    writes(&mut writer, 1).await;
    let reader = &mut sessions[0];
    reader.send(Command::QUERY, READ.as_bytes()).await;
    stage
        .until("it waits", |stage| !stage.sent(WAIT).is_empty())
        .await;
    [1, 2].into_iter().for_each(|at| replication.let_through(at));
    assert_eq!(reader.answer().await, Ok(ROUNDS + 1));
}

/// Whoever was the primary when it was last looked at may be it no more: its answer is none.
#[tokio::test]
async fn and_strong_ones_believe_no_former_primary() {
    let replication = Replication::new(3);
    let seldom = "read_wait = \"1m\"\nfailover_wait = \"1m\"";
    let stage = start(&replication, "strong", seldom, "").await;
    let (mut session, mut writer) = (stage.connect().await, stage.connect().await);
    writes(&mut writer, 1).await;
    assert_eq!(session.query(READ).await, Ok(1));
    // It is still there, and nobody has taken its place.
    replication.takes_writes(0, false);
    session.send(Command::QUERY, READ.as_bytes()).await;
    stage
        .until("it is not answered", |stage| {
            stage.metric("forebay_sessions_waiting", &["waits_for=\"primary\""])
                + stage.metric("forebay_sessions_waiting", &["waits_for=\"position\""])
                == 1.0
        })
        .await;
    assert_eq!(stage.had(READ, false).iter().sum::<usize>(), 1);
    replication.switch_over(0, 1);
    assert_eq!(session.answer().await, Ok(1));
    stage.knows(1, 2).await;
    writes(&mut writer, 1).await;
    assert_eq!(session.query(READ).await, Ok(2));
    let asked = stage.sent(ASKS_PRIMARY).pop().unwrap();
    assert_eq!(asked.0.server, 2.min(asked.0.server), "{asked:?}");
    assert!(
        stage
            .sent(ASKS_PRIMARY)
            .iter()
            .any(|(place, _)| place.server == 1)
    );
}

/// Once GTIDs are switched off the primary's are those of before: replicas that have them may lack the rest.
#[tokio::test]
async fn and_go_to_the_primary_where_writes_have_no_gtids_any_more() {
    let replication = Replication::new(3);
    let stage = start(&replication, "strong", "read_wait = \"1m\"", "").await;
    let (mut session, mut writer) = (stage.connect().await, stage.connect().await);
    writes(&mut writer, 1).await;
    assert_eq!(session.query(READ).await, Ok(1));
    assert_eq!(answered_by(&mut session).await, ["replica", ""]);
    hold_back(&replication);
    replication.switch_gtids_off();
    writes(&mut writer, 1).await;
    assert_eq!(session.query(READ).await, Ok(2));
    assert_eq!(answered_by(&mut session).await, ["primary", "position_unknown"]);
}

/// Once the monitor has seen that GTIDs are off, only the primary has a session's later writes for certain.
#[tokio::test]
async fn and_so_do_those_of_a_session_that_has_had_some() {
    let replication = Replication::new(3);
    let stage = start(&replication, "session", "read_wait = \"1m\"", "").await;
    let (mut session, mut other) = (stage.connect().await, stage.connect().await);
    writes(&mut session, 1).await;
    assert_eq!(session.query(READ).await, Ok(1));
    hold_back(&replication);
    replication.switch_gtids_off();
    writes(&mut session, 1).await;
    let began = Instant::now();
    while session.query(READ).await != Ok(2) {
        assert!(began.elapsed() < Duration::from_secs(10), "it is seen");
    }
    for _ in 0..10 {
        assert_eq!(session.query(READ).await, Ok(2));
        assert_eq!(answered_by(&mut session).await, ["primary", "position_unknown"]);
        assert_eq!(other.query(READ).await, Ok(1), "it has written nothing");
    }
}

#[tokio::test]
async fn as_a_rule_says() {
    let rules = "[[rule]]\ntag = [\"own\"]\nread_consistency = \"session\"\n\
                 [[rule]]\ntag = [\"all\"]\nread_consistency = \"strong\"";
    let replication = Replication::new(3);
    let stage = start(&replication, "eventual", "read_wait = \"100ms\"", rules).await;
    let (mut session, mut other) = (stage.connect().await, stage.connect().await);
    writes(&mut session, 1).await;
    hold_back(&replication);
    writes(&mut session, 1).await;
    let read = |tag: &str| format!("/* forebay: tag={tag} */ {READ}");
    for _ in 0..3 {
        assert_eq!(session.query(&read("none")).await, Ok(1), "eventual");
        assert_eq!(session.query(&read("own")).await, Ok(2), "its own write");
        assert_eq!(other.query(&read("own")).await, Ok(1), "not its own");
        assert_eq!(other.query(&read("all")).await, Ok(2), "everybody's");
        for (tag, word) in [("none", "eventual"), ("own", "session"), ("all", "strong")] {
            let said = other.explain(&read(tag), "read_consistency").await;
            assert_eq!(said.as_deref(), Some(word));
        }
    }
}

/// A session's own word goes before that of its listener, until it is reset.
#[tokio::test]
async fn as_their_session_says() {
    let replication = Replication::new(3);
    let stage = start(&replication, "eventual", "read_wait = \"100ms\"", "").await;
    let (mut session, mut other) = (stage.connect().await, stage.connect().await);
    writes(&mut session, 1).await;
    hold_back(&replication);
    writes(&mut session, 1).await;
    for (said, own, of_another) in [
        ("session", 2, 1),
        ("'strong'", 2, 2),
        ("eventual", 1, 1),
        ("strong", 2, 2),
        ("DEFAULT", 1, 1),
    ] {
        let set = format!("FOREBAY SET read_consistency = {said}");
        for (session, seen) in [(&mut session, own), (&mut other, of_another)] {
            assert_eq!(session.query(&set).await, Ok(0));
            for _ in 0..3 {
                assert_eq!(session.query(READ).await, Ok(seen), "{said}");
            }
        }
    }
    assert_eq!(
        session.query("FOREBAY SET read_consistency = strong").await,
        Ok(0)
    );
    assert_eq!(session.query(READ).await, Ok(2));
    session.reset().await;
    assert_eq!(session.query(READ).await, Ok(1), "it was reset");
    let said = session.explain(READ, "read_consistency").await;
    assert_eq!(said.as_deref(), Some("eventual"));
}

/// A group's read whose server lacks what it must see is for the primary; one whose server is gone is
/// refused.
#[tokio::test]
async fn and_those_of_a_group_are_the_primary_s_or_nobody_s() {
    let tables = "[cluster.main.group.reports]\nservers = [\"{2}\"]\nexclusive = true\n\
                  [[rule]]\ntag = [\"report\"]\nroute = \"reports\"";
    let replication = Replication::new(3);
    // Far longer than a server takes on a busy machine that has what is waited for.
    let mut stage = start(&replication, "session", "read_wait = \"2s\"", tables).await;
    let (mut session, mut careless) = (stage.connect().await, stage.connect().await);
    let tagged = "/* forebay: tag=report */ SELECT 'SEEN' FROM t";
    writes(&mut session, 1).await;
    assert_eq!(session.query(tagged).await, Ok(1));
    assert_eq!(stage.had(tagged, false), [0, 0, 1]);
    replication.hold_back(2);
    writes(&mut session, 1).await;
    assert_eq!(session.query(tagged).await, Ok(2));
    assert_eq!(stage.had(tagged, false), [1, 0, 1]);
    assert_eq!(careless.query(tagged).await, Ok(1), "it has written nothing");
    assert_eq!(stage.had(tagged, false), [1, 0, 2]);
    replication.let_through(2);
    let began = Instant::now();
    while stage.had(tagged, false)[2] == 2 {
        assert_eq!(session.query(tagged).await, Ok(2));
        assert!(began.elapsed() < Duration::from_secs(10), "it has caught up");
    }
    stage.remove(2);
    let (code, words) = loop {
        session.send(Command::QUERY, tagged.as_bytes()).await;
        match session.answer().await {
            Ok(_) => assert!(began.elapsed() < Duration::from_secs(20), "it is gone"),
            Err(1158) => {}
            Err(_) => break session.refused(tagged).await,
        }
    };
    assert!(code == 1429 && words.contains("reports"), "{code}: {words}");
    assert_eq!(session.query(READ).await, Ok(2));
    assert_eq!(stage.had(READ, false)[2], 0);
}

/// One that is too far behind takes none, and those for which that is so are told apart.
#[tokio::test]
async fn but_none_of_a_replica_that_is_too_far_behind() {
    let replication = Replication::new(3);
    let stage = start(&replication, "eventual", "max_lag = \"5s\"", "").await;
    let mut session = stage.connect().await;
    let is_said = async |session: &mut Session, server: usize, lag_ms: u64| {
        let name = format!("candidate {}", stage.name(server).unwrap());
        let began = Instant::now();
        loop {
            let said = session.explain(READ, &name).await.unwrap();
            let behind = said.split_once(" ms behind, of 5000 ms allowed");
            let behind = behind.and_then(|(before, _)| before.rsplit(' ').next()?.parse().ok());
            // The time since the replica was asked is added.
            if behind.is_some_and(|behind: u64| (lag_ms..lag_ms + 10_000).contains(&behind)) {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(10), "{said}");
        }
    };
    let counts = stage.spread(&mut session, READ, false, 20).await;
    assert!(counts[1] > 0 && counts[2] > 0, "{counts:?}");
    replication.lag(1, 60);
    is_said(&mut session, 1, 60_000).await;
    assert_eq!(stage.spread(&mut session, READ, false, 10).await, [0, 0, 10]);
    // A read goes to the primary where all are.
    replication.lag(2, 7);
    is_said(&mut session, 2, 7_000).await;
    assert_eq!(stage.spread(&mut session, READ, false, 10).await, [10, 0, 0]);
    stage
        .until("everybody is told", |stage| {
            stage.metric("forebay_replicas_too_far_behind", &[]) == 1.0
        })
        .await;
    [1, 2].into_iter().for_each(|at| replication.lag(at, 0));
    stage
        .until("it is over", |stage| {
            stage.metric("forebay_replicas_too_far_behind", &[]) == 0.0
        })
        .await;
    let counts = stage.spread(&mut session, READ, false, 20).await;
    assert_eq!(counts[0], 0);
}

/// A replica that answers late gets few reads where `read_balance` looks at that.
#[tokio::test]
async fn and_few_of_one_that_is_slow() {
    // Where it counts, far slower than the other one is on a busy machine.
    for (balance, few, pace) in [("least-outstanding", false, 30), ("latency", true, 250)] {
        let stage = Stage::set(Setup {
            servers: 3,
            cluster: &format!("read_balance = {balance:?}"),
            tables: "",
            slow: Some((2, Duration::from_millis(pace))),
            ..USUAL
        })
        .await;
        let mut session = stage.connect().await;
        let counts = stage.spread(&mut session, "SELECT 'ROWS 1'", false, 100).await;
        assert_eq!(counts[2] < 27, few, "{balance}: {counts:?}");
        assert_eq!(counts[0], 0, "{balance}");
    }
}
