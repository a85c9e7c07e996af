use std::convert::Infallible;
use std::sync::Arc;

use mysql_wire::binlog::{Date, Value};
use proptest::prelude::*;

use super::*;

fn column(name: &str, column_type: &str, collation: Option<&str>) -> ColumnShape {
    let charset = collation.map(|collation| collation.split('_').next().unwrap_or_default());
    ColumnShape {
        name: name.into(),
        ordinal: 0,
        nullable: false,
        column_type: column_type.into(),
        charset: charset.map(Box::from),
        collation: collation.map(Box::from),
        unlogged: false,
        invisible: false,
        signs_zeros: false,
    }
}

fn shape(columns: Vec<ColumnShape>, unique: &[&str]) -> TableShape {
    let numbered = columns.into_iter().enumerate();
    TableShape {
        schema: "shop".into(),
        table: "items".into(),
        kind: "BASE TABLE".into(),
        engine: "InnoDB".into(),
        columns: numbered
            .map(|(place, column)| ColumnShape {
                ordinal: place + 1,
                ..column
            })
            .collect(),
        unique: vec![UniqueIndex {
            name: "PRIMARY".into(),
            columns: unique.iter().map(|&name| name.into()).collect(),
        }],
        cascade: None,
    }
}

fn cascade(is_logged: bool) -> Cascade {
    Cascade {
        constraint: "fk".into(),
        is_logged,
    }
}

fn map(shape: Option<&TableShape>, key: &[&str], value: &[&str]) -> Result<Mapping, String> {
    let config = CacheMapping::new("m", MappingKind::Hash, "shop.items", key, value);
    Mapping::new(MappingId(1), &config, shape, Zone::UTC).map_err(|error| error.to_string())
}

/// A mapping whose only key column is `k` of this type.
fn keyed(column_type: &str, collation: Option<&str>) -> Mapping {
    let shape = shape(
        vec![column("k", column_type, collation), column("v", "int", None)],
        &["k"],
    );
    map(Some(&shape), &["k"], &["v"]).unwrap()
}

fn named(mapping: &Mapping, text: &str) -> (Decision, Vec<u8>) {
    let mut key = Vec::new();
    let decision = mapping.parse_key(text.as_bytes(), &mut key).unwrap();
    (decision, key)
}

