//! Ends the servers of a sandbox when the process that started them is gone, however it went: Ctrl-C, a panic
//! that aborts, kill -9.
//!
//! A shell waits for the end of its standard input, a pipe whose other end this process holds and the kernel
//! closes with it. Not PR_SET_PDEATHSIG: that goes by the *thread* that started the server, and ends servers
//! that were started from a thread pool.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::SandboxError;

/// Every server leads a process group of its own and names its folder as `--datadir=`, `--path=` or
/// `--data-dir=`: that finds servers that have just been started as well as those of long ago, and never a
/// process that took over an old id.
const SCRIPT: &str = r#"
read -r word
[ "$word" = leave ] && exit 0
# In order, nothing is being started; otherwise a server may have no name yet.
[ "$word" = over ] && enough=0 || enough=2
pass=0
while [ $pass -lt 20 ]; do
    found=
    for file in $(grep -lsaF -e "--datadir=$FOLDER/" -e "--path=$FOLDER/" -e "--data-dir=$FOLDER/" /proc/[0-9]*/cmdline); do
        id=${file#/proc/}
        kill -9 "-${id%/cmdline}" 2>/dev/null && found=yes
    done
    [ -z "$found" ] && [ $pass -ge $enough ] && break
    pass=$((pass + 1))
    sleep 0.05
done
rm -rf "$FOLDER"
"#;

/// Dropping it, once the servers were ended, tells the shell to clean up and waits until it has.
#[derive(Debug)]
pub(crate) struct Watchdog {
    shell: Child,
}

impl Watchdog {
    pub(crate) fn start(folder: &Path) -> Result<Self, SandboxError> {
        let shell = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "forebay-watchdog"])
            .env("FOLDER", folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0) // Ctrl-C in the terminal is not for it
            .spawn()
            .map_err(|source| SandboxError::io("run", "/bin/sh", source))?;
        Ok(Self { shell })
    }

    /// Ends the shell and leaves the servers alone.
    pub(crate) fn dismiss(mut self) {
        if let Some(mut pipe) = self.shell.stdin.take() {
            // A shell that is gone already cannot harm the servers either.
            let _ = pipe.write_all(b"leave\n");
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.shell.stdin.take() {
            let _ = pipe.write_all(b"over\n"); // its end says as much
        }
        let _ = self.shell.wait();
    }
}
