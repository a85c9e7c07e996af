use std::cell::Cell;
use std::collections::HashMap;

use config::{CacheMapping, MappingKind};
use dataplane::extension::{Parameters, Rights, Variable};
use mysql_wire::binlog::{Value, Zone};
use mysql_wire::{Capabilities, StatusFlags};
use sql_class::{Syntax, point_lookup};

use super::answer::tests::{END, EOF, NO_EOF, OK, definition, packets};
use super::*;
use crate::mapping::{ColumnShape, MappingSet, TableShape, UniqueIndex};
use crate::store::MappingId;

/// Rows by their encoded keys, and whatever the test wants.
struct Fake {
    mappings: Arc<MappingSet>,
    rows: RefCell<HashMap<Vec<u8>, Vec<u8>>>,
    definitions: Cell<u64>,
    is_fresh: Cell<bool>,
    /// Reads that have waited for nothing, and those that may have waited.
    noted: Cell<u32>,
    waited: Cell<u32>,
    /// What is found where there is no row.
    otherwise: Cell<Found>,
    /// Definitions change while the next row is looked for.
    changes: Cell<bool>,
}

impl Memory for Rc<Fake> {
    fn mappings(&self) -> Arc<MappingSet> {
        Arc::clone(&self.mappings)
    }

    fn definitions(&self) -> u64 {
        self.definitions.get()
    }

    fn gate(&self, _task: &Waker) -> Option<Box<dyn Gate>> {
        None
    }

    fn note(&self, _level: ReadConsistency) {
        self.noted.set(self.noted.get() + 1);
    }

    fn has(&self, _own: Option<&GtidSet>) -> bool {
        self.is_fresh.get()
    }

    async fn fresh(&self, _level: ReadConsistency, _own: Option<&GtidSet>) -> bool {
        self.waited.set(self.waited.get() + 1);
        self.is_fresh.get()
    }

    fn get(&self, _mapping: &Mapping, key: &[u8], row: &mut Vec<u8>) -> Found {
        if self.changes.take() {
            self.definitions.set(self.definitions.get() + 1);
        }
        match self.rows.borrow().get(key) {
            Some(found) => {
                row.clone_from(found);
                Found::Row
            }
            None => self.otherwise.get(),
        }
    }

    async fn fetch(&self, _mapping: &Arc<Mapping>, _key: &[u8], row: &mut Vec<u8>) -> Result<bool, ()> {
        *row = encoded(&[Value::Bytes(b"fetched"[..].into()), Value::Null]);
        Ok(true)
    }
}

