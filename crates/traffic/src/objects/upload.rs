//! Moves the files of a capture to an object store while it runs.
//!
//! The capture's thread knows nothing of it: it writes into its folder as ever, the spool. A thread of this
//! module sends each file that is finished, and takes it off the disk once the store has it. A store that is
//! gone is asked again, ever later; files gather in the spool meanwhile, which the limits of the capture
//! bound. Once the capture has ended the rest is sent, for [`PATIENCE`] at most without any success; what has
//! not gone by then stays in the spool, for `forebay traffic push`.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::fetch::number_of;
use super::{Location, Marker, Objects, ObjectsError, Whole};
use crate::file::{files_of, io_at};

/// How often the folder is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often the files in the folder are counted, which takes long where they are many.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// How long a store is left alone that has failed: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long it is tried after the end of the capture while nothing succeeds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// How far the files of a capture have got.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UploadStatus {
    /// Where to, as a URL.
    pub to: String,
    pub is_running: bool,
    /// All is there, and nothing is left in the spool.
    pub is_complete: bool,
    /// Files that the store has.
    pub files: u64,
    pub bytes: u64,
    /// Files in the spool, with the one that is written.
    pub waiting_files: u64,
    /// Bytes of the files in the spool.
    pub waiting_bytes: u64,
    /// Attempts that have failed.
    pub failures: u64,
    /// Why the last one did; empty where the one behind it did not.
    pub error: String,
}

/// What the thread and those who ask have in common.
#[derive(Debug)]
pub(crate) struct Upload {
    to: Location,
    spool: PathBuf,
    has_ended: AtomicBool,
    is_complete: AtomicBool,
    files: AtomicU64,
    bytes: AtomicU64,
    /// The files in the spool and their bytes when they were last counted.
    waiting_files: AtomicU64,
    waiting_bytes: AtomicU64,
    failures: AtomicU64,
    error: Mutex<Option<String>>,
    /// The process ends: no more attempts than one.
    is_hurried: AtomicBool,
}

impl Upload {
    pub(crate) fn new(to: &Location, spool: &Path) -> Arc<Self> {
        let upload = Arc::new(Self {
            to: to.clone(),
            spool: spool.to_owned(),
            has_ended: AtomicBool::new(false),
            is_complete: AtomicBool::new(false),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            waiting_files: AtomicU64::new(0),
            waiting_bytes: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            error: Mutex::new(None),
            is_hurried: AtomicBool::new(false),
        });
        upload.count_waiting();
        upload
    }

    /// Counts the files in the spool. The thread that sends them does, since whoever asks for the status may
    /// not wait for a disk that is slow.
    fn count_waiting(&self) {
        let waiting = files_of(&self.spool).unwrap_or_default();
        let sizes = waiting
            .iter()
            .filter_map(|file| Some(file.metadata().ok()?.len()));
        self.waiting_bytes.store(sizes.sum(), Relaxed);
        self.waiting_files.store(waiting.len() as u64, Relaxed);
    }

    pub(crate) fn status(&self) -> UploadStatus {
        let has_ended = self.has_ended.load(Relaxed);
        let is_complete = self.is_complete.load(Relaxed);
        if has_ended && !is_complete {
            // Nobody else counts any more, and an operator may have taken away what was left.
            self.count_waiting();
        }
        UploadStatus {
            to: self.to.to_string(),
            is_running: !has_ended,
            is_complete,
            files: self.files.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            waiting_files: self.waiting_files.load(Relaxed),
            waiting_bytes: self.waiting_bytes.load(Relaxed),
            failures: self.failures.load(Relaxed),
            error: self.last_error().clone().unwrap_or_default(),
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Relaxed)
    }

    /// The process ends soon: where the store fails now, it is not asked again.
    pub(crate) fn hurry(&self) {
        self.is_hurried.store(true, Relaxed);
    }

    fn last_error(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs until all files are there, or until it is given up. `is_over`: nobody writes the folder any more.
pub(crate) fn run(upload: &Upload, objects: &Objects, marker: Marker, is_over: &dyn Fn() -> bool) {
    let sending = AssertUnwindSafe(|| Sending::new(upload, objects, marker, is_over).run());
    if catch_unwind(sending).is_err() {
        *upload.last_error() = Some("the thread has failed; the log says where".to_owned());
    }
    upload.count_waiting();
    let status = upload.status();
    match upload.is_complete.load(Relaxed) {
        true => tracing::info!(
            to = %upload.to, files = status.files, bytes = status.bytes, failures = status.failures,
            "all files of the capture are in the object store"
        ),
        false => tracing::error!(
            to = %upload.to, folder = %upload.spool.display(), error = status.error,
            files = status.waiting_files, bytes = status.waiting_bytes,
            "files of the capture are not in the object store and stay in its folder; forebay traffic push sends them"
        ),
    }
    upload.has_ended.store(true, Relaxed);
}

struct Sending<'a> {
    upload: &'a Upload,
    objects: &'a Objects,
    marker: Marker,
    is_over: &'a dyn Fn() -> bool,
    /// The last file that was sent.
    sent: u32,
    pause: Duration,
    not_before: Instant,
    counted: Instant,
    /// Since when nothing has succeeded, from the end of the capture on.
    in_vain_since: Option<Instant>,
}

impl<'a> Sending<'a> {
    fn new(upload: &'a Upload, objects: &'a Objects, marker: Marker, is_over: &'a dyn Fn() -> bool) -> Self {
        Self {
            upload,
            objects,
            marker,
            is_over,
            sent: 0,
            pause: FIRST_PAUSE,
            not_before: Instant::now(),
            counted: Instant::now(),
            in_vain_since: None,
        }
    }

