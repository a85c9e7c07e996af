//! Bounded mappings: fills, tickets, eviction.

use super::*;
use crate::store::Version;

fn fill(store: &Store, writer: &mut Writer, key: &[u8], row: Option<&[u8]>) -> bool {
    let ticket = store.fill_begin(T, store.version()).unwrap();
    writer.fill(&ticket, key, row)
}

#[test]
fn a_fill_is_kept_and_follows_events() {
    let (store, mut writer) = served(1 << 24, Mode::Bounded);
    assert_eq!(get(&store, b"a"), Err(Found::Missing));
    assert!(fill(&store, &mut writer, b"a", Some(b"1")));
    assert!(fill(&store, &mut writer, b"b", None));
    assert_eq!(
        (get(&store, b"a"), get(&store, b"b")),
        (Ok(b"1".to_vec()), Err(Found::Absent))
    );
    assert_eq!(store.len(T), Some(1));
    writer.begin();
    writer.remove(T, b"a").unwrap();
    writer.put(T, b"b", b"2").unwrap();
    writer.put(T, b"c", b"3").unwrap();
    assert_eq!(
        (get(&store, b"a"), get(&store, b"b")),
        (Ok(b"1".to_vec()), Err(Found::Absent))
    );
    writer.commit();
    assert_eq!(
        (get(&store, b"a"), get(&store, b"b")),
        (Err(Found::Absent), Ok(b"2".to_vec()))
    );
    assert_eq!(get(&store, b"c"), Err(Found::Missing));
    assert_eq!(store.len(T), Some(1));
    check_accounting(&store);
}

#[test]
fn an_older_fill_never_overwrites_a_newer_event() {
    let (store, mut writer) = served(1 << 24, Mode::Bounded);
    let ticket = store.fill_begin(T, store.version()).unwrap();
    writer.begin();
    writer.put(T, b"a", b"new").unwrap();
    assert!(!writer.fill(&ticket, b"a", Some(b"old")));
    writer.commit();
    assert!(!writer.fill(&ticket, b"a", Some(b"old")));
    assert!(writer.fill(&ticket, b"other", Some(b"old")));
    // Of a ticket made while the transaction was open, too.
    writer.begin();
    writer.put(T, b"x", b"new").unwrap();
    let ticket = store.fill_begin(T, store.version()).unwrap();
    writer.commit();
    assert!(!writer.fill(&ticket, b"x", Some(b"old")));
    let ticket = store.fill_begin(T, store.version()).unwrap();
    assert!(writer.fill(&ticket, b"x", Some(b"new")));
    assert!(!writer.fill(&ticket, b"x", Some(b"again")));
    assert_eq!(get(&store, b"x").unwrap(), b"new");
    let ticket = store.fill_begin(T, Version(0)).unwrap();
    assert!(!writer.fill(&ticket, b"a", Some(b"old")));
}

#[test]
fn a_ticket_is_for_one_opening() {
    let (store, mut writer) = served(1 << 24, Mode::Bounded);
    let ticket = store.fill_begin(T, store.version()).unwrap();
    writer.open(T, Mode::Bounded);
    assert!(!writer.fill(&ticket, b"a", Some(b"old")));
    // A ticket may be of what was applied before a transaction that is not published yet.
    let before = store.version();
    writer.commit();
    writer.open(T, Mode::Bounded);
    let ticket = store.fill_begin(T, before).unwrap();
    assert!(!writer.fill(&ticket, b"a", Some(b"old")));
    writer.open(T, Mode::Whole);
    assert_eq!(store.fill_begin(T, store.version()), None);
}

