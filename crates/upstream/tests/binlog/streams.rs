//! Streams by GTID and by position: which events come, and how a stream ends.

use std::time::Duration;

use mysql_wire::binlog::{
    BinlogError, Change, ColumnType, Command, Decoder, Gtid, Kind, Layout, Packet, Start, TableMap, Value,
};
use mysql_wire::gtid::{Flavor, GtidSet};
use sandbox::{Lent, Sandbox, Spec};
use tokio::time::{Instant, timeout_at};

use crate::link::Link;
use crate::values::log_status;

const PATIENCE: Duration = Duration::from_secs(30);

/// What the feed of a cache needs, in short words.
struct Stream {
    link: Link,
    decoder: Decoder,
    table: Option<TableMap>,
}

const INT_AND_TEXT: [(&str, Option<&str>); 2] = [("int", None), ("longtext", Some("utf8mb4"))];

impl Stream {
    /// The next packet, as words.
    async fn next(&mut self) -> String {
        let payload = self.link.receive().await;
        match self.decoder.packet(&payload).unwrap() {
            Packet::End => "end".to_owned(),
            Packet::Refused(error) => format!("refused {}", error.code),
            Packet::Event(event) => {
                if let Kind::TableMap(map) = &event.kind {
                    self.table = Some(map.clone());
                }
                words(&event.kind, self.table.as_ref())
            }
        }
    }

    /// Events until one that begins so, without those that say nothing here.
    async fn until(&mut self, last: &str) -> Vec<String> {
        let mut events = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let event = timeout_at(deadline, self.next()).await;
            let event = event.unwrap_or_else(|_| panic!("no {last} after {events:?}"));
            let is_last = event.starts_with(last);
            if !matches!(event.as_str(), "other" | "heartbeat" | "GTID list") || is_last {
                events.push(event);
            }
            if is_last {
                return events;
            }
        }
    }
}

fn words(kind: &Kind<'_>, table: Option<&TableMap>) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match kind {
        Kind::Rotate { file, offset } => format!("rotate {} {offset}", text(file)),
        Kind::FormatDescription { server_version } => format!("format {}", text(server_version)),
        Kind::Gtid(Gtid::MySql { tag, number, .. }) => format!("GTID {tag}:{number}"),
        Kind::Gtid(Gtid::MariaDb {
            domain,
            server,
            sequence,
            flags,
        }) => {
            format!(
                "GTID {domain}-{server}-{sequence} {:#x}",
                flags & (Gtid::DDL | Gtid::STANDALONE | Gtid::PREPARED_XA | Gtid::COMPLETED_XA)
            )
        }
        Kind::Gtid(Gtid::Anonymous) => "anonymous".to_owned(),
        Kind::GtidList => "GTID list".to_owned(),
        Kind::Query(query) => format!("query {}: {}", text(query.schema), text(&query.sql)),
        Kind::TableMap(map) => format!("table {}.{}", text(&map.schema), text(&map.table)),
        Kind::Rows(rows) => {
            let columns = INT_AND_TEXT.map(|(name, charset)| ColumnType::parse(name, charset).unwrap());
            let layout = Layout::new(table.unwrap(), &columns).unwrap();
            let ids: Vec<String> = rows
                .iter(&layout)
                .map(|change| {
                    let change = change.unwrap();
                    let image = change.after.or(change.before).unwrap();
                    match image.value(&layout, 0) {
                        Ok(Value::Int(id)) => id.to_string(),
                        other => format!("{other:?}"),
                    }
                })
                .collect();
            let change = match rows.change {
                Change::Write => "write",
                Change::Update => "update",
                Change::Delete => "delete",
            };
            format!("{change} {}", ids.join(","))
        }
        Kind::Xid(_) => "commit".to_owned(),
        Kind::XaPrepare { one_phase } => format!("XA prepare {one_phase}"),
        Kind::TransactionPayload(_) => "payload".to_owned(),
        Kind::Heartbeat { .. } => "heartbeat".to_owned(),
        Kind::RowsQuery(sql) => format!("rows query {}", text(sql)),
        Kind::PartialUpdateRows => "partial update".to_owned(),
        Kind::Stop => "stop".to_owned(),
        Kind::Incident { .. } => "incident".to_owned(),
        Kind::Other => "other".to_owned(),
    }
}

