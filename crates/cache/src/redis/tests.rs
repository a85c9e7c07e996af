//! The commands that read, over a store in memory.

use std::convert::Infallible;
use std::sync::Arc;

use config::{CacheMapping, MappingKind};
use mysql_wire::binlog::{Value, Zone};
use proptest::prelude::*;
use resp_wire::{Limits, ParseStep, Parser, Version, Writer};

use super::command::Command;
use super::reads;
use super::refusal::Refusal;
use super::rights::Known;
use super::rows::{Rows, Source, Space, Stop};
use crate::mapping::{ColumnShape, Mapping, MappingSet, TableShape, UniqueIndex};
use crate::store::{MappingId, Mode, Store, Writer as StoreWriter};

/// `words`: a string by `id`. `items`: a hash by `(shop, code)`.
struct Stage {
    store: Arc<Store>,
    writer: StoreWriter,
    words: Arc<Mapping>,
    items: Arc<Mapping>,
    mappings: MappingSet,
    rights: Known,
    space: Space,
    version: Version,
}

fn shape(table: &str, columns: &[(&str, &str)], key: &[&str]) -> TableShape {
    let column = |(place, (name, column_type)): (usize, &(&str, &str))| ColumnShape {
        name: (*name).into(),
        ordinal: place + 1,
        nullable: !key.contains(name),
        column_type: (*column_type).into(),
        charset: column_type.starts_with("varchar").then(|| "utf8mb4".into()),
        collation: column_type.starts_with("varchar").then(|| "utf8mb4_bin".into()),
        unlogged: false,
        invisible: false,
        signs_zeros: false,
    };
    TableShape {
        schema: "shop".into(),
        table: table.into(),
        kind: "BASE TABLE".into(),
        engine: "InnoDB".into(),
        columns: columns.iter().enumerate().map(column).collect(),
        unique: vec![UniqueIndex {
            name: "PRIMARY".into(),
            columns: key.iter().map(|&name| name.into()).collect(),
        }],
        cascade: None,
    }
}

fn words(id: u32) -> Arc<Mapping> {
    let config = CacheMapping::new("words", MappingKind::String, "shop.words", &["id"], &["word"]);
    let shape = shape("words", &[("id", "int"), ("word", "varchar(100)")], &["id"]);
    Arc::new(Mapping::new(MappingId(id), &config, Some(&shape), Zone::UTC).unwrap())
}

fn items(id: u32) -> Arc<Mapping> {
    let (key, value) = (["shop", "code"], ["name", "price"]);
    let config = CacheMapping::new("items", MappingKind::Hash, "shop.items", &key, &value);
    let columns = [
        ("shop", "int"),
        ("code", "varchar(20)"),
        ("name", "varchar(100)"),
        ("price", "int"),
    ];
    let shape = shape("items", &columns, &key);
    Arc::new(Mapping::new(MappingId(id), &config, Some(&shape), Zone::UTC).unwrap())
}

/// What the two of a stage are in, with a third that is not served yet.
fn set(words: &Arc<Mapping>, items: &Arc<Mapping>) -> MappingSet {
    let unready = [
        ("later".into(), "copying, 43 %".into()),
        (
            "gone".into(),
            "stopped: mapping gone: table shop.gone: there is no such table".into(),
        ),
    ];
    MappingSet::new([Arc::clone(words), Arc::clone(items)], unready)
}

impl Stage {
    fn new(mode: Mode) -> Self {
        let (words, items) = (words(7), items(8));
        let mappings = set(&words, &items);
        let (store, mut writer) = Store::new(1 << 30);
        let mut rights = Known::default();
        for mapping in [&words, &items] {
            writer.open(mapping.id, mode);
            writer.serve(mapping.id, true);
            rights.grant(mapping);
        }
        Self {
            store,
            writer,
            words,
            items,
            mappings,
            rights,
            space: Space::default(),
            version: Version::V2,
        }
    }

    /// With two words, one of them NULL, and one item without a price.
    fn filled() -> Self {
        let mut stage = Self::new(Mode::Whole);
        stage.put(&Arc::clone(&stage.words), &[Value::Int(1), text("héllo")]);
        stage.put(&Arc::clone(&stage.words), &[Value::Int(2), Value::Null]);
        stage.put(
            &Arc::clone(&stage.items),
            &[Value::Int(-7), text("a:b"), text("bolt"), Value::Null],
        );
        stage
    }

