//! The gateway itself checks passwords, in the way that the client's plugin wants it, and says what a server
//! would say.

use std::time::{Duration, Instant};

use e2e::{Gateway, Setup, client, eventually, kind};
use mysql_async::prelude::Queryable;
use mysql_async::{ChangeUserOpts, Conn, OptsBuilder};
use sandbox::{DATABASE, Kind, Sandbox};

use crate::cluster::{self, ask, narrow, user};

/// `SHA1(SHA1('hunter2'))` as `mysql.user` has it.
const HUNTER2_HASH: &str = "*58815970BE77B3720276F63DB198B1FA42E5CC02";

fn options(gateway: &Gateway, user: &str, password: &str) -> OptsBuilder {
    cluster::options(gateway)
        .user(Some(user.to_owned()))
        .pass(Some(password.to_owned()))
        .db_name(Some(DATABASE))
}

async fn log_in(gateway: &Gateway, user: &str, password: &str) -> Result<Conn, mysql_async::Error> {
    Conn::new(options(gateway, user, password)).await
}

/// Makes an account on the server.
fn account(sandbox: &Sandbox, name: &str, identified: &str) {
    sandbox
        .primary()
        .sql(&format!(
            "CREATE USER {name}@'%' IDENTIFIED {identified}; GRANT ALL ON test.* TO {name}@'%'"
        ))
        .unwrap();
}

/// A gateway with these further accounts.
fn with_users(tables: &str) -> Setup {
    narrow(cluster::single(), 4).tables(tables)
}

#[tokio::test]
async fn and_are_who_they_are_on_the_server() {
    let sandbox = cluster::single();
    let kinds: &[(&str, &str)] = match kind() {
        Kind::Mysql => &[
            ("plain_sha2", "WITH caching_sha2_password BY 'hunter2'"),
            ("second_sha2", "BY 'hunter2'"),
        ],
        _ => &[
            ("plain_native", "BY 'hunter2'"),
            ("plain_ed25519", "VIA ed25519 USING PASSWORD('hunter2')"),
        ],
    };
    if kind() == Kind::Mariadb {
        sandbox.primary().sql("INSTALL SONAME 'auth_ed25519'").unwrap();
    }
    let tables: String = kinds.iter().map(|(name, _)| user(name, "hunter2")).collect();
    for (name, identified) in kinds {
        account(sandbox, name, identified);
    }
    let gateway = with_users(&tables).start();
    for _ in 0..2 {
        for (name, _) in kinds {
            let mut session = log_in(&gateway, name, "hunter2").await.unwrap();
            let is = ask(&mut session, "SELECT CURRENT_USER()").await;
            assert_eq!(is, Ok(Some(format!("{name}@%"))));
        }
    }
}

#[tokio::test]
async fn and_hear_the_same_whether_the_name_or_the_password_is_wrong() {
    let gateway = with_users("").start();
    for (name, password) in [("forebay", "wrong"), ("nobody", "forebay"), ("", "forebay")] {
        let error = log_in(&gateway, name, password).await.unwrap_err();
        assert_eq!(client::code(&error), 1045);
        let words = format!("Access denied for user '{name}'@'127.0.0.1' (using password: YES)");
        assert!(error.to_string().contains(&words), "{error}");
    }
    let error = log_in(&gateway, "forebay", "").await.unwrap_err();
    assert!(error.to_string().contains("(using password: NO)"), "{error}");
    log_in(&gateway, "forebay", "forebay").await.unwrap();
}

#[tokio::test]
async fn or_with_the_hash_alone() {
    let plugin = "SELECT COUNT(*) FROM information_schema.PLUGINS
                  WHERE PLUGIN_NAME = 'mysql_native_password' AND PLUGIN_STATUS = 'ACTIVE'";
    if cluster::single().primary().sql(plugin).unwrap().trim() == "0" {
        // MySQL 9 has no mysql_native_password any more: a hash of it opens nothing, and the client is told
        // so.
        let table = format!("[[user]]\nname = \"hashed\"\nnative_hash = {HUNTER2_HASH:?}\n");
        let gateway = with_users(&table).start();
        assert!(log_in(&gateway, "hashed", "hunter2").await.is_err());
        return;
    }
    let native = match kind() {
        Kind::Mysql => "WITH mysql_native_password BY 'hunter2'",
        _ => "BY 'hunter2'",
    };
    account(cluster::single(), "hashed", native);
    let table = format!("[[user]]\nname = \"hashed\"\nnative_hash = {HUNTER2_HASH:?}\n");
    let gateway = with_users(&table).start();
    for _ in 0..2 {
        let mut session = log_in(&gateway, "hashed", "hunter2").await.unwrap();
        assert_eq!(
            ask(&mut session, "SELECT CURRENT_USER()").await,
            Ok(Some("hashed@%".to_owned()))
        );
    }
    let error = log_in(&gateway, "hashed", "hunter3").await.unwrap_err();
    assert_eq!(client::code(&error), 1045);
}

