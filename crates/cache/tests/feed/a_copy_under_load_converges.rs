//! Rows are copied while they change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cache::feed::Phase;
use sandbox::{Kind, Lent};

use crate::fed::{Fed, Wishes, on_both, string};

on_both! {
    a_table_at_rest
    a_table_that_is_written_to
    of_a_server_whose_sessions_begin_without_autocommit
    a_table_that_does_not_fit_is_not_served
    what_is_not_visible_yet_is_waited_for
}

const TABLE: &str = "CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(60) NOT NULL); \
     CREATE PROCEDURE fill(IN rows_wanted INT) BEGIN DECLARE i INT DEFAULT 0; START TRANSACTION; \
     WHILE i < rows_wanted DO SET i = i + 1; INSERT INTO t VALUES (i, CONCAT('row ', i)); END WHILE; COMMIT; END";

fn table(rows: u32) -> String {
    format!(
        "DELIMITER //\n{}//\nDELIMITER ;\nCALL fill({rows});",
        TABLE.replace("; CREATE", "//CREATE")
    )
}

const SELECT: &str = "SELECT id, c FROM t";

fn a_table_at_rest(kind: Kind) {
    let fed = Fed::start(
        Wishes::of(kind),
        &table(1050),
        vec![string("t", "test.t", &["id"], "c")],
    );
    fed.assert_same("t", SELECT);
    fed.sql("UPDATE t SET c = 'new' WHERE id = 7; DELETE FROM t WHERE id = 8; INSERT INTO t VALUES (-5, 'minus'); \
             UPDATE t SET id = 5000 WHERE id = 9");
    fed.assert_same("t", SELECT);
    assert_eq!(fed.rows("t").len(), 1050);
}

fn a_table_that_is_written_to(kind: Kind) {
    let sql = table(20_000);
    let fed = Fed::start(Wishes::of(kind), &sql, vec![string("t", "test.t", &["id"], "c")]);
    let stop = Arc::new(AtomicBool::new(false));
    let writers = [1, 2].map(|seed| write(&fed.sandbox, seed, &stop));
    fed.until_served("t");
    let copied = fed.feed.status().copied_rows();
    assert!(copied > 15_000, "{copied}");
    stop.store(true, Ordering::SeqCst);
    let written: u64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
    assert!(written > 0);
    fed.assert_same("t", SELECT);
    assert_eq!(fed.copies(), 1);
}

/// Every chunk is as new as it can be, and not as the first one.
fn of_a_server_whose_sessions_begin_without_autocommit(kind: Kind) {
    let mut wishes = Wishes::of(kind);
    wishes.chunk = 20;
    let sql = format!(
        "{} SET GLOBAL autocommit = 0, GLOBAL completion_type = 1",
        table(20_000)
    );
    let fed = Fed::start(wishes, &sql, vec![string("t", "test.t", &["id"], "c")]);
    fed.until(
        "it is being copied",
        || matches!(fed.phase("t"), Phase::Copying { rows, .. } if rows > 0),
    );
    fed.sql("UPDATE t SET c = 'later' WHERE id > 19000; COMMIT AND NO CHAIN");
    fed.assert_same("t", SELECT);
    assert!(fed.rows("t").contains(&"20000\tlater".to_owned()));
}

