//! A connection with one strong read after the other waits before its next request is read from its socket.

use std::thread::sleep;
use std::time::Duration;

use sandbox::{Kind, PASSWORD, USER};

use crate::stage::{Client, Stage};

/// More than what it takes until a connection is thought to go on like that.
const MANY: u64 = 40;

fn on_both(test: impl Fn(&Stage)) {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        test(&Stage::start(kind, "", ""));
    }
}

/// For what does not hang on the server.
fn on_mariadb(test: impl Fn(&Stage)) {
    test(&Stage::start(Kind::Mariadb, "", ""));
}

fn probes(stage: &Stage) -> u64 {
    stage.count("forebay_cache_probes_total")
}

/// A client that is expected to go on as it has begun.
fn reader(stage: &Stage) -> Client {
    let mut client = stage.client();
    let reply = client.ask("GET words@1");
    for _ in 0..MANY {
        assert_eq!(client.ask("GET words@1"), reply);
    }
    client
}

/// The same where reads wait for so short a time that they fail on a busy machine: as often as is needed.
fn reader_in_time(stage: &Stage) -> Client {
    let mut reader = None;
    stage.until("all are in time", || {
        let client = reader.insert(stage.client());
        (0..=MANY).all(|_| client.ask("GET words@1") == "one")
    });
    reader.unwrap()
}

#[test]
fn they_see_every_write() {
    on_both(|stage| {
        let mut client = reader(stage);
        let before = probes(stage);
        for round in 0..MANY {
            stage.sql(&format!("UPDATE shop.words SET word = 'w{round}' WHERE id = 1"));
            match round % 3 {
                0 => client.send("GET words@1\r\n"),
                // The request comes in two pieces.
                1 => {
                    client.send("GET wor");
                    sleep(Duration::from_millis(1));
                    client.send("ds@1\r\n");
                }
                _ => client.send("*2\r\n$3\r\nGET\r\n$7\r\nwords@1\r\n"),
            }
            assert_eq!(client.reply(), format!("w{round}"));
        }
        assert!(probes(stage) - before >= MANY, "each has to be asked for");
    });
}

/// How many probes it took. Where a probe takes long, on a busy machine, a wait at a gate is given up: then
/// it is more.
fn probes_of(stage: &Stage, requests: impl FnOnce()) -> u64 {
    let before = probes(stage);
    requests();
    probes(stage) - before
}

#[test]
fn what_comes_behind_the_first_waits_by_itself() {
    on_mariadb(|stage| {
        let pipeline = |client: &mut Client| {
            client.send("GET words@1\r\n".repeat(3));
            (0..3).for_each(|_| assert_eq!(client.reply(), "one"));
        };
        // A busy machine gives up waits at gates: a single probe serves all three then.
        stage.until("one probe for the first, one for the others", || {
            let mut client = reader(stage);
            probes_of(stage, || pipeline(&mut client)) == 2
        });
        // It is not taken for one that sends reads alone any more.
        stage.until("one for all", || {
            let mut client = reader(stage);
            pipeline(&mut client);
            probes_of(stage, || pipeline(&mut client)) == 1
        });
    });
}

#[test]
fn other_requests_wait_once() {
    on_mariadb(|stage| {
        stage.until("the first is taken for a read", || {
            let mut client = reader(stage);
            let first = probes_of(stage, || client.expect(&[("PING", "PONG")]));
            let others = [("PING", "PONG"), ("GET words@1", "one")];
            first == 1 && probes_of(stage, || client.expect(&others)) == 1
        });
        let mut client = reader(stage);
        client.expect(&[("CLIENT CONSISTENCY EVENTUAL", "OK")]);
        // A busy machine gives up the wait of that request, whose probe is counted later, when it ends.
        stage.until("eventual reads take no probe", || {
            let reads = || (0..MANY).for_each(|_| client.expect(&[("GET words@1", "one")]));
            probes_of(stage, reads) == 0
        });
    });
}

#[test]
fn rights_are_those_of_the_moment() {
    on_mariadb(|stage| {
        let mut client = stage.stranger();
        client.expect(&[("AUTH reader secret", "OK")]);
        for _ in 0..MANY {
            client.expect(&[("GET words@1", "one")]);
        }
        stage.sql("REVOKE SELECT ON shop.words FROM reader@'%'");
        let reply = client.ask("GET words@1");
        assert!(reply.contains("NOPERM"), "{reply}");
    });
}

#[test]
fn who_waits_is_told_what_has_changed() {
    on_mariadb(|stage| {
        let mut client = stage.stranger();
        client.ask(&format!("HELLO 3 AUTH {USER} {PASSWORD}"));
        client.expect(&[("CLIENT TRACKING ON", "OK")]);
        for _ in 0..MANY {
            client.expect(&[("GET words@1", "one")]);
        }
        stage.sql("UPDATE shop.words SET word = 'eins' WHERE id = 1");
        assert_eq!(client.reply(), "[invalidate [words@1]]");
        client.expect(&[("GET words@1", "eins")]);
    });
}

