//! `sharing = "never"`: each session has logged in at the primary by itself and stays on that connection, and
//! rules see its statements.

use e2e::{Gateway, Setup, client, eventually};
use mysql_async::prelude::Queryable;
use mysql_async::{ChangeUserOpts, Conn};
use sandbox::Sandbox;

use crate::cluster::{self, ask};

const NEVER: &str = "sharing = \"never\"";

fn own(sandbox: &Sandbox) -> Setup {
    cluster::split(sandbox).listener(NEVER)
}

async fn with_rules(rules: &[&str]) -> Gateway {
    let setup = cluster::narrow(cluster::single(), 8)
        .cluster(&cluster::monitor())
        .listener(NEVER);
    let rule = |setup: Setup, options: &&str| setup.tables(&format!("[[rule]]\n{options}\n"));
    rules.iter().fold(setup, rule).start()
}

#[tokio::test]
async fn at_the_primary_with_all_that_it_holds() {
    let sandbox = cluster::shared();
    let gateway = cluster::start(own(sandbox), 2).await;
    let mut session = cluster::connect(&gateway).await;
    let connection = async |session: &mut Conn| {
        let id: Option<u64> = session.query_first("SELECT CONNECTION_ID()").await.unwrap();
        id.unwrap()
    };
    let id = connection(&mut session).await;
    cluster::schema(
        sandbox,
        "of_their_own",
        "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)",
    );
    session
        .query_drop("SET @mine = 7, SESSION sort_buffer_size = 1048576")
        .await
        .unwrap();
    session
        .query_drop("INSERT INTO of_their_own.t (v) VALUES (5)")
        .await
        .unwrap();
    assert_eq!(
        ask(&mut session, "SELECT LAST_INSERT_ID()").await,
        Ok(Some("1".to_owned()))
    );
    for _ in 0..5 {
        assert_eq!(cluster::where_am_i(&mut session).await, sandbox.primary().port());
        let mine: Option<u32> = session.exec_first("SELECT @mine + ?", (1,)).await.unwrap();
        assert_eq!(mine, Some(8));
    }
    assert_eq!(connection(&mut session).await, id);
    // Somebody else has another connection, and sees nothing of it.
    let mut other = cluster::connect(&gateway).await;
    assert_ne!(connection(&mut other).await, id);
    assert_eq!(ask(&mut other, "SELECT @mine").await, Ok(None));
    let taken = || gateway.metric("forebay_server_sessions_active", &[]);
    assert_eq!(taken(), 2.0);
    // A session that begins anew keeps its connection, and nothing else.
    session.reset().await.unwrap();
    assert_eq!(connection(&mut session).await, id);
    assert_eq!(ask(&mut session, "SELECT @mine").await, Ok(None));
    drop(other.disconnect().await);
    drop(session.disconnect().await);
    eventually("the connections are closed with their sessions", async || {
        taken() == 0.0
    })
    .await;
}

#[tokio::test]
async fn and_rules_see_its_statements() {
    let gateway = with_rules(&[
        "name = \"no\"\ntext = \"forbidden\"\nrefuse = \"not here\"",
        "name = \"other\"\ntext = \"SELECT 'old'\"\nrewrite = \"SELECT 'new'\"",
        "name = \"slow\"\ntext = \"SLEEP\"\ntimeout = \"300ms\"",
        "name = \"hers\"\nuser = [\"own_reader\"]\ntext = \"SELECT 3\"\nrefuse = \"not for you\"",
    ])
    .await;
    cluster::single()
        .primary()
        .sql("CREATE USER own_reader IDENTIFIED BY 'own secret'; GRANT SELECT ON *.* TO own_reader")
        .unwrap();
    let mut session = client::connect(&gateway).await;
    session.query_drop("SET @mine = 7").await.unwrap();
    let refused = session.query_drop("SELECT 'forbidden'").await.unwrap_err();
    assert!(refused.to_string().contains("not here"), "{refused}");
    let refused = session.exec_drop("SELECT 'forbidden'", ()).await.unwrap_err();
    assert!(refused.to_string().contains("not here"), "{refused}");
    assert_eq!(
        ask(&mut session, "SELECT 'old'").await,
        Ok(Some("new".to_owned()))
    );
    let prepared: Option<String> = session.exec_first("SELECT 'old'", ()).await.unwrap();
    assert_eq!(prepared.as_deref(), Some("new"));
    // An error, or what SLEEP says when it is interrupted.
    let slow = session.query_first::<u8, _>("SELECT SLEEP(60)").await;
    assert_ne!(slow.ok(), Some(Some(0)));
    assert_eq!(
        ask(&mut session, "SELECT @mine").await,
        Ok(Some("7".to_owned())),
        "it goes on"
    );
    assert_eq!(gateway.metric("forebay_rule_hits_total", &["rule=\"no\""]), 2.0);
    // By the account that it has now.
    assert_eq!(ask(&mut session, "SELECT 3").await, Ok(Some("3".to_owned())));
    let as_reader = ChangeUserOpts::default()
        .with_user(Some("own_reader".to_owned()))
        .with_pass(Some("own secret".to_owned()));
    session.change_user(as_reader).await.unwrap();
    let refused = session.query_drop("SELECT 3").await.unwrap_err();
    assert!(refused.to_string().contains("not for you"), "{refused}");
}

#[tokio::test]
async fn and_the_server_checks_its_password() {
    let users = "[[user]]\nname = \"own_limited\"\npassword = \"unused\"\nmax_connections = 1";
    let gateway = cluster::narrow(cluster::single(), 8)
        .listener(NEVER)
        .tables(users)
        .start();
    cluster::single()
        .primary()
        .sql("CREATE USER own_limited IDENTIFIED BY 'of the server'")
        .unwrap();
    let limited = |password: &'static str| {
        Conn::new(
            client::options(&gateway)
                .user(Some("own_limited"))
                .pass(Some(password))
                .db_name(None::<&str>),
        )
    };
    assert_eq!(client::code(&limited("unused").await.unwrap_err()), 1045);
    let mut first = limited("of the server").await.unwrap();
    // A second one is let in by the server, and told by the gateway.
    let second = async {
        let mut second = limited("of the server").await?;
        second.query_drop("SELECT 1").await
    };
    second.await.unwrap_err();
    first.query_drop("SELECT 1").await.unwrap();
}

/// Servers take `'name'` in quotes for the name, which rules would not find.
#[tokio::test]
async fn and_nobody_goes_by_another_name() {
    let gateway = with_rules(&[]).await;
    let quoted = client::options(&gateway).user(Some(format!("'{}'", sandbox::USER)));
    let error = Conn::new(quoted).await.unwrap_err();
    assert_eq!(client::code(&error), 1045, "{error}");
    let mut session = client::connect(&gateway).await;
    let alias = ChangeUserOpts::default().with_user(Some(format!("'{}'", sandbox::USER)));
    session.change_user(alias).await.unwrap_err();
}
