//! Values in the text and in the binary protocol, small and big, compressed and not.

use anyhow::{Result, ensure};
use inputs::Random;
use mysql_async::prelude::Queryable;
use mysql_async::{Compression, Conn, Row, Value};

use crate::results::check_big;
use crate::target::{connect, equal, open, options, refused, rows};

const TEXT: &str = "naïve 東京 Ωμέγα 😀👩‍🚀 \\ ' \" %";

pub(crate) async fn text_utf8mb4() -> Result<()> {
    let mut conn = connect().await?;
    let found: Option<(String, u8)> = conn.exec_first("SELECT ?, CHAR_LENGTH('😀é')", (TEXT,)).await?;
    equal(&found, &Some((TEXT.to_owned(), 2)), "binary protocol")?;
    let literal = TEXT.replace('\\', "\\\\").replace('\'', "''");
    let found: Vec<String> = rows(&mut conn, &format!("SELECT '{literal}'")).await?;
    equal(&found, &vec![TEXT.to_owned()], "text protocol")
}

/// Two rows as they are sent (and come back in the binary protocol), and as text.
fn types() -> [Vec<(Value, &'static str)>; 2] {
    let bytes = |text: &str| Value::Bytes(text.as_bytes().to_vec());
    [
        vec![
            (Value::Int(1), "1"),
            (Value::Int(-128), "-128"),
            (Value::Int(-32768), "-32768"),
            (Value::Int(-8_388_608), "-8388608"),
            (Value::Int(i64::from(i32::MIN)), "-2147483648"),
            (Value::Int(i64::MIN), "-9223372036854775808"),
            (Value::UInt(u64::MAX), "18446744073709551615"),
            (Value::Float(1.5), "1.5"),
            (Value::Double(2.25e-300), "2.25e-300"),
            (
                bytes("-12345678901234567890.0123456789"),
                "-12345678901234567890.0123456789",
            ),
            (Value::Date(2024, 2, 29, 0, 0, 0, 0), "2024-02-29"),
            (Value::Time(true, 1, 10, 34, 56, 123_456), "-34:34:56.123456"),
            (
                Value::Date(2024, 2, 29, 23, 59, 59, 999_999),
                "2024-02-29 23:59:59.999999",
            ),
            (Value::Int(2024), "2024"),
            (bytes("héllo 😀"), "héllo 😀"),
            (bytes("\0\u{1}'\\"), "\0\u{1}'\\"),
            (bytes(LONG), LONG),
            (bytes(LONG), LONG),
            (bytes(r#"{"a": [1, null]}"#), r#"{"a": [1, null]}"#),
            (bytes("\u{2}\u{1}"), "\u{2}\u{1}"),
            (bytes("two"), "two"),
            (bytes("x,z"), "x,z"),
        ],
        vec![
            (Value::Int(3), "3"),
            (Value::Int(127), "127"),
            (Value::Int(32767), "32767"),
            (Value::Int(8_388_607), "8388607"),
            (Value::Int(i64::from(i32::MAX)), "2147483647"),
            (Value::Int(i64::MAX), "9223372036854775807"),
            (Value::Int(0), "0"),
            (Value::Float(0.0), "0"),
            (Value::Double(-1.5), "-1.5"),
            (bytes("0.0000000001"), "0.0000000001"),
            (Value::Date(1000, 1, 1, 0, 0, 0, 0), "1000-01-01"),
            (Value::Time(false, 0, 0, 0, 0, 0), "00:00:00.000000"),
            (Value::Date(1970, 1, 1, 0, 0, 0, 0), "1970-01-01 00:00:00.000000"),
            (Value::Int(1901), "1901"),
            (bytes(""), ""),
            (bytes(""), ""),
            (bytes(""), ""),
            (bytes(""), ""),
            (bytes("[]"), "[]"),
            (bytes("\0\0"), "\0\0"),
            (bytes("one"), "one"),
            (bytes(""), ""),
        ],
    ]
}

/// More than 251 bytes, so that its length takes three.
const LONG: &str = "0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 \
     0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 \
     0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 ";

/// Writes the rows, and one of NULLs with id 2, by a prepared statement.
async fn write_types(conn: &mut Conn) -> Result<()> {
    conn.query_drop("DELETE FROM types").await?;
    let statement = format!("INSERT INTO types VALUES (?{})", ", ?".repeat(21));
    for row in types() {
        let values: Vec<Value> = row.into_iter().map(|(value, _)| value).collect();
        conn.exec_drop(&statement, values).await?;
    }
    let mut nulls = vec![Value::NULL; 22];
    nulls[0] = Value::Int(2);
    conn.exec_drop(&statement, nulls).await?;
    Ok(())
}

fn check_types(found: Vec<Row>, binary: bool) -> Result<()> {
    ensure!(found.len() == 3, "{} rows", found.len());
    for (number, row) in found.into_iter().enumerate() {
        let values = row.unwrap();
        match number {
            1 => ensure!(
                values[1..].iter().all(|value| *value == Value::NULL),
                "NULLs: {values:?}"
            ),
            _ => {
                let expected = types().into_iter().nth(number / 2).unwrap_or_default();
                for (column, (value, (typed, text))) in values.iter().zip(expected).enumerate() {
                    let expected = if binary {
                        typed
                    } else {
                        Value::Bytes(text.as_bytes().to_vec())
                    };
                    equal(value, &expected, &format!("row {number} column {column}"))?;
                }
            }
        }
    }
    Ok(())
}

pub(crate) async fn text_types() -> Result<()> {
    let mut conn = connect().await?;
    write_types(&mut conn).await?;
    check_types(rows(&mut conn, "SELECT * FROM types ORDER BY id").await?, false)
}

pub(crate) async fn prepared_types() -> Result<()> {
    let mut conn = connect().await?;
    write_types(&mut conn).await?;
    let found = conn
        .exec("SELECT * FROM types WHERE id >= ? ORDER BY id", (1,))
        .await?;
    check_types(found, true)
}

pub(crate) async fn prepared_repeat() -> Result<()> {
    let mut conn = connect().await?;
    let statement = conn.prep("SELECT ? + 1, ?").await?;
    for n in 0..500_i64 {
        if n == 250 {
            refused(conn.prep("SELEKT 1").await, 1064, "42000")?;
        }
        let text = format!("text {n}");
        let found: Option<(i64, String)> = conn.exec_first(&statement, (n, &text)).await?;
        equal(&found, &Some((n + 1, text)), "row")?;
    }
    conn.close(statement).await?;
    equal(
        &rows::<u8>(&mut conn, "SELECT 1").await?,
        &vec![1],
        "after closing",
    )
}

async fn status(conn: &mut Conn, name: &str) -> Result<String> {
    let found: Vec<(String, String)> = rows(conn, &format!("SHOW SESSION STATUS LIKE '{name}'")).await?;
    Ok(found
        .into_iter()
        .next()
        .map(|(_, value)| value)
        .unwrap_or_default())
}

/// `length` bytes that do not repeat soon, the same every time.
fn body(length: usize) -> Vec<u8> {
    Random::new(1).bytes(length)
}

/// mysql_async sends parameters in pieces when they would not fit a packet of 16 MiB.
pub(crate) async fn prepared_long_data() -> Result<()> {
    let mut conn = connect().await?;
    let sent = body(17 << 20);
    conn.exec_drop("REPLACE INTO blobs VALUES (2, ?)", (&sent,))
        .await?;
    let found: Vec<Vec<u8>> = rows(&mut conn, "SELECT body FROM blobs WHERE id = 2").await?;
    ensure!(found == [sent], "it came back changed");
    let pieces = status(&mut conn, "Com_stmt_send_long_data").await?;
    ensure!(pieces != "0", "the server saw no COM_STMT_SEND_LONG_DATA");
    Ok(())
}

pub(crate) async fn blob(length: usize, compression: Option<Compression>) -> Result<()> {
    let mut conn = open(options()?.compression(compression)).await?;
    let sent = body(length);
    let mut statement = b"REPLACE INTO blobs VALUES (1, x'".to_vec();
    for byte in &sent {
        statement.extend_from_slice(format!("{byte:02x}").as_bytes());
    }
    statement.extend_from_slice(b"')");
    conn.query_drop(statement).await?;
    let found: Option<(usize, Vec<u8>)> = conn
        .query_first("SELECT LENGTH(body), body FROM blobs WHERE id = 1")
        .await?;
    ensure!(
        found == Some((length, sent.clone())),
        "text: it came back changed"
    );

    conn.exec_drop("REPLACE INTO blobs VALUES (1, ?)", (&sent,))
        .await?;
    let found: Option<Vec<u8>> = conn
        .exec_first("SELECT body FROM blobs WHERE id = ?", (1,))
        .await?;
    ensure!(found == Some(sent), "binary: it came back changed");
    Ok(())
}

pub(crate) async fn compressed() -> Result<()> {
    let mut conn = open(options()?.compression(Compression::default())).await?;
    check_big(&mut conn).await?;
    // Half of 15 MiB, since the text protocol doubles it: the servers cannot uncompress what mysql_async
    // makes of 16 MiB.
    blob(15 << 19, Some(Compression::default())).await
}
