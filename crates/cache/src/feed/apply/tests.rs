mod servers;

use std::borrow::Cow;

use config::CacheMapping;
use mysql_wire::binlog::Zone;
use mysql_wire::gtid::{Flavor, GtidSet};

use super::*;
use crate::coherence::{Place, Position};
use crate::feed::status::Phase;
use crate::mapping::{ColumnShape, TableShape, UniqueIndex};
use crate::store::{Found, MappingId, Store};

/// `shop.items (id INT PRIMARY KEY, v INT)` and `shop.other`, both served.
struct Fed {
    applier: Applier,
    store: Arc<Store>,
}

fn here() -> Position {
    Position {
        source: SourceId(1),
        place: Place::File { file: 1, offset: 4 },
    }
}

fn column(ordinal: usize, name: &str) -> ColumnShape {
    ColumnShape {
        name: name.into(),
        ordinal,
        nullable: false,
        column_type: "int".into(),
        charset: None,
        collation: None,
        unlogged: false,
        invisible: false,
        signs_zeros: false,
    }
}

fn shape(table: &str) -> TableShape {
    TableShape {
        schema: "shop".into(),
        table: table.into(),
        kind: "BASE TABLE".into(),
        engine: "InnoDB".into(),
        columns: vec![column(1, "id"), column(2, "v")],
        unique: vec![UniqueIndex {
            name: "PRIMARY".into(),
            columns: vec!["id".into()],
        }],
        cascade: None,
    }
}

impl Fed {
    fn new() -> Self {
        let mapping = |table: &str| {
            CacheMapping::new(
                table,
                config::MappingKind::String,
                &format!("shop.{table}"),
                &["id"],
                &["v"],
            )
        };
        let mut config = config::Cache::new("main");
        config.mappings = vec![mapping("items"), mapping("other")];
        let (store, writer) = Store::new(1 << 24);
        let (feed_status, _fills) = FeedStatus::new(
            Progress::nowhere().applied(Version::default()),
            crate::Tracking::new(1000),
        );
        let tables = Tables::new(&config, writer, Arc::clone(&feed_status));
        let mut fed = Self {
            applier: Applier::new(tables, feed_status),
            store,
        };
        fed.serve(0);
        fed.serve(1);
        fed
    }

    /// The copy of a table begins.
    fn copy(&mut self, at: usize) {
        let tables = &mut self.applier.tables;
        let config = &tables.all[at].config;
        let shape = shape(&config.name);
        let id = tables.free_id();
        let mapping = Mapping::new(id, config, Some(&shape), Zone::UTC).unwrap();
        tables.follow(
            at,
            Arc::new(mapping),
            Rc::new(RefCell::new(CopyWindow::default())),
        );
    }

    /// The copy of a table comes to its end.
    fn serve(&mut self, at: usize) {
        self.copy(at);
        self.applier.tables.catch_up(at, here());
        self.applier.tables.serve(&here());
    }

    fn sql(&mut self, sql: &str) {
        let query = Query {
            schema: b"shop",
            sql: Cow::Borrowed(sql.as_bytes()),
            error: 0,
        };
        self.applier.inner(Kind::Query(query)).unwrap();
    }

    /// A transaction begins.
    fn begin(&mut self) {
        self.applier.inner(Kind::Gtid(Gtid::Anonymous)).unwrap();
    }

    fn is_served(&self, at: usize) -> bool {
        matches!(self.applier.tables.all[at].state, State::Serving { .. })
    }

    fn served(&self) -> [bool; 2] {
        [self.is_served(0), self.is_served(1)]
    }

    /// Whether the row of a key is in memory.
    fn has(&self, key: &[u8]) -> bool {
        let id = self.applier.tables.all[0].mapping().unwrap().id;
        self.store.get(id, key, &mut Vec::new()) == Found::Row
    }

    fn reason(&self, at: usize) -> String {
        let states = self.applier.feed_status.states();
        match &states[at].phase {
            Phase::Waiting { reason } => reason.to_string(),
            other => other.to_string(),
        }
    }
}

#[test]
fn a_change_that_is_logged_as_a_statement_may_concern_any_table() {
    for sql in [
        "UPDATE vw SET v = 1",
        "SELECT f()",
        "SET STATEMENT a=1 FOR DELETE FROM vw",
    ] {
        let mut fed = Fed::new();
        fed.begin();
        fed.sql("BEGIN");
        fed.sql(sql);
        fed.sql("COMMIT");
        assert_eq!(fed.served(), [false, false], "{sql}");
        assert!(fed.reason(1).contains("binlog_format must be ROW"));
    }
}

