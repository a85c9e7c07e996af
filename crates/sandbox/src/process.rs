//! Processes of all kinds of servers: signals to them, and how long they are waited for.

use std::fs;
use std::process::{Child, ExitStatus};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use crate::{PATIENCE, SandboxError};

/// Sends a signal to a server that nobody waits for meanwhile: else its id might be another process's.
pub(crate) fn send(
    process: Option<&Child>,
    node: usize,
    signal: Signal,
    name: &'static str,
) -> Result<(), SandboxError> {
    let process = process.ok_or(SandboxError::NotRunning { node })?;
    kill_process(Pid::from_child(process), signal).map_err(|error| SandboxError::Signal {
        node,
        signal: name,
        source: error.into(),
    })
}

/// Nothing, as long as a server may still do `what`: it has not ended, and not too long was waited since
/// `begin`.
pub(crate) fn go_on_waiting(
    node: usize,
    what: &str,
    begin: Instant,
    ended: Option<ExitStatus>,
    log: impl FnOnce() -> String,
) -> Result<(), SandboxError> {
    if let Some(status) = ended {
        return Err(SandboxError::Ended {
            node,
            status: status.to_string(),
            log: log(),
        });
    }
    if begin.elapsed() > PATIENCE {
        return Err(SandboxError::Timeout {
            node,
            what: what.to_owned(),
            waited: PATIENCE,
            log: log(),
        });
    }
    Ok(())
}

/// Whether all threads of a process are stopped: the state `T` after the program's name in parentheses.
#[must_use]
pub fn stands(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    threads.filter_map(Result::ok).all(|thread| {
        let status = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        status
            .rsplit_once(')')
            .is_none_or(|(_, state)| state.trim_start().starts_with('T'))
    })
}
