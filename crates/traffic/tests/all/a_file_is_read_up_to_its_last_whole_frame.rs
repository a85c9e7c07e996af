//! Whoever writes a capture may be killed at any moment, and a disk may give back other bytes than it got:
//! what is whole before that is read, and nothing that was not written.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use traffic::file::{FileReader, HEAD_LEN, files_of};
use traffic::record::{Check, CommandRecord, End, FILES_MAX, Flags, Head, Record, SessionRecord};
use traffic::{Folder, FolderWriter, Stop};

fn command(number: u64) -> Record {
    Record::Command(Box::new(CommandRecord {
        session: 7,
        number,
        start_us: number * 100,
        took_us: 50,
        command: 3,
        flags: Flags(4),
        digest: u64::MAX,
        schema: b"shop".to_vec(),
        body: format!("SELECT {number}").into_bytes(),
        rows: 1,
        checks: smallvec::smallvec![Check {
            sum: number,
            chain: 2,
        }],
        ..CommandRecord::default()
    }))
}

/// A folder whose frames have these counts of commands.
fn folder(place: &Path, frames: &[u64], file_max: u64) -> (PathBuf, Vec<Record>) {
    let path = place.join("captured");
    let head = Head {
        kind: "capture".to_owned(),
        ..Head::default()
    };
    let mut writer = FolderWriter::create(&path, head, file_max, None).unwrap();
    let mut records = vec![Record::Session(SessionRecord {
        id: 7,
        user: "app".to_owned(),
        was_open: true,
        ..SessionRecord::default()
    })];
    writer.put(&records[0]).unwrap();
    let mut number = 0;
    for commands in frames {
        for _ in 0..*commands {
            let record = command(number);
            number += 1;
            writer.put(&record).unwrap();
            records.push(record);
        }
        writer.flush().unwrap();
    }
    let end = Record::End(Box::new(End {
        reason: "stopped".to_owned(),
        ..End::default()
    }));
    writer.put(&end).unwrap();
    records.push(end);
    writer.finish().unwrap();
    (path, records)
}

fn read(path: &Path) -> (Vec<Record>, Vec<Stop>) {
    let mut folder = Folder::open(path, None).unwrap();
    let mut records = Vec::new();
    while let Some(record) = folder.next_record().unwrap() {
        records.push(record);
    }
    let stops = folder.stops().iter().map(|(_, stop)| stop.clone());
    (records, stops.collect())
}

#[test]
fn what_was_written_is_read_over_all_files() {
    let place = tempfile::tempdir().unwrap();
    // Each frame begins another file.
    let (path, records) = folder(place.path(), &[3, 5, 2], 1);
    assert!(files_of(&path).unwrap().len() > 3);
    assert_eq!(read(&path), (records, Vec::new()));
}

#[test]
fn a_command_is_written_with_as_many_files_as_it_may_have() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("captured");
    let mut writer = FolderWriter::create(&path, Head::default(), 1 << 30, None).unwrap();
    let load = Record::Command(Box::new(CommandRecord {
        body: vec![b'x'; 1 << 20],
        files: vec![vec![b'y'; FILES_MAX / 2]; 2],
        ..CommandRecord::default()
    }));
    writer.put(&load).unwrap();
    writer.finish().unwrap();
    assert!(read(&path) == (vec![load], Vec::new()));
}

#[test]
fn nobody_else_may_read_it() {
    let place = tempfile::tempdir().unwrap();
    let (path, _) = folder(place.path(), &[1], 1 << 20);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    for file in files_of(&path).unwrap() {
        assert_eq!(mode(&file), 0o600);
    }
}

#[test]
fn a_folder_with_something_in_it_is_refused() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("mine"), "x").unwrap();
    assert!(FolderWriter::create(place.path(), Head::default(), 1, None).is_err());
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
}

#[test]
fn a_later_version_is_refused_by_its_number() {
    let place = tempfile::tempdir().unwrap();
    let (path, _) = folder(place.path(), &[1], 1 << 20);
    let file = &files_of(&path).unwrap()[0];
    let mut bytes = fs::read(file).unwrap();
    bytes[16] = 99;
    fs::write(file, &bytes).unwrap();
    let error = Folder::open(&path, None).err().unwrap().to_string();
    assert!(error.contains("format 99"), "{error}");
    bytes[0] = b'x';
    fs::write(file, &bytes).unwrap();
    assert!(
        Folder::open(&path, None)
            .err()
            .unwrap()
            .to_string()
            .contains("no file of captured traffic")
    );
}

/// Versions of before: 3 is the same without files, and 2 had no id and no proof.
#[test]
fn files_of_versions_3_and_2_are_read() {
    let place = tempfile::tempdir().unwrap();
    let (path, records) = folder(place.path(), &[3], 1 << 20);
    let file = &files_of(&path).unwrap()[0];
    let mut bytes = fs::read(file).unwrap();
    bytes[16] = 3;
    fs::write(file, &bytes).unwrap();
    assert_eq!(read(&path), (records.clone(), Vec::new()));
    bytes.drain(24..HEAD_LEN);
    bytes[16] = 2;
    fs::write(file, &bytes).unwrap();
    assert_eq!(read(&path), (records, Vec::new()));
}