#[tokio::test]
async fn with_a_new_password_after_a_reload() {
    let sandbox = cluster::single();
    account(sandbox, "rotating", "BY 'first'");
    let mut gateway = with_users(&user("rotating", "first")).start();
    let mut old = log_in(&gateway, "rotating", "first").await.unwrap();
    assert!(log_in(&gateway, "rotating", "second").await.is_err());

    // While it is being changed, clients may use either; servers know one of them.
    let both = format!("{}previous_password = \"first\"\n", user("rotating", "second"));
    sandbox
        .primary()
        .sql("ALTER USER rotating@'%' IDENTIFIED BY 'second'")
        .unwrap();
    assert!(gateway.reload(with_users(&both)).await, "{}", gateway.log());
    log_in(&gateway, "rotating", "first").await.unwrap();
    log_in(&gateway, "rotating", "second").await.unwrap();

    assert!(gateway.reload(with_users(&user("rotating", "second"))).await);
    let error = log_in(&gateway, "rotating", "first").await.unwrap_err();
    assert_eq!(client::code(&error), 1045);
    let mut new = log_in(&gateway, "rotating", "second").await.unwrap();
    for session in [&mut old, &mut new] {
        session.query_drop("SELECT 1").await.unwrap();
    }

    // Without its account a user is unknown.
    assert!(gateway.reload(with_users("")).await);
    let error = log_in(&gateway, "rotating", "second").await.unwrap_err();
    assert_eq!(client::code(&error), 1045);
}

#[tokio::test]
async fn with_either_password_where_the_server_has_one_of_them() {
    account(cluster::single(), "behind", "BY 'old'");
    let both = format!("{}previous_password = \"old\"\n", user("behind", "new"));
    // No server connection is open yet: the gateway logs in with the one, and then with the other.
    for password in ["new", "old"] {
        let gateway = with_users(&both).start();
        let mut session = log_in(&gateway, "behind", password).await.unwrap();
        let is = ask(&mut session, "SELECT CURRENT_USER()").await;
        assert_eq!(is, Ok(Some("behind@%".to_owned())));
    }
}

#[tokio::test]
async fn and_change_to_users_that_there_are_by_then() {
    account(cluster::single(), "later", "BY 'later'");
    let mut gateway = with_users("").start();
    let become_later = || {
        ChangeUserOpts::new()
            .with_user(Some("later".to_owned()))
            .with_pass(Some("later".to_owned()))
    };
    let mut early = log_in(&gateway, "forebay", "forebay").await.unwrap();
    let mut other = log_in(&gateway, "forebay", "forebay").await.unwrap();
    assert!(gateway.reload(with_users(&user("later", "later"))).await);
    early.change_user(become_later()).await.unwrap();
    let is = ask(&mut early, "SELECT CURRENT_USER()").await;
    assert_eq!(is, Ok(Some("later@%".to_owned())));
    assert!(gateway.reload(with_users("")).await);
    let error = other.change_user(become_later()).await.unwrap_err();
    assert_eq!(client::code(&error), 1045);
}

