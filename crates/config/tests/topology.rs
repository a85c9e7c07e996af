//! Who names the servers of a cluster, and how many of them take writes.

#![allow(
    clippy::unwrap_used,
    reason = "a test stops where something is not as it must be"
)]

use config::Config;
use expect_test::{Expect, expect};

/// Compares the messages for a text.
fn told(text: &str, expected: Expect) {
    let errors = Config::parse(text, "f.toml").unwrap_err();
    expected.assert_eq(&format!("{errors}\n"));
}

#[test]
fn servers_may_be_left_to_dns() {
    told(
        r#"
[[listener]]
bind = "127.0.0.1:6033"
cluster = "a"
[cluster.a]
servers = []
srv = "_mysql._tcp.db.example.com."
[cluster.b]
servers = []
srv = { name = "_mysql..example.com", server = "localhost" }
[cluster.c]
servers = []
"#,
        expect![[r#"
            f.toml:10:16: cluster.b.srv.name: expected a name such as "_mysql._tcp.db.example.com", found "_mysql..example.com"
            f.toml:10:48: cluster.b.srv.server: expected an IP address and port ("127.0.0.1:53", "[::1]:53"), found "localhost"
            f.toml:12:11: cluster.c.servers: expected at least one server, found none
        "#]],
    );
}

#[test]
fn several_writers_are_only_where_they_can_be() {
    told(
        r#"
[[listener]]
bind = "127.0.0.1:6033"
mode = "split"
cluster = "a"
[[listener]]
bind = "127.0.0.1:6034"
mode = "split"
cluster = "b"
read_consistency = "strong"
[[user]]
name = "app"
password = "x"
[[user]]
name = "strict"
password = "x"
read_consistency = "strong"
[cluster.a]
topology = "galera"
servers = ["db1"]
monitor = { user = "forebay" }
max_writers = 3
[cluster.b]
topology = "group-replication"
servers = ["db1"]
monitor = { user = "forebay" }
max_writers = 2
[cluster.c]
servers = ["db1"]
max_writers = 2
"#,
        expect![[r#"
            f.toml:17:20: user[1].read_consistency: expected another one than "strong", since [cluster.a] has `max_writers`, found "strong"
            f.toml:27:15: cluster.b.max_writers: expected 1, since reads are "strong" in line 10, found 2
            f.toml:30:15: cluster.c.max_writers: expected 1, since `topology` is "static", found 2
        "#]],
    );
}

#[test]
fn a_rule_for_listeners_of_several_modes_is_for_those_that_split() {
    let config = |mode: &str| {
        format!(
            r#"
[[listener]]
name = "one"
bind = "127.0.0.1:6033"
cluster = "a"
mode = "{mode}"
[[listener]]
name = "other"
bind = "127.0.0.1:6034"
cluster = "a"
mode = "session"
[[rule]]
listener = ["other", "one"]
refuse = "no"
[[user]]
name = "app"
password = "x"
[cluster.a]
servers = ["db1"]
"#
        )
    };
    Config::parse(&config("split"), "f.toml").unwrap();
    told(
        &config("session"),
        expect![[r#"
            f.toml:13:13: rule[0].listener[0]: expected the name of a listener of mode "split", found "other", of mode "session"
            f.toml:13:22: rule[0].listener[1]: expected the name of a listener of mode "split", found "one", of mode "session"
        "#]],
    );
}

#[test]
fn what_would_do_nothing_is_told() {
    told(
        r#"
[[listener]]
name = "plain"
bind = "127.0.0.1:6033"
cluster = "a"
unix_mode = "0600"
[[rule]]
listener = ["plain"]
refuse = "no"
[cluster.a]
servers = ["db1"]
max_lag = "5s"
[cluster.b]
servers = ["db1"]
max_lag = "0s"
[cluster.c]
servers = ["db1"]
max_lag = "5s"
monitor = { user = "forebay", discover = true, damping = "1s", heartbeat_table = "a.b" }
[cluster.d]
topology = "galera"
servers = ["db1"]
monitor = { user = "forebay", discover = false, damping = "1s", heartbeat_table = "a.b" }
max_transactions_behind = 5
donor_reads = true
[cluster.e]
topology = "replication"
servers = ["db1"]
monitor = { user = "forebay" }
max_transactions_behind = 5
donor_reads = true
"#,
        expect![[r#"
            f.toml:6:1: listener[0].unix_mode: expected this option only where `bind` is a socket's path, found it with 127.0.0.1:6033
            f.toml:8:13: rule[0].listener[0]: expected the name of a listener of mode "split", found "plain", of mode "session"
            f.toml:12:1: cluster.a.max_lag: expected this option only with a `monitor`, found it without, so that nobody knows the lag
            f.toml:19:31: cluster.c.monitor.discover: expected this option only with another `topology`, found it with "static", where it does nothing
            f.toml:19:48: cluster.c.monitor.damping: expected this option only with another `topology`, found it with "static", where it does nothing
            f.toml:23:65: cluster.d.monitor.heartbeat_table: expected this option only with another `topology`, found it with "galera", where it does nothing
            f.toml:30:1: cluster.e.max_transactions_behind: expected this option only with another `topology`, found it with "replication", where it does nothing
            f.toml:31:1: cluster.e.donor_reads: expected this option only with another `topology`, found it with "replication", where it does nothing
        "#]],
    );
}
