//! A folder of traffic on the disk: files of zstd frames, each with a length and a checksum, each with whole
//! records that have the same.
//!
//! A file begins with [`MAGIC`], the version, the file's number, an id that all files of a folder have, and
//! one that no other file has.
//! What was written can be read up to the last whole frame, whatever has ended the writer; behind a frame
//! that is damaged nothing of its file is read, and the next file is. With a key each frame is sealed
//! ([`crate::seal`]).

use std::fs::{DirBuilder, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::record::{FILES_MAX, Head, Record};
use crate::seal::{ID_LEN, Key, Sealer, TAG_LEN, private_file};

/// The first bytes of each file.
pub const MAGIC: [u8; 16] = *b"forebay-traffic\n";
/// The version of the format, behind them. Version 3 had no files of commands, and is sealed as this one is.
pub const VERSION: u16 = 4;
/// Bytes of a file before its first frame: what version 2 has, the ids of the folder and of the file, the
/// proof of the key.
pub const HEAD_LEN: usize = SIGNED_HEAD_LEN + TAG_LEN;
/// All of it but the proof.
const SIGNED_HEAD_LEN: usize = PLAIN_HEAD_LEN + 2 * ID_LEN;
/// The same of version 2: magic, version, flags, the file's number.
const PLAIN_HEAD_LEN: usize = 24;
/// A flag of the head: frames are sealed.
const SEALED: u16 = 1;
/// Length and checksum, before a frame and before a record.
const PREFIX_LEN: usize = 8;
/// A frame is written once its records have so many bytes.
const FRAME_FULL: usize = 512 << 10;
/// The longest record: a command with its files.
pub const RECORD_MAX: usize = FILES_MAX + (4 << 20);
/// The longest frame, unpacked: one more record than it is full with.
const FRAME_MAX: usize = FRAME_FULL + RECORD_MAX + PREFIX_LEN;
/// Bytes of memory that a writer keeps for its frames. A record with files has more, once in a while.
const KEPT_MAX: usize = 4 << 20;
/// Fast rather than small.
const LEVEL: i32 = 1;

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: this is no file of captured traffic", .0.display())]
    Foreign(PathBuf),
    #[error("{}: format {found}; this version reads up to {VERSION}", path.display())]
    Version { path: PathBuf, found: u16 },
    #[error("{}: it is encrypted: --key-file FILE names the key", .0.display())]
    NoKey(PathBuf),
    #[error("{}: it is not encrypted, and a key was given: anybody may have written it", .0.display())]
    NotSealed(PathBuf),
    #[error("{}: it was encrypted with another key, or its head was changed", .0.display())]
    OtherKey(PathBuf),
    #[error("{}: this file belongs to another folder than the first one here, or to another place in it", .0.display())]
    OtherFolder(PathBuf),
    #[error("{}: no files of captured traffic are there", .0.display())]
    Empty(PathBuf),
}

pub(crate) fn io_at(path: &Path) -> impl FnOnce(io::Error) -> FileError + '_ {
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
    /// The frame before it, as long as it is not on the disk.
    packed: Vec<u8>,
    /// Bytes of whole frames in the file so far, and since when it has more than its head.
    file_len: u64,
    has_records_since: Option<Instant>,
    file_max: u64,
    /// Bytes of all files so far.
    written: u64,
    id: [u8; ID_LEN],
    key: Option<Key>,
    /// Of the present file.
    sealer: Option<Sealer>,
}

impl FolderWriter {
    /// Makes the folder, for this user alone, and its first file. `file_max`: from so many bytes on the next
    /// file is begun. `key`: what is written is sealed with it.
    ///
    /// # Errors
    /// The folder is there and not empty, belongs to another user, or cannot be made.
    pub fn create(folder: &Path, head: Head, file_max: u64, key: Option<&Key>) -> Result<Self, FileError> {
        make_folder(folder)?;
        let head = Head { file: 1, ..head };
        Self::begin(folder, head, random_id(folder)?, file_max, key)
    }

    /// Goes on in a folder that [`mend`] has seen, with another file.
    pub(crate) fn resume(folder: &Path, file_max: u64, key: Option<&Key>) -> Result<Self, FileError> {
        let mut head = Folder::open(folder, key)?.head().clone();
        let last = files_of(folder)?.pop();
        let last = last.ok_or_else(|| FileError::Empty(folder.to_owned()))?;
        let reader = open_file(&last, key)?;
        let id = reader.id.ok_or(FileError::Foreign(last))?;
        head.file = reader.number + 1;
        Self::begin(folder, head, id, file_max, key)
    }

