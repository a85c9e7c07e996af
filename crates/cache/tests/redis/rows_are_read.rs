//! Commands that read, at all levels, in both modes; those that write are refused.

use sandbox::Kind;

use crate::stage::{Client, Stage};

#[test]
fn rows_are_read_by_key_and_a_change_is_seen_at_once() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let stage = Stage::start(kind, "", "");
        let mut client = stage.client();
        client.expect(&[
            ("GET words@1", "one"),
            ("GET words@2", "nil"),
            ("GET words@3", "nil"),
            ("MGET words@1 words@3 words@1", "[one nil one]"),
            ("EXISTS words@1 words@2 words@3", "1"),
            ("HGETALL 'items@7:a\\:b'", "[name bolt price 1.50]"),
            ("HGETALL items@7:n", "[name nut]"),
            ("HMGET items@7:n price name", "[nil nut]"),
            ("TYPE items@7:n", "hash"),
            ("TTL words@1", "-1"),
            ("TTL words@9", "-2"),
            ("DBSIZE", "4"),
        ]);
        for round in 0..50 {
            stage.sql(&format!(
                "UPDATE shop.words SET word = 'round {round}' WHERE id = 1"
            ));
            assert_eq!(client.ask("GET words@1"), format!("round {round}"));
        }
        stage.sql("DELETE FROM shop.words WHERE id = 1");
        assert_eq!(client.ask("GET words@1"), "nil");
    }
}

#[test]
fn rows_that_are_not_in_memory_are_asked_for_in_bounded_mode() {
    let stage = Stage::start(Kind::Mariadb, "mode = \"bounded\"", "");
    let mut client = stage.client();
    for _ in 0..2 {
        client.expect(&[
            ("MGET words@1 words@3 words@1", "[one nil one]"),
            ("HGET items@7:n name", "nut"),
            ("GET words@1", "one"),
            ("EXISTS words@1 words@2 words@3", "1"),
            ("MULTI", "OK"),
            ("GET words@1", "QUEUED"),
            ("HGET 'items@7:a\\:b' price", "QUEUED"),
            ("EXEC", "[one 1.50]"),
        ]);
    }
    stage.sql("UPDATE shop.words SET word = 'two' WHERE id = 1; INSERT INTO shop.words VALUES (3, 'three')");
    assert_eq!(client.ask("MGET words@1 words@3"), "[two three]");
}

/// A row that memory does not have comes before a table of which nobody knows yet whether the user may read
/// it.
#[test]
fn rows_of_several_tables_are_asked_for_with_one_question() {
    let stage = Stage::start(Kind::Mariadb, "mode = \"bounded\"", "");
    for (at, reply) in ["[one nil]", "[one nil]", "[one nil]", "[one nil]"]
        .iter()
        .enumerate()
    {
        // Nothing is known of the rights of a new session, and nothing of the rows.
        let mut client = stage.client();
        let key = 10 + at;
        stage.sql(&format!("INSERT INTO shop.words VALUES ({key}, 'one')"));
        if at % 2 == 0 {
            assert_eq!(client.ask(&format!("MGET words@{key} items@{key}:x")), *reply);
        } else {
            client.expect(&[
                ("MULTI", "OK"),
                (&format!("GET words@{key}"), "QUEUED"),
                (&format!("HGET items@{key}:x name"), "QUEUED"),
                ("EXEC", reply),
            ]);
        }
    }
}

/// How often the server was asked for rows.
fn asked_server(client: &mut Client) -> u32 {
    let info = client.ask("INFO stats");
    let asked = info.lines().find_map(|line| line.strip_prefix("asked_server:"));
    asked.unwrap().parse().unwrap()
}

