//! The programs that are compared, each a child process on a core of its own in front of the same fake server.

use std::{ffi::OsString, fmt, fs, net::SocketAddr, path::Path, process::Command};

use anyhow::Context;
use serde::Serialize;

use super::OverheadArgs;
use crate::child::ListeningChild;

const HAPROXY_CONFIG: &str = include_str!("../../../../bench/haproxy.cfg");

/// Who stands between the clients and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Nobody: what the bench itself can do.
    Direct,
    /// HAProxy in TCP mode, one thread.
    Haproxy,
    /// This program, a listener in mode `tcp`, one worker.
    Tcp,
    /// This program, a listener in mode `session`, one worker.
    Session,
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::Direct => "direct",
            Self::Haproxy => "haproxy",
            Self::Tcp => "tcp",
            Self::Session => "session",
        })
    }
}

/// A running contender; dropping it ends its process.
pub(super) struct Contender {
    pub kind: Kind,
    /// Where clients connect.
    pub address: SocketAddr,
    process: Option<ListeningChild>,
}

impl Contender {
    /// Starts it in front of `server`, with files in `folder`, and waits until it accepts connections.
    pub(super) fn start(
        kind: Kind,
        args: &OverheadArgs,
        server: SocketAddr,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        if kind == Kind::Direct {
            return Ok(Self {
                kind,
                address: server,
                process: None,
            });
        }
        let started = ListeningChild::start(&folder.join(format!("{kind}.log")), |[address]| {
            command(kind, args, address, server, folder)
        });
        let (process, [address]) = started.with_context(|| format!("starting {kind}"))?;
        Ok(Self {
            kind,
            address,
            process: Some(process),
        })
    }

    /// None for the one that has no process.
    pub(super) fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(ListeningChild::pid)
    }
}

fn command(
    kind: Kind,
    args: &OverheadArgs,
    address: SocketAddr,
    server: SocketAddr,
    folder: &Path,
) -> anyhow::Result<Command> {
    let configuration = folder.join(format!("{kind}.conf"));
    if kind == Kind::Haproxy {
        match &args.haproxy_config {
            Some(path) => drop(fs::copy(path, &configuration).with_context(|| path.display().to_string())?),
            None => fs::write(&configuration, HAPROXY_CONFIG)?,
        }
        let words = [
            args.haproxy.clone().into(),
            "-db".into(),
            "-f".into(),
            configuration.into(),
        ];
        let mut command = pinned(args.contender_core, words);
        command
            .env("BENCH_BIND", address.to_string())
            .env("BENCH_SERVER", server.to_string());
        return Ok(command);
    }
    fs::write(&configuration, forebay_configuration(kind, address, server))?;
    let program = match &args.forebay {
        Some(path) => path.clone(),
        None => std::env::current_exe()?,
    };
    let words = [
        program.into(),
        "serve".into(),
        "--config".into(),
        configuration.into(),
    ];
    Ok(pinned(args.contender_core, words))
}

fn forebay_configuration(kind: Kind, address: SocketAddr, server: SocketAddr) -> String {
    format!(
        "workers = 1\nmax_connections = 9000\n\n[log]\nlevel = \"warn\"\n\n[[listener]]\nbind = \"{address}\"\n\
         mode = \"{kind}\"\ncluster = \"main\"\nbacklog = 4096\n\n[cluster.main]\nservers = [\"{server}\"]\n"
    )
}

fn pinned<const N: usize>(core: Option<usize>, words: [OsString; N]) -> Command {
    let mut words: Vec<OsString> = words.into();
    if let Some(core) = core {
        let prefix = ["taskset", "-c", &core.to_string()].map(OsString::from);
        words.splice(0..0, prefix);
    }
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}
