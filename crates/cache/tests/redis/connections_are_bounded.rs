//! What clients can do to the gateway: nothing.

use std::io::Write;
use std::time::Duration;

use sandbox::Kind;

use crate::stage::Stage;

#[test]
fn a_long_pipeline_is_answered_in_order() {
    let stage = Stage::start(Kind::Mariadb, "", "");
    let mut client = stage.client();
    let mut writer = client.0.get_ref().try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        for number in 0..100_000 {
            let request = if number % 7 == 0 {
                "GET words@1\r\n".to_owned()
            } else {
                format!("ECHO {number}\r\n")
            };
            writer.write_all(request.as_bytes()).unwrap();
        }
    });
    for number in 0..100_000 {
        let expected = if number % 7 == 0 {
            "one".to_owned()
        } else {
            number.to_string()
        };
        assert_eq!(client.reply(), expected);
    }
    sender.join().unwrap();
}

#[test]
fn bytes_that_are_promised_are_not_waited_for_with_memory() {
    let stage = Stage::start(Kind::Mariadb, "", "");
    let mut client = stage.client();
    let value = vec![b'x'; 5 << 20];
    client.send(format!(
        "*3\r\n$3\r\nSET\r\n$7\r\nwords@1\r\n${}\r\n",
        value.len()
    ));
    client.send(&value);
    client.send("\r\n");
    let refused =
        "(ERR SET is refused: keys are rows of SQL tables, which are only read here. Write through SQL)";
    assert_eq!(client.reply(), refused);
    let keys = vec!["$7\r\nwords@1\r\n"; 200_000];
    client.send(format!("*200001\r\n$4\r\nMGET\r\n{}", keys.concat()));
    assert_eq!(client.reply(), "(ERR request of more than 1048576 bytes)");
    assert_eq!(client.ask("GET words@1"), "one");
    // Nor is there a reply to it where there is to be none.
    client.send("CLIENT REPLY SKIP\r\n");
    client.send(format!("*200001\r\n$4\r\nMGET\r\n{}", keys.concat()));
    assert_eq!(client.ask("GET words@1"), "one");
    let counted = "forebay_redis_too_large_total{bound=\"request\"} 2";
    assert!(stage.telemetry.encode().contains(counted));
    // As many bytes as Redis lets one promise.
    let mut promising: Vec<_> = (0..100).map(|_| stage.client()).collect();
    for promising in &mut promising {
        promising.send("*2\r\n$3\r\nGET\r\n$536870912\r\nwords@1");
    }
    assert_eq!(client.ask("GET words@1"), "one");
    drop(promising);
    // So many requests that the buffer is full of them, and one that is longer than the buffer.
    let key = "words@1 ".repeat(10_000);
    let reply = client.ask(&format!("MGET {key}"));
    assert_eq!(reply, "(ERR Protocol error: too big inline request)");
    assert!(client.is_closed());
    let mut client = stage.client();
    let keys = vec!["$7\r\nwords@1\r\n"; 20_000];
    client.send(format!("*20001\r\n$4\r\nMGET\r\n{}", keys.concat()));
    assert_eq!(client.reply().len(), 20_000 * 4 + 1);
}

#[test]
fn a_broken_protocol_ends_the_connection_with_a_word() {
    let stage = Stage::start(Kind::Mariadb, "", "");
    let nested = "*1\r\n".repeat(100_000);
    for (request, error) in [
        (nested.as_str(), "(ERR Protocol error: expected '$', got '*')"),
        (
            "*1\r\n$536870913\r\n",
            "(ERR Protocol error: invalid bulk length)",
        ),
        ("*1048577\r\n", "(ERR Protocol error: invalid multibulk length)"),
        (
            "GET \"a\r\n",
            "(ERR Protocol error: unbalanced quotes in request)",
        ),
    ] {
        let mut client = stage.client();
        client.send("PING\r\n");
        client.send(&request[..request.len().min(8)]);
        // The gateway may close while the rest is on its way.
        let _ = client
            .0
            .get_mut()
            .write_all(&request.as_bytes()[request.len().min(8)..]);
        assert_eq!((client.reply(), client.reply()), ("PONG".into(), error.into()));
        assert!(client.is_closed());
    }
    let mut stranger = stage.stranger();
    stranger.send("*11\r\n");
    assert_eq!(
        stranger.reply(),
        "(ERR Protocol error: unauthenticated multibulk length)"
    );
    stage.until("all five are counted", || {
        stage.telemetry.encode().contains("reason=\"protocol\"} 5")
    });
}

#[test]
fn a_client_that_does_not_read_ends_when_its_time_is_over() {
    let stage = Stage::start(Kind::Mariadb, "", "client_idle_timeout = \"1s\"");
    stage.sql("UPDATE shop.words SET word = REPEAT('x', 100) WHERE id = 1");
    let mut client = stage.client();
    client
        .0
        .get_ref()
        .set_write_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let requests = "GET words@1\r\n".repeat(10_000);
    // It is read until its replies do not fit into the sockets any more.
    while client.0.get_mut().write_all(requests.as_bytes()).is_ok() {}
    stage.until("the connection has ended", || {
        stage.telemetry.encode().contains("reason=\"client_idle\"} 1")
    });
}

#[test]
fn a_client_that_does_not_log_in_ends_when_its_time_is_over() {
    let stage = Stage::start(Kind::Mariadb, "", "login_timeout = \"5s\"");
    let mut known = stage.client();
    let mut stranger = stage.stranger();
    assert_eq!(stranger.ask("PING"), "(NOAUTH Authentication required.)");
    assert!(stranger.is_closed());
    assert_eq!(known.ask("GET words@1"), "one");
    stage.until("it is counted", || {
        stage.telemetry.encode().contains("reason=\"login_timeout\"} 1")
    });
}

#[test]
fn more_clients_than_the_listener_takes_are_turned_away() {
    let stage = Stage::start(Kind::Mariadb, "", "max_connections = 2");
    let (mut one, _other) = (stage.client(), stage.client());
    let mut third = stage.stranger();
    assert_eq!(third.reply(), "(ERR max number of clients reached)");
    assert!(third.is_closed());
    assert_eq!(one.ask("CONFIG GET maxclients"), "[maxclients 2]");
}

#[test]
fn a_user_has_no_more_connections_than_it_may_have() {
    let user = "[[user]]\nname = \"reader\"\npassword = \"secret\"\nmax_connections = 1";
    let stage = Stage::start(Kind::Mariadb, "", user);
    let (mut one, mut other) = (stage.stranger(), stage.stranger());
    one.expect(&[
        ("AUTH reader secret", "OK"),
        // Not another one.
        ("AUTH reader secret", "OK"),
        ("GET words@1", "one"),
    ]);
    let refused = "(ERR user has exceeded the limit of 1 sessions)";
    other.expect(&[
        ("AUTH reader secret", refused),
        ("GET words@1", "(NOAUTH Authentication required.)"),
    ]);
    one.expect(&[("AUTH reader wrong", WRONG), ("GET words@1", "one")]);
    assert_eq!(other.ask("AUTH reader secret"), refused);
    assert_eq!(one.ask("RESET"), "RESET");
    assert_eq!(other.ask("AUTH reader secret"), "OK");
    assert_eq!(one.ask("AUTH reader secret"), refused);
}

const WRONG: &str = "(WRONGPASS invalid username-password pair or user is disabled.)";
