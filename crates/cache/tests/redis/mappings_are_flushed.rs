//! `FLUSH`: who may do it, and what it does.

use sandbox::Kind;

use crate::stage::Stage;

const NOT_ALLOWED: &str =
    "(NOPERM only those may FLUSH who may do so on the server: the user lacks the privilege RELOAD)";

#[test]
fn those_flush_who_may_do_so_on_the_server() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let stage = Stage::start(kind, "", "");
        let mut client = stage.stranger();
        client.expect(&[
            ("FLUSH", "(NOAUTH Authentication required.)"),
            ("AUTH reader secret", "OK"),
            ("FLUSH", NOT_ALLOWED),
        ]);
        stage.sql("GRANT RELOAD ON *.* TO reader@'%'");
        client.expect(&[("FLUSH", "OK"), ("flush", "OK")]);
        stage.sql("REVOKE RELOAD ON *.* FROM reader@'%'");
        assert_eq!(client.ask("FLUSH"), NOT_ALLOWED);
        let default_role = match kind {
            Kind::Mysql => "SET DEFAULT ROLE keeper TO reader@'%'",
            _ => "SET DEFAULT ROLE keeper FOR reader@'%'",
        };
        stage.sql(&format!(
            "CREATE ROLE keeper; GRANT RELOAD ON *.* TO keeper; GRANT keeper TO reader@'%'; {default_role}"
        ));
        client.expect(&[
            ("FLUSH", "OK"),
            (
                "FLUSH words",
                "(ERR wrong number of arguments for 'flush' command)",
            ),
            ("MULTI", "OK"),
            ("FLUSH", "(ERR 'flush' is not allowed inside a transaction)"),
            (
                "EXEC",
                "(EXECABORT Transaction discarded because of previous errors.)",
            ),
        ]);
        stage.sql("ALTER USER reader@'%' ACCOUNT LOCK");
        assert_eq!(client.ask("FLUSH"), NOT_ALLOWED);
    }
}

#[test]
fn what_is_not_served_is_tried_again() {
    let options = "memory_max = \"1MiB\"\nstrong_wait = \"60s\"";
    let stage = Stage::start(Kind::Mariadb, options, "");
    let mut client = stage.client();
    assert_eq!(client.ask("GET words@1"), "one");
    stage.sql(
        "INSERT INTO shop.words
        WITH RECURSIVE n AS (SELECT 0 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 200)
        SELECT 1000 * a.i + b.i + 10, REPEAT('x', 100) FROM n a JOIN n b;",
    );
    let stopped = "(ERR mapping 'words' is not served: stopped: ";
    stage.until("there is no room", || {
        stage.client().ask("GET words@1").starts_with(stopped)
    });
    stage.sql("DELETE FROM shop.words WHERE id > 9");
    let loading = client.ask("GET words@1");
    assert!(loading.starts_with(stopped), "{loading}");
    assert_eq!(client.ask("FLUSH"), "OK");
    stage.until("it is served again", || {
        stage.client().ask("GET words@1") == "one"
    });
}

/// LOADING would have clients try again for ever.
#[test]
fn a_table_that_is_not_there_is_named_until_it_is() {
    let stage = Stage::start(Kind::Mariadb, "", "");
    let mut client = stage.client();
    assert_eq!(client.ask("GET words@1"), "one");
    stage.sql("RENAME TABLE shop.words TO shop.away");
    stage.until("the table is named", || {
        let told = stage.client().ask("GET words@1");
        told.starts_with("(ERR mapping 'words' is not served: ")
            && told.contains("table shop.words: there is no such table")
    });
    stage.sql("RENAME TABLE shop.away TO shop.words");
    stage.until("it is served again", || {
        stage.client().ask("GET words@1") == "one"
    });
}

#[test]
fn what_is_served_is_not_disturbed() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let stage = Stage::start(kind, "", "");
        let mut client = stage.client();
        for round in 0..50 {
            stage.sql(&format!(
                "UPDATE shop.words SET word = 'round {round}' WHERE id = 1"
            ));
            client.send("FLUSH\r\nGET words@1\r\nDBSIZE\r\n");
            let replies = [client.reply(), client.reply(), client.reply()];
            assert_eq!(
                replies,
                ["OK".to_owned(), format!("round {round}"), "4".to_owned()]
            );
        }
    }
}
