//! Captured traffic is replayed on copies of the server that differ from it in one thing: each difference is
//! found, and on a faithful copy there is none. `FOREBAY_SEEDS` says how many differences are tried.

use e2e::traffic::{forebay, replay_on, start, stop};
use e2e::{Gateway, Setup, client, kind, servers};
use inputs::Random;
use mysql_async::prelude::Queryable;
use sandbox::{Kind, Node};

const ROWS: u64 = 65_536;

/// The row of a number, as an expression.
fn row(number: &str) -> String {
    format!(
        "{number}, {number} * 7, CONCAT(IF({number} % 2, 'nail ', 'NAIL '), {number} DIV 2), {number} / 10, \
         REPEAT('x', 100)"
    )
}

const FUNCTION: &str =
    "CREATE FUNCTION test.twice(number DOUBLE) RETURNS DOUBLE DETERMINISTIC NO SQL RETURN 2 * number";

/// The tables as they are before. A lookup by `code` reads all rows where its index is not there.
fn fill(server: &Node) {
    let depth = match kind() {
        Kind::Mysql => "cte_max_recursion_depth",
        _ => "max_recursive_iterations",
    };
    server
        .sql(&format!(
            "SET {depth} = {ROWS};
            DROP TABLE IF EXISTS test.item, test.note;
            DROP FUNCTION IF EXISTS test.twice;
            CREATE TABLE test.item (id INT PRIMARY KEY, code INT, name VARCHAR(40), price DOUBLE,
                filler VARCHAR(200), KEY by_code (code))
                CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci;
            CREATE TABLE test.note (id INT PRIMARY KEY AUTO_INCREMENT, item INT, text VARCHAR(40));
            {FUNCTION};
            INSERT INTO test.item
                WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {ROWS})
                SELECT {} FROM s",
            row("n")
        ))
        .unwrap();
}

/// Has clients read and write. Returns the numbers of the rows that they have read by number.
async fn use_it(gateway: &Gateway, random: &mut Random) -> Vec<u64> {
    let mut read = Vec::new();
    for _ in 0..3 {
        let mut session = client::connect(gateway).await;
        session.query_drop("USE test").await.unwrap();
        for _ in 0..20 {
            let id = 1 + random.below(ROWS);
            read.push(id);
            session
                .exec_drop("SELECT * FROM item WHERE id = ?", (id,))
                .await
                .unwrap();
            // More than half of all commands, so that their times are the median. The slowest ones may be
            // writes that wait for the disk.
            for _ in 0..6 {
                let code = 7 * (1 + random.below(ROWS));
                session
                    .exec_drop("SELECT COUNT(*) FROM item WHERE code = ?", (code,))
                    .await
                    .unwrap();
            }
            let other = 1 + random.below(ROWS - 10);
            let between = format!(
                "SELECT id, name FROM item WHERE id BETWEEN {other} AND {} ORDER BY name, id",
                other + 10
            );
            session.query_drop(between).await.unwrap();
            let computed = format!("SELECT twice(price) FROM item WHERE id = {other}");
            session.query_drop(computed).await.unwrap();
            let note = format!("INSERT INTO note (item, text) VALUES ({id}, 'seen')");
            session.query_drop(note).await.unwrap();
        }
        session.disconnect().await.unwrap();
    }
    read
}

#[tokio::test]
async fn on_copies_that_differ_in_one_thing() {
    let servers = servers(2);
    let [source, copy] = [&servers[0], &servers[1]].map(|server| server.primary());
    fill(source);
    let gateway = Setup::in_front_of(&servers[..1]).start();
    let captured = start(&gateway, "captured");
    let read = use_it(&gateway, &mut Random::new(0)).await;
    stop(&gateway);

    let replay = |name: &str| {
        let result = gateway.folder().join(name).display().to_string();
        let more = ["--even-source", "--any-position", "--speed", "max"];
        let (code, said) = replay_on(copy, &captured, &result, &more);
        assert_eq!(code, Some(0), "{said}");
        result
    };
    let compare =
        |a: &str, b: &str, fail_on: &str| forebay(&["traffic", "compare", a, b, "--fail-on", fail_on]);

    fill(copy);
    let faithful = replay("faithful");
    let (code, said) = compare(&captured, &faithful, "errors,rows,warnings,missing");
    assert_eq!(code, Some(0), "{said}");

    for seed in inputs::seeds(4) {
        let mut random = Random::new(seed);
        let names = "MODIFY name VARCHAR(40) CHARACTER SET utf8mb4 COLLATE";
        let table = "ALTER TABLE test.item";
        let (difference, undone, is_found_by) = match seed % 4 {
            0 => {
                let number = random.pick(&read).to_string();
                let change = random.pick(&["name = CONCAT(name, '.')", "price = price + 1", "code = NULL"]);
                (
                    format!("UPDATE test.item SET {change} WHERE id = {number}"),
                    format!("REPLACE INTO test.item VALUES ({})", row(&number)),
                    "other values in",
                )
            }
            1 => (
                format!("{table} {names} utf8mb4_bin"),
                format!("{table} {names} utf8mb4_general_ci"),
                "another order of",
            ),
            2 => ("DROP FUNCTION test.twice".to_owned(), FUNCTION.to_owned(), "1305"),
            _ => (
                format!("{table} DROP KEY by_code"),
                format!("{table} ADD KEY by_code (code)"),
                "times as slow",
            ),
        };
        copy.sql("TRUNCATE test.note").unwrap();
        copy.sql(&difference).unwrap();
        let seeded = replay(&format!("seeded-{seed}"));
        // Times of two replays on one server are compared. Other differences are looked for in the capture.
        let (a, fail_on) = match is_found_by {
            "times as slow" => (&faithful, "errors,rows,missing,p50=3"),
            _ => (&captured, "errors,rows"),
        };
        let (code, said) = compare(a, &seeded, fail_on);
        assert!(
            code == Some(2) && said.contains(is_found_by),
            "FOREBAY_SEED={seed}: {difference}: {said}"
        );
        copy.sql(&undone).unwrap();
        std::fs::remove_dir_all(seeded).unwrap();
    }
    copy.sql("TRUNCATE test.note").unwrap();
    let again = replay("again");
    let (code, said) = compare(&captured, &again, "errors,rows,warnings,missing");
    assert_eq!(code, Some(0), "{said}");
}
