use e2e::{Gateway, Setup, client, eventually, servers};
use mysql_async::prelude::Queryable;
use sandbox::Node;
use tokio::task::JoinHandle;

use crate::bank::{self, Load};
use crate::{CHECK, scaled};

const WORKERS: usize = 8;
const SLEEP: &str = "SELECT SLEEP(3600)";

/// A statement that runs on this server when this returns, and will run for long.
async fn statement_on(gateway: &Gateway, server: &Node) -> JoinHandle<mysql_async::Result<()>> {
    let mut session = client::connect(gateway).await;
    while client::server_port(&mut session).await != server.port() {
        session = client::connect(gateway).await;
    }
    let task = tokio::spawn(async move { session.query_drop(SLEEP).await });
    let running = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE info = '{SLEEP}'");
    eventually("the statement runs", async || {
        server.sql(&running).unwrap() == "1\n"
    })
    .await;
    task
}

#[tokio::test]
async fn and_nobody_on_the_other_server_notices() {
    let servers = servers(2);
    bank::prepare(&servers);
    let gateway = Setup::in_front_of(&servers).check(CHECK).start();
    let load = Load::start(&gateway, WORKERS);
    let (victim, other) = (servers[0].primary(), servers[1].primary());
    for _ in 0..scaled(2) {
        load.goes_on(&[victim, other], 20).await;
        let statement = statement_on(&gateway, victim).await;
        let seen = load.failures().len();
        victim.kill9().unwrap();
        let error = statement.await.unwrap().unwrap_err();
        assert_eq!(client::code(&error), 1158, "{error}");
        // On a busy machine checks may find the server down before the session hears of the connection's end.
        let address = victim.address();
        let words = [
            format!(
                "Lost connection to MySQL server: lost connection to server {address} during a command; it is not \
                 known whether it was executed"
            ),
            format!(
                "Lost connection to MySQL server: server {address} was found down by its health check; it is not \
                 known whether a command under way was executed"
            ),
        ];
        let text = error.to_string();
        assert!(words.iter().any(|words| text.contains(words)), "{text}");
        load.has_failed(seen + 1).await;
        load.goes_on(&[other], 50).await;
        victim.restart().unwrap();
        load.goes_on(&[victim, other], 20).await;
    }
    let failures = load.end(&servers).await;
    bank::assert_only_on(victim, &failures);
    // Each worker had one session to lose and at most one login each time.
    assert!(failures.len() <= scaled(2) * 2 * WORKERS, "{failures:#?}");
}
