//! Rows that are not in memory and long: what is held of them is bounded.

use sandbox::Kind;

use crate::stage::{Client, Stage};

/// Bytes of a row, and rows.
const LONG: usize = 100_000;
const ROWS: usize = 300;

/// A gateway whose `words` have these rows, none of which is in memory.
fn stage(kind: Kind, rows: &str) -> Stage {
    let stage = Stage::start(kind, "mode = \"bounded\"", "");
    stage.sql("ALTER TABLE shop.words MODIFY word MEDIUMTEXT");
    stage.sql(rows);
    stage.until("the table is mapped again", || {
        stage.client().ask("GET words@1") == "one"
    });
    stage
}

/// How often the server was asked for rows.
fn asked_server(client: &mut Client) -> usize {
    let info = client.ask("INFO stats");
    let asked = info.lines().find_map(|line| line.strip_prefix("asked_server:"));
    asked.unwrap().parse().unwrap()
}

#[test]
fn a_pipeline_of_long_rows_is_asked_for_in_parts() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let stage = stage(
            kind,
            &format!(
                "INSERT INTO shop.words
                WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})
                SELECT 100 + i, CONCAT(i, REPEAT('x', {LONG})) FROM n"
            ),
        );
        let mut client = stage.client();
        let before = asked_server(&mut client);
        let requests = (1..=ROWS).map(|id| format!("GET words@{}\r\n", 100 + id));
        client.send(requests.collect::<String>());
        for id in 1..=ROWS {
            let reply = client.reply();
            assert!(
                reply.len() > LONG && reply.starts_with(&format!("{id}x")),
                "{}",
                &reply[..200]
            );
        }
        let asked = asked_server(&mut client) - before;
        assert!(
            (ROWS * LONG / (1 << 20)..ROWS / 2).contains(&asked),
            "asked {asked} times for rows of 100 KB with no more than 1 MiB each"
        );
    }
}

#[test]
fn a_row_that_is_wanted_too_often_at_once_is_refused() {
    let stage = stage(
        Kind::Mariadb,
        &format!("INSERT INTO shop.words VALUES (9, REPEAT('x', {LONG}))"),
    );
    let mut client = stage.client();
    let refused = client.ask(&format!("MGET{}", " words@9".repeat(1000)));
    assert_eq!(
        refused,
        "(ERR the server could not be asked: the row is not in memory, and the primary's answer is longer than 67108864 bytes: ask for \
         fewer keys at once)"
    );
    let counted = "forebay_redis_too_large_total{bound=\"rows\"} 1";
    assert!(stage.telemetry.encode().contains(counted));
    let row = client.ask("GET words@9");
    assert_eq!(row.len(), LONG);
    let several = client.ask(&format!("MGET{}", " words@9".repeat(100)));
    assert_eq!(several.len(), 100 * (LONG + 1) + 1);
}