    /// A mapping is copied again, and has no rows at first.
    fn replace(&mut self, mapping: &Arc<Mapping>) {
        let place = match mapping.kind {
            MappingKind::String => &mut self.words,
            MappingKind::Hash => &mut self.items,
        };
        let old = std::mem::replace(place, Arc::clone(mapping));
        self.writer.close(old.id);
        self.writer.open(mapping.id, Mode::Whole);
        self.writer.serve(mapping.id, true);
        self.rights.grant(mapping);
        self.mappings = set(&self.words, &self.items);
    }

    fn put(&mut self, mapping: &Mapping, values: &[Value<'static>]) {
        let value = |at: usize| Ok::<_, Infallible>(values[at].clone());
        let (mut key, mut row) = (Vec::new(), Vec::new());
        mapping.key_of(value, &mut key).unwrap();
        mapping.row_of(value, &mut row).unwrap();
        self.writer.begin();
        self.writer.put(mapping.id, &key, &row).unwrap();
        self.writer.commit();
    }

    fn remove(&mut self, mapping: &Mapping, id: i64) {
        let mut key = Vec::new();
        mapping
            .key_of(|_| Ok::<_, Infallible>(Value::Int(id)), &mut key)
            .unwrap();
        self.writer.begin();
        self.writer.remove(mapping.id, &key).unwrap();
        self.writer.commit();
    }

    fn read(&mut self, request: &str, source: Source<'_>) -> Result<String, Stop> {
        self.read_often(request, source, 1)
    }

    /// So many times for one request, as EXEC does.
    fn read_often(&mut self, request: &str, source: Source<'_>, times: usize) -> Result<String, Stop> {
        let mut parser = Parser::default();
        let line = format!("{request}\n");
        assert!(matches!(
            parser.parse(line.as_bytes(), &Limits::LOGGED_IN),
            Ok(ParseStep::Request(_))
        ));
        let args = parser.args(line.as_bytes());
        let command = Command::find(args.get(0).unwrap()).unwrap();
        assert!(command.spec().takes(args.len()), "{request}");
        let mut out = Vec::new();
        self.space.begin();
        let mut rows = Rows {
            mappings: &self.mappings,
            store: &self.store,
            zone: Zone::UTC,
            source,
            rights: &self.rights,
            tracker: None,
            space: &mut self.space,
        };
        for _ in 0..times {
            reads::read(command, args, &mut rows, &mut Writer::new(&mut out, self.version))?;
        }
        Ok(String::from_utf8(out)
            .unwrap()
            .replace("\r\n", " ")
            .trim_end()
            .to_owned())
    }

    /// The reply, with blanks for line ends; or the error.
    fn ask(&mut self, request: &str) -> String {
        match self.read(request, Source::Store) {
            Ok(reply) => reply,
            Err(Stop::Refused(refusal)) => refusal.to_string(),
            Err(other) => format!("{other:?}"),
        }
    }

    #[track_caller]
    fn expect(&mut self, cases: &[(&str, &str)]) {
        for (request, reply) in cases {
            assert_eq!(self.ask(request), *reply, "{request}");
        }
    }
}

pub(super) fn mapping() -> Arc<Mapping> {
    Stage::new(Mode::Whole).words
}

fn text(text: &str) -> Value<'static> {
    Value::Bytes(text.as_bytes().to_vec().into())
}

#[test]
fn strings_are_read_by_their_keys() {
    Stage::filled().expect(&[
        ("GET words@1", "$6 héllo"),
        ("GET words@2", "$-1"),
        ("GET words@3", "$-1"),
        ("GET words@x", "$-1"),
        ("MGET words@1 words@3 'items@-7:a\\:b'", "*3 $6 héllo $-1 $-1"),
        ("STRLEN words@1", ":6"),
        ("STRLEN words@3", ":0"),
        ("GETRANGE words@1 -3 -1", "$3 llo"),
        ("GETRANGE words@1 0 0", "$1 h"),
        ("GETRANGE words@1 4 100", "$2 lo"),
        ("GETRANGE words@1 4 3", "$0"),
        ("GETRANGE words@1 -100 -100", "$1 h"),
        ("GETRANGE words@1 -2 -3", "$0"),
        (
            "GETRANGE words@1 a 3",
            "ERR value is not an integer or out of range",
        ),
    ]);
}

