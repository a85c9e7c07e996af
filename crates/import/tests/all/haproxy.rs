//! Configurations of HAProxy: real shapes of them, what they become, and what is said about every other line.

use std::collections::BTreeSet;

use config::{Balance, CheckKind, Config, Mode, OnDown};
use expect_test::{Expect, ExpectFile, expect, expect_file};
use import::haproxy;
use proptest::prelude::*;

/// Compares the result, with the list of what has no equal at its end, and reads it as the configuration that
/// it is.
fn becomes(text: &str, expected: ExpectFile) -> Config {
    let imported = haproxy(text).unwrap();
    let notes: String = imported
        .without_equal
        .iter()
        .map(|note| format!("#: {note}\n"))
        .collect();
    expected.assert_eq(&format!("{}\n{notes}", imported.toml));
    every_line_is_told_of(text, &format!("{}\n{notes}", imported.toml));
    match Config::parse(&imported.toml, "imported") {
        Ok(config) => config,
        Err(errors) => panic!("{errors}"),
    }
}

/// Every line of a section that says something is named in the result, or is within a section that is left
/// out as a whole.
fn every_line_is_told_of(text: &str, result: &str) {
    let numbers = |line: &str| -> BTreeSet<usize> {
        let digits = line
            .split(|c: char| !c.is_ascii_digit())
            .filter(|part| !part.is_empty());
        digits.filter_map(|digits| digits.parse().ok()).collect()
    };
    let told: BTreeSet<usize> = result
        .lines()
        .filter(|line| line.contains("line ") || line.starts_with("# ") || line.starts_with("#: "))
        .flat_map(numbers)
        .collect();
    let mut left_out = false;
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let words = line.split('#').next().unwrap_or_default();
        if words.trim().is_empty() {
            continue;
        }
        if !words.starts_with(char::is_whitespace) {
            let beginning = format!("#: line {number}: ");
            left_out = result
                .lines()
                .any(|told| told.starts_with(&beginning) && told.contains("left out"));
            continue;
        }
        assert!(left_out || told.contains(&number), "line {number}: {line}");
    }
}

/// What is said of a listener with these lines.
fn told_of(lines: &str, expected: Expect) {
    let text =
        format!("listen db\nbind :3306\nserver db1 10.0.0.1:3306 check\noption mysql-check\n{lines}\n");
    let imported = haproxy(&text).unwrap();
    assert!(
        Config::parse(&imported.toml, "imported").is_ok(),
        "{}",
        imported.toml
    );
    expected.assert_eq(&(imported.without_equal.join("\n") + "\n"));
}

#[test]
fn two_ports_for_writes_and_reads() {
    let config = becomes(
        include_str!("../files/writes-and-reads.cfg"),
        expect_file!["../files/writes-and-reads.toml"],
    );
    let names: Vec<_> = config
        .listeners
        .iter()
        .map(|listener| listener.name.as_str())
        .collect();
    assert_eq!(names, ["mysql_write", "mysql_read", "mysql_read-2"]);
    assert!(
        config
            .listeners
            .iter()
            .all(|listener| listener.mode == Mode::Session)
    );
    let primary = &config.clusters["primary"];
    assert_eq!(
        (primary.balance, primary.on_down),
        (Balance::Weighted, OnDown::Close)
    );
    assert_eq!((primary.check.rise, primary.check.fall), (3, 2));
    assert_eq!(primary.check.user.as_deref(), Some("haproxy_check"));
    assert!(primary.servers[1].backup);
    let replicas = &config.clusters["replicas"];
    assert_eq!(
        replicas
            .servers
            .iter()
            .map(|server| server.weight)
            .collect::<Vec<_>>(),
        [100, 50, 0]
    );
    assert_eq!(replicas.on_down, OnDown::Keep);
}

