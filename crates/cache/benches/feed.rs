//! How fast tables are copied and changes are applied: `cargo bench -p cache --bench feed [mariadb|mysql]`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a measurement")]
#![allow(dead_code, unused_imports, unused_macros, reason = "what the tests use")]

#[path = "../tests/feed/fed.rs"]
mod fed;

use std::time::Instant;

use sandbox::Kind;

use crate::fed::{Fed, Wishes, string};

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    for kind in [Kind::Mariadb, Kind::Mysql] {
        if wanted.is_empty() || wanted.iter().any(|word| word == kind.name()) {
            measure(kind);
        }
    }
}

const ROWS: u32 = 1_000_000;

fn measure(kind: Kind) {
    let limit = match kind {
        Kind::Mysql => "SET SESSION cte_max_recursion_depth = 10000000",
        _ => "SET SESSION max_recursive_iterations = 10000000",
    };
    let table = format!(
        "{limit}; CREATE TABLE t (id INT PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL); \
         INSERT INTO t WITH RECURSIVE n AS (SELECT 1 AS id UNION ALL SELECT id + 1 FROM n WHERE id < {ROWS}) \
         SELECT id, id, SUBSTR(CONCAT(SHA2(id, 256), SHA2(id, 256)), 1, 119), SUBSTR(SHA2(id, 256), 1, 59) FROM n; FLUSH BINARY LOGS"
    );
    let mut wishes = Wishes::of(kind);
    wishes.chunk = 5000;
    wishes.spec = wishes.spec.option("--innodb-buffer-pool-size=1G");
    let fed = Fed::start(wishes, &table, vec![string("t", "test.t", &["id"], "c")]);
    let begun = Instant::now();
    fed.until("it is being copied", || fed.feed.status().copied_rows() > 0);
    let first = Instant::now();
    fed.until_served("t");
    let per_second = |rows: u32, since: Instant| f64::from(rows) / since.elapsed().as_secs_f64();
    println!(
        "{kind}: {:.0} rows/s copied ({:.2} s to the first)",
        per_second(ROWS, first),
        (first - begun).as_secs_f64()
    );

    // Written while the feed is away, so that it has something to catch up with.
    fed.sql("ALTER USER forebay IDENTIFIED BY 'another'");
    let ids = fed.sql("SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'");
    fed.sql(&format!("KILL {}", ids.trim()));
    fed.until("it cannot log in", || {
        fed.feed.status().stream().contains("Access denied")
    });
    fed.sql("UPDATE t SET c = REVERSE(c) WHERE id <= 500000");
    let statements: String = (0..50_000)
        .map(|id| format!("UPDATE t SET c = 'single {id}' WHERE id = {};", id * 19 + 1))
        .collect();
    fed.sql(&statements);
    fed.sql("ALTER USER forebay IDENTIFIED BY 'forebay'");
    fed.until("it is back", || {
        fed.feed.status().stream().starts_with("following")
    });
    let begun = Instant::now();
    fed.until_applied();
    println!("{kind}: {:.0} row events/s applied", per_second(550_000, begun));
    assert_eq!(fed.copies(), 1);
    let begun = Instant::now();
    let answer = fed.sql("SELECT id, c FROM t");
    println!(
        "{kind}: {:.0} rows/s by a SELECT of the client",
        per_second(answer.lines().count() as u32, begun)
    );
}