#[test]
fn hashes_are_read_by_their_columns_and_null_is_no_field() {
    Stage::filled().expect(&[
        ("HGET 'items@-7:a\\:b' name", "$4 bolt"),
        ("HGET 'items@-7:a\\:b' NAME", "$4 bolt"),
        ("HGET 'items@-7:a\\:b' price", "$-1"),
        ("HGET 'items@-7:a\\:b' nothing", "$-1"),
        ("HGET items@1:a name", "$-1"),
        ("HMGET 'items@-7:a\\:b' price name", "*2 $-1 $4 bolt"),
        ("HGETALL 'items@-7:a\\:b'", "*2 $4 name $4 bolt"),
        ("HGETALL items@1:a", "*0"),
        ("HKEYS 'items@-7:a\\:b'", "*1 $4 name"),
        ("HVALS 'items@-7:a\\:b'", "*1 $4 bolt"),
        ("HLEN 'items@-7:a\\:b'", ":1"),
        ("HEXISTS 'items@-7:a\\:b' name", ":1"),
        ("HEXISTS 'items@-7:a\\:b' price", ":0"),
        ("HSTRLEN 'items@-7:a\\:b' name", ":4"),
        ("HSTRLEN 'items@-7:a\\:b' price", ":0"),
        ("HSCAN 'items@-7:a\\:b' 0", "*2 $1 0 *2 $4 name $4 bolt"),
        ("HSCAN 'items@-7:a\\:b' 0 MATCH x* COUNT 5", "*2 $1 0 *0"),
        ("HSCAN 'items@-7:a\\:b' 0 NOVALUES", "*2 $1 0 *1 $4 name"),
    ]);
}

#[test]
fn kinds_do_not_mix_and_what_does_not_exist_has_no_kind() {
    let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
    Stage::filled().expect(&[
        ("GET 'items@-7:a\\:b'", wrong),
        ("STRLEN 'items@-7:a\\:b'", wrong),
        ("HGET words@1 word", wrong),
        ("HGETALL words@1", wrong),
        ("HGETALL words@3", "*0"),
        ("TYPE words@1", "+string"),
        ("TYPE words@2", "+none"),
        ("TYPE 'items@-7:a\\:b'", "+hash"),
        ("TTL words@1", ":-1"),
        ("PTTL words@3", ":-2"),
        ("EXISTS words@1 words@1 words@2 words@3", ":2"),
        ("OBJECT ENCODING words@1", "$3 raw"),
        ("OBJECT ENCODING words@3", "$-1"),
        ("MEMORY USAGE words@3", "$-1"),
    ]);
}

#[test]
fn a_key_that_names_no_mapping_is_an_error_that_says_what_to_do() {
    Stage::filled().expect(&[
        (
            "GET word",
            "ERR key 'word' names no mapping: keys are mapping@key. `INFO mappings` lists the mappings",
        ),
        ("GET wort@1", "ERR no mapping 'wort': `INFO mappings` lists the mappings"),
        ("GET later@1", "LOADING mapping 'later' is not served yet: copying, 43 %"),
        (
            "GET gone@1",
            "ERR mapping 'gone' is not served: stopped: mapping gone: table shop.gone: there is no such table",
        ),
        (
            "HGETALL items@1",
            "ERR key 'items@1': the key has 1 parts, and the mapping has 2 key columns, whose values are joined with ':'",
        ),
    ]);
}

#[test]
fn a_reply_has_a_bound() {
    let mut stage = Stage::new(Mode::Whole);
    let long = Value::Bytes(vec![b'x'; 1 << 20].into());
    stage.put(&Arc::clone(&stage.words), &[Value::Int(1), long]);
    let mget = |count| format!("MGET{}", " words@1".repeat(count));
    assert_eq!(
        stage.ask(&mget(64)),
        "ERR reply of more than 67108864 bytes: ask for fewer keys at once"
    );
    assert!(stage.ask(&mget(60)).len() > 60 << 20);
}

/// A stage with so many words of so many bytes.
fn long(count: i64, bytes: usize) -> Stage {
    let mut stage = Stage::new(Mode::Whole);
    for id in 1..=count {
        let long = Value::Bytes(vec![b'x'; bytes].into());
        stage.put(&Arc::clone(&stage.words), &[Value::Int(id), long]);
    }
    stage
}

#[test]
fn what_is_read_for_one_request_has_a_bound_also_where_little_is_shown() {
    let mut stage = long(1, 1 << 20);
    let exists = |count| format!("EXISTS{}", " words@1".repeat(count));
    assert_eq!(stage.ask(&exists(64)), ":64");
    assert_eq!(
        stage.ask(&exists(70)),
        "ERR more than 67108864 bytes of rows for one request: ask for fewer keys at once"
    );
}

