//! A changed configuration is told option by option, with what each change takes.

use config::{Config, Reload};
use expect_test::{Expect, expect};

const OLD: &str = r#"
workers = 2
[[listener]]
bind = "127.0.0.1:6033"
cluster = "main"
[cluster.main]
servers = ["db1", { address = "db2", weight = 2 }]
check = { user = "forebay", password = "old-secret" }
"#;

fn parse(text: &str) -> Config {
    Config::parse(text, "f.toml").unwrap_or_else(|errors| panic!("{errors}"))
}

fn differs(new: &str, expected: Expect) {
    expected.assert_eq(&format!("{}\n", parse(OLD).diff(&parse(new))));
}

#[test]
fn the_same_options_in_other_words_are_no_change() {
    let same = OLD
        .replace("\"db1\"", "{ address = \"db1:3306\" }")
        .replace("workers = 2", "watch = true\nworkers = 2");
    assert!(parse(OLD).diff(&parse(&same)).is_empty());
}

#[test]
fn every_change_has_its_class() {
    differs(
        r#"
workers = 4
max_connections = 10
[log]
level = "debug"
[admin]
bind = "127.0.0.1:6080"
[[listener]]
bind = "127.0.0.1:6033"
cluster = "main"
max_connections = 5
login_timeout = "3s"
[[listener]]
bind = "127.0.0.1:6034"
cluster = "main"
mode = "tcp"
[cluster.main]
servers = [{ address = "db2", weight = 3 }, "db3"]
check = { user = "forebay", password = "new-secret" }
"#,
        expect![[r#"
            workers: 2 -> 4 (restart)
            max_connections: added (live)
            log.level: "info" -> "debug" (live)
            admin: added (restart)
            listener[127.0.0.1:6033].max_connections: added (live)
            listener[127.0.0.1:6033].login_timeout: "10s" -> "3s" (new sessions)
            listener[127.0.0.1:6034]: added (live)
            cluster.main.servers[db1:3306]: removed (live)
            cluster.main.servers[db2:3306].weight: 2 -> 3 (new sessions)
            cluster.main.servers[db3:3306]: added (live)
            cluster.main.check.password: changed (live)
        "#]],
    );
}

#[test]
fn listeners_keep_their_identity_by_name() {
    let old = OLD.replace("cluster = \"main\"", "cluster = \"main\"\nname = \"apps\"");
    let new = old.replace("6033", "6099");
    let diff = parse(&old).diff(&parse(&new));
    let changes: Vec<_> = diff
        .changes
        .iter()
        .map(|change| (change.path.as_str(), change.reload))
        .collect();
    assert_eq!(changes, [("listener[apps].bind", Reload::Live)]);
    assert_eq!(diff.of(Reload::Restart).count(), 0);
    assert_eq!(diff.of(Reload::Live).count(), 1);
}

#[test]
fn a_removed_cluster_is_told_as_a_whole() {
    let old = format!("{OLD}[cluster.spare]\nservers = [\"db9\"]\n");
    let diff = parse(&old).diff(&parse(OLD));
    assert_eq!(diff.to_string(), "cluster.spare: removed (live)");
}

#[test]
fn options_of_mode_split_have_their_classes() {
    let old = r#"
zone = "a"
[[listener]]
bind = "127.0.0.1:6033"
mode = "split"
cluster = "main"
[cluster.main]
servers = [{ address = "db1", role = "primary" }, "db2"]
[[user]]
name = "app"
password = "hunter2"
[[user]]
name = "old"
password = "hunter2"
"#;
    let new = r#"
users_file = "users.toml"
[[listener]]
bind = "127.0.0.1:6033"
mode = "split"
cluster = "main"
read_consistency = "strong"
[cluster.main]
servers = ["db1", { address = "db2", zone = "a" }]
topology = "replication"
monitor = { user = "forebay", password = "hunter2" }
failover_wait = "1s"
pool = { init = ["SET @a = 1"], max_age = "0s" }
[[user]]
name = "app"
native_hash = "*2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19"
pooling = "session"
max_connections = 5
"#;
    let diff = parse(old).diff(&parse(new)).to_string();
    assert!(!diff.contains("hunter2") && !diff.contains("2470C0"), "{diff}");
    expect![[r#"
        listener[127.0.0.1:6033].read_consistency: "session" -> "strong" (new sessions)
        cluster.main.servers[db1:3306].role: removed (live)
        cluster.main.servers[db2:3306].zone: added (live)
        cluster.main.topology: "static" -> "replication" (live)
        cluster.main.monitor: added (live)
        cluster.main.failover_wait: "10s" -> "1s" (live)
        cluster.main.pool.max_age: "1h" -> "0s" (live)
        cluster.main.pool.init: [] -> ["SET @a = 1"] (live)
        cluster.main.check.kind: "greeting" -> "login" (live)
        cluster.main.check.user: added (live)
        cluster.main.check.password: added (live)
        user[app].password: removed (live)
        user[app].native_hash: added (live)
        user[app].pooling: "transaction" -> "session" (new sessions)
        user[app].max_connections: added (live)
        user[old]: removed (live)
        users_file: added (live)
        zone: removed (live)
    "#]]
    .assert_eq(&format!("{diff}\n"));
}

#[test]
fn mappings_of_the_cache_are_taken_over_live() {
    let before = OLD.replace("\"db1\"", "{ address = \"db1\", role = \"primary\" }");
    let cache = |mappings: &str| {
        format!("{before}[cache]\ncluster = \"main\"\naccount = {{ user = \"a\" }}\n{mappings}")
    };
    let mapping = |name: &str, key: &str| {
        format!(
            "[[cache.mapping]]\nname = \"{name}\"\nkind = \"string\"\ntable = \"s.t\"\nkey = [\"{key}\"]\nvalue = [\"v\"]\n"
        )
    };
    let old = parse(&cache(&[mapping("a", "id"), mapping("b", "id")].concat()));
    let new = parse(&cache(&[mapping("b", "other"), mapping("c", "id")].concat()));
    let diff = old.diff(&new);
    assert_eq!(diff.changes.len(), 3, "{diff}");
    assert!(diff.of(Reload::Restart).next().is_none(), "{diff}");
    let gone = old.diff(&parse(&before));
    assert_eq!(gone.of(Reload::Restart).count(), 1, "{gone}");
}

#[test]
fn another_order_of_rules_is_a_change() {
    let text = OLD
        .replace("cluster = \"main\"", "cluster = \"main\"\nmode = \"split\"")
        .replace("\"db1\"", "{ address = \"db1\", role = \"primary\" }");
    let text = format!("{text}[[user]]\nname = \"app\"\npassword = \"\"\n");
    let rules = |names: [&str; 3]| {
        let rule = |name: &str| format!("[[rule]]\nname = \"{name}\"\nrefuse = \"{name}\"\n");
        parse(&[text.clone(), names.map(rule).concat()].concat())
    };
    let old = rules(["a", "b", "c"]);
    let diff = |names| old.diff(&rules(names)).to_string();
    assert_eq!(diff(["a", "b", "c"]), "");
    assert_eq!(diff(["b", "a", "c"]), "rule: one order -> another order (live)");
    assert_eq!(
        diff(["d", "b", "c"]),
        "rule[a]: removed (live)\nrule[d]: added (live)"
    );
}
