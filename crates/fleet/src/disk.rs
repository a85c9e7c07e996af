//! What a gateway keeps on its own disk: the text that it has applied last, and who it is.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::folder::replace;
use crate::random;

/// The text, with its revision in front.
const TEXT: &str = "fleet.toml";
const IDENTITY: &str = "member.json";
const SHARE: &str = "share";

/// Largest text that is read; those of the store are smaller.
const TEXT_MAX: u64 = 2 << 20;

/// The first line of the kept text.
const HEAD: &str = "# forebay: revision ";

/// A folder of this gateway's own.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    folder: PathBuf,
    fleet: String,
}

#[derive(Serialize, Deserialize)]
struct Identity {
    id: String,
    run: u64,
}

impl Disk {
    pub(crate) fn of(store: &config::Store) -> Self {
        Self {
            folder: store.state_dir.clone(),
            fleet: store.fleet.clone(),
        }
    }

    /// Who this gateway is, and how often it was started, this time included.
    pub(crate) fn begin(&self) -> io::Result<(String, u64)> {
        fs::create_dir_all(&self.folder)?;
        let path = self.folder.join(IDENTITY);
        let known = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice::<Identity>(&bytes).ok(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let known = match known {
            Some(known) => known,
            None => Identity {
                id: random()?,
                run: 0,
            },
        };
        let now = Identity {
            id: known.id,
            run: known.run + 1,
        };
        replace(&path, &serde_json::to_vec(&now)?)?;
        Ok((now.id, now.run))
    }

    /// Where the folder is, among all folders of all machines that run: a copy of it is elsewhere. Another
    /// after a start of the machine.
    pub(crate) fn place(&self) -> io::Result<String> {
        let machine = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let folder = fs::metadata(&self.folder)?;
        Ok(format!("{} {}:{}", machine.trim(), folder.dev(), folder.ino()))
    }

    /// The revision and the text that were applied last.
    pub(crate) fn read(&self) -> io::Result<Option<(u64, Arc<str>)>> {
        let path = self.path();
        match fs::metadata(&path) {
            Ok(found) if found.len() > TEXT_MAX => Err(io::Error::other("it is too large")),
            Ok(_) => {
                let whole = fs::read_to_string(&path)?;
                let (head, text) = whole.split_once('\n').unwrap_or_default();
                let revision = head.strip_prefix(HEAD).and_then(|number| number.parse().ok());
                let revision =
                    revision.ok_or_else(|| io::Error::other("it does not begin with its revision"))?;
                Ok(Some((revision, text.into())))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn keep(&self, revision: u64, text: &str) -> io::Result<()> {
        replace(&self.path(), format!("{HEAD}{revision}\n{text}").as_bytes())
    }

    /// The part of the limits that it had last: one of so many.
    pub(crate) fn parts(&self) -> Option<u32> {
        let parts = fs::read_to_string(self.shares()).ok()?;
        parts.trim().parse().ok()
    }

    pub(crate) fn keep_parts(&self, parts: u32) -> io::Result<()> {
        replace(&self.shares(), format!("{parts}\n").as_bytes())
    }

    fn shares(&self) -> PathBuf {
        self.folder.join(format!("{}.{SHARE}", self.fleet))
    }

    /// One for each fleet: a gateway that comes to another does not begin with the text of the one before.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join(format!("{}.{TEXT}", self.fleet))
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_again_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk {
            folder: folder.path().join("state"),
            fleet: "main".to_owned(),
        };
        let (id, run) = disk.begin().unwrap();
        assert_eq!((disk.read().unwrap(), run), (None, 1));
        assert_eq!(disk.begin().unwrap(), (id, 2));
        let text = "# forebay: revision 1\n\n[x]\r\n";
        disk.keep(7, text).unwrap();
        assert_eq!(disk.read().unwrap(), Some((7, text.into())));
        assert_eq!(disk.parts(), None);
        disk.keep_parts(3).unwrap();
        assert_eq!(disk.parts(), Some(3));
        fs::write(disk.path(), "[x]\n").unwrap();
        assert!(disk.read().is_err());
    }
}