#[test]
fn rows_of_a_pipeline_are_asked_for_together() {
    let stage = Stage::start(Kind::Mariadb, "mode = \"bounded\"", "");
    let rows: Vec<String> = (100..1100).map(|id| format!("({id}, 'w{id}')")).collect();
    stage.sql(&format!("INSERT INTO shop.words VALUES {}", rows.join(", ")));
    let mut client = stage.client();
    let before = asked_server(&mut client);
    let mut request = String::new();
    let mut replies = Vec::new();
    for id in 100..1100 {
        request += &format!("GET words@{id}\r\n");
        replies.push(format!("w{id}"));
        // What needs no row, or fails, or reads several, is in its place.
        for (every, line, reply) in [
            (7, "ECHO on", "on"),
            (
                11,
                "GET nothing@1",
                "(ERR no mapping 'nothing': `INFO mappings` lists the mappings)",
            ),
            (13, "MGET words@1 words@5 words@100", "[one nil w100]"),
            (17, "HGETALL items@7:n", "[name nut]"),
            (
                19,
                "HGETALL words@1",
                "(WRONGTYPE Operation against a key holding the wrong kind of value)",
            ),
        ] {
            if id % every == 0 {
                request += &format!("{line}\r\n");
                replies.push(reply.to_owned());
            }
        }
    }
    client.send(&request);
    for (at, reply) in replies.iter().enumerate() {
        assert_eq!(client.reply(), *reply, "{at}");
    }
    let asked = asked_server(&mut client) - before;
    assert!((5..500).contains(&asked), "{asked}");
    // Nothing but misses.
    let (request, replies): (Vec<_>, Vec<_>) = (2000..2200)
        .map(|id| (format!("GET words@{id}\r\n"), "nil"))
        .unzip();
    let before = asked_server(&mut client);
    client.send(request.concat());
    assert!(replies.iter().all(|reply| client.reply() == *reply));
    let asked = asked_server(&mut client) - before;
    assert!(asked < 50, "{asked}");
}

#[test]
fn scans_see_all_rows() {
    let stage = Stage::start(Kind::Mariadb, "", "");
    let rows: Vec<String> = (10..2010).map(|id| format!("({id}, 'w')")).collect();
    stage.sql(&format!("INSERT INTO shop.words VALUES {}", rows.join(", ")));
    let mut client = stage.client();
    assert_eq!(client.ask("DBSIZE"), "2004");
    let (mut cursor, mut keys) = ("0".to_owned(), Vec::new());
    loop {
        let reply = client.ask(&format!("SCAN {cursor} COUNT 100"));
        let (next, found) = reply.trim_matches(['[', ']']).split_once(" [").unwrap();
        keys.extend(found.split(' ').filter(|key| !key.is_empty()).map(str::to_owned));
        cursor = next.to_owned();
        if cursor == "0" {
            break;
        }
    }
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 2003, "all but the one whose value is NULL");
}

#[test]
fn some_columns_are_any_that_have_a_value() {
    let stage = Stage::start(Kind::Mariadb, "", "");
    let mut client = stage.client();
    client.expect(&[
        ("HRANDFIELD items@7:n", "name"),
        ("HRANDFIELD items@7:n 5", "[name]"),
        ("HRANDFIELD items@7:n 0", "[]"),
        ("HRANDFIELD items@7:n -3", "[name name name]"),
        ("HRANDFIELD items@7:n -2 WITHVALUES", "[name nut name nut]"),
        ("HRANDFIELD items@8:n", "nil"),
        ("HRANDFIELD items@8:n 3", "[]"),
        ("HRANDFIELD items@8:n -3 withvalues", "[]"),
        (
            "HRANDFIELD items@7:n x",
            "(ERR value is not an integer or out of range)",
        ),
        ("HRANDFIELD items@7:n 1 VALUES", "(ERR syntax error)"),
        ("HRANDFIELD items@7:n 1 WITHVALUES 1", "(ERR syntax error)"),
        (
            "HRANDFIELD words@1",
            "(WRONGTYPE Operation against a key holding the wrong kind of value)",
        ),
    ]);
    let (mut seen, both) = (Vec::new(), ["[name price]", "[price name]"]);
    for _ in 0..64 {
        let two = client.ask("HRANDFIELD 'items@7:a\\:b' 2");
        assert!(both.contains(&two.as_str()), "{two}");
        seen.push(client.ask("HRANDFIELD 'items@7:a\\:b'"));
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen, ["name", "price"]);
    assert!(
        client
            .ask("HRANDFIELD items@7:n -9223372036854775808")
            .starts_with("(ERR ")
    );
    client.ask("HELLO 3");
    assert_eq!(
        client.ask("HRANDFIELD items@7:n -2 WITHVALUES"),
        "[[name nut] [name nut]]"
    );
}