#[test]
fn what_changes_no_rows_of_mapped_tables_leaves_them_served() {
    for sql in [
        "BEGIN",
        "START TRANSACTION",
        "SAVEPOINT a",
        "RELEASE SAVEPOINT a",
        "ROLLBACK TO a",
        "ROLLBACK",
        "COMMIT",
        "XA START X'61',X'',1",
        "XA END X'61',X'',1",
        "XA ROLLBACK X'61',X'',1",
        "CREATE TABLE t2 (a INT)",
        "CREATE VIEW vw AS SELECT 1",
        "DROP TRIGGER tr",
        "CREATE USER a",
        "GRANT SELECT ON items TO a",
        "FLUSH PRIVILEGES",
        "SET PASSWORD FOR a = 'b'",
        "ANALYZE TABLE items",
        "# Dummy event",
    ] {
        let mut fed = Fed::new();
        fed.begin();
        fed.sql(sql);
        assert_eq!(fed.served(), [true, true], "{sql}");
    }
}

/// A row of a copy gives way to that of a transaction that is committed, and only to such a one.
#[test]
fn what_is_rolled_back_while_a_table_is_copied_keeps_no_row_out() {
    for (sql, admits) in [("COMMIT", false), ("ROLLBACK", true), ("", true)] {
        let mut fed = Fed::new();
        fed.applier.tables.invalidate(0, "", None);
        fed.copy(0);
        let State::Copying { window, .. } = &fed.applier.tables.all[0].state else {
            panic!("{}", fed.reason(0))
        };
        let window = Rc::clone(window);
        let mark = window.borrow_mut().mark();
        fed.begin();
        fed.sql("BEGIN");
        fed.applier.change(0, b"k", Some(b"row"));
        fed.applier.change(1, b"k", Some(b"row"));
        match sql {
            // It has no end, and the next begins.
            "" => fed.begin(),
            sql => fed.sql(sql),
        }
        assert_eq!(window.borrow().admits(mark, b"k"), admits, "{sql}");
        let state = &fed.applier.tables.all[0].state;
        assert!(
            matches!(state, State::Copying { .. }) && fed.is_served(1),
            "{sql}"
        );
    }
}

#[test]
fn what_is_rolled_back_in_part_concerns_the_tables_that_it_changed() {
    let mut fed = Fed::new();
    fed.begin();
    fed.sql("BEGIN");
    fed.sql("SAVEPOINT a");
    fed.applier.change(1, b"k", Some(b"row"));
    fed.sql("ROLLBACK TO a");
    fed.sql("COMMIT");
    assert_eq!(fed.served(), [true, false]);
}

/// A server that was killed while it wrote a transaction goes on in another file.
#[test]
fn a_transaction_without_an_end_did_not_happen() {
    let mut fed = Fed::new();
    let mut next_position = 100;
    let mut event = |fed: &mut Fed, kind: Kind<'_>| {
        let header = Header {
            timestamp: 0,
            code: 0,
            server_id: 1,
            size: 50,
            next_position,
            flags: 0,
        };
        next_position += 50;
        let decoder = Decoder::new();
        fed.applier.event(Event { header, kind }, &decoder).unwrap();
    };
    let rotate = |file: &'static [u8]| Kind::Rotate { file, offset: 4 };
    let heartbeat = |offset| Kind::Heartbeat {
        file: b"bin.000002",
        offset,
    };
    event(&mut fed, rotate(b"bin.000001"));
    event(&mut fed, Kind::Gtid(Gtid::Anonymous));
    fed.sql("BEGIN");
    fed.applier.change(0, b"k", Some(b"row"));
    event(&mut fed, rotate(b"bin.000002"));
    assert!(!fed.applier.is_writing() && !fed.applier.progress.borrow().is_in_transaction());
    event(&mut fed, heartbeat(900));
    let reached = fed.applier.progress.borrow().position().unwrap();
    let end = Place::File { file: 2, offset: 900 };
    assert_eq!(reached.place, end, "strong reads wait for this");
    event(&mut fed, Kind::Gtid(Gtid::Anonymous));
    fed.sql("BEGIN");
    fed.applier.change(0, b"l", Some(b"row"));
    fed.sql("COMMIT");
    assert!(fed.has(b"l") && !fed.has(b"k"));
}

