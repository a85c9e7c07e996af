use e2e::{Setup, client, servers};
use mysql_async::prelude::Queryable;

/// Looks at the servers' list until a statement with `text` runs there.
async fn runs(servers: &[sandbox::Sandbox], text: &str) {
    let question = format!(
        "SELECT COUNT(*) FROM information_schema.processlist
         WHERE info LIKE '%{text}%' AND id <> CONNECTION_ID()"
    );
    let runs = || {
        servers
            .iter()
            .any(|server| server.primary().sql(&question).unwrap().trim() == "1")
    };
    e2e::eventually("the statement runs", async || runs()).await;
}

#[tokio::test]
async fn by_the_id_that_the_server_told() {
    let servers = servers(1);
    let gateway = Setup::in_front_of(&servers).start();
    let (mut victim, mut killer) = (client::connect(&gateway).await, client::connect(&gateway).await);
    let id: u64 = victim
        .query_first("SELECT CONNECTION_ID()")
        .await
        .unwrap()
        .unwrap();

    let waiting = tokio::spawn(async move {
        let result = victim
            .query_drop("SELECT id FROM (SELECT SLEEP(121) AS id) AS s")
            .await;
        (result, victim)
    });
    runs(&servers, "SLEEP(121)").await;
    killer.query_drop(format!("KILL QUERY {id}")).await.unwrap();
    let (result, mut victim) = waiting.await.unwrap();
    // SLEEP itself ends early with 1 instead of an error where it is all that a statement does.
    if let Err(error) = result {
        assert_eq!(client::code(&error), 1317, "{error}");
    }
    victim.query_drop("SELECT 1").await.unwrap();

    let waiting = tokio::spawn(async move { victim.query_drop("SELECT SLEEP(122)").await });
    runs(&servers, "SLEEP(122)").await;
    killer.query_drop(format!("KILL {id}")).await.unwrap();
    waiting.await.unwrap().unwrap_err();
    killer.query_drop("SELECT 1").await.unwrap();
}
