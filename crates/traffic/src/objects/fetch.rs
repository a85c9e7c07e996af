//! Brings a folder from an object store to the disk.

use std::io::Write;
use std::path::Path;

use super::{Location, MARKER, Marker, Objects, ObjectsError, hexadecimal};
use crate::file::{Plate, io_at, make_folder, name_of};
use crate::record::plain;
use crate::seal::private_file;

/// So much is asked for at a time.
const PART: u64 = 8 << 20;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    pub files: usize,
    pub bytes: u64,
    /// What should be there and is not, in words. Empty where the folder is whole.
    pub missing: Vec<String>,
}

/// Brings the folder at `from` into a new folder, or an empty one, for this user alone. `progress` is told
/// how many bytes are there, and how many there will be.
///
/// # Errors
/// Nothing is there, files of several folders are, the folder has something already, or the store does not
/// give it. What was brought up to then stays.
pub fn fetch(
    from: &Location,
    to: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Fetched, ObjectsError> {
    let objects = Objects::open(from)?;
    let marker = objects.marker()?;
    let found = objects.files()?;
    if found.is_empty() {
        return Err(ObjectsError::Empty(from.clone()));
    }
    make_folder(to)?;
    let total = found.iter().map(|(_, size)| size).sum();
    let mut fetched = Fetched {
        files: found.len(),
        bytes: 0,
        missing: missing(&found, marker.as_ref()),
    };
    let mut id = marker.map(|marker| marker.folder);
    for (name, size) in &found {
        let path = to.join(name);
        objects.bring(name, *size, &path, &mut |more| {
            fetched.bytes += more;
            progress(fetched.bytes, total);
        })?;
        let plate = Plate::read(&path)?;
        let its = hexadecimal(plate.id.as_ref().map_or(&[], |id| &id[..]));
        if name_of(plate.number) != *name || *id.get_or_insert_with(|| its.clone()) != its {
            return Err(ObjectsError::Wrong {
                object: objects.object(name),
                why: "this file belongs to another folder, or to another place in it".to_owned(),
            });
        }
    }
    Ok(fetched)
}

/// Missing files that are named. How many there should be is said by whoever may write to the store.
const NAMED_MAX: usize = 10;
/// The longest text of a marker that is shown, in letters.
const SHOWN_MAX: usize = 300;

/// Files that a prefix should have and has not, in words.
pub(super) fn missing(found: &[(String, u64)], marker: Option<&Marker>) -> Vec<String> {
    let mut missing = Vec::new();
    let numbers: Vec<u32> = found.iter().filter_map(|(name, _)| number_of(name)).collect();
    let bytes: u64 = found.iter().map(|(_, size)| size).sum();
    let whole = marker.and_then(|marker| marker.whole);
    let last = numbers.last().copied().unwrap_or(0);
    let last = last.max(whole.map_or(0, |whole| whole.files));
    let lacking = (1..=last).filter(|number| numbers.binary_search(number).is_err());
    missing.extend(
        lacking
            .take(NAMED_MAX)
            .map(|number| format!("{} is not there", name_of(number))),
    );
    let more = (last as usize).saturating_sub(numbers.len() + missing.len());
    if more > 0 {
        missing.push(format!("{more} more are not there"));
    }
    match (marker, whole) {
        (Some(_), Some(whole)) if missing.is_empty() && whole.bytes != bytes => {
            missing.push(format!("the files have {bytes} bytes, and should have {}", whole.bytes));
        }
        (Some(_), Some(_)) => {}
        (Some(marker), None) => missing.push(format!(
            "more may come: the capture goes on, or has ended without the store; what is not here lies in {} on {}",
            plain(marker.spool.display().to_string().as_bytes(), SHOWN_MAX),
            plain(marker.machine.as_bytes(), SHOWN_MAX)
        )),
        (None, _) => missing.push(format!("{MARKER}, which says how many files there are, is not there")),
    }
    missing
}

pub(super) fn number_of(name: &str) -> Option<u32> {
    let number = name.strip_prefix("traffic-")?.strip_suffix(".fbt")?;
    let number = number.parse().ok()?;
    (name_of(number) == name).then_some(number)
}

impl Objects {
    /// The files of a folder that are there, with their sizes, in their order.
    pub(super) fn files(&self) -> Result<Vec<(String, u64)>, ObjectsError> {
        let mut files = self.client.list()?;
        files.retain(|(name, _)| number_of(name).is_some());
        files.sort_by_key(|(name, _)| number_of(name));
        Ok(files)
    }

    /// Writes one object into a new file.
    fn bring(
        &self,
        name: &str,
        size: u64,
        path: &Path,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), ObjectsError> {
        let mut file = private_file(path).map_err(io_at(path))?;
        let mut at = 0;
        while at < size {
            let part = self.client.get_range(name, at..size.min(at + PART))?;
            if part.is_empty() {
                return Err(ObjectsError::Wrong {
                    object: self.object(name),
                    why: format!("it ends after {at} bytes of {size}"),
                });
            }
            file.write_all(&part).map_err(io_at(path))?;
            at += part.len() as u64;
            progress(part.len() as u64);
        }
        Ok(())
    }
}
