//! Configurations of ProxySQL: real shapes of them, what they become, and what is said about the rest.

use config::Config;
use expect_test::{ExpectFile, expect_file};
use import::proxysql;
use proptest::prelude::*;

/// Compares the result, with the list of what has no equal at its end, and reads it as the configuration that
/// it is.
fn becomes(text: &str, expected: ExpectFile) -> Config {
    let imported = proxysql(text).unwrap();
    let notes: String = imported
        .without_equal
        .iter()
        .map(|note| format!("#: {note}\n"))
        .collect();
    expected.assert_eq(&format!("{}\n{notes}", imported.toml));
    match Config::parse(&imported.toml, "imported") {
        Ok(config) => config,
        Err(errors) => panic!("{errors}"),
    }
}

#[test]
fn a_replication_pair_with_rules_from_sqlite() {
    let config = becomes(
        include_str!("../files/replication.sql"),
        expect_file!["../files/replication.toml"],
    );
    assert_eq!(config.clusters.len(), 1);
    assert!(config.clusters["main"].groups["hostgroup-30"].exclusive);
}

#[test]
fn galera_from_mysqldump() {
    let config = becomes(
        include_str!("../files/galera.sql"),
        expect_file!["../files/galera.toml"],
    );
    assert_eq!(
        config.clusters.keys().collect::<Vec<_>>(),
        ["hostgroup-50", "main"]
    );
    assert_eq!(config.users[0].password.as_ref().unwrap().reveal(), "se'cret");
}

#[test]
fn a_cluster_of_proxysql_becomes_a_section_to_fill_in() {
    let text = include_str!("../files/cluster.cnf");
    let config = becomes(text, expect_file!["../files/cluster.toml"]);
    assert!(config.store.is_none(), "it is a comment");
    // With its marks taken away it is a section that is understood.
    let own: String = proxysql(text)
        .unwrap()
        .toml
        .lines()
        .skip_while(|line| *line != "# [store]")
        .take_while(|line| line.starts_with('#'))
        .map(|line| format!("{}\n", line.trim_start_matches("# ")))
        .filter(|line| !line.starts_with("password_file"))
        .collect();
    let store = Config::parse(&format!("{own}password = \"x\"\n"), "own")
        .unwrap()
        .store
        .unwrap();
    assert_eq!(store.name.as_deref(), Some("proxysql-0.proxysql"));
}

/// ProxySQL's manual takes hashes of `caching_sha2_password` from servers in hexadecimal: their salts are no
/// text.
#[test]
fn hashes_are_taken_whatever_their_salt_is() {
    let stored = b"$A$00A$dn-BR|rrde\x02\x0c\x16s\x1bd(\x01HtJX3cKCn7frzabIe127YUHrbdx9uRuEOt183QgksBEs.";
    let digits: String = stored.iter().map(|byte| format!("{byte:02X}")).collect();
    for value in [
        format!("UNHEX('{digits}')"),
        format!("X'{digits}'"),
        format!("0x{digits}"),
    ] {
        let sql = format!(
            "INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES (0, 'db1');\n\
             INSERT INTO mysql_users (username, password) VALUES ('app', {value}), ('cut', '$A$005$abc');"
        );
        let imported = proxysql(&sql).unwrap();
        let written = format!("sha2_hash = \"0x{digits}\"\n");
        assert!(imported.toml.contains(&written), "{value}: {}", imported.toml);
        let notes = imported.without_equal.join("\n");
        assert!(notes.contains("user app: of its password only a hash"), "{notes}");
        assert!(
            notes.contains("user cut: its hash (caching_sha2_password) is not whole"),
            "{notes}"
        );
        let text = imported
            .toml
            .replace("password_env = \"FOREBAY_PASSWORD_CUT\"", "password = \"x\"");
        let config = Config::parse(&text, "imported").unwrap();
        let hash = config::sha2_hash(config.users[0].sha2_hash.as_ref().unwrap());
        assert_eq!(hash.unwrap().as_slice(), stored);
    }
}

