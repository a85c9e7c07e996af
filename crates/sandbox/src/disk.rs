//! A small disk for one server, so that it can be full: a tmpfs in a mount namespace of its own. Nothing else
//! on this machine sees it, and it is gone with the process that asked for it.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::SandboxError;

/// Keeps the namespace until its standard input ends.
const HOLD: &str = r#"mount -t tmpfs -o "size=$2" tmpfs "$1" && echo mounted && exec cat"#;

#[derive(Debug)]
pub(crate) struct Disk {
    holder: Child,
    folder: PathBuf,
}

impl Disk {
    /// One of so many bytes on a folder.
    pub(crate) fn mount(folder: &Path, bytes: u64) -> Result<Self, SandboxError> {
        std::fs::create_dir(folder).map_err(|source| SandboxError::io("make", folder, source))?;
        let mut holder = Command::new("unshare")
            .args(["--mount", "--propagation=private", "sh", "-c", HOLD, "disk"])
            .arg(folder)
            .arg(bytes.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0) // Ctrl-C in the terminal is not for it
            .spawn()
            .map_err(|source| SandboxError::io("run", "unshare", source))?;
        let mut said = String::new();
        if let Some(output) = holder.stdout.take() {
            let read = BufReader::new(output).read_line(&mut said);
            read.map_err(|source| SandboxError::io("read what is said by", "unshare", source))?;
        }
        let disk = Self {
            holder,
            folder: folder.to_path_buf(),
        };
        match said.as_str() {
            "mounted\n" => Ok(disk),
            _ => Err(SandboxError::State(
                "a server with a disk of its own takes root, and a kernel that lets it mount".to_owned(),
            )),
        }
    }

    /// To run a program that sees it.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--mount=/proc/{}/ns/mnt", self.holder.id()))
            .arg(program);
        command
    }

    /// Leaves no byte of it free.
    pub(crate) fn fill(&self) -> Result<(), SandboxError> {
        let path = self.filler();
        let failed = |source| SandboxError::io("write", &path, source);
        let mut file = File::create(&path).map_err(failed)?;
        loop {
            match file.write_all(&[0; 4096]) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(()),
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Gives back what [`fill`](Self::fill) took.
    pub(crate) fn clear(&self) -> Result<(), SandboxError> {
        let path = self.filler();
        std::fs::remove_file(&path).map_err(|source| SandboxError::io("remove", &path, source))
    }

    /// As this process sees it.
    fn filler(&self) -> PathBuf {
        let root = format!("/proc/{}/root{}", self.holder.id(), self.folder.display());
        PathBuf::from(root).join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}
