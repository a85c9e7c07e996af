//! What is right and mostly not meant is told.

use config::{Config, setup_worries};

const LIMITED: &str = "servers = [{ address = \"db1\", max_connections = 8 }]\n";

fn told(mode: &str, cluster: &str, tables: &str) -> Vec<String> {
    let text = format!(
        "[[listener]]\nname = \"clients\"\nbind = \"127.0.0.1:7000\"\ncluster = \"main\"\nmode = \"{mode}\"\n\
         [[user]]\nname = \"app\"\npassword = \"x\"\n[cluster.main]\n{cluster}\n{tables}"
    );
    setup_worries(&Config::parse(&text, "f.toml").unwrap())
}

#[track_caller]
fn only(worries: &[String], words: &[&str]) {
    assert_eq!(worries.len(), 1, "{worries:?}");
    for words in words {
        assert!(worries[0].contains(words), "{words}: {worries:?}");
    }
}

#[test]
fn a_rule_without_an_action() {
    let rule = |options: &str| {
        told(
            "split",
            LIMITED,
            &format!("[[rule]]\nname = \"empty\"\n{options}"),
        )
    };
    only(
        &rule("user = [\"app\"]"),
        &["rule[empty]: no action", "rules behind it"],
    );
    only(
        &rule("continue = true"),
        &["rule[empty]: no action", "it does nothing"],
    );
    for action in [
        "route = \"primary\"",
        "log = true",
        "enabled = false",
        "retries = 0",
        "rate = 5",
    ] {
        assert_eq!(rule(action), [""; 0], "{action}");
    }
}

#[test]
fn servers_of_mode_split_without_a_limit() {
    let servers = "servers = [{ address = \"db1\", role = \"primary\" }, { address = \"db2\", max_connections = 8 }, \"db3\"]";
    only(
        &told("split", servers, ""),
        &["cluster.main: no `max_connections` for db1:3306, db3:3306:"],
    );
    assert_eq!(told("session", servers, ""), [""; 0]);
    assert_eq!(told("split", LIMITED, ""), [""; 0]);
    only(
        &told(
            "split",
            "servers = []\nsrv = \"_mysql._tcp.db\"\ntopology = \"galera\"\nmonitor = { user = \"m\", password = \"x\" }",
            "",
        ),
        &["for _mysql._tcp.db:"],
    );
}

#[test]
fn an_admin_server_that_others_reach() {
    for open in ["0.0.0.0:6080", "10.0.0.1:6080", "[::]:6080"] {
        let worries = told("split", LIMITED, &format!("[admin]\nbind = \"{open}\""));
        only(&worries, &["admin: ", open, "not loopback"]);
    }
    for own in ["127.0.0.1:6080", "127.9.9.9:6080", "[::1]:6080"] {
        assert_eq!(
            told("split", LIMITED, &format!("[admin]\nbind = \"{own}\"")),
            [""; 0]
        );
    }
}

#[test]
fn an_account_of_the_checks_without_its_password() {
    let cluster = |tables: &str| told("split", LIMITED, tables);
    only(
        &cluster("[cluster.main.check]\nuser = \"forebay\""),
        &["cluster.main.check: `user` \"forebay\" has no password"],
    );
    only(
        &cluster("[cluster.main.monitor]\nuser = \"forebay\""),
        &["cluster.main.monitor: `user` \"forebay\" has no password"],
    );
    for tables in [
        "[cluster.main.check]\nuser = \"forebay\"\npassword = \"\"",
        "[cluster.main.check]\nuser = \"forebay\"\npassword_env = \"X\"",
        "[cluster.main.check]\nuser = \"m\"\n[cluster.main.monitor]\nuser = \"m\"\npassword_file = \"f\"",
        "[cluster.main.monitor]\nuser = \"m\"\npassword = \"x\"",
    ] {
        assert_eq!(cluster(tables), [""; 0], "{tables}");
    }
}

#[test]
fn sessions_that_are_to_move_without_a_password() {
    let told = |listener: &str, cluster: &str| {
        let text = format!(
            "[[listener]]\nbind = \"127.0.0.1:7000\"\ncluster = \"main\"\n{listener}\n[cluster.main]\n{LIMITED}{cluster}"
        );
        setup_worries(&Config::parse(&text, "f.toml").unwrap())
    };
    only(
        &told("moves = true", ""),
        &["listener 127.0.0.1:7000: `moves` is on", "[[user]]"],
    );
    let of_servers = "accounts = \"servers\"\nmonitor = { user = \"watcher\", password = \"x\" }";
    assert!(told("moves = true", of_servers).is_empty());
    only(
        &told("moves = true", "topology = \"tidb\""),
        &["listener 127.0.0.1:7000: `moves` is on", "TLS only"],
    );
    let over_tls = "topology = \"tidb\"\ntls = { mode = \"required\" }";
    assert!(told("moves = true", over_tls).is_empty());
    assert!(told("", "").is_empty());
}
