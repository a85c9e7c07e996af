//! Accounts of servers, and logins with them.

use e2e::{Gateway, client};
use mysql_async::{Conn, Error, OptsBuilder};
use sandbox::{DATABASE, Sandbox};

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

pub(crate) fn sql(sandbox: &Sandbox, statements: &str) {
    sandbox.primary().sql(statements).unwrap();
}

/// Makes an account with the password `hunter2`.
pub(crate) fn account(sandbox: &Sandbox, name: &str) {
    let statements =
        format!("CREATE USER {name}@'%' IDENTIFIED BY 'hunter2'; GRANT ALL ON test.* TO {name}@'%'");
    sql(sandbox, &statements);
}