    /// Begins the file whose number the head says.
    fn begin(
        folder: &Path,
        head: Head,
        id: [u8; ID_LEN],
        file_max: u64,
        key: Option<&Key>,
    ) -> Result<Self, FileError> {
        let (file, path, sealer) = begin_file(folder, head.file, &id, key)?;
        let mut writer = Self {
            folder: folder.to_owned(),
            head,
            file,
            path,
            compressor: zstd::bulk::Compressor::new(LEVEL).map_err(io_at(folder))?,
            frame: Vec::with_capacity(FRAME_FULL + 4096),
            packed: Vec::new(),
            file_len: HEAD_LEN as u64,
            has_records_since: None,
            file_max,
            written: HEAD_LEN as u64,
            id,
            key: key.cloned(),
            sealer,
        };
        writer.put_head()?;
        Ok(writer)
    }

    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Takes the folder off the disk again, with its first file: nothing was to be written into it after all.
    pub(crate) fn take_back(&self) {
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_dir(&self.folder);
    }

    /// The id that all of its files have.
    pub(crate) fn id(&self) -> &[u8; ID_LEN] {
        &self.id
    }

    /// Bytes that were written to the disk.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Adds a record. It is on the disk after [`flush`](Self::flush), or once its frame is full.
    pub fn put(&mut self, record: &Record) -> Result<(), FileError> {
        // The frame is full where it could not be written before.
        if self.frame.len() >= FRAME_FULL {
            self.flush()?;
        }
        let at = self.frame.len();
        self.frame.extend_from_slice(&[0; PREFIX_LEN]);
        record.encode(&mut self.frame);
        let len = self.frame.len() - at - PREFIX_LEN;
        if len > RECORD_MAX {
            self.frame.truncate(at);
            return Err(io_at(&self.path)(io::Error::other("a record is too long")));
        }
        if !matches!(record, Record::Head(_)) {
            self.has_records_since.get_or_insert_with(Instant::now);
        }
        fill_prefix(&mut self.frame[at..]);
        match self.frame.len() >= FRAME_FULL {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Writes the frame that is not full. After an error the next call writes the same frame again first.
    pub fn flush(&mut self) -> Result<(), FileError> {
        self.write_packed()?;
        if !self.frame.is_empty() {
            self.pack()?;
            self.write_packed()?;
        }
        match self.file_len >= self.file_max {
            true => self.rotate(),
            false => Ok(()),
        }
    }

    fn pack(&mut self) -> Result<(), FileError> {
        let bound = PREFIX_LEN + zstd::zstd_safe::compress_bound(self.frame.len());
        let mut packed = std::mem::take(&mut self.packed);
        packed.resize(bound, 0);
        let len = self
            .compressor
            .compress_to_buffer(&self.frame, &mut packed[PREFIX_LEN..])
            .map_err(io_at(&self.path))?;
        packed.truncate(PREFIX_LEN + len);
        if let Some(sealer) = &mut self.sealer {
            let tag = sealer.seal(&mut packed[PREFIX_LEN..]);
            let tag =
                tag.ok_or_else(|| io_at(&self.path)(io::Error::other("a frame cannot be encrypted")))?;
            packed.extend_from_slice(&tag);
        }
        fill_prefix(&mut packed);
        self.packed = packed;
        self.frame.clear();
        self.frame.shrink_to(KEPT_MAX);
        Ok(())
    }

    /// Writes the packed frame behind the last whole one. A sealed one is not sealed again for that: two
    /// frames would have one nonce, or a number would be missing.
    fn write_packed(&mut self) -> Result<(), FileError> {
        if let Err(error) = self.file.write_all_at(&self.packed, self.file_len) {
            // A part of it at the end would look as if the writer had been killed.
            let _ = self.file.set_len(self.file_len);
            return Err(io_at(&self.path)(error));
        }
        self.file_len += self.packed.len() as u64;
        self.written += self.packed.len() as u64;
        self.packed.clear();
        self.packed.shrink_to(KEPT_MAX);
        Ok(())
    }

    /// Begins the next file where something has been in this one for so long.
    pub(crate) fn next_file_after(&mut self, age: Duration) -> Result<(), FileError> {
        let is_old = |writer: &Self| {
            writer
                .has_records_since
                .is_some_and(|since| since.elapsed() >= age)
        };
        if is_old(self) {
            self.flush()?;
        }
        // The frame just written may have filled the file, which has begun the next one then.
        match is_old(self) {
            true => self.rotate(),
            false => Ok(()),
        }
    }

    fn rotate(&mut self) -> Result<(), FileError> {
        let number = self.head.file + 1;
        (self.file, self.path, self.sealer) = begin_file(&self.folder, number, &self.id, self.key.as_ref())?;
        self.head.file = number;
        self.head.bytes_before = Some(self.file_len);
        self.has_records_since = None;
        self.file_len = HEAD_LEN as u64;
        self.written += HEAD_LEN as u64;
        self.put_head()
    }

    fn put_head(&mut self) -> Result<(), FileError> {
        self.put(&Record::Head(Box::new(self.head.clone())))
    }

    /// Writes what is left, and waits until the disk has it.
    pub fn finish(mut self) -> Result<u64, FileError> {
        self.flush()?;
        self.file.sync_all().map_err(io_at(&self.path))?;
        Ok(self.written)
    }
}

/// Makes a folder for this user alone, or takes one of this user's that is empty.
pub(crate) fn make_folder(folder: &Path) -> Result<(), FileError> {
    let made = match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            take_folder(folder, rustix::process::geteuid().as_raw())
        }
        made => made,
    };
    made.map_err(io_at(folder))
}

