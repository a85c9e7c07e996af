//! Random transactions, compared with a map.

use std::collections::BTreeMap;

use super::*;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(random: &mut Random, keys: u64) -> Vec<u8> {
    let number = random.below(keys);
    let len = [0, 1, 3, 8, 9, 16, 40, 300][number as usize % 8];
    let mut key = vec![b'k'; len];
    key.extend_from_slice(&number.to_le_bytes()[..3]);
    key
}

fn row(random: &mut Random) -> Vec<u8> {
    let len = match random.below(100) {
        0 => 8000 + random.below(400),
        1 => random.below(40_000),
        2..10 => random.below(2000),
        _ => random.below(64),
    };
    let seed = random.number().to_le_bytes();
    (0..len as usize).map(|at| seed[at % 8] ^ at as u8).collect()
}

fn compare(store: &Store, model: &Model, random: &mut Random, keys: u64, round: u64) {
    for _ in 0..20 {
        let key = key(random, keys);
        match model.get(&key) {
            Some(row) => assert_eq!(get(store, &key).as_ref(), Ok(row), "round {round}"),
            None => assert_eq!(get(store, &key), Err(Found::Absent), "round {round}"),
        }
    }
    assert_eq!(store.len(T), Some(model.len() as u64));
}

fn run(seed: u64, rounds: u64, keys: u64) {
    let mut random = Random::new(seed);
    let (store, mut writer) = served(1 << 28, Mode::Whole);
    let mut model = Model::new();
    for round in 0..rounds {
        let mut next = model.clone();
        writer.begin();
        for _ in 0..random.below(40) {
            let key = key(&mut random, keys);
            if random.below(3) == 0 {
                writer.remove(T, &key).unwrap();
                next.remove(&key);
            } else {
                let row = row(&mut random);
                writer.put(T, &key, &row).unwrap();
                next.insert(key, row);
            }
        }
        compare(&store, &model, &mut random, keys, round);
        match random.below(20) {
            0 => writer.rollback(),
            1 if random.below(20) == 0 => {
                writer.open(T, Mode::Whole);
                writer.serve(T, true);
                model.clear();
            }
            _ => {
                writer.commit();
                model = next;
            }
        }
        compare(&store, &model, &mut random, keys, round);
        check_accounting(&store);
    }
    scanned(&store, &model);
}

fn scanned(store: &Store, model: &Model) {
    let (mut all, mut cursor) = (Model::new(), 0);
    loop {
        cursor = store
            .scan(T, cursor, 7, |key, row| {
                assert_eq!(all.insert(key.to_vec(), row.to_vec()), None)
            })
            .unwrap();
        if cursor == 0 {
            break;
        }
    }
    assert!(all == *model);
}

#[test]
fn random_transactions_do_what_they_do_to_a_map() {
    for seed in inputs::seeds(6) {
        run(seed, 400, 50);
        run(seed, 100, 5000);
    }
}