    fn run(&mut self) {
        loop {
            // Asked first: what is there afterwards is all.
            let is_over = (self.is_over)();
            let is_hurried = self.upload.is_hurried.load(Relaxed);
            if is_over {
                self.in_vain_since.get_or_insert_with(Instant::now);
            }
            if is_hurried || Instant::now() >= self.not_before {
                match self.pass(is_over) {
                    Ok(()) if is_over => return,
                    Ok(()) => {}
                    Err(error) => self.failed(&error),
                }
            }
            let is_in_vain = self
                .in_vain_since
                .is_some_and(|since| since.elapsed() >= PATIENCE);
            let fails_now = is_hurried && self.upload.last_error().is_some();
            if is_over && (is_in_vain || fails_now) {
                return;
            }
            self.count();
            sleep(LOOK_EVERY);
        }
    }

    /// Sends all files that are finished. Behind the last one of all it says so, and nothing is left.
    fn pass(&mut self, is_over: bool) -> Result<(), ObjectsError> {
        let folder = &self.upload.spool;
        let mut files = files_of(folder)?;
        if !is_over {
            // It is written still.
            files.pop();
        }
        for file in files {
            self.send(&file)?;
        }
        if is_over {
            self.marker.whole = Some(Whole {
                files: self.sent,
                bytes: self.upload.bytes.load(Relaxed),
            });
            self.objects.complete(&self.marker)?;
            self.succeeded();
            // Somebody else may have put something there.
            let _ = fs::remove_dir(folder);
            self.upload.is_complete.store(true, Relaxed);
        }
        Ok(())
    }

    fn send(&mut self, file: &Path) -> Result<(), ObjectsError> {
        let name = file
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        let Some(number) = number_of(name) else {
            return Ok(());
        };
        let bytes = self.objects.client.put_file(name, file)?;
        fs::remove_file(file).map_err(io_at(file))?;
        self.sent = number;
        self.upload.files.fetch_add(1, Relaxed);
        self.upload.bytes.fetch_add(bytes, Relaxed);
        self.succeeded();
        self.count();
        Ok(())
    }

    /// Counts what waits, where that has not been done for a while.
    fn count(&mut self) {
        if self.counted.elapsed() >= COUNT_EVERY {
            self.upload.count_waiting();
            self.counted = Instant::now();
        }
    }

    fn succeeded(&mut self) {
        self.pause = FIRST_PAUSE;
        self.in_vain_since = None;
        if self.upload.last_error().take().is_some() {
            tracing::info!(to = %self.upload.to, "the object store takes files of the capture again");
        }
    }

    fn failed(&mut self, error: &ObjectsError) {
        self.not_before = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.upload.failures.fetch_add(1, Relaxed);
        let was_fine = self.upload.last_error().replace(error.to_string()).is_none();
        if was_fine {
            tracing::warn!(
                to = %self.upload.to, %error, folder = %self.upload.spool.display(),
                "the object store does not take a file of the capture: files stay in its folder meanwhile"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_an_upload_that_goes_on_reads_no_folder() {
        let spool = tempfile::tempdir().unwrap();
        let file = |number: u32| spool.path().join(crate::file::name_of(number));
        fs::write(file(1), [0; 10]).unwrap();
        let upload = Upload::new(&"s3://bucket/prefix".parse().unwrap(), spool.path());
        let waiting = || {
            let status = upload.status();
            (status.waiting_files, status.waiting_bytes)
        };
        assert_eq!(waiting(), (1, 10));
        fs::write(file(2), [0; 5]).unwrap();
        assert_eq!(waiting(), (1, 10));
        upload.count_waiting();
        assert_eq!(waiting(), (2, 15));
        upload.has_ended.store(true, Relaxed);
        fs::remove_file(file(2)).unwrap();
        assert_eq!(
            waiting(),
            (1, 10),
            "what an operator has taken away waits no longer"
        );
    }
}
