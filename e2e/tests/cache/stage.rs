//! A server with rows, and a gateway that has them in memory.

use e2e::client::options;
use e2e::link::Link;
use e2e::{Gateway, Setup, eventually, servers_with};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::{Lent, PASSWORD, USER, free_port};

use crate::redis::{Redis, Reply};

pub(crate) const ROWS: u32 = 6;

pub(crate) struct Stage {
    // Dropped before the server.
    pub(crate) gateway: Gateway,
    /// Where Redis clients connect.
    pub(crate) redis: u16,
    pub(crate) link: Link,
    pub(crate) server: Lent,
}

/// Rows 1 to [`ROWS`] of `test.item`, whose `v` is "0"; a thousand more, which are there to be changed at
/// once. The gateway reaches the server by a link, answers point lookups in `mode`, and reads at
/// `consistency`.
pub(crate) async fn stage(mode: &str, consistency: &str) -> Stage {
    let server = servers_with(1, &[]).pop().unwrap();
    server
        .primary()
        .sql(
            "CREATE TABLE item (id INT NOT NULL PRIMARY KEY, v VARCHAR(100) NOT NULL, n INT NOT NULL DEFAULT 0) ENGINE = InnoDB; \
             INSERT INTO item (id, v) VALUES (0, '0'); \
             INSERT INTO item (id, v) SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 1, '0' FROM \
             (SELECT 0 d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) a, \
             (SELECT 0 d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) b, \
             (SELECT 0 d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) c, \
             (SELECT 0 d UNION SELECT 1) e",
        )
        .unwrap();
    let link = Link::to(&server);
    let redis = free_port().unwrap();
    let gateway = Setup::of_addresses([link.address().to_string()])
        .mode(mode)
        .listener(&format!("point_lookups = true\nlookup_consistency = \"{consistency}\""))
        .cluster(&format!("topology = \"replication\"\naccounts = \"servers\"\nmonitor = {{ user = \"{USER}\", password = \"{PASSWORD}\" }}"))
        .tables(&format!(
            "[[listener]]\nname = \"redis\"\nbind = \"127.0.0.1:{redis}\"\nprotocol = \"redis\"\nlookup_consistency = \"{consistency}\"\n\
             [cache]\ncluster = \"main\"\n\
             [[cache.mapping]]\nname = \"item\"\nkind = \"string\"\ntable = \"test.item\"\nkey = [\"id\"]\nvalue = [\"v\"]"
        ))
        .start();
    let stage = Stage {
        server,
        gateway,
        redis,
        link,
    };
    stage.serves().await;
    stage
}

impl Stage {
    /// Waits until rows are read from memory.
    pub(crate) async fn serves(&self) {
        eventually("the first row is there", async || {
            let Ok(mut redis) = Redis::connect(self.redis).await else {
                return false;
            };
            matches!(redis.ask(&["GET", "item@1"]).await, Ok(Reply::Bulk(_)))
        })
        .await;
        let before = self.answered();
        eventually("statements are answered from memory", async || {
            let Ok(mut session) = Conn::new(options(&self.gateway)).await else {
                return false;
            };
            let _ = session.query_drop("SELECT v FROM item WHERE id = 1").await;
            self.answered() > before
        })
        .await;
    }

    /// Statements that the gateway has answered from memory.
    pub(crate) fn answered(&self) -> f64 {
        self.gateway.metric("forebay_lookups_answered_total", &[])
    }
}