#[test]
fn galera_behind_a_balancer() {
    let config = becomes(
        include_str!("../files/galera.cfg"),
        expect_file!["../files/galera-haproxy.toml"],
    );
    assert_eq!(
        config.clusters.keys().collect::<Vec<_>>(),
        ["galera", "galera-trusted"]
    );
    let galera = &config.clusters["galera"];
    assert!(galera.send_proxy);
    assert_eq!((galera.check.kind, galera.queue_max), (CheckKind::Greeting, 384));
    // HAProxy waits in the queue as long as it does for a connection, unless it is told otherwise.
    assert_eq!(galera.queue_timeout.as_secs(), 3);
    assert_eq!(galera.check.timeout.as_millis(), 1500);
    assert_eq!(config.listeners[0].client_idle_timeout.as_secs(), 1800);
    assert_eq!(config.listeners[1].client_idle_timeout.as_secs(), 12 * 3600);
    assert_eq!(config.listeners[1].accept_proxy_from.len(), 2);
    // Where no port is written, it is the clients'.
    assert_eq!(
        config.clusters["galera-trusted"].servers[0].address.to_string(),
        "pxc1.internal:3310"
    );
}

/// Whoever had one writer has one, however that was said.
#[test]
fn one_server_at_a_time_stays_one() {
    let config = becomes(
        include_str!("../files/one-writer.cfg"),
        expect_file!["../files/one-writer.toml"],
    );
    let normal = |cluster: &str| -> Vec<&str> {
        let servers = config.clusters[cluster].servers.iter();
        let normal = servers.filter(|server| !server.backup && server.weight > 0);
        normal.map(|server| server.name.as_str()).collect()
    };
    assert_eq!(normal("galera_write"), ["node1"]);
    assert_eq!(normal("galera_stuck"), ["node1"]);
    assert_eq!(normal("galera_by_port"), ["node2"], "the first gets none");
    assert_eq!(normal("galera_by_id"), ["node3"]);
    assert_eq!(normal("galera_hashed"), ["node1"]);
    assert_eq!(normal("galera_read"), ["node1", "node2", "node3"]);
    assert_eq!(normal("mr"), ["node2", "node3"]);
    assert!(!config.clusters.contains_key("mw"));
}

#[test]
fn tls_on_both_sides() {
    let config = becomes(
        include_str!("../files/tls.cfg"),
        expect_file!["../files/tls.toml"],
    );
    let listener = &config.listeners[0];
    assert_eq!(listener.tls.cert, listener.tls.key);
    assert_eq!(
        listener.tls.client_ca.as_ref().unwrap(),
        "/etc/haproxy/ca/clients.pem"
    );
    assert_eq!(config.clusters["aws-rds"].tls.verify, config::Verify::Identity);
}

