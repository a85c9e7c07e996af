//! Clients: `mysql_async` as a library, the command line client as a program.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, OptsBuilder};
use sandbox::{DATABASE, Kind, PASSWORD, USER};

use crate::{Gateway, kind};

/// Options of the sandbox's account through the gateway; TCP only, no TLS.
#[must_use]
pub fn options(gateway: &Gateway) -> OptsBuilder {
    options_at(gateway.port())
}

/// The same for any port of 127.0.0.1.
#[must_use]
pub fn options_at(port: u16) -> OptsBuilder {
    OptsBuilder::default()
        .ip_or_hostname("127.0.0.1")
        .tcp_port(port)
        .prefer_socket(false) // else it goes around the gateway once it knows the server's socket
        .user(Some(USER))
        .pass(Some(PASSWORD))
        .db_name(Some(DATABASE))
}

/// A session through the gateway.
///
/// # Panics
/// When it is refused.
pub async fn connect(gateway: &Gateway) -> Conn {
    Conn::new(options(gateway)).await.unwrap()
}

/// The port of the server that a session is on.
pub async fn server_port(session: &mut Conn) -> u16 {
    session.query_first("SELECT @@port").await.unwrap().unwrap()
}

/// The number of the error that a server or the gateway sent.
///
/// # Panics
/// When the error is of another kind.
#[must_use]
#[track_caller]
pub fn code(error: &Error) -> u16 {
    match error {
        Error::Server(error) => error.code,
        other => panic!("an error packet was expected, not: {other}"),
    }
}

/// `mariadb` on MariaDB, the `mysql` of the same version on MySQL. Other programs of the same package by
/// name.
#[must_use]
pub fn tool(mariadb: &str, mysql: &str) -> Command {
    match kind() {
        Kind::Mysql => {
            let server: PathBuf = sandbox::mysql_program().unwrap();
            let beside = server.with_file_name(mysql);
            Command::new(if beside.is_file() { beside } else { mysql.into() })
        }
        _ => Command::new(mariadb),
    }
}

/// Runs a statement with the command line client; standard output, or standard error where it failed.
///
/// # Errors
/// What the client printed.
pub fn command_line(port: u16, arguments: &[&str], statements: &str) -> Result<String, String> {
    let output = login(
        tool("mariadb", "mysql").args(["--no-defaults", "--batch", "--skip-column-names"]),
        port,
    )
    .args(arguments)
    .args(["--execute", statements, DATABASE])
    .output()
    .unwrap();
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout).unwrap());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Adds the options that every program of the servers' packages takes to log in.
pub fn login(command: &mut Command, port: u16) -> &mut Command {
    command
        .args(["--host=127.0.0.1", "--protocol=tcp"])
        .args([
            format!("--port={port}"),
            format!("--user={USER}"),
            format!("--password={PASSWORD}"),
        ])
        // Without TLS, the first login of an account has to encrypt its password with the server's key.
        .args((kind() == Kind::Mysql).then_some("--get-server-public-key"))
        .stdin(Stdio::null())
}
