//! Replays the corpus of the fuzz targets, so that an input that once failed is a test on every machine.

use std::path::Path;

fn replay(target: &str, body: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut replayed = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let data = std::fs::read(&path).unwrap();
        println!("{}", path.display());
        body(&data);
        // Every beginning of an input is an input as well.
        for len in 0..data.len().min(200) {
            body(&data[..len]);
        }
        replayed += 1;
    }
    assert!(replayed > 0, "{} is empty", folder.display());
}

#[test]
fn response() {
    replay("response", mysql_wire::fuzzing::response);
}

#[test]
fn handshake() {
    replay("handshake", mysql_wire::fuzzing::handshake);
}

#[test]
fn compression() {
    replay("compression", mysql_wire::fuzzing::compression);
}

#[test]
fn reshape() {
    replay("reshape", mysql_wire::fuzzing::reshape);
}

#[test]
fn session_state() {
    replay("session_state", mysql_wire::fuzzing::session_state);
}

#[test]
fn gtid() {
    replay("gtid", mysql_wire::fuzzing::gtid);
}

#[test]
fn statement() {
    replay("statement", mysql_wire::fuzzing::statement);
}

#[test]
fn binlog() {
    replay("binlog", mysql_wire::fuzzing::binlog);
}