#[test]
fn slips_and_words_that_nobody_knows_are_named() {
    told_of(
        "ballance roundrobin\ntimeout clinet 3s\ntimeout client 3 s\nserver db2 10.0.0.2:3306 check wieght 3\n\
         server db3 10.0.0.1:3306\nserver db4 :3306\nbind db:3307\nbind :${PORT}\nmaxconn many\nbalance url_param a\n\
         option fancy\nbind :3308 ssl\nserver db5 10.0.0.5:3306 check weight 300 inter soon",
        expect![[r#"
            line 5: `ballance roundrobin`: not known; left out
            line 6: `timeout clinet 3s`: not known; left out
            line 8: `3`: not known; left out
            line 8: `wieght`: not known; left out
            line 9: `server db3 10.0.0.1:3306`: the same server as in line 3; left out
            line 10: `server db4 :3306`: no equal: where the client wanted to go is not known; left out
            line 11: `bind db:3307`: write the address of db in `bind`: names are not looked up there; left out
            line 12: `$`: a variable of the environment, of which only HAProxy knows the value; it stands as it is written
            line 12: `bind :${PORT}`: no port from 1 to 65535; left out
            line 13: `maxconn many`: no whole number; left out
            line 14: `balance url_param a`: no equal; `least-connections` is written
            line 15: `option fancy`: not known; left out
            line 16: `ssl`: no `crt`; `bind 0.0.0.0:3308` is left out: it would be open without TLS
            line 17: `inter soon`: no time; left out
        "#]],
    );
}

/// As versions before 1.7 and 2.1 had it, and as it still stands in many places.
#[test]
fn old_words_are_known() {
    let text = "defaults\n  redispatch\n  contimeout 5000\n  clitimeout 50000\n  srvtimeout 60000\n\
                listen db 0.0.0.0:3306\n  option mysql-check\n  server db1 10.0.0.1 check\n";
    let imported = haproxy(text).unwrap();
    assert_eq!(imported.without_equal, [""; 0]);
    let config = Config::parse(&imported.toml, "imported").unwrap();
    assert_eq!(config.listeners[0].bind.to_string(), "0.0.0.0:3306");
    assert_eq!(config.listeners[0].client_idle_timeout.as_secs(), 50);
    let cluster = &config.clusters["db"];
    assert_eq!(
        (
            cluster.connect_timeout.as_secs(),
            cluster.server_idle_timeout.as_secs()
        ),
        (5, 60)
    );
}

/// Nobody gets in, and nobody is trusted, who was not before.
#[test]
fn encryption_is_not_lost_on_the_way() {
    let of = |bind: &str, server: &str| {
        haproxy(&format!(
            "global\nssl-server-verify none\nlisten db\nbind :3306\nbind :3307 {bind}\nserver a 10.0.0.1:3306 check {server}\n"
        ))
        .unwrap()
    };
    for bind in [
        "ssl",
        "ssl crt certs/",
        "ssl crt a.pem verify required",
        "ssl crt a.pem verify required ca-file @x",
    ] {
        let imported = of(bind, "");
        assert_eq!(
            imported.toml.matches("[[listener]]").count(),
            1,
            "{bind}: {}",
            imported.toml
        );
        assert!(
            imported
                .without_equal
                .join("\n")
                .contains("it would be open without TLS"),
            "{bind}"
        );
    }
    let verify = |server: &str| {
        let imported = of("", server);
        let needs_a_hand = imported
            .without_equal
            .iter()
            .any(|line| line.starts_with("needs a hand"));
        let verify = imported
            .toml
            .lines()
            .find(|line| line.starts_with("verify = "))
            .map(str::to_owned);
        (verify.unwrap_or_default(), needs_a_hand)
    };
    assert_eq!(verify("ssl"), ("verify = \"off\"".to_owned(), false));
    assert_eq!(
        verify("ssl verify none ca-file a.pem"),
        ("verify = \"off\"".to_owned(), false)
    );
    assert_eq!(
        verify("ssl verify required ca-file @system-ca"),
        ("verify = \"ca\"".to_owned(), false)
    );
    assert_eq!(
        verify("ssl verify required ca-file /etc/ssl/certs/"),
        ("verify = \"ca\"".to_owned(), true)
    );
    let mixed = "ssl verify required ca-file a.pem\nserver b 10.0.0.2:3306 check ssl verify none";
    assert_eq!(verify(mixed), ("verify = \"ca\"".to_owned(), false));
}

#[test]
fn figures_beyond_ours_are_told() {
    told_of(
        "timeout connect 20m\ntimeout client 0\nbacklog 100000\ndefault-server inter 1ms rise 5000\nserver db2 10.0.0.2:3306",
        expect![[r#"
            line 1: `listen db`: not every server has `check`; here all are checked
            line 5: 20m is beyond what `connect_timeout` takes: 10m
            line 7: 100000 is beyond what `backlog` takes: 65535
            line 8: 1ms is beyond what `interval` takes: 50ms
            line 8: 1ms is beyond what `timeout` takes: 10ms
            line 8: `inter`: not the same for all servers of `db`; the smallest is taken for all
            line 8: `rise`: not the same for all servers of `db`; the smallest is taken for all
        "#]],
    );
}

/// Servers that say nothing have the usual figure, which may be the smallest.
#[test]
fn figures_of_some_servers_do_not_make_the_checks_of_others_rarer() {
    let text = "listen db\n bind :3306\n server a 10.0.0.1:3306 check inter 30s fall 2\n server b 10.0.0.2:3306 check fall 2\n";
    let imported = haproxy(text).unwrap();
    let config = Config::parse(&imported.toml, "imported").unwrap();
    let check = &config.clusters["db"].check;
    assert_eq!((check.interval.as_secs(), check.fall), (2, 2));
    let notes = imported.without_equal.join("\n");
    assert_eq!(notes.matches("not the same").count(), 1, "{notes}");
    assert!(notes.contains("line 3: `inter`: not the same"), "{notes}");
}

/// 0 is the default there: the limit of the process.
#[test]
fn no_limit_of_a_section_is_none_here() {
    let text = "global\n maxconn 0\ndefaults\n maxconn 500\nlisten db\n bind :3306 maxconn 0\n bind :3307 maxconn 7\n maxconn 0\n \
                option mysql-check\n server db1 10.0.0.1:3306 check maxconn 0\n";
    let imported = haproxy(text).unwrap();
    assert_eq!(imported.without_equal, [""; 0]);
    let config = Config::parse(&imported.toml, "imported").unwrap();
    assert_eq!(config.max_connections, None);
    let listeners = config.listeners.iter();
    let limits: Vec<_> = listeners.map(|listener| listener.max_connections).collect();
    assert_eq!(limits, [None, Some(7)]);
}

/// Ports that follow the client's are none that could be written down.
#[test]
fn servers_without_a_port_behind_several_are_told() {
    told_of(
        "bind :3307\nserver db2 10.0.0.2 check",
        expect![[r#"
            line 6: `server db2 10.0.0.2`: no port; it is 3306 here, and the one that the client came to there
        "#]],
    );
    let text = "listen db\nbind :3307\noption mysql-check\nserver db1 10.0.0.1 check\n";
    assert_eq!(haproxy(text).unwrap().without_equal, [""; 0]);
}

#[test]
fn sessions_that_were_never_idle_too_long_stay() {
    let of = |timeouts: &str| {
        let text = format!("listen db\nbind :3306\noption mysql-check\nserver a 10.0.0.1 check\n{timeouts}");
        let imported = haproxy(&text).unwrap();
        let config = Config::parse(&imported.toml, "imported").unwrap();
        config.listeners[0].client_idle_timeout.as_secs()
    };
    assert_eq!(of("timeout client 0"), 0);
    assert_eq!(of("timeout client 0\ntimeout server 1h"), 3600);
    assert_eq!(of("timeout client 0\ntimeout tunnel 2h"), 7200);
}

#[test]
fn what_would_open_more_or_shut_out_is_told() {
    told_of(
        "tcp-request connection expect-proxy layer4 if { src -f proxies.lst }\nbind :3307 interface eth1\n.if defined(X)\ntimeout client 5s\n.endif",
        expect![[r#"
            line 5: `tcp-request connection expect-proxy layer4 if { src -f proxi…`: needs a hand: who sends a PROXY header cannot log in without its network in `accept_proxy_from`
            line 6: `interface eth1`: no equal: it listens on all interfaces here; bind the address of that one
            line 7: `.if defined(X)`: not looked at: the lines of all branches count
        "#]],
    );
}

/// What comes instead, and what is not for us.
#[test]
fn files_of_something_else_are_told_for_what_they_are() {
    let told = |text: &str| haproxy(text).unwrap_err().to_string();
    let nothing = "line 1: nothing here is HAProxy's: expected an haproxy.cfg with `listen`, or `frontend` and `backend`";
    for text in [
        "",
        "[[listener]]\nbind = \"a\"\n",
        "mysql_servers = ( )",
        "global\n maxconn 5\n",
    ] {
        assert_eq!(told(text), nothing, "{text}");
    }
    assert_eq!(
        told("\u{1f}\u{fffd}\u{8}"),
        "line 1: this is no text: unpack it first"
    );
    assert_eq!(told("listen a\n  bind ':80"), "line 2: a ' without its end");
    expect!["line 1: nothing here leads to servers of MySQL; line 1: `frontend web`: `mode http` is not of MySQL; left out, with its 3 lines; line 5: `backend app`: `mode http` is not of MySQL; left out, with its 2 lines"].assert_eq(&told(
        "frontend web\n mode http\n bind :80\n default_backend app\nbackend app\n mode http\n server a 10.0.0.1:8080\n",
    ));
    expect!["line 1: nothing here leads to servers of MySQL; line 3: `frontend db`: there is no server behind `nowhere` that is taken over; left out; line 4: `backend empty`: no server; left out"].assert_eq(&told(
        "frontend db\n bind :3306\n default_backend nowhere\nbackend empty\n",
    ));
}

proptest! {
    /// Whatever is cut out of a file: an answer, and what is answered is a configuration or says what it
    /// lacks.
    #[test]
    fn a_broken_file_is_answered(from in 0..2_400_usize, length in 0..400_usize) {
        for text in [include_str!("../files/writes-and-reads.cfg"), include_str!("../files/galera.cfg"), include_str!("../files/tls.cfg")] {
            let (from, to) = (from.min(text.len()), (from + length).min(text.len()));
            let cut = format!("{}{}", &text[..from], &text[to..]);
            import::fuzzing::import_haproxy(cut.as_bytes());
        }
    }
}