#[test]
fn what_is_read_stays_when_memory_ends() {
    let (store, mut writer) = served(4 << 20, Mode::Bounded);
    let hot = |at: u64| at < 500;
    for at in 0..100_000_u64 {
        assert!(fill(
            &store,
            &mut writer,
            &at.to_le_bytes(),
            Some(&[at as u8; 100])
        ));
        let _ = get(&store, &(at * 7 % 500).to_le_bytes());
        if at % 1000 == 0 {
            check_accounting(&store);
        }
    }
    let memory = store.memory();
    assert!(memory.row_count > 10_000 && memory.evicted > 50_000, "{memory:?}");
    assert!(memory.held > 3 << 20);
    let here = |at: &u64| get(&store, &at.to_le_bytes()).is_ok();
    let (hot_here, cold_here) = ((0..500).filter(here).count(), (500..100_000).filter(here).count());
    assert!(hot_here > 300 && hot(0), "{hot_here}");
    assert_eq!(hot_here + cold_here, memory.row_count as usize);
}

#[test]
fn rows_of_another_size_find_room() {
    let (store, mut writer) = served(4 << 20, Mode::Bounded);
    for (from, len) in [
        (0, 20),
        (1_000_000, 3000),
        (2_000_000, 50),
        (3_000_000, 60_000),
        (4_000_000, 500),
        (5_000_000, 16),
    ] {
        for at in from..from + 60_000 * 20 / len.max(20) as u64 {
            let row = vec![at as u8; len];
            assert!(fill(&store, &mut writer, &at.to_le_bytes(), Some(&row)));
            assert_eq!(get(&store, &at.to_le_bytes()).unwrap(), row);
        }
        check_accounting(&store);
    }
    let too_large = vec![0; 5 << 20];
    assert!(!fill(&store, &mut writer, b"x", Some(&too_large)));
    assert_eq!(get(&store, b"x"), Err(Found::Missing));
    check_accounting(&store);
}

#[test]
fn events_that_find_no_room_are_forgotten_not_lost() {
    let (store, mut writer) = served(2 << 20, Mode::Bounded);
    for at in 0..3000_u64 {
        fill(&store, &mut writer, &at.to_le_bytes(), Some(b"old"));
    }
    writer.begin();
    for at in 0..3000_u64 {
        writer.put(T, &at.to_le_bytes(), &[1; 2000]).unwrap();
    }
    let old = (0..3000_u64)
        .filter(|at| get(&store, &at.to_le_bytes()) == Ok(b"old".to_vec()))
        .count();
    assert!(old > 100, "{old}");
    writer.commit();
    let (mut new, mut missing) = (0, 0);
    for at in 0..3000_u64 {
        match get(&store, &at.to_le_bytes()) {
            Ok(row) => {
                assert_eq!(row, [1; 2000]);
                new += 1;
            }
            Err(Found::Missing) => missing += 1,
            Err(found) => panic!("{found:?}"),
        }
    }
    assert!(new > 100 && missing > 100, "{new} {missing}");
    assert_eq!(store.len(T), Some(new));
    check_accounting(&store);
}

#[test]
fn rows_are_given_back_while_memory_is_short() {
    let (store, mut writer) = served(16 << 20, Mode::Bounded);
    let fill_all = |writer: &mut Writer| {
        let fill = |at: &u64| fill(&store, writer, &at.to_le_bytes(), Some(&[7; 1000]));
        (0..8000_u64).filter(fill).count()
    };
    assert_eq!(fill_all(&mut writer), 8000);
    let before = store.memory();
    writer.give_back();
    assert_eq!(
        store.memory(),
        before,
        "nothing is given back unless memory is short"
    );
    store.set_short_of_memory(true);
    writer.give_back();
    let part = store.memory();
    assert!(part.held < before.held && part.held > before.held / 2, "{part:?}");
    check_accounting(&store);
    (0..32).for_each(|_| writer.give_back());
    let rest = store.memory();
    assert_eq!((rest.row_count, rest.rows), (0, 0), "{rest:?}");
    assert!(rest.held < before.held / 4, "{rest:?}");
    check_accounting(&store);
    assert_eq!(fill_all(&mut writer), 0);
    store.set_short_of_memory(false);
    assert_eq!(fill_all(&mut writer), 8000);
    assert_eq!(get(&store, &7_u64.to_le_bytes()), Ok(vec![7; 1000]));
    check_accounting(&store);
}