#[tokio::test(start_paused = true)]
async fn a_table_that_is_never_understood_is_copied_less_and_less() {
    let mut fed = Fed::new();
    let mismatch = |fed: &mut Fed| {
        fed.applier.tables.mismatched(0, "so");
        let State::Waiting { from: Some(from), .. } = fed.applier.tables.all[0].state else {
            panic!("{}", fed.reason(0))
        };
        from - tokio::time::Instant::now()
    };
    let first = mismatch(&mut fed);
    let second = mismatch(&mut fed);
    assert!(second > first + first / 2, "{first:?} {second:?}");
    let last = (0..50).map(|_| mismatch(&mut fed)).max().unwrap();
    assert!(last > 100 * first && last < 1000 * first, "{last:?}");
    fed.begin();
    fed.sql("ALTER TABLE items FORCE");
    assert!(mismatch(&mut fed) < second, "its definition was changed");
}

/// Temporary names, TRUNCATE and full table caches give a table ever new numbers.
#[test]
fn numbers_of_tables_are_not_kept_for_ever() {
    let mut fed = Fed::new();
    for table_id in 0..10_000 {
        fed.begin();
        let map = TableMap {
            table_id,
            schema: (*b"shop").into(),
            table: (*b"not mapped").into(),
            columns: Arc::new([]),
            is_mariadb: false,
        };
        fed.applier.inner(Kind::TableMap(map)).unwrap();
        assert!(fed.applier.bindings.contains_key(&table_id));
        fed.sql("COMMIT");
    }
    assert!(fed.applier.bindings.len() <= BINDINGS_MAX + 1);
}

#[test]
fn what_may_change_grants_is_told() {
    for sql in [
        "CREATE OR REPLACE USER a",
        "CREATE OR REPLACE ROLE a",
        "SET STATEMENT max_statement_time=1 FOR REVOKE SELECT ON shop.items FROM a",
        "REVOKE a FROM b",
        "DROP VIEW vw",
        "ALTER TABLE elsewhere.t FORCE",
    ] {
        let mut fed = Fed::new();
        let before = fed.applier.feed_status.definitions();
        fed.begin();
        fed.sql(sql);
        assert!(fed.applier.feed_status.definitions() > before, "{sql}");
        assert_eq!(fed.served(), [true, true], "{sql}");
    }
}

#[test]
fn why_the_stream_has_ended_is_no_definition() {
    let mut fed = Fed::new();
    let before = fed.applier.feed_status.definitions();
    fed.applier
        .feed_status
        .set_stream("not following n0: it refuses".to_owned());
    fed.applier.tables.publish();
    assert_eq!(fed.applier.feed_status.definitions(), before);
    fed.applier.tables.invalidate(0, "its rows are others", None);
    assert!(fed.applier.feed_status.definitions() > before);
}

/// An XA transaction that changes a row, and then is asked for `sql`.
fn prepare(fed: &mut Fed, key: &[u8], sql: &str) {
    fed.begin();
    fed.sql("XA START X'61',X'',1");
    fed.applier.change(0, b"first", Some(b"1"));
    fed.sql("SAVEPOINT a");
    fed.applier.change(0, key, Some(b"1"));
    fed.sql(sql);
    fed.sql("XA END X'61',X'',1");
}

const COMMIT: &str = "XA COMMIT X'61',X'',1";
const NOT_KNOWN: &str = "a transaction was committed whose changes are not known";

#[test]
fn a_prepared_transaction_is_applied_when_it_is_committed() {
    let mut fed = Fed::new();
    prepare(&mut fed, b"second", "SAVEPOINT b");
    fed.applier.inner(Kind::XaPrepare { one_phase: false }).unwrap();
    assert!(!fed.has(b"first") && !fed.has(b"second"));
    fed.begin();
    fed.sql(COMMIT);
    assert!(fed.has(b"first") && fed.has(b"second"));
    assert_eq!(fed.served(), [true, true]);
}

