//! Whole mappings: transactions, closing, scans.

use std::collections::BTreeSet;

use super::*;
use crate::store::{NotRead, Stopped};

#[test]
fn a_transaction_is_visible_when_it_is_committed() {
    let (store, mut writer) = served(1 << 24, Mode::Whole);
    writer.begin();
    writer.put(T, b"a", b"1").unwrap();
    writer.put(T, b"b", b"2").unwrap();
    assert_eq!(get(&store, b"a"), Err(Found::Absent));
    let version = writer.commit();
    assert_eq!(store.version(), version);
    assert_eq!(get(&store, b"a").unwrap(), b"1");
    writer.begin();
    writer.remove(T, b"a").unwrap();
    writer.put(T, b"b", b"").unwrap();
    writer.put(T, b"b", b"longer than before").unwrap();
    assert_eq!(
        (get(&store, b"a").unwrap(), get(&store, b"b").unwrap()),
        (b"1".to_vec(), b"2".to_vec())
    );
    assert!(writer.commit() > version);
    assert_eq!(get(&store, b"a"), Err(Found::Absent));
    assert_eq!(get(&store, b"b").unwrap(), b"longer than before");
    assert_eq!(store.len(T), Some(1));
    check_accounting(&store);
}

#[test]
fn what_is_rolled_back_was_never_there() {
    let (store, mut writer) = served(1 << 24, Mode::Whole);
    writer.begin();
    writer.put(T, b"a", b"1").unwrap();
    writer.commit();
    let held = store.memory();
    for _ in 0..3 {
        writer.begin();
        writer.put(T, b"a", b"2").unwrap();
        writer.remove(T, b"a").unwrap();
        writer.put(T, b"c", b"3").unwrap();
        writer.rollback();
    }
    writer.begin();
    writer.commit();
    assert_eq!(get(&store, b"a").unwrap(), b"1");
    assert_eq!(get(&store, b"c"), Err(Found::Absent));
    assert_eq!((store.memory().rows, store.len(T)), (held.rows, Some(1)));
}

#[test]
fn mappings_are_seen_while_they_are_served() {
    let (store, mut writer) = Store::new(1 << 24);
    assert_eq!(get(&store, b"a"), Err(Found::Closed));
    writer.open(T, Mode::Whole);
    writer.begin();
    writer.put(T, b"a", b"1").unwrap();
    writer.commit();
    assert_eq!(get(&store, b"a"), Err(Found::Closed));
    writer.serve(T, true);
    assert_eq!(get(&store, b"a").unwrap(), b"1");
    writer.serve(T, false);
    assert_eq!(get(&store, b"a"), Err(Found::Closed));
    writer.serve(T, true);
    writer.begin();
    writer.put(T, b"b", b"1").unwrap();
    writer.close(T);
    assert_eq!(get(&store, b"a"), Err(Found::Closed));
    assert_eq!(store.scan(T, 0, 1, |_, _| {}), Err(NotRead::Closed));
    assert_eq!(writer.put(T, b"a", b"1"), Ok(()));
    writer.commit();
    writer.open(T, Mode::Whole);
    writer.serve(T, true);
    assert_eq!(get(&store, b"a"), Err(Found::Absent));
    assert_eq!(store.memory().rows, 0);
    check_accounting(&store);
}

/// A mapping has another id each time that its table is copied.
#[test]
fn mappings_that_are_gone_leave_nothing_behind() {
    let (store, mut writer) = Store::new(1 << 24);
    let mut held = 0;
    for mapping in (1..3000).map(MappingId) {
        writer.open(mapping, Mode::Whole);
        writer.serve(mapping, true);
        writer.begin();
        writer.put(mapping, b"a", b"1").unwrap();
        writer.commit();
        assert_eq!(store.len(mapping), Some(1));
        let later = MappingId(mapping.0 + MappingId::SLOTS);
        assert_eq!(store.len(later), None, "another one of its slot");
        writer.close(mapping);
        check_accounting(&store);
        if held == 0 {
            held = store.memory().held;
        }
    }
    let left = store.memory();
    assert!(left.held < held + (64 << 10), "{held}, then {left:?}");
}

#[test]
fn a_whole_mapping_that_does_not_fit_is_closed() {
    let (store, mut writer) = served(2 << 20, Mode::Whole);
    writer.open(MappingId(1), Mode::Whole);
    writer.serve(MappingId(1), true);
    let mut stopped = None;
    for key in 0..100_000_u64 {
        writer.begin();
        if let Err(why) = writer.put(T, &key.to_le_bytes(), &[7; 100]) {
            stopped = Some((key, why));
            break;
        }
        writer
            .put(MappingId(1), &(key % 10).to_le_bytes(), b"other")
            .unwrap();
        writer.commit();
        check_accounting(&store);
    }
    let (rows, why) = stopped.unwrap();
    assert_eq!(why, Stopped::MemoryMax { memory_max: 2 << 20 });
    assert!(rows > 10_000, "{rows}");
    writer.commit();
    assert_eq!(get(&store, b"a"), Err(Found::Closed));
    let mut row = Vec::new();
    assert_eq!(
        store.get(MappingId(1), &3_u64.to_le_bytes(), &mut row),
        Found::Row
    );
    check_accounting(&store);
    let before = store.memory();
    writer.open(T, Mode::Whole);
    for key in 0..rows - 1000 {
        writer.begin();
        writer.put(T, &key.to_le_bytes(), &[7; 100]).unwrap();
        writer.commit();
    }
    assert!(before.held < 1 << 20 || before.free > 1 << 19, "{before:?}");
}

