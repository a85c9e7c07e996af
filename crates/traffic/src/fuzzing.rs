//! The bodies of the fuzz targets, here because they know what must hold.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::file::{FileReader, Folder, Stop};
use crate::import::{From, Importer};
use crate::record::Record;
use crate::seal::Key;

/// The bytes of a file. Reading it ends and does not panic; a record that is read is written as it was read.
pub fn traffic_file(data: &[u8]) {
    // Without the key of a file that is sealed, and with another one, nothing is read.
    let _ = Key::of(&[7; 32]).map(|key| FileReader::new(data, Path::new("fuzz"), Some(&key)));
    let Ok(mut reader) = FileReader::new(data, Path::new("fuzz"), None) else {
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

pub fn import_slow_log(data: &[u8]) {
    import(From::SlowLog, data);
}

pub fn import_general_log(data: &[u8]) {
    import(From::GeneralLog, data);
}

pub fn import_tiproxy(data: &[u8]) {
    import(From::Tiproxy, data);
}

pub fn import_pcap(data: &[u8]) {
    import(From::Pcap, data);
}

/// Whatever a file is, reading it ends and does not panic, and what was made of it can be read.
fn import(from: From, data: &[u8]) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = format!(
        "forebay-fuzz-{}-{}",
        std::process::id(),
        COUNT.fetch_add(1, Relaxed)
    );
    let to = std::env::temp_dir().join(name);
    let mut importer = Importer::new(from, &to, None, "fuzz");
    let read = importer.file(Path::new("fuzz"), data);
    let made = read.and_then(|()| importer.finish());
    if let Ok(imported) = made {
        let mut commands = 0;
        let mut folder = Folder::open(&to, None).ok();
        while let Some(record) = folder
            .as_mut()
            .and_then(|folder| folder.next_record().ok().flatten())
        {
            commands += u64::from(matches!(record, Record::Command(_)));
        }
        assert_eq!(commands, imported.commands);
        assert!(folder.is_some_and(|folder| folder.stops().is_empty()));
    }
    // Where there was no command there is no folder.
    let _ = std::fs::remove_dir_all(&to);
}