/// Takes a folder that is there, which root could do with the folders of all users. The owner of a folder may
/// change all that comes into it, whatever its mode is, and the owner of a link says where it leads.
fn take_folder(folder: &Path, user: u32) -> io::Result<()> {
    let found = std::fs::symlink_metadata(folder)?;
    if found.is_symlink() {
        return Err(io::Error::other("a link stands there: name the folder itself"));
    }
    if !found.is_dir() {
        return Err(io::Error::other("there is something else than a folder"));
    }
    if found.uid() != user {
        return Err(io::Error::other(format!(
            "the folder belongs to the user {}, and this runs as the user {user}",
            found.uid()
        )));
    }
    refuse_entries(folder)?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))?;
    // Another user may have had the right to write into it until now.
    refuse_entries(folder)
}

fn refuse_entries(folder: &Path) -> io::Result<()> {
    match std::fs::read_dir(folder)?.next() {
        None => Ok(()),
        Some(_) => Err(io::Error::other("the folder is not empty")),
    }
}

pub(crate) fn name_of(number: u32) -> String {
    format!("traffic-{number:06}.fbt")
}

fn random_id(path: &Path) -> Result<[u8; ID_LEN], FileError> {
    let mut id = [0; ID_LEN];
    aws_lc_rs::rand::fill(&mut id).map_err(|_| io_at(path)(io::Error::other("no random bytes")))?;
    Ok(id)
}

fn begin_file(
    folder: &Path,
    number: u32,
    id: &[u8; ID_LEN],
    key: Option<&Key>,
) -> Result<(File, PathBuf, Option<Sealer>), FileError> {
    let path = folder.join(name_of(number));
    let flags = if key.is_some() { SEALED } else { 0 };
    let mut head = Vec::with_capacity(HEAD_LEN);
    head.extend_from_slice(&MAGIC);
    head.extend_from_slice(&VERSION.to_le_bytes());
    head.extend_from_slice(&flags.to_le_bytes());
    head.extend_from_slice(&number.to_le_bytes());
    head.extend_from_slice(id);
    // The files that follow upon two copies of a folder have the same number.
    head.extend_from_slice(&random_id(&path)?);
    let refused = || io_at(&path)(io::Error::other("the key cannot be used"));
    let sealer = match key {
        None => None,
        Some(key) => Some(Sealer::new(key, &head).ok_or_else(refused)?),
    };
    let proof = match &sealer {
        None => [0; TAG_LEN],
        Some(sealer) => sealer.proof().ok_or_else(refused)?,
    };
    head.extend_from_slice(&proof);
    let mut file = private_file(&path).map_err(io_at(&path))?;
    if let Err(error) = file.write_all(&head) {
        // The file is begun again where there is space, and could not be if it were there.
        let _ = std::fs::remove_file(&path);
        return Err(io_at(&path)(error));
    }
    Ok((file, path, sealer))
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
    /// The number of the file, and its folder's id; files of before have none.
    number: u32,
    id: Option<[u8; ID_LEN]>,
    sealer: Option<Sealer>,
}

impl<R: Read + Seek> FileReader<R> {
    /// Goes on behind the last whole frame: there may be more now.
    fn look_again(&mut self) -> io::Result<()> {
        self.source.seek(SeekFrom::Start(self.at))?;
        self.stopped = None;
        Ok(())
    }
}

