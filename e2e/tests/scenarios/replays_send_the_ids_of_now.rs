//! Where the target gives rows other numbers than the source did, a replay names its rows by theirs.

use e2e::traffic::{replay_on, start, stop};
use e2e::{Setup, client, servers};
use mysql_async::prelude::Queryable;

const TABLES: &str = "DROP TABLE IF EXISTS test.line, test.bill;
    CREATE TABLE test.bill (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(20), paid INT DEFAULT 0);
    CREATE TABLE test.line (bill INT, what VARCHAR(20), FOREIGN KEY (bill) REFERENCES test.bill (id))";

#[tokio::test]
async fn rows_are_found_by_their_new_ids() {
    let servers = servers(2);
    let [source, copy] = [&servers[0], &servers[1]].map(|server| server.primary());
    source.sql(TABLES).unwrap();
    copy.sql(TABLES).unwrap();
    copy.sql("ALTER TABLE test.bill AUTO_INCREMENT = 1000").unwrap();
    let gateway = Setup::in_front_of(&servers[..1]).start();
    let captured = start(&gateway, "captured");
    let mut session = client::connect(&gateway).await;
    session.query_drop("USE test").await.unwrap();
    for name in ["a", "b"] {
        let insert = format!("INSERT INTO bill (name) VALUES ('{name}')");
        session.query_drop(insert).await.unwrap();
        let id = session.last_insert_id().unwrap();
        let line = format!("INSERT INTO line (bill, what) VALUES ({id}, 'text')");
        session.query_drop(line).await.unwrap();
        session
            .exec_drop("INSERT INTO test.line (bill, what) VALUES (?, 'prepared')", (id,))
            .await
            .unwrap();
        session
            .exec_drop("UPDATE bill SET paid = ? WHERE id = ?", (id, id))
            .await
            .unwrap();
    }
    session.disconnect().await.unwrap();
    stop(&gateway);
    let replay = |result: &str, more: &[&str]| {
        let result = gateway.folder().join(result).display().to_string();
        let quick = ["--even-source", "--any-position", "--speed", "max"];
        let (code, said) = replay_on(copy, &captured, &result, &[&quick[..], more].concat());
        assert_eq!(code, Some(0), "{said}");
        said
    };
    let lines = "SELECT COUNT(*) FROM test.line JOIN test.bill ON bill = id WHERE paid > 0";
    let count = || {
        let said = copy.sql(lines).unwrap();
        said.split_whitespace().last().unwrap().to_owned()
    };
    let said = replay("as-captured", &["--map-ids", "no"]);
    assert!(!said.contains("ids of now") && count() == "0", "{said}");
    let said = replay("mapped", &[]);
    assert!(said.contains("2 ids that the target has made"), "{said}");
    assert!(said.contains("6 values were sent as ids of now"), "{said}");
    // What was paid is no id, though it is the number of one.
    assert!(said.contains("2 values that may be ids"), "{said}");
    assert_eq!(count(), "4", "{said}");
}
