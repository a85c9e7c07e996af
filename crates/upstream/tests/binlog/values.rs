//! Random values of every type are the same in the binary log and in SELECTs. `FOREBAY_BINLOG_ROWS=900` makes
//! as many of each column, `FOREBAY_SEED` repeats a run.

use std::collections::HashMap;

use inputs::asked;
use mysql_wire::binlog::{
    BinaryRow, Change, ColumnType, Command, Decoder, Event, Image, Kind, Layout, Packet, Start, TableMap,
    Value, Zone, binary, from_text, text,
};
use mysql_wire::gtid::Flavor;
use sandbox::{Sandbox, Spec};

use crate::columns::{self, Literal};
use crate::link::{Link, TextRow};
use crate::random::Literals;

const ZONE: &str = "+05:30";

/// Copies of rows have ids from here on.
const COPIES: usize = 1_000_000;

/// Values of each column.
fn rows() -> usize {
    let rows = asked("FOREBAY_BINLOG_ROWS").map_or(60, |rows| rows as usize);
    assert!((1..COPIES).contains(&rows), "FOREBAY_BINLOG_ROWS={rows}");
    rows
}

/// A table with one column of interest.
struct Table {
    name: String,
    declaration: String,
    column: ColumnType,
    /// In the order of the ids, from 1.
    text: Vec<TextRow>,
    zoned: Vec<TextRow>,
    binary: Vec<Vec<u8>>,
}

/// What was seen of a table in the binary log.
#[derive(Default)]
struct Seen {
    layout: Option<Layout>,
    rows: HashMap<i64, Value<'static>>,
    deletes: usize,
}

#[tokio::test]
async fn of_mariadb() {
    check(
        Spec::new(sandbox::Kind::Mariadb),
        Flavor::MariaDb,
        columns::mariadb(),
    )
    .await;
}

#[tokio::test]
async fn of_a_newer_mariadb() {
    let Ok(program) = sandbox::mariadb_11() else {
        eprintln!("skipped: script/lib/mariadb11 fetches the server");
        return;
    };
    let spec = Spec::new(sandbox::Kind::Mariadb).program(program);
    check(spec, Flavor::MariaDb, columns::newer_mariadb()).await;
}

#[tokio::test]
async fn of_mariadb_that_compresses_its_log() {
    let spec = Spec::new(sandbox::Kind::Mariadb)
        .option("--log-bin-compress=ON")
        .option("--log-bin-compress-min-len=10")
        .option("--binlog-checksum=CRC32")
        .option("--binlog-row-metadata=FULL");
    check(spec, Flavor::MariaDb, columns::mariadb()).await;
}

#[tokio::test]
async fn of_mariadb_with_times_of_old() {
    let spec = Spec::new(sandbox::Kind::Mariadb).option("--mysql56-temporal-format=OFF");
    check(spec, Flavor::MariaDb, columns::old_times()).await;
}

#[tokio::test]
async fn of_mysql() {
    check(Spec::new(sandbox::Kind::Mysql), Flavor::MySql, columns::mysql()).await;
}

#[tokio::test]
async fn of_mysql_that_compresses_its_log() {
    let spec = Spec::new(sandbox::Kind::Mysql)
        .option("--binlog-transaction-compression=ON")
        .option("--binlog-checksum=NONE")
        .option("--binlog-row-metadata=FULL");
    check(spec, Flavor::MySql, columns::mysql()).await;
}

/// Asks where the log ends.
pub(crate) fn log_status(sandbox: &Sandbox) -> &'static str {
    if sandbox.kind() == sandbox::Kind::Mysql && sandbox.release() >= [8, 2, 0] {
        "SHOW BINARY LOG STATUS"
    } else {
        "SHOW MASTER STATUS"
    }
}