impl<R: Read> FileReader<R> {
    /// `source`: the whole file. `path`: its name, for errors. `key`: with which it is sealed.
    pub fn new(mut source: R, path: &Path, key: Option<&Key>) -> Result<Self, FileError> {
        let mut head = [0; HEAD_LEN];
        read_head(&mut source, &mut head[..PLAIN_HEAD_LEN], path)?;
        if head[..MAGIC.len()] != MAGIC {
            return Err(FileError::Foreign(path.to_owned()));
        }
        let found = u16::from_le_bytes([head[16], head[17]]);
        let flags = u16::from_le_bytes([head[18], head[19]]);
        if found == 0 || found > VERSION || (found >= 3 && flags & !SEALED != 0) {
            return Err(FileError::Version {
                path: path.to_owned(),
                found,
            });
        }
        let is_sealed = found >= 3 && flags & SEALED != 0;
        if key.is_some() && !is_sealed {
            return Err(FileError::NotSealed(path.to_owned()));
        }
        let mut reader = Self {
            at: PLAIN_HEAD_LEN as u64,
            packed: Vec::new(),
            frame: Vec::new(),
            next: 0,
            stopped: None,
            number: u32::from_le_bytes([head[20], head[21], head[22], head[23]]),
            id: None,
            sealer: None,
            source,
        };
        if found < 3 {
            return Ok(reader);
        }
        read_head(&mut reader.source, &mut head[PLAIN_HEAD_LEN..], path)?;
        reader.at = HEAD_LEN as u64;
        let (signed, proof) = head.split_at(SIGNED_HEAD_LEN);
        reader.id = signed[PLAIN_HEAD_LEN..].first_chunk().copied();
        if is_sealed {
            let key = key.ok_or_else(|| FileError::NoKey(path.to_owned()))?;
            let sealer = Sealer::new(key, signed).filter(|sealer| sealer.is_proved_by(proof));
            reader.sealer = Some(sealer.ok_or_else(|| FileError::OtherKey(path.to_owned()))?);
        }
        Ok(reader)
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
                self.stopped = self.read_frame().err();
                if self.stopped.is_some() {
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
        let at = self.at;
        let damaged = |why: &str| Stop::Damaged {
            at,
            why: why.to_owned(),
        };
        let mut prefix = [0; PREFIX_LEN];
        match read_up_to(&mut self.source, &mut prefix) {
            Ok(0) => return Err(Stop::End),
            Ok(PREFIX_LEN) => {}
            Ok(_) => return Err(Stop::Cut { at }),
            Err(error) => return Err(damaged(&error.to_string())),
        }
        let (len, sum) = lengths(prefix);
        if len == 0 || len > zstd::zstd_safe::compress_bound(FRAME_MAX) + TAG_LEN {
            return Err(damaged("a frame has a length that none has"));
        }
        self.packed.clear();
        // The memory follows what is there: a length that is only said costs nothing.
        let read = (&mut self.source).take(len as u64).read_to_end(&mut self.packed);
        match read {
            Ok(read) if read == len => {}
            Ok(_) => return Err(Stop::Cut { at }),
            Err(error) => return Err(damaged(&error.to_string())),
        }
        if crc32fast::hash(&self.packed) != sum {
            return Err(damaged("a frame has another checksum"));
        }
        if let Some(sealer) = &mut self.sealer {
            let opened = sealer.open(&mut self.packed);
            let len = opened.ok_or_else(|| damaged("a frame is not the one that was written here"))?;
            self.packed.truncate(len);
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

/// What can be read of a file without its key.
pub(crate) struct Plate {
    pub(crate) number: u32,
    /// Its folder's id; files of before have none.
    pub(crate) id: Option<[u8; ID_LEN]>,
}

impl Plate {
    pub(crate) fn read(path: &Path) -> Result<Self, FileError> {
        let mut file = File::open(path).map_err(io_at(path))?;
        let mut head = [0; PLAIN_HEAD_LEN + ID_LEN];
        read_head(&mut file, &mut head, path)?;
        let (plain, id) = head.split_at(PLAIN_HEAD_LEN);
        if plain[..MAGIC.len()] != MAGIC {
            return Err(FileError::Foreign(path.to_owned()));
        }
        let version = u16::from_le_bytes([plain[16], plain[17]]);
        Ok(Self {
            number: u32::from_le_bytes([plain[20], plain[21], plain[22], plain[23]]),
            id: id.first_chunk().copied().filter(|_| version >= 3),
        })
    }
}

fn read_head(source: &mut impl Read, part: &mut [u8], path: &Path) -> Result<(), FileError> {
    source.read_exact(part).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => FileError::Foreign(path.to_owned()),
        _ => io_at(path)(error),
    })
}

/// Writes the length and the checksum of what is behind the prefix.
fn fill_prefix(bytes: &mut [u8]) {
    let (prefix, rest) = bytes.split_at_mut(PREFIX_LEN);
    prefix[..4].copy_from_slice(&(rest.len() as u32).to_le_bytes());
    prefix[4..].copy_from_slice(&crc32fast::hash(rest).to_le_bytes());
}

fn lengths(prefix: [u8; PREFIX_LEN]) -> (usize, u32) {
    let [a, b, c, d, e, f, g, h] = prefix;
    (
        u32::from_le_bytes([a, b, c, d]) as usize,
        u32::from_le_bytes([e, f, g, h]),
    )
}

/// Fills the buffer as far as there is something; returns how far.
pub(crate) fn read_up_to(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
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
    path: PathBuf,
    /// Somebody writes it still.
    is_followed: bool,
    files: std::vec::IntoIter<PathBuf>,
    current: Option<(PathBuf, FileReader<BufReader<File>>)>,
    /// Files that have ended in another way than they should.
    stops: Vec<(PathBuf, Stop)>,
    /// All of it was read, and the record of its end was there.
    is_over: bool,
    has_end: bool,
    head: Head,
    key: Option<Key>,
    id: Option<[u8; ID_LEN]>,
    /// The file that was opened last.
    last: Option<PathBuf>,
    /// Bytes of the file before it, if that one was read to its end.
    bytes_before: Option<u64>,
    /// The number of the file that comes next; `None` where any may.
    number: Option<u32>,
}

impl Folder {
    /// Opens a folder, or one file of it, and reads its head. `key`: with which all of its files are sealed.
    pub fn open(path: &Path, key: Option<&Key>) -> Result<Self, FileError> {
        let files = files_of(path)?;
        let first = files.first().ok_or_else(|| FileError::Empty(path.to_owned()))?;
        let mut reader = open_file(first, key)?;
        let head = match reader.next_record() {
            Some(Record::Head(head)) => *head,
            // A capture that was killed before its first frame has none.
            None => Head::default(),
            Some(_) => return Err(FileError::Foreign(first.clone())),
        };
        Ok(Self {
            path: path.to_owned(),
            is_followed: false,
            files: files.into_iter(),
            current: None,
            stops: Vec::new(),
            is_over: false,
            has_end: false,
            head,
            key: key.cloned(),
            id: reader.id,
            last: None,
            bytes_before: None,
            number: path.is_dir().then_some(1),
        })
    }

    /// The same of one among several, of which not all may be sealed: either all of its files are, or none.
    pub fn open_one_of_several(path: &Path, key: Option<&Key>) -> Result<Self, FileError> {
        match Self::open(path, key) {
            Err(FileError::NotSealed(_)) => Self::open(path, None),
            opened => opened,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Somebody writes it still: a file that ends, or ends within a frame, may go on. Where there is no next
    /// record, [`look_again`](Self::look_again).
    pub fn follow(&mut self) {
        self.is_followed = true;
    }

    /// Looks whether there is more than there was.
    pub fn look_again(&mut self) -> Result<(), FileError> {
        // The next file is begun once nothing more comes into this one, so that it is looked for first.
        let is_there = |path: &PathBuf| path.metadata().is_ok_and(|file| file.len() >= HEAD_LEN as u64);
        let mut files = files_of(&self.path)?;
        files.retain(|file| Some(file) > self.last.as_ref() && is_there(file));
        self.files = files.into_iter();
        if let Some((path, reader)) = &mut self.current {
            reader.look_again().map_err(io_at(path))?;
        }
        Ok(())
    }

    /// The next record but for heads.
    ///
    /// # Errors
    /// A file cannot be opened. One that is cut or damaged is no error: see [`stops`](Self::stops).
    pub fn next_record(&mut self) -> Result<Option<Record>, FileError> {
        loop {
            if self.current.is_none() {
                let Some(path) = self.files.next() else {
                    self.is_over = true;
                    return Ok(None);
                };
                let is_last = self.files.as_slice().is_empty();
                if is_last && path.metadata().map_err(io_at(&path))?.len() < HEAD_LEN as u64 {
                    // The process that began this file was killed, found the disk full, or is at work.
                    if !self.is_followed {
                        self.stops.push((path, Stop::Cut { at: 0 }));
                    }
                    continue;
                }
                let reader = open_file(&path, self.key.as_ref())?;
                // A file that stands there twice would be given out twice.
                let is_before = self.number.is_some_and(|number| reader.number < number);
                if reader.id != self.id || is_before && reader.id.is_some() {
                    return Err(FileError::OtherFolder(path));
                }
                if self.number.is_some_and(|number| number != reader.number) {
                    let why = "files in front of this one are missing".to_owned();
                    self.stops.push((path.clone(), Stop::Damaged { at: 0, why }));
                    self.bytes_before = None;
                }
                self.number = self.number.map(|_| reader.number.wrapping_add(1));
                self.last = Some(path.clone());
                self.current = Some((path, reader));
            }
            let Some((path, reader)) = &mut self.current else {
                continue;
            };
            match reader.next_record() {
                Some(Record::Head(head)) => {
                    let (is, was) = (self.bytes_before.take(), head.bytes_before);
                    if let (Some(at), Some(was)) = (is, was)
                        && at != was
                    {
                        let why = format!("the file in front of this one had {was} bytes and has {at}");
                        self.stops.push((path.clone(), Stop::Damaged { at: 0, why }));
                    }
                }
                Some(record) => {
                    self.has_end |= matches!(record, Record::End(_));
                    return Ok(Some(record));
                }
                None => {
                    let stop = reader.stopped().cloned().unwrap_or(Stop::End);
                    let may_go_on = self.is_followed && matches!(stop, Stop::End | Stop::Cut { .. });
                    if may_go_on && self.files.as_slice().is_empty() {
                        return Ok(None);
                    }
                    self.bytes_before = (stop == Stop::End).then_some(reader.at);
                    if stop != Stop::End {
                        self.stops.push((path.clone(), stop));
                    }
                    self.current = None;
                }
            }
        }
    }

    /// Whether all of the folder was read and no record says that it has ended: whoever wrote it was killed,
    /// or somebody has taken its end off.
    pub(crate) fn lacks_end(&self) -> bool {
        let is_folder = self.number.is_some();
        is_folder && self.is_over && !self.has_end && !self.is_followed
    }

    /// Files of which not all could be read, so far.
    #[must_use]
    pub fn stops(&self) -> &[(PathBuf, Stop)] {
        &self.stops
    }
}

/// Takes off what was written half by somebody who was killed.
pub(crate) fn mend(folder: &Path, key: Option<&Key>) -> Result<(), FileError> {
    let Some(last) = files_of(folder)?.pop() else {
        return Ok(());
    };
    let len = last.metadata().map_err(io_at(&last))?.len();
    if len < HEAD_LEN as u64 {
        return std::fs::remove_file(&last).map_err(io_at(&last));
    }
    let mut reader = open_file(&last, key)?;
    while reader.next_record().is_some() {}
    if let Some(Stop::Cut { at }) = reader.stopped() {
        let file = File::options().write(true).open(&last);
        file.and_then(|file| file.set_len(*at)).map_err(io_at(&last))?;
    }
    Ok(())
}

/// The files of a folder in their order.
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

fn open_file(path: &Path, key: Option<&Key>) -> Result<FileReader<BufReader<File>>, FileError> {
    let file = File::open(path).map_err(io_at(path))?;
    FileReader::new(BufReader::with_capacity(1 << 16, file), path, key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_folder_of_this_user_is_taken() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("folder");
        make_folder(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        let user = std::fs::metadata(&folder).unwrap().uid();
        let of_another = take_folder(&folder, user + 1).unwrap_err().to_string();
        assert!(
            of_another.starts_with("the folder belongs to the user"),
            "{of_another}"
        );
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        let of_link = make_folder(&link).unwrap_err().to_string();
        assert!(of_link.contains("name the folder itself"), "{of_link}");
        let mode = || std::fs::metadata(&folder).unwrap().mode() & 0o777;
        assert_eq!(mode(), 0o777, "what is refused stays as it is");
        make_folder(&folder).unwrap();
        assert_eq!(mode(), 0o700);
        std::fs::write(folder.join("file"), "").unwrap();
        assert!(make_folder(&folder).is_err());
    }

    /// What a store does not have yet is as old as that, and a capture in which nobody speaks makes no files.
    #[test]
    fn the_next_file_begins_by_the_age_of_the_first_record_of_this_one() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("folder");
        let mut writer = FolderWriter::create(&folder, Head::default(), 1 << 20, None).unwrap();
        let command = Record::Command(Box::default());
        for files in 1..4 {
            writer.next_file_after(Duration::ZERO).unwrap();
            assert_eq!(files_of(&folder).unwrap().len(), files);
            writer.put(&command).unwrap();
            writer.next_file_after(Duration::from_secs(3600)).unwrap();
            assert_eq!(files_of(&folder).unwrap().len(), files);
            writer.next_file_after(Duration::ZERO).unwrap();
        }
        writer.finish().unwrap();
        let mut read = Folder::open(&folder, None).unwrap();
        for _ in 1..4 {
            assert_eq!(read.next_record().unwrap(), Some(command.clone()));
        }
        assert_eq!((read.next_record().unwrap(), read.stops()), (None, &[][..]));
    }

    #[test]
    fn the_memory_of_a_long_record_is_given_back() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("folder");
        let mut writer = FolderWriter::create(&folder, Head::default(), 1 << 30, None).unwrap();
        let command = crate::record::CommandRecord {
            files: vec![vec![b'x'; 16 << 20]],
            ..crate::record::CommandRecord::default()
        };
        writer.put(&Record::Command(Box::new(command))).unwrap();
        assert!(
            writer.frame.is_empty() && writer.packed.is_empty(),
            "it is written"
        );
        assert!(writer.frame.capacity() <= KEPT_MAX && writer.packed.capacity() <= KEPT_MAX);
    }

    /// A writer that is killed there, or finds the disk full, leaves such a file.
    #[test]
    fn a_last_file_that_ends_within_its_head_hides_nothing_before_it() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("folder");
        let mut writer = FolderWriter::create(&folder, Head::default(), 1 << 20, None).unwrap();
        let command = Record::Command(Box::default());
        writer.put(&command).unwrap();
        writer.finish().unwrap();
        let whole = std::fs::read(&files_of(&folder).unwrap()[0]).unwrap();
        let second = folder.join(name_of(2));
        for len in [0, PLAIN_HEAD_LEN, HEAD_LEN - 1] {
            std::fs::write(&second, &whole[..len]).unwrap();
            let mut read = Folder::open(&folder, None).unwrap();
            assert_eq!(read.next_record().unwrap(), Some(command.clone()), "{len}");
            assert_eq!(read.next_record().unwrap(), None, "{len}");
            assert_eq!(read.stops(), [(second.clone(), Stop::Cut { at: 0 })], "{len}");
        }
        // A follower waits for the rest of it.
        let mut followed = Folder::open(&folder, None).unwrap();
        followed.follow();
        assert_eq!(followed.next_record().unwrap(), Some(command.clone()));
        assert_eq!(
            (followed.next_record().unwrap(), followed.stops()),
            (None, &[][..])
        );
        std::fs::remove_file(&second).unwrap();
        let mut writer = FolderWriter::resume(&folder, 1 << 20, None).unwrap();
        writer.put(&command).unwrap();
        writer.finish().unwrap();
        followed.look_again().unwrap();
        assert_eq!(followed.next_record().unwrap(), Some(command));
        assert_eq!(
            (followed.next_record().unwrap(), followed.stops()),
            (None, &[][..])
        );
    }

    /// Set for a process that is this test's own child, whose files may not be longer than some blocks.
    const HAS_LITTLE_SPACE: &str = "FOREBAY_TEST_HAS_LITTLE_SPACE";

    #[test]
    fn a_frame_of_which_a_part_was_written_is_written_again_in_its_place() {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        if std::env::var_os(HAS_LITTLE_SPACE).is_none() {
            // Without the trap the first byte too many would end the process.
            let script = r#"trap '' XFSZ; ulimit -S -f 8; exec "$0" "$@""#;
            let child = std::process::Command::new("sh")
                .args(["-c", script])
                .arg(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "file::tests::a_frame_of_which_a_part_was_written_is_written_again_in_its_place",
                ])
                .env(HAS_LITTLE_SPACE, "1")
                .output()
                .unwrap();
            return assert!(
                child.status.success(),
                "{}",
                String::from_utf8_lossy(&child.stdout)
            );
        }
        let has_little = getrlimit(Resource::Fsize);
        assert!(has_little.current.is_some_and(|bytes| bytes < 16 << 10));
        let has_enough = Rlimit {
            current: has_little.maximum,
            ..has_little
        };
        // Random bytes cannot be packed.
        let record = || {
            let mut body = vec![0; 3 << 10];
            aws_lc_rs::rand::fill(&mut body).unwrap();
            Record::Command(Box::new(crate::record::CommandRecord {
                body,
                ..crate::record::CommandRecord::default()
            }))
        };
        let place = tempfile::tempdir().unwrap();
        let key = Key::of(&[9; 32]).unwrap();
        for (name, key) in [("plain", None), ("sealed", Some(&key))] {
            let folder = place.path().join(name);
            let mut writer = FolderWriter::create(&folder, Head::default(), 1 << 20, key).unwrap();
            let mut records = Vec::new();
            let whole = loop {
                let whole = writer.file_len;
                records.push(record());
                writer.put(records.last().unwrap()).unwrap();
                if writer.flush().is_err() {
                    break whole;
                }
            };
            assert!(records.len() > 1);
            let first = &files_of(&folder).unwrap()[0];
            assert_eq!(first.metadata().unwrap().len(), whole, "the part is cut off");
            // Records that come meanwhile wait, up to a full frame.
            records.push(record());
            writer.put(records.last().unwrap()).unwrap();
            assert!(writer.flush().is_err());
            setrlimit(Resource::Fsize, has_enough).unwrap();
            records.push(record());
            writer.put(records.last().unwrap()).unwrap();
            writer.finish().unwrap();
            setrlimit(Resource::Fsize, has_little).unwrap();
            let mut read = Folder::open(&folder, key).unwrap();
            for record in records {
                assert_eq!(read.next_record().unwrap(), Some(record));
            }
            assert_eq!((read.next_record().unwrap(), read.stops()), (None, &[][..]));
        }
    }

    #[test]
    fn a_file_that_could_not_be_begun_is_begun_again() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("folder");
        let mut writer = FolderWriter::create(&folder, Head::default(), 1, None).unwrap();
        let command = Record::Command(Box::default());
        std::fs::write(folder.join(name_of(2)), "").unwrap();
        writer.put(&command).unwrap();
        for _ in 0..2 {
            writer.flush().unwrap_err();
        }
        std::fs::remove_file(folder.join(name_of(2))).unwrap();
        writer.put(&command).unwrap();
        writer.finish().unwrap();
        let mut read = Folder::open(&folder, None).unwrap();
        for _ in 0..2 {
            assert_eq!(read.next_record().unwrap(), Some(command.clone()));
        }
        assert_eq!((read.next_record().unwrap(), read.stops()), (None, &[][..]));
    }

