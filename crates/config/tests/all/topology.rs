//! Who names the servers of a cluster, and how many of them take writes.

use config::{Config, ServerAddress};
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
fn servers_may_be_left_to_pd() {
    let text = r#"
zone = "east"
[[listener]]
bind = "127.0.0.1:6033"
cluster = "a"
[cluster.a]
topology = "tidb"
servers = []
pd = ["pd1:2379", "[::1]:2379"]
[cluster.b]
topology = "tidb"
servers = [{ address = "tidb1:4000", status_port = 10080 }]
pd = { addresses = ["pd1:2379"], keyspace = 42, max_connections = 9, tls = { mode = "required", ca = "/dev/null" } }
"#;
    let config = Config::parse(text, "f.toml").unwrap();
    let [a, b] = ["a", "b"].map(|name| config.clusters[name].pd.clone().unwrap());
    let address = |text| ServerAddress::parse(text).unwrap();
    assert_eq!(a.addresses, [address("pd1:2379"), address("[::1]:2379")]);
    assert_eq!((b.keyspace, b.max_connections), (Some(42), 9));
    assert_eq!(b.tls.verify, config::Verify::Identity);
    told(
        r#"
[[listener]]
bind = "127.0.0.1:6033"
cluster = "a"
[cluster.a]
servers = [{ address = "db1", status_port = 10080 }]
pd = ["pd1", "/run/pd.sock"]
[cluster.b]
topology = "tidb"
servers = [{ address = "tidb1:4000", role = "primary", status_port = 0 }]
pd = { addresses = [], tls = { mode = "preferred" } }
monitor = { user = "forebay" }
srv = "_mysql._tcp.db"
max_lag = "3s"
[cluster.c]
topology = "tidb"
servers = []
pd = "pd1:2379"
"#,
        expect![[r#"
            f.toml:6:31: cluster.a.servers[0].status_port: expected this option only with `topology = "tidb"`, found it with "static"
            f.toml:7:1: cluster.a.pd: expected this option only with `topology = "tidb"`, found it with "static"
            f.toml:7:7: cluster.a.pd.addresses[0]: expected a host and the port of PD for clients ("pd1:2379"), found pd1:3306
            f.toml:7:14: cluster.a.pd.addresses[1]: expected a host and the port of PD for clients ("pd1:2379"), found /run/pd.sock
            f.toml:10:45: cluster.b.servers[0].role: expected no role, since `topology` is "tidb", found "primary"
            f.toml:10:70: cluster.b.servers[0].status_port: expected a whole number from 1 to 65535, found 0
            f.toml:11:1: cluster.b.pd: expected one that names the servers, found both `srv` and `pd`
            f.toml:11:39: cluster.b.pd.tls.mode: expected "off" or "required", found "preferred"
            f.toml:12:1: cluster.b.monitor: expected no monitor, found one, since `topology` is "tidb"; give the account to `check`
            f.toml:14:1: cluster.b.max_lag: expected this option only with another `topology`, found it with "tidb", where it does nothing
            f.toml:18:6: cluster.c.pd.addresses: expected a list; each is "host", "host:port", "[IPv6]:port" or a socket's absolute path, found "pd1:2379"; put it in brackets: [ … ]
        "#]],
    );
}

#[test]
fn sessions_that_share_nothing_are_all_that_tidb_has() {
    let text = r#"
[[listener]]
bind = "127.0.0.1:6033"
mode = "split"
sharing = "never"
cluster = "a"
[cluster.a]
topology = "tidb"
servers = ["tidb1:4000"]
[[rule]]
text = "x"
refuse = "no"
"#;
    let config = Config::parse(text, "f.toml").unwrap();
    assert!(config.listeners[0].shares_never() && !config.listeners[0].shares());
    assert!(!config.clusters["a"].uses_roles);
    told(
        r#"
[[listener]]
bind = "127.0.0.1:6033"
mode = "split"
cluster = "a"
[[listener]]
bind = "127.0.0.1:6034"
mode = "split"
sharing = "never"
read_consistency = "eventual"
point_lookups = true
cluster = "a"
[[listener]]
bind = "127.0.0.1:6035"
sharing = "never"
cluster = "a"
[cluster.a]
topology = "tidb"
servers = ["tidb1:4000"]
[[user]]
name = "app"
password = ""
[[rule]]
schema = ["secret"]
refuse = "no"
[[rule]]
table = ["secret.t", "t"]
refuse = "no"
[[rule]]
table = ["t"]
refuse = "no"
"#,
        expect![[r#"
            f.toml:4:8: listener[0].mode: expected `sharing = "never"` with it, since `topology` is "tidb", found "split" without; TiDB does not tell what a statement does to its session
            f.toml:10:1: listener[1].read_consistency: expected this option only where connections are shared, found it with `sharing = "never"`
            f.toml:11:17: listener[1].point_lookups: expected a [cache] whose rows are read, found true without any [cache]; add [cache] with `cluster`, and [[cache.mapping]]
            f.toml:15:1: listener[2].sharing: expected this option only in mode "split", found it in mode "session"
            f.toml:24:1: rule[0].schema: expected a rule without a schema, found one, for a listener before TiDB, which does not tell the present schema; say in `listener` for which the rule is
            f.toml:27:1: rule[1].table: expected a rule without a schema, found one, for a listener before TiDB, which does not tell the present schema; say in `listener` for which the rule is
        "#]],
    );
}

#[test]
fn who_is_ignored_is_nobody_who_is_wanted() {
    told(
        r#"
[[listener]]
bind = "127.0.0.1:6033"
cluster = "a"
[cluster.a]
topology = "replication"
servers = ["db1", "db2:3307"]
monitor = { user = "forebay" }
discover_ignore = [
    "db3",
    "DB2:3307",
    "db2",
    "/run/mysqld.sock",
    "db3:3306",
    "db4:0",
]
[cluster.b]
servers = ["db1"]
discover_ignore = ["db2"]
"#,
        expect![[r#"
            f.toml:11:5: cluster.a.discover_ignore[1]: expected an address that is not among `servers`, found DB2:3307, which is in line 7
            f.toml:13:5: cluster.a.discover_ignore[3]: expected a host, or a host and port, found a socket, by which nobody names a member
            f.toml:14:5: cluster.a.discover_ignore[4]: expected each address once, found db3:3306 a second time, first in line 10
            f.toml:15:5: cluster.a.discover_ignore[5]: expected "host", "host:port", "[IPv6]:port" or a socket's absolute path, found "db4:0"; a port is a number from 1 to 65535
            f.toml:19:1: cluster.b.discover_ignore: expected this option only with another `topology`, found it with "static", where it does nothing
        "#]],
    );
    let taken = Config::parse(
        r#"
listener = [{ bind = "127.0.0.1:6033", cluster = "a" }]
[cluster.a]
topology = "replication"
servers = ["db1"]
monitor = { user = "forebay" }
discover_ignore = ["db2", "[::1]:3307"]
"#,
        "f.toml",
    );
    let cluster = &taken.unwrap().clusters["a"];
    let ignores = |host: &str, port| {
        let host = host.to_owned();
        cluster.ignores(&ServerAddress::Host { host, port })
    };
    assert!(ignores("DB2.", 3306) && ignores("0::1", 3307) && !ignores("db1", 3306));
    assert!(cluster.discovers());
}

#[test]
fn roles_matter_to_those_who_go_by_them() {
    let config = r#"
[[listener]]
bind = "127.0.0.1:6033"
cluster = "plain"
[[listener]]
bind = "127.0.0.1:6034"
mode = "split"
cluster = "split"
[[rule]]
mirror = "copies"
[[user]]
name = "app"
password = "x"
[cluster.plain]
servers = ["db1", "db2"]
[cluster.split]
servers = ["db1"]
[cluster.copies]
servers = ["db2"]
[cluster.followed]
topology = "replication"
servers = ["db1"]
monitor = { user = "forebay" }
"#;
    let config = Config::parse(config, "f.toml").unwrap();
    let by_roles = config.clusters.values().filter(|cluster| cluster.uses_roles);
    let names: Vec<&str> = by_roles.map(|cluster| cluster.name.as_str()).collect();
    assert_eq!(names, ["copies", "followed", "split"]);
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
[[listener]]
bind = "127.0.0.1:6035"
mode = "split"
cluster = "d"
sharing = "never"
[cluster.d]
topology = "galera"
servers = ["db1"]
monitor = { user = "forebay" }
max_writers = 2
"#,
        expect![[r#"
            f.toml:17:20: user[1].read_consistency: expected another one than "strong", since [cluster.a] has `max_writers`, found "strong"
            f.toml:27:15: cluster.b.max_writers: expected 1, since reads are "strong" in line 10, found 2
            f.toml:30:15: cluster.c.max_writers: expected 1, since `topology` is "static", found 2
            f.toml:40:15: cluster.d.max_writers: expected 1, since sessions keep one server in line 35, found 2
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

#[test]
fn who_drains_is_a_server_and_not_the_last() {
    told(
        r#"
[[listener]]
bind = "127.0.0.1:6033"
cluster = "a"
[cluster.a]
servers = ["db1", { address = "db2", name = "second" }, "db3"]
drain = ["secnd", "db1:3306", "db1:3306"]
[cluster.b]
servers = ["db1", "db2"]
drain = ["db1:3306", "db2:3306"]
[cluster.c]
servers = ["db1"]
drain = ["db1:3306"]
[cluster.d]
servers = ["db1", "db2", "db3"]
drain = ["db1:3306", "db2:3306"]
group.reports.servers = ["db2:3306"]
"#,
        expect![[r#"
            f.toml:7:10: cluster.a.drain[0]: expected the name of a server of the cluster, found "secnd"; did you mean `second`?
            f.toml:7:31: cluster.a.drain[2]: expected each server once, found "db1:3306" a second time, first in line 7
            f.toml:10:9: cluster.b.drain: expected a server that is left to take sessions, found all servers of the cluster; drain one after the other
            f.toml:13:9: cluster.c.drain: expected a server that is left to take sessions, found all servers of the cluster; drain one after the other
            f.toml:17:25: cluster.d.group.reports.servers: expected a server that is not in `drain`, found none; statements for the group would be refused
        "#]],
    );
    // Members beyond the list have names that nobody knows before they are there.
    let taken = Config::parse(
        r#"
listener = [{ bind = "127.0.0.1:6033", cluster = "a" }]
[cluster.a]
topology = "replication"
servers = ["db1"]
monitor = { user = "forebay" }
drain = ["db1:3306", "db7:3306"]
"#,
        "f.toml",
    );
    let cluster = &taken.unwrap().clusters["a"];
    assert!(cluster.drains("db7:3306") && !cluster.drains("db2:3306"));
}