fn encoded(values: &[Value<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    values.iter().for_each(|value| value.encode(&mut out));
    out
}

fn column(place: usize, name: &str, column_type: &str, collation: Option<&str>) -> ColumnShape {
    ColumnShape {
        name: name.into(),
        ordinal: place,
        nullable: false,
        column_type: column_type.into(),
        charset: collation.map(|_| "utf8mb4".into()),
        collation: collation.map(Box::from),
        unlogged: false,
        invisible: false,
        signs_zeros: false,
    }
}

/// `shop.t (id INT PRIMARY KEY, c VARCHAR(9), at TIMESTAMP, z INT)`, of which `c` and `at` are kept.
fn fake() -> Rc<Fake> {
    let shape = TableShape {
        schema: "shop".into(),
        table: "t".into(),
        kind: "BASE TABLE".into(),
        engine: "InnoDB".into(),
        columns: vec![
            column(1, "id", "int", None),
            column(2, "c", "varchar(9)", Some("utf8mb4_bin")),
            column(3, "at", "timestamp", None),
            column(4, "z", "int", None),
        ],
        unique: vec![UniqueIndex {
            name: "PRIMARY".into(),
            columns: vec!["id".into()],
        }],
        cascade: None,
    };
    let config = CacheMapping::new("m", MappingKind::Hash, "shop.t", &["id"], &["c", "at"]);
    let mapping = Mapping::new(MappingId(1), &config, Some(&shape), Zone::UTC).unwrap();
    let row = encoded(&[Value::Bytes(b"one"[..].into()), Value::Null]);
    Rc::new(Fake {
        mappings: Arc::new(MappingSet::new([Arc::new(mapping)], [])),
        rows: RefCell::new(HashMap::from([(encoded(&[Value::Int(1)]), row)])),
        definitions: Cell::new(1),
        is_fresh: Cell::new(true),
        noted: Cell::new(0),
        waited: Cell::new(0),
        otherwise: Cell::new(Found::Absent),
        changes: Cell::new(false),
    })
}

fn environment(lookups: &PointLookups<Rc<Fake>>, user: &str, capabilities: Capabilities) -> Environment {
    let variable = |name: &'static str, value: &'static str| Variable {
        name: name.as_bytes(),
        value: value.as_bytes(),
        is_set: false,
    };
    lookups.environment(&Surroundings {
        user: user.as_bytes(),
        account: 0,
        rights: Rights::Pooled,
        host: None,
        schema: Some(b"shop"),
        capabilities,
        collation: 255,
        status: StatusFlags::AUTOCOMMIT,
        variables: vec![
            variable("character_set_client", "utf8mb4"),
            variable("character_set_results", "utf8mb4"),
            variable("character_set_connection", "utf8mb4"),
            variable("sql_mode", ""),
        ],
    })
}

const ONE_INT: Parameters<'_> = Parameters {
    types: &[3, 0],
    nulls: &[0],
    values: &[1, 0, 0, 0],
};

fn find(
    lookups: &PointLookups<Rc<Fake>>,
    environment: Environment,
    text: &str,
    parameters: Option<Parameters<'_>>,
) -> (Finding, Vec<u8>) {
    let lookup = point_lookup(text.as_bytes(), Syntax::default()).unwrap();
    let asked = Asked {
        lookup: &lookup,
        text: text.as_bytes(),
        parameters,
    };
    let mut key = Vec::new();
    (lookups.find(environment, &asked, &mut key), key)
}

/// What becomes of a lookup, and the packets of its answer.
fn ask(
    lookups: &PointLookups<Rc<Fake>>,
    environment: Environment,
    text: &str,
    parameters: Option<Parameters<'_>>,
    level: ReadConsistency,
) -> Result<Vec<u8>, String> {
    let plan = match find(lookups, environment, text, parameters) {
        (Finding::Answer(plan), key) => (plan, key),
        (Finding::Learn(_), _) => return Err("learn".into()),
        (Finding::Left(reason), _) => return Err(format!("{reason:?}")),
        (Finding::Outdated, _) => return Err("outdated".into()),
    };
    let mut out = Vec::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let answered = runtime.block_on(lookups.answer(plan.0, &plan.1, level, None, false, &mut out));
    answered.map(|_| out).map_err(|reason| format!("{reason:?}"))
}

fn learn(
    lookups: &PointLookups<Rc<Fake>>,
    environment: Environment,
    text: &str,
    parameters: Option<Parameters<'_>>,
    answer: &[&[u8]],
) {
    match find(lookups, environment, text, parameters) {
        (Finding::Learn(lesson), _) => lookups.learn(lesson, &packets(answer)),
        (Finding::Left(reason), _) => panic!("{text}: {reason:?}"),
        (Finding::Answer(_) | Finding::Outdated, _) => panic!("{text}: known, or outdated"),
    }
}

const EVENTUAL: ReadConsistency = ReadConsistency::Eventual;
const STRONG: ReadConsistency = ReadConsistency::Strong;

fn c() -> Vec<u8> {
    definition("t", "c", 253, 0)
}