#[test]
fn files_of_another_folder_and_missing_ones_are_noticed() {
    let place = tempfile::tempdir().unwrap();
    let (path, _) = folder(place.path(), &[3, 5, 2], 1);
    let other = tempfile::tempdir().unwrap();
    let (other, _) = folder(other.path(), &[3, 5, 2], 1);
    let (files, others) = (files_of(&path).unwrap(), files_of(&other).unwrap());
    fs::remove_file(&files[1]).unwrap();
    assert!(matches!(&read(&path).1[..], [Stop::Damaged { at: 0, .. }]));
    fs::copy(&others[1], &files[1]).unwrap();
    let mut read = Folder::open(&path, None).unwrap();
    let error = std::iter::repeat_with(|| read.next_record()).find_map(Result::err);
    assert!(error.unwrap().to_string().contains("another folder"));
}

/// Frames come one after the other, each in two parts, some of them in a file of their own.
#[test]
fn a_folder_that_grows_is_followed() {
    let place = tempfile::tempdir().unwrap();
    for file_max in [1, 1 << 20] {
        let whole = tempfile::tempdir().unwrap();
        let (whole, records) = folder(whole.path(), &[3, 5, 2], file_max);
        let grown = place.path().join(file_max.to_string());
        fs::create_dir(&grown).unwrap();
        let mut followed: Option<Folder> = None;
        let mut read = Vec::new();
        for file in files_of(&whole).unwrap() {
            let bytes = fs::read(&file).unwrap();
            let path = grown.join(file.file_name().unwrap());
            for end in (HEAD_LEN - 1..bytes.len()).step_by(7).chain([bytes.len()]) {
                fs::write(&path, &bytes[..end]).unwrap();
                if followed.is_none() && end >= HEAD_LEN {
                    followed = Folder::open(&grown, None).ok();
                    followed.as_mut().unwrap().follow();
                }
                if let Some(followed) = &mut followed {
                    followed.look_again().unwrap();
                    read.extend(std::iter::from_fn(|| followed.next_record().unwrap()));
                }
            }
        }
        assert_eq!(read, records, "{file_max}");
        assert!(followed.unwrap().stops().is_empty());
    }
}

/// What is read of these bytes, and why no more.
fn read_bytes(bytes: &[u8]) -> (Vec<Record>, Option<Stop>) {
    let Ok(mut reader) = FileReader::new(bytes, Path::new("test"), None) else {
        return (Vec::new(), None);
    };
    let records = std::iter::from_fn(|| reader.next_record()).collect();
    (records, reader.stopped().cloned())
}

proptest! {
    #[test]
    fn cut_anywhere_it_is_read_up_to_the_last_whole_frame(
        frames in prop::collection::vec(1..40_u64, 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let place = tempfile::tempdir().unwrap();
        let (path, _) = folder(place.path(), &frames, 1 << 30);
        let bytes = fs::read(&files_of(&path).unwrap()[0]).unwrap();
        let (whole, stop) = read_bytes(&bytes);
        prop_assert_eq!(stop, Some(Stop::End));
        let cut = HEAD_LEN + cut.index(bytes.len() - HEAD_LEN);
        let (part, stop) = read_bytes(&bytes[..cut]);
        prop_assert_eq!(&part[..], &whole[..part.len()]);
        // The frames: the head and the session are in the first.
        let mut begins = vec![0];
        for commands in &frames {
            begins.push(begins.last().unwrap() + commands + if begins.len() == 1 { 2 } else { 0 });
        }
        let is_boundary = begins.contains(&(part.len() as u64));
        prop_assert!(is_boundary, "{} records of {:?}", part.len(), begins);
        match stop {
            Some(Stop::End) => {}
            Some(Stop::Cut { at }) => prop_assert!(at <= cut as u64),
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn with_a_flipped_bit_nothing_is_read_that_was_not_written(
        frames in prop::collection::vec(1..40_u64, 1..6),
        at in any::<prop::sample::Index>(),
        bit in 0..8_u32,
    ) {
        let place = tempfile::tempdir().unwrap();
        let (path, _) = folder(place.path(), &frames, 1 << 30);
        let mut bytes = fs::read(&files_of(&path).unwrap()[0]).unwrap();
        let (whole, _) = read_bytes(&bytes);
        let at = HEAD_LEN + at.index(bytes.len() - HEAD_LEN);
        bytes[at] ^= 1 << bit;
        let (part, stop) = read_bytes(&bytes);
        prop_assert!(part.len() < whole.len());
        prop_assert_eq!(&part[..], &whole[..part.len()]);
        prop_assert_ne!(stop, Some(Stop::End));
    }
}
