//! What a `[[rule]]` says is done, as the servers see it.

use std::time::{Duration, Instant};

use dataplane::finished::End;
use mysql_wire::{Command, OkPacket};
use sql_class::Class;

use super::stage::{CAPABILITIES, Place, Session, Setup, Stage};

/// The servers that had the statements with this text, one for each.
fn servers(stage: &Stage, text: &str) -> Vec<usize> {
    let sent = stage.sent(text).into_iter();
    sent.map(|(place, _)| place.server).collect()
}

#[tokio::test]
async fn what_they_refuse_reaches_no_server() {
    let rules = r#"
        [[rule]]
        digest_text = '^DELETE FROM \S+$'
        refuse = "DELETE without WHERE"
    "#;
    let mut stage = Stage::with_rules(rules).await;
    let mut session = stage.connect().await;
    let (code, words) = session.refused("DELETE FROM refused").await;
    assert!(code == 1148 && words.contains("DELETE without WHERE"), "{words}");
    let ended = stage.next_end().await;
    assert_eq!((ended.end, ended.server), (End::Refused, None));
    assert_eq!((ended.error, ended.class), (Some(1148), Some(Class::Write)));
    session.send(Command::STMT_PREPARE, b"DELETE FROM refused").await;
    assert_eq!(session.answer().await, Err(1148));
    assert_eq!(session.query("DELETE FROM refused WHERE a = 1").await, Ok(0));
    let sent = stage.sent("refused");
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert_eq!(sent[0].1, "DELETE FROM refused WHERE a = 1");

    let lines = session.rows("FOREBAY EXPLAIN DELETE FROM refused").await;
    let end = [
        ["refuse", "DELETE without WHERE"],
        ["target", "none: a rule answers it"],
    ];
    assert_eq!(lines[lines.len() - 2..], end);
}

#[tokio::test]
async fn what_they_answer_reaches_no_server_but_to_be_prepared() {
    let mut stage = Stage::with_rules("[[rule]]\ntext = 'please'\nanswer_ok = \"done\"").await;
    let mut session = stage.connect().await;
    session.send(Command::QUERY, b"this is no SQL, please").await;
    let packet = session.0.receive().await.unwrap().payload;
    assert_eq!(OkPacket::decode(&packet, CAPABILITIES).unwrap().info, b"done");
    let ended = stage.next_end().await;
    assert_eq!((ended.end, ended.server), (End::Gateway, None));
    assert!(stage.sent("please").is_empty());

    let id = session.prepare("INSERT INTO t VALUES ('please')").await;
    assert_eq!(stage.next_end().await.command, Command::STMT_PREPARE);
    let before = stage.sent("").len();
    assert_eq!(session.execute(id).await, Ok(0));
    let ended = stage.next_end().await;
    assert_eq!((ended.end, ended.server), (End::Gateway, None));
    assert_eq!(stage.sent("please").len(), 1);
    assert_eq!(stage.sent("").len(), before);
}

#[tokio::test]
async fn what_they_rewrite_is_all_that_servers_see() {
    let rules = r#"
        [[rule]]
        text = 'old'
        rewrite = "new"
        rewrite_all = true
        [[rule]]
        text = 'first'
        rewrite = "1st"
        [[rule]]
        text = '^SELECT what_writes'
        rewrite = "INSERT INTO what_writes"
    "#;
    let mut stage = Stage::with_rules(rules).await;
    let mut session = stage.connect().await;
    assert_eq!(session.query("SELECT old, old, older FROM a").await, Ok(0));
    assert_eq!(stage.sent("FROM a")[0].1, "SELECT new, new, newer FROM a");
    assert_eq!(session.query("SELECT first, first FROM b").await, Ok(0));
    assert_eq!(stage.sent("FROM b")[0].1, "SELECT 1st, first FROM b");
    let id = session.prepare("SELECT old FROM c").await;
    assert_eq!(stage.sent("FROM c")[0].1, "SELECT new FROM c");
    assert_eq!(session.execute(id).await, Ok(0));
    for _ in 0..4 {
        stage.next_end().await;
    }

    // Its own class decides where it goes.
    assert_eq!(session.query("SELECT what_writes VALUES (1)").await, Ok(0));
    let ended = stage.next_end().await;
    assert_eq!((ended.class, ended.server), (Some(Class::Write), stage.name(0)));
    assert_eq!(
        stage.sent("what_writes")[0].1,
        "INSERT INTO what_writes VALUES (1)"
    );
}

