//! Clients that keep values themselves are told when the rows change.

use std::collections::HashMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sandbox::{Kind, PASSWORD, USER};

use crate::stage::{Client, Stage};

const OF_ONE: &str = "[invalidate [words@1]]";
const OF_ALL: &str = "[invalidate nil]";

/// Executes statements and returns once everybody has been told of them, which is `told` to who watches all
/// keys. Without the wait, a key that is read before the telling and after the change is told once more,
/// behind the reply: needless, and allowed.
fn sql_that_is_told(stage: &Stage, sql: &str, told: &str) {
    // Prefixes are told last. What was changed before may be told to this one, too.
    let mut watcher = tracking(stage, "BCAST");
    stage.sql(sql);
    while watcher.reply() != told {}
}

/// A client that speaks RESP3 and tracks.
fn tracking(stage: &Stage, options: &str) -> Client {
    let mut client = stage.stranger();
    client.ask(&format!("HELLO 3 AUTH {USER} {PASSWORD}"));
    assert_eq!(client.ask(&format!("CLIENT TRACKING ON {options}")), "OK");
    client
}

impl Client {
    /// Nothing has come that was not asked for.
    #[track_caller]
    fn is_told_nothing(&mut self) {
        self.expect(&[("ECHO nothing", "nothing")]);
    }
}

#[test]
fn a_change_is_told_once_to_whoever_has_read_the_row() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let stage = Stage::start(kind, "", "");
        let (mut one, mut other) = (tracking(&stage, ""), tracking(&stage, "NOLOOP"));
        one.expect(&[("GET words@1", "one"), ("GET words@3", "nil")]);
        other.expect(&[("HGET items@7:n name", "nut"), ("CLIENT GETREDIR", "0")]);
        stage.sql("UPDATE shop.words SET word = 'uno' WHERE id = 1");
        assert_eq!(one.reply(), OF_ONE);
        stage.sql("INSERT INTO shop.words VALUES (3, 'three')");
        assert_eq!(one.reply(), "[invalidate [words@3]]");
        stage.sql("UPDATE shop.items SET code = 'm' WHERE shop = 7 AND code = 'n'");
        assert_eq!(other.reply(), "[invalidate [items@7:n]]");
        sql_that_is_told(&stage, "UPDATE shop.words SET word = 'eins' WHERE id = 1", OF_ONE);
        one.expect(&[("GET words@1", "eins"), ("CLIENT TRACKING OFF", "OK")]);
        let of_three = "[invalidate [words@1 words@2 words@3]]";
        sql_that_is_told(&stage, "DELETE FROM shop.words", of_three);
        one.expect(&[("GET words@1", "nil")]);
        // Nor are there messages to others, or in RESP2.
        other.expect(&[("GET words@1", "nil"), ("RESET", "RESET")]);
        other.ask(&format!("AUTH {USER} {PASSWORD}"));
        stage.sql("INSERT INTO shop.words VALUES (1, 'one')");
        other.expect(&[("GET words@1", "one"), ("CLIENT GETREDIR", "-1")]);
        one.is_told_nothing();
    }
}

#[test]
fn a_transaction_is_told_at_once_and_a_reply_comes_before() {
    let stage = Stage::start(Kind::Mariadb, "", "");
    let mut client = tracking(&stage, "");
    client.expect(&[
        ("MGET words@1 words@2 words@9", "[one nil nil]"),
        ("MULTI", "OK"),
        ("HGETALL items@7:n", "QUEUED"),
        ("EXEC", "[{name nut}]"),
    ]);
    stage.sql(
        "START TRANSACTION; UPDATE shop.words SET word = 'x' WHERE id < 9; DELETE FROM shop.items; COMMIT",
    );
    assert_eq!(client.reply(), "[invalidate [words@1 words@2 items@7:n]]");
    // What is told while a request is being executed is told behind its reply.
    sql_that_is_told(&stage, "UPDATE shop.words SET word = 'one' WHERE id = 1", OF_ONE);
    client.expect(&[("GET words@1", "one")]);
    client.send("MULTI\r\nGET words@1\r\n");
    assert_eq!((client.reply(), client.reply()), ("OK".into(), "QUEUED".into()));
    stage.sql("UPDATE shop.words SET word = 'two' WHERE id = 1");
    assert_eq!(client.reply(), OF_ONE);
    client.expect(&[("EXEC", "[two]")]);
    stage.sql("UPDATE shop.words SET word = 'three' WHERE id = 1");
    assert_eq!(client.reply(), OF_ONE);
    client.is_told_nothing();
}

