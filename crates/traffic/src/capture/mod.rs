//! Captures what clients say and what they hear.
//!
//! A [`Capture`] is made once; it is idle until [`start`](Capture::start). While it runs, each worker's
//! observer hands copies of commands and answers to the capture's thread, by a queue that is bounded in
//! bytes. The worker never waits: where the queue is full the session gives way (it is not captured any
//! further, from that command on), or the capture ends. Short answers are read by the worker, and those of
//! clients that keep columns, whose order counts; others by the thread, which decides what texts may be
//! written, and writes.

mod files;
mod observer;
mod servers;
#[cfg(test)]
mod tests;
mod thread;

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dataplane::finished::{Interest, Observer};
use telemetry::{Samples, Source, catalog};

use crate::file::{FileError, FolderWriter};
use crate::objects::upload::{self, Upload, UploadStatus};
use crate::objects::{Location, Marker, Objects, ObjectsError};
use crate::record::{FILES_MAX, Filters, Head, ServerAtStart, digest_of};
use crate::seal::{Key, KeyError};

use self::observer::{Queue, WorkerObserver};

pub(crate) use self::observer::{CapturedAnswer, Ended};
pub use self::servers::servers;
pub(crate) use self::thread::{STATEMENTS_MAX, Session, record, schema_of};

/// Bytes of copies that there may be: of commands under way, and of those that wait for the thread.
pub const QUEUE_MAX: usize = 64 << 20;
/// From so many of them on copies get no longer: answers under way then have no checks, and what waits still
/// finds room.
const COPIES_MAX: usize = QUEUE_MAX / 4 * 3;
/// Bytes that are copied of a command; of a longer one only the digest is known, if that.
pub const COMMAND_MAX: usize = 1 << 20;
/// Bytes that are copied of an answer; a longer one has no checks.
pub const ANSWER_MAX: usize = 1 << 20;
/// From so many bytes on the next file is begun.
const FILE_MAX: u64 = 256 << 20;
/// The same where files go to an object store: each is sent once it is finished, in one piece.
const UPLOADED_FILE_MAX: u64 = 16 << 20;
/// For each question whether an object store takes anything. Operators wait for it.
const CLAIM_LIMIT: Duration = Duration::from_secs(3);
/// For what has been written when the process ends, to get to the object store.
const UPLOAD_LIMIT: Duration = Duration::from_secs(10);

/// What happens where the thread does not keep up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The session whose command finds no room is not captured any further.
    #[default]
    Thin,
    /// The capture ends.
    End,
}

#[derive(Debug, Clone)]
pub struct Order {
    /// A new folder.
    pub to: PathBuf,
    /// Where its files go from there.
    pub upload: Option<Location>,
    pub duration: Option<Duration>,
    /// It ends once its files have so many bytes.
    pub max_size: Option<u64>,
    /// It ends once less than this share of the disk is free, in percent.
    pub free_disk: u8,
    pub filters: Filters,
    /// Bytes, with packet headers, of the files that a client may send for a command (`LOAD DATA LOCAL`), for
    /// them to be captured. Without it none are.
    pub load_data: Option<usize>,
    pub when_full: WhenFull,
    /// A file with the key with which it is sealed.
    pub key_file: Option<PathBuf>,
}

/// Captures, one at a time.
#[derive(Default)]
pub struct Capture {
    shared: Arc<Shared>,
}

/// What workers, the thread and operators have in common.
#[derive(Default)]
struct Shared {
    interest: Arc<Interest>,
    /// Counts captures, so that a worker sees that its part is of the one before.
    generation: AtomicU64,
    run: Mutex<Option<Arc<Run>>>,
}