/// A server is lost with it, and another one prepares it.
#[tokio::test]
async fn what_is_prepared_anew_is_rewritten_once() {
    let rules = r#"
        [[rule]]
        text = 'old'
        rewrite = "old new"
    "#;
    let mut stage = Stage::with_rules(rules).await;
    let mut session = stage.connect().await;
    session.prepare("SELECT old, 'LOST ONCE'").await;
    assert_eq!(stage.next_end().await.resent, 1);
    let sent = stage.sent("LOST ONCE").into_iter().map(|(_, text)| text);
    let sent: Vec<String> = sent.collect();
    assert_eq!(sent, ["SELECT old new, 'LOST ONCE'"; 2]);
}

#[tokio::test]
async fn a_route_counts_whatever_the_statement_is() {
    let rules = r#"
        [[rule]]
        tag = ["newest"]
        route = "primary"
        [[rule]]
        tag = ["away"]
        route = "replicas"
        [[rule]]
        tag = ["report"]
        route = "reports"
        [cluster.main.group.reports]
        servers = ["{2}"]
        exclusive = true
    "#;
    let setup = Setup {
        servers: 3,
        tables: rules,
        ..Setup::default()
    };
    let mut stage = Stage::set(setup).await;
    let mut session = stage.connect().await;
    let tagged = |tag: &str, text: &str| format!("/* forebay: tag={tag} */ {text}");
    for (tag, text, server) in [
        ("newest", "SELECT 'ROWS 1'", 0),
        ("report", "SELECT 'ROWS 1'", 2),
        ("away", "SELECT 'ROWS 1'", 1),
        ("none", "SELECT 'ROWS 1'", 1),
        ("away", "INSERT INTO t VALUES ('OK')", 1),
        ("report", "INSERT INTO t VALUES ('OK')", 2),
        ("none", "INSERT INTO t VALUES ('OK')", 0),
    ] {
        for _ in 0..3 {
            assert!(session.query(&tagged(tag, text)).await.is_ok());
            let ended = stage.next_end().await;
            assert_eq!(ended.server, stage.name(server), "{tag}, {text}");
        }
    }
    let id = session.prepare(&tagged("report", "SELECT prepared FROM t")).await;
    assert_eq!(stage.place("prepared").server, 2);
    stage.next_end().await;
    assert_eq!(session.execute(id).await, Ok(0));
    assert_eq!(stage.next_end().await.server, stage.name(2));

    // A transaction stays where it began.
    let mut session = stage.connect().await;
    assert_eq!(session.query("BEGIN").await, Ok(0));
    let inside = tagged("report", "SELECT 'ROWS 1', 'TRX'");
    assert_eq!(session.query(&inside).await, Ok(1));
    assert_eq!(stage.place("'TRX'").server, 0);
}

#[tokio::test]
async fn who_comes_when_the_turns_are_taken_is_told_or_waits() {
    let rules = r#"
        [[rule]]
        name = "hasty"
        tag = ["hasty"]
        max_concurrency = 1
        [[rule]]
        name = "patient"
        tag = ["patient"]
        max_concurrency = 1
        limit_wait = "1m"
    "#;
    for tag in ["hasty", "patient"] {
        let mut stage = Stage::with_rules(rules).await;
        let (mut first, mut second) = (stage.connect().await, stage.connect().await);
        let tagged = |text: &str| format!("/* forebay: tag={tag} */ {text}");
        first
            .send(
                Command::QUERY,
                tagged("INSERT INTO t VALUES ('STALL')").as_bytes(),
            )
            .await;
        stage.has_come(0, "'STALL'", 1).await;
        let read = tagged("SELECT 'ROWS 1'");
        if tag == "hasty" {
            let (code, words) = second.refused(&read).await;
            assert!(
                code == 1226 && words.contains("'max_concurrency' of the rule hasty"),
                "{words}"
            );
            assert_eq!(stage.next_end().await.end, End::Refused);
            assert!(stage.sent(&read).is_empty());
            // What no rule is about takes nobody's turn.
            assert_eq!(second.query("SELECT 'ROWS 1'").await, Ok(1));
        } else {
            second.send(Command::QUERY, read.as_bytes()).await;
            stage.no_more().await;
            assert!(stage.sent(&read).is_empty());
            // The turn ends with the session that has it.
            drop(first);
            assert_eq!(second.answer().await, Ok(1));
        }
    }
}

