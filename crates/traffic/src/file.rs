//! A folder of traffic on the disk: files of zstd frames, each with a length and a checksum, each with whole
//! records that have the same.
//!
//! A file begins with [`MAGIC`], the version and the file's number. What was written can be read up to the
//! last whole frame, whatever has ended the writer; behind a frame that is damaged nothing of its file is
//! read, and the next file is.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::record::{Head, Record};

/// The first bytes of each file.
pub const MAGIC: [u8; 16] = *b"forebay-traffic\n";
/// The version of the format, behind them.
pub const VERSION: u16 = 2;
/// Bytes of a file before its first frame: magic, version, two of no meaning, the file's number.
pub const HEAD_LEN: usize = 24;
/// Length and checksum, before a frame and before a record.
const PREFIX_LEN: usize = 8;
/// A frame is written once its records have so many bytes.
const FRAME_FULL: usize = 512 << 10;
/// The longest record.
pub const RECORD_MAX: usize = 4 << 20;
/// The longest frame, unpacked: one more record than it is full with.
const FRAME_MAX: usize = FRAME_FULL + RECORD_MAX + PREFIX_LEN;
/// Fast rather than small.
const LEVEL: i32 = 1;

/// Why a folder cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file system's no.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file or folder.
        path: PathBuf,
        /// What it says.
        source: io::Error,
    },
    /// It is not one of these files.
    #[error("{}: this is no file of captured traffic", .0.display())]
    Foreign(PathBuf),
    /// A later version has written it.
    #[error("{}: format {found}; this version reads up to {VERSION}", path.display())]
    Version {
        /// Which file.
        path: PathBuf,
        /// The version that it has.
        found: u16,
    },
    /// There is nothing to be read.
    #[error("{}: no files of captured traffic are there", .0.display())]
    Empty(PathBuf),
}

fn io_at(path: &Path) -> impl FnOnce(io::Error) -> FileError + '_ {
    |source| FileError::Io {
        path: path.to_owned(),
        source,
    }
}

/// Writes records into the files of a new folder.
pub struct FolderWriter {
    folder: PathBuf,
    head: Head,
    file: File,
    path: PathBuf,
    compressor: zstd::bulk::Compressor<'static>,
    /// Records of the frame that is not full yet.
    frame: Vec<u8>,
    packed: Vec<u8>,
    /// Bytes of the file so far.
    file_len: u64,
    file_max: u64,
    /// Bytes of all files so far.
    written: u64,
}

impl FolderWriter {
    /// Makes the folder, for this user alone, and its first file. `file_max`: from so many bytes on the next
    /// file is begun.
    ///
    /// # Errors
    /// The folder is there and not empty, or cannot be made.
    pub fn create(folder: &Path, head: Head, file_max: u64) -> Result<Self, FileError> {
        let made = DirBuilder::new().mode(0o700).create(folder);
        match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let mut entries = std::fs::read_dir(folder).map_err(io_at(folder))?;
                if entries.next().is_some() {
                    return Err(io_at(folder)(io::Error::other("the folder is not empty")));
                }
                let only_ours = std::os::unix::fs::PermissionsExt::from_mode(0o700);
                std::fs::set_permissions(folder, only_ours).map_err(io_at(folder))?;
            }
            made => made.map_err(io_at(folder))?,
        }
        let mut head = head;
        head.file = 1;
        let (file, path) = begin_file(folder, 1)?;
        let compressor = zstd::bulk::Compressor::new(LEVEL).map_err(io_at(folder))?;
        let mut writer = Self {
            folder: folder.to_owned(),
            head,
            file,
            path,
            compressor,
            frame: Vec::with_capacity(FRAME_FULL + 4096),
            packed: Vec::new(),
            file_len: HEAD_LEN as u64,
            file_max,
            written: HEAD_LEN as u64,
        };
        writer.put_head()?;
        Ok(writer)
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Bytes that were written to the disk.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Adds a record. It is on the disk after [`flush`](Self::flush), or once its frame is full.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn put(&mut self, record: &Record) -> Result<(), FileError> {
        let at = self.frame.len();
        self.frame.extend_from_slice(&[0; PREFIX_LEN]);
        record.encode(&mut self.frame);
        let len = self.frame.len() - at - PREFIX_LEN;
        if len > RECORD_MAX {
            self.frame.truncate(at);
            return Err(io_at(&self.path)(io::Error::other("a record is too long")));
        }
        let sum = crc32fast::hash(&self.frame[at + PREFIX_LEN..]);
        self.frame[at..at + 4].copy_from_slice(&(len as u32).to_le_bytes());
        self.frame[at + 4..at + PREFIX_LEN].copy_from_slice(&sum.to_le_bytes());
        match self.frame.len() >= FRAME_FULL {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Writes the frame that is not full.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn flush(&mut self) -> Result<(), FileError> {
        if self.frame.is_empty() {
            return Ok(());
        }
        self.packed.clear();
        self.packed
            .resize(PREFIX_LEN + zstd::zstd_safe::compress_bound(self.frame.len()), 0);
        let len = self
            .compressor
            .compress_to_buffer(&self.frame, &mut self.packed[PREFIX_LEN..])
            .map_err(io_at(&self.path))?;
        self.packed.truncate(PREFIX_LEN + len);
        let sum = crc32fast::hash(&self.packed[PREFIX_LEN..]);
        self.packed[..4].copy_from_slice(&(len as u32).to_le_bytes());
        self.packed[4..PREFIX_LEN].copy_from_slice(&sum.to_le_bytes());
        self.file.write_all(&self.packed).map_err(io_at(&self.path))?;
        self.frame.clear();
        self.file_len += self.packed.len() as u64;
        self.written += self.packed.len() as u64;
        match self.file_len >= self.file_max {
            true => self.rotate(),
            false => Ok(()),
        }
    }

    fn rotate(&mut self) -> Result<(), FileError> {
        self.head.file += 1;
        (self.file, self.path) = begin_file(&self.folder, self.head.file)?;
        self.file_len = HEAD_LEN as u64;
        self.written += HEAD_LEN as u64;
        self.put_head()
    }

    fn put_head(&mut self) -> Result<(), FileError> {
        self.put(&Record::Head(Box::new(self.head.clone())))
    }

    /// Writes what is left, and waits until the disk has it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(mut self) -> Result<u64, FileError> {
        self.flush()?;
        self.file.sync_all().map_err(io_at(&self.path))?;
        Ok(self.written)
    }
}