    #[test]
    fn a_file_that_is_both_old_and_full_is_followed_by_one() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("folder");
        let mut writer = FolderWriter::create(&folder, Head::default(), HEAD_LEN as u64 + 1, None).unwrap();
        writer.put(&Record::Command(Box::default())).unwrap();
        writer.next_file_after(Duration::ZERO).unwrap();
        assert_eq!(files_of(&folder).unwrap().len(), 2);
        writer.finish().unwrap();
        let mut read = Folder::open(&folder, None).unwrap();
        while read.next_record().unwrap().is_some() {}
        assert!(read.stops().is_empty(), "{:?}", read.stops());
    }

    #[test]
    fn whole_frames_that_are_cut_off_are_missed_and_no_file_is_read_twice() {
        let place = tempfile::tempdir().unwrap();
        let key = Key::of(&[9; 32]).unwrap();
        let folder = place.path().join("folder");
        let mut writer = FolderWriter::create(&folder, Head::default(), 1 << 20, Some(&key)).unwrap();
        let command = Record::Command(Box::default());
        for _ in 0..3 {
            writer.put(&command).unwrap();
            writer.flush().unwrap();
            writer.put(&command).unwrap();
            writer.next_file_after(Duration::ZERO).unwrap();
        }
        writer.finish().unwrap();
        let stops = || {
            let mut read = Folder::open(&folder, Some(&key)).unwrap();
            while read.next_record().unwrap().is_some() {}
            read.stops().to_vec()
        };
        assert!(stops().is_empty(), "{:?}", stops());
        let files = files_of(&folder).unwrap();
        let second = std::fs::read(&files[1]).unwrap();
        let frames = frame_ends(&second);
        for end in &frames[..frames.len() - 1] {
            std::fs::write(&files[1], &second[..*end]).unwrap();
            let [(path, Stop::Damaged { .. })] = &stops()[..] else {
                panic!("{:?}", stops());
            };
            assert_eq!(path, &files[2]);
        }
        std::fs::write(&files[1], &second).unwrap();
        std::fs::copy(&files[1], &files[2]).unwrap();
        let mut read = Folder::open(&folder, Some(&key)).unwrap();
        let error = loop {
            match read.next_record() {
                Ok(Some(_)) => {}
                other => break other,
            }
        };
        assert!(matches!(error, Err(FileError::OtherFolder(path)) if path == files[2]));
    }

    /// Where the file's head and each of its frames end.
    fn frame_ends(file: &[u8]) -> Vec<usize> {
        let mut ends = vec![HEAD_LEN];
        while let Some(prefix) = file[ends[ends.len() - 1]..].first_chunk::<4>() {
            let len = u32::from_le_bytes(*prefix) as usize;
            ends.push(ends[ends.len() - 1] + PREFIX_LEN + len);
        }
        ends
    }

    /// What is under the same key with the same nonces differs by no more than what was written.
    #[test]
    fn two_that_go_on_with_copies_of_a_folder_use_other_keys() {
        let place = tempfile::tempdir().unwrap();
        let key = Key::of(&[9; 32]).unwrap();
        let [one, other] = ["one", "other"].map(|name| place.path().join(name));
        let writer = FolderWriter::create(&one, Head::default(), 1 << 20, Some(&key)).unwrap();
        writer.finish().unwrap();
        std::fs::create_dir(&other).unwrap();
        let first = files_of(&one).unwrap().remove(0);
        std::fs::copy(&first, other.join(first.file_name().unwrap())).unwrap();
        let seconds = [&one, &other].map(|folder| {
            let mut writer = FolderWriter::resume(folder, 1 << 20, Some(&key)).unwrap();
            let command = Record::Command(Box::default());
            writer.put(&command).unwrap();
            writer.finish().unwrap();
            let mut read = Folder::open(folder, Some(&key)).unwrap();
            assert_eq!(read.next_record().unwrap(), Some(command));
            assert_eq!((read.next_record().unwrap(), read.stops()), (None, &[][..]));
            std::fs::read(&files_of(folder).unwrap()[1]).unwrap()
        });
        assert_eq!(
            seconds[0][..PLAIN_HEAD_LEN + ID_LEN],
            seconds[1][..PLAIN_HEAD_LEN + ID_LEN]
        );
        assert_eq!(seconds[0].len(), seconds[1].len());
        let frames = seconds.each_ref().map(|file| &file[HEAD_LEN + PREFIX_LEN..]);
        let same = frames[0]
            .iter()
            .zip(frames[1])
            .filter(|(one, other)| one == other);
        assert!(same.count() < frames[0].len() / 4);
    }
}