/// A byte order mark in front, and limits that are no limits.
#[test]
fn odd_files_are_read_as_they_are_meant() {
    let servers = "INSERT INTO mysql_servers (hostgroup_id, hostname, max_connections) \
                   VALUES (0, 'db1', 18446744073709551615), (1, 'db1', 18446744073709551615);\r\n\
                   INSERT INTO mysql_replication_hostgroups (writer_hostgroup, reader_hostgroup) VALUES (0, 1);";
    let imported = proxysql(&format!("\u{feff}{servers}")).unwrap();
    assert_eq!(imported, proxysql(servers).unwrap());
    let config = Config::parse(&imported.toml, "imported").unwrap();
    assert_eq!(config.clusters["main"].servers[0].max_connections, 10_000_000);
    let configured =
        "mysql_servers = ( { address = \"db1\" } )\nmysql_users = ( { username = \"a\"; password = \"b\" } )";
    assert_eq!(
        proxysql(&format!("\u{feff}{configured}")).unwrap(),
        proxysql(configured).unwrap()
    );
}

/// What comes instead of the two forms at night.
#[test]
fn files_of_something_else_are_told_for_what_they_are() {
    let told = |text: &str| proxysql(text).unwrap_err().to_string();
    assert_eq!(
        told("SQLite format 3\0\u{10}\0\u{1}"),
        "line 1: this is the database itself; its text is wanted: sqlite3 FILE .dump"
    );
    assert_eq!(
        told("\u{1f}\u{fffd}\u{8}"),
        "line 1: this is compressed: unpack it first"
    );
    for text in [
        "",
        "global\n  maxconn 100\nfrontend x\n",
        "[[listener]]\nbind = \"a\"\n",
    ] {
        assert_eq!(
            told(text),
            "line 1: nothing here is ProxySQL's: expected the SQL text of its admin tables, or its proxysql.cnf"
        );
    }
}

#[test]
fn networks_of_balancers_are_not_left_out_in_silence() {
    let text = "mysql_servers = ( { address = \"db1\" } )\nmysql_users = ( { username = \"a\"; password = \"b\" } )\n\
                mysql_variables = { proxy_protocol_networks = \"10.0.0.0/8\" }";
    let notes = proxysql(text).unwrap().without_equal.join("\n");
    assert!(
        notes.contains("mysql-proxy_protocol_networks = \"10.0.0.0/8\": left out.")
            && notes.contains("`accept_proxy_from`"),
        "{notes}"
    );
}

/// A configuration of one pair of hostgroups with these rules, each what stands between the braces of the
/// file's form.
fn with_rules(rules: &[&str]) -> String {
    let rules: Vec<String> = rules.iter().map(|rule| format!("{{ {rule} }}")).collect();
    format!(
        "mysql_servers = ( {{ address=\"db1\" hostgroup=0 }}, {{ address=\"db2\" hostgroup=1 }} )\n\
         mysql_replication_hostgroups = ( {{ writer_hostgroup=0 reader_hostgroup=1 }} )\n\
         mysql_users = ( {{ username=\"app\" password=\"x\" }} )\n\
         mysql_query_rules = ( {} )\n",
        rules.join(", ")
    )
}

