use e2e::{Gateway, Setup, client, eventually, servers};
use mysql_async::prelude::Queryable;

#[tokio::test]
async fn without_touching_sessions() {
    let servers = servers(2);
    let (old, new) = (servers[0].primary(), servers[1].primary());
    let mut gateway = Setup::in_front_of(&servers[..1]).start();
    let mut session = client::connect(&gateway).await;
    session.query_drop("SET @mine = 7").await.unwrap();

    assert!(
        gateway.reload(Setup::in_front_of(&servers)).await,
        "{}",
        gateway.log()
    );
    eventually("the added server gets sessions", async || {
        client::server_port(&mut client::connect(&gateway).await).await == new.port()
    })
    .await;
    let mine: Option<u8> = session.query_first("SELECT @mine").await.unwrap();
    assert_eq!(mine, Some(7), "the session is still the same");
    assert!(gateway.reload(Setup::in_front_of(&servers)).await);
    eventually("it says since when there is no news", async || {
        let told = "nothing has changed since the configuration was taken up";
        gateway.log().contains(told)
    })
    .await;

    // Removed: no new sessions; the one in a transaction keeps its server until it is done.
    session.query_drop("START TRANSACTION").await.unwrap();
    assert!(
        gateway.reload(Setup::in_front_of(&servers[1..])).await,
        "{}",
        gateway.log()
    );
    for _ in 0..4 {
        assert_eq!(
            client::server_port(&mut client::connect(&gateway).await).await,
            new.port()
        );
    }
    assert_eq!(client::server_port(&mut session).await, old.port());
    session.query_drop("COMMIT").await.unwrap();
    eventually("the removed server is let go", async || {
        session.query_drop("SELECT 1").await.is_err()
    })
    .await;
}

#[tokio::test]
async fn and_a_wrong_one_changes_nothing() {
    let servers = servers(1);
    let mut gateway = Setup::in_front_of(&servers).start();
    let mut session = client::connect(&gateway).await;
    let is_refused = |gateway: &Gateway| {
        let (_, status) = gateway.get("/status");
        match status.split("\"refused_reload\":").nth(1) {
            Some(refused) if refused.starts_with("null") => None,
            refused => Some(refused.unwrap().split('}').next().unwrap().to_owned()),
        }
    };
    assert_eq!(is_refused(&gateway), None);
    let wrong = Setup::in_front_of(&servers).cluster("balance = \"by_mood\"\nbalanse = 1");
    assert!(!gateway.reload(wrong).await);
    eventually("the log says why", async || gateway.log().contains("by_mood")).await;
    let refused = is_refused(&gateway).unwrap();
    for said in [
        "\"why\":\"SIGHUP\"",
        "by_mood",
        "\"more_mistakes\":1",
        "\"seconds_ago\":",
    ] {
        assert!(refused.contains(said), "{refused}");
    }
    assert!(!refused.contains("balanse"), "the first one: {refused}");
    session.query_drop("SELECT 1").await.unwrap();
    client::connect(&gateway).await;
    assert!(
        gateway.reload(Setup::in_front_of(&servers)).await,
        "{}",
        gateway.log()
    );
    assert_eq!(is_refused(&gateway), None);
}

#[tokio::test]
async fn and_what_waits_for_a_restart_is_said_at_every_reload() {
    let servers = servers(1);
    let mut gateway = Setup::in_front_of(&servers).top("workers = 1").start();
    let wanted = Setup::in_front_of(&servers).top("workers = 2");
    for reload in 1..=2 {
        assert!(gateway.reload(wanted.clone()).await, "{}", gateway.log());
        let said = || {
            let log = gateway.log();
            let lines = log.lines().filter(|line| line.contains("workers: 1 -> 2"));
            lines
                .filter(|line| line.contains("takes effect at the next start"))
                .count()
        };
        eventually("the log names it", async || said() == reload).await;
    }
    assert!(gateway.get("/status").1.contains("\"workers\":[{\"index\":0,"));
    assert!(!gateway.get("/status").1.contains("\"index\":1,"));
}

#[tokio::test]
async fn when_the_file_changes_where_it_is_watched() {
    let servers = servers(2);
    let mut gateway = Setup::in_front_of(&servers[..1]).top("watch = true").start();
    gateway.write_config(Setup::in_front_of(&servers).top("watch = true"));
    eventually("the gateway has both servers", async || gateway.servers_up() == 2).await;
}

#[tokio::test]
async fn when_the_users_file_changes_as_well() {
    let servers = servers(1);
    let mut gateway = Setup::in_front_of(&servers).top("watch = true").start();
    let users = gateway.folder().join("users.toml");
    let write = |text: &str| std::fs::write(&users, text).unwrap();
    write("[[user]]\nname = \"app\"\npassword = \"hunter2\"\n");
    gateway.write_config(Setup::in_front_of(&servers).top("watch = true\nusers_file = \"users.toml\""));
    eventually("the file is read", async || {
        gateway.log().contains("user[app]: added")
    })
    .await;

    write("[[user]]\nname = \"app\"\npasword = \"hunter3\"\n");
    eventually("the log says what is wrong in it", async || {
        gateway.log().contains("users.toml:3:1: user[0].pasword")
    })
    .await;
    write("[[user]]\nname = \"app\"\npassword = \"hunter3\"\n[[user]]\nname = \"batch\"\npassword = \"\"\n");
    eventually("the mended file is read", async || {
        gateway.log().contains("user[batch]: added")
    })
    .await;
    assert!(!gateway.log().contains("hunter"), "{}", gateway.log());
}