#[test]
fn clients_say_what_they_keep() {
    let stage = Stage::start(Kind::Mariadb, "", "");
    let mut opts_in = tracking(&stage, "OPTIN");
    let mut opts_out = tracking(&stage, "optout");
    let wrong = "(ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.)";
    opts_in.expect(&[
        ("GET words@1", "one"),
        ("CLIENT CACHING yes", "OK"),
        (
            "CLIENT TRACKINGINFO",
            "{flags [on optin caching-yes] redirect 0 prefixes []}",
        ),
        ("GET words@2", "nil"),
        ("CLIENT TRACKINGINFO", "{flags [on optin] redirect 0 prefixes []}"),
        ("CLIENT CACHING yes", "OK"),
        ("MULTI", "OK"),
        ("GET words@3", "QUEUED"),
        ("EXEC", "[nil]"),
        ("GET words@4", "nil"),
    ]);
    opts_out.expect(&[
        ("CLIENT CACHING yes", wrong),
        ("CLIENT CACHING no", "OK"),
        ("GET words@1", "one"),
        ("GET words@2", "nil"),
    ]);
    stage.sql("UPDATE shop.words SET word = 'x'");
    assert_eq!(opts_in.reply(), "[invalidate [words@2]]");
    assert_eq!(opts_out.reply(), "[invalidate [words@2]]");
    stage.sql("INSERT INTO shop.words VALUES (3, 'x'), (4, 'x')");
    assert_eq!(opts_in.reply(), "[invalidate [words@3]]");
    opts_in.is_told_nothing();
    opts_out.is_told_nothing();
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let stage = Stage::start(Kind::Mariadb, "", "");
    let mut client = stage.client();
    assert!(client.ask("CLIENT TRACKING ON").contains("HELLO 3"));
    client.ask("HELLO 3");
    for (options, error) in [
        ("PREFIX a", "PREFIX option requires BCAST mode"),
        ("BCAST OPTIN", "not compatible with BCAST"),
        ("OPTIN OPTOUT", "both OPTIN mode and OPTOUT"),
        ("REDIRECT 7", "The client ID you want redirect to does not exist"),
        ("REDIRECT x", "value is not an integer"),
        ("REDIRECT 7 REDIRECT 8", "only redirect to a single other client"),
        (
            "BCAST PREFIX a PREFIX ab",
            "Prefix 'ab' overlaps with an existing prefix 'a'",
        ),
        ("NONSENSE", "syntax error"),
    ] {
        let reply = client.ask(&format!("CLIENT TRACKING ON {options}"));
        assert!(reply.contains(error), "{options}: {reply}");
    }
    let many: String = (0..65).map(|at| format!(" PREFIX <{at}>")).collect();
    assert!(
        client
            .ask(&format!("CLIENT TRACKING ON BCAST{many}"))
            .contains("64 prefixes")
    );
    client.expect(&[
        ("CLIENT TRACKINGINFO", "{flags [off] redirect -1 prefixes []}"),
        ("CLIENT TRACKING ON OPTIN", "OK"),
    ]);
    assert!(
        client
            .ask("CLIENT TRACKING ON OPTOUT")
            .contains("You can't switch OPTIN/OPTOUT")
    );
    assert!(
        client
            .ask("CLIENT TRACKING ON BCAST")
            .contains("You can't switch BCAST")
    );
    client.expect(&[
        ("CLIENT TRACKING ON NOLOOP", "OK"),
        (
            "CLIENT TRACKINGINFO",
            "{flags [on noloop] redirect 0 prefixes []}",
        ),
        ("CLIENT TRACKING OFF", "OK"),
        ("CLIENT TRACKING ON BCAST PREFIX words@1 PREFIX x", "OK"),
        ("CLIENT TRACKING ON BCAST PREFIX words@2", "OK"),
    ]);
    // What was to be told by the prefixes before may be lost.
    assert_eq!(client.reply(), "[invalidate nil]");
    client.expect(&[(
        "CLIENT TRACKINGINFO",
        "{flags [on bcast] redirect 0 prefixes [words@1 x words@2]}",
    )]);
    assert!(
        client
            .ask("CLIENT TRACKING ON BCAST PREFIX words")
            .contains("overlaps")
    );
    assert!(client.ask("CLIENT INFO").contains(" flags=t "));
}

