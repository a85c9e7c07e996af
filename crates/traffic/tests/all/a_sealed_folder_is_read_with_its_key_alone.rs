//! With a key nothing can be read without it, and nothing that was changed, exchanged or left out is taken
//! for what was written.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use traffic::compare::compare;
use traffic::export::{By, Wanted, export};
use traffic::file::{FileReader, HEAD_LEN, files_of};
use traffic::record::{CommandRecord, Head, Record};
use traffic::replay::{self, Permitted, Selection};
use traffic::{FileError, Folder, FolderWriter, Key, Stop};

const WORDS: &str = "SELECT 'a word that nobody is to find'";

fn key(place: &Path, name: &str) -> Key {
    let file = place.join(name);
    Key::make(&file).unwrap();
    Key::read(&file).unwrap()
}

/// A folder of frames of one command each.
fn folder(place: &Path, name: &str, key: &Key, file_max: u64) -> PathBuf {
    let path = place.join(name);
    let mut writer = FolderWriter::create(&path, Head::default(), file_max, Some(key)).unwrap();
    writer.flush().unwrap();
    for number in 0..4 {
        let command = CommandRecord {
            number,
            body: WORDS.into(),
            ..CommandRecord::default()
        };
        writer.put(&Record::Command(Box::new(command))).unwrap();
        writer.flush().unwrap();
    }
    writer.finish().unwrap();
    path
}

/// The numbers of the commands that are read of one file, and why no more.
fn read(bytes: &[u8], key: &Key) -> Result<(Vec<u64>, Stop), FileError> {
    let mut reader = FileReader::new(bytes, Path::new("test"), Some(key))?;
    let mut numbers = Vec::new();
    while let Some(record) = reader.next_record() {
        if let Record::Command(command) = record {
            assert_eq!(command.body, WORDS.as_bytes());
            numbers.push(command.number);
        }
    }
    Ok((numbers, reader.stopped().cloned().unwrap()))
}

/// Where each frame begins, and where the last one ends.
fn frames(bytes: &[u8]) -> Vec<usize> {
    let mut at = HEAD_LEN;
    let mut frames = vec![at];
    while let Some(len) = bytes[at..].first_chunk::<4>() {
        at += 8 + u32::from_le_bytes(*len) as usize;
        frames.push(at);
    }
    frames
}

/// The version is a part of what the proof is made of, so that a file cannot be made one of before.
#[test]
fn a_file_of_version_3_is_sealed_as_its_flag_says() {
    let place = tempfile::tempdir().unwrap();
    let key = key(place.path(), "key");
    let path = folder(place.path(), "captured", &key, 1 << 20);
    let mut bytes = fs::read(&files_of(&path).unwrap()[0]).unwrap();
    bytes[16] = 3;
    let opened = |key| FileReader::new(&bytes[..], Path::new("test"), key).map(drop);
    assert!(matches!(opened(None), Err(FileError::NoKey(_))));
    assert!(matches!(opened(Some(&key)), Err(FileError::OtherKey(_))));
}

#[test]
fn another_key_and_none_are_told_apart() {
    let place = tempfile::tempdir().unwrap();
    let (right, wrong) = (key(place.path(), "right"), key(place.path(), "wrong"));
    let path = folder(place.path(), "captured", &right, 1);
    assert!(files_of(&path).unwrap().len() > 3);
    let mut all = Folder::open(&path, Some(&right)).unwrap();
    let count = std::iter::from_fn(|| all.next_record().unwrap()).count();
    assert_eq!((count, all.stops()), (4, &[][..]));
    assert!(matches!(Folder::open(&path, None), Err(FileError::NoKey(_))));
    assert!(matches!(
        Folder::open(&path, Some(&wrong)),
        Err(FileError::OtherKey(_))
    ));
}

#[test]
fn frames_are_neither_exchanged_nor_left_out() {
    let place = tempfile::tempdir().unwrap();
    let key = key(place.path(), "key");
    let file_of = |name: &str| {
        let path = folder(place.path(), name, &key, 1 << 30);
        fs::read(&files_of(&path).unwrap()[0]).unwrap()
    };
    let (one, other) = (file_of("one"), file_of("other"));
    let at = frames(&one);
    assert_eq!(read(&one, &key).unwrap(), (vec![0, 1, 2, 3], Stop::End));
    // The head's frame is the first, so that command 1 is the third one.
    let without = [&one[..at[2]], &one[at[3]..]].concat();
    let twice = [&one[..at[3]], &one[at[2]..]].concat();
    let exchanged = [&one[..at[2]], &other[at[2]..]].concat();
    for (changed, numbers) in [(without, vec![0]), (twice, vec![0, 1]), (exchanged, vec![0])] {
        let (read, stop) = read(&changed, &key).unwrap();
        assert_eq!(read, numbers);
        assert!(matches!(stop, Stop::Damaged { .. }), "{stop:?}");
    }
    // Nor do they pass as frames of a file that is not sealed, or of another number.
    for (byte, value) in [(18, 0), (20, 2), (16, 2), (24, !one[24]), (40, !one[40])] {
        let mut changed = one.clone();
        changed[byte] = value;
        let read = read(&changed, &key);
        let is_refused = match &read {
            Err(FileError::OtherKey(_) | FileError::NotSealed(_)) => true,
            Ok((numbers, Stop::Damaged { .. })) => numbers.is_empty(),
            _ => false,
        };
        assert!(is_refused, "byte {byte}: {read:?}");
    }
}