#[test]
fn writes_are_refused_with_the_way_that_is_open() {
    let stage = Stage::start(Kind::Mariadb, "", "");
    let refused = |name: &str| {
        format!(
            "(ERR {name} is refused: keys are rows of SQL tables, which are only read here. Write through SQL)"
        )
    };
    let mut client = stage.client();
    for request in [
        "SET words@1 x",
        "del words@1",
        "HSET items@7:n name x",
        "FLUSHALL",
        "EXPIRE words@1 3",
    ] {
        let name = request.split(' ').next().unwrap().to_uppercase();
        assert_eq!(client.ask(request), refused(&name));
    }
    client.expect(&[
        (
            "nonsense a b",
            "(ERR unknown command 'nonsense', with args beginning with: 'a' 'b')",
        ),
        ("GET", "(ERR wrong number of arguments for 'get' command)"),
        ("GET words@1", "one"),
        ("COMMAND LIST FILTERBY PATTERN hge*", "[hget hgetall]"),
        ("COMMAND LIST FILTERBY ACLCAT admin", "[flush]"),
        ("COMMAND LIST FILTERBY MODULE json", "[]"),
        ("COMMAND LIST FILTERBY", "(ERR syntax error)"),
    ]);
}

#[test]
fn the_level_is_chosen_by_the_listener_and_by_the_client() {
    let stage = Stage::start(
        Kind::Mariadb,
        "strong_wait = \"5s\"",
        "lookup_consistency = \"eventual\"",
    );
    let mut client = stage.client();
    client.expect(&[
        ("CLIENT CONSISTENCY", "eventual"),
        ("GET words@1", "one"),
        ("CLIENT CONSISTENCY strong", "OK"),
        ("GET words@1", "one"),
        ("CLIENT CONSISTENCY nonsense", "(ERR syntax error)"),
    ]);
    stage.sql("UPDATE shop.words SET word = 'own' WHERE id = 1");
    let gtids = stage
        .sandbox
        .primary()
        .sql("SELECT @@GLOBAL.gtid_binlog_pos")
        .unwrap();
    let session = format!("CLIENT CONSISTENCY session {}", gtids.trim());
    assert_eq!(client.ask(&session), "OK");
    assert_eq!(client.ask("GET words@1"), "own");
    assert_eq!(client.ask("CLIENT CONSISTENCY session 0-1-999999999"), "OK");
    let late = client.ask("GET words@1");
    assert!(late.starts_with("(MASTERDOWN "), "{late}");
    assert_eq!(client.ask("CLIENT CONSISTENCY eventual"), "OK");
    assert_eq!(client.ask("GET words@1"), "own");
    // What a level allowed is no excuse for the next one, though the commands come together.
    let late = "CLIENT CONSISTENCY session 0-1-999999999\r\nGET words@1\r\n";
    client.send(format!("CLIENT CONSISTENCY session\r\nGET words@1\r\n{late}"));
    let replies: Vec<String> = (0..4).map(|_| client.reply()).collect();
    assert_eq!(replies[..3], ["OK", "own", "OK"]);
    assert!(replies[3].starts_with("(MASTERDOWN "), "{replies:?}");
    let metrics = stage.telemetry.encode();
    assert!(
        metrics.contains("forebay_cache_reads_total{consistency=\"eventual\"} 2"),
        "{metrics}"
    );
}

#[test]
fn without_a_primary_strong_reads_fail_and_eventual_ones_do_not() {
    let stage = Stage::start(Kind::Mariadb, "strong_wait = \"5s\"", "");
    let (mut strong, mut eventual) = (stage.client(), stage.client());
    assert_eq!(eventual.ask("CLIENT CONSISTENCY eventual"), "OK");
    assert_eq!(
        (strong.ask("GET words@1"), eventual.ask("GET words@1")),
        ("one".into(), "one".into())
    );
    stage.sandbox.primary().freeze().unwrap();
    let late = strong.ask("GET words@1");
    assert!(late.starts_with("(MASTERDOWN "), "{late}");
    assert_eq!(eventual.ask("GET words@1"), "one");
    stage.sandbox.primary().thaw().unwrap();
    let work_again = || stage.client().ask("GET words@1") == "one";
    stage.until("strong reads work again", work_again);
    // The feed notices at once that it has ended, and what its users may read is known as before.
    stage.sandbox.primary().kill9().unwrap();
    stage.until("the feed notices", || !stage.follows());
    assert_eq!(eventual.ask("GET words@1"), "one");
    stage.sandbox.primary().restart().unwrap();
    stage.until("strong reads work again", work_again);
}
