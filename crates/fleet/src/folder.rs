//! A folder as the store: for the gateways of one machine, and for tests. One file has all of it; whoever
//! reads or writes holds a lock meanwhile.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{sleep, timeout};
use upstream::etcd::{Change, Outcome, Range, Snapshot, Transaction};

use crate::model::Model;
use crate::store::{Changes, Store};

/// How often it is looked whether something has changed.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// For so long a lock is waited for, and how often it is tried.
const LOCK_LIMIT: Duration = Duration::from_secs(2);
const TRY_EVERY: Duration = Duration::from_millis(5);

const FILE: &str = "store.json";

/// Largest file: the texts of the history, and some.
const FILE_MAX: u64 = 256 << 20;

pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    /// Does something with what is there now, and keeps what becomes of it.
    async fn with<T>(&self, act: impl FnOnce(&mut Model, u64) -> T) -> io::Result<T> {
        fs::create_dir_all(&self.path)?;
        let _lock = self.lock().await?;
        let mut model = self.load()?;
        let before = serde_json::to_vec(&model)?;
        let now = now();
        model.pass(now);
        let result = act(&mut model, now);
        let after = serde_json::to_vec(&model)?;
        if after != before {
            replace(&self.path.join(FILE), &after)?;
        }
        Ok(result)
    }

    /// Waits for its turn, and not for ever: whoever holds the lock may be stopped.
    async fn lock(&self) -> io::Result<File> {
        let path = self.path.join("lock");
        let file = open(&path)?;
        let locking = async {
            loop {
                match file.try_lock() {
                    Ok(()) => return Ok(()),
                    Err(TryLockError::WouldBlock) => sleep(TRY_EVERY).await,
                    Err(TryLockError::Error(error)) => return Err(error),
                }
            }
        };
        match timeout(LOCK_LIMIT, locking).await {
            Ok(locked) => locked.map(|()| file),
            Err(_) => Err(io::Error::other(format!(
                "{}: another process has locked it for {} s and more",
                path.display(),
                LOCK_LIMIT.as_secs()
            ))),
        }
    }

    /// Looks at what is there now. It takes no lock where there is nothing to change: a gateway that is
    /// stopped while it looks stops no other one.
    async fn look<T>(&self, look: impl FnOnce(&Model) -> T) -> io::Result<T> {
        let model = self.load()?;
        match model.is_late(now()) {
            true => self.with(|model, _| look(model)).await,
            false => Ok(look(&model)),
        }
    }

    /// The keys that are there now. Nothing is written, though leases may be over.
    pub(crate) fn peek(&self, range: &Range) -> io::Result<Snapshot> {
        let mut model = self.load()?;
        model.pass(now());
        Ok(model.read(range))
    }

    fn load(&self) -> io::Result<Model> {
        let file = self.path.join(FILE);
        match fs::metadata(&file) {
            Ok(found) if found.len() > FILE_MAX => {
                Err(io::Error::other("the file of the store is too large"))
            }
            Ok(_) => Ok(serde_json::from_slice(&fs::read(&file)?)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Model::default()),
            Err(error) => Err(error),
        }
    }
}

/// Leases of gateways of one machine: its clock is the same for all, and goes on over a restart.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
}

/// Whoever reads meanwhile finds the old one or the new one, never half of it.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut unfinished = path.to_owned().into_os_string();
    unfinished.push(format!(".{}", std::process::id()));
    let unfinished = PathBuf::from(unfinished);
    let write = || {
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&unfinished)?;
        io::Write::write_all(&mut file, bytes)?;
        file.sync_all()?;
        fs::rename(&unfinished, path)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&unfinished);
    })
}

impl Store for Folder {
    type Watch = Looking;

    async fn read(&mut self, range: &Range) -> io::Result<Snapshot> {
        self.look(|model| model.read(range)).await
    }

    async fn watch(&mut self, range: &Range, behind: i64) -> io::Result<Looking> {
        Ok(Looking {
            folder: Self::new(&self.path),
            range: range.clone(),
            behind,
        })
    }

    async fn change(&mut self, transaction: &Transaction) -> Outcome {
        let change = |model: &mut Model, _| model.change(transaction).then(|| model.revision());
        match self.with(change).await {
            Ok(Some(revision)) => Outcome::Made(revision),
            Ok(None) => Outcome::NotMade,
            Err(error) => Outcome::Unknown(error.to_string()),
        }
    }

    async fn grant(&mut self, time: Duration) -> io::Result<i64> {
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.with(|model, now| model.grant(time, now)).await
    }

    async fn renew(&mut self, lease: i64) -> io::Result<bool> {
        self.with(|model, now| model.renew(lease, now)).await
    }

    async fn revoke(&mut self, lease: i64) -> io::Result<()> {
        self.with(|model, _| model.end(lease)).await
    }

    fn doubt(&mut self) {}
}

/// Looks again and again.
pub(crate) struct Looking {
    folder: Folder,
    range: Range,
    behind: i64,
}

impl Changes for Looking {
    async fn next(&mut self) -> io::Result<Vec<Change>> {
        loop {
            let look = |model: &Model| (model.revision(), model.changes(&self.range, self.behind));
            let (revision, changes) = self.folder.look(look).await?;
            let changes = changes.ok_or_else(|| io::Error::other("the changes are forgotten"))?;
            self.behind = revision;
            if !changes.is_empty() {
                return Ok(changes);
            }
            sleep(LOOK_EVERY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_holds_the_lock_for_ever_is_not_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let mut folder = Folder::new(place.path());
        let holder = folder.lock().await.unwrap();
        let asked = timeout(Duration::from_secs(30), folder.grant(Duration::from_secs(1)));
        let why = asked.await.expect("a limit").unwrap_err().to_string();
        assert!(why.contains("/lock: another process has locked it"), "{why}");
        drop(holder);
        folder.grant(Duration::from_secs(1)).await.unwrap();
    }
}