#[test]
fn no_word_is_in_the_files() {
    let place = tempfile::tempdir().unwrap();
    let key = key(place.path(), "key");
    let path = folder(place.path(), "captured", &key, 1 << 30);
    let bytes = fs::read(&files_of(&path).unwrap()[0]).unwrap();
    for pair in frames(&bytes).windows(2) {
        assert!(zstd::bulk::decompress(&bytes[pair[0] + 8..pair[1]], 1 << 20).is_err());
    }
    let words = WORDS.as_bytes();
    assert!(
        !bytes
            .windows(8)
            .any(|part| words.windows(8).any(|word| word == part))
    );
}

/// Another file in the place of one that is sealed, or behind the last one.
#[test]
fn a_file_that_is_not_sealed_is_refused_where_a_key_is_given() {
    let place = tempfile::tempdir().unwrap();
    let key = key(place.path(), "key");
    let path = folder(place.path(), "captured", &key, 1);
    let plain = place.path().join("plain");
    FolderWriter::create(&plain, Head::default(), 1 << 20, None)
        .unwrap()
        .finish()
        .unwrap();
    let forged = files_of(&plain).unwrap().remove(0);
    let opened = Folder::open(&plain, Some(&key)).map(|_| ());
    assert!(matches!(opened, Err(FileError::NotSealed(_))));
    assert!(Folder::open_one_of_several(&plain, Some(&key)).is_ok());
    let files = files_of(&path).unwrap();
    // With the right number and the folder's id.
    let mut bytes = fs::read(&forged).unwrap();
    let sealed = fs::read(&files[2]).unwrap();
    bytes[20..40].copy_from_slice(&sealed[20..40]);
    let mut of_before = bytes.clone();
    of_before.drain(24..HEAD_LEN);
    of_before[16] = 2;
    for forged in [bytes, of_before] {
        fs::write(&files[2], forged).unwrap();
        let mut all = Folder::open_one_of_several(&path, Some(&key)).unwrap();
        let failed = std::iter::repeat_with(|| all.next_record()).find_map(Result::err);
        assert!(matches!(failed, Some(FileError::NotSealed(_))), "{failed:?}");
    }
}

#[test]
fn an_end_that_is_cut_off_is_told() {
    let place = tempfile::tempdir().unwrap();
    let key = key(place.path(), "key");
    let path = place.path().join("captured");
    let mut writer = FolderWriter::create(&path, Head::default(), 1, Some(&key)).unwrap();
    writer.put(&Record::Command(Box::default())).unwrap();
    writer.flush().unwrap();
    writer.put(&Record::End(Box::default())).unwrap();
    writer.finish().unwrap();
    let told = || -> [Vec<String>; 3] {
        let wanted = Wanted {
            by: By::Time,
            session: None,
            permitted: Permitted::default(),
        };
        let mut out = Vec::new();
        export(&path, Some(&key), wanted, &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        let exported = out.lines().filter(|line| line.contains("its end is missing"));
        let survey = replay::survey(
            &path,
            Some(&key),
            Permitted::default(),
            &Selection::default(),
            None,
        );
        let compared = compare(&path, &[&path], Some(&key)).unwrap();
        [
            exported.map(str::to_owned).collect(),
            survey.unwrap().stops,
            compared.b.stops,
        ]
    };
    assert_eq!(told(), [const { Vec::<String>::new() }; 3]);
    // The end has a file of its own.
    for file in &files_of(&path).unwrap()[1..] {
        fs::remove_file(file).unwrap();
    }
    for told in told() {
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("its end is missing"), "{told:?}");
    }
}

proptest! {
    #[test]
    fn with_a_flipped_bit_nothing_is_read_that_was_not_written(at in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let place = tempfile::tempdir().unwrap();
        let key = key(place.path(), "key");
        let path = folder(place.path(), "captured", &key, 1 << 30);
        let mut bytes = fs::read(&files_of(&path).unwrap()[0]).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Ok((numbers, stop)) = read(&bytes, &key) {
            prop_assert!(numbers.len() < 4, "byte {}", at);
            prop_assert_eq!(&numbers[..], &[0, 1, 2, 3][..numbers.len()]);
            prop_assert_ne!(stop, Stop::End);
        }
    }
}