async fn check(spec: Spec, flavor: Flavor, declarations: Vec<(String, Literal)>) {
    let sandbox = tokio::task::spawn_blocking(move || Sandbox::lend(spec))
        .await
        .unwrap()
        .unwrap();
    let (mut random, seed) = Literals::new();
    println!("FOREBAY_SEED={seed} on {}", sandbox.version());
    let mut link = Link::open(&sandbox).await;
    let position = link.query(log_status(&sandbox)).await;
    let file = position[0][0].clone().unwrap();
    let offset: u32 = String::from_utf8(position[0][1].clone().unwrap())
        .unwrap()
        .parse()
        .unwrap();
    let mut tables = Vec::new();
    let declarations = columns::known_to(sandbox.version(), declarations);
    for (at, (declaration, literal)) in declarations.into_iter().enumerate() {
        tables.push(fill(&mut link, &mut random, format!("t{at}"), declaration, literal).await);
    }
    link.query("CREATE TABLE the_end (id INT)").await;
    link.query("INSERT INTO the_end VALUES (1)").await;
    let command = Command::Dump {
        server_id: 4242,
        file: &file,
        offset,
    };
    let (mut stream, mut decoder) = link.dump(flavor, Start::Command, command).await;
    let seen = follow(&mut stream, &mut decoder, &tables).await;
    let mut wrong = Vec::new();
    for table in &tables {
        let table_seen = &seen[table.name.as_str()];
        let rows = table.text.len();
        assert_eq!(table_seen.rows.len(), rows, "{}", table.declaration);
        assert_eq!(table_seen.deletes, rows, "{}", table.declaration);
        let of_table = (1..=rows).filter_map(|id| compare(table, id, &table_seen.rows[&(id as i64)]).err());
        // More of the same tell nothing.
        wrong.extend(of_table.take(2));
    }
    assert!(
        wrong.is_empty(),
        "{} wrong values, at most two of a column:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Writes rows, updates them, deletes copies of them, and reads what is left.
async fn fill(
    link: &mut Link,
    random: &mut Literals,
    name: String,
    declaration: String,
    literal: Literal,
) -> Table {
    link.query(&format!(
        "CREATE TABLE {name} (id INT PRIMARY KEY, v {declaration})"
    ))
    .await;
    let rows = rows();
    let first: Vec<String> = (1..=rows).map(|id| format!("({id}, NULL)")).collect();
    link.query(&format!("INSERT INTO {name} VALUES {}", first.join(",")))
        .await;
    for id in 1..=rows {
        let value = literal.make(random);
        link.query(&format!("UPDATE IGNORE {name} SET v = {value} WHERE id = {id}"))
            .await;
        link.query(&format!("UPDATE {name} SET id = -id WHERE id = {id}"))
            .await;
    }
    if literal == Literal::MySqlJson {
        // Changed in place, documents have holes.
        let change = "JSON_SET(JSON_REMOVE(v, '$[1]', '$.a0'), '$[0]', 'x', '$.k', 2)";
        link.query(&format!("UPDATE {name} SET v = {change} WHERE id % 3 = 0"))
            .await;
    }
    link.query(&format!("UPDATE {name} SET id = -id")).await;
    link.query(&format!("INSERT INTO {name} SELECT id + {COPIES}, v FROM {name}"))
        .await;
    link.query(&format!("DELETE FROM {name} WHERE id > {COPIES}"))
        .await;
    let select = format!("SELECT v FROM {name} ORDER BY id");
    let text = link.query(&select).await;
    assert_eq!(text.len(), rows, "{declaration}");
    let binary = link.execute(&select).await;
    link.query(&format!("SET time_zone = '{ZONE}'")).await;
    let zoned = link.query(&select).await;
    link.query("SET time_zone = '+00:00'").await;
    let shape = link
        .query(&format!(
            "SELECT COLUMN_TYPE, CHARACTER_SET_NAME, -0e0 FROM information_schema.COLUMNS \
             WHERE TABLE_SCHEMA = 'test' AND TABLE_NAME = '{name}' AND COLUMN_NAME = 'v'"
        ))
        .await;
    let word = |at: usize| shape[0][at].clone().map(|word| String::from_utf8(word).unwrap());
    let mut column = ColumnType::parse(&word(0).unwrap(), word(1).as_deref()).unwrap();
    column.signs_zeros = word(2).unwrap().starts_with('-');
    Table {
        name,
        declaration,
        column,
        text,
        zoned,
        binary,
    }
}

/// Reads events until the last table is written.
async fn follow<'t>(stream: &mut Link, decoder: &mut Decoder, tables: &'t [Table]) -> HashMap<&'t str, Seen> {
    let mut follower = Follower {
        tables,
        maps: HashMap::new(),
        seen: HashMap::new(),
        done: false,
    };
    while !follower.done {
        let payload = stream.receive().await;
        let event = match decoder.packet(&payload).unwrap() {
            Packet::Event(event) => event,
            other => panic!("{other:?}"),
        };
        if let Kind::TransactionPayload(mut inner) = event.kind {
            while let Some(bytes) = inner.next_event().unwrap() {
                follower.take(&decoder.inner(bytes).unwrap());
            }
        } else {
            follower.take(&event);
        }
    }
    follower.seen
}

struct Follower<'t> {
    tables: &'t [Table],
    maps: HashMap<u64, TableMap>,
    seen: HashMap<&'t str, Seen>,
    done: bool,
}