#[tokio::test]
async fn so_many_come_at_once_and_then_so_many_a_second() {
    let mut stage = Stage::with_rules("[[rule]]\nname = \"slow\"\nrate = 1\nburst = 2").await;
    let mut session = stage.connect().await;
    let mut told = Vec::new();
    // Some come in between where the machine is slow.
    while told.last() != Some(&Err(1226)) && told.len() < 1000 {
        told.push(session.query("SELECT 'ROWS 1' FROM slow").await);
    }
    let refused = told.pop();
    assert_eq!(refused, Some(Err(1226)));
    assert!(
        told.len() >= 2 && told.iter().all(|told| *told == Ok(1)),
        "{told:?}"
    );
    assert_eq!(stage.sent("FROM slow").len(), told.len());
    for _ in 0..=told.len() {
        stage.next_end().await;
    }
}

#[tokio::test]
async fn a_statement_may_be_held_back() {
    let stage = Stage::with_rules("[[rule]]\ntext = 'slowly'\ndelay = \"200ms\"").await;
    let mut session = stage.connect().await;
    let id = session.prepare("SELECT slowly FROM t").await;
    let began = Instant::now();
    assert_eq!(session.query("SELECT 'ROWS 1' FROM slowly").await, Ok(1));
    assert!(began.elapsed() >= Duration::from_millis(200));
    let began = Instant::now();
    assert_eq!(session.execute(id).await, Ok(0));
    assert!(began.elapsed() >= Duration::from_millis(200));
}

/// There is no account here that may kill it.
#[tokio::test]
async fn a_statement_over_its_time_is_given_up() {
    let mut stage = Stage::with_rules("[[rule]]\ntext = 'STALL'\ntimeout = \"100ms\"").await;
    let mut session = stage.connect().await;
    // Nobody knows what becomes of a write.
    for (server, statement, error) in [
        (1, "SELECT 'STALL' FROM a", 3024),
        (0, "INSERT INTO a VALUES ('STALL')", 1158),
    ] {
        assert_eq!(session.query(statement).await, Err(error), "{statement}");
        let ended = stage.next_end().await;
        assert_eq!((ended.end, ended.resent), (End::Lost, 0), "{statement}");
        // The server may read it later than its client hears of its end.
        stage.has_come(server, statement, 1).await;
        assert_eq!(stage.sent(statement).len(), 1);
        // The session was bound to nothing, and goes on.
        assert_eq!(session.query("SELECT 'ROWS 1'").await, Ok(1));
        stage.next_end().await;
    }
}

#[tokio::test]
async fn a_lost_read_is_sent_again_as_often_as_they_say() {
    let rules = r#"
        [[rule]]
        tag = ["never"]
        retries = 0
        [[rule]]
        tag = ["often"]
        retries = 2
    "#;
    let setup = Setup {
        servers: 3,
        tables: rules,
        ..Setup::default()
    };
    let mut stage = Stage::set(setup).await;
    let mut session = stage.connect().await;
    let mut retried = 0.0;
    for (tag, times) in [("never", 1), ("usual", 2), ("often", 3)] {
        let read = format!("/* forebay: tag={tag} */ SELECT 'CUT'");
        assert_eq!(session.query(&read).await, Err(1158), "{tag}");
        let ended = stage.next_end().await;
        assert_eq!((ended.end, ended.resent), (End::Lost, times - 1), "{tag}");
        assert_eq!(stage.sent(&read).len(), times as usize, "{tag}");
        retried += f64::from(times - 1);
        assert_eq!(
            stage.metric("forebay_split_reads_retried_total", &[]),
            retried,
            "{tag}"
        );
    }
}