#[test]
fn what_a_prepared_transaction_has_undone_is_not_applied() {
    for one_phase in [true, false] {
        let mut fed = Fed::new();
        prepare(&mut fed, b"second", "ROLLBACK TO a");
        fed.applier.inner(Kind::XaPrepare { one_phase }).unwrap();
        assert_eq!(fed.served(), [!one_phase; 2]);
        if !one_phase {
            fed.begin();
            fed.sql(COMMIT);
        }
        assert_eq!(fed.served(), [false, false]);
        assert_eq!(fed.reason(0), NOT_KNOWN);
        fed.serve(0);
        assert!(!fed.has(b"second"));
    }
}

#[test]
fn a_prepared_transaction_that_is_too_large_is_not_kept() {
    let mut fed = Fed::new();
    let large = vec![0; fed.applier.prepared.room()];
    prepare(&mut fed, &large, "SAVEPOINT b");
    let changes = fed.applier.group.as_ref().and_then(|group| group.xa.as_ref());
    assert!(changes.unwrap().is_empty(), "not while it is read either");
    fed.applier.inner(Kind::XaPrepare { one_phase: false }).unwrap();
    assert_eq!(fed.served(), [true, true]);
    fed.begin();
    fed.sql(COMMIT);
    assert_eq!(
        (fed.served(), fed.reason(0)),
        ([false, false], NOT_KNOWN.to_owned())
    );
}

#[test]
fn a_table_that_is_followed_in_the_middle_of_a_prepared_transaction_is_copied_again() {
    let mut fed = Fed::new();
    fed.begin();
    fed.sql("XA START X'61',X'',1");
    fed.applier.tables.invalidate(0, "", None);
    fed.serve(0);
    fed.applier.change(0, b"second", Some(b"1"));
    fed.applier.inner(Kind::XaPrepare { one_phase: false }).unwrap();
    fed.begin();
    fed.sql(COMMIT);
    assert_eq!(fed.reason(0), NOT_KNOWN);
}

#[test]
fn what_waits_for_a_position_that_never_comes_is_copied_again() {
    let catching_up = |source: u64, strict: bool, anew: bool| {
        let mut fed = Fed::new();
        fed.applier.tables.catch_up(0, here());
        let gtids = GtidSet::parse(Flavor::MariaDb, b"0-1-7").unwrap();
        fed.applier.progress.borrow_mut().begin(gtids, strict);
        fed.applier.begin(SourceId(source), anew, None);
        let is_waiting = fed.applier.tables.is_catching_up();
        (is_waiting, fed.is_served(1))
    };
    assert_eq!(catching_up(1, false, false), (true, true));
    assert_eq!(catching_up(2, false, false), (false, true), "another server");
    assert_eq!(
        catching_up(1, true, false),
        (false, true),
        "gtid_strict_mode is ON now"
    );
    assert_eq!(catching_up(1, false, true), (false, false));
}

#[test]
fn what_waits_for_a_position_of_another_kind_is_copied_again() {
    let mut fed = Fed::new();
    fed.copy(0);
    fed.applier.tables.catch_up(0, here());
    let place = Place::MariaDb(mysql_wire::gtid::MariaDbPosition::parse(b"0-1-7").unwrap());
    fed.applier.tables.serve(&Position { place, ..here() });
    assert_eq!(fed.reason(0), "the primary's positions are of another kind");
}

#[test]
fn attempts_that_fail_use_up_no_ids() {
    let mut fed = Fed::new();
    let tables = &mut fed.applier.tables;
    let free = tables.free_id();
    for _ in 0..5000 {
        tables.read(0);
        assert_eq!(tables.free_id(), free);
        tables.invalidate(0, "no such table", None);
    }
    fed.serve(0);
    let tables = &fed.applier.tables;
    assert_eq!(tables.all[0].mapping().unwrap().id, free);
    assert!(tables.free_id() > free, "never used twice");
}

#[test]
fn ids_differ_in_their_slots() {
    let mut fed = Fed::new();
    let fixed = fed.applier.tables.all[1].mapping().unwrap().id.slot();
    for _ in 0..9000 {
        fed.applier.tables.invalidate(0, "so", None);
        fed.serve(0);
        let slot = fed.applier.tables.all[0].mapping().unwrap().id.slot();
        assert!(
            slot != fixed && (1..MappingId::SLOTS - 1).contains(&slot),
            "{slot}"
        );
    }
}

