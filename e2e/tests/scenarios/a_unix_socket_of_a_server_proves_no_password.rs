//! Over a Unix socket a server may let in the process at its other end, which is the gateway: nobody else is
//! to get in by that.

use std::process::Command;

use e2e::{Gateway, Setup, client, kind};
use mysql_async::prelude::Queryable;
use mysql_async::{ChangeUserOpts, Conn, OptsBuilder};
use sandbox::{Kind, Sandbox, Spec};

/// The name of the system user that runs the gateway here: its account is the one in question.
fn system_user() -> String {
    let output = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A server with an account for that user by each plugin, and one with a password.
fn server(user: &str) -> Sandbox {
    let sandbox = Sandbox::start(Spec::new(kind())).unwrap();
    let trusting = match kind() {
        Kind::Mysql => "IDENTIFIED WITH auth_socket",
        _ => "IDENTIFIED VIA mysql_native_password USING 'invalid' OR unix_socket",
    };
    let prepare = match kind() {
        Kind::Mysql => "INSTALL PLUGIN auth_socket SONAME 'auth_socket.so';",
        _ => "",
    };
    let statements = format!(
        "{prepare} CREATE USER IF NOT EXISTS {user}@localhost; ALTER USER {user}@localhost {trusting};
         GRANT ALL ON *.* TO {user}@localhost;
         CREATE USER app@localhost IDENTIFIED BY 'hunter2'; GRANT ALL ON test.* TO app@localhost"
    );
    sandbox.primary().sql(&statements).unwrap();
    sandbox
}

fn setup(sandbox: &Sandbox) -> Setup {
    Setup::of_addresses([sandbox.primary().socket().display().to_string()])
}

fn as_user(options: OptsBuilder, user: &str, password: &str) -> OptsBuilder {
    options
        .user(Some(user))
        .pass(Some(password).filter(|password| !password.is_empty()))
        .db_name(None::<String>)
}

async fn is_let_in(options: OptsBuilder) -> bool {
    match Conn::new(options).await {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(client::code(&error), 1045, "{error}");
            false
        }
    }
}

async fn is_closed(gateway: &Gateway, user: &str) {
    let options = || client::options(gateway);
    for password in ["", "whatever"] {
        assert!(
            !is_let_in(as_user(options(), user, password)).await,
            "{user} by {password:?}"
        );
    }
    // Those that have a password are asked for it, as before.
    assert!(is_let_in(as_user(options(), "app", "hunter2")).await);
    assert!(!is_let_in(as_user(options(), "app", "hunter3")).await);
}

/// Nor does a session become that account's.
async fn is_closed_to_sessions(gateway: &Gateway, user: &str) {
    let mut session = Conn::new(as_user(client::options(gateway), "app", "hunter2"))
        .await
        .unwrap();
    let other = ChangeUserOpts::default()
        .with_user(Some(user.to_owned()))
        .with_pass(Some("whatever".to_owned()));
    assert!(session.change_user(other).await.is_err());
    let now: Result<Option<String>, _> = session.query_first("SELECT USER()").await;
    assert!(
        !now.is_ok_and(|now| now.is_some_and(|now| now.starts_with(user))),
        "the session is the other account's"
    );
}

#[tokio::test]
async fn neither_where_the_server_decides_alone() {
    let user = system_user();
    let sandbox = server(&user);
    let gateway = setup(&sandbox).start();
    is_closed(&gateway, &user).await;
    is_closed_to_sessions(&gateway, &user).await;
}

/// The server sees the same process with TLS on its socket.
#[tokio::test]
async fn nor_with_tls_on_the_socket() {
    let user = system_user();
    let sandbox = server(&user);
    for mode in ["preferred", "required"] {
        let tls = format!("mode = {mode:?}\nverify = \"off\"");
        let gateway = setup(&sandbox).cluster_tls(&tls).start();
        is_closed(&gateway, &user).await;
        is_closed_to_sessions(&gateway, &user).await;
    }
}

#[tokio::test]
async fn nor_where_logins_are_passed_through() {
    let user = system_user();
    let sandbox = server(&user);
    let server = format!(
        "{{ address = {:?}, role = \"primary\" }}",
        sandbox.primary().socket().display().to_string()
    );
    let gateway = setup(&sandbox)
        .servers([server])
        .mode("split")
        .cluster("accounts = \"pass-through\"")
        .start();
    is_closed(&gateway, &user).await;
}

#[tokio::test]
async fn nor_for_clients_on_a_socket_of_the_gateway_unless_that_is_wanted() {
    let user = system_user();
    let sandbox = server(&user);
    let folder = tempfile::tempdir().unwrap();
    for (name, option, is_open) in [("closed", "", false), ("open", "trust_unix_clients = true", true)] {
        let path = folder.path().join(name);
        let _gateway = setup(&sandbox).unix(&path).listener(option).start();
        let options = client::options_at(1)
            .socket(Some(path.to_str().unwrap()))
            .prefer_socket(true);
        assert_eq!(
            is_let_in(as_user(options, &user, "whatever")).await,
            is_open,
            "{name}"
        );
    }
}

/// Servers count each wrong password, and may lock the account for it.
#[tokio::test]
async fn and_asks_once_an_account() {
    let sandbox = server(&system_user());
    let gateway = setup(&sandbox)
        .cluster("accounts = { interval = \"1h\" }")
        // Checks of health may leave traces of the same kind: there is one at the start, which has the time
        // that it takes.
        .check("interval = \"5m\"\ntimeout = \"20s\"")
        .start();
    let failures = || {
        let name = match kind() {
            Kind::Mysql => "Aborted_connects",
            _ => "Access_denied_errors",
        };
        let said = sandbox
            .primary()
            .sql(&format!("SHOW GLOBAL STATUS LIKE '{name}'"))
            .unwrap();
        said.split_whitespace().last().unwrap().parse::<u32>().unwrap()
    };
    let log_in = || is_let_in(as_user(client::options(&gateway), "app", "hunter2"));
    let gateway_wide = failures();
    for _ in 0..20 {
        assert!(log_in().await);
    }
    let asked = failures() - gateway_wide;
    assert!((1..10).contains(&asked), "{asked} wrong logins for 20 right ones");
}
