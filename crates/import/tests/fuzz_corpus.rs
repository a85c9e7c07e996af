//! Replays the corpora of the fuzz targets, so that an input that once failed is a test on every machine.

#![allow(
    clippy::unwrap_used,
    reason = "a test stops where something is not as it must be"
)]

use std::path::Path;

/// Imports every file of a corpus.
fn replay(target: &str, import: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut replayed = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        import(&std::fs::read(&path).unwrap());
        replayed += 1;
    }
    assert!(replayed > 0, "{} is empty", folder.display());
}

#[test]
fn import_haproxy() {
    replay("import_haproxy", import::fuzzing::import_haproxy);
}

#[test]
fn import_proxysql() {
    replay("import_proxysql", import::fuzzing::import_proxysql);
}
