//! Of an account in `[[user]]` the gateway may know what a server has stored of its password, and no more.

use e2e::{Setup, client, eventually, kind};
use mysql_async::ChangeUserOpts;
use sandbox::{Kind, Sandbox};

use crate::accounts::{is_let_in, log_in, log_in_fast, sql};
use crate::cluster::{self, ask, narrow};

/// Makes an account with the password `hunter2` and a plugin that shows nothing but the password itself, and
/// says what the server has stored, as an option.
fn account(sandbox: &Sandbox, name: &str) -> String {
    let identified = match kind() {
        Kind::Mysql => "BY 'hunter2'",
        _ => "VIA ed25519 USING PASSWORD('hunter2')",
    };
    if kind() != Kind::Mysql {
        sql(sandbox, "INSTALL SONAME 'auth_ed25519'");
    }
    sql(
        sandbox,
        &format!("CREATE USER {name}@'%' IDENTIFIED {identified}; GRANT ALL ON test.* TO {name}@'%'"),
    );
    stored(sandbox, name)
}

fn stored(sandbox: &Sandbox, name: &str) -> String {
    let (option, question) = match kind() {
        Kind::Mysql => (
            "sha2_hash",
            "CONCAT('0x', HEX(authentication_string)) FROM mysql.user",
        ),
        _ => (
            "ed25519_key",
            "JSON_VALUE(Priv, '$.authentication_string') FROM mysql.global_priv",
        ),
    };
    let question = format!("SELECT {question} WHERE User = '{name}'");
    let found = sandbox.primary().sql(&question).unwrap();
    format!("{option} = {:?}\n", found.trim())
}

fn with_user(name: &str, options: &str) -> Setup {
    narrow(cluster::single(), 4).tables(&format!("[[user]]\nname = {name:?}\n{options}"))
}

#[tokio::test]
async fn the_password_is_sent_once_and_then_known() {
    let hash = account(cluster::single(), "by_hash");
    let mut gateway = with_user("by_hash", &hash).start();
    assert!(!is_let_in(&gateway, "by_hash", "hunter3").await);
    if kind() == Kind::Mysql {
        log_in_fast(&gateway, "by_hash").unwrap_err();
    }
    for wrong in ["hunter3", "", "x"] {
        assert!(is_let_in(&gateway, "by_hash", "hunter2").await);
        assert!(!is_let_in(&gateway, "by_hash", wrong).await);
    }
    log_in_fast(&gateway, "by_hash").unwrap();
    assert!(
        gateway.reload(with_user("by_hash", &hash)).await,
        "{}",
        gateway.log()
    );
    log_in_fast(&gateway, "by_hash").unwrap();
}

#[tokio::test]
async fn a_session_may_change_to_one() {
    let hash = account(cluster::single(), "becomes_hash");
    let gateway = with_user("becomes_hash", &hash).start();
    for password in ["hunter2", "hunter3", "hunter2"] {
        let mut session = log_in(&gateway, sandbox::USER, sandbox::PASSWORD).await.unwrap();
        let to = ChangeUserOpts::new()
            .with_user(Some("becomes_hash".to_owned()))
            .with_pass(Some(password.to_owned()));
        match session.change_user(to).await {
            Ok(()) => {
                let is = ask(&mut session, "SELECT CURRENT_USER()").await;
                assert_eq!(is, Ok(Some("becomes_hash@%".to_owned())));
                assert_eq!(password, "hunter2");
            }
            Err(error) => assert_eq!((client::code(&error), password), (1045, "hunter3"), "{error}"),
        }
    }
}

/// The server has the one or the other, and the gateway finds out which as soon as it knows both.
#[tokio::test]
async fn there_may_be_two_of_them() {
    let sandbox = cluster::single();
    let old = account(sandbox, "two_hashes");
    let change = match kind() {
        Kind::Mysql => "ALTER USER two_hashes@'%' IDENTIFIED BY 'hunter3'",
        _ => "ALTER USER two_hashes@'%' IDENTIFIED VIA ed25519 USING PASSWORD('hunter3')",
    };
    sql(sandbox, change);
    let both = format!("{}previous_{old}", stored(sandbox, "two_hashes"));
    let gateway = with_user("two_hashes", &both).start();
    // Nobody has shown the new one: with the old one alone there is no way in.
    let error = log_in(&gateway, "two_hashes", "hunter2").await.unwrap_err();
    assert_eq!(client::code(&error), 1429, "{error}");
    for password in ["hunter3", "hunter2"] {
        assert!(is_let_in(&gateway, "two_hashes", password).await, "{password}");
    }
    assert!(!is_let_in(&gateway, "two_hashes", "hunter4").await);
}

/// A server that has the account with another plugin counts each login, and locks the account in the end.
#[tokio::test]
async fn a_hash_that_does_not_fit_is_not_tried_each_time() {
    const NATIVE: &str = "native_hash = \"*58815970BE77B3720276F63DB198B1FA42E5CC02\"\n";
    let sandbox = cluster::single();
    account(sandbox, "misfit");
    if kind() == Kind::Mysql {
        let lock = "ALTER USER misfit@'%' FAILED_LOGIN_ATTEMPTS 3 PASSWORD_LOCK_TIME UNBOUNDED";
        sql(sandbox, lock);
    }
    let gateway = with_user("misfit", NATIVE).start();
    for _ in 0..5 {
        let error = log_in(&gateway, "misfit", "hunter2").await.unwrap_err();
        assert_eq!(client::code(&error), 1429, "{error}");
    }
    eventually("the log says how often the account was tried", async || {
        gateway.log().matches("tried again in").count() == 4
    })
    .await;
    let log = gateway.log();
    assert_eq!(
        log.matches("account cannot log in on a server").count(),
        1,
        "{log}"
    );
    if kind() == Kind::Mysql {
        let options = client::options_at(sandbox.primary().port());
        let direct = options.user(Some("misfit")).pass(Some("hunter2"));
        mysql_async::Conn::new(direct).await.unwrap();
    }
}