#[tokio::test]
async fn a_session_keeps_its_connection_or_lets_it_go() {
    let rules = r#"
        [[rule]]
        text = 'keep'
        pin = "always"
        [[rule]]
        text = 'ignored'
        pin = "never"
    "#;
    let stage = Stage::with_rules(rules).await;
    let mut session = stage.connect().await;
    assert_eq!(session.query("SET @ignored = 1").await, Ok(0));
    assert_eq!(session.pins().await, [""; 0]);
    assert_eq!(session.query("SELECT 'ROWS 1' FROM free").await, Ok(1));
    assert_eq!(servers(&stage, "FROM free"), [1]);
    assert_eq!(session.query("SELECT 'ROWS 1' FROM keep").await, Ok(1));
    assert_eq!(session.pins().await, ["rule"]);
    let kept = stage.place("FROM keep");
    assert_eq!(kept.server, 0, "a session that is kept can write");
    assert_eq!(session.query("SELECT 'ROWS 1' FROM bound").await, Ok(1));
    assert_eq!(stage.place("FROM bound"), kept);
    session.reset().await;
    assert_eq!(session.pins().await, [""; 0]);
    assert_eq!(session.query("SELECT 'ROWS 1' FROM let_go").await, Ok(1));
    assert_eq!(stage.place("FROM let_go").server, 1);
    // That has not bound it either.
    assert_eq!(session.query("INSERT INTO let_go VALUES ('OK')").await, Ok(0));
    assert_eq!(stage.place("INTO let_go").server, 0);
}

/// The first counts, unless it says that others may as well.
#[tokio::test]
async fn several_rules_add_up_where_they_go_on() {
    let rules = r#"
        [[rule]]
        name = "one"
        text = 'FROM a'
        continue = true
        rewrite = "FROM b"
        route = "primary"
        [[rule]]
        name = "two"
        text = 'FROM b'
        route = "replicas"
        [[rule]]
        name = "three"
        text = 'FROM b'
        refuse = "never met"
        [[rule]]
        name = "four"
        text = 'only_one'
        continue = true
        route = "primary"
    "#;
    let mut stage = Stage::with_rules(rules).await;
    let mut session = stage.connect().await;
    let server = async |stage: &mut Stage, session: &mut Session, statement: &str| {
        assert_eq!(session.query(statement).await, Ok(1), "{statement}");
        stage.next_end().await.server
    };
    let both = server(&mut stage, &mut session, "SELECT 'ROWS 1' FROM a WHERE both").await;
    assert_eq!(both, stage.name(1), "what the later one says counts");
    assert_eq!(stage.sent("WHERE both")[0].1, "SELECT 'ROWS 1' FROM b WHERE both");
    let one = server(&mut stage, &mut session, "SELECT 'ROWS 1' FROM only_one").await;
    assert_eq!(one, stage.name(0));

    let lines = session.rows("FOREBAY EXPLAIN SELECT 'ROWS 1' FROM a").await;
    let of = |what: &str| lines.iter().find(|line| line[0] == what).map(|line| &*line[1]);
    assert_eq!(of("rule one"), Some("matches"), "{lines:?}");
    assert_eq!(of("rule two"), Some("matches"), "{lines:?}");
    assert_ne!(of("rule three"), Some("matches"), "{lines:?}");
    assert_eq!(of("rewrite"), Some("SELECT 'ROWS 1' FROM b"), "{lines:?}");
    assert_eq!(of("server"), stage.name(1).as_deref(), "{lines:?}");
}

/// A group without a server has nobody to stand in for it.
#[tokio::test]
async fn a_group_that_is_gone_refuses_its_statements() {
    let rules = r#"
        [[rule]]
        tag = ["report"]
        route = "reports"
        [cluster.main.group.reports]
        servers = ["{1}"]
    "#;
    let mut stage = Stage::with_rules(rules).await;
    let mut session = stage.connect().await;
    let report = "/* forebay: tag=report */ SELECT 'ROWS 1'";
    assert_eq!(session.query(report).await, Ok(1));
    let Place { server, .. } = stage.place(report);
    assert_eq!(server, 1);
    stage.remove(1);
    assert_eq!(session.query(report).await, Err(1429));
    assert_eq!(session.query("SELECT 'ROWS 1'").await, Ok(1));
}