impl Follower<'_> {
    fn take(&mut self, event: &Event<'_>) {
        match &event.kind {
            Kind::TableMap(map) => {
                assert_eq!(&*map.schema, b"test");
                self.maps.insert(map.table_id, map.clone());
            }
            Kind::Rows(rows) => {
                let map = &self.maps[&rows.table_id];
                if &*map.table == b"the_end" {
                    self.done = true;
                    return;
                }
                let table = self
                    .tables
                    .iter()
                    .find(|table| table.name.as_bytes() == &*map.table)
                    .unwrap();
                let seen = self.seen.entry(table.name.as_str()).or_default();
                let id = ColumnType::parse("int", None).unwrap();
                let layout = seen
                    .layout
                    .get_or_insert_with(|| Layout::new(map, &[id, table.column.clone()]).unwrap())
                    .clone();
                for change in rows.iter(&layout) {
                    let change = change.unwrap_or_else(|error| panic!("{}: {error}", table.declaration));
                    seen.apply(
                        &layout,
                        rows.change,
                        change.before.as_ref(),
                        change.after.as_ref(),
                        &table.declaration,
                    );
                }
            }
            Kind::Query(query) => assert_eq!(query.error, 0),
            _ => {}
        }
    }
}

impl Seen {
    fn apply(
        &mut self,
        layout: &Layout,
        change: Change,
        before: Option<&Image<'_>>,
        after: Option<&Image<'_>>,
        what: &str,
    ) {
        let read = |image: &Image<'_>| {
            let Value::Int(id) = image.value(layout, 0).unwrap() else {
                panic!()
            };
            let value = image
                .value(layout, 1)
                .unwrap_or_else(|error| panic!("{what}, row {id}: {error}"));
            (id, value.into_owned())
        };
        if let Some((id, value)) = before.map(read) {
            assert_eq!(self.rows.remove(&id), Some(value), "{what}, row {id}");
        }
        if let Some((id, value)) = after.map(read) {
            assert!(self.rows.insert(id, value).is_none(), "{what}, row {id}");
        }
        self.deletes += usize::from(change == Change::Delete);
    }
}

fn compare(table: &Table, id: usize, value: &Value<'_>) -> Result<(), String> {
    let Table {
        declaration, column, ..
    } = table;
    let (shown, zoned, row) = (
        &table.text[id - 1][0],
        &table.zoned[id - 1][0],
        &table.binary[id - 1],
    );
    let wrong = |what: &str, found: &[u8], expected: &[u8]| {
        let same = found.iter().zip(expected).take_while(|(a, b)| a == b).count();
        let from = same.saturating_sub(20);
        let (found, expected) = (cut(&found[from..]), cut(&expected[from..]));
        format!("{declaration}: {what}: {found:?}, the server says {expected:?}, from {from}")
    };
    let in_text = |zone: Zone| {
        let mut out = Vec::new();
        text(value, column, zone, &mut out).map(|()| (*value != Value::Null).then_some(out))
    };
    for (zone, expected) in [(Zone::UTC, shown), (Zone::parse(ZONE).unwrap(), zoned)] {
        let found = in_text(zone).map_err(|error| format!("{declaration}: {error} ({value:?})"))?;
        if found != *expected {
            return Err(wrong(
                "text",
                &found.unwrap_or_default(),
                expected.as_deref().unwrap_or(b"NULL"),
            ));
        }
    }
    let mut found = vec![0, if value.is_null() { 4 } else { 0 }];
    binary(value, column, Zone::UTC, &mut found).unwrap();
    if found != *row {
        return Err(wrong("binary", &found, row));
    }
    let mut encoded = Vec::new();
    value.encode(&mut encoded);
    let copied = BinaryRow::new(row, 1)
        .unwrap()
        .next_value(column)
        .map_err(|error| format!("{declaration}: {error}"))?;
    let mut expected = Vec::new();
    copied.encode(&mut expected);
    if encoded != expected {
        return Err(wrong("encoded", &encoded, &expected));
    }
    if let Some(shown) = shown
        && !matches!(value, Value::Float(_) | Value::Double(0.0))
    {
        let read = from_text(shown, column, Zone::UTC).map_err(|error| format!("{declaration}: {error}"))?;
        expected.clear();
        read.encode(&mut expected);
        // Fixed decimals lose digits.
        if encoded != expected && !matches!(value, Value::Double(_)) {
            return Err(wrong("from text", &encoded, &expected));
        }
    }
    let decoded = Value::decode(&mut &encoded[..]).unwrap();
    (decoded == *value)
        .then_some(())
        .ok_or_else(|| format!("{declaration}: decoded {decoded:?} of {value:?}"))
}

fn cut(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().take(60).collect()
}