/// The key of a row with these key values.
fn stored(mapping: &Mapping, values: &[Value<'_>]) -> Vec<u8> {
    let mut key = Vec::new();
    let value = |at: usize| Ok::<_, Infallible>(values[at].clone().into_owned());
    mapping.key_of(value, &mut key).unwrap();
    key
}

fn text_of(mapping: &Mapping, key: &[u8]) -> String {
    let mut out = Vec::new();
    mapping.key_text(key, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn bytes(text: &str) -> Value<'_> {
    Value::Bytes(text.as_bytes().into())
}

#[test]
fn an_integer_key_is_named_by_its_own_text_alone() {
    let mapping = keyed("tinyint", None);
    for value in [0, 1, 127, -128, -1] {
        let (decision, key) = named(&mapping, &value.to_string());
        assert_eq!(decision, Decision::Memory, "{value}");
        assert_eq!(key, stored(&mapping, &[Value::Int(value)]));
        assert_eq!(text_of(&mapping, &key), value.to_string());
    }
    for text in [
        "",
        "-",
        "1a",
        " 1",
        "1 ",
        "1.0",
        "+1",
        "01",
        "-0",
        "-01",
        "128",
        "-129",
        "1e0",
        "0x1",
        "NULL",
        "١",
        "99999999999999999999",
    ] {
        assert_eq!(named(&mapping, text).0, Decision::Nowhere, "{text:?}");
    }
}

#[test]
fn integers_have_the_range_of_their_type() {
    for (column_type, least, most) in [
        ("smallint", "-32768", "32767"),
        ("mediumint", "-8388608", "8388607"),
        ("int", "-2147483648", "2147483647"),
        ("bigint", "-9223372036854775808", "9223372036854775807"),
        ("tinyint unsigned", "0", "255"),
        ("mediumint unsigned", "0", "16777215"),
        ("bigint unsigned", "0", "18446744073709551615"),
    ] {
        let mapping = keyed(column_type, None);
        for text in [least, most] {
            let (decision, key) = named(&mapping, text);
            assert_eq!(decision, Decision::Memory, "{column_type} {text}");
            assert_eq!(text_of(&mapping, &key), text);
        }
        let one_more = (most.parse::<i128>().unwrap() + 1).to_string();
        let one_less = (least.parse::<i128>().unwrap() - 1).to_string();
        for text in [one_more, one_less] {
            assert_eq!(
                named(&mapping, &text).0,
                Decision::Nowhere,
                "{column_type} {text}"
            );
        }
    }
}

#[test]
fn zeros_of_zerofill_may_be_left_out() {
    let mapping = keyed("int(5) unsigned zerofill", None);
    let key = stored(&mapping, &[Value::Int(42)]);
    for text in ["42", "00042"] {
        assert_eq!(named(&mapping, text), (Decision::Memory, key.clone()), "{text}");
    }
    assert_eq!(named(&mapping, "042").0, Decision::Nowhere);
    assert_eq!(text_of(&mapping, &key), "00042");
}

#[test]
fn texts_follow_their_collation() {
    let exact = keyed("varchar(20)", Some("utf8mb4_bin"));
    let key = stored(&exact, &[bytes("Ab ")]);
    assert_eq!(named(&exact, "Ab"), (Decision::Memory, key.clone()));
    assert_eq!(named(&exact, "Ab  "), (Decision::Memory, key.clone()));
    assert_ne!(named(&exact, "ab").1, key);
    assert_eq!(named(&exact, "Äb").0, Decision::Memory);
    stored(&exact, &[bytes("Äb")]);
    assert!(!exact.may_be_beyond());

    let folded = keyed("varchar(20)", Some("utf8mb4_0900_ai_ci"));
    let key = stored(&folded, &[bytes("Ab")]);
    assert_eq!(named(&folded, "aB"), (Decision::Memory, key.clone()));
    assert_ne!(named(&folded, "aB ").1, key, "NO PAD");
    assert_eq!(text_of(&folded, &key), "ab");
    assert_eq!(named(&folded, "Äb").0, Decision::Server);
    assert_eq!(named(&folded, "a\u{1}b").0, Decision::Server, "may be ignorable");
    assert!(!folded.may_be_beyond(), "asking is not having");
    let beyond = stored(&folded, &[bytes("Äb")]);
    assert!(folded.may_be_beyond());
    assert_eq!(text_of(&folded, &beyond), "Äb");

    let mut key = Vec::new();
    assert_eq!(exact.parse_key(b"\xff", &mut key), Ok(Decision::Nowhere));
}

#[test]
fn blanks_at_the_end_of_char_are_not_part_of_it() {
    let padded = keyed("char(5)", Some("utf8mb4_bin"));
    assert_eq!(
        named(&padded, "a "),
        (Decision::Memory, stored(&padded, &[bytes("a")]))
    );
    let unpadded = keyed("char(5)", Some("utf8mb4_0900_bin"));
    assert_eq!(
        named(&unpadded, "a ").0,
        Decision::Nowhere,
        "no row is printed like that"
    );
    let mut key = Vec::new();
    assert_eq!(
        unpadded.key_from_values(&[bytes("a ")], &mut key),
        Decision::Server
    );
    assert_eq!(
        unpadded.key_from_values(&[bytes("a")], &mut key),
        Decision::Memory
    );
}

#[test]
fn binary_keys_are_their_bytes() {
    let fixed = keyed("binary(3)", None);
    assert_eq!(named(&fixed, "abc").0, Decision::Memory);
    assert_eq!(named(&fixed, "ab").0, Decision::Nowhere);
    let mut key = Vec::new();
    assert_eq!(fixed.key_from_values(&[bytes("ab")], &mut key), Decision::Server);
    let variable = keyed("varbinary(3)", None);
    assert_eq!(named(&variable, "a ").1, stored(&variable, &[bytes("a ")]));
    assert_ne!(named(&variable, "a").1, stored(&variable, &[bytes("a ")]));
}

#[test]
fn other_types_are_named_by_what_the_server_prints() {
    let date = keyed("date", None);
    let key = stored(
        &date,
        &[Value::Date(Date {
            year: 2026,
            month: 1,
            day: 31,
        })],
    );
    assert_eq!(named(&date, "2026-01-31"), (Decision::Memory, key.clone()));
    assert_eq!(text_of(&date, &key), "2026-01-31");
    for text in ["2026-1-31", "20260131", "2026-01-31 00:00:00", "26-01-31", "x"] {
        assert_eq!(named(&date, text).0, Decision::Nowhere, "{text}");
    }
    let decimal = keyed("decimal(8,2)", None);
    let (decision, key) = named(&decimal, "-1.50");
    assert_eq!(decision, Decision::Memory);
    assert_eq!(text_of(&decimal, &key), "-1.50");
    for text in ["-1.5", "-01.50", "+1.50", "1234567.00", "1.505"] {
        assert_eq!(named(&decimal, text).0, Decision::Nowhere, "{text}");
    }
    let member = keyed("enum('red','green')", Some("utf8mb4_general_ci"));
    assert_eq!(
        named(&member, "green"),
        (Decision::Memory, stored(&member, &[Value::Enum(2)]))
    );
    assert_eq!(named(&member, "blue").0, Decision::Nowhere);
}

#[test]
fn values_of_statements_are_compared_as_the_column_does_or_by_the_server() {
    let mapping = keyed("int unsigned", None);
    let mut key = Vec::new();
    assert_eq!(
        mapping.key_from_values(&[Value::UInt(7)], &mut key),
        Decision::Memory
    );
    assert_eq!(key, stored(&mapping, &[Value::Int(7)]));
    assert_eq!(
        mapping.key_from_values(&[Value::Int(-1)], &mut key),
        Decision::Nowhere
    );
    assert_eq!(
        mapping.key_from_values(&[Value::UInt(1 << 32)], &mut key),
        Decision::Nowhere
    );
    assert_eq!(
        mapping.key_from_values(&[Value::Null], &mut key),
        Decision::Nowhere
    );
    for value in [bytes("7"), Value::Double(7.0), Value::Bit(7)] {
        assert_eq!(mapping.key_from_values(&[value], &mut key), Decision::Server);
    }
    assert_eq!(mapping.key_from_values(&[], &mut key), Decision::Server);
    let text = keyed("varchar(9)", Some("utf8mb4_general_ci"));
    assert_eq!(text.key_from_values(&[bytes("AB ")], &mut key), Decision::Memory);
    assert_eq!(key, stored(&text, &[bytes("ab")]));
    for value in [bytes("é"), Value::Int(7)] {
        assert_eq!(text.key_from_values(&[value], &mut key), Decision::Server);
    }
}

#[test]
fn texts_that_the_columns_character_set_may_lack_are_the_servers() {
    let mut key = Vec::new();
    for (collation, own, others) in [
        ("latin1_bin", &["a"][..], &["é", "你", "😀"][..]),
        ("ascii_bin", &["a"], &["é", "你", "😀"]),
        ("utf8mb3_bin", &["a", "é", "你"], &["😀", "a😀"]),
        ("utf8_bin", &["a", "é", "你"], &["😀"]),
        ("utf8mb4_bin", &["a", "é", "你", "😀"], &[]),
    ] {
        let mapping = keyed("varchar(9)", Some(collation));
        let mut decision = |text: &&str| mapping.key_from_values(&[bytes(text)], &mut key);
        for text in own {
            assert_eq!(decision(text), Decision::Memory, "{collation} {text}");
        }
        for text in others {
            assert_eq!(decision(text), Decision::Server, "{collation} {text}");
        }
    }
}

/// `a` INT, `b` VARCHAR, `c` VARBINARY, and one more column.
fn composite() -> Mapping {
    let columns = vec![
        column("v", "int", None),
        column("c", "varbinary(9)", None),
        column("b", "varchar(9)", Some("utf8mb4_bin")),
        column("a", "int", None),
    ];
    map(Some(&shape(columns, &["c", "a", "b"])), &["A", "b", "c"], &["*"]).unwrap()
}

#[test]
fn composite_keys_are_joined_with_colons() {
    let mapping = composite();
    let row = [Value::Int(7), bytes("x:y\\"), bytes("")];
    let key = stored(&mapping, &row);
    assert_eq!(text_of(&mapping, &key), r"7:x\:y\\:");
    assert_eq!(named(&mapping, r"7:x\:y\\:"), (Decision::Memory, key));
    assert_eq!(named(&mapping, "x:y:z").0, Decision::Nowhere);
    let refused = |text: &str| mapping.parse_key(text.as_bytes(), &mut Vec::new()).unwrap_err();
    assert_eq!(
        refused("7:x"),
        KeyError::Parts {
            expected: 3,
            found: 2
        }
    );
    assert_eq!(
        refused("7:x:y:z"),
        KeyError::Parts {
            expected: 3,
            found: 4
        }
    );
    assert_eq!(refused(r"7:x\y:z"), KeyError::Escape);
    assert_eq!(refused(r"7:x:z\"), KeyError::Escape);
    assert_eq!(
        named(&keyed("varchar(9)", Some("utf8mb4_bin")), r"a:\b").0,
        Decision::Memory
    );
}

#[test]
fn rows_have_the_columns_that_are_kept() {
    let mapping = composite();
    let names: Vec<&str> = mapping.values().map(|column| &*column.name).collect();
    assert_eq!(names, ["v", "c", "b", "a"]);
    assert_eq!(mapping.value_place(b"B"), Some(2));
    assert_eq!(mapping.value_place(b"x"), None);
    let places: Vec<usize> = mapping.columns.iter().map(|column| column.place).collect();
    assert_eq!(places, [3, 2, 1, 0], "those of the key first");
    let mut row = Vec::new();
    let value = |at: usize| Ok::<_, Infallible>(Value::Int(at as i64));
    mapping.row_of(value, &mut row).unwrap();
    let mut rest = &row[..];
    for at in [3, 2, 1, 0] {
        assert_eq!(Value::decode(&mut rest).unwrap(), Value::Int(at));
    }
    assert!(rest.is_empty());
}

/// The error for a table with columns `id` and `v` after a change of it.
fn refused(change: impl Fn(&mut TableShape), key: &[&str], value: &[&str]) -> String {
    let columns = vec![
        column("id", "int", None),
        column("v", "text", Some("utf8mb4_bin")),
    ];
    let mut shape = shape(columns, &["id"]);
    change(&mut shape);
    map(Some(&shape), key, value).unwrap_err()
}

#[test]
fn errors_name_mapping_and_table() {
    assert_eq!(
        map(None, &["id"], &["v"]).unwrap_err(),
        "mapping m: table shop.items: there is no such table, or its account may not read it"
    );
    type Case<'c> = (fn(&mut TableShape), &'c [&'c str], &'c str);
    let cases: [Case<'_>; 7] = [
        (|shape| shape.kind = "VIEW".into(), &["id"], "it is a VIEW"),
        (
            |shape| shape.engine = "FEDERATED".into(),
            &["id"],
            "its engine is FEDERATED",
        ),
        (
            |shape| shape.schema = "mysql".into(),
            &["id"],
            "of the server itself",
        ),
        (
            |shape| shape.cascade = Some(cascade(false)),
            &["id"],
            "constraint fk",
        ),
        (|shape| shape.columns[1].ordinal = 3, &["id"], "not all visible"),
        (|_| (), &["v"], "no unique index over exactly these columns: v"),
        (|_| (), &["id", "v"], "these columns: id, v"),
    ];
    for (change, key, expected) in cases {
        let error = refused(change, key, &["v"]);
        assert!(error.starts_with("mapping m: table shop.items: "), "{error}");
        assert!(error.contains(expected), "{error:?} has no {expected:?}");
    }
}

#[test]
fn a_mapping_says_that_its_server_must_log_what_foreign_keys_change() {
    let mut shape = shape(vec![column("id", "int", None), column("v", "int", None)], &["id"]);
    assert!(!map(Some(&shape), &["id"], &["v"]).unwrap().cascades);
    shape.cascade = Some(cascade(true));
    assert!(map(Some(&shape), &["id"], &["v"]).unwrap().cascades);
}

#[test]
fn errors_name_the_column() {
    type Case<'c> = (fn(&mut TableShape), &'c str, &'c str, &'c str);
    let cases: [Case<'_>; 7] = [
        (
            |shape| shape.columns[0].nullable = true,
            "id",
            "v",
            "column id: may be NULL",
        ),
        (|_| (), "x", "v", "column x: the table has no such"),
        (|_| (), "id", "x", "column x: the table has no such"),
        (
            |shape| shape.columns[1].unlogged = true,
            "id",
            "*",
            "column v: is a generated column",
        ),
        (
            |shape| shape.columns[0].column_type = "double".into(),
            "id",
            "v",
            "column id: columns of type DOUBLE",
        ),
        (
            |shape| shape.columns[1].collation = Some("utf8mb4_turkish_ci".into()),
            "v",
            "id",
            "column v: its collation utf8mb4_turkish_ci",
        ),
        (
            |shape| shape.columns[1].column_type = "point".into(),
            "id",
            "*",
            "column v: columns of type GEOMETRY",
        ),
    ];
    for (change, key, value, expected) in cases {
        let error = refused(change, &[key], &[value]);
        let expected = format!("mapping m: table shop.items, {expected}");
        assert!(error.starts_with(&expected), "{error:?} is not {expected:?}");
    }
}

#[test]
fn invisible_columns_are_not_among_all() {
    let mut shape = shape(
        vec![column("id", "int", None), column("hidden", "int", None)],
        &["id"],
    );
    shape.columns[1].invisible = true;
    let mapping = map(Some(&shape), &["id"], &["*"]).unwrap();
    assert_eq!(mapping.values().len(), 1);
    assert_eq!(mapping.column_types.len(), 2, "the binary log has it");
    assert_eq!(map(Some(&shape), &["id"], &["hidden"]).unwrap().values().len(), 1);
}

#[test]
fn mappings_are_found_by_name_and_table() {
    let mapping = Arc::new(composite());
    let set = MappingSet::new(
        [Arc::clone(&mapping)],
        [("other".into(), "is copied, 40 %".into())],
    );
    assert!(
        set.by_name(b"m")
            .is_some_and(|found| Arc::ptr_eq(found, &mapping))
    );
    assert_eq!(set.by_table(b"shop", b"items").count(), 1);
    assert_eq!(set.by_table(b"shopi", b"tems").count(), 0);
    assert!(set.by_name(b"other").is_none());
    assert_eq!(set.unready(b"other"), Some("is copied, 40 %"));
}

proptest! {
    #[test]
    fn composite_keys_round_trip(a: i32, b in "[a-z:\\\\é ]{0,8}[a-z:\\\\]", c in "[ -~]{0,9}") {
        let mapping = composite();
        let key = stored(&mapping, &[Value::Int(a.into()), bytes(&b), bytes(&c)]);
        let text = text_of(&mapping, &key);
        prop_assert_eq!(named(&mapping, &text), (Decision::Memory, key.clone()));
        let values: Vec<Value<'_>> = stored_values(&key).map(Result::unwrap).collect();
        prop_assert_eq!(values, vec![Value::Int(a.into()), bytes(&b), bytes(&c)]);
    }

    #[test]
    fn keys_of_different_rows_differ(one: (i32, String, Vec<u8>), other: (i32, String, Vec<u8>)) {
        let mapping = composite();
        let key = |(a, b, c): &(i32, String, Vec<u8>)| {
            let b = b.trim_end_matches(' ');
            stored(&mapping, &[Value::Int((*a).into()), bytes(b), Value::Bytes(c.as_slice().into())])
        };
        let same = |(a, b, c): &(i32, String, Vec<u8>)| (*a, b.trim_end_matches(' ').to_owned(), c.clone());
        prop_assert_eq!(key(&one) == key(&other), same(&one) == same(&other));
    }

    #[test]
    fn any_text_is_answered(text: Vec<u8>) {
        let mut key = Vec::new();
        for mapping in [composite(), keyed("datetime(3)", None), keyed("bit(9)", None), keyed("set('a','b')", Some("utf8mb4_bin"))] {
            let _ = mapping.parse_key(&text, &mut key);
        }
    }
}
