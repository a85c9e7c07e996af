//! A stream that was cut goes on where it was; where that cannot be, tables are copied again.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};

use cache::feed::Phase;
use sandbox::Kind;

use crate::fed::{Fed, Wishes, on_both, string};

on_both! {
    a_cut_stream_is_taken_up_again
    a_transaction_that_was_cut_is_read_again
    a_primary_that_was_killed_comes_back
    a_purged_log_means_a_copy
    a_log_that_begins_anew_means_a_copy
    a_server_that_does_not_fit_is_refused_by_name
    a_server_that_does_not_fit_any_more_is_refused_by_name
    a_server_without_a_log_is_refused
    a_log_of_some_schemas_is_refused
    links_are_encrypted_where_the_cluster_says_so
}

#[test]
fn mysql_without_gtids() {
    let mut wishes = Wishes::of(Kind::Mysql);
    wishes.spec = wishes
        .spec
        .option("--gtid-mode=OFF")
        .option("--enforce-gtid-consistency=OFF");
    let fed = Fed::start(wishes, TABLE, vec![string("t", "test.t", &["id"], "c")]);
    fed.until_served("t");
    for round in 0..3 {
        fed.sql(&format!(
            "UPDATE t SET c = 'round {round}'; INSERT INTO t VALUES ({round} + 10, NULL)"
        ));
        cut(&fed);
        fed.sql("FLUSH BINARY LOGS; UPDATE t SET c = 'last' WHERE id = 1");
        let expected = fed.sql(SELECT);
        fed.until("the rows are there", || {
            let mut expected: Vec<_> = expected.lines().map(str::to_owned).collect();
            expected.sort();
            fed.rows("t") == expected
        });
    }
    assert_eq!(fed.copies(), 1);
    fed.sql("ALTER TABLE t ADD d INT FIRST");
    fed.until("it is copied again", || fed.copies() == 2);
    fed.until_served("t");
}

const TABLE: &str =
    "CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(60)); INSERT INTO t VALUES (1, 'one'), (2, 'two')";
const SELECT: &str = "SELECT id, c FROM t";

fn start(kind: Kind) -> Fed {
    let fed = Fed::start(Wishes::of(kind), TABLE, vec![string("t", "test.t", &["id"], "c")]);
    fed.assert_same("t", SELECT);
    fed
}

/// Ends the connections that send the binary log.
fn cut(fed: &Fed) {
    let sql = "SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'";
    let ids = fed.sql(sql);
    assert!(!ids.trim().is_empty());
    for id in ids.lines() {
        fed.sql(&format!("KILL {id}"));
    }
}

fn a_cut_stream_is_taken_up_again(kind: Kind) {
    let fed = start(kind);
    for round in 0..5 {
        fed.sql(&format!(
            "UPDATE t SET c = 'round {round}'; INSERT INTO t VALUES ({round} + 10, NULL)"
        ));
        cut(&fed);
        fed.sql(&format!("UPDATE t SET c = 'after {round}' WHERE id = 1"));
        fed.assert_same("t", SELECT);
    }
    assert_eq!(fed.copies(), 1, "nothing was copied again");
}

/// Something else has the feed's attention all the time.
#[test]
fn a_dead_stream_is_noticed() {
    let mut wishes = Wishes::of(Kind::Mariadb);
    wishes.proxy = true;
    let fed = Fed::start(wishes, TABLE, vec![string("t", "test.t", &["id"], "c")]);
    fed.assert_same("t", SELECT);
    // At first a stream may be silent for longer.
    fed.sql("UPDATE t SET c = 'before'");
    fed.assert_same("t", SELECT);
    fed.proxy.as_ref().unwrap().freeze();
    fed.sql("UPDATE t SET c = 'behind'");
    fed.until("another stream is opened", || {
        fed.feed.status().flush();
        fed.feed.status().streams() == 2
    });
    fed.assert_same("t", SELECT);
    assert_eq!(fed.copies(), 1);
}

/// A client that is connected already: on a busy machine it takes longer to start one than to read a large
/// transaction.
struct ClientAtHand(Child);

impl ClientAtHand {
    fn of(fed: &Fed) -> Self {
        let mut client = fed.sandbox.primary().client();
        // A connection that it is to end may be gone already.
        client.args(["--force", "--unbuffered"]);
        client
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut client = Self(client.spawn().unwrap());
        client.say("SELECT 'here'");
        let mut said = String::new();
        BufReader::new(client.0.stdout.as_mut().unwrap())
            .read_line(&mut said)
            .unwrap();
        assert_eq!(said.trim(), "here");
        client
    }

    /// Has it run a statement, and does not wait.
    fn say(&mut self, sql: &str) {
        let stdin = self.0.stdin.as_mut().unwrap();
        writeln!(stdin, "{sql};").and_then(|()| stdin.flush()).unwrap();
    }

