//! Readers and a feed on threads of their own, over a store in memory.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Barrier, Mutex};

use config::{CacheMapping, MappingKind};
use mysql_wire::binlog::{Value, Zone};

use super::{Mail, Touched, Tracker, Tracking};
use crate::mapping::{ColumnShape, Mapping, MappingSet, TableShape, UniqueIndex};
use crate::store::{Found, MappingId, Mode, Store};

/// A mapping `name` of a table with one key column.
fn mapping(id: u32, name: &str, column_type: &str, collation: Option<&str>) -> Arc<Mapping> {
    let column = |ordinal, name: &str, column_type: &str, collation: Option<&str>| ColumnShape {
        name: name.into(),
        ordinal,
        nullable: false,
        column_type: column_type.into(),
        charset: collation.map(|_| "utf8mb4".into()),
        collation: collation.map(Into::into),
        unlogged: false,
        invisible: false,
        signs_zeros: false,
    };
    let shape = TableShape {
        schema: "shop".into(),
        table: name.into(),
        kind: "BASE TABLE".into(),
        engine: "InnoDB".into(),
        columns: vec![
            column(1, "id", column_type, collation),
            column(2, "v", "bigint", None),
        ],
        unique: vec![UniqueIndex {
            name: "PRIMARY".into(),
            columns: vec!["id".into()],
        }],
        cascade: None,
    };
    let config = CacheMapping::new(
        name,
        MappingKind::String,
        &format!("shop.{name}"),
        &["id"],
        &["v"],
    );
    Arc::new(Mapping::new(MappingId(id), &config, Some(&shape), Zone::UTC).unwrap())
}

fn key(mapping: &Mapping, value: Value<'static>) -> Vec<u8> {
    let mut key = Vec::new();
    let value = |_: usize| Ok::<_, Infallible>(value.clone());
    mapping.key_of(value, &mut key).unwrap();
    key
}

/// The client reads a key, which is its name and the text.
fn reads(tracker: &Tracker, mapping: &Mapping, text: &str) {
    let mut key = Vec::new();
    let decision = mapping.parse_key(text.as_bytes(), &mut key).unwrap();
    let text = format!("{}@{text}", mapping.name);
    tracker.reads(mapping, &key, decision, text.as_bytes());
}

fn told(tracker: &Tracker) -> String {
    match tracker.take_mail() {
        None => "nothing".to_owned(),
        Some(Mail::All) => "all".to_owned(),
        Some(Mail::Keys(keys)) => {
            let mut keys: Vec<_> = keys.iter().map(|key| String::from_utf8_lossy(key)).collect();
            keys.sort_unstable();
            keys.join(" ")
        }
    }
}

struct Fed {
    tracking: Arc<Tracking>,
    touched: Touched,
    numbers: Arc<Mapping>,
    names: Arc<Mapping>,
}

impl Fed {
    fn new(keys_max: u32) -> Self {
        let tracking = Tracking::new(keys_max);
        let numbers = mapping(1, "number", "int", None);
        let names = mapping(2, "name", "varchar(20)", Some("utf8mb4_general_ci"));
        let fed = Self {
            touched: Touched::new(Arc::clone(&tracking)),
            tracking,
            numbers,
            names,
        };
        fed.open(&[&fed.numbers, &fed.names]);
        fed
    }

    fn open(&self, mappings: &[&Arc<Mapping>]) {
        let mappings = mappings.iter().map(|&mapping| Arc::clone(mapping));
        self.tracking.set_open(&MappingSet::new(mappings, []));
    }

    fn client(&self) -> Tracker {
        self.tracking.begin(None)
    }

    fn change_number(&mut self, number: i64) {
        self.touched
            .note(self.numbers.id, &key(&self.numbers, Value::Int(number)));
    }

    fn change_name(&mut self, name: &'static str) {
        let key = key(&self.names, Value::Bytes(name.as_bytes().into()));
        self.touched.note(self.names.id, &key);
    }

    fn tell(&mut self) {
        self.touched.commit();
        self.touched.tell();
    }
}

#[test]
fn a_client_is_told_once_of_what_it_has_read() {
    let mut fed = Fed::new(1000);
    let (one, other) = (fed.client(), fed.client());
    reads(&one, &fed.numbers, "17");
    reads(&one, &fed.numbers, "18");
    reads(&other, &fed.numbers, "18");
    assert_eq!(fed.tracking.keys_count(), 3);
    fed.change_number(17);
    fed.change_number(18);
    fed.change_number(19);
    fed.tell();
    assert_eq!(
        (told(&one), told(&other)),
        ("number@17 number@18".into(), "number@18".into())
    );
    fed.change_number(17);
    fed.tell();
    assert_eq!((told(&one), fed.tracking.keys_count()), ("nothing".into(), 0));
}

