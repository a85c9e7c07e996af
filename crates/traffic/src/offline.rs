//! Folders that nobody writes: which there are, whether they are whole, what they say.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::file::{FileError, Folder, Stop, files_of, io_at};
use crate::record::{End, Head, Record};
use crate::seal::Key;

/// What a folder has.
#[derive(Debug, Default)]
pub struct Summary {
    pub head: Head,
    pub end: Option<End>,
    pub files: usize,
    pub bytes: u64,
    pub commands: u64,
    pub sessions: u64,
    /// Sessions of which only the beginning is there.
    pub thinned: u64,
    /// Commands that are there as a digest alone.
    pub withheld: u64,
    /// From the beginning to the end of the last command.
    pub length: Duration,
    /// Commands by user.
    pub users: BTreeMap<String, u64>,
    /// What could not be read, in words.
    pub stops: Vec<String>,
}

/// Reads all of a folder. `key`: with which it is sealed.
///
/// # Errors
/// It cannot be read at all. What is cut or damaged is in the summary.
pub fn summary(path: &Path, key: Option<&Key>) -> Result<Summary, FileError> {
    let files = files_of(path)?;
    let bytes = files
        .iter()
        .filter_map(|file| Some(file.metadata().ok()?.len()))
        .sum();
    let mut folder = Folder::open(path, key)?;
    let mut summary = Summary {
        head: folder.head().clone(),
        files: files.len(),
        bytes,
        ..Summary::default()
    };
    let mut users: std::collections::HashMap<u32, String> = std::collections::HashMap::new();
    while let Some(record) = folder.next_record()? {
        match record {
            Record::Session(session) => {
                if users.insert(session.id, session.user).is_none() {
                    summary.sessions += 1;
                }
            }
            Record::Command(command) => {
                summary.commands += 1;
                summary.withheld += u64::from(command.flags.has(crate::record::Flags::WITHHELD));
                let end = Duration::from_micros(command.start_us.saturating_add(command.took_us));
                summary.length = summary.length.max(end);
                let user = users.get(&command.session).cloned().unwrap_or_default();
                *summary.users.entry(user).or_default() += 1;
            }
            Record::Thinned { .. } => summary.thinned += 1,
            Record::End(end) => summary.end = Some(*end),
            Record::Head(_) | Record::Result(_) => {}
        }
    }
    summary.stops = stops_of_files(&folder);
    Ok(summary)
}

/// The files of a folder that could not be read to their end, and whether it has none.
pub(crate) fn stops_in_words(folder: &Folder) -> Vec<String> {
    let mut stops = stops_of_files(folder);
    if folder.lacks_end() {
        let path = folder.path().display();
        stops.push(format!("{path}: its end is missing, and maybe more before it"));
    }
    stops
}

fn stops_of_files(folder: &Folder) -> Vec<String> {
    let words = |(path, stop): &(PathBuf, Stop)| match stop {
        Stop::End => String::new(),
        Stop::Cut { at } => format!("{}: ends within a frame, behind byte {at}", path.display()),
        Stop::Damaged { at, why } => format!("{}: {why}, from byte {at} on", path.display()),
    };
    folder.stops().iter().map(words).collect()
}

/// The folders with captured traffic in this one, or itself.
pub fn folders(path: &Path) -> Result<Vec<PathBuf>, FileError> {
    if !files_of(path)?.is_empty() {
        return Ok(vec![path.to_owned()]);
    }
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(path).map_err(io_at(path))? {
        let entry = entry.map_err(io_at(path))?.path();
        if entry.is_dir() && files_of(&entry).is_ok_and(|files| !files.is_empty()) {
            folders.push(entry);
        }
    }
    folders.sort();
    Ok(folders)
}
