//! `replay --follow` sends what a gateway captures while it does so, and ends when the capture ends.

use std::process::{Command, Stdio};

use e2e::traffic::{forebay, start, stop};
use e2e::{Setup, client, eventually, servers};
use mysql_async::prelude::Queryable;
use sandbox::{PASSWORD, USER};

const TABLE: &str = "DROP TABLE IF EXISTS test.followed; CREATE TABLE test.followed (number INT)";

#[tokio::test]
async fn what_comes_is_replayed_until_the_capture_ends() {
    let servers = servers(2);
    let [source, copy] = [&servers[0], &servers[1]].map(|server| server.primary());
    source.sql(TABLE).unwrap();
    copy.sql(TABLE).unwrap();
    let gateway = Setup::in_front_of(&servers[..1]).start();
    let captured = start(&gateway, "captured");
    let result = gateway.folder().join("result").display().to_string();
    let mut replay = Command::new(e2e::program())
        .args(["traffic", "replay", &captured, "--follow", "--even-source"])
        .arg("--any-position")
        .args(["--to", &copy.address(), "--user", USER])
        .args(["--password-env", "REPLAY_PASSWORD", "--result", &result])
        .env("REPLAY_PASSWORD", PASSWORD)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One session stays, others come and go.
    let mut stays = client::connect(&gateway).await;
    for number in 0..4 {
        let insert = format!("INSERT INTO test.followed VALUES ({number})");
        let mut comes = client::connect(&gateway).await;
        let session = if number % 2 == 0 { &mut stays } else { &mut comes };
        session.query_drop(insert).await.unwrap();
        comes.disconnect().await.unwrap();
        let there = format!("SELECT COUNT(*) FROM test.followed WHERE number = {number}");
        eventually(&format!("{number} is replayed"), async || {
            let has_ended = replay.try_wait().unwrap().is_some();
            assert!(!has_ended, "it has ended before the capture");
            copy.sql(&there).unwrap().contains('1')
        })
        .await;
    }
    stop(&gateway);
    let ended = replay.wait_with_output().unwrap();
    let said = String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap();
    assert_eq!(ended.status.code(), Some(0), "{said}");
    let (code, said) = forebay(&["traffic", "compare", &captured, &result]);
    assert!(
        code == Some(0) && said.contains(" 0 only in a, 0 only in b"),
        "{said}"
    );
}