#[test]
fn a_scan_of_long_rows_ends_early_and_goes_on() {
    let mut stage = long(100, 1 << 18);
    let (keys, calls) = scan(&mut stage, "COUNT 10000");
    assert_eq!(keys.len(), 100);
    assert!((4..20).contains(&calls), "{calls}");
}

#[test]
fn resp3_has_maps_and_nulls() {
    let mut stage = Stage::filled();
    stage.version = Version::V3;
    stage.expect(&[
        ("HGETALL 'items@-7:a\\:b'", "%1 $4 name $4 bolt"),
        ("GET words@3", "_"),
        ("HGETALL items@1:a", "%0"),
    ]);
}

#[test]
fn a_mapping_that_is_closed_is_loading_and_one_without_rights_is_asked_for() {
    let mut stage = Stage::filled();
    stage.writer.serve(stage.words.id, false);
    assert_eq!(
        stage.ask("GET words@1"),
        "LOADING mapping 'words' is not served yet: the mapping is not served now"
    );
    stage.rights = Known::default();
    assert!(
        matches!(stage.read("GET items@1:a", Source::Store), Err(Stop::Right(mapping)) if mapping.id == stage.items.id)
    );
    assert!(matches!(stage.read("DBSIZE", Source::Store), Err(Stop::Right(_))));
}

#[test]
fn what_memory_does_not_know_is_asked_for_in_the_order_of_the_request() {
    let mut stage = Stage::new(Mode::Bounded);
    assert!(matches!(stage.read("GET words@1", Source::Store), Err(Stop::Ask)));
    let row = |word: &str| {
        let mut row = Vec::new();
        text(word).encode(&mut row);
        Some(row)
    };
    let fetched = vec![row("one"), None, row("three")];
    let source = Source::Fetched(fetched.into_iter());
    let reply = stage.read("MGET words@1 words@x words@2 words@3", source);
    assert_eq!(reply.unwrap(), "*4 $3 one $-1 $-1 $5 three");
    // What was not asked for is not said to be absent.
    let source = Source::Fetched(vec![row("one")].into_iter());
    let reply = stage.read("MGET words@1 words@2", source);
    assert!(matches!(reply, Err(Stop::Ask)), "{reply:?}");
}

#[test]
fn a_name_that_may_become_that_of_a_mapping_is_no_error_of_the_client() {
    let mut stage = Stage::filled();
    let unread = "forebay.hash_containers has not been read yet";
    stage.mappings = set(&stage.words, &stage.items).with_unread(Some(unread.into()));
    stage.expect(&[
        (
            "GET wort@1",
            "LOADING mapping 'wort' is not served yet: forebay.hash_containers has not been read yet",
        ),
        (
            "GET later@1",
            "LOADING mapping 'later' is not served yet: copying, 43 %",
        ),
        ("GET words@1", "$6 héllo"),
    ]);
}

/// All keys of a scan and how many calls it took.
fn scan(stage: &mut Stage, options: &str) -> (Vec<String>, usize) {
    scan_meanwhile(stage, options, |_, _| ())
}

/// The same while something is done after each call.
fn scan_meanwhile(
    stage: &mut Stage,
    options: &str,
    mut meanwhile: impl FnMut(&mut Stage, usize),
) -> (Vec<String>, usize) {
    let (mut keys, mut cursor, mut calls) = (Vec::new(), "0".to_owned(), 0);
    loop {
        let reply = stage.ask(&format!("SCAN {cursor} {options}"));
        let mut parts = reply.split(' ');
        cursor = parts.nth(2).unwrap().to_owned();
        keys.extend(parts.skip(1).skip(1).step_by(2).map(str::to_owned));
        calls += 1;
        assert!(
            cursor.parse::<u64>().unwrap() < 1 << 53 && calls < 10_000,
            "{reply}"
        );
        if cursor == "0" {
            keys.sort_unstable();
            return (keys, calls);
        }
        meanwhile(stage, calls);
    }
}