#[test]
fn a_transaction_is_told_when_it_is_committed() {
    let mut fed = Fed::new(1000);
    let client = fed.client();
    reads(&client, &fed.numbers, "1");
    fed.change_number(1);
    fed.touched.tell();
    assert_eq!(told(&client), "nothing");
    fed.touched.rollback();
    fed.change_number(2);
    fed.tell();
    assert_eq!(told(&client), "nothing");
    fed.change_number(2);
    fed.touched.commit();
    fed.change_number(1);
    fed.touched.tell();
    assert_eq!(told(&client), "nothing");
    fed.tell();
    assert_eq!(told(&client), "number@1");
}

#[test]
fn a_client_that_begins_within_a_transaction_misses_nothing_of_it() {
    let mut fed = Fed::new(1000);
    fed.change_number(1);
    let client = fed.tracking.begin(None);
    reads(&client, &fed.numbers, "1");
    fed.touched.tell();
    fed.change_number(2);
    fed.tell();
    assert_eq!(told(&client), "all");
    // Nor when the feed has learned of it before, and the client went.
    fed.change_number(1);
    drop(client);
    fed.touched.tell();
    let client = fed.tracking.begin(None);
    reads(&client, &fed.numbers, "1");
    fed.tell();
    assert_eq!(told(&client), "all");
}

#[test]
fn what_cannot_be_remembered_is_told_at_once() {
    let mut fed = Fed::new(64);
    let client = fed.client();
    for number in 0..1000 {
        reads(&client, &fed.numbers, &number.to_string());
    }
    assert!(fed.tracking.keys_count() <= 64);
    let told_keys = told(&client).split(' ').count();
    assert_eq!(told_keys + fed.tracking.keys_count(), 1000);
    let closed = Arc::clone(&fed.numbers);
    fed.open(&[&fed.names]);
    assert_eq!((told(&client), fed.tracking.keys_count()), ("all".into(), 0));
    reads(&client, &closed, "5");
    assert_eq!(told(&client), "number@5");
    // More than one batch of changes may hold.
    reads(&client, &fed.names, "ada");
    for _ in 0..1_000_000 {
        fed.change_name("eve");
    }
    fed.tell();
    assert_eq!((told(&client), fed.tracking.keys_count()), ("all".into(), 0));
}

#[test]
fn nothing_is_remembered_when_nobody_tracks_any_more() {
    let mut fed = Fed::new(100_000);
    let client = fed.client();
    for number in 0..1000 {
        reads(&client, &fed.numbers, &number.to_string());
    }
    drop(client);
    for _ in 0..100 {
        fed.tell();
    }
    assert_eq!(fed.tracking.keys_count(), 0);
}

#[test]
fn texts_that_are_the_same_are_told_as_the_client_wrote_them() {
    let mut fed = Fed::new(1000);
    let client = fed.client();
    for text in ["Ada", "ADA", "ada ", "eve"] {
        reads(&client, &fed.names, text);
    }
    fed.change_name("aDa");
    fed.tell();
    assert_eq!(told(&client), "name@ADA name@Ada name@ada ");
    // Only the server knows what `Ä` is the same as.
    reads(&client, &fed.names, "Äda");
    fed.change_name("bob");
    fed.tell();
    assert_eq!(told(&client), "name@Äda");
    fed.change_name("évé");
    fed.tell();
    assert_eq!(told(&client), "name@eve");
    for text in 0..100 {
        let letters = |at: usize, letter: char| {
            if text >> at & 1 == 1 {
                letter.to_ascii_uppercase()
            } else {
                letter
            }
        };
        let text: String = "abcdefg"
            .chars()
            .enumerate()
            .map(|(at, letter)| letters(at, letter))
            .collect();
        reads(&client, &fed.names, &text);
    }
    assert!(fed.tracking.keys_count() <= 16, "{}", fed.tracking.keys_count());
    fed.change_name("ABCDEFG");
    fed.tell();
    assert_eq!(told(&client).split(' ').count(), 100);
}

