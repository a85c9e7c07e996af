//! A folder as the store: for the gateways of one machine, and for tests. One file has all of it; whoever
//! reads or writes holds a lock meanwhile.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::sleep;
use upstream::etcd::{Change, Outcome, Range, Snapshot, Transaction};

use crate::model::Model;
use crate::store::{Changes, Store};

/// How often it is looked whether something has changed.
const LOOK_EVERY: Duration = Duration::from_millis(200);

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
    fn with<T>(&self, act: impl FnOnce(&mut Model, u64) -> T) -> io::Result<T> {
        fs::create_dir_all(&self.path)?;
        let lock = open(&self.path.join("lock"))?;
        lock.lock()?;
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

    /// Looks at what is there now. It takes no lock where there is nothing to change: a gateway that is
    /// stopped while it looks stops no other one.
    fn look<T>(&self, look: impl FnOnce(&Model) -> T) -> io::Result<T> {
        let model = self.load()?;
        match model.is_late(now()) {
            true => self.with(|model, _| look(model)),
            false => Ok(look(&model)),
        }
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
        self.look(|model| model.read(range))
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
        match self.with(change) {
            Ok(Some(revision)) => Outcome::Made(revision),
            Ok(None) => Outcome::NotMade,
            Err(error) => Outcome::Unknown(error.to_string()),
        }
    }

    async fn grant(&mut self, time: Duration) -> io::Result<i64> {
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.with(|model, now| model.grant(time, now))
    }

    async fn renew(&mut self, lease: i64) -> io::Result<bool> {
        self.with(|model, now| model.renew(lease, now))
    }

    async fn revoke(&mut self, lease: i64) -> io::Result<()> {
        self.with(|model, _| model.end(lease))
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
            let (revision, changes) = self.folder.look(look)?;
            let changes = changes.ok_or_else(|| io::Error::other("the changes are forgotten"))?;
            self.behind = revision;
            if !changes.is_empty() {
                return Ok(changes);
            }
            sleep(LOOK_EVERY).await;
        }
    }
}
