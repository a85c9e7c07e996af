//! The body of the fuzz target, here because it knows what must hold.

use std::path::Path;

use crate::file::{FileReader, Stop};
use crate::record::Record;

/// The bytes of a file. Reading it ends and does not panic; a record that is read is written as it was read.
pub fn traffic_file(data: &[u8]) {
    let Ok(mut reader) = FileReader::new(data, Path::new("fuzz")) else {
        return;
    };
    let mut bytes = Vec::new();
    while let Some(record) = reader.next_record() {
        bytes.clear();
        record.encode(&mut bytes);
        // Numbers that are no numbers are equal to nothing.
        if !matches!(record, Record::Head(_)) {
            assert_eq!(Record::decode(&bytes), Ok(Some(record)));
        }
    }
    assert!(reader.stopped().is_some());
    if let Some(Stop::Cut { at } | Stop::Damaged { at, .. }) = reader.stopped() {
        assert!(*at <= data.len() as u64);
    }
    // The records themselves are behind checksums, which an input seldom has right.
    let _ = Record::decode(data);
}
