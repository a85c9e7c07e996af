use std::borrow::Cow;

use config::CacheMapping;
use mysql_wire::binlog::Zone;

use super::*;
use crate::coherence::{Place, Position};
use crate::feed::board::Phase;
use crate::feed::window::Window;
use crate::mapping::{ColumnShape, TableShape, UniqueIndex};
use crate::store::{Found, Store};

/// `shop.items (id INT PRIMARY KEY, v INT)` and `shop.other`, both served.
struct Fed {
    applier: Applier,
    store: Arc<Store>,
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
    }
}

fn shape(table: &str) -> TableShape {
    TableShape {
        schema: "shop".into(),
        table: table.into(),
        kind: "BASE TABLE".into(),
        engine: "InnoDB".into(),
        transactional: true,
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
        let (board, _fills) = Board::new(Progress::nowhere().applied(Version::default()));
        let tables = Tables::new(&config, writer, Arc::clone(&board));
        let mut fed = Self {
            applier: Applier::new(tables, board),
            store,
        };
        fed.serve(0);
        fed.serve(1);
        fed
    }

    /// The copy of a table comes to its end.
    fn serve(&mut self, at: usize) {
        let tables = &mut self.applier.tables;
        let config = &tables.all[at].config;
        let shape = shape(&config.name);
        let id = crate::store::MappingId(at as u32);
        let mapping = Mapping::new(id, config, Some(&shape), Zone::UTC).unwrap();
        tables.follow(at, Arc::new(mapping), Rc::new(RefCell::new(Window::default())));
        let here = Position {
            source: SourceId(1),
            place: Place::File { file: 1, offset: 4 },
        };
        tables.catch_up(at, here.clone());
        tables.serve(&here);
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
        let id = crate::store::MappingId(0);
        self.store.get(id, key, &mut Vec::new()) == Found::Row
    }

    fn reason(&self, at: usize) -> String {
        let states = self.applier.board.states();
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
        let before = fed.applier.board.definitions();
        fed.begin();
        fed.sql(sql);
        assert!(fed.applier.board.definitions() > before, "{sql}");
        assert_eq!(fed.served(), [true, true], "{sql}");
    }
}
