use std::time::{Duration, Instant};

use cache::store::Found;
use config::CacheMode;
use mysql_async::prelude::Queryable;
use sandbox::{Kind, Sandbox, Spec};
use testkit::redirected_link::RedirectedLink;

use crate::served::{hash, key, on_both, served, served_at, spec};

on_both! { are_asked_for_and_kept however_long_are_kept_when_the_feed_has_come_so_far count_as_kept_where_they_are may_be_refused_by_the_primary many_keys_are_of_one_moment are_the_same_bytes_as_those_of_the_feed }

fn bounded(config: &mut config::Cache) {
    config.mode = CacheMode::Bounded;
}

fn are_asked_for_and_kept(kind: Kind) {
    kept(spec(kind));
}

#[test]
fn in_gtid_strict_mode() {
    kept(spec(Kind::Mariadb).option("--gtid-strict-mode=1"));
}

#[test]
fn of_a_server_without_gtids() {
    let spec = spec(Kind::Mysql)
        .option("--gtid-mode=OFF")
        .option("--enforce-gtid-consistency=OFF");
    kept(spec);
}

/// Its log has begun anew, and nothing was written since: that it shows all GTIDs there are says nothing.
#[test]
fn of_a_server_that_has_no_gtids_yet() {
    let sql = "CREATE TABLE test.t (id INT PRIMARY KEY, v INT); INSERT INTO test.t VALUES (1, 10), (2, 20)";
    let mappings = vec![hash("t", "test.t", &["id"])];
    served(spec(Kind::Mysql), sql, bounded, mappings, |served| async move {
        let before = served.mapping("t").await;
        served.fetched(&before, &["1"]).await.unwrap();
        served.sql(match served.sandbox.release() >= [8, 2, 0] {
            true => "RESET BINARY LOGS AND GTIDS",
            false => "RESET MASTER",
        });
        served
            .until("the new log is followed", || {
                let served = served.reader.mappings();
                let mapping = served.by_name(b"t");
                mapping.is_some_and(|mapping| !std::sync::Arc::ptr_eq(mapping, &before))
            })
            .await;
        let mapping = served.mapping("t").await;
        let rows = served.fetched(&mapping, &["1", "3"]).await.unwrap();
        assert_eq!(rows, [Some("1|10".to_owned()), None]);
        served
            .until("the row is kept", || served.remembered(&mapping, "1").is_some())
            .await;
        served.sql("UPDATE test.t SET v = 11 WHERE id = 1");
        served
            .until("the row follows", || {
                served.remembered(&mapping, "1") == Some(Some("1|11".to_owned()))
            })
            .await;
        let rows = served.fetched(&mapping, &["1", "2"]).await.unwrap();
        assert_eq!(rows, [Some("1|11".to_owned()), Some("2|20".to_owned())]);
    });
}

/// A transaction is in the binary log before it is visible: here it waits for the acknowledgement of a
/// replica that does not exist. Without a GTID nothing says whether a SELECT has seen it.
#[test]
fn of_a_server_that_gives_no_gtids_any_more() {
    let sql = "CREATE TABLE test.t (id INT PRIMARY KEY, v INT); INSERT INTO test.t VALUES (1, 10), (2, 20)";
    let mappings = vec![hash("t", "test.t", &["id"])];
    served(spec(Kind::Mysql), sql, bounded, mappings, |served| async move {
        let mapping = served.mapping("t").await;
        served.fetched(&mapping, &["1"]).await.unwrap();
        // A stream that goes on in the middle of the log: any other would be ended by the server.
        served.sql("UPDATE test.t SET v = 11 WHERE id = 1");
        served
            .reader
            .fresh(config::Consistency::Strong, None)
            .await
            .unwrap();
        let dump =
            served.sql("SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'");
        served.sql(&format!("KILL {dump}"));
        served
            .until("it is followed again", || {
                let feed_status = served.feed.status();
                feed_status.streams() == 2 && feed_status.stream().starts_with("following")
            })
            .await;
        served.sql(
            "SET GLOBAL gtid_mode = ON_PERMISSIVE; SET GLOBAL gtid_mode = OFF_PERMISSIVE; \
             INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'; \
             SET GLOBAL rpl_semi_sync_source_timeout = 2000; SET GLOBAL rpl_semi_sync_source_enabled = ON",
        );
        let changed = served.feed.status().changed_rows();
        let mut client = served.client().await;
        let writer = tokio::task::spawn_local(async move {
            client
                .query_drop("UPDATE test.t SET v = 21 WHERE id = 2")
                .await
                .unwrap();
        });
        served
            .until("it is sent", || served.feed.status().changed_rows() > changed)
            .await;
        let new = Some("2|21".to_owned());
        assert_eq!(served.fetched(&mapping, &["2"]).await.unwrap(), [new]);
        writer.await.unwrap();
    });
}