fn begin_file(folder: &Path, number: u32) -> Result<(File, PathBuf), FileError> {
    let path = folder.join(format!("traffic-{number:06}.fbt"));
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path);
    let mut file = file.map_err(io_at(&path))?;
    let mut head = Vec::with_capacity(HEAD_LEN);
    head.extend_from_slice(&MAGIC);
    head.extend_from_slice(&VERSION.to_le_bytes());
    head.extend_from_slice(&[0; 2]);
    head.extend_from_slice(&number.to_le_bytes());
    file.write_all(&head).map_err(io_at(&path))?;
    Ok((file, path))
}

/// Why no more was read of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// It has ended behind a whole frame.
    End,
    /// It has ended within a frame: whoever wrote it was killed, or writes it still.
    Cut {
        /// Bytes up to there that are whole.
        at: u64,
    },
    /// What is there is not what was written.
    Damaged {
        /// Where the frame begins.
        at: u64,
        /// What is wrong.
        why: String,
    },
}

/// Reads the frames of one file.
pub struct FileReader<R> {
    source: R,
    /// Where the next frame begins.
    at: u64,
    packed: Vec<u8>,
    /// Records of the frame that was read last, and how far they were given out.
    frame: Vec<u8>,
    next: usize,
    stopped: Option<Stop>,
}

impl<R: Read> FileReader<R> {
    /// `source`: the whole file. `path`: its name, for errors.
    ///
    /// # Errors
    /// It is no such file, or one of a later version.
    pub fn new(mut source: R, path: &Path) -> Result<Self, FileError> {
        let mut head = [0; HEAD_LEN];
        match source.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(FileError::Foreign(path.to_owned()));
            }
            read => read.map_err(io_at(path))?,
        }
        if head[..MAGIC.len()] != MAGIC {
            return Err(FileError::Foreign(path.to_owned()));
        }
        let found = u16::from_le_bytes([head[16], head[17]]);
        if found == 0 || found > VERSION {
            return Err(FileError::Version {
                path: path.to_owned(),
                found,
            });
        }
        Ok(Self {
            source,
            at: HEAD_LEN as u64,
            packed: Vec::new(),
            frame: Vec::new(),
            next: 0,
            stopped: None,
        })
    }

    /// Why nothing more comes; `None` as long as something may.
    #[must_use]
    pub fn stopped(&self) -> Option<&Stop> {
        self.stopped.as_ref()
    }

    /// The next record; `None` where there is no other.
    pub fn next_record(&mut self) -> Option<Record> {
        loop {
            if self.stopped.is_some() {
                return None;
            }
            if self.next >= self.frame.len() {
                let begun_at = self.at;
                if let Err(stop) = self.read_frame() {
                    self.stopped = Some(match stop {
                        Stop::Damaged { why, .. } => Stop::Damaged { at: begun_at, why },
                        Stop::Cut { .. } => Stop::Cut { at: begun_at },
                        Stop::End => Stop::End,
                    });
                    return None;
                }
            }
            match self.record() {
                Ok(Some(record)) => return Some(record),
                Ok(None) => {}
                Err(why) => {
                    self.stopped = Some(Stop::Damaged { at: self.at, why });
                    return None;
                }
            }
        }
    }

    /// The next record of the frame; `None` for one of a kind that is not known.
    fn record(&mut self) -> Result<Option<Record>, String> {
        let rest = &self.frame[self.next..];
        let (prefix, rest) = rest
            .split_first_chunk::<PREFIX_LEN>()
            .ok_or("a record is cut short")?;
        let (len, sum) = lengths(*prefix);
        let record = rest.get(..len).ok_or("a record is cut short")?;
        if crc32fast::hash(record) != sum {
            return Err("a record has another checksum".to_owned());
        }
        self.next += PREFIX_LEN + len;
        Record::decode(record).map_err(|error| error.to_string())
    }

    fn read_frame(&mut self) -> Result<(), Stop> {
        let damaged = |why: &str| Stop::Damaged {
            at: 0,
            why: why.to_owned(),
        };
        let mut prefix = [0; PREFIX_LEN];
        match read_up_to(&mut self.source, &mut prefix) {
            Ok(0) => return Err(Stop::End),
            Ok(PREFIX_LEN) => {}
            Ok(_) => return Err(Stop::Cut { at: 0 }),
            Err(error) => return Err(damaged(&error.to_string())),
        }
        let (len, sum) = lengths(prefix);
        if len == 0 || len > zstd::zstd_safe::compress_bound(FRAME_MAX) {
            return Err(damaged("a frame has a length that none has"));
        }
        self.packed.clear();
        // The memory follows what is there: a length that is only said costs nothing.
        let read = (&mut self.source).take(len as u64).read_to_end(&mut self.packed);
        match read {
            Ok(read) if read == len => {}
            Ok(_) => return Err(Stop::Cut { at: 0 }),
            Err(error) => return Err(damaged(&error.to_string())),
        }
        if crc32fast::hash(&self.packed) != sum {
            return Err(damaged("a frame has another checksum"));
        }
        let size = zstd::zstd_safe::get_frame_content_size(&self.packed);
        let size = size.ok().flatten().filter(|&size| size <= FRAME_MAX as u64);
        let size = size.ok_or_else(|| damaged("a frame is too long"))?;
        self.frame = zstd::bulk::decompress(&self.packed, size as usize)
            .map_err(|error| damaged(&format!("a frame cannot be unpacked: {error}")))?;
        self.next = 0;
        self.at += (PREFIX_LEN + len) as u64;
        Ok(())
    }
}