async fn start(spec: Spec) -> (Lent, Link) {
    let sandbox = tokio::task::spawn_blocking(move || Sandbox::lend(spec))
        .await
        .unwrap()
        .unwrap();
    let mut link = Link::open(&sandbox).await;
    link.query("CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT)")
        .await;
    (sandbox, link)
}

async fn executed(link: &mut Link, flavor: Flavor) -> GtidSet {
    let statement = match flavor {
        Flavor::MySql => "SELECT @@gtid_executed",
        Flavor::MariaDb => "SELECT @@gtid_binlog_pos",
    };
    let rows = link.query(statement).await;
    GtidSet::parse(flavor, rows[0][0].as_ref().unwrap()).unwrap()
}

/// A stream of what is not in `have`.
async fn dump(sandbox: &Sandbox, have: &GtidSet) -> Stream {
    let link = Link::open(sandbox).await;
    let (link, decoder) = match have {
        GtidSet::MySql(have) => {
            let command = Command::DumpGtid {
                server_id: 4242,
                have,
            };
            link.dump(Flavor::MySql, Start::Command, command).await
        }
        GtidSet::MariaDb(have) => {
            let command = Command::Dump {
                server_id: 4242,
                file: b"",
                offset: 4,
            };
            link.dump(Flavor::MariaDb, Start::After(have), command).await
        }
    };
    Stream {
        link,
        decoder,
        table: None,
    }
}

async fn xa_transaction(link: &mut Link) {
    link.query("XA START 'x'").await;
    link.query("INSERT INTO t VALUES (3, 'c')").await;
    link.query("XA END 'x'").await;
    link.query("XA PREPARE 'x'").await;
    link.query("XA COMMIT 'x'").await;
}

#[tokio::test]
async fn mysql_by_gtid() {
    let spec = Spec::new(sandbox::Kind::Mysql).option("--binlog-rows-query-log-events=ON");
    let (sandbox, mut link) = start(spec).await;
    let have = executed(&mut link, Flavor::MySql).await;
    link.query("INSERT INTO t VALUES (1, 'a'), (2, NULL)").await;
    // GTIDs have tags since 8.3.
    let tag = if sandbox.release() >= [8, 3, 0] {
        "some_tag"
    } else {
        ""
    };
    if !tag.is_empty() {
        link.query(&format!("SET gtid_next = 'AUTOMATIC:{tag}'")).await;
    }
    link.query("UPDATE t SET v = 'b' WHERE id = 2").await;
    link.query("SET gtid_next = 'AUTOMATIC'").await;
    link.query("TRUNCATE TABLE t").await;
    link.query("FLUSH BINARY LOGS").await;
    xa_transaction(&mut link).await;
    let after = executed(&mut link, Flavor::MySql).await;

    let mut stream = dump(&sandbox, &have).await;
    let first = stream.until("rotate").await;
    assert!(
        first[0].starts_with("rotate binlog.") && first[0].ends_with(" 4"),
        "{first:?}"
    );
    let version = sandbox.release().map(|number| number.to_string()).join(".");
    let format = &stream.until("format").await[0];
    assert!(format.starts_with(&format!("format {version}")), "{format}");
    let events = stream.until("query test: TRUNCATE").await;
    let number = events[0].strip_prefix("GTID :").unwrap().parse::<u64>().unwrap();
    // Of the update, and of what comes after it.
    let (update, next) = if tag.is_empty() {
        (number + 1, number + 2)
    } else {
        (1, number + 1)
    };
    assert_eq!(
        events[1..],
        [
            "query test: BEGIN",
            "rows query INSERT INTO t VALUES (1, 'a'), (2, NULL)",
            "table test.t",
            "write 1,2",
            "commit",
            &format!("GTID {tag}:{update}"),
            "query test: BEGIN",
            "rows query UPDATE t SET v = 'b' WHERE id = 2",
            "table test.t",
            "update 2",
            "commit",
            &format!("GTID :{next}"),
            "query test: TRUNCATE TABLE t",
        ]
    );
    a_branch_is_read_in_its_parts(&mut stream, next + 2).await;

    let seen = [
        ("", number),
        (tag, update),
        ("", next),
        ("", next + 1),
        ("", next + 2),
    ];
    what_was_seen_is_what_the_server_has(&have, &seen, &after);
    link.query("INSERT INTO t VALUES (9, '')").await;
    let mut stream = dump(&sandbox, &after).await;
    stream.until("format").await;
    assert_eq!(stream.until("write").await.last().unwrap(), "write 9");
}

