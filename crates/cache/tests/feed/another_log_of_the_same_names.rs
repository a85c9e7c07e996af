//! While nobody listens the log begins anew, and comes to where it was before, with as many transactions, of
//! the same lengths.

use sandbox::Kind;

use crate::fed::{Fed, Wishes, on_both, string};

on_both! { it_means_a_copy }

const TABLE: &str =
    "CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(60)); INSERT INTO t VALUES (1, 'one'), (2, 'two')";
const SELECT: &str = "SELECT id, c FROM t";

fn it_means_a_copy(kind: Kind) {
    let fed = Fed::start(Wishes::of(kind), TABLE, vec![string("t", "test.t", &["id"], "c")]);
    let last = || {
        let logs = fed.sql("SHOW BINARY LOGS");
        let last = logs.lines().last().unwrap();
        last.split('\t').next().unwrap().to_owned()
    };
    let second = || fed.sql("SELECT UNIX_TIMESTAMP()");
    fed.until_served("t");
    fed.sql("UPDATE t SET c = '....'; FLUSH BINARY LOGS; UPDATE t SET c = 'aaaa'");
    fed.assert_same("t", SELECT);
    let (file, begun) = (last(), second());
    fed.sql("SET sql_log_bin = 0; ALTER USER forebay IDENTIFIED BY 'another'");
    let dumps = "SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'";
    for id in fed.sql(dumps).lines() {
        let _ = fed.sandbox.primary().sql(&format!("KILL {id}"));
    }
    fed.until("it cannot log in", || {
        fed.feed.status().stream().contains("Access denied")
    });
    fed.until("files begun now are of another second", || second() != begun);
    if fed.sandbox.primary().sql("RESET BINARY LOGS AND GTIDS").is_err() {
        fed.sql("RESET MASTER");
    }
    fed.sql(&"CREATE TABLE u (id INT); DROP TABLE u; ".repeat(20));
    while last() != file {
        fed.sql("FLUSH BINARY LOGS");
    }
    fed.sql("UPDATE t SET c = 'bbbb'; UPDATE t SET c = 'cccc' WHERE id = 1");
    fed.sql("SET sql_log_bin = 0; ALTER USER forebay IDENTIFIED BY 'forebay'");
    fed.assert_same("t", SELECT);
}