/// A client that has subscribed, and its id.
fn subscribed(stage: &Stage) -> (Client, String) {
    let mut client = stage.client();
    let id = client.ask("CLIENT ID");
    client.expect(&[(
        "SUBSCRIBE __redis__:invalidate",
        "[subscribe __redis__:invalidate 1]",
    )]);
    (client, id)
}

#[test]
fn another_connection_is_told_in_its_place() {
    let stage = Stage::start(Kind::Mariadb, "", "");
    let (mut told, id) = subscribed(&stage);
    let mut client = stage.client();
    let redirected = format!("CLIENT TRACKING ON REDIRECT {id}");
    let message = |keys: &str| format!("[message __redis__:invalidate {keys}]");
    client.expect(&[
        (&redirected, "OK"),
        ("CLIENT GETREDIR", &id),
        ("GET words@1", "one"),
        ("MGET words@2 words@3", "[nil nil]"),
    ]);
    stage.sql("START TRANSACTION; UPDATE shop.words SET word = 'uno'; INSERT INTO shop.words VALUES (3, 'drei'); COMMIT");
    assert_eq!(told.reply(), message("[words@1 words@2 words@3]"));
    // It says nothing else.
    let only = "(ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context)";
    told.expect(&[
        ("PING", "[pong ]"),
        ("PING x", "[pong x]"),
        ("GET words@1", only),
        ("SUBSCRIBE news", "(ERR the only channel is __redis__:invalidate)"),
    ]);
    let list = client.ask("CLIENT LIST TYPE pubsub");
    assert!(
        list.contains(&format!("id={id} ")) && list.contains(" flags=P ") && list.contains(" sub=1 "),
        "{list}"
    );
    assert_eq!(list.lines().count(), 1, "{list}");
    assert!(client.ask("CLIENT INFO").contains(&format!(" redir={id} ")));

    let info = |flags: &str| format!("[flags {flags} redirect {id} prefixes []]");
    client.expect(&[("CLIENT TRACKINGINFO", &info("[on]"))]);
    told.expect(&[
        ("UNSUBSCRIBE", "[unsubscribe __redis__:invalidate 0]"),
        ("UNSUBSCRIBE", "[unsubscribe nil 0]"),
        ("GET words@1", "uno"),
    ]);
    client.expect(&[
        ("CLIENT TRACKINGINFO", &info("[on broken_redirect]")),
        (
            &redirected,
            "(ERR The client ID you want redirect to has not subscribed to __redis__:invalidate)",
        ),
        ("CLIENT TRACKING OFF", "OK"),
        ("CLIENT GETREDIR", "-1"),
    ]);
    told.expect(&[(
        "SUBSCRIBE __redis__:invalidate",
        "[subscribe __redis__:invalidate 1]",
    )]);
    client.expect(&[(&redirected, "OK"), ("GET words@1", "uno")]);
    stage.sql("TRUNCATE shop.words");
    assert_eq!(told.reply(), message("nil"));
}