/// That of `xa_transaction`, behind the end of a file. `commit` is the number of its second half.
async fn a_branch_is_read_in_its_parts(stream: &mut Stream, commit: u64) {
    let events = stream.until("query test: XA COMMIT").await;
    let (file_end, transaction) =
        events.split_at(events.iter().position(|event| event.starts_with("GTID")).unwrap());
    assert!(
        file_end.iter().any(|event| event.starts_with("rotate"))
            && file_end.iter().any(|event| event.starts_with("format"))
    );
    assert_eq!(
        transaction[1..],
        [
            "query test: XA START X'78',X'',1",
            "rows query INSERT INTO t VALUES (3, 'c')",
            "table test.t",
            "write 3",
            "query test: XA END X'78',X'',1",
            "XA prepare false",
            &format!("GTID :{commit}"),
            "query test: XA COMMIT X'78',X'',1",
        ]
    );
}

/// Added up, with a tag, too.
fn what_was_seen_is_what_the_server_has(have: &GtidSet, gtids: &[(&str, u64)], after: &GtidSet) {
    let mut seen = have.clone();
    let GtidSet::MySql(before) = have else { panic!() };
    let uuid = before.to_string()[..36].replace('-', "");
    let uuid: Vec<u8> = (0..16)
        .map(|at| u8::from_str_radix(&uuid[2 * at..2 * at + 2], 16).unwrap())
        .collect();
    for &(tag, number) in gtids {
        let gtid = Gtid::MySql {
            uuid: uuid.clone().try_into().unwrap(),
            tag: tag.into(),
            number,
        };
        gtid.add_to(&mut seen).unwrap();
    }
    assert_eq!(seen, *after);
}

#[tokio::test]
async fn mariadb_by_gtid() {
    let (sandbox, mut link) = start(Spec::new(sandbox::Kind::Mariadb)).await;
    let have = executed(&mut link, Flavor::MariaDb).await;
    link.query("INSERT INTO t VALUES (1, 'a'), (2, NULL)").await;
    link.query("SET gtid_domain_id = 7").await;
    link.query("TRUNCATE TABLE t").await;
    link.query("FLUSH BINARY LOGS").await;
    xa_transaction(&mut link).await;
    let after = executed(&mut link, Flavor::MariaDb).await;

    let mut stream = dump(&sandbox, &have).await;
    assert!(stream.until("rotate").await[0].starts_with("rotate binlog.000001"));
    assert!(stream.until("format").await[0].starts_with("format 1"));
    let events = stream.until("query test: TRUNCATE").await;
    let GtidSet::MariaDb(position) = &have else {
        panic!()
    };
    let last: u64 = position.to_string().rsplit('-').next().unwrap().parse().unwrap();
    assert_eq!(
        events,
        [
            &format!("GTID 0-1-{} 0x0", last + 1),
            "table test.t",
            "write 1,2",
            "commit",
            "GTID 7-1-1 0x21",
            "query test: TRUNCATE TABLE t",
        ]
    );
    let events = stream.until("query test: XA COMMIT").await;
    let begin = events
        .iter()
        .position(|event| event.starts_with("GTID 7"))
        .unwrap();
    assert_eq!(
        events[begin..],
        [
            "GTID 7-1-2 0x40",
            "table test.t",
            "write 3",
            "query test: XA END X'78',X'',1",
            "XA prepare false",
            "GTID 7-1-3 0x81",
            "query test: XA COMMIT X'78',X'',1",
        ]
    );
    let mut seen = have.clone();
    for (domain, sequence) in [(0, last + 1), (7, 1), (7, 2), (7, 3)] {
        let gtid = Gtid::MariaDb {
            domain,
            server: 1,
            sequence,
            flags: 0,
        };
        gtid.add_to(&mut seen).unwrap();
    }
    assert_eq!(seen, after);
    link.query("INSERT INTO t VALUES (9, '')").await;
    let mut stream = dump(&sandbox, &after).await;
    stream.until("format").await;
    assert_eq!(stream.until("write").await.last().unwrap(), "write 9");
}