#[test]
fn an_answer_is_the_servers_but_for_the_row() {
    let lookups = PointLookups::new(fake());
    let text = |id: i32| format!("SELECT c FROM t WHERE id={id}");
    let app = environment(&lookups, "app", EOF);
    assert_eq!(ask(&lookups, app, &text(1), None, STRONG), Err("learn".into()));
    learn(&lookups, app, &text(1), None, &[&[1], &c(), END, b"\x03one", END]);
    let one = packets(&[&[1], &c(), END, b"\x03one", END]);
    assert_eq!(ask(&lookups, app, &text(1), None, STRONG), Ok(one));
    let none = packets(&[&[1], &c(), END, END]);
    assert_eq!(ask(&lookups, app, &text(-7), None, EVENTUAL), Ok(none));
    assert_eq!(
        ask(&lookups, app, "SELECT c FROM t WHERE id='1'", None, EVENTUAL),
        Err("Value".into())
    );
    assert_eq!(
        ask(&lookups, app, &text(1), Some(ONE_INT), EVENTUAL),
        Err("Value".into()),
        "no parameter"
    );
}

/// However many clients do not read them, no more is kept for each.
#[test]
fn long_rows_are_left_to_the_server_and_not_kept() {
    let memory = fake();
    let lookups = PointLookups::new(Rc::clone(&memory));
    let app = environment(&lookups, "app", EOF);
    let text = |id: i32| format!("SELECT c FROM t WHERE id={id}");
    learn(&lookups, app, &text(1), None, &[&[1], &c(), END, b"\x03one", END]);
    for (id, len) in [(2, ROW_MAX - 100), (3, 8 * ROW_MAX)] {
        let row = encoded(&[Value::Bytes(vec![b'x'; len].into()), Value::Null]);
        memory.rows.borrow_mut().insert(encoded(&[Value::Int(id)]), row);
    }
    assert!(ask(&lookups, app, &text(2), None, STRONG).is_ok());
    let answer = ask(&lookups, app, &text(3), None, STRONG);
    assert_eq!(answer.map(|answer| answer.len()), Err("Columns".into()));
    assert!(ask(&lookups, app, &text(1), None, STRONG).is_ok());
    assert!(lookups.row.borrow().capacity() <= 2 * ROW_MAX);
}

#[test]
fn prepared_statements_have_the_binary_protocol() {
    let lookups = PointLookups::new(fake());
    let app = environment(&lookups, "app", NO_EOF);
    let text = "SELECT id, c, id AS again FROM t WHERE id=?";
    let columns = [definition("t", "id", 3, 0), c(), definition("t", "id", 3, 0)];
    let row = [&[0, 0, 1, 0, 0, 0, 3][..], b"one", &[1, 0, 0, 0]].concat();
    let answer: [&[u8]; 6] = [&[3], &columns[0], &columns[1], &columns[2], &row, OK];
    learn(&lookups, app, text, Some(ONE_INT), &answer);
    assert_eq!(
        ask(&lookups, app, text, Some(ONE_INT), STRONG),
        Ok(packets(&answer))
    );
    let null = Parameters {
        nulls: &[1],
        values: &[],
        ..ONE_INT
    };
    assert_eq!(ask(&lookups, app, text, Some(null), STRONG), Err("Value".into()));
}

#[test]
fn nobody_has_the_right_of_another() {
    let lookups = PointLookups::new(fake());
    let text = "SELECT c FROM t WHERE id=1";
    let (app, other) = (
        environment(&lookups, "app", EOF),
        environment(&lookups, "other", EOF),
    );
    learn(&lookups, app, text, None, &[&[1], &c(), END, b"\x03one", END]);
    assert!(ask(&lookups, app, text, None, STRONG).is_ok());
    assert_eq!(ask(&lookups, other, text, None, STRONG), Err("learn".into()));
    learn(
        &lookups,
        other,
        text,
        None,
        &[b"\xff\x76\x04#42000SELECT command denied"],
    );
    assert_eq!(ask(&lookups, other, text, None, STRONG), Err("learn".into()));
}