#[test]
fn another_connection_of_the_same_user_is_told_of_what_that_user_may_read() {
    let stage = Stage::start(Kind::Mariadb, "", "");
    let (mut told, id) = subscribed(&stage);
    let mut reader = stage.stranger();
    reader.ask("AUTH reader secret");
    let refused = reader.ask(&format!("CLIENT TRACKING ON REDIRECT {id}"));
    assert!(refused.contains("does not exist"), "{refused}");
    // In RESP3, too, and with prefixes.
    let mut client = stage.stranger();
    client.ask(&format!("HELLO 3 AUTH {USER} {PASSWORD}"));
    assert_eq!(
        client.ask(&format!("CLIENT TRACKING ON BCAST PREFIX words@1 REDIRECT {id}")),
        "OK"
    );
    stage.sql("INSERT INTO shop.words VALUES (10, 'ten'), (20, 'twenty')");
    assert_eq!(told.reply(), "[message __redis__:invalidate [words@10]]");
    client.is_told_nothing();
    // What it can tell nobody it says itself, where it can.
    told.expect(&[("RESET", "RESET")]);
    stage.sql("INSERT INTO shop.words VALUES (11, 'eleven')");
    assert_eq!(client.reply(), format!("[tracking-redir-broken {id}]"));
}

#[test]
fn prefixes_are_told_only_of_tables_that_the_user_may_read() {
    let stage = Stage::start(Kind::Mariadb, "", "");
    let mut all = tracking(&stage, "BCAST");
    let mut words = tracking(&stage, "BCAST PREFIX words@1 PREFIX nothing");
    let mut reader = stage.stranger();
    reader.ask("HELLO 3 AUTH reader secret");
    reader.expect(&[("CLIENT TRACKING ON BCAST", "OK")]);
    stage.sql("INSERT INTO shop.words VALUES (10, 'ten'), (20, 'twenty')");
    assert_eq!(all.reply(), "[invalidate [words@10 words@20]]");
    assert_eq!(reader.reply(), "[invalidate [words@10 words@20]]");
    assert_eq!(words.reply(), "[invalidate [words@10]]");
    // A code may have blanks behind it: it has many texts.
    stage.sql("UPDATE shop.items SET name = 'x' WHERE code = 'n'");
    assert_eq!(all.reply(), OF_ALL);
    assert_eq!(reader.reply(), OF_ALL);
    stage.sql("REVOKE SELECT ON shop.words FROM reader@'%'");
    stage.sql("UPDATE shop.words SET word = 'x' WHERE id = 10; UPDATE shop.items SET name = 'y'");
    assert_eq!(words.reply(), "[invalidate [words@10]]");
    assert_eq!(reader.reply(), OF_ALL);
    words.is_told_nothing();
    reader.is_told_nothing();
}

#[test]
fn what_is_not_known_any_more_is_told_as_all() {
    let stage = Stage::start(Kind::Mariadb, "tracking_keys_max = 640", "");
    let mut client = tracking(&stage, "");
    client.expect(&[("GET words@1", "one")]);
    stage.sql("ALTER TABLE shop.words ADD COLUMN further INT");
    assert_eq!(client.reply(), OF_ALL);
    stage.until("the mapping is served again", || {
        stage.client().ask("GET words@1") == "one"
    });
    client.expect(&[("GET words@1", "one")]);
    stage.sql("TRUNCATE shop.words");
    assert_eq!(client.reply(), OF_ALL);
    // Where there is no room, keys that are not changed are told, too.
    let mut kept = HashMap::new();
    for number in 0..2000 {
        let key = format!("items@{number}:a");
        client.send(format!("EXISTS {key}\r\n"));
        let value = read_reply(&mut client, &mut kept);
        kept.insert(key, value);
    }
    assert!((100..=640).contains(&kept.len()), "{}", kept.len());
    client.send("INFO stats\r\n");
    let info = read_reply(&mut client, &mut kept);
    let keys = info
        .lines()
        .find_map(|line| line.strip_prefix("tracking_total_keys:"));
    assert!(keys.unwrap().parse::<u32>().unwrap() <= 640, "{info}");
}

