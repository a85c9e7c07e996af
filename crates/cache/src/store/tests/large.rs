//! Rows that need many places.

use super::*;

fn row(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ seed)
        .collect()
}

#[test]
fn rows_of_every_length_are_what_they_were() {
    let (store, mut writer) = served(1 << 28, Mode::Whole);
    let around = [8176, 8184, 2 * 8176, 3 * 8176, 100_000];
    let lens = (0..40).chain(around.into_iter().flat_map(|len| len - 20..len + 20));
    for (at, len) in lens.enumerate() {
        for key in [
            &b""[..],
            b"k",
            b"seven b",
            b"eight by",
            b"nine byte",
            &[b'k'; 3000],
        ] {
            let row = row(len, at as u8);
            writer.begin();
            writer.put(T, key, &row).unwrap();
            writer.commit();
            assert!(get(&store, key).unwrap() == row, "{len} {}", key.len());
        }
        check_accounting(&store);
    }
}

#[test]
fn the_longest_rows_fit_and_go() {
    let (store, mut writer) = served(64 << 20, Mode::Whole);
    let empty = store.memory();
    for round in 0..6 {
        let row = row(16 << 20, round);
        writer.begin();
        writer.put(T, b"large", &row).unwrap();
        writer.commit();
        assert!(get(&store, b"large").unwrap() == row);
        check_accounting(&store);
        writer.begin();
        writer.put(T, b"large", b"small").unwrap();
        writer.commit();
    }
    writer.begin();
    writer.remove(T, b"large").unwrap();
    writer.commit();
    writer.begin();
    writer.commit();
    assert_eq!((store.memory().rows, store.memory().row_count), (empty.rows, 0));
    assert_eq!(store.memory().rounding, 0);
}
