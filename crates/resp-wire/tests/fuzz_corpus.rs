//! Replays the corpus of the fuzz target, so that an input that once failed is a test on every machine.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

#[test]
fn request() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/redis_request");
    let mut replayed = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let data = std::fs::read(&path).unwrap();
        println!("{}", path.display());
        // Every beginning of an input is an input as well.
        (0..=data.len().min(300)).for_each(|end| resp_wire::fuzzing::request(&data[..end]));
        resp_wire::fuzzing::request(&data);
        replayed += 1;
    }
    assert!(replayed > 0, "{} is empty", folder.display());
}