#[test]
fn what_is_wanted_still_goes_on_as_it_was() {
    let mut fed = Fed::new();
    fed.begin();
    fed.sql("XA START X'61',X'',1");
    fed.applier.change(0, b"k", Some(b"row"));
    fed.applier.change(1, b"k", Some(b"row"));
    fed.sql("XA END X'61',X'',1");
    fed.applier.inner(Kind::XaPrepare { one_phase: false }).unwrap();
    let [items, other] = [0, 1].map(|at| fed.applier.tables.all[at].config.clone());
    let mut changed = items.clone();
    changed.value = vec!["id".to_owned()];
    fed.applier
        .tables
        .arrange(vec![other.clone(), changed.clone()], Vec::new(), None);
    assert_eq!(fed.served(), [true, false], "in the order of the configuration");
    assert_eq!(fed.applier.tables.all[0].config, other);
    fed.serve(1);
    fed.begin();
    fed.sql("XA COMMIT X'61',X'',1");
    assert_eq!(
        fed.served(),
        [true, false],
        "what it changed of the other one is known"
    );
    assert!(fed.has(b"k"));
    fed.applier.tables.arrange(vec![changed], Vec::new(), None);
    assert_eq!(fed.store.memory().row_count, 0);
    let names: Vec<_> = fed
        .applier
        .feed_status
        .states()
        .iter()
        .map(|state| state.name.clone())
        .collect();
    assert_eq!(names, ["items".into()]);
}

/// A stream that goes on behind 0-1-7 on a server that had more, when its log ended at 500.
fn resumed() -> Fed {
    let mut fed = Fed::new();
    let gtids = |text: &str| GtidSet::parse(Flavor::MariaDb, text.as_bytes()).unwrap();
    fed.applier.progress.borrow_mut().begin(gtids("0-1-7"), false);
    let until = FilePosition {
        file: "bin.000001".to_owned(),
        offset: 500,
    };
    fed.applier
        .begin(SourceId(1), false, Some((gtids("0-1-7,7-2-3"), until)));
    let file = b"bin.000001";
    fed.applier.inner(Kind::Rotate { file, offset: 4 }).unwrap();
    fed
}

fn header(places: std::ops::Range<u32>) -> Header {
    Header {
        timestamp: 0,
        code: 0,
        server_id: 1,
        size: places.end - places.start,
        next_position: places.end,
        flags: 0,
    }
}

impl Fed {
    fn event(&mut self, places: std::ops::Range<u32>, kind: Kind<'_>) -> Result<(), Ended> {
        let header = header(places);
        self.applier.event(Event { header, kind }, &Decoder::new())
    }

    fn transaction(&mut self, places: std::ops::Range<u32>) -> Result<(), Ended> {
        let gtid = Gtid::MariaDb {
            domain: 7,
            server: 2,
            sequence: 1,
            flags: 0,
        };
        self.event(places.start..places.end - 20, Kind::Gtid(gtid))?;
        self.event(places.end - 20..places.end, Kind::Xid(1))
    }

    fn heartbeat(&mut self, offset: u32) -> Result<(), Ended> {
        let (file, offset) = (&b"bin.000001"[..], u64::from(offset));
        self.event(0..0, Kind::Heartbeat { file, offset })
    }
}

#[test]
fn what_a_server_leaves_out_comes_before_what_is_new() {
    let mut fed = resumed();
    fed.transaction(200..300).unwrap();
    fed.heartbeat(300).unwrap();
    fed.transaction(300..400).unwrap();
    assert!(fed.applier.is_resuming() && fed.applier.is_in_doubt());
    fed.transaction(400..500).unwrap();
    assert!(!fed.applier.is_resuming());
    fed.transaction(900..1000).unwrap();

    let mut fed = resumed();
    fed.heartbeat(450).unwrap();
    assert!(fed.applier.is_resuming() && !fed.applier.is_in_doubt());
    fed.heartbeat(500).unwrap();
    assert!(!fed.applier.is_resuming());

    type Next = fn(&mut Fed) -> Result<(), Ended>;
    let nexts: [Next; 3] = [
        |fed| fed.heartbeat(400),
        |fed| fed.transaction(350..400),
        |fed| {
            let mut header = header(360..400);
            header.flags = Header::ARTIFICIAL;
            let kind = Kind::GtidList;
            fed.applier.event(Event { header, kind }, &Decoder::new())
        },
    ];
    for next in nexts {
        let mut fed = resumed();
        fed.transaction(200..300).unwrap();
        assert!(matches!(next(&mut fed), Err(Ended::OutOfOrder)));
    }
}
