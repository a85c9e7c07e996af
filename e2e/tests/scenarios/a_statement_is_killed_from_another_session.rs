use e2e::{Setup, client, servers};
use mysql_async::prelude::Queryable;

/// Looks at the servers' list until a statement with `text` runs there.
async fn runs(servers: &[sandbox::Lent], text: &str) {
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

/// The connection id in the greeting is the gateway's own, and clients that cancel a statement (Ctrl-C in the
/// command line, a timeout in Connector/J) use it from a second connection, which may be on another server.
#[tokio::test]
async fn by_the_id_in_the_greeting_whichever_server_it_is_on() {
    let servers = servers(2);
    // A KILL by this account takes no longer than a check.
    let account = format!(
        "user = \"{}\"\npassword = \"{}\"\ninterval = \"200ms\"\ntimeout = \"20s\"",
        sandbox::USER,
        sandbox::PASSWORD
    );
    let gateway = Setup::in_front_of(&servers).check(&account).start();
    let mut victim = client::connect(&gateway).await;
    let at = client::server_port(&mut victim).await;
    let id = victim.id();
    let mut killer = client::connect(&gateway).await;
    while client::server_port(&mut killer).await == at {
        killer = client::connect(&gateway).await;
    }

    let waiting = tokio::spawn(async move {
        let result = victim
            .query_drop("SELECT id FROM (SELECT SLEEP(123) AS id) AS s")
            .await;
        (result, victim)
    });
    runs(&servers, "SLEEP(123)").await;
    killer.query_drop(format!("KILL QUERY {id}")).await.unwrap();
    let (result, mut victim) = waiting.await.unwrap();
    if let Err(error) = result {
        assert_eq!(client::code(&error), 1317, "{error}");
    }
    victim.query_drop("SELECT 1").await.unwrap();
    killer.query_drop(format!("KILL {id}")).await.unwrap();
    victim.query_drop("SELECT 1").await.unwrap_err();

    // As long as the gateway has not taken leave of the session, there is one that is being ended.
    e2e::eventually("nobody knows the id any more", async || {
        let killed = killer.query_drop(format!("KILL {id}")).await;
        killed.is_err_and(|error| client::code(&error) == 1094)
    })
    .await;
    killer.query_drop("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn an_account_that_may_not_kill_is_said_to_be_why() {
    let servers = servers(2);
    for server in &servers {
        let create = "CREATE USER weak@'%' IDENTIFIED BY 'weak'";
        server.primary().sql(create).unwrap();
    }
    // A KILL by this account takes no longer than a check.
    let account = "user = \"weak\"\npassword = \"weak\"\ninterval = \"200ms\"\ntimeout = \"20s\"";
    let gateway = Setup::in_front_of(&servers).check(account).start();
    let mut victim = client::connect(&gateway).await;
    let at = client::server_port(&mut victim).await;
    let mut killer = client::connect(&gateway).await;
    while client::server_port(&mut killer).await == at {
        killer = client::connect(&gateway).await;
    }
    let kill = format!("KILL QUERY {}", victim.id());
    let error = killer.query_drop(kill).await.unwrap_err();
    assert_eq!(client::code(&error), 1095, "{error}");
    assert!(
        error.to_string().contains("by the account of the checks"),
        "{error}"
    );
    killer.query_drop("SELECT 1").await.unwrap();
    victim.query_drop("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn on_another_server_by_those_who_may_end_sessions_of_others() {
    let servers = servers(2);
    let right = match e2e::kind() {
        // The victim is a system user.
        sandbox::Kind::Mysql => "CONNECTION_ADMIN, SYSTEM_USER",
        _ => "CONNECTION ADMIN",
    };
    let create = format!(
        "CREATE USER chief@'%' IDENTIFIED BY 'secret'; CREATE USER clerk@'%' IDENTIFIED BY 'secret';
         GRANT {right} ON *.* TO chief@'%'"
    );
    for server in &servers {
        server.primary().sql(&create).unwrap();
    }
    let account = format!(
        "user = {:?}\npassword = {:?}\ntimeout = \"20s\"",
        sandbox::USER,
        sandbox::PASSWORD
    );
    let gateway = Setup::in_front_of(&servers).check(&account).start();
    let mut victim = client::connect(&gateway).await;
    let at = client::server_port(&mut victim).await;
    let id = victim.id();
    let elsewhere = async |name: &'static str| loop {
        let options = client::options(&gateway).user(Some(name)).pass(Some("secret"));
        let options = options.db_name(None::<String>);
        let mut session = mysql_async::Conn::new(options).await.unwrap();
        if client::server_port(&mut session).await != at {
            return session;
        }
    };
    let (mut chief, mut clerk) = (elsewhere("chief").await, elsewhere("clerk").await);
    for kill in [format!("KILL QUERY {id}"), format!("KILL {id}")] {
        let error = clerk.query_drop(&kill).await.unwrap_err();
        assert_eq!(client::code(&error), 1095, "{kill}: {error}");
        victim.query_drop("SELECT 1").await.unwrap();
    }
    chief.query_drop(format!("KILL {id}")).await.unwrap();
    victim.query_drop("SELECT 1").await.unwrap_err();
    clerk.query_drop("SELECT 1").await.unwrap();
}
