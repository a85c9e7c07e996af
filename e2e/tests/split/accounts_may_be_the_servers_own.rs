//! Accounts that only the servers have log in without being listed anywhere, and are known to be changed and
//! dropped.

use e2e::{Setup, client, eventually, kind};
use mysql_async::{Conn, SslOpts};
use sandbox::{Certificates, Kind, Sandbox};

use crate::accounts::{account, is_let_in, log_in, log_in_fast, options, sql};
use crate::cluster::{self, ask, monitor};

/// A gateway that knows nobody but the account of its monitor.
fn setup(sandbox: &Sandbox) -> Setup {
    setup_with(sandbox, "")
}

/// The same with a further option of `accounts`.
fn setup_with(sandbox: &Sandbox, option: &str) -> Setup {
    let server = format!(
        "{{ address = {:?}, role = \"primary\" }}",
        sandbox.primary().address()
    );
    Setup::of_addresses(sandbox.addresses())
        .servers([server])
        .mode("split")
        .cluster(&monitor())
        .cluster(&format!(
            "accounts = {{ from = \"servers\", interval = \"1s\"{option} }}"
        ))
        .check(cluster::PATIENT_CHECKS)
}

#[tokio::test]
async fn with_the_passwords_that_they_have_there() {
    let sandbox = cluster::single();
    account(sandbox, "unlisted");
    let gateway = setup(sandbox).start();
    for _ in 0..2 {
        assert!(is_let_in(&gateway, "unlisted", "hunter2").await);
        for wrong in ["hunter3", "", "x"] {
            assert!(!is_let_in(&gateway, "unlisted", wrong).await);
        }
        assert!(!is_let_in(&gateway, "unheard_of", "hunter2").await);
    }
    // One that was not there a moment ago.
    account(sandbox, "brand_new");
    assert!(is_let_in(&gateway, "brand_new", "hunter2").await);
}

#[tokio::test]
async fn over_tls_as_well() {
    let sandbox = cluster::single();
    account(sandbox, "over_tls");
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::make(folder.path()).unwrap();
    let (cert, key) = (&certificates.server_cert, &certificates.server_key);
    let gateway = setup(sandbox)
        .listener_tls(&format!("mode = \"required\"\ncert = {cert:?}\nkey = {key:?}"))
        .start();
    let tls = SslOpts::default().with_root_certs(vec![certificates.ca.clone().into()]);
    for _ in 0..2 {
        let with_tls = |password| options(&gateway, "over_tls", password).ssl_opts(tls.clone());
        Conn::new(with_tls("hunter2")).await.unwrap();
        let error = Conn::new(with_tls("hunter3")).await.unwrap_err();
        assert_eq!(client::code(&error), 1045);
    }
}

#[tokio::test]
async fn until_they_are_changed_or_dropped() {
    let sandbox = cluster::single();
    account(sandbox, "changing");
    let gateway = setup(sandbox).start();
    let mut before = log_in(&gateway, "changing", "hunter2").await.unwrap();
    sql(sandbox, "ALTER USER changing@'%' IDENTIFIED BY 'hunter3'");
    // The new password needs no patience: whatever fails makes the gateway look.
    assert!(is_let_in(&gateway, "changing", "hunter3").await);
    assert!(!is_let_in(&gateway, "changing", "hunter2").await);
    sql(sandbox, "DROP USER changing@'%'");
    eventually("the account is known to be gone", async || {
        match log_in(&gateway, "changing", "hunter3").await {
            Ok(_) => false,
            Err(error) => client::code(&error) == 1045,
        }
    })
    .await;
    // As on a server, those who are in stay in.
    assert_eq!(ask(&mut before, "SELECT 1").await, Ok(Some("1".to_owned())));
}

#[tokio::test]
async fn with_a_password_that_is_known_from_then_on() {
    let sandbox = cluster::single();
    account(sandbox, "remembered");
    let gateway = setup(sandbox).start();
    if kind() != Kind::Mysql {
        // What MariaDB has stored is enough from the first login on.
        log_in_fast(&gateway, "remembered").unwrap();
        return;
    }
    log_in_fast(&gateway, "remembered").unwrap_err();
    assert!(is_let_in(&gateway, "remembered", "hunter2").await);
    log_in_fast(&gateway, "remembered").unwrap();

    let forgetful = setup_with(sandbox, ", keep_passwords = false").start();
    assert!(is_let_in(&forgetful, "remembered", "hunter2").await);
    log_in_fast(&forgetful, "remembered").unwrap_err();
    assert!(is_let_in(&forgetful, "remembered", "hunter2").await);
}