#[test]
fn without_a_primary_they_fail_with_a_reason_and_go_on_later() {
    let stage = Stage::start(Kind::Mariadb, "strong_wait = \"300ms\"", "");
    let mut client = reader_in_time(&stage);
    stage.sandbox.primary().kill9().unwrap();
    for _ in 0..3 {
        let reply = client.ask("GET words@1");
        assert!(reply.starts_with("(MASTERDOWN "), "{reply}");
    }
    stage.sandbox.primary().restart().unwrap();
    stage.until("it is read again", || client.ask("GET words@1") == "one");
}

/// What a wait at a gate was for is what rang. A request that comes later is no older than that only where it
/// is the same.
#[test]
fn bytes_that_are_no_request_are_not_waited_for_in_the_place_of_one() {
    let stage = Stage::start(Kind::Mariadb, "strong_wait = \"300ms\"", "");
    let huge = format!("*2\r\n$3\r\nGET\r\n$3000000\r\n{}\r\n", "x".repeat(3_000_000));
    for bytes in ["\r\n", "*0\r\n", &huge] {
        let mut client = reader_in_time(&stage);
        client.send(bytes);
        if bytes.len() > 10 {
            let reply = client.reply();
            assert!(reply.contains("ERR request of more than"), "{reply}");
        }
        // Time for a probe. Without enough of it nothing is granted that could be wrong, and the reply is the
        // same.
        sleep(Duration::from_millis(50));
        stage.sandbox.primary().kill9().unwrap();
        let reply = client.ask("GET words@1");
        assert!(reply.starts_with("(MASTERDOWN "), "{reply}");
        stage.sandbox.primary().restart().unwrap();
        stage.until("it is read again", || stage.client().ask("GET words@1") == "one");
    }
}

#[test]
fn pipelines_in_pieces_are_read_as_they_come() {
    on_mariadb(|stage| {
        let mut client = stage.client();
        client.expect(&[("GET words@1", "one")]);
        let probes = probes_of(stage, || {
            client.send("GET words@1\r\n".repeat(3) + "GET wor");
            (0..3).for_each(|_| assert_eq!(client.reply(), "one"));
            client.send("ds@1\r\n".to_owned() + &"GET words@1\r\n".repeat(100));
            (0..101).for_each(|_| assert_eq!(client.reply(), "one"));
        });
        assert!(probes < 20, "{probes}");
    });
}

#[test]
fn what_a_client_says_of_itself_costs_no_wait() {
    on_mariadb(|stage| {
        let mut client = stage.stranger();
        client.ask(&format!("HELLO 3 AUTH {USER} {PASSWORD}"));
        client.expect(&[("CLIENT TRACKING ON OPTIN", "OK"), ("GET words@1", "one")]);
        let probes = probes_of(stage, || {
            client.send("CLIENT CACHING YES\r\nGET words@1\r\n".repeat(50));
            (0..50).for_each(|_| {
                assert_eq!(client.reply(), "OK");
                assert_eq!(client.reply(), "one");
            });
        });
        assert!(probes < 10, "{probes}");
    });
}

#[test]
fn what_is_queued_is_not_waited_for() {
    on_mariadb(|stage| {
        let mut client = stage.client();
        client.expect(&[("MULTI", "OK")]);
        let probes = probes_of(stage, || {
            (0..MANY).for_each(|_| client.expect(&[("GET words@1", "QUEUED")]));
        });
        assert_eq!(probes, 0);
        assert_eq!(
            probes_of(stage, || assert!(client.ask("EXEC").contains("one"))),
            1
        );
    });
}

#[test]
fn they_are_counted_by_how_fresh_they_have_to_be() {
    let stage = Stage::start(Kind::Mariadb, "", "");
    let counts = || {
        ["strong", "session", "eventual"]
            .map(|level| stage.count(&format!("forebay_cache_reads_total{{consistency=\"{level}\"}}")))
    };
    let mut client = stage.client();
    let of = |client: &mut Client, requests: &str| {
        let before = counts();
        client.send(requests.replace('|', "\r\n") + "\r\n");
        requests.split('|').for_each(|_| drop(client.reply()));
        // They are counted after the replies were sent.
        client.expect(&[("PING", "PONG")]);
        let after = counts();
        [0, 1, 2].map(|level| after[level] - before[level])
    };
    for (requests, expected) in [
        ("GET words@1", [1, 0, 0]),
        ("GET words@1|BOGUS|BOGUS|PING", [1, 0, 0]),
        ("GET words@1|GET words@1|MGET words@1 words@1", [3, 0, 0]),
        ("MULTI|GET words@1|GET words@1|DISCARD", [0, 0, 0]),
        ("MULTI|GET words@1|GET words@1|EXEC", [1, 0, 0]),
        (
            "GET words@1|CLIENT CONSISTENCY EVENTUAL|GET words@1|GET words@1|CLIENT CONSISTENCY STRONG",
            [1, 0, 2],
        ),
    ] {
        assert_eq!(of(&mut client, requests), expected, "{requests}");
    }
}
