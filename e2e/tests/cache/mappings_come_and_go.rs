//! Mappings of the configuration change by a reload, those of tables on the primary at once; whoever reads
//! another mapping meanwhile does not notice.

use std::process::Command;

use e2e::{Gateway, Setup, eventually, program, servers_with};
use sandbox::{PASSWORD, Sandbox, USER, free_port};
use tokio::sync::oneshot;

use crate::redis::{Redis, Reply};

const TABLE: &str = "CREATE TABLE item (id INT NOT NULL PRIMARY KEY, v VARCHAR(100), n INT); INSERT INTO item VALUES (1, 'one', 10)";

fn mapping(name: &str, column: &str) -> String {
    format!(
        "[[cache.mapping]]\nname = \"{name}\"\nkind = \"string\"\ntable = \"test.item\"\nkey = [\"id\"]\nvalue = [\"{column}\"]\n"
    )
}

async fn answer(redis: &mut Redis, key: &str) -> Reply {
    redis.ask(&["GET", key]).await.unwrap()
}

async fn until_bulk(redis: u16, key: &str, expected: &str) {
    let mut client = Redis::connect(redis).await.unwrap();
    let expected = Reply::Bulk(expected.as_bytes().to_vec());
    eventually(&format!("{key} is read"), async || {
        answer(&mut client, key).await == expected
    })
    .await;
}

async fn until_error(redis: u16, key: &str, reason: &str) {
    let mut client = Redis::connect(redis).await.unwrap();
    eventually(
        &format!("{key} is not read: {reason}"),
        async || matches!(answer(&mut client, key).await, Reply::Error(text) if text.contains(reason)),
    )
    .await;
}

#[tokio::test]
async fn they_do() {
    let server = servers_with(1, &[]).pop().unwrap();
    server.primary().sql(TABLE).unwrap();
    let redis = free_port().unwrap();
    let setup = |tables: bool, mappings: &[String]| {
        let tables = format!(
            "[[listener]]\nname = \"redis\"\nbind = \"127.0.0.1:{redis}\"\nprotocol = \"redis\"\n\
             [cache]\ncluster = \"main\"\nstrong_wait = \"60s\"\nmapping_tables = {tables}\n{}",
            mappings.concat()
        );
        Setup::of_addresses([server.primary().address()])
            .mode("session")
            .cluster(&format!(
                "topology = \"replication\"\naccounts = \"servers\"\nmonitor = {{ user = \"{USER}\", password = \"{PASSWORD}\" }}"
            ))
            .tables(&tables)
    };
    let (item, number, other) = (mapping("item", "v"), mapping("number", "n"), mapping("item", "n"));
    let mut gateway = setup(false, std::slice::from_ref(&number)).start();
    // The gateway may have yet to read the server's accounts.
    eventually("clients log in", async || Redis::connect(redis).await.is_ok()).await;
    until_bulk(redis, "number@1", "10").await;

    // Somebody reads all the time.
    let (stop, mut stopped) = oneshot::channel::<()>();
    let reader = tokio::spawn(async move {
        let mut client = Redis::connect(redis).await.unwrap();
        let mut count = 0;
        while stopped.try_recv().is_err() {
            assert_eq!(answer(&mut client, "number@1").await, Reply::Bulk(b"10".to_vec()));
            count += 1;
        }
        count
    });

    assert!(
        gateway
            .reload(setup(false, &[item.clone(), number.clone()]))
            .await
    );
    until_bulk(redis, "item@1", "one").await;
    let wrong = [other.replace("string", "text"), number.clone()];
    assert!(!gateway.reload(setup(false, &wrong)).await);
    until_bulk(redis, "item@1", "one").await;
    gateway.write_config(setup(false, &[other, number.clone()]));
    assert!(gateway.put("/reload").1.contains("(live)"));
    until_bulk(redis, "item@1", "10").await;
    assert!(gateway.reload(setup(true, std::slice::from_ref(&number))).await);
    until_error(redis, "item@1", "").await;

    rows_of_tables_are_mappings(&server, &gateway, redis).await;

    stop.send(()).unwrap();
    assert!(reader.await.unwrap() > 0);
}

async fn rows_of_tables_are_mappings(server: &Sandbox, gateway: &Gateway, redis: u16) {
    let printed = Command::new(program())
        .args(["docs", "mapping-tables"])
        .output()
        .unwrap();
    server
        .primary()
        .sql(&String::from_utf8(printed.stdout).unwrap())
        .unwrap();
    let row = "INSERT INTO forebay.hash_containers VALUES ('h', 'test', 'item', 'id', '*', 'PRIMARY'), ('wrong', 'test', 'item', '', '*', '')";
    server.primary().sql(row).unwrap();
    let mut client = Redis::connect(redis).await.unwrap();
    let expected = Reply::Bulk(b"one".to_vec());
    eventually("the row is a mapping", async || {
        client.ask(&["HGET", "h@1", "v"]).await.unwrap() == expected
    })
    .await;
    until_error(redis, "wrong@1", "forebay.hash_containers").await;
    let (_, shown) = gateway.get("/cache");
    assert!(
        shown.contains("\"name\":\"forebay.hash_containers/wrong\""),
        "{shown}"
    );
    eventually("the log names the row", async || {
        gateway.log().contains("row=\"wrong\"") || gateway.log().contains("row=wrong")
    })
    .await;
    assert_eq!(gateway.put("/cache/flush").0, 200);
    server.primary().sql("DROP DATABASE forebay").unwrap();
    until_error(redis, "h@1", "").await;
}
