//! Definitions and grants that change while a request is under way.

use std::time::Duration;

use sandbox::Kind;

use crate::stage::Stage;

/// What a feed is busy with for a while.
const MANY_ROWS: &str = "
    INSERT INTO shop.items (shop, code, name)
    WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 500)
    SELECT 1000 * a.i + b.i, 'code', REPEAT('x', 50) FROM n a JOIN n b;
";

/// A key that the table could not have when the request came, as far as memory knew then.
#[test]
fn a_strong_read_goes_by_the_definition_that_it_has_waited_for() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let stage = Stage::start(kind, "strong_wait = \"50s\"", "");
        let mut client = stage.client();
        client.expect(&[("GET words@1", "one"), ("GET words@5000000000", "nil")]);
        stage.sql(&format!(
            "{MANY_ROWS} ALTER TABLE shop.words MODIFY id BIGINT; INSERT INTO shop.words VALUES (5000000000, 'five')"
        ));
        let reply = client.ask("GET words@5000000000");
        assert!(reply == "five" || reply.starts_with("(LOADING"), "{reply}");
        stage.until("the table is mapped again", || {
            stage.client().ask("GET words@5000000000") == "five"
        });
    }
}

/// It has sent requests while it could read, and takes the replies later.
#[test]
fn a_client_that_takes_no_replies_loses_its_rights_all_the_same() {
    const REQUESTS: usize = 1000;
    for mode in ["", "mode = \"bounded\""] {
        let stage = Stage::start(Kind::Mariadb, mode, "");
        stage.sql(
            "ALTER TABLE shop.words MODIFY word MEDIUMTEXT; INSERT INTO shop.words VALUES (9, REPEAT('x', 100000))",
        );
        let mut client = stage.stranger();
        client.expect(&[("AUTH reader secret", "OK")]);
        stage.until("the table is mapped again", || {
            stage.client().ask("GET words@9").len() == 100_000
        });
        assert_eq!(client.ask("GET words@9").len(), 100_000);
        client.send("GET words@9\r\n".repeat(REQUESTS));
        // Nothing tells that its replies go nowhere now.
        std::thread::sleep(Duration::from_millis(500));
        stage.sql("REVOKE SELECT ON shop.words FROM reader@'%'");
        let mut other = stage.stranger();
        other.expect(&[("AUTH reader secret", "OK")]);
        assert!(other.ask("GET words@9").starts_with("(NOPERM"));
        let replies: Vec<String> = (0..REQUESTS).map(|_| client.reply()).collect();
        let shown = replies.iter().filter(|reply| reply.len() == 100_000).count();
        assert!(shown < REQUESTS, "all were shown");
        assert!(
            replies[shown..].iter().all(|reply| reply.starts_with("(NOPERM")),
            "{}",
            replies[shown]
        );
    }
}
