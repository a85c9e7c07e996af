//! What can go wrong while setting up sockets and TLS, in words an operator can act on.

use std::io;
use std::path::PathBuf;

/// A listener that cannot be opened or TLS settings that cannot be used.
///
/// Errors of a single connection are plain [`io::Error`]s: they concern one peer and are counted, while these
/// concern the configuration and are shown to whoever wrote it.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// `bind`, `listen` or a socket option failed.
    #[error("cannot listen on {address}: {source}{}", advice(source))]
    Bind {
        /// The address as it is written in the configuration.
        address: String,
        /// What the kernel said.
        source: io::Error,
    },

    /// The path of a Unix listener holds something that is not a socket; it is left alone.
    #[error("cannot listen on {}: the path exists and is not a socket; remove it or choose another path", .0.display())]
    NotASocket(PathBuf),

    /// Another process accepts connections on the path of a Unix listener.
    #[error("cannot listen on {}: another process is listening there; stop it or choose another path", .0.display())]
    PathInUse(PathBuf),

    /// A certificate, key or CA file cannot be read.
    #[error("cannot read {what} {}: {source}", path.display())]
    ReadFile {
        /// What the file is for, e.g. `certificate file`.
        what: &'static str,
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },

    /// A file was read but does not hold what it should.
    #[error("{what} {}: {reason}", path.display())]
    BadFile {
        /// What the file is for, e.g. `certificate file`.
        what: &'static str,
        path: PathBuf,
        /// What was expected and what was found.
        reason: String,
    },

    /// TLS settings that contradict one another.
    #[error("TLS settings: {0}")]
    TlsSettings(String),
}

/// The next step after a failed bind, for the causes that have an obvious one.
fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EADDRINUSE) => {
            "; another process or another listener uses this address (`ss -ltnp` shows which)"
        }
        Some(libc::EACCES) => {
            "; this needs a permission the process lacks: ports below 1024 need CAP_NET_BIND_SERVICE, \
             a Unix socket needs write permission on its folder"
        }
        Some(libc::EADDRNOTAVAIL) => {
            "; no interface of this machine has this address (`ip address` lists them)"
        }
        Some(libc::ENOENT) => "; the folder of the socket does not exist",
        Some(libc::EAFNOSUPPORT) => {
            "; this machine has no support for this address family (IPv6 switched off?)"
        }
        _ => "",
    }
}