fn lengths(prefix: [u8; PREFIX_LEN]) -> (usize, u32) {
    let [a, b, c, d, e, f, g, h] = prefix;
    (
        u32::from_le_bytes([a, b, c, d]) as usize,
        u32::from_le_bytes([e, f, g, h]),
    )
}

/// Fills the buffer as far as there is something; returns how far.
fn read_up_to(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Reads all files of a folder, one after the other.
pub struct Folder {
    files: std::vec::IntoIter<PathBuf>,
    current: Option<(PathBuf, FileReader<BufReader<File>>)>,
    /// Files that have ended in another way than they should.
    stops: Vec<(PathBuf, Stop)>,
    head: Head,
}

impl Folder {
    /// Opens a folder, or one file of it, and reads its head.
    ///
    /// # Errors
    /// It has no such file, or the first cannot be read.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let files = files_of(path)?;
        let first = files.first().ok_or_else(|| FileError::Empty(path.to_owned()))?;
        let mut reader = open_file(first)?;
        let head = match reader.next_record() {
            Some(Record::Head(head)) => *head,
            // A capture that was killed before its first frame has none.
            None => Head::default(),
            Some(_) => return Err(FileError::Foreign(first.clone())),
        };
        Ok(Self {
            files: files.into_iter(),
            current: None,
            stops: Vec::new(),
            head,
        })
    }

    /// How it began.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The next record but for heads.
    ///
    /// # Errors
    /// A file cannot be opened. One that is cut or damaged is no error: see [`stops`](Self::stops).
    pub fn next_record(&mut self) -> Result<Option<Record>, FileError> {
        loop {
            if self.current.is_none() {
                let Some(path) = self.files.next() else {
                    return Ok(None);
                };
                let reader = open_file(&path)?;
                self.current = Some((path, reader));
            }
            let Some((path, reader)) = &mut self.current else {
                continue;
            };
            match reader.next_record() {
                Some(Record::Head(_)) => {}
                Some(record) => return Ok(Some(record)),
                None => {
                    let stop = reader.stopped().cloned().unwrap_or(Stop::End);
                    if stop != Stop::End {
                        self.stops.push((path.clone(), stop));
                    }
                    self.current = None;
                }
            }
        }
    }

    /// Files of which not all could be read, so far.
    #[must_use]
    pub fn stops(&self) -> &[(PathBuf, Stop)] {
        &self.stops
    }
}

/// The files of a folder in their order.
///
/// # Errors
/// The folder cannot be read.
pub fn files_of(path: &Path) -> Result<Vec<PathBuf>, FileError> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(io_at(path))? {
        let entry = entry.map_err(io_at(path))?.path();
        if entry.extension().is_some_and(|extension| extension == "fbt") {
            files.push(entry);
        }
    }
    files.sort();
    Ok(files)
}

fn open_file(path: &Path) -> Result<FileReader<BufReader<File>>, FileError> {
    let file = File::open(path).map_err(io_at(path))?;
    FileReader::new(BufReader::with_capacity(1 << 16, file), path)
}
