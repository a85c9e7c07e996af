//! A value built from files, built again when they change.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use crate::NetError;

/// The last value that could be built. Reading it takes no lock.
pub(super) struct Reloading<T> {
    current: ArcSwap<T>,
    files: Vec<PathBuf>,
    /// The files as they were before the last attempt to build, whether it worked or not.
    seen: Mutex<Vec<Option<Stamp>>>,
    build: Box<Build<T>>,
}

type Build<T> = dyn Fn() -> Result<T, NetError> + Send + Sync;

/// What changes when a file is replaced or rewritten, including through a symbolic link.
#[derive(PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    modified_ns: (i64, i64),
    changed_ns: (i64, i64),
}

impl<T> Reloading<T> {
    /// Builds the first value.
    pub(super) fn new(
        files: Vec<PathBuf>,
        build: impl Fn() -> Result<T, NetError> + Send + Sync + 'static,
    ) -> Result<Self, NetError> {
        // Stamps are taken before the files are read: a change in between is then seen next time.
        let seen = stamps(&files);
        let current = ArcSwap::from_pointee(build()?);
        Ok(Self {
            current,
            files,
            seen: Mutex::new(seen),
            build: Box::new(build),
        })
    }

    pub(super) fn current(&self) -> Arc<T> {
        self.current.load_full()
    }

    /// Builds a new value if a file has changed since the last attempt. `Ok(true)`: there is a new value.
    /// `Err`: the old one stays, and the same broken files are not reported again.
    pub(super) fn reload_if_changed(&self) -> Result<bool, NetError> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now = stamps(&self.files);
        if *seen == now {
            return Ok(false);
        }
        *seen = now;
        self.current.store(Arc::new((self.build)()?));
        Ok(true)
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Option<Stamp>> {
    files.iter().map(|file| stamp(file)).collect()
}

/// `None` for a file that is missing or out of reach, which is a state like others: it may pass.
fn stamp(file: &Path) -> Option<Stamp> {
    let data = fs::metadata(file).ok()?;
    Some(Stamp {
        device: data.dev(),
        inode: data.ino(),
        length: data.len(),
        modified_ns: (data.mtime(), data.mtime_nsec()),
        changed_ns: (data.ctime(), data.ctime_nsec()),
    })
}
