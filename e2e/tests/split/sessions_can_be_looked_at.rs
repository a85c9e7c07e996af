//! `/sessions` says what a session of mode `split` does and waits for, and on which of its server's
//! connections.

use e2e::{Gateway, client, eventually};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::DATABASE;

use crate::cluster::{self, narrow};

async fn one_shows(gateway: &Gateway, parts: &[&str]) {
    eventually(&format!("a session shows {parts:?}"), async || {
        let (_, body) = gateway.get("/sessions");
        body.split("},{")
            .any(|session| parts.iter().all(|part| session.contains(part)))
    })
    .await;
}

#[tokio::test]
async fn while_they_work_and_while_they_wait() {
    let sandbox = &e2e::servers(1)[0];
    // Sessions that wait in line are looked at meanwhile.
    let setup = narrow(sandbox, 1).cluster("queue_timeout = \"60s\"");
    let gateway = setup.start();
    let mut worker = cluster::connect(&gateway).await;
    let mut waiter = cluster::connect(&gateway).await;
    let schema = format!("\"schema\":{DATABASE:?}");
    one_shows(
        &gateway,
        &[&schema, "\"waits_for\":\"client\"", "\"digest\":null"],
    )
    .await;

    let sleep = "SELECT /* seen */ id FROM (SELECT SLEEP(141) AS id) AS s";
    let explained: Vec<(String, String)> = worker.query(format!("FOREBAY EXPLAIN {sleep}")).await.unwrap();
    let digest = explained.iter().find(|(what, _)| what == "digest");
    let digest = format!("\"digest\":{:?}", digest.unwrap().1);
    let sleeper = worker.id();
    let sleeping = tokio::spawn(async move {
        let _ = worker.query_drop(sleep).await;
    });
    let question = "SELECT MAX(id) FROM information_schema.processlist
                    WHERE info LIKE '%SLEEP(141)%' AND id <> CONNECTION_ID()";
    let mut thread = String::new();
    eventually("the statement runs", async || {
        thread = sandbox.primary().sql(question).unwrap().trim().to_owned();
        thread.parse::<u32>().is_ok()
    })
    .await;
    let number = format!("\"id\":{sleeper},");
    let connection = format!("\"server_connection_id\":{thread},");
    one_shows(
        &gateway,
        &[&number, "\"waits_for\":\"server\"", &connection, &schema, &digest],
    )
    .await;
    let waiting = tokio::spawn(async move {
        let _ = waiter.query_drop("INSERT INTO nothing VALUES (1)").await;
    });
    one_shows(
        &gateway,
        &["\"waits_for\":\"seat\"", "\"server_connection_id\":null"],
    )
    .await;
    eventually("the gauges say so", async || {
        let count = |what: &str| {
            gateway.metric("forebay_sessions_waiting", &[&format!("waits_for={what:?}")]) as usize
        };
        (count("seat"), count("server")) == (1, 1)
    })
    .await;
    let of = ["cluster=\"main\"", "listener=\"e2e\"", "ran=\"primary\""];
    assert!(gateway.metric("forebay_split_statements_total", &of) > 0.0);
    sandbox.primary().sql(&format!("KILL {thread}")).unwrap();
    sleeping.await.unwrap();
    waiting.abort();
}

#[tokio::test]
async fn while_there_is_no_primary_and_while_a_read_is_behind() {
    let sandbox = cluster::replicated();
    let setup = cluster::split(&sandbox).cluster("read_wait = \"60s\"\nfailover_wait = \"60s\"");
    let gateway = cluster::start(setup, 2).await;
    let mut session = cluster::connect(&gateway).await;
    session.query_drop("CREATE TABLE late (id INT)").await.unwrap();
    sandbox.sync().unwrap();
    // Replicas that run, and cannot apply what comes next: one that has stopped is not waited for.
    let mut blockers = Vec::new();
    for replica in &sandbox.nodes()[1..] {
        let mut blocker = Conn::new(client::options_at(replica.port())).await.unwrap();
        let lock = format!("LOCK TABLES {DATABASE}.late READ");
        blocker.query_drop(lock).await.unwrap();
        blockers.push(blocker);
    }
    session.query_drop("INSERT INTO late VALUES (1)").await.unwrap();
    let reading = tokio::spawn(async move {
        let _ = session.query_drop("SELECT * FROM late").await;
    });
    one_shows(&gateway, &["\"waits_for\":\"position\""]).await;
    reading.abort();
    drop(blockers);

    let mut session = cluster::connect(&gateway).await;
    sandbox.primary().kill9().unwrap();
    let writing = tokio::spawn(async move {
        for _ in 0..100 {
            let _ = session.query_drop("INSERT INTO late VALUES (2)").await;
        }
    });
    one_shows(&gateway, &["\"waits_for\":\"primary\""]).await;
    writing.abort();
}