#[test]
fn a_scan_goes_through_all_mappings() {
    let mut stage = Stage::filled();
    for id in 10..35 {
        stage.put(&Arc::clone(&stage.words), &[Value::Int(id), text("x")]);
    }
    let (keys, calls) = scan(&mut stage, "COUNT 10");
    assert_eq!((keys.len(), keys[0].as_str()), (27, "items@-7:a\\:b"));
    assert!((3..=5).contains(&calls), "{calls}");
    assert_eq!(scan(&mut stage, "TYPE hash").0, ["items@-7:a\\:b"]);
    assert_eq!(scan(&mut stage, "MATCH words@1?").0.len(), 10);
    assert_eq!(scan(&mut stage, "MATCH *@-7*").0, ["items@-7:a\\:b"]);
    assert_eq!(scan(&mut stage, "MATCH nothing*").0, Vec::<String>::new());
    stage.expect(&[
        ("DBSIZE", ":28"),
        ("SCAN x", "ERR invalid cursor"),
        ("SCAN 0 COUNT 0", "ERR syntax error"),
        ("SCAN 0 MATCH", "ERR syntax error"),
        (
            &format!("SCAN 0 MATCH {}", "*".repeat(5000)),
            "ERR pattern of more than 4096 bytes",
        ),
    ]);
}

#[test]
fn a_scan_leaves_nothing_out_when_mappings_are_copied_again() {
    let fill = |stage: &mut Stage, which: &str| {
        for id in 0..20 {
            let (words, items) = (Arc::clone(&stage.words), Arc::clone(&stage.items));
            match which {
                "words" => stage.put(&words, &[Value::Int(id), text("x")]),
                _ => stage.put(&items, &[Value::Int(id), text("a"), text("x"), Value::Null]),
            }
        }
    };
    for (when, which) in (1..20).flat_map(|when| [(when, "words"), (when, "items")]) {
        // Ids only rise, but their slots begin anew.
        for id in [9, MappingId::SLOTS + 3] {
            let mut stage = Stage::new(Mode::Whole);
            fill(&mut stage, "words");
            fill(&mut stage, "items");
            let (mut keys, _) = scan_meanwhile(&mut stage, "COUNT 3", |stage, calls| {
                if calls == when {
                    let copied = if which == "words" { words(id) } else { items(id) };
                    stage.replace(&copied);
                    fill(stage, which);
                }
            });
            keys.dedup();
            assert_eq!(keys.len(), 40, "{which} copied after {when} calls, with id {id}");
        }
    }
}

#[test]
fn a_random_key_is_one_that_is_there() {
    let mut stage = Stage::filled();
    for _ in 0..50 {
        let key = stage.ask("RANDOMKEY");
        assert!(
            ["$7 words@1", "$7 words@2", "$13 items@-7:a\\:b"].contains(&&*key),
            "{key}"
        );
    }
    assert_eq!(Stage::new(Mode::Whole).ask("RANDOMKEY"), "$-1");
}

#[test]
fn looking_for_random_keys_among_rows_that_are_gone_has_a_bound() {
    let mut stage = Stage::new(Mode::Whole);
    let words = Arc::clone(&stage.words);
    (0..40_000).for_each(|id| stage.put(&words, &[Value::Int(id), text("x")]));
    let read = |stage: &mut Stage, times| stage.read_often("RANDOMKEY", Source::Store, times);
    assert!(read(&mut stage, 5000).is_ok(), "as many as with Redis");
    (1..40_000).for_each(|id| stage.remove(&words, id));
    assert_eq!(read(&mut stage, 2).unwrap(), "$7 words@0 $7 words@0");
    let refused = read(&mut stage, 1000).unwrap_err();
    assert!(
        matches!(refused, Stop::Refused(Refusal::TooMuchRead(_))),
        "{refused:?}"
    );
    stage.remove(&words, 0);
    assert_eq!(stage.ask("RANDOMKEY"), "$-1");
    assert!(read(&mut stage, 5000).is_ok());
}

proptest! {
    #[test]
    fn parts_of_strings_are_those_of_redis(start in -12_i64..12, end in -12_i64..12) {
        let mut stage = Stage::new(Mode::Whole);
        stage.put(&Arc::clone(&stage.words), &[Value::Int(1), text("0123456")]);
        let length = 7;
        let at = |index: i64| if index < 0 { (index + length).max(0) } else { index };
        // As t_string.c, getrangeCommand.
        let expected = if start < 0 && end < 0 && start > end {
            ""
        } else {
            let last = at(end).min(length - 1);
            if at(start) > last { "" } else { &"0123456"[at(start) as usize..=last as usize] }
        };
        let reply = stage.ask(&format!("GETRANGE words@1 {start} {end}"));
        let expected = format!("${} {expected}", expected.len());
        prop_assert_eq!(reply, expected.trim_end());
    }
}
