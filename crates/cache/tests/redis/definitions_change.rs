//! Definitions and grants that change while a request is under way.

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
