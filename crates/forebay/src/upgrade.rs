//! The program is replaced while it runs: a new process takes the listeners over and then the sessions that
//! can go there, and this one serves the others until they end.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context;
use net::handover::{Channel, Predecessor, Successor};
use tokio::sync::Notify;
use tracing::{error, info};

/// Set for a process that is to take over.
const TAKES_OVER: &str = "FOREBAY_TAKES_OVER";
/// For so long one that has ended its start may say why.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long the new process may take until it serves.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is started at an upgrade: the program's path, as it was at the start, and its arguments.
pub(crate) struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    pub(crate) fn running() -> anyhow::Result<Self> {
        Ok(Self {
            path: std::env::current_exe().context("the program's own path is not known")?,
            arguments: std::env::args_os().skip(1).collect(),
        })
    }

    /// Starts a new process, gives it these sockets, and waits until it serves. Blocks.
    fn hand_over(&self, sockets: &[(String, OwnedFd)]) -> anyhow::Result<(Child, Channel)> {
        let (successor, other) = Successor::pair()?;
        let mut child = Command::new(&self.path)
            .args(&self.arguments)
            .env(TAKES_OVER, "1")
            .stdin(Stdio::from(other))
            .spawn()
            .with_context(|| format!("cannot start {}", self.path.display()))?;
        let taken = successor
            .give(sockets)
            .and_then(|()| successor.wait_until_ready(PATIENCE))
            .and_then(|()| successor.into_channel());
        match taken {
            Ok(channel) => Ok((child, channel)),
            Err(error) => {
                // One that is late may be about to serve.
                let is_late = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                let ended = end(&mut child, if is_late { Duration::ZERO } else { LAST_WORDS });
                let ended = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
                let why = format!("the new process does not serve ({ended}): its last words are in the log");
                Err(anyhow::Error::new(error).context(why))
            }
        }
    }
}

/// Ends a process that does not serve. One that has closed its end of the way is about to end by itself, and
/// says why within `patience`.
fn end(child: &mut Child, patience: Duration) -> std::io::Result<ExitStatus> {
    let began = Instant::now();
    while began.elapsed() < patience {
        if let Some(ended) = child.try_wait()? {
            return Ok(ended);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill()?;
    child.wait()
}

/// The process whose listeners this one is to take; `None` for a plain start.
pub(crate) fn predecessor() -> anyhow::Result<Option<Predecessor>> {
    match std::env::var_os(TAKES_OVER) {
        Some(_) => Ok(Some(
            Predecessor::receive().context("nothing comes from the process that is to be replaced")?,
        )),
        None => Ok(None),
    }
}

/// Upgrades that somebody has asked for.
#[derive(Default)]
pub(crate) struct Upgrades {
    wanted: Notify,
    /// Why the last one came to nothing.
    failed: Mutex<Option<String>>,
    /// The process that has taken over has ended.
    ended: Notify,
}

impl Upgrades {
    pub(crate) fn ask(&self) {
        *crate::lock(&self.failed) = None;
        self.wanted.notify_one();
    }

    pub(crate) async fn asked(&self) {
        self.wanted.notified().await;
    }

    /// It comes to nothing, and this process goes on.
    pub(crate) fn fail(&self, why: String) {
        error!(why, "no upgrade: this process goes on");
        *crate::lock(&self.failed) = Some(why);
    }

    /// Resolves when the process that has taken over has ended.
    pub(crate) async fn successor_ended(&self) {
        self.ended.notified().await;
    }

    pub(crate) fn failed(&self) -> Option<String> {
        crate::lock(&self.failed).clone()
    }

    /// Has a new process take over, and says by which way sessions can follow. `None` where it does not: this
    /// one goes on.
    pub(crate) async fn upgrade(
        self: &Arc<Self>,
        program: &'static Program,
        sockets: Vec<(String, OwnedFd)>,
    ) -> Option<Channel> {
        info!(program = %program.path.display(), "upgrade: a new process is started");
        let handing = tokio::task::spawn_blocking(move || program.hand_over(&sockets));
        let result = match handing.await {
            Ok(Ok(started)) => Ok(started),
            Ok(Err(error)) => Err(format!("{error:#}")),
            Err(error) => Err(error.to_string()),
        };
        match result {
            Ok((mut child, channel)) => {
                info!(
                    process = child.id(),
                    "upgrade: the new process serves; this one takes no more connections"
                );
                let upgrades = Arc::clone(self);
                // One that nobody waits for stays in the table of processes, and its end goes unseen.
                std::thread::spawn(move || {
                    let ended = child.wait();
                    error!(
                        ?ended,
                        "the process that has taken over has ended: nobody takes connections"
                    );
                    upgrades.ended.notify_one();
                });
                Some(channel)
            }
            Err(why) => {
                self.fail(why);
                None
            }
        }
    }
}
