//! MULTI and MGET.

use std::sync::atomic::{AtomicBool, Ordering};

use sandbox::Kind;

use crate::stage::Stage;

#[test]
fn several_keys_are_read_at_one_position() {
    let stage = Stage::start(Kind::Mariadb, "", "lookup_consistency = \"eventual\"");
    stage.sql("UPDATE shop.words SET word = '0'");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..300 {
                stage.sql(&format!("UPDATE shop.words SET word = '{round}'"));
            }
            done.store(true, Ordering::Relaxed);
        });
        let mut client = stage.client();
        stage.until("the first round is there", || {
            stage.client().ask("GET words@2") != "nil"
        });
        while !done.load(Ordering::Relaxed) {
            client.send("MULTI\r\nGET words@1\r\nGET words@2\r\nEXEC\r\nMGET words@1 words@2\r\n".repeat(50));
            for _ in 0..50 {
                let replies: Vec<String> = (0..5).map(|_| client.reply()).collect();
                for reply in &replies[3..] {
                    let (one, other) = reply.trim_matches(['[', ']']).split_once(' ').unwrap();
                    assert_eq!(one, other);
                }
            }
        }
    });
}

#[test]
fn a_transaction_is_executed_as_a_whole_or_not_at_all() {
    let stage = Stage::start(Kind::Mariadb, "", "");
    let mut client = stage.client();
    client.expect(&[
        ("EXEC", "(ERR EXEC without MULTI)"),
        ("DISCARD", "(ERR DISCARD without MULTI)"),
        ("MULTI", "OK"),
        ("MULTI", "(ERR MULTI calls can not be nested)"),
        ("GET words@1", "QUEUED"),
        ("PING", "QUEUED"),
        ("HGET words@1 word", "QUEUED"),
        ("SELECT 0", "QUEUED"),
        ("SELECT 1", "QUEUED"),
        (
            "EXEC",
            "[one PONG (WRONGTYPE Operation against a key holding the wrong kind of value) OK (ERR DB index is out of range)]",
        ),
        ("MULTI", "OK"),
        (
            "SET words@1 x",
            "(ERR SET is refused: keys are rows of SQL tables, which are only read here. Write through SQL)",
        ),
        ("GET words@1", "QUEUED"),
        (
            "EXEC",
            "(EXECABORT Transaction discarded because of previous errors.)",
        ),
        ("MULTI", "OK"),
        (
            "EXEC now",
            "(EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command)",
        ),
        ("EXEC", "(ERR EXEC without MULTI)"),
        ("MULTI", "OK"),
        ("GET words@1", "QUEUED"),
        ("DISCARD", "OK"),
        ("UNWATCH", "OK"),
        (
            "WATCH words@1",
            "(ERR WATCH is refused: a transaction here only reads, at one position)",
        ),
        ("GET words@1", "one"),
    ]);
}

/// The server gives few bytes for each of many keys, which are shown as a text of 16 KiB.
#[test]
fn a_transaction_whose_reply_is_too_large_comes_to_nothing() {
    let stage = Stage::start(Kind::Mariadb, "mode = \"bounded\"", "");
    let members: Vec<String> = (0..64).map(|at| format!("'{at:0>255}'")).collect();
    stage.sql(&format!(
        "UPDATE shop.words SET word = NULL; ALTER TABLE shop.words MODIFY word SET({}) CHARACTER SET latin1; \
         UPDATE shop.words SET word = 18446744073709551615 WHERE id = 1",
        members.join(",")
    ));
    let mut client = stage.client();
    stage.until("the set is served", || client.ask("STRLEN words@1") == "16383");
    client.expect(&[
        ("MULTI", "OK"),
        (&format!("MGET{}", " words@1".repeat(5000)), "QUEUED"),
        ("HGET items@7:n name", "QUEUED"),
        (
            "EXEC",
            "(ERR reply of more than 67108864 bytes: ask for fewer keys at once)",
        ),
        ("HGET items@7:n name", "nut"),
    ]);
}