    /// Waits until all is done that it was told to.
    fn end(mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

impl Drop for ClientAtHand {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn a_transaction_that_was_cut_is_read_again(kind: Kind) {
    let limit = match kind {
        Kind::Mysql => "SET SESSION cte_max_recursion_depth = 1000000",
        _ => "SET SESSION max_recursive_iterations = 1000000",
    };
    // More than fits into buffers on its way.
    let sql = format!(
        "{limit}; CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(900)); \
         INSERT INTO t WITH RECURSIVE n AS (SELECT 1 AS id UNION ALL SELECT id + 1 FROM n WHERE id < 40000) \
         SELECT id, REPEAT('before ', 120) FROM n"
    );
    let fed = Fed::start(Wishes::of(kind), &sql, vec![string("t", "test.t", &["id"], "c")]);
    fed.assert_same("t", SELECT);
    // On a busy machine all of it may have come before the stream ends.
    let was_cut = (0..10).any(|attempt| is_cut_in_the_middle(&fed, attempt));
    assert!(was_cut, "each time all of it had come");
    assert_eq!(fed.copies(), 1);
}

/// Changes all rows of a large table in one transaction, and ends the stream while it is read, a few times.
/// Returns whether a part of it was read again.
fn is_cut_in_the_middle(fed: &Fed, attempt: u32) -> bool {
    let rows = fed.feed.status().changed_rows();
    let dumps = "SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'";
    let first: Vec<String> = fed.sql(dumps).lines().map(str::to_owned).collect();
    let (mut writer, mut killer) = (ClientAtHand::of(fed), ClientAtHand::of(fed));
    writer.say(&format!(
        "UPDATE t SET c = CONCAT('attempt {attempt} ', id, REPEAT(' after', 120))"
    ));
    for round in 1..=3 {
        fed.until("a part of it has come", || {
            fed.feed.status().changed_rows() > rows + 1000 * round
        });
        let ids = match round {
            1 => first.clone(),
            _ => fed.sql(dumps).lines().map(str::to_owned).collect(),
        };
        for id in ids {
            killer.say(&format!("KILL {id}"));
        }
    }
    writer.end();
    killer.end();
    fed.assert_same("t", SELECT);
    fed.feed.status().changed_rows() - rows > 40_000
}

fn a_primary_that_was_killed_comes_back(kind: Kind) {
    let mut wishes = Wishes::of(kind);
    // What is lost in a crash is another test's.
    wishes.spec = wishes
        .spec
        .option("--sync-binlog=1")
        .option("--innodb-flush-log-at-trx-commit=1");
    let fed = Fed::start(wishes, TABLE, vec![string("t", "test.t", &["id"], "c")]);
    fed.assert_same("t", SELECT);
    for round in 0..2 {
        fed.sql(&format!("UPDATE t SET c = 'round {round}'"));
        fed.sandbox.primary().kill9().unwrap();
        fed.until("the loss is noticed", || {
            fed.feed.status().stream().starts_with("not following")
        });
        fed.sandbox.primary().restart().unwrap();
        fed.sql(&format!("INSERT INTO t VALUES ({round} + 10, 'new')"));
        fed.assert_same("t", SELECT);
    }
    assert_eq!(fed.copies(), 1, "nothing was copied again");
}

fn a_purged_log_means_a_copy(kind: Kind) {
    let fed = start(kind);
    // The feed cannot read what is going to be purged.
    fed.sql("ALTER USER forebay IDENTIFIED BY 'another'");
    cut(&fed);
    fed.until("it cannot log in", || {
        fed.feed.status().stream().contains("Access denied")
    });
    fed.sql(
        "UPDATE t SET c = 'unseen'; INSERT INTO t VALUES (3, 'unseen'); FLUSH BINARY LOGS; FLUSH BINARY LOGS",
    );
    // Some versions wait for replicas.
    let _ = fed
        .sandbox
        .primary()
        .sql("SET GLOBAL slave_connections_needed_for_purge = 0");
    let last = fed.sql("SHOW BINARY LOGS");
    let last = last.lines().last().unwrap().split('\t').next().unwrap();
    // MariaDB keeps a log for a moment that its engines may need after a crash.
    fed.until("the logs are purged", || {
        fed.sql(&format!("PURGE BINARY LOGS TO '{last}'; SHOW BINARY LOGS"))
            .lines()
            .count()
            == 1
    });
    fed.sql("ALTER USER forebay IDENTIFIED BY 'forebay'");
    fed.until("it is copied again", || fed.copies() == 2);
    fed.assert_same("t", SELECT);
}

fn a_log_that_begins_anew_means_a_copy(kind: Kind) {
    let fed = start(kind);
    fed.sql("UPDATE t SET c = 'before'");
    fed.until_applied();
    match kind {
        Kind::Mysql if fed.sandbox.release() >= [8, 2, 0] => fed.sql("RESET BINARY LOGS AND GTIDS"),
        Kind::Mysql => fed.sql("RESET MASTER"),
        _ => {
            cut(&fed);
            fed.sql("RESET MASTER")
        }
    };
    fed.sql("UPDATE t SET c = 'after'");
    fed.until("it is copied again", || fed.copies() >= 2);
    fed.assert_same("t", SELECT);
}

/// Those who look whether the log is the same make another connection now and then, and keep the one that
/// they have where they cannot.
#[test]
fn a_log_that_begins_anew_is_seen_by_who_cannot_connect_any_more() {
    let mut wishes = Wishes::of(Kind::Mysql);
    wishes.proxy = true;
    let fed = Fed::start(wishes, TABLE, vec![string("t", "test.t", &["id"], "c")]);
    fed.sql("UPDATE t SET c = 'before'");
    fed.assert_same("t", SELECT);
    let watch =
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'forebay' AND COMMAND = 'Sleep'";
    fed.until("the log is looked at", || fed.sql(watch).trim() == "1");
    // A server that should not be the primary is connected to every second.
    fed.sql("SET GLOBAL read_only = 1");
    let proxy = fed.proxy.as_ref().unwrap();
    proxy.lead_to(0);
    fed.until("no connection can be made", || proxy.turned_away() > 0);
    assert!(fed.feed.status().stream().starts_with("following"));
    fed.sql(match fed.sandbox.release() >= [8, 2, 0] {
        true => "RESET BINARY LOGS AND GTIDS",
        false => "RESET MASTER",
    });
    fed.until("the loss is noticed", || {
        fed.feed.status().stream().starts_with("not following")
    });
    proxy.lead_to(fed.sandbox.primary().port());
    fed.sql("SET GLOBAL read_only = 0; UPDATE t SET c = 'after'");
    fed.until("it is copied again", || fed.copies() >= 2);
    fed.assert_same("t", SELECT);
}

fn links_are_encrypted_where_the_cluster_says_so(kind: Kind) {
    let mut wishes = Wishes::of(kind);
    wishes.tls = true;
    // Without TLS nobody gets in.
    let sql = format!("{TABLE}; ALTER USER forebay REQUIRE SSL");
    let fed = Fed::start(wishes, &sql, vec![string("t", "test.t", &["id"], "c")]);
    fed.sql("UPDATE t SET c = 'hidden'");
    fed.assert_same("t", SELECT);
}

fn a_server_that_does_not_fit_is_refused_by_name(kind: Kind) {
    let mut wishes = Wishes::of(kind);
    wishes.spec = wishes.spec.option("--binlog-row-image=MINIMAL");
    let fed = Fed::start(wishes, TABLE, vec![string("t", "test.t", &["id"], "c")]);
    fed.until("the variable is named", || {
        fed.feed
            .status()
            .stream()
            .contains("binlog_row_image is MINIMAL, and must be FULL")
    });
    assert!(matches!(fed.phase("t"), Phase::Waiting { .. }));
    // Who asks for a row is told so.
    fed.until("the variable is named to clients", || {
        let mappings = fed.feed.status().mappings();
        let state = mappings.unready(b"t").unwrap_or_default();
        state.starts_with("waiting: not following n0: binlog_row_image is MINIMAL, and must be FULL")
    });
    fed.sql("SET GLOBAL binlog_row_image = FULL");
    fed.assert_same("t", SELECT);
}

/// Variables are changed while it runs. Nothing is copied as long as they are not what they must be.
fn a_server_that_does_not_fit_any_more_is_refused_by_name(kind: Kind) {
    let fed = start(kind);
    for (variable, wrong, right) in [
        ("binlog_format", "STATEMENT", "ROW"),
        ("binlog_row_image", "MINIMAL", "FULL"),
        ("binlog_row_image", "NOBLOB", "FULL"),
    ] {
        fed.sql(&format!("SET GLOBAL {variable} = {wrong}"));
        fed.sql("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ; UPDATE t SET c = CONCAT(c, '!')");
        let reason = format!("{variable} is {wrong}, and must be {right}");
        if wrong != "NOBLOB" {
            fed.until(&reason, || {
                fed.feed.status().flush();
                fed.phase("t").to_string().contains(&reason)
            });
        }
        fed.sql(&format!("SET GLOBAL {variable} = {right}"));
        fed.until("it is copied again", || {
            fed.feed.status().flush();
            fed.phase("t") == Phase::Serving
        });
        fed.assert_same("t", SELECT);
    }
}

fn a_server_without_a_log_is_refused(kind: Kind) {
    let mut wishes = Wishes::of(kind);
    wishes.spec = wishes.spec.option("--skip-log-bin");
    let fed = Fed::start(wishes, TABLE, vec![string("t", "test.t", &["id"], "c")]);
    fed.until("clients are told why", || {
        let mappings = fed.feed.status().mappings();
        let state = mappings.unready(b"t").unwrap_or_default();
        state.starts_with("waiting: log_bin is OFF, and must be ON: ")
    });
}

/// `USE other; TRUNCATE test.t` is not in it.
fn a_log_of_some_schemas_is_refused(kind: Kind) {
    let mut wishes = Wishes::of(kind);
    wishes.spec = wishes.spec.option("--binlog-ignore-db=other");
    let fed = Fed::start(wishes, TABLE, vec![string("t", "test.t", &["id"], "c")]);
    fed.until("the option is named", || {
        let phase = fed.phase("t").to_string();
        phase.contains("binlog_ignore_db must not be set")
    });
}
