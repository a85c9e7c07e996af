//! The file of a Unix listener: taking over a stale one, and removing ours without removing a successor's.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

use crate::{NetError, handover};

/// A socket file that this process has bound. Dropping it removes the file, unless somebody has replaced it
/// since, or it is another process's by now.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    /// Notes which file was just bound at `path`.
    pub(crate) fn bound(path: &Path) -> io::Result<Self> {
        let file = fs::symlink_metadata(path)?;
        Ok(Self {
            path: path.to_owned(),
            device: file.dev(),
            inode: file.ino(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if !handover::owns_files() {
            return;
        }
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|file| file.dev() == self.device && file.ino() == self.inode);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the socket file");
        }
    }
}

/// Makes `path` free for a bind: removes a socket nobody listens on, refuses to touch anything else.
pub(crate) fn clear(path: &Path) -> Result<(), NetError> {
    let failed = |source| NetError::Bind {
        address: path.display().to_string(),
        source,
    };
    let file = match fs::symlink_metadata(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if !file.file_type().is_socket() {
        return Err(NetError::NotASocket(path.to_owned()));
    }
    match try_connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // Connected, or refused for want of permission or room: somebody lives there.
        _ => Err(NetError::PathInUse(path.to_owned())),
    }
}

/// Does not wait where somebody listens and takes nobody: the thread that accepts has more to do.
fn try_connect(path: &Path) -> io::Result<()> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?)
}