/// The normalised text has capitals and a synonym for some keywords, spaces, and no backticks: a rule that
/// cannot match any more would let through what it refused.
#[test]
fn expressions_for_digests_match_our_digests() {
    for (theirs, statement) in [
        (
            "^SELECT DISTINCT c FROM sbtest1",
            "select distinct c from sbtest1",
        ),
        (r"^DROP (DATABASE|TABLE)", "drop database shop"),
        ("^SHOW DATABASES?", "SHOW DATABASES"),
        ("^DESCRIBE `shop`.`orders`", "DESCRIBE shop.orders"),
        (
            "FROM shop.orders WHERE",
            "SELECT a FROM `shop`.`orders` WHERE b = 1",
        ),
        (r"substr\(name", "SELECT SUBSTR(name, 2)"),
        (r"WHERE a<>\?", "SELECT 1 FROM t WHERE a <> 5"),
        (r"WHERE a \>= \?", "SELECT 1 FROM t WHERE a >= 5"),
    ] {
        let rule = format!("rule_id=1 active=1 match_digest=\"{theirs}\" error_msg=\"no\" apply=1");
        let imported = proxysql(&with_rules(&[&rule])).unwrap();
        let config = Config::parse(&imported.toml, "imported").unwrap();
        let rule = config.rules.last().unwrap();
        let digest = sql_class::digest(statement.as_bytes(), sql_class::Syntax::default()).text;
        let expression = rule.digest_text.as_ref().unwrap();
        let is_found = expression.is_in(digest.replace('`', "").as_bytes());
        assert!(
            rule.enabled && is_found,
            "{theirs}: {} in {digest}",
            expression.as_str()
        );
    }
    for theirs in [
        r#"match_digest="WHERE id IN \(\?\)""#,
        r#"match_digest="VALUES \(\?(,\?)*\)""#,
        r#"match_digest="^select" re_modifiers="GLOBAL""#,
    ] {
        let rule = format!("rule_id=1 active=1 {theirs} error_msg=\"no\" apply=1");
        let imported = proxysql(&with_rules(&[&rule])).unwrap();
        let config = Config::parse(&imported.toml, "imported").unwrap();
        assert!(!config.rules.last().unwrap().enabled, "{theirs}");
        let notes = imported.without_equal.join("\n");
        assert!(
            notes.contains("rule proxysql-1: disabled: match_digest"),
            "{theirs}: {notes}"
        );
    }
}

/// ProxySQL's file form has another default than its table.
#[test]
fn rules_of_a_file_are_active_unless_it_says_otherwise() {
    let text = with_rules(&[
        "rule_id=1 match_digest=\"^SELECT\" destination_hostgroup=1 apply=1",
        "rule_id=2 active=0 match_digest=\"^INSERT\" destination_hostgroup=0 apply=1",
    ]);
    let imported = proxysql(&text).unwrap();
    assert!(
        imported.toml.contains("name = \"proxysql-1\""),
        "{}",
        imported.toml
    );
    assert!(
        !imported.toml.contains("name = \"proxysql-2\""),
        "{}",
        imported.toml
    );
    let notes = imported.without_equal.join("\n");
    assert!(
        notes.contains("mysql_query_rules: 1 rules are not active"),
        "{notes}"
    );
}

/// ProxySQL looks for the user with the schema first, then for the schema alone.
#[test]
fn fast_routing_prefers_the_row_of_the_user() {
    let table = "mysql_query_rules_fast_routing = (\n\
                 { username=\"\" schemaname=\"shop\" flagIN=0 destination_hostgroup=1 },\n\
                 { username=\"app\" schemaname=\"shop\" flagIN=0 destination_hostgroup=0 },\n\
                 { username=\"app\" schemaname=\"\" flagIN=0 destination_hostgroup=1 } )\n";
    let imported = proxysql(&(with_rules(&[]) + table)).unwrap();
    let config = Config::parse(&imported.toml, "imported").unwrap();
    let rules = config.rules.iter().filter(|rule| rule.enabled);
    let routes: Vec<_> = rules.map(|rule| rule.route.as_deref().unwrap()).collect();
    assert_eq!(routes, ["primary", "primary", "replicas"], "{}", imported.toml);
    let notes = imported.without_equal.join("\n");
    assert!(notes.contains("disabled: schemaname is empty"), "{notes}");
}

/// The delay of a rule comes on top of the one for every statement in ProxySQL, and here in its place.
#[test]
fn delays_are_as_long_as_they_were() {
    let rules = with_rules(&[
        r#"rule_id=1 match_digest="^SELECT" delay=20 apply=1"#,
        r#"rule_id=2 match_digest="^INSERT" delay=0 destination_hostgroup=0 apply=1"#,
    ]);
    let imported = proxysql(&(rules + "mysql_variables = { default_query_delay=5 }\n")).unwrap();
    let config = Config::parse(&imported.toml, "imported").unwrap();
    let delays = config
        .rules
        .iter()
        .map(|rule| rule.delay.map(|delay| delay.as_millis()));
    let delays: Vec<_> = delays.collect();
    assert!(
        delays.contains(&Some(5)) && delays.contains(&Some(25)),
        "{delays:?}"
    );
    assert!(!delays.contains(&Some(20)), "{delays:?}");
}