fn kept(spec: Spec) {
    let sql = "CREATE TABLE test.t (id INT PRIMARY KEY, v INT); INSERT INTO test.t VALUES (1, 10), (2, 20)";
    served(
        spec,
        sql,
        bounded,
        vec![hash("t", "test.t", &["id"])],
        |served| async move {
            let mapping = served.mapping("t").await;
            assert_eq!(served.remembered(&mapping, "1"), None);
            let rows = served.fetched(&mapping, &["1", "3", "1"]).await.unwrap();
            let one = || Some("1|10".to_owned());
            assert_eq!(rows, [one(), None, one()]);
            served
                .until("the row is kept", || {
                    served.remembered(&mapping, "1") == Some(one())
                })
                .await;
            served
                .until("its absence is kept", || {
                    served.remembered(&mapping, "3") == Some(None)
                })
                .await;
            assert_eq!(served.remembered(&mapping, "2"), None);

            served.sql("UPDATE test.t SET v = 11 WHERE id = 1; INSERT INTO test.t VALUES (3, 30); DELETE FROM test.t WHERE id = 2");
            let now = |text: &str| Some(Some(text.to_owned()));
            served
                .until("the row follows", || {
                    served.remembered(&mapping, "1") == now("1|11")
                })
                .await;
            served
                .until("the absence ends", || {
                    served.remembered(&mapping, "3") != Some(None)
                })
                .await;
            let rows = served.fetched(&mapping, &["3", "2"]).await.unwrap();
            assert_eq!(rows, [Some("3|30".to_owned()), None]);
        },
    );
}

