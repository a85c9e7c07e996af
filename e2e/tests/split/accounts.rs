//! Accounts of servers, and logins with them.

use std::process::Stdio;

use e2e::{Gateway, client, kind};
use mysql_async::{Conn, Error, OptsBuilder};
use sandbox::{DATABASE, Kind, Sandbox};

use crate::cluster::{self, ask};

pub(crate) fn options(gateway: &Gateway, user: &str, password: &str) -> OptsBuilder {
    cluster::options(gateway)
        .user(Some(user.to_owned()))
        .pass(Some(password.to_owned()))
        .db_name(Some(DATABASE))
}

pub(crate) async fn log_in(gateway: &Gateway, user: &str, password: &str) -> Result<Conn, Error> {
    Conn::new(options(gateway, user, password)).await
}

/// Whether this password is taken; a refusal is the one that clients expect.
pub(crate) async fn is_let_in(gateway: &Gateway, user: &str, password: &str) -> bool {
    match log_in(gateway, user, password).await {
        Ok(mut session) => {
            let is = ask(&mut session, "SELECT CURRENT_USER()").await;
            assert_eq!(is, Ok(Some(format!("{user}@%"))));
            true
        }
        Err(error) => {
            assert_eq!(client::code(&error), 1045, "{error}");
            false
        }
    }
}

/// The command line client sends a password over a plain link only where it is told to ask for a key.
pub(crate) fn log_in_fast(gateway: &Gateway, user: &str) -> Result<(), String> {
    let plain = match kind() {
        Kind::Mysql => "--ssl-mode=DISABLED",
        _ => "--skip-ssl",
    };
    let mut command = client::tool("mariadb", "mysql");
    command
        .args(["--no-defaults", "--host=127.0.0.1", "--protocol=tcp", plain])
        .args([format!("--port={}", gateway.port()), format!("--user={user}")])
        .args(["--password=hunter2", "--execute=SELECT 1", DATABASE])
        .stdin(Stdio::null());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    output.status.success().then_some(()).ok_or(said)
}

pub(crate) fn sql(sandbox: &Sandbox, statements: &str) {
    sandbox.primary().sql(statements).unwrap();
}

/// Makes an account with the password `hunter2`.
pub(crate) fn account(sandbox: &Sandbox, name: &str) {
    let statements =
        format!("CREATE USER {name}@'%' IDENTIFIED BY 'hunter2'; GRANT ALL ON test.* TO {name}@'%'");
    sql(sandbox, &statements);
}