/// A client that names no schema uses `information_schema` there, or what `mysql-default_schema` says.
#[test]
fn rules_about_the_default_schema_lose_who_names_none() {
    let rules = with_rules(&[
        r#"rule_id=1 schemaname="shop" destination_hostgroup=1 apply=1"#,
        r#"rule_id=2 schemaname="information_schema" destination_hostgroup=1 apply=1"#,
    ]);
    for (variables, rule, other) in [
        ("", 2, 1),
        ("mysql_variables = { default_schema=\"shop\" }\n", 1, 2),
    ] {
        let notes = proxysql(&format!("{rules}{variables}"))
            .unwrap()
            .without_equal
            .join("\n");
        let says = |rule| {
            notes.contains(&format!(
                "rule proxysql-{rule}: left out: clients that name no schema"
            ))
        };
        assert!(says(rule) && !says(other), "{notes}");
    }
}

/// ProxySQL takes 0 where a file does not say it.
#[test]
fn no_transactions_behind_are_no_limit_here() {
    for (said, is_told) in [
        ("", true),
        ("max_transactions_behind=0", true),
        ("max_transactions_behind=1", false),
    ] {
        let text = format!(
            "mysql_servers = ( {{ address=\"db1\" hostgroup=0 }} )\n\
             mysql_galera_hostgroups = ( {{ writer_hostgroup=0 backup_writer_hostgroup=1 reader_hostgroup=2 \
             offline_hostgroup=3 {said} }} )\n"
        );
        let notes = proxysql(&text).unwrap().without_equal.join("\n");
        assert_eq!(
            notes.contains("max_transactions_behind = 0: readers"),
            is_told,
            "{said}: {notes}"
        );
    }
}

/// 0 connections are none in ProxySQL and no limit here.
#[test]
fn no_connections_do_not_become_any_number() {
    let text = "mysql_servers = ( { address=\"db1\" hostgroup=0 }, { address=\"db2\" hostgroup=1 max_connections=0 },\n\
                { address=\"db3\" hostgroup=1 } )\n\
                mysql_replication_hostgroups = ( { writer_hostgroup=0 reader_hostgroup=1 } )\n\
                mysql_users = ( { username=\"app\" password=\"x\" }, { username=\"shut\" password=\"x\" max_connections=0 } )\n";
    let imported = proxysql(text).unwrap();
    let config = Config::parse(&imported.toml, "imported").unwrap();
    let servers = config.clusters["main"].servers.iter();
    let weights: Vec<u32> = servers.map(|server| server.weight).collect();
    assert_eq!(weights, [1, 0, 1]);
    let names: Vec<&str> = config.users.iter().map(|user| user.name.as_str()).collect();
    assert_eq!(names, ["app"]);
    let notes = imported.without_equal.join("\n");
    assert!(
        notes.contains("server db2:3306 of hostgroup 1: max_connections = 0")
            && notes.contains("user shut: has max_connections = 0"),
        "{notes}"
    );
}

/// Chains by chance are chains, and what ProxySQL only stores is not done here either.
#[test]
fn rules_do_no_more_than_they_did() {
    let text = with_rules(&[
        r#"rule_id=1 match_digest="^SELECT" attributes="{\"flagOUTs\":[{\"id\":7,\"weight\":100}]}" apply=0"#,
        r#"rule_id=2 match_digest="^SELECT" sticky_conn=1 destination_hostgroup=1 apply=1"#,
    ]);
    let imported = proxysql(&text).unwrap();
    let config = Config::parse(&imported.toml, "imported").unwrap();
    let rule = |name: &str| config.rules.iter().find(|rule| rule.name == name).unwrap();
    assert!(!rule("proxysql-1").enabled);
    assert!(rule("proxysql-2").enabled && rule("proxysql-2").pin.is_none());
    let notes = imported.without_equal.join("\n");
    assert!(notes.contains("rule proxysql-1: disabled: flagOUTs"), "{notes}");
    assert!(
        notes.contains("rule proxysql-2: left out: sticky_conn"),
        "{notes}"
    );
}