#[test]
fn what_is_too_long_closes_a_whole_mapping() {
    let (store, mut writer) = served(1 << 24, Mode::Whole);
    assert_eq!(
        writer.put(T, &[1; 5000], b""),
        Err(Stopped::KeyTooLong { len: 5000 })
    );
    assert_eq!(get(&store, b"a"), Err(Found::Closed));
}

#[test]
fn a_scan_sees_what_stays_while_the_mapping_grows() {
    let (store, mut writer) = served(1 << 28, Mode::Whole);
    let put = |writer: &mut Writer, keys: std::ops::Range<u32>| {
        writer.begin();
        for key in keys {
            writer.put(T, &key.to_le_bytes(), &key.to_be_bytes()).unwrap();
        }
        writer.commit();
    };
    put(&mut writer, 0..20_000);
    let (mut cursor, mut seen, mut next, mut calls) = (0, BTreeSet::new(), 20_000, 0);
    loop {
        cursor = store
            .scan(T, cursor, 100, |key, row| {
                let key = u32::from_le_bytes(key.try_into().unwrap());
                assert_eq!(row, key.to_be_bytes());
                seen.insert(key);
            })
            .unwrap();
        assert!(cursor < 1 << 48);
        calls += 1;
        if cursor == 0 {
            break;
        }
        put(&mut writer, next..next + 300);
        next += 300;
    }
    assert!((0..20_000).all(|key| seen.contains(&key)));
    assert!(calls > 100, "{calls}");
    assert_eq!(store.len(T), Some(u64::from(next)));
}

#[test]
fn a_scan_of_nothing_ends() {
    let (store, mut writer) = served(1 << 24, Mode::Whole);
    let scan = |store: &Store| {
        let (mut cursor, mut rows) = (0, 0);
        loop {
            cursor = store.scan(T, cursor, 10, |_, _| rows += 1).unwrap();
            if cursor == 0 {
                return rows;
            }
        }
    };
    assert_eq!(scan(&store), 0);
    assert_eq!(store.random_key(T, 77, &mut Vec::new(), |_| true), Found::Absent);
    writer.begin();
    writer.put(T, b"only", b"1").unwrap();
    writer.commit();
    assert_eq!(scan(&store), 1);
    let mut key = Vec::new();
    for random in [0, 77, u64::MAX] {
        assert_eq!(store.random_key(T, random, &mut key, |_| true), Found::Row);
        assert_eq!(key, b"only");
    }
    assert_eq!(
        store.random_key(MappingId(9), 0, &mut key, |_| true),
        Found::Closed
    );
}

#[test]
fn a_search_for_some_row_ends_where_it_is_told_to() {
    let (store, mut writer) = served(1 << 24, Mode::Whole);
    writer.begin();
    (0..40_000_u32).for_each(|key| writer.put(T, &key.to_le_bytes(), b"row").unwrap());
    writer.commit();
    writer.begin();
    (1..40_000_u32).for_each(|key| writer.remove(T, &key.to_le_bytes()).unwrap());
    writer.commit();
    let (mut key, mut longest) = (Vec::new(), 0);
    for random in (0..64_u64).map(|point| point << 58) {
        let mut looked = 0;
        let look_on = |bytes: usize| {
            looked += 1;
            bytes == 0 && looked < 100
        };
        match store.random_key(T, random, &mut key, look_on) {
            Found::Row => assert_eq!(key, 0_u32.to_le_bytes()),
            found => assert_eq!((found, looked), (Found::Missing, 100)),
        }
        longest = longest.max(looked);
    }
    assert_eq!(longest, 100, "most buckets are empty");
}

#[test]
fn a_view_is_one_state() {
    let (store, mut writer) = served(1 << 24, Mode::Whole);
    writer.begin();
    writer.put(T, b"a", b"1").unwrap();
    writer.put(T, b"b", b"1").unwrap();
    writer.commit();
    let mut commits = 0;
    let pair = store.snapshot(|view| {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        view.get(T, b"a", &mut a);
        if commits < 2 {
            commits += 1;
            writer.begin();
            writer.put(T, b"a", format!("{commits}x").as_bytes()).unwrap();
            writer.put(T, b"b", format!("{commits}x").as_bytes()).unwrap();
            writer.commit();
            assert_eq!(view.get(T, b"b", &mut b), Found::Busy);
        }
        view.get(T, b"b", &mut b);
        (a, b)
    });
    assert_eq!(pair.unwrap(), (b"2x".to_vec(), b"2x".to_vec()));
}
