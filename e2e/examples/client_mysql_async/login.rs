//! Authentication plugins, TLS and connection attributes.

use anyhow::{Result, ensure};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder};

use crate::target::{account, connect, equal, open, options, refused, rows, secret, tls};

/// Options that log in as the account of `plugin`, without a database.
fn as_account(plugin: &str) -> Result<OptsBuilder> {
    let user = account(plugin)?;
    let password = secret(&user);
    Ok(options()?
        .user(Some(user))
        .pass(Some(password))
        .db_name(None::<String>))
}

async fn check(options: OptsBuilder, plugin: &str) -> Result<()> {
    let mut conn = open(options).await?;
    let found: Vec<String> = rows(&mut conn, "SELECT SUBSTRING_INDEX(USER(), '@', 1)").await?;
    equal(&found, &vec![account(plugin)?], "user")?;
    conn.disconnect().await?;
    Ok(())
}

pub(crate) async fn plain(plugin: &str) -> Result<()> {
    check(as_account(plugin)?, plugin).await
}

/// Full authentication: the server is made to drop the account from its cache first.
pub(crate) async fn sha2_full(encrypted: bool) -> Result<()> {
    let plugin = "caching_sha2_password";
    let user = account(plugin)?;
    let statement = format!(
        "ALTER USER {user}@'%' IDENTIFIED WITH {plugin} BY '{}'",
        secret(&user)
    );
    connect().await?.query_drop(statement).await?;
    let ssl = if encrypted { Some(tls("FOREBAY_CA")?) } else { None };
    check(as_account(plugin)?.ssl_opts(ssl), plugin).await
}

pub(crate) async fn sha2_fast() -> Result<()> {
    let plugin = "caching_sha2_password";
    check(as_account(plugin)?.ssl_opts(tls("FOREBAY_CA")?), plugin).await?;
    plain(plugin).await
}

pub(crate) async fn clear() -> Result<()> {
    let plugin = "mysql_clear_password";
    let options = as_account(plugin)?
        .ssl_opts(tls("FOREBAY_CA")?)
        .enable_cleartext_plugin(true);
    check(options, plugin).await
}

pub(crate) async fn empty_password() -> Result<()> {
    let options = options()?
        .user(Some("nopass"))
        .pass(None::<String>)
        .db_name(None::<String>);
    let mut conn = open(options).await?;
    equal(&rows::<u8>(&mut conn, "SELECT 1").await?, &vec![1], "value")
}

pub(crate) async fn wrong_password() -> Result<()> {
    let message = refused(
        Conn::new(options()?.pass(Some("not the secret"))).await,
        1045,
        "28000",
    )?;
    ensure!(
        message.starts_with("Access denied for user 'app'@"),
        "not the server's message: {message}"
    );
    Ok(())
}

pub(crate) async fn unknown_database() -> Result<()> {
    let options = options()?.db_name(Some("no_such_database"));
    refused(Conn::new(options).await, 1049, "42000")?;
    Ok(())
}

pub(crate) async fn tls_verified() -> Result<()> {
    let mut conn = open(options()?.ssl_opts(tls("FOREBAY_CA")?)).await?;
    equal(&rows::<u8>(&mut conn, "SELECT 1").await?, &vec![1], "value")
}

pub(crate) async fn tls_wrong_ca() -> Result<()> {
    match Conn::new(options()?.ssl_opts(tls("FOREBAY_WRONG_CA")?)).await {
        Ok(_) => anyhow::bail!("a certificate of another CA was accepted"),
        Err(error) => ensure!(
            error.to_string().contains("certificate"),
            "not about the certificate: {error}"
        ),
    }
    Ok(())
}

pub(crate) async fn attributes() -> Result<()> {
    let options = options()?.connect_attribute("program_name", "forebay mysql_async");
    let mut conn = open(options).await?;
    let found: Vec<String> = rows(
        &mut conn,
        "SELECT ATTR_VALUE FROM performance_schema.session_connect_attrs \
         WHERE PROCESSLIST_ID = CONNECTION_ID() AND ATTR_NAME = 'program_name'",
    )
    .await?;
    equal(&found, &vec!["forebay mysql_async".to_owned()], "program_name")
}