#[tokio::test]
async fn rows_longer_than_a_packet_come_whole() {
    for kind in [sandbox::Kind::Mariadb, sandbox::Kind::Mysql] {
        let (sandbox, mut link) = start(Spec::new(kind).option("--max-allowed-packet=64M")).await;
        let flavor = if kind == sandbox::Kind::Mysql {
            Flavor::MySql
        } else {
            Flavor::MariaDb
        };
        let have = executed(&mut link, flavor).await;
        link.query("INSERT INTO t VALUES (1, REPEAT('x', 20000000))")
            .await;
        let mut stream = dump(&sandbox, &have).await;
        assert_eq!(stream.until("write").await.last().unwrap(), "write 1");
    }
}

/// MySQL does the same, and needs files beside its program for it.
#[tokio::test]
async fn an_encrypted_log_comes_in_the_clear() {
    let keys = std::env::temp_dir().join(format!("forebay-keys-{}", std::process::id()));
    std::fs::write(&keys, "1;a7addd9adea9978fda19f21e6be98788\n").unwrap();
    let spec = Spec::new(sandbox::Kind::Mariadb)
        .option("--plugin-load-add=file_key_management")
        .option(format!("--file-key-management-filename={}", keys.display()))
        .option("--encrypt-binlog=ON");
    let (sandbox, mut link) = start(spec).await;
    std::fs::remove_file(&keys).unwrap();
    let have = executed(&mut link, Flavor::MariaDb).await;
    link.query("INSERT INTO t VALUES (1, 'a secret')").await;
    let log = std::fs::read(sandbox.primary().data_folder().join("binlog.000001")).unwrap();
    assert!(!log.windows(8).any(|bytes| bytes == b"a secret"));
    let mut stream = dump(&sandbox, &have).await;
    assert_eq!(stream.until("write").await.last().unwrap(), "write 1");
}

#[tokio::test]
async fn a_purged_log_is_refused() {
    for kind in [sandbox::Kind::Mariadb, sandbox::Kind::Mysql] {
        let (sandbox, mut link) = start(Spec::new(kind)).await;
        let flavor = if kind == sandbox::Kind::Mysql {
            Flavor::MySql
        } else {
            Flavor::MariaDb
        };
        let have = executed(&mut link, flavor).await;
        link.query("INSERT INTO t VALUES (1, '')").await;
        link.query("FLUSH BINARY LOGS").await;
        let file = link.query(log_status(&sandbox)).await[0][0].clone().unwrap();
        let file = String::from_utf8(file).unwrap();
        // MariaDB keeps a file until its engine has written what is in it.
        let mut id = 1;
        while link.query("SHOW BINARY LOGS").await[0][0].as_deref() != Some(file.as_bytes()) {
            id += 1;
            link.query(&format!("INSERT INTO t VALUES ({id}, '')")).await;
            link.query(&format!("PURGE BINARY LOGS TO '{file}'")).await;
        }
        let mut stream = dump(&sandbox, &have).await;
        assert_eq!(
            stream.until("refused").await.last().unwrap(),
            "refused 1236",
            "{kind}"
        );
    }
}

#[tokio::test]
async fn a_quiet_stream_has_heartbeats() {
    for kind in [sandbox::Kind::Mariadb, sandbox::Kind::Mysql] {
        let (sandbox, mut link) = start(Spec::new(kind)).await;
        let flavor = if kind == sandbox::Kind::Mysql {
            Flavor::MySql
        } else {
            Flavor::MariaDb
        };
        let have = executed(&mut link, flavor).await;
        let mut stream = dump(&sandbox, &have).await;
        assert_eq!(stream.until("heartbeat").await.last().unwrap(), "heartbeat");
    }
}

