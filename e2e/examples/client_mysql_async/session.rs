//! Transactions, what belongs to the session, and cancelling.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use mysql_async::prelude::Queryable;
use mysql_async::{ChangeUserOpts, Conn, TxOpts};

use crate::target::{account, connect, database, equal, open, options, refused, rows, secret};

pub(crate) async fn transaction_commit() -> Result<()> {
    let (mut writer, mut reader) = (connect().await?, connect().await?);
    let read = "SELECT amount FROM ledger WHERE id = 1";
    let mut transaction = writer.start_transaction(TxOpts::default()).await?;
    transaction
        .exec_drop("INSERT INTO ledger VALUES (?, ?)", (1, 100))
        .await?;
    equal(
        &rows::<i32>(&mut reader, read).await?,
        &vec![],
        "before the commit",
    )?;
    transaction.commit().await?;
    equal(&rows(&mut reader, read).await?, &vec![100], "after the commit")
}

pub(crate) async fn transaction_rollback() -> Result<()> {
    let mut conn = connect().await?;
    let mut transaction = conn.start_transaction(TxOpts::default()).await?;
    transaction
        .exec_drop("INSERT INTO ledger VALUES (?, ?)", (2, 100))
        .await?;
    transaction.rollback().await?;
    let found: Vec<i32> = rows(&mut conn, "SELECT amount FROM ledger WHERE id = 2").await?;
    equal(&found, &vec![], "after the rollback")
}

async fn who(conn: &mut Conn) -> Result<(String, String, String)> {
    let sql = "SELECT SUBSTRING_INDEX(USER(), '@', 1), DATABASE(), IFNULL(@mine, 'none')";
    let mut found = rows(conn, sql).await?;
    ensure!(found.len() == 1, "{} rows", found.len());
    Ok(found.remove(0))
}

pub(crate) async fn change_user() -> Result<()> {
    let user = account("mysql_native_password").or_else(|_| account("caching_sha2_password"))?;
    let mut conn = connect().await?;
    conn.query_drop("SET @mine = 1").await?;
    let other = ChangeUserOpts::new()
        .with_user(Some(user.clone()))
        .with_pass(Some(secret(&user)))
        .with_db_name(Some("forebay_clients".to_owned()));
    conn.change_user(other).await?;
    let expected = (user, "forebay_clients".to_owned(), "none".to_owned());
    equal(&who(&mut conn).await?, &expected, "after the change")?;

    let back = ChangeUserOpts::new()
        .with_user(Some("app".to_owned()))
        .with_pass(Some(secret("app")))
        .with_db_name(Some(database()?));
    conn.change_user(back).await?;
    let expected = ("app".to_owned(), database()?, "none".to_owned());
    equal(&who(&mut conn).await?, &expected, "back")?;

    let wrong = ChangeUserOpts::new().with_pass(Some("not the secret".to_owned()));
    refused(conn.change_user(wrong).await, 1045, "28000")?;
    Ok(())
}

pub(crate) async fn reset() -> Result<()> {
    let mut conn = connect().await?;
    conn.query_drop("SET @mine = 1").await?;
    conn.query_drop("CREATE TEMPORARY TABLE mine (id INT)").await?;
    ensure!(conn.reset().await?, "mysql_async found reset not supported");
    equal(&who(&mut conn).await?.2, &"none".to_owned(), "variable")?;
    refused(conn.query_drop("SELECT * FROM mine").await, 1146, "42S02")?;
    Ok(())
}

pub(crate) async fn select_database() -> Result<()> {
    let mut conn = open(options()?.db_name(None::<String>)).await?;
    conn.query_drop(format!("USE {}", database()?)).await?;
    let found: Vec<String> = rows(&mut conn, "SELECT DATABASE()").await?;
    equal(&found, &vec![database()?], "database")
}

pub(crate) async fn ping() -> Result<()> {
    let mut conn = connect().await?;
    for _ in 0..100 {
        conn.ping().await?;
    }
    Ok(())
}

pub(crate) async fn cancel_by_connection_id() -> Result<()> {
    cancel(|_, id| id).await
}

/// By the thread id that mysql_async took from the greeting.
pub(crate) async fn cancel_by_client() -> Result<()> {
    cancel(|greeting_id, _| greeting_id).await
}

/// Starts a statement of 30 seconds and expects `KILL QUERY` of the chosen id to end it at once.
async fn cancel(choose: fn(u32, u32) -> u32) -> Result<()> {
    let (mut conn, mut other) = (connect().await?, connect().await?);
    let [id]: [u32; 1] = rows(&mut conn, "SELECT CONNECTION_ID()")
        .await?
        .try_into()
        .map_err(|_| anyhow::anyhow!("no id"))?;
    let victim = choose(conn.id(), id);
    let sleeper = async {
        let found: Result<Vec<(u8, String)>, _> = conn.query("SELECT SLEEP(30), 'forebay cancel rust'").await;
        (conn, found)
    };
    let killer = async {
        await_sleeper(&mut other).await?;
        other.query_drop(format!("KILL QUERY {victim}")).await?;
        anyhow::Ok(Instant::now())
    };
    let ((mut conn, ended), killed) = tokio::join!(sleeper, killer);
    ensure!(
        killed?.elapsed() < Duration::from_secs(15),
        "the statement went on after the kill"
    );
    match ended {
        Ok(found) => equal(&found[0].0, &1, "an interrupted sleep")?,
        Err(mysql_async::Error::Server(error)) => equal(&error.code, &1317, "code")?,
        Err(other) => bail!("ended with {other}"),
    }
    equal(
        &rows::<u8>(&mut conn, "SELECT 1").await?,
        &vec![1],
        "after the kill",
    )
}

async fn await_sleeper(other: &mut Conn) -> Result<()> {
    let running = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP(30), _forebay cancel rust%'";
    let deadline = Instant::now() + Duration::from_secs(10);
    while rows::<u8>(other, running).await? != [1] {
        ensure!(Instant::now() < deadline, "the statement never ran");
    }
    Ok(())
}