#[test]
fn a_change_of_definitions_or_grants_has_everything_learned_anew() {
    let memory = fake();
    let lookups = PointLookups::new(Rc::clone(&memory));
    let text = "SELECT c FROM t WHERE id=1";
    let answer: [&[u8]; 5] = [&[1], &c(), END, b"\x03one", END];
    let app = environment(&lookups, "app", EOF);
    // The statement is under way when the change comes.
    let (Finding::Learn(lesson), _) = find(&lookups, app, text, None) else {
        panic!("not to be learned")
    };
    memory.definitions.set(2);
    lookups.learn(lesson, &packets(&answer));
    assert_eq!(ask(&lookups, app, text, None, STRONG), Err("outdated".into()));
    let app = environment(&lookups, "app", EOF);
    assert_eq!(
        ask(&lookups, app, text, None, STRONG),
        Err("Learned".into()),
        "just now"
    );
    let lookups = PointLookups::new(Rc::clone(&memory));
    let app = environment(&lookups, "app", EOF);
    learn(&lookups, app, text, None, &answer);
    // It comes between the question and the answer.
    let (Finding::Answer(plan), key) = find(&lookups, app, text, None) else {
        panic!("not learned")
    };
    memory.definitions.set(3);
    let mut out = Vec::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let answered = runtime.block_on(lookups.answer(plan, &key, STRONG, None, false, &mut out));
    assert_eq!(answered, Err(Left::Learned));
}

/// A grant is taken away while a row is looked for, which may have come after that.
#[test]
fn a_row_that_came_after_a_change_of_grants_is_not_shown() {
    let memory = fake();
    let lookups = PointLookups::new(Rc::clone(&memory));
    let text = "SELECT c FROM t WHERE id=1";
    let app = environment(&lookups, "app", EOF);
    learn(&lookups, app, text, None, &[&[1], &c(), END, b"\x03one", END]);
    assert!(ask(&lookups, app, text, None, EVENTUAL).is_ok());
    memory.changes.set(true);
    assert_eq!(ask(&lookups, app, text, None, EVENTUAL), Err("Learned".into()));
}

#[test]
fn time_has_everything_learned_anew() {
    let lookups = PointLookups::new(fake());
    let text = "SELECT c FROM t WHERE id=1";
    let app = environment(&lookups, "app", EOF);
    learn(&lookups, app, text, None, &[&[1], &c(), END, b"\x03one", END]);
    lookups.learned.borrow_mut().next_epoch();
    assert!(ask(&lookups, app, text, None, STRONG).is_ok());
    lookups.learned.borrow_mut().next_epoch();
    assert_eq!(ask(&lookups, app, text, None, STRONG), Err("learn".into()));
}

#[test]
fn what_memory_would_show_otherwise_is_never_answered() {
    let lookups = PointLookups::new(fake());
    let text = "SELECT c FROM t WHERE id=1";
    let app = environment(&lookups, "app", EOF);
    for row in [&b"\x03two"[..], b"\xfb"] {
        learn(&lookups, app, text, None, &[&[1], &c(), END, row, END]);
    }
    learn(&lookups, app, text, None, &[&[1], &c(), END, END]);
    assert_eq!(ask(&lookups, app, text, None, STRONG), Err("learn".into()));
}

