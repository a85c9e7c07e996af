//! With `--freeze-time` statements have the time that it was, and with `--order commits` nobody reads before
//! those have committed whose rows it had read.

use e2e::traffic::{forebay, replay_on, start, stop};
use e2e::{Gateway, Setup, client, eventually, servers};
use mysql_async::prelude::Queryable;
use sandbox::Node;

fn replay(gateway: &Gateway, captured: &str, copy: &Node, more: &[&str]) -> String {
    let result = gateway.folder().join("result").display().to_string();
    let quick = ["--even-source", "--any-position", "--speed", "max"];
    let (code, said) = replay_on(copy, captured, &result, &[&quick[..], more].concat());
    assert!(code == Some(0) && !said.contains("refused another"), "{said}");
    result
}

#[tokio::test]
async fn times_are_those_of_the_capture() {
    const TABLE: &str = "DROP TABLE IF EXISTS test.timed;
        CREATE TABLE test.timed (n INT, made DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6), said DATETIME(6))";
    let servers = servers(2);
    let [source, copy] = [&servers[0], &servers[1]].map(|server| server.primary());
    source.sql(TABLE).unwrap();
    copy.sql(TABLE).unwrap();
    let gateway = Setup::in_front_of(&servers[..1]).start();
    let captured = start(&gateway, "captured");
    let mut session = client::connect(&gateway).await;
    session
        .query_drop("INSERT INTO test.timed (n, said) VALUES (1, NOW(6))")
        .await
        .unwrap();
    session
        .exec_drop("INSERT INTO test.timed (n, said) VALUES (?, NOW(6))", (2,))
        .await
        .unwrap();
    session.disconnect().await.unwrap();
    stop(&gateway);
    // Later by much more than the times may differ.
    let later = "SELECT MIN(SYSDATE(6) > said + INTERVAL 4 SECOND) AS later FROM test.timed";
    eventually("it is later", async || {
        source.sql(later).unwrap().trim_end().ends_with('1')
    })
    .await;
    replay(&gateway, &captured, copy, &["--freeze-time"]);
    let times = "SELECT n, UNIX_TIMESTAMP(made), UNIX_TIMESTAMP(said) FROM test.timed ORDER BY n";
    let [then, now] = [source, copy].map(|server| -> Vec<f64> {
        let said = server.sql(times).unwrap();
        said.split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect()
    });
    assert_eq!((then.len(), now.len()), (6, 6));
    for (then, now) in then.iter().zip(&now) {
        // A busy source executes a statement later than it is captured; a replay without the option comes
        // four seconds later at least.
        assert!((then - now).abs() < 3.0, "{then} {now}");
    }
}

#[tokio::test]
async fn a_transaction_begins_when_those_before_have_ended() {
    const TABLE: &str = "DROP TABLE IF EXISTS test.ordered; CREATE TABLE test.ordered (n INT)";
    let servers = servers(2);
    let [source, copy] = [&servers[0], &servers[1]].map(|server| server.primary());
    source.sql(TABLE).unwrap();
    copy.sql(TABLE).unwrap();
    let gateway = Setup::in_front_of(&servers[..1]).start();
    let captured = start(&gateway, "captured");
    let [mut writes, mut reads] = [client::connect(&gateway).await, client::connect(&gateway).await];
    for round in 0..3 {
        // The other session of a replay that is as fast as it can be would read before this is committed.
        writes.query_drop("BEGIN").await.unwrap();
        let insert = format!("INSERT INTO test.ordered SELECT {round} + SLEEP(1)");
        writes.query_drop(insert).await.unwrap();
        writes.query_drop("COMMIT").await.unwrap();
        // The end of a command is noted a moment after its answer. A worker that tells of its sessions has
        // noted it.
        drop(gateway.get("/sessions"));
        // In a replay the next one may have been committed as well.
        let question = format!("SELECT COUNT(*) FROM test.ordered WHERE n <= {round}");
        let count: u64 = reads.query_first(question).await.unwrap().unwrap();
        assert_eq!(count, round + 1);
    }
    writes.disconnect().await.unwrap();
    reads.disconnect().await.unwrap();
    stop(&gateway);
    let result = replay(&gateway, &captured, copy, &["--order", "commits"]);
    let (code, said) = forebay(&["traffic", "compare", &captured, &result]);
    assert_eq!(code, Some(0), "{said}");
}
