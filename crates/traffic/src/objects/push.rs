//! Brings a folder from the disk to an object store: what a capture has left behind, or any other.

use std::path::Path;

use super::fetch::{missing, number_of};
use super::{Location, Marker, Objects, ObjectsError, Whole};
use crate::file::{FileError, HEAD_LEN, Plate, files_of, name_of};

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Pushed {
    pub files: usize,
    pub bytes: u64,
    /// What is not there of the folder, in words. Empty where it is whole.
    pub missing: Vec<String>,
}

/// Sends the files of a folder that nobody writes to `to`, beside those of the same folder that are there.
/// They stay where they are. `progress` is told how many files are there, and how many there will be.
pub fn push(
    folder: &Path,
    to: &Location,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Pushed, ObjectsError> {
    let mut files = files_of(folder)?;
    // Whoever wrote it was killed before the file had a head.
    files.pop_if(|last| last.metadata().is_ok_and(|file| file.len() < HEAD_LEN as u64));
    let first = files.first().ok_or_else(|| FileError::Empty(folder.to_owned()))?;
    let plate = Plate::read(first)?;
    let id = plate.id.ok_or_else(|| ObjectsError::Wrong {
        object: first.display().to_string(),
        why: "files of an earlier format have no id by which their folder is known".to_owned(),
    })?;
    let objects = Objects::open(to)?;
    let mut marker = Marker::new(&id, folder);
    objects.claim(&marker)?;
    let mut pushed = Pushed::default();
    for (number, file) in files.iter().enumerate() {
        progress(number, files.len());
        let plate = Plate::read(file)?;
        if plate.id != Some(id) {
            return Err(FileError::OtherFolder(file.clone()).into());
        }
        pushed.bytes += objects.client.put_file(&name_of(plate.number), file)?;
        pushed.files += 1;
    }
    let found = objects.files()?;
    let last = found.last().and_then(|(name, _)| number_of(name));
    marker.whole = last.map(|files| Whole {
        files,
        bytes: found.iter().map(|(_, size)| size).sum(),
    });
    pushed.missing = missing(&found, Some(&marker));
    if pushed.missing.is_empty() {
        objects.complete(&marker)?;
    }
    Ok(pushed)
}