#[test]
fn what_memory_shows_later_is_answered_then() {
    let memory = fake();
    let lookups = PointLookups::new(Rc::clone(&memory));
    let app = environment(&lookups, "app", EOF);
    let text = "SELECT c FROM t WHERE id=1";
    let comes = |value: &'static [u8]| {
        let row = encoded(&[Value::Bytes(value.into()), Value::Null]);
        memory.rows.borrow_mut().insert(encoded(&[Value::Int(1)]), row);
    };
    for row in [&b"\x03two"[..], b"\x05three", b"\x04four"] {
        learn(&lookups, app, text, None, &[&[1], &c(), END, row, END]);
    }
    comes(b"other");
    assert_eq!(ask(&lookups, app, text, None, STRONG), Err("learn".into()));
    comes(b"three");
    let other = environment(&lookups, "other", EOF);
    assert_eq!(ask(&lookups, other, text, None, STRONG), Err("learn".into()));
    let three = packets(&[&[1], &c(), END, b"\x05three", END]);
    assert_eq!(ask(&lookups, app, text, None, STRONG), Ok(three));
    // And by rows of other keys, too.
    let two = "SELECT c FROM t WHERE id=2";
    assert_eq!(
        ask(&lookups, app, two, None, STRONG),
        Ok(packets(&[&[1], &c(), END, END]))
    );
}

#[test]
fn what_was_shown_before_a_change_of_definitions_counts_no_more() {
    let memory = fake();
    let lookups = PointLookups::new(Rc::clone(&memory));
    let app = environment(&lookups, "app", EOF);
    let text = "SELECT c FROM t WHERE id=1";
    learn(&lookups, app, text, None, &[&[1], &c(), END, b"\x03two", END]);
    memory.definitions.set(2);
    let row = encoded(&[Value::Bytes(b"two"[..].into()), Value::Null]);
    memory.rows.borrow_mut().insert(encoded(&[Value::Int(1)]), row);
    let app = environment(&lookups, "app", EOF);
    assert!(ask(&lookups, app, text, None, STRONG).is_err());
}

#[test]
fn executions_are_answered_without_their_text() {
    let memory = fake();
    let lookups = PointLookups::new(Rc::clone(&memory));
    let app = environment(&lookups, "app", NO_EOF);
    let text = "SELECT c FROM t WHERE id=?";
    let row = [&[0, 0, 3][..], b"one"].concat();
    let answer: [&[u8]; 4] = [&[1], &c(), &row, OK];
    learn(&lookups, app, text, Some(ONE_INT), &answer);
    let (Finding::Answer(plan), _) = find(&lookups, app, text, Some(ONE_INT)) else {
        panic!("not known");
    };
    let mut key = Vec::new();
    let again = |parameters: &Parameters<'_>, key: &mut Vec<u8>| {
        matches!(
            lookups.find_again(&plan, parameters, key),
            Some(Finding::Answer(_))
        )
    };
    assert!(again(&ONE_INT, &mut key));
    let mut out = Vec::new();
    let now = |level, key: &[u8], out: &mut Vec<u8>| lookups.answer_now(&plan, key, level, None, false, out);
    assert!(
        now(STRONG, &key, &mut out).is_none(),
        "the primary is to be asked"
    );
    assert!(matches!(now(EVENTUAL, &key, &mut out), Some(Ok(_))));
    assert_eq!(out, packets(&answer));
    let nothing = Parameters {
        nulls: &[1],
        values: &[],
        ..ONE_INT
    };
    assert!(!again(&nothing, &mut key));
    memory.definitions.set(2);
    assert!(lookups.find_again(&plan, &ONE_INT, &mut key).is_none());
    memory.definitions.set(1);
    lookups.learned.borrow_mut().next_epoch();
    assert!(again(&ONE_INT, &mut key));
    lookups.learned.borrow_mut().next_epoch();
    assert!(lookups.find_again(&plan, &ONE_INT, &mut key).is_none());
}

#[test]
fn columns_that_are_not_the_mappings_are_the_servers() {
    let lookups = PointLookups::new(fake());
    let app = environment(&lookups, "app", EOF);
    let cases = [
        (
            "SELECT z FROM t WHERE id=1",
            definition("t", "z", 3, 0),
            "not kept",
        ),
        (
            "SELECT y FROM t WHERE id=1",
            definition("u", "c", 253, 0),
            "another table",
        ),
        (
            "SELECT c FROM t WHERE id=1",
            definition("t", "c", 252, 0),
            "another type",
        ),
        (
            "SELECT d FROM t WHERE id=1",
            definition("t", "", 253, 0),
            "no column",
        ),
        (
            "SELECT at FROM t WHERE id=1",
            definition("t", "at", 7, 0),
            "the zone is not known",
        ),
        (
            "SELECT id FROM t WHERE id=1",
            definition("t", "id", 3, 0x20),
            "another sign",
        ),
    ];
    for (text, column, why) in cases {
        learn(&lookups, app, text, None, &[&[1], &column, END, END]);
        assert_eq!(
            ask(&lookups, app, text, None, STRONG),
            Err("Columns".into()),
            "{why}"
        );
    }
}

