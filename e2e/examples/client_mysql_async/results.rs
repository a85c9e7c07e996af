//! Big results, several results, errors, files and batches.

use anyhow::{Result, bail, ensure};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, WhiteListFsHandler};

use crate::target::{connect, env, equal, open, options, refused, rows};

const BIG: &str = "SELECT id, label FROM forebay_clients.numbers ORDER BY id";
const BIG_ROWS: u64 = 200_000;

/// Reads the 200 000 rows one by one as they arrive.
pub(crate) async fn check_big(conn: &mut Conn) -> Result<()> {
    let mut result = conn.query_iter(BIG).await?;
    let mut count = 0;
    while let Some(row) = result.next().await? {
        count += 1;
        let (id, label): (u64, String) = mysql_async::from_row(row);
        ensure!(
            id == count && label == format!("row {id} é😀"),
            "row {count}: {id} {label:?}"
        );
    }
    ensure!(count == BIG_ROWS, "{count} rows");
    drop(result);
    equal(&rows::<u8>(conn, "SELECT 1").await?, &vec![1], "after the result")
}

pub(crate) async fn big() -> Result<()> {
    let mut conn = connect().await?;
    let found: Vec<(u64, String)> = conn.exec(BIG, ()).await?;
    equal(&(found.len() as u64), &BIG_ROWS, "rows")?;
    for (number, (id, label)) in (1..).zip(found) {
        ensure!(
            id == number && label == format!("row {id} é😀"),
            "row {number}: {id} {label:?}"
        );
    }
    Ok(())
}

pub(crate) async fn stream() -> Result<()> {
    let mut conn = connect().await?;
    check_big(&mut conn).await?;
    let mut result = conn.query_iter(BIG).await?;
    let first = result.next().await?.map(mysql_async::from_row::<(u64, String)>);
    equal(&first, &Some((1, "row 1 é😀".to_owned())), "first row")?;
    result.drop_result().await?;
    equal(
        &rows::<u8>(&mut conn, "SELECT 7").await?,
        &vec![7],
        "after stopping early",
    )
}

pub(crate) async fn error_no_such_table() -> Result<()> {
    let mut conn = connect().await?;
    refused(
        conn.query_drop("SELECT * FROM no_such_table").await,
        1146,
        "42S02",
    )?;
    refused(conn.prep("SELECT * FROM no_such_table").await, 1146, "42S02")?;
    equal(
        &rows::<u8>(&mut conn, "SELECT 1").await?,
        &vec![1],
        "after the error",
    )
}

pub(crate) async fn infile_load() -> Result<()> {
    let file = format!("{}/mysql_async.tsv", env("FOREBAY_SCRATCH")?);
    let lines: String = (0..10_000).map(|n| format!("{n}\tlabel {n} é😀\n")).collect();
    std::fs::write(&file, lines)?;
    let handler = WhiteListFsHandler::new([file.as_str()]);
    let mut conn = open(options()?.local_infile_handler(Some(handler))).await?;
    conn.query_drop(format!(
        "LOAD DATA LOCAL INFILE '{file}' INTO TABLE loaded CHARACTER SET utf8mb4"
    ))
    .await?;
    let found: Vec<(u32, u64, String)> = rows(
        &mut conn,
        "SELECT COUNT(*), CAST(SUM(id) AS UNSIGNED), MAX(label) FROM loaded",
    )
    .await?;
    equal(
        &found,
        &vec![(10_000, 49_995_000, "label 9999 é😀".to_owned())],
        "loaded",
    )
}

/// The handler allows no file: mysql_async answers the server's request by closing the connection.
pub(crate) async fn infile_refused() -> Result<()> {
    let handler = WhiteListFsHandler::new([""; 0]);
    let mut conn = open(options()?.local_infile_handler(Some(handler))).await?;
    let outcome = conn
        .query_drop("LOAD DATA LOCAL INFILE '/no-such-file' INTO TABLE loaded")
        .await;
    match outcome {
        Ok(()) => bail!("a file that may not be read was loaded"),
        Err(mysql_async::Error::Server(error)) => bail!("the server refused: {error}"),
        Err(_) => {
            let mut next = connect().await?;
            equal(
                &rows::<u8>(&mut next, "SELECT 1").await?,
                &vec![1],
                "the next connection",
            )
        }
    }
}

pub(crate) async fn multi_statements() -> Result<()> {
    let mut conn = connect().await?;
    let mut result = conn
        .query_iter("SELECT 1; DO 0; SELECT 2 UNION SELECT 3; SET @x = 5; SELECT @x")
        .await?;
    let mut found: Vec<Vec<u8>> = Vec::new();
    while !result.is_empty() || found.len() < 5 {
        found.push(result.collect().await?);
    }
    equal(
        &found,
        &vec![vec![1], vec![], vec![2, 3], vec![], vec![5]],
        "results",
    )
}

pub(crate) async fn multi_error() -> Result<()> {
    let mut conn = connect().await?;
    let outcome = conn
        .query_drop("SELECT 1; SELECT * FROM no_such_table; SET @never = 1")
        .await;
    refused(outcome, 1146, "42S02")?;
    let found: Vec<Option<u8>> = rows(&mut conn, "SELECT @never").await?;
    equal(&found, &vec![None], "the third statement")
}

pub(crate) async fn call_results() -> Result<()> {
    let mut conn = connect().await?;
    let second: Vec<(u8, String)> = (1..=3).map(|n| (n, format!("row {n} é😀"))).collect();
    let call = "CALL forebay_clients.two_results()";

    let mut result = conn.query_iter(call).await?;
    equal(
        &result.collect().await?,
        &vec![(1_u8, "first".to_owned())],
        "text, first",
    )?;
    equal(&result.collect().await?, &second, "text, second")?;
    result.drop_result().await?;

    let mut result = conn.exec_iter(call, ()).await?;
    equal(
        &result.collect().await?,
        &vec![(1_u8, "first".to_owned())],
        "binary, first",
    )?;
    equal(&result.collect().await?, &second, "binary, second")?;
    result.drop_result().await?;
    Ok(())
}

pub(crate) async fn call_out() -> Result<()> {
    let mut conn = connect().await?;
    conn.query_drop("CALL forebay_clients.double_it(21, @y)").await?;
    equal(&rows::<u8>(&mut conn, "SELECT @y").await?, &vec![42], "out")?;
    // Prepared, the OUT parameter comes as a result set of its own.
    let found: Option<u8> = conn
        .exec_first("CALL forebay_clients.double_it(?, ?)", (21, 0))
        .await?;
    equal(&found, &Some(42), "out, prepared")
}

pub(crate) async fn batch_insert() -> Result<()> {
    let mut conn = connect().await?;
    conn.query_drop("START TRANSACTION").await?;
    let values = (0..2_000_u32).map(|n| (n, format!("label {n} é😀")));
    conn.exec_batch("INSERT INTO batch VALUES (?, ?)", values).await?;
    conn.query_drop("COMMIT").await?;
    let found: Vec<(u32, u64)> =
        rows(&mut conn, "SELECT COUNT(*), CAST(SUM(id) AS UNSIGNED) FROM batch").await?;
    equal(&found, &vec![(2_000, 1_999_000)], "batch")
}
