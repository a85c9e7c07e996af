//! Replays the corpus of the fuzz target, so that an input that once failed is a test on every machine.

use std::path::Path;

use sql_class::fuzzing::fuzz_facts;

#[test]
fn facts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/facts");
    let mut replayed = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        let data = std::fs::read(&path).unwrap();
        // Every beginning of an input is an input as well.
        for len in 0..=data.len().min(400) {
            fuzz_facts(&data[..len]);
        }
        fuzz_facts(&data);
        replayed += 1;
    }
    assert!(replayed > 0, "{} is empty", folder.display());
}