#[test]
fn prefixes_are_told_of_keys_that_nobody_has_read() {
    let mut fed = Fed::new(1000);
    let prefixes = |prefixes: &[&str]| {
        let prefixes = prefixes.iter().map(|prefix| prefix.as_bytes().into());
        Some(prefixes.collect())
    };
    let all = fed.tracking.begin(prefixes(&[""]));
    let numbers = fed.tracking.begin(prefixes(&["number@1", "nobody"]));
    let names = fed.tracking.begin(prefixes(&["name@e"]));
    fed.touched.tell();
    fed.change_number(17);
    fed.change_number(-17);
    fed.tell();
    assert_eq!(told(&all), "number@-17 number@17");
    assert_eq!(
        (told(&numbers), told(&names)),
        ("number@17".into(), "nothing".into())
    );
    // A name has many texts.
    fed.change_name("Ada");
    fed.tell();
    assert_eq!(
        (told(&all), told(&numbers), told(&names)),
        ("all".into(), "nothing".into(), "all".into())
    );
}

/// Clients read and keep values while the feed changes them. Whenever all is quiet, what they keep is what
/// there is.
#[test]
fn nobody_keeps_an_old_value() {
    const CLIENTS: usize = 3;
    let tracking = Tracking::new(640);
    let numbers = mapping(1, "number", "int", None);
    tracking.set_open(&MappingSet::new([Arc::clone(&numbers)], []));
    let (store, mut writer) = Store::new(1 << 24);
    writer.open(numbers.id, Mode::Whole);
    writer.serve(numbers.id, true);
    let line = Barrier::new(CLIENTS + 1);
    let old = Mutex::new(Vec::new());
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut touched = Touched::new(Arc::clone(&tracking));
            let mut value = 0_u64;
            for _ in 0..ROUNDS {
                line.wait();
                for _ in 0..10 {
                    writer.begin();
                    for _ in 0..2 {
                        value += 1;
                        let key = key(&numbers, Value::Int((value * value % KEYS) as i64));
                        touched.note(numbers.id, &key);
                        writer.put(numbers.id, &key, &value.to_le_bytes()).unwrap();
                    }
                    writer.commit();
                    touched.commit();
                    touched.tell();
                }
                line.wait();
            }
        });
        for seed in 0..CLIENTS as u64 {
            let (tracking, numbers, store, line, old) = (&tracking, &numbers, &store, &line, &old);
            threads.spawn(move || {
                let mut keeper = Keeper::new(seed, tracking);
                for round in 0..ROUNDS {
                    // Now and then nobody tracks.
                    if keeper.below(3) == 0 {
                        keeper = Keeper::new(seed + round, tracking);
                    }
                    line.wait();
                    for _ in 0..keeper.below(20) {
                        keeper.read(numbers, store);
                    }
                    line.wait();
                    // A thread that fails here would have the others wait for ever.
                    old.lock().unwrap().extend(keeper.old(numbers, store));
                }
            });
        }
    });
    assert_eq!(old.into_inner().unwrap(), Vec::<String>::new());
}

const KEYS: u64 = 11;
const ROUNDS: u64 = 2000;

/// A client that keeps values.
struct Keeper {
    random: u64,
    tracker: Tracker,
    kept: HashMap<String, Vec<u8>>,
}

impl Keeper {
    fn new(seed: u64, tracking: &Arc<Tracking>) -> Self {
        Self {
            random: seed + 1,
            tracker: tracking.begin(None),
            kept: HashMap::new(),
        }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.random >> 33) % end
    }

    fn read(&mut self, numbers: &Mapping, store: &Store) {
        let text = self.below(KEYS).to_string();
        reads(&self.tracker, numbers, &text);
        let row = look(numbers, store, &text);
        self.kept.insert(format!("number@{text}"), row);
        // Behind the reply.
        self.forget();
    }

    fn forget(&mut self) {
        match self.tracker.take_mail() {
            None => {}
            Some(Mail::All) => self.kept.clear(),
            Some(Mail::Keys(keys)) => {
                for key in keys {
                    self.kept.remove(&*String::from_utf8_lossy(&key));
                }
            }
        }
    }

    /// A key of which it keeps what is not there any more.
    fn old(&mut self, numbers: &Mapping, store: &Store) -> Option<String> {
        self.forget();
        for (key, kept) in &self.kept {
            let row = look(numbers, store, &key["number@".len()..]);
            if *kept != row {
                return Some(key.clone());
            }
        }
        None
    }
}

/// The row of a key, empty where there is none.
fn look(numbers: &Mapping, store: &Store, text: &str) -> Vec<u8> {
    let (mut key, mut row) = (Vec::new(), Vec::new());
    numbers.parse_key(text.as_bytes(), &mut key).unwrap();
    loop {
        match store.get(numbers.id, &key, &mut row) {
            Found::Busy => std::thread::yield_now(),
            Found::Row => return row,
            _ => return Vec::new(),
        }
    }
}
