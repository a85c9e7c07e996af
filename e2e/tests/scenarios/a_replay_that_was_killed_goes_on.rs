//! A replayer is killed in the middle and begun again with `--resume`: nothing is executed twice, and what it
//! does not know it says.

use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use e2e::traffic::{forebay, start, stop};
use e2e::{Setup, client, servers};
use mysql_async::prelude::Queryable;
use sandbox::{Node, PASSWORD, USER};

const TABLE: &str =
    "DROP TABLE IF EXISTS test.sent; CREATE TABLE test.sent (session INT, number INT, slept INT)";
/// Rows that each session makes.
const ROWS: u64 = 400;
/// Each takes so long.
const SLEEP: &str = "SLEEP(0.005)";
/// Each look starts a client, which takes the machine from the replayer.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// One session's life, by its number: plain, prepared, and in one transaction.
async fn live(mut session: mysql_async::Conn, number: u64) {
    session
        .query_drop(format!("SET @session = {number}"))
        .await
        .unwrap();
    let prepared = format!("INSERT INTO test.sent SELECT @session, ?, {SLEEP}");
    let prepared = session.prep(prepared).await.unwrap();
    if number == 2 {
        session.query_drop("BEGIN").await.unwrap();
    }
    for row in 0..ROWS {
        if number == 1 {
            session.exec_drop(&prepared, (row,)).await.unwrap();
        } else {
            let text = format!("INSERT INTO test.sent SELECT @session, {row}, {SLEEP}");
            session.query_drop(text).await.unwrap();
        }
    }
    if number == 2 {
        session.query_drop("COMMIT").await.unwrap();
    }
    session.disconnect().await.unwrap();
}

fn count(server: &Node, what: &str) -> u64 {
    let said = server.sql(&format!("SELECT {what} FROM test.sent")).unwrap();
    said.split_whitespace().last().unwrap().parse().unwrap()
}

fn replayer(captured: &str, target: &str, more: &[&str]) -> Child {
    Command::new(e2e::program())
        .args(["traffic", "replay", captured, "--to", target, "--user", USER])
        .args([
            "--password-env",
            "REPLAY_PASSWORD",
            "--even-source",
            "--any-position",
            "--speed",
            "max",
        ])
        .args(more)
        .env("REPLAY_PASSWORD", PASSWORD)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// How many rows there are once a replayer was killed that had made so many that more than a second's is
/// written. None where it was done before, or with all but what was under way: nothing would be left to do.
fn killed_in_the_middle(captured: &str, copy: &Node, result: &str) -> Option<u64> {
    copy.sql(TABLE).unwrap();
    let target = copy.address();
    let mut child = replayer(captured, &target, &["--result", result]);
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut has_made = |rows: u64| {
        // What is in the transaction is not seen.
        while count(copy, "COUNT(*)") < rows {
            assert!(Instant::now() < deadline);
            if child.try_wait().unwrap().is_some() {
                return false;
            }
            sleep(BETWEEN_LOOKS);
        }
        true
    };
    if !has_made(1) {
        child.wait().unwrap();
        return None;
    }
    let second = replayer(captured, &target, &["--resume", result]);
    let second = second.wait_with_output().unwrap();
    let is_there = has_made(3 * ROWS / 2);
    // SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();
    let then = count(copy, "COUNT(*)");
    let is_committed = count(copy, "COUNT(IF(session = 2, 1, NULL))") > 0;
    // Each of the two sessions that are seen may have one row under way.
    if !is_there || is_committed || then + 2 >= 2 * ROWS {
        return None;
    }
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.contains("another replayer is at it"), "{said}");
    Some(then)
}

#[tokio::test]
async fn nothing_is_executed_twice() {
    let servers = servers(2);
    let [source, copy] = [&servers[0], &servers[1]].map(|server| server.primary());
    source.sql(TABLE).unwrap();
    let gateway = Setup::in_front_of(&servers[..1]).start();
    let captured = start(&gateway, "captured");
    let mut lives = Vec::new();
    for number in 0..3 {
        lives.push(tokio::spawn(live(client::connect(&gateway).await, number)));
    }
    for life in lives {
        life.await.unwrap();
    }
    stop(&gateway);
    assert_eq!(count(source, "COUNT(*)"), 3 * ROWS);

    let target = copy.address();
    // On a busy machine all may be done before it is killed.
    let (result, then) = (0..5)
        .find_map(|attempt| {
            let result = gateway.folder().join(format!("result {attempt}"));
            let result = result.display().to_string();
            let then = killed_in_the_middle(&captured, copy, &result)?;
            Some((result, then))
        })
        .expect("it was killed in time");
    let again = ["--resume", &result[..]];

    let resumed = replayer(&captured, &target, &again).wait_with_output().unwrap();
    let said = String::from_utf8([resumed.stdout, resumed.stderr].concat()).unwrap();
    assert_eq!(resumed.status.code(), Some(0), "{said}");
    let all = count(copy, "COUNT(*)");
    assert_eq!(count(copy, "COUNT(DISTINCT session, number)"), all, "{said}");
    let told = |words: &str| -> u64 {
        let line = said.lines().find(|line| line.contains(words));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.map_or(0, |number| number.parse().unwrap())
    };
    let (unknown, undone) = (told("nobody knows"), told("has gone with the replayer"));
    // Each session has at least one that was under way, and no more than a second's.
    assert!((1..3 * ROWS / 2).contains(&unknown) && undone > 0, "{said}");
    assert!(told("commands were done before") > ROWS / 2, "{said}");
    // Whatever is missing is among what was told. Of the transaction nothing is left.
    assert!(all + unknown >= 2 * ROWS && all > then, "{all}: {said}");
    assert_eq!(count(copy, "COUNT(IF(session = 2, 1, NULL))"), 0, "{said}");
    // The variable was set again.
    assert_eq!(count(copy, "COUNT(*) - COUNT(session)"), 0, "{said}");

    let (code, said) = forebay(&["traffic", "compare", &captured, &result]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(" 0 only in a, 0 only in b"), "{said}");
    let over = replayer(&captured, &target, &again).wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&over.stderr).contains("has come to its end"));
}