#[test]
fn the_end_of_a_stream_is_told_as_all() {
    let stage = Stage::start(Kind::Mariadb, "strong_wait = \"20s\"", "");
    let mut client = tracking(&stage, "");
    client.expect(&[("GET words@1", "one")]);
    let streams =
        "SELECT CONCAT('KILL ', id) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'";
    let kill = stage.sandbox.primary().sql(streams).unwrap();
    stage.sql(kill.lines().last().unwrap());
    assert_eq!(client.reply(), OF_ALL);
    client.expect(&[("GET words@1", "one")]);
    stage.sql("UPDATE shop.words SET word = 'two' WHERE id = 1");
    assert_eq!(client.reply(), OF_ONE);
}

/// Whatever happens at the same time, nobody keeps a value that is not there any more when all is quiet.
#[test]
fn nobody_keeps_an_old_value() {
    for mode in ["mode = \"whole\"", "mode = \"bounded\"\nmemory_max = \"1MiB\""] {
        let mode = &format!("{mode}\nstrong_wait = \"60s\"");
        let stage = Stage::start(Kind::Mariadb, mode, "");
        let done = AtomicBool::new(false);
        let kept: Vec<(HashMap<String, String>, Client)> = std::thread::scope(|threads| {
            let keepers: Vec<_> = ["strong", "eventual"]
                .into_iter()
                .map(|level| {
                    let client = tracking(&stage, "");
                    threads.spawn(|| keep(client, level, &done))
                })
                .collect();
            let begun = Instant::now();
            let mut round = 0;
            while begun.elapsed() < Duration::from_secs(3) {
                round += 1;
                let of = |id| format!("REPLACE INTO shop.words VALUES ({id}, '{round}');");
                let deleted = format!("DELETE FROM shop.words WHERE id = {};", round % 5);
                let more: String = (0..20).map(|at| of((round * 7 + at) % 10)).collect();
                stage.sql(&format!(
                    "START TRANSACTION; {} COMMIT; {deleted} {more}",
                    of(round % 10)
                ));
            }
            done.store(true, Ordering::SeqCst);
            keepers.into_iter().map(|keeper| keeper.join().unwrap()).collect()
        });
        let now = stage
            .sandbox
            .primary()
            .sql("SELECT id, word FROM shop.words")
            .unwrap();
        let rows: HashMap<&str, &str> = now.lines().filter_map(|line| line.split_once('\t')).collect();
        for (mut kept, mut client) in kept {
            let begun = Instant::now();
            loop {
                client.send("ECHO end\r\n");
                read_until(&mut client, "end", &mut kept);
                let is_there = |(key, value): &(&String, &String)| {
                    rows.get(&key["words@".len()..]).unwrap_or(&"nil") == *value
                };
                match kept.iter().find(|entry| !is_there(entry)) {
                    None => break,
                    Some(old) => assert!(begun.elapsed() < Duration::from_secs(20), "{old:?} in {mode}"),
                }
            }
        }
    }
}

/// Reads and keeps values until `done`.
fn keep(mut client: Client, level: &str, done: &AtomicBool) -> (HashMap<String, String>, Client) {
    client.expect(&[(&format!("CLIENT CONSISTENCY {level}"), "OK")]);
    let mut kept = HashMap::new();
    let mut number = 0_u64;
    while !done.load(Ordering::SeqCst) {
        number += 1;
        let key = format!("words@{}", number * number % 11);
        if !kept.contains_key(&key) {
            client
                .0
                .get_mut()
                .write_all(format!("GET {key}\r\n").as_bytes())
                .unwrap();
            let value = read_reply(&mut client, &mut kept);
            kept.insert(key, value);
        } else {
            client.send("ECHO on\r\n");
            read_until(&mut client, "on", &mut kept);
        }
    }
    (kept, client)
}

fn read_until(client: &mut Client, expected: &str, kept: &mut HashMap<String, String>) {
    assert_eq!(read_reply(client, kept), expected);
}

/// The next reply; what is told before it is forgotten.
fn read_reply(client: &mut Client, kept: &mut HashMap<String, String>) -> String {
    loop {
        let reply = client.reply();
        let Some(told) = reply.strip_prefix("[invalidate ") else {
            return reply;
        };
        match told.trim_matches(['[', ']']) {
            "nil" => kept.clear(),
            keys => keys.split(' ').for_each(|key| drop(kept.remove(key))),
        }
    }
}
