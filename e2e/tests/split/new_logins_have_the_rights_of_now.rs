//! What is changed at an account holds for whoever logs in from then on, however many connections of the pool
//! were logged in before.

use e2e::{Gateway, client, eventually, kind};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::Kind;

use crate::accounts::{log_in, sql};
use crate::cluster::{self, ask, narrow, user};

/// An account that may do everything, three sessions of it, and connections of it in the pool.
async fn stage(name: &str) -> (Gateway, Vec<Conn>) {
    let sandbox = cluster::single();
    sql(
        sandbox,
        &format!(
            "CREATE USER {name}@'%' IDENTIFIED BY 'hunter2'; GRANT ALL ON *.* TO {name}@'%' WITH GRANT OPTION"
        ),
    );
    let gateway = narrow(sandbox, 4)
        .cluster("accounts = { interval = \"1s\" }")
        .tables(&user(name, "hunter2"))
        .start();
    let mut sessions = Vec::new();
    for _ in 0..3 {
        let mut session = log_in(&gateway, name, "hunter2").await.unwrap();
        session.query_drop("BEGIN").await.unwrap();
        sessions.push(session);
    }
    for session in &mut sessions {
        session.query_drop("ROLLBACK").await.unwrap();
    }
    (gateway, sessions)
}

/// Waits until a new login is told this, and sees to it that all later ones are.
async fn is_told(gateway: &Gateway, name: &str, code: u16) {
    let told = async || match log_in(gateway, name, "hunter2").await {
        Ok(_) => 0,
        Err(error) => client::code(&error),
    };
    eventually("a login hears of the change", async || told().await == code).await;
    for _ in 0..8 {
        assert_eq!(told().await, code);
    }
}

#[tokio::test]
async fn after_a_revoke() {
    let (gateway, mut old) = stage("revoked").await;
    sql(
        cluster::single(),
        "REVOKE ALL PRIVILEGES, GRANT OPTION FROM revoked@'%'; GRANT SELECT ON test.* TO revoked@'%'",
    );
    let mut read = async || {
        let mut session = log_in(&gateway, "revoked", "hunter2").await.unwrap();
        // Connections that were logged in before are as good as any for a session that was there before.
        let mut codes = Vec::new();
        for old in &mut old {
            assert_eq!(ask(old, "SELECT 1").await, Ok(Some("1".to_owned())));
            let read = ask(&mut session, "SELECT COUNT(*) FROM mysql.help_topic").await;
            codes.push(read.err().unwrap_or(0));
        }
        // An error keeps the connection for whoever asks about it.
        session.query_drop("SELECT 1").await.unwrap();
        codes
    };
    eventually("a new session may read no more than its account", async || {
        read().await == [1142; 3]
    })
    .await;
    for _ in 0..4 {
        assert_eq!(read().await, [1142; 3]);
    }
    assert!(gateway.metric("forebay_pool_closed_total", &["reason=\"login\""]) > 0.0);
}

#[tokio::test]
async fn after_a_drop() {
    let (gateway, _old) = stage("dropped").await;
    sql(cluster::single(), "DROP USER dropped@'%'");
    is_told(&gateway, "dropped", 1429).await;
}

#[tokio::test]
async fn after_a_lock() {
    let (gateway, _old) = stage("locked_later").await;
    sql(cluster::single(), "ALTER USER locked_later@'%' ACCOUNT LOCK");
    let code = match kind() {
        Kind::Mysql => 3118,
        _ => 4151,
    };
    is_told(&gateway, "locked_later", code).await;
}

#[tokio::test]
async fn after_a_change_of_the_password() {
    let (gateway, _old) = stage("changed_over").await;
    sql(
        cluster::single(),
        "ALTER USER changed_over@'%' IDENTIFIED BY 'hunter3'",
    );
    is_told(&gateway, "changed_over", 1429).await;
}

#[tokio::test]
async fn and_sessions_that_stay_cost_no_logins() {
    let (gateway, mut old) = stage("staying").await;
    let opened = || gateway.metric("forebay_pool_opened_total", &[]);
    let before = opened();
    let since = std::time::Instant::now();
    while since.elapsed() < std::time::Duration::from_millis(1500) {
        for session in &mut old {
            assert_eq!(ask(session, "SELECT 1").await, Ok(Some("1".to_owned())));
        }
    }
    assert_eq!(opened(), before);
}