/// The feed is behind when the primary answers, and others wait already.
fn however_long_are_kept_when_the_feed_has_come_so_far(kind: Kind) {
    let sandbox = Sandbox::lend(spec(kind).option("--max-allowed-packet=64M")).unwrap();
    let rows = "INSERT INTO test.t SELECT 1, REPEAT('x', 15000000); INSERT INTO test.t SELECT 2, REPEAT('y', 20000000); \
        INSERT INTO test.t SELECT 10 + 10 * a.d, REPEAT('z', 300000) FROM %10% a";
    let ten = (0..10)
        .map(|d| format!("SELECT {d} AS d"))
        .collect::<Vec<_>>()
        .join(" UNION ");
    let table = "CREATE TABLE test.t (id INT PRIMARY KEY, v LONGTEXT) CHARACTER SET latin1; CREATE TABLE test.other (id INT)";
    let rows = rows.replace("%10%", &format!("({ten})"));
    sandbox.primary().sql(&format!("{table}; {rows}")).unwrap();
    let proxy = RedirectedLink::start(sandbox.primary().port()).unwrap();
    let mappings = vec![hash("t", "test.t", &["id"])];
    served_at(&[proxy.port], sandbox, bounded, mappings, |served| async move {
        const SMALL: &[&str] = &["10", "20", "30", "40", "50", "60", "70", "80", "90", "100"];
        let mapping = served.mapping("t").await;
        // Connections for what follows.
        for key in ["1000", "1001"] {
            served.fetched(&mapping, &[key]).await.unwrap();
        }
        let missing = |keys: &[&'static str]| -> Vec<&'static str> {
            let is_missing = |key: &&str| served.remembered(&mapping, key).is_none();
            keys.iter().copied().filter(is_missing).collect()
        };
        let begun = Instant::now();
        loop {
            let wanted = [missing(&["1"]), missing(&["2"]), missing(SMALL)];
            if wanted.iter().all(Vec::is_empty) {
                return;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "never kept: {wanted:?}"
            );
            proxy.lead_to(0);
            let dump =
                served.sql("SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'");
            served.sql(&format!("KILL {dump}"));
            let is_cut = || served.feed.status().stream().starts_with("not following");
            served.until("the stream is cut", is_cut).await;
            served.sql("INSERT INTO test.other VALUES (1)");
            for keys in wanted {
                served.fetched(&mapping, &keys).await.unwrap();
            }
            proxy.lead_to(served.sandbox.primary().port());
            served.until("it is followed again", || !is_cut()).await;
            let strong = config::Consistency::Strong;
            served.reader.fresh(strong, None).await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
}

/// More at once than may wait for the feed.
fn count_as_kept_where_they_are(kind: Kind) {
    let sql = "CREATE TABLE test.t (id INT PRIMARY KEY, v INT)";
    served(
        spec(kind),
        sql,
        bounded,
        vec![hash("t", "test.t", &["id"])],
        |served| async move {
            const KEYS: usize = 30_000;
            let mapping = served.mapping("t").await;
            let texts: Vec<String> = (0..KEYS).map(|id| id.to_string()).collect();
            let all: Vec<&str> = texts.iter().map(String::as_str).collect();
            served.fetched(&mapping, &all).await.unwrap();
            let counts = || {
                (
                    served.metrics.cache.fills_kept.get(),
                    served.metrics.cache.fills_dropped.get(),
                )
            };
            served
                .until("each is counted", || counts().0 + counts().1 == KEYS as u64)
                .await;
            let remembered = || {
                all.iter()
                    .filter(|key| served.remembered(&mapping, key).is_some())
                    .count() as u64
            };
            let (kept, _) = counts();
            assert!(kept < KEYS as u64, "all found a place");
            served
                .until("what counts is there", || remembered() == kept)
                .await;
        },
    );
}

fn may_be_refused_by_the_primary(kind: Kind) {
    let sql = "CREATE TABLE test.t (id INT PRIMARY KEY, v INT); INSERT INTO test.t VALUES (1, 10)";
    served(
        spec(kind),
        sql,
        bounded,
        vec![hash("t", "test.t", &["id"])],
        |served| async move {
            let mapping = served.mapping("t").await;
            served.sql("RENAME TABLE test.t TO test.u");
            let begun = std::time::Instant::now();
            let error = served.fetched(&mapping, &["1"]).await.unwrap_err().to_string();
            assert!(
                error.contains("not in memory, and the primary: Table 'test.t' doesn't exist (error 1146)"),
                "{error}"
            );
            assert!(begun.elapsed() < std::time::Duration::from_secs(10), "at once");
        },
    );
}

fn many_keys_are_of_one_moment(kind: Kind) {
    let sql = "CREATE TABLE test.t (id INT PRIMARY KEY, v INT); \
               CREATE TABLE test.u (id INT PRIMARY KEY, v INT); \
               INSERT INTO test.t VALUES (1, 1000); INSERT INTO test.u VALUES (1, 1000)";
    let mappings = vec![hash("t", "test.t", &["id"]), hash("u", "test.u", &["id"])];
    served(spec(kind), sql, bounded, mappings, |served| async move {
        let (t, u) = (served.mapping("t").await, served.mapping("u").await);
        let mut client = served.client().await;
        let writer = tokio::task::spawn_local(async move {
            for _ in 0..300 {
                client.query_drop("BEGIN").await.unwrap();
                client.query_drop("UPDATE test.t SET v = v - 1").await.unwrap();
                client.query_drop("UPDATE test.u SET v = v + 1").await.unwrap();
                client.query_drop("COMMIT").await.unwrap();
            }
        });
        let keys = [key(&t, "1"), key(&u, "1")];
        let wants = [(&t, &keys[0]), (&u, &keys[1])];
        let wants = wants.map(|(mapping, key)| cache::reader::Want { mapping, key });
        let mut moments = std::collections::BTreeSet::new();
        while !writer.is_finished() {
            let rows = served.reader.fetch(&wants).await.unwrap();
            let number = |at: usize| {
                let row = crate::served::shown(wants[at].mapping, rows[at].as_ref().unwrap());
                row.strip_prefix("1|").unwrap().parse::<i32>().unwrap()
            };
            assert_eq!(number(0) + number(1), 2000);
            moments.insert(number(0));
        }
        assert!(moments.len() > 3, "{moments:?}");
        writer.await.unwrap();
    });
}

fn are_the_same_bytes_as_those_of_the_feed(kind: Kind) {
    let sql = "SET NAMES utf8mb4; SET time_zone = '+00:00'; CREATE TABLE test.t (id INT PRIMARY KEY, f FLOAT, d DOUBLE, n DECIMAL(20,5), \
        s VARCHAR(30) CHARACTER SET utf8mb4, l VARCHAR(30) CHARACTER SET latin1, b VARBINARY(9), x BINARY(5), t BIT(12), \
        y YEAR, da DATE, ti TIME(3), dt DATETIME(6), ts TIMESTAMP(2) NULL, e ENUM('a','b'), m SET('a','b','c'), \
        u BIGINT UNSIGNED, z INT(5) ZEROFILL, j JSON, w TEXT); \
        INSERT INTO test.t VALUES (1, 0.1, 0.1, -12345.678, 'grüß 😀', 'grüß', x'00ff', x'0102', b'101010101010', 2026, \
        '2026-02-03', '-12:34:56.789', '2026-02-03 04:05:06.000007', '2026-02-03 04:05:06.12', 'b', 'a,c', \
        18446744073709551615, 42, '{\"a\": [1, 2.5, \"x\"]}', 'text'), \
        (2, 1234567.8, 1e300, 0, '', '', '', '', 0, 0, '1000-01-01', '838:59:59', '1000-01-01', NULL, NULL, '', 0, 0, NULL, NULL), \
        (3, -3.4e38, -5e-324, 1, ' ', ' ', ' ', ' ', 1, 1901, NULL, NULL, NULL, NULL, 'a', NULL, 7, NULL, '[]', NULL)";
    served(
        spec(kind),
        sql,
        |_| (),
        vec![hash("t", "test.t", &["id"])],
        |served| async move {
            let mapping = served.mapping("t").await;
            for text in ["1", "2", "3"] {
                let key = key(&mapping, text);
                let mut row = Vec::new();
                assert_eq!(served.reader.get(&mapping, &key, &mut row), Found::Row);
                let want = cache::reader::Want {
                    mapping: &mapping,
                    key: &key,
                };
                let fetched = served.reader.fetch(&[want]).await.unwrap().remove(0).unwrap();
                let shown = |row: &[u8]| crate::served::shown(&mapping, row);
                assert_eq!(shown(&fetched), shown(&row));
                assert_eq!(fetched, row, "{}", shown(&row));
            }
        },
    );
}
