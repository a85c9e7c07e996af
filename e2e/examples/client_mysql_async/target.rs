//! Where to connect, taken from the environment, and the words that the checks are written in.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Conn, Opts, OptsBuilder, SslOpts};

/// The client or the server cannot do a check.
#[derive(Debug)]
pub(crate) struct Absent(String);

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Absent {}

pub(crate) async fn absent(why: &'static str) -> Result<()> {
    Err(Absent(why.to_owned()).into())
}

pub(crate) fn env(name: &str) -> Result<String> {
    std::env::var(name).with_context(|| format!("{name} is not set"))
}

pub(crate) fn database() -> Result<String> {
    env("FOREBAY_DATABASE")
}

/// The account of an authentication plugin on this server.
pub(crate) fn account(plugin: &str) -> Result<String> {
    let logins = env("FOREBAY_LOGINS")?;
    let known = logins
        .split(',')
        .filter_map(|login| login.split_once('='))
        .find(|(name, _)| *name == plugin);
    match known {
        Some((_, user)) => Ok(user.to_owned()),
        None => Err(Absent(format!("this server has no account of {plugin}")).into()),
    }
}

pub(crate) fn secret(user: &str) -> String {
    format!("{user} secret")
}

/// Options of a plain link as `app` to this client's database.
pub(crate) fn options() -> Result<OptsBuilder> {
    Ok(OptsBuilder::default()
        .ip_or_hostname(env("FOREBAY_HOST")?)
        .tcp_port(env("FOREBAY_PORT")?.parse()?)
        .prefer_socket(false) // it would leave for the server's own socket, past the gateway
        .user(Some("app"))
        .pass(Some(secret("app")))
        .db_name(Some(database()?)))
}

/// TLS that checks the certificate against the CA in `variable` and against the host name.
pub(crate) fn tls(variable: &str) -> Result<SslOpts> {
    Ok(SslOpts::default()
        .with_root_certs(vec![PathBuf::from(env(variable)?).into()])
        .with_disable_built_in_roots(true)
        .with_danger_tls_hostname_override(Some("localhost")))
}

pub(crate) async fn open(options: impl Into<Opts>) -> Result<Conn> {
    Ok(Conn::new(options).await?)
}

pub(crate) async fn connect() -> Result<Conn> {
    open(options()?).await
}

pub(crate) async fn rows<T: FromRow + Send + 'static>(conn: &mut Conn, sql: &str) -> Result<Vec<T>> {
    Ok(conn.query(sql).await?)
}

pub(crate) fn equal<T: PartialEq + fmt::Debug>(found: &T, expected: &T, what: &str) -> Result<()> {
    ensure!(
        found == expected,
        "{what}: expected {expected:.200?}, found {found:.200?}"
    );
    Ok(())
}

/// Expects the server's error `code` with `state`; returns its message.
pub(crate) fn refused<T>(outcome: Result<T, mysql_async::Error>, code: u16, state: &str) -> Result<String> {
    match outcome {
        Ok(_) => bail!("expected error {code}, but it succeeded"),
        Err(mysql_async::Error::Server(error)) => {
            equal(
                &(error.code, error.state.as_str()),
                &(code, state),
                &error.message,
            )?;
            Ok(error.message)
        }
        Err(other) => bail!("expected error {code}, found {other}"),
    }
}