/// Changes rows here and there until it is stopped. Returns how many statements it ran.
fn write(sandbox: &Arc<Lent>, seed: u64, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<u64> {
    let (sandbox, stop) = (Arc::clone(sandbox), Arc::clone(stop));
    std::thread::spawn(move || {
        let mut random = seed;
        let mut count = 0;
        while !stop.load(Ordering::SeqCst) {
            let mut sql = String::new();
            for _ in 0..200 {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let (id, what) = (random >> 33 & 0x7fff, random >> 60 & 3);
                sql.push_str(&match what {
                    0 => format!("DELETE FROM t WHERE id = {id};"),
                    1 => format!("REPLACE INTO t VALUES ({id}, 'written {count}');"),
                    _ => format!("UPDATE t SET c = 'changed {count}' WHERE id = {id};"),
                });
                count += 1;
            }
            sandbox.primary().sql(&sql).unwrap();
        }
        count
    })
}

/// A transaction is sent before it is visible: here it waits for the acknowledgement of a replica that does
/// not exist, for longer than another feed takes to begin on a busy machine.
fn what_is_not_visible_yet_is_waited_for(kind: Kind) {
    let fed = Fed::start(
        Wishes::of(kind),
        &table(10),
        vec![string("t", "test.t", &["id"], "c")],
    );
    fed.assert_same("t", SELECT);
    fed.sql(match kind {
        Kind::Mysql => {
            "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'; \
             SET GLOBAL rpl_semi_sync_source_timeout = 10000; SET GLOBAL rpl_semi_sync_source_enabled = ON"
        }
        _ => {
            "SET GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC'; SET GLOBAL rpl_semi_sync_master_timeout = 10000; \
             SET GLOBAL rpl_semi_sync_master_enabled = ON"
        }
    });
    let changed = fed.feed.status().changed_rows();
    let sandbox = Arc::clone(&fed.sandbox);
    let waiting = std::thread::spawn(move || {
        sandbox
            .primary()
            .sql("UPDATE t SET c = 'sent' WHERE id = 3")
            .unwrap()
    });
    fed.until("it is sent", || fed.feed.status().changed_rows() > changed);
    let other = Fed::beside(&fed, vec![string("t", "test.t", &["id"], "c")]);
    let gtids = fed.applied().gtids.clone();
    other.until("another feed has it, too", || other.applied().has(&gtids));
    assert_eq!(
        fed.sql("SELECT c FROM t WHERE id = 3").trim(),
        "row 3",
        "not visible yet"
    );
    other.until_served("t");
    assert!(other.rows("t").contains(&"3\tsent".to_owned()));
    waiting.join().unwrap();
    other.assert_same("t", SELECT);
}

/// The same where transactions have no GTIDs any more, and the stream began while they had: in the middle of
/// the log, or the server would end it.
#[test]
fn mysql_gives_no_gtids_any_more() {
    let mapping = |name: &str| string(name, "test.t", &["id"], "c");
    let fed = Fed::start(Wishes::of(Kind::Mysql), &table(10), vec![mapping("t")]);
    fed.sql("UPDATE t SET c = 'before' WHERE id = 1");
    fed.assert_same("t", SELECT);
    cut(&fed);
    fed.sql(
        "SET GLOBAL gtid_mode = ON_PERMISSIVE; SET GLOBAL gtid_mode = OFF_PERMISSIVE; \
         INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'; \
         SET GLOBAL rpl_semi_sync_source_timeout = 2000; SET GLOBAL rpl_semi_sync_source_enabled = ON",
    );
    let changed = fed.feed.status().changed_rows();
    let sandbox = Arc::clone(&fed.sandbox);
    let waiting = std::thread::spawn(move || {
        sandbox
            .primary()
            .sql("UPDATE t SET c = 'sent' WHERE id = 3")
            .unwrap()
    });
    fed.until("it is sent", || fed.feed.status().changed_rows() > changed);
    fed.reload(vec![mapping("t"), mapping("again")]);
    fed.until_served("again");
    waiting.join().unwrap();
    for name in ["t", "again"] {
        assert!(fed.rows(name).contains(&"3\tsent".to_owned()), "{name}");
    }
    assert_eq!(fed.feed.status().streams(), 2);
}

/// Ends the stream, and waits until it goes on in the middle of the log.
fn cut(fed: &Fed) {
    let dump = fed.sql("SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'");
    fed.sql(&format!("KILL {dump}"));
    fed.until("it is followed again", || {
        let feed_status = fed.feed.status();
        feed_status.streams() == 2 && feed_status.stream().starts_with("following")
    });
}

/// Nobody's writes wait for a copy once all transactions have GTIDs again, or for the first time.
fn copies_without_locks(wishes: Wishes, had_gtids: bool) {
    let mapping = |name: &str| string(name, "test.t", &["id"], "c");
    let fed = Fed::start(wishes, &table(10), vec![mapping("t")]);
    fed.until_served("t");
    if had_gtids {
        fed.sql("UPDATE t SET c = 'before' WHERE id = 1");
        fed.assert_same("t", SELECT);
        cut(&fed);
        let modes = ["ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF"];
        fed.sql(
            &modes
                .map(|mode| format!("SET GLOBAL gtid_mode = {mode}"))
                .join("; "),
        );
    }
    let locking = "SELECT COUNT(*) FROM mysql.general_log WHERE argument LIKE '%FROM `test`.`t`%FOR SHARE'";
    fed.sql("SET GLOBAL log_output = 'TABLE', general_log = ON; UPDATE t SET c = 'without' WHERE id = 1");
    let without = fed.sql("SELECT c FROM t WHERE id = 1");
    assert_eq!(without.trim(), "without");
    fed.until("it is there", || fed.rows("t").contains(&"1\twithout".to_owned()));
    fed.reload(vec![mapping("t"), mapping("locked")]);
    fed.until_served("locked");
    let locks = fed.sql(locking);
    assert_ne!(locks.trim(), "0", "nothing says what is visible");
    let modes = ["OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"];
    let modes = modes
        .map(|mode| format!("SET GLOBAL gtid_mode = {mode}"))
        .join("; ");
    fed.sql(&format!(
        "SET GLOBAL enforce_gtid_consistency = ON; {modes}; UPDATE t SET c = 'with' WHERE id = 2"
    ));
    fed.until("it is there", || fed.rows("t").contains(&"2\twith".to_owned()));
    let streams = fed.feed.status().streams();
    fed.reload(vec![mapping("t"), mapping("locked"), mapping("free")]);
    fed.until_served("free");
    assert_eq!(fed.sql(locking), locks, "rows were locked again");
    assert_eq!(fed.feed.status().streams(), streams);
    for name in ["t", "locked", "free"] {
        fed.assert_same(name, SELECT);
    }
}

#[test]
fn mysql_gives_gtids_for_the_first_time() {
    let mut wishes = Wishes::of(Kind::Mysql);
    wishes.spec = wishes
        .spec
        .option("--gtid-mode=OFF")
        .option("--enforce-gtid-consistency=OFF");
    copies_without_locks(wishes, false);
}

#[test]
fn mysql_gives_gtids_again() {
    copies_without_locks(Wishes::of(Kind::Mysql), true);
}

fn a_table_that_does_not_fit_is_not_served(kind: Kind) {
    let mut wishes = Wishes::of(kind);
    wishes.memory_max = 1 << 20;
    let sql = format!(
        "{}; CREATE TABLE small (id INT PRIMARY KEY, c INT); INSERT INTO small VALUES (1, 2)",
        table(60_000)
    );
    let mappings = vec![
        string("t", "test.t", &["id"], "c"),
        string("small", "test.small", &["id"], "c"),
    ];
    let fed = Fed::start(wishes, &sql, mappings);
    fed.until(
        "it is said",
        || matches!(fed.phase("t"), Phase::Stopped { reason } if reason.contains("memory_max")),
    );
    fed.sql("UPDATE t SET c = 'longer than before, by far' WHERE id < 100");
    fed.assert_same("small", "SELECT id, c FROM small");
    fed.sql("TRUNCATE t");
    fed.until_applied();
    fed.assert_same("t", SELECT);
    fed.assert_same("small", "SELECT id, c FROM small");
}