/// A public key is no way in for the gateway, and shows which password is.
#[tokio::test]
async fn with_the_password_that_a_key_is_made_of() {
    if kind() == Kind::Mysql {
        return;
    }
    let sandbox = cluster::single();
    sql(
        sandbox,
        "INSTALL SONAME 'auth_ed25519'; CREATE USER own_key@'%' IDENTIFIED VIA ed25519 USING PASSWORD('hunter2');
         GRANT ALL ON test.* TO own_key@'%'",
    );
    let gateway = setup(sandbox).start();
    for _ in 0..2 {
        assert!(!is_let_in(&gateway, "own_key", "hunter3").await);
        assert!(is_let_in(&gateway, "own_key", "hunter2").await);
    }
    log_in_fast(&gateway, "own_key").unwrap();
}

#[tokio::test]
async fn with_the_password_before_while_it_is_retained() {
    let sandbox = cluster::single();
    account(sandbox, "rotated");
    let retained = "ALTER USER rotated@'%' IDENTIFIED BY 'hunter3' RETAIN CURRENT PASSWORD";
    if kind() != Kind::Mysql {
        // MariaDB has one password at a time.
        assert!(sandbox.primary().sql(retained).is_err());
        return;
    }
    sql(sandbox, retained);
    let gateway = setup(sandbox).start();
    for password in ["hunter2", "hunter3", "hunter2"] {
        assert!(is_let_in(&gateway, "rotated", password).await, "{password}");
    }
    sql(sandbox, "ALTER USER rotated@'%' DISCARD OLD PASSWORD");
    eventually("the old password is forgotten", async || {
        log_in(&gateway, "rotated", "hunter2").await.is_err()
    })
    .await;
    assert!(is_let_in(&gateway, "rotated", "hunter3").await);
}

#[tokio::test]
async fn unless_they_say_too_little() {
    let sandbox = cluster::single();
    let unusable = match kind() {
        Kind::Mysql => "CREATE USER keyed@'%'",
        _ => "CREATE USER keyed@'%' IDENTIFIED VIA unix_socket",
    };
    sql(sandbox, unusable);
    sql(sandbox, "CREATE USER nearby@'localhost' IDENTIFIED BY 'hunter2'");
    account(sandbox, "locked");
    sql(sandbox, "ALTER USER locked@'%' ACCOUNT LOCK");
    let gateway = setup(sandbox).start();
    for (name, password) in [
        ("keyed", "hunter2"),
        ("keyed", ""),
        ("nearby", "hunter2"),
        ("root", ""),
    ] {
        assert!(!is_let_in(&gateway, name, password).await, "{name}");
    }
    let reason = match kind() {
        Kind::Mysql => "it has no password",
        _ => "unix_socket",
    };
    eventually("the log says why", async || gateway.log().contains(reason)).await;
    // What the server says itself is told.
    let error = log_in(&gateway, "locked", "hunter2").await.unwrap_err();
    assert!(error.to_string().contains("locked"), "{error}");
}

#[tokio::test]
async fn and_are_locked_for_new_sessions_at_once() {
    let sandbox = cluster::single();
    account(sandbox, "shut");
    let gateway = setup(sandbox).start();
    // Its connection is idle in the pool when the account is locked.
    assert!(is_let_in(&gateway, "shut", "hunter2").await);
    sql(sandbox, "ALTER USER shut@'%' ACCOUNT LOCK");
    eventually("nobody new comes in", async || {
        log_in(&gateway, "shut", "hunter2")
            .await
            .is_err_and(|error| error.to_string().contains("locked"))
    })
    .await;
    sql(sandbox, "ALTER USER shut@'%' ACCOUNT UNLOCK");
    eventually("it is open again", async || {
        is_let_in(&gateway, "shut", "hunter2").await
    })
    .await;
}

#[tokio::test]
async fn behind_those_that_are_listed() {
    let sandbox = cluster::single();
    account(sandbox, "listed");
    let gateway = setup(sandbox).tables(&cluster::user("listed", "other")).start();
    assert!(!is_let_in(&gateway, "listed", "hunter2").await);
    // The gateway takes it, and the server does not.
    let error = log_in(&gateway, "listed", "other").await.unwrap_err();
    assert_eq!(client::code(&error), 1429, "{error}");
}