#[test]
fn what_memory_does_not_have_for_certain_is_not_answered() {
    let memory = fake();
    let lookups = PointLookups::new(Rc::clone(&memory));
    let text = "SELECT c FROM t WHERE id=1";
    let app = environment(&lookups, "app", EOF);
    learn(&lookups, app, text, None, &[&[1], &c(), END, b"\x03one", END]);
    memory.is_fresh.set(false);
    assert_eq!(ask(&lookups, app, text, None, STRONG), Err("NotFresh".into()));
    assert!(ask(&lookups, app, text, None, EVENTUAL).is_ok());
    let other = "SELECT c FROM t WHERE id=2";
    memory.otherwise.set(Found::Closed);
    assert_eq!(ask(&lookups, app, other, None, EVENTUAL), Err("NotServed".into()));
    memory.otherwise.set(Found::Busy);
    assert_eq!(ask(&lookups, app, other, None, EVENTUAL), Err("NotServed".into()));
    memory.otherwise.set(Found::Missing);
    let fetched = packets(&[&[1], &c(), END, b"\x07fetched", END]);
    assert_eq!(ask(&lookups, app, other, None, EVENTUAL), Ok(fetched));
}

#[test]
fn each_lookup_waits_and_counts_once() {
    let memory = fake();
    let lookups = PointLookups::new(Rc::clone(&memory));
    let (text, app) = ("SELECT c FROM t WHERE id=2", environment(&lookups, "app", EOF));
    learn(&lookups, app, text, None, &[&[1], &c(), END, END]);
    let (Finding::Answer(plan), key) = find(&lookups, app, text, None) else {
        panic!("not known");
    };
    memory.otherwise.set(Found::Missing);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    // What a gate has said, or memory itself, still holds while the row is fetched.
    for (level, is_fresh, expected) in [
        (STRONG, true, (1, 0)),
        (STRONG, false, (0, 1)),
        (ReadConsistency::Session, false, (1, 0)),
        (EVENTUAL, false, (1, 0)),
    ] {
        let _ = (memory.noted.take(), memory.waited.take());
        let mut out = Vec::new();
        assert_eq!(
            lookups.answer_now(&plan, &key, level, None, is_fresh, &mut out),
            None
        );
        let answer = lookups.answer(plan.clone(), &key, level, None, is_fresh, &mut out);
        assert!(runtime.block_on(answer).is_ok());
        assert_eq!(
            (memory.noted.get(), memory.waited.get()),
            expected,
            "{level:?} {is_fresh}"
        );
    }
}

#[test]
fn other_statements_are_left_alone() {
    let lookups = PointLookups::new(fake());
    let app = environment(&lookups, "app", EOF);
    for (text, why) in [
        ("SELECT c FROM u WHERE id=1", "NotMapped"),
        ("SELECT c FROM other.t WHERE id=1", "NotMapped"),
        ("SELECT c FROM t WHERE z=1", "NotMapped"),
        ("SELECT c FROM t WHERE id=1 AND id=1", "NotMapped"),
        ("SELECT c FROM t WHERE id=1 AND z=1", "NotMapped"),
        ("SELECT c FROM t WHERE id=4294967296", "Value"),
    ] {
        assert_eq!(ask(&lookups, app, text, None, STRONG), Err(why.into()), "{text}");
    }
}