/// One capture.
struct Run {
    order: Order,
    began: Instant,
    /// The queues of commands: one for each worker that has taken the capture up.
    queues: Mutex<Vec<Queue>>,
    /// The capture has ended: nothing more is written.
    has_ended: AtomicBool,
    /// Sessions of which a share is captured, in 2^32ths.
    share: u64,
    /// Statements with this digest alone are captured.
    digest: Option<u64>,
    /// Bytes of copies, of commands under way and of those that wait for the thread.
    queued: Arc<AtomicUsize>,
    /// It is to end, and the thread says so.
    is_to_stop: AtomicBool,
    /// The queue was full, and it is to end for that.
    is_overrun: AtomicBool,
    counts: Counts,
    upload: Option<Arc<Upload>>,
    end: Mutex<Option<(String, String)>>,
}

/// What was counted of one capture.
#[derive(Default)]
struct Counts {
    commands: AtomicU64,
    sessions: AtomicU64,
    thinned: AtomicU64,
    withheld: AtomicU64,
    unchecked: AtomicU64,
    bytes: AtomicU64,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Status {
    pub is_running: bool,
    pub folder: PathBuf,
    /// Since it began.
    pub seconds: f64,
    pub commands: u64,
    pub sessions: u64,
    /// Sessions of which only the beginning was written, since the queue was full.
    pub thinned_sessions: u64,
    /// Commands of which only the digest was written.
    pub withheld: u64,
    /// Bytes on the disk.
    pub bytes: u64,
    /// Bytes that wait for the thread.
    pub queued_bytes: u64,
    /// Why it has ended: the word of the last record, and more about it.
    pub end: Option<(String, String)>,
    pub upload: Option<UploadStatus>,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("a capture runs already, to {}; forebay traffic capture stop ends it", .0.display())]
    Running(PathBuf),
    #[error("files of the last capture go to {0} still; forebay traffic capture stop gives that up")]
    Uploading(String),
    #[error(transparent)]
    Folder(#[from] FileError),
    #[error(transparent)]
    Objects(#[from] ObjectsError),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("{}: {free} % of the disk are free, and {floor} % are to stay free", path.display())]
    Disk { path: PathBuf, free: u8, floor: u8 },
    #[error("no thread for it: {0}")]
    Thread(io::Error),
    #[error("{0}")]
    Order(&'static str),
}

impl Capture {
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The part of it that lives on a worker.
    #[must_use]
    pub fn observer(&self) -> Rc<dyn Observer> {
        Rc::new(WorkerObserver::new(Arc::clone(&self.shared)))
    }

    /// Begins. `servers`: as they are now. `forebay`: the version of the gateway. Where it goes to an object
    /// store it waits for that, so that it is not for a thread that serves others.
    pub fn start(&self, order: Order, servers: Vec<ServerAtStart>, forebay: &str) -> Result<(), StartError> {
        is_free(lock(&self.shared.run).as_deref())?;
        let key = checked(&order)?;
        let head = Head {
            kind: "capture".to_owned(),
            forebay: forebay.to_owned(),
            began_unix_us: unix_us(),
            filters: order.filters.clone(),
            servers,
            ..Head::default()
        };
        let file_max = match order.upload {
            Some(_) => UPLOADED_FILE_MAX,
            None => FILE_MAX,
        };
        let writer = FolderWriter::create(&order.to, head, file_max, key.as_ref())?;
        let claimed = order.upload.as_ref().map(|to| claim(to, &writer)).transpose();
        let claimed = claimed.inspect_err(|_| writer.take_back())?;
        // Nobody waits for the store with this in hand.
        let mut current = lock(&self.shared.run);
        is_free(current.as_deref()).inspect_err(|_| writer.take_back())?;
        let share = order.filters.sample.unwrap_or(1.0);
        let run = Arc::new(Run {
            share: (share * (1_u64 << 32) as f64) as u64,
            digest: order.filters.digest.as_deref().and_then(digest_of),
            upload: order.upload.as_ref().map(|to| Upload::new(to, &order.to)),
            order,
            began: Instant::now(),
            queues: Mutex::default(),
            has_ended: AtomicBool::new(false),
            queued: Arc::default(),
            is_to_stop: AtomicBool::new(false),
            is_overrun: AtomicBool::new(false),
            counts: Counts::default(),
            end: Mutex::new(None),
        });
        tracing::info!(folder = %run.order.to.display(), "capture of traffic begins");
        *current = Some(Arc::clone(&run));
        self.shared.generation.fetch_add(1, Relaxed);
        self.shared.interest.set(true);
        let interest = Arc::clone(&self.shared.interest);
        let thread = std::thread::Builder::new().name("capture".to_owned());
        let its_run = Arc::clone(&run);
        let begun = thread.spawn(move || thread::run(&its_run, &interest, writer));
        let begun = begun.and_then(|_| match claimed {
            Some((objects, marker)) => send(Arc::clone(&run), objects, marker),
            None => Ok(()),
        });
        if let Err(error) = begun {
            self.shared.interest.set(false);
            run.is_to_stop.store(true, Relaxed);
            *current = None;
            return Err(StartError::Thread(error));
        }
        Ok(())
    }

    /// Has the capture end. What has come so far is written; [`status`](Self::status) says when it is.
    /// Where it has ended and its files are on their way to an object store, that is given up. False where
    /// there is neither.
    pub fn stop(&self, reason: &str) -> bool {
        let current = lock(&self.shared.run);
        let Some(run) = current.as_ref().filter(|run| !run.has_ended()) else {
            let upload = current.as_ref().and_then(|run| run.upload.as_ref());
            let Some(upload) = upload.filter(|upload| !upload.has_ended()) else {
                return false;
            };
            upload.hurry();
            return true;
        };
        run.note_end(reason, "");
        self.shared.interest.set(false);
        run.is_to_stop.store(true, Relaxed);
        true
    }

    /// Has the capture end and waits until everything is written, at most for so long. An object store that
    /// takes what is left is waited for a little longer.
    pub fn finish(&self, reason: &str, limit: Duration) {
        let Some(run) = lock(&self.shared.run).clone() else {
            return;
        };
        let wait = |limit: Duration, is_done: &dyn Fn() -> bool| {
            let deadline = Instant::now() + limit;
            while Instant::now() < deadline && !is_done() {
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        self.stop(reason);
        wait(limit, &|| run.has_ended());
        let Some(upload) = &run.upload else {
            return;
        };
        upload.hurry();
        wait(UPLOAD_LIMIT, &|| upload.has_ended());
        if !upload.has_ended() {
            tracing::error!(
                folder = %run.order.to.display(),
                "files of the capture stay in its folder, as there is no more time; forebay traffic push sends them"
            );
        }
    }

    /// How the present capture is, or how the last one was; `None` where none ever ran.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        let current = lock(&self.shared.run);
        current.as_ref().map(|run| run.status())
    }
}

impl Run {
    fn has_ended(&self) -> bool {
        self.has_ended.load(Acquire)
    }

    /// The first reason counts.
    fn note_end(&self, reason: &str, words: &str) {
        lock(&self.end).get_or_insert_with(|| (reason.to_owned(), words.to_owned()));
    }

    fn status(&self) -> Status {
        let is_running = !self.has_ended();
        let end = lock(&self.end).clone().filter(|_| !is_running);
        Status {
            is_running,
            folder: self.order.to.clone(),
            seconds: self.began.elapsed().as_secs_f64(),
            commands: self.counts.commands.load(Relaxed),
            sessions: self.counts.sessions.load(Relaxed),
            thinned_sessions: self.counts.thinned.load(Relaxed),
            withheld: self.counts.withheld.load(Relaxed),
            bytes: self.counts.bytes.load(Relaxed),
            // Nobody takes what may be there after the end.
            queued_bytes: if is_running {
                self.queued.load(Relaxed) as u64
            } else {
                0
            },
            end,
            upload: self.upload.as_ref().map(|upload| upload.status()),
        }
    }
}

impl Source for Capture {
    fn collect(&self, out: &mut Samples) {
        let status = self.status().unwrap_or_default();
        out.gauge(&catalog::CAPTURE_RUNNING, &[], status.is_running);
        out.gauge(&catalog::CAPTURE_COMMANDS, &[], status.commands);
        out.gauge(&catalog::CAPTURE_BYTES, &[], status.bytes);
        out.gauge(&catalog::CAPTURE_QUEUED, &[], status.queued_bytes);
        out.gauge(&catalog::CAPTURE_QUEUE_MAX, &[], QUEUE_MAX);
        out.gauge(&catalog::CAPTURE_THINNED, &[], status.thinned_sessions);
        let upload = status.upload.unwrap_or_default();
        out.gauge(&catalog::CAPTURE_WAITING, &[], upload.waiting_bytes);
        out.gauge(&catalog::CAPTURE_UPLOAD_FAILURES, &[], upload.failures);
    }
}

/// Whether an order makes sense and there is room for it; its key.
fn checked(order: &Order) -> Result<Option<Key>, StartError> {
    if !order.to.is_absolute() {
        return Err(StartError::Order("the folder is to be an absolute path"));
    }
    if order
        .filters
        .sample
        .is_some_and(|share| !(0.0..=1.0).contains(&share))
    {
        return Err(StartError::Order(
            "the share of sessions (sample) is to be from 0 to 1",
        ));
    }
    if order
        .filters
        .digest
        .as_ref()
        .is_some_and(|digest| digest_of(digest).is_none())
    {
        return Err(StartError::Order(
            "the digest is to be 16 hexadecimal digits, as `compare --json` has them",
        ));
    }
    if order.load_data.is_some_and(|bytes| bytes > FILES_MAX) {
        return Err(StartError::Order(
            "the files of a command (load_data) are to be 32 MiB at most",
        ));
    }
    if order.key_file.as_ref().is_some_and(|file| !file.is_absolute()) {
        return Err(StartError::Order("the key file is to be an absolute path"));
    }
    let parent = order.to.parent().unwrap_or(Path::new("/"));
    if let Some(free) = free_percent(parent).filter(|free| *free < order.free_disk) {
        return Err(StartError::Disk {
            path: parent.to_owned(),
            free,
            floor: order.free_disk,
        });
    }
    Ok(order.key_file.as_deref().map(Key::read).transpose()?)
}

/// Whether another may begin after this one.
fn is_free(run: Option<&Run>) -> Result<(), StartError> {
    let Some(run) = run else {
        return Ok(());
    };
    if !run.has_ended() {
        return Err(StartError::Running(run.order.to.clone()));
    }
    match run.upload.as_ref().filter(|upload| !upload.has_ended()) {
        Some(upload) => Err(StartError::Uploading(upload.status().to)),
        None => Ok(()),
    }
}

/// Makes a prefix of an object store that of the folder, which also says whether it takes anything.
fn claim(to: &Location, writer: &FolderWriter) -> Result<(Objects, Marker), ObjectsError> {
    let objects = Objects::open(to)?;
    let marker = Marker::new(writer.id(), writer.folder());
    objects.limit(CLAIM_LIMIT);
    objects.claim(&marker)?;
    objects.limit(Duration::MAX);
    Ok((objects, marker))
}

/// Has the files sent that the run writes.
fn send(run: Arc<Run>, objects: Objects, marker: Marker) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("capture-upload".to_owned());
    let sending = move || {
        if let Some(uploads) = &run.upload {
            upload::run(uploads, &objects, marker, &|| run.has_ended());
        }
    };
    thread.spawn(sending).map(|_| ())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Microseconds since 1970.
pub(crate) fn unix_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}

/// How much of the disk is free for who is not root, in percent; `None` where that is not known.
fn free_percent(path: &Path) -> Option<u8> {
    let disk = rustix::fs::statvfs(path).ok()?;
    let percent = disk.f_bavail.checked_mul(100)?.checked_div(disk.f_blocks)?;
    u8::try_from(percent).ok()
}