#[tokio::test]
async fn rows_that_are_not_whole_are_errors() {
    let (sandbox, mut link) = start(Spec::new(sandbox::Kind::Mysql)).await;
    link.query("INSERT INTO t VALUES (1, 'a')").await;
    let have = executed(&mut link, Flavor::MySql).await;
    link.query("SET binlog_row_image = MINIMAL").await;
    link.query("UPDATE t SET v = 'b'").await;
    let mut stream = dump(&sandbox, &have).await;
    let absent = BinlogError::Absent { column: 0 };
    assert_eq!(
        stream.until("update").await.last().unwrap(),
        &format!("update Err({absent:?})")
    );

    link.query("SET binlog_row_image = FULL, binlog_row_value_options = PARTIAL_JSON")
        .await;
    link.query("CREATE TABLE j (id INT PRIMARY KEY, v JSON)").await;
    link.query("INSERT INTO j VALUES (1, JSON_OBJECT('a', REPEAT('x', 1000), 'b', 1))")
        .await;
    let have = executed(&mut link, Flavor::MySql).await;
    link.query("UPDATE j SET v = JSON_SET(v, '$.b', 2)").await;
    let mut stream = dump(&sandbox, &have).await;
    stream.until("partial update").await;
}

#[tokio::test]
async fn statements_that_change_rows_are_seen() {
    let (sandbox, mut link) = start(Spec::new(sandbox::Kind::Mariadb)).await;
    let have = executed(&mut link, Flavor::MariaDb).await;
    let file = sandbox.folder().join("rows.txt");
    std::fs::write(&file, "1\tone\n").unwrap();
    link.query("SET binlog_format = STATEMENT").await;
    link.query("INSERT INTO t VALUES (2, 'two')").await;
    link.query(&format!("LOAD DATA INFILE '{}' INTO TABLE t", file.display()))
        .await;
    let mut stream = dump(&sandbox, &have).await;
    stream.until("query test: INSERT INTO t").await;
    stream.until("query test: LOAD DATA").await;
}

#[tokio::test]
async fn the_log_has_the_columns_of_the_information_schema() {
    for kind in [sandbox::Kind::Mariadb, sandbox::Kind::Mysql] {
        let (sandbox, mut link) = start(Spec::new(kind)).await;
        let flavor = if kind == sandbox::Kind::Mysql {
            Flavor::MySql
        } else {
            Flavor::MariaDb
        };
        // Indexes over expressions are hidden columns.
        let more = match flavor {
            Flavor::MySql => {
                ", j JSON, secret INT INVISIBLE, KEY ((id + 1)), KEY ((CAST(j->'$.a' AS UNSIGNED ARRAY)))"
            }
            Flavor::MariaDb => ", j JSON, secret INT INVISIBLE DEFAULT 3",
        };
        let generated = "g INT AS (id * 2) VIRTUAL, s INT AS (id * 3) STORED";
        link.query(&format!(
            "CREATE TABLE more (id INT PRIMARY KEY, w TEXT, {generated}{more})"
        ))
        .await;
        let have = executed(&mut link, flavor).await;
        link.query("INSERT INTO more (id, w, j) VALUES (7, 'w', '{\"a\": [1, 2]}')")
            .await;
        let shape = link
            .query(
                "SELECT COLUMN_TYPE, CHARACTER_SET_NAME FROM information_schema.COLUMNS \
                 WHERE TABLE_NAME = 'more' AND TABLE_SCHEMA = 'test' ORDER BY ORDINAL_POSITION",
            )
            .await;
        let word = |word: &Option<Vec<u8>>| word.clone().map(|word| String::from_utf8(word).unwrap());
        let columns: Vec<ColumnType> = shape
            .iter()
            .map(|row| ColumnType::parse(&word(&row[0]).unwrap(), word(&row[1]).as_deref()).unwrap())
            .collect();
        let mut stream = dump(&sandbox, &have).await;
        stream.until("table").await;
        let layout = Layout::new(stream.table.as_ref().unwrap(), &columns).unwrap();
        let payload = stream.link.receive().await;
        let Packet::Event(event) = stream.decoder.packet(&payload).unwrap() else {
            panic!()
        };
        let Kind::Rows(rows) = event.kind else {
            panic!("{:?}", event.kind)
        };
        let image = rows.iter(&layout).next().unwrap().unwrap().after.unwrap();
        let values: Vec<_> = (0..columns.len())
            .map(|column| image.value(&layout, column).unwrap())
            .collect();
        assert_eq!(values[0], Value::Int(7), "{kind}");
        assert_eq!(values[2..4], [Value::Int(14), Value::Int(21)], "{kind}");
    }
}