#[test]
fn another_variable_that_makes_a_writer_is_told() {
    let notes = |check: &str| {
        let text = with_rules(&[]).replace(
            "reader_hostgroup=1",
            &format!("reader_hostgroup=1 check_type=\"{check}\""),
        );
        proxysql(&text).unwrap().without_equal.join("\n")
    };
    assert!(notes("super_read_only").contains("check_type \"super_read_only\": "));
    assert!(!notes("read_only").contains("check_type"));
}

#[test]
fn a_server_of_a_further_hostgroup_that_takes_more_is_told() {
    let text = with_rules(&["rule_id=1 match_digest=\"^SELECT report\" destination_hostgroup=2 apply=1"]);
    let further = "address=\"db2\" hostgroup=2 }, { address=\"db3\" hostgroup=2 }, { address=\"db1\"";
    let imported = proxysql(&text.replacen("address=\"db1\"", further, 1)).unwrap();
    let config = Config::parse(&imported.toml, "imported").unwrap();
    let group = &config.clusters["main"].groups["hostgroup-2"];
    assert_eq!((group.servers.len(), group.exclusive), (2, false));
    let notes = imported.without_equal.join("\n");
    assert!(
        notes.contains("server db3:3306: hostgroup 2 alone has it there"),
        "{notes}"
    );
}

/// Scripts say `REPLACE` of the same server again and again.
#[test]
fn the_later_row_of_a_server_counts() {
    let sql = "REPLACE INTO mysql_servers (hostgroup_id, hostname, max_connections) VALUES (0, 'db1', 100);\n\
               REPLACE INTO mysql_servers (hostgroup_id, hostname, max_connections) VALUES (0, 'db1', 30);\n\
               INSERT INTO mysql_users (username, password) VALUES ('app', 'a');";
    let imported = proxysql(sql).unwrap();
    let config = Config::parse(&imported.toml, "imported").unwrap();
    assert_eq!(config.clusters["main"].servers[0].max_connections, 30);
    let notes = imported.without_equal.join("\n");
    assert!(
        notes.contains("server db1:3306 of hostgroup 0: it stands there twice"),
        "{notes}"
    );
}

/// A server in several hostgroups is one server here, with all that its rows say, and one weight.
#[test]
fn rows_of_further_hostgroups_count() {
    let sql = |status: &str, other: &str| {
        format!(
            "INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES (10, 'db1'), (20, 'db2'), (20, 'db3'){other};\n\
             INSERT INTO mysql_servers (hostgroup_id, hostname, status, weight, use_ssl, compression, max_replication_lag)\n\
             VALUES (30, 'db3', '{status}', 7, 1, 1, 5);\n\
             INSERT INTO mysql_replication_hostgroups (writer_hostgroup, reader_hostgroup) VALUES (10, 20);\n\
             INSERT INTO mysql_users (username, password, default_hostgroup) VALUES ('app', 'a', 10);\n\
             INSERT INTO mysql_query_rules (rule_id, active, match_digest, destination_hostgroup, apply)\n\
             VALUES (1, 1, '^SELECT report', 30, 1);"
        )
    };
    let becomes = |text: &str| {
        let imported = proxysql(text).unwrap();
        let config = Config::parse(&imported.toml, "imported").unwrap();
        (config.clusters["main"].clone(), imported.without_equal.join("\n"))
    };
    let (cluster, notes) = becomes(&sql("OFFLINE_SOFT", ""));
    assert_eq!(cluster.tls.mode, config::TlsMode::Required);
    assert_eq!(cluster.compression, config::ServerCompression::Zlib);
    assert_eq!(cluster.max_lag.as_secs(), 5);
    assert_eq!(cluster.servers[2].weight, 1, "it takes reads of the hostgroup 20");
    assert_eq!(cluster.groups["hostgroup-30"].servers, ["db3:3306"]);
    assert!(
        notes.contains(
            "server db3:3306: it is OFFLINE_SOFT in hostgroup 30 only, and a server has one weight here: 1"
        ) && !notes.contains("is weight 0 here"),
        "{notes}"
    );
    let (cluster, notes) = becomes(&sql("OFFLINE_SOFT", ", (30, 'db2')"));
    assert_eq!(cluster.groups["hostgroup-30"].servers, ["db2:3306"]);
    assert!(notes.contains("OFFLINE_SOFT in hostgroup 30 only"), "{notes}");
    let (_, notes) = becomes(&sql("ONLINE", ""));
    assert!(
        notes.contains("server db3:3306: weight 7 of hostgroup 30 is left out"),
        "{notes}"
    );
    let everywhere = sql("OFFLINE_SOFT", "").replace("(20, 'db3')", "(30, 'db4')");
    let (cluster, notes) = becomes(&everywhere);
    let weights: Vec<u32> = cluster.servers.iter().map(|server| server.weight).collect();
    assert_eq!(
        weights.iter().filter(|weight| **weight == 0).count(),
        1,
        "{weights:?}"
    );
    assert!(
        notes.contains("server db3:3306: OFFLINE_SOFT is weight 0 here"),
        "{notes}"
    );
}