/// And bind their sessions from then on, by the way of each.
#[tokio::test]
async fn and_change_to_users_of_another_pooling() {
    account(cluster::single(), "keeper", "BY 'keeper'");
    let table = format!("{}pooling = \"session\"\n", user("keeper", "keeper"));
    let gateway = with_users(&table).start();
    let mut session = log_in(&gateway, "forebay", "forebay").await.unwrap();
    // The gateway is older than what binds the session.
    let begun = Instant::now();
    eventually("some time has passed", async || {
        begun.elapsed() > Duration::from_millis(300)
    })
    .await;
    for (name, expected) in [
        ("keeper", vec!["session-pooling"]),
        ("forebay", vec![]),
        ("keeper", vec!["session-pooling"]),
    ] {
        let to = ChangeUserOpts::new()
            .with_user(Some(name.to_owned()))
            .with_pass(Some(name.to_owned()));
        let changes = Instant::now();
        session.change_user(to).await.unwrap();
        session.query_drop("SELECT 1").await.unwrap();
        let pins: Vec<(String, String, String)> = session.query("FOREBAY SHOW PINS").await.unwrap();
        let reasons: Vec<&str> = pins.iter().map(|(reason, ..)| reason.as_str()).collect();
        assert_eq!(reasons, expected, "{name}");
        let is_new = |since: &String| {
            since
                .parse()
                .is_ok_and(|since: f64| since <= changes.elapsed().as_secs_f64() + 0.1)
        };
        assert!(pins.iter().all(|(.., since)| is_new(since)), "{pins:?}");
    }
}

#[tokio::test]
async fn no_more_of_them_than_they_may() {
    account(cluster::single(), "few", "BY 'few'");
    let gateway = with_users(&format!("{}max_connections = 2\n", user("few", "few"))).start();
    let first = log_in(&gateway, "few", "few").await.unwrap();
    let mut second = log_in(&gateway, "few", "few").await.unwrap();
    let error = log_in(&gateway, "few", "few").await.unwrap_err();
    assert_eq!(client::code(&error), 1226, "{error}");
    // Who stays who he is needs no room on MariaDB; MySQL wants some.
    let changed = second.change_user(ChangeUserOpts::new()).await;
    match kind() {
        Kind::Mysql => assert_eq!(client::code(&changed.unwrap_err()), 1226),
        _ => changed.unwrap(),
    }
    first.disconnect().await.unwrap();
    eventually("there is room again", async || {
        log_in(&gateway, "few", "few").await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn and_what_the_server_refuses_is_refused() {
    let sandbox = cluster::single();
    account(sandbox, "confined", "BY 'confined'");
    let gateway = with_users(&format!(
        "{}{}{}",
        user("confined", "confined"),
        user("absent", "absent"),
        user("bolted", "bolted")
    ))
    .start();
    // The server does not know what the gateway knows: not the client's mistake, and said in full to the
    // operator alone.
    let error = log_in(&gateway, "absent", "absent").await.unwrap_err();
    assert_eq!(client::code(&error), 1429, "{error}");
    let words = error.to_string();
    assert!(words.contains("Access denied"), "{words}");
    let address = sandbox.primary().address();
    for detail in [&*address, "127.0.0.1", "absent"] {
        assert!(!words.contains(detail), "{words}");
    }
    eventually("the log says whose password is refused, and where", async || {
        gateway.log().lines().any(|line| {
            let parts = [
                "server refuses the password that [[user]] has",
                "absent",
                &address,
            ];
            parts.iter().all(|part| line.contains(part))
        })
    })
    .await;
    // What is wrong with an account is said as the server says it.
    account(sandbox, "bolted", "BY 'bolted'");
    sandbox
        .primary()
        .sql("ALTER USER bolted@'%' ACCOUNT LOCK")
        .unwrap();
    let locked = match kind() {
        Kind::Mysql => 3118,
        _ => 4151,
    };
    let error = log_in(&gateway, "bolted", "bolted").await.unwrap_err();
    assert_eq!(client::code(&error), locked, "{error}");
    // A schema that is not there, or not for this account.
    let elsewhere = options(&gateway, "confined", "confined").db_name(Some("mysql"));
    assert_eq!(client::code(&Conn::new(elsewhere).await.unwrap_err()), 1044);
    let nowhere = options(&gateway, "forebay", "forebay").db_name(Some("nowhere"));
    assert_eq!(client::code(&Conn::new(nowhere).await.unwrap_err()), 1049);
    let mut session = log_in(&gateway, "confined", "confined").await.unwrap();
    let refused = session.query_drop("SELECT * FROM mysql.user").await;
    assert_eq!(client::code(&refused.unwrap_err()), 1142);
    session.query_drop("SELECT 1").await.unwrap();
}