/// The usual pair of rules, `^SELECT` to the replicas and all else to the primary. Some of these reads bind
/// their session to its connection: were it a replica's, the session could not write any more.
#[tokio::test]
async fn a_rule_for_all_reads_binds_nobody_to_a_replica() {
    let rules = r#"
        [[rule]]
        digest_text = 'FOR UPDATE$'
        route = "primary"
        [[rule]]
        digest_text = '^SELECT'
        route = "replicas"
    "#;
    let stage = Stage::with_rules(rules).await;
    for (read, server) in [
        ("SELECT 'ROWS 1' FROM t", 1),
        ("SELECT SQL_CALC_FOUND_ROWS 'ROWS 1' FROM t", 1),
        ("SELECT 'ROWS 1', 'WARNS' FROM t", 1),
        ("SELECT 'ROWS 1' FROM t WHERE LAST_INSERT_ID() >= 0", 1),
        ("SELECT 'ROWS 1' FROM t WHERE GET_LOCK('all', 0) >= 0", 0),
        ("SELECT 'ROWS 1' FROM t WHERE (@all := 1) = 1", 0),
        ("SELECT 'ROWS 1' FROM t WHERE twice(1) = 2", 0),
        ("SELECT 'ROWS 1' FROM t FOR UPDATE", 0),
    ] {
        for is_prepared in [false, true] {
            let mut session = stage.connect().await;
            let counts = stage.spread(&mut session, read, is_prepared, 1).await;
            assert_eq!(counts[server], 1, "{read}, prepared: {is_prepared}");
            let write = "INSERT INTO t VALUES ('OK')";
            let counts = stage.spread(&mut session, write, is_prepared, 1).await;
            assert_eq!(counts, [1, 0], "after {read}, prepared: {is_prepared}");
        }
    }
}

/// Whoever writes a rule copies the text from there.
#[tokio::test]
async fn what_is_explained_is_what_rules_see() {
    let statement = |id: u32| format!("SELECT COUNT(*) FROM information_schema.`collations` WHERE id = {id}");
    let stage = Stage::with_rules("").await;
    let mut session = stage.connect().await;
    let text = session.explain(&statement(5), "digest_text").await.unwrap();
    let escaped: String = text
        .chars()
        .map(|c| match c {
            '(' | ')' | '*' | '?' => format!("\\{c}"),
            c => c.to_string(),
        })
        .collect();
    let rule = format!("[[rule]]\nname = \"copied\"\ndigest_text = '^{escaped}$'\nrefuse = \"no\"");
    let stage = Stage::with_rules(&rule).await;
    let mut session = stage.connect().await;
    let matches = session.explain(&statement(5), "rule copied").await;
    assert_eq!(matches.as_deref(), Some("matches"));
    assert_eq!(session.query(&statement(6)).await, Err(1148));
    assert_eq!(stage.metric("forebay_rule_hits_total", &["rule=\"copied\""]), 1.0);
    assert!(
        session
            .query("SELECT COUNT(*) FROM other WHERE id = 5")
            .await
            .is_ok()
    );
}

/// Sessions that are there go by the rules of a configuration that is read again.
#[tokio::test]
async fn others_may_come_while_sessions_are_there() {
    let rule = "[[rule]]\ntag = [\"newest\"]\nroute = \"primary\"";
    let stage = Stage::with_rules(rule).await;
    let mut session = stage.connect().await;
    let read = "/* forebay: tag=newest */ SELECT 'ROWS 1'";
    assert_eq!(stage.spread(&mut session, read, false, 3).await, [3, 0]);
    stage.reload("route = \"primary\"", "refuse = \"no more\"");
    let (mut told, began) = (Ok(1), Instant::now());
    while told == Ok(1) && began.elapsed() < Duration::from_secs(10) {
        told = session.query(read).await;
    }
    assert_eq!(told, Err(1148));
    stage.reload("[[rule]]\ntag = [\"newest\"]\nroute = \"primary\"", "");
    while told != Ok(1) && began.elapsed() < Duration::from_secs(20) {
        told = session.query(read).await;
    }
    assert_eq!(stage.spread(&mut session, read, false, 3).await, [0, 3]);
}