#[test]
fn a_monitor_that_is_switched_off_is_told() {
    let text = |enabled: &str| {
        format!(
            "mysql_servers = ( {{ address = \"db1\" }} )\nmysql_users = ( {{ username = \"a\"; password = \"b\" }} )\n\
             mysql_variables = {{ monitor_enabled = {enabled} }}"
        )
    };
    let notes = |enabled: &str| proxysql(&text(enabled)).unwrap().without_equal.join("\n");
    assert!(notes("false").contains("mysql-monitor_enabled = false: "));
    assert!(!notes("true").contains("mysql-monitor_enabled"));
}

#[test]
fn an_address_that_cannot_be_read_opens_no_other() {
    let text = "mysql_servers = ( { address = \"db1\" } )\nmysql_users = ( { username = \"a\"; password = \"b\" } )\n\
                mysql_variables = { interfaces = \"gateway.internal:6033\" }";
    let imported = proxysql(text).unwrap();
    let config = Config::parse(&imported.toml, "imported").unwrap();
    let binds: Vec<String> = (config.listeners.iter())
        .map(|listener| listener.bind.to_string())
        .collect();
    assert_eq!(binds, ["127.0.0.1:6033"]);
    let notes = imported.without_equal.join("\n");
    assert!(notes.contains("127.0.0.1:6033 is written"), "{notes}");
}

#[test]
fn two_hostgroups_in_a_file() {
    let config = becomes(
        include_str!("../files/tutorial.cnf"),
        expect_file!["../files/tutorial.toml"],
    );
    let routes: Vec<_> = config
        .rules
        .iter()
        .map(|rule| rule.route.as_deref().unwrap())
        .collect();
    assert_eq!(routes, ["primary", "primary", "replicas"]);
}

#[test]
fn shards_by_hand() {
    let config = becomes(
        include_str!("../files/shards.sql"),
        expect_file!["../files/shards.toml"],
    );
    assert_eq!(config.listeners.len(), 2);
}

#[test]
fn what_cannot_be_read_is_told_with_its_line() {
    let problem = |text: &str| proxysql(text).unwrap_err().to_string();
    assert_eq!(
        problem("mysql_users = ( { username = \"a\"; password = \"b\" } )"),
        "line 1: no server in mysql_servers that a user or a rule leads to"
    );
    assert_eq!(
        problem("mysql_servers=\n( { address=\"a\" hostgroup=\"x\" } )"),
        "line 2: hostgroup_id is \"x\", expected a whole number"
    );
    assert_eq!(
        problem("\nINSERT INTO mysql_users (username) VALUES (NULL);"),
        "line 2: username is missing"
    );
}

proptest! {
    /// Whatever is cut out of a dump: an answer, and what is answered is a configuration or says what it
    /// lacks.
    #[test]
    fn a_broken_dump_is_answered(from in 0..12_000_usize, length in 0..400_usize) {
        let text = include_str!("../files/replication.sql");
        let whole = |mut at: usize| {
            at = at.min(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            at
        };
        let broken = format!("{}{}", &text[..whole(from)], &text[whole(from + length)..]);
        if let Ok(imported) = proxysql(&broken) {
            let says_so = imported.without_equal.iter().any(|note| note.starts_with("needs a hand"));
            prop_assert!(says_so || Config::parse(&imported.toml, "imported").is_ok());
        }
    }
}
