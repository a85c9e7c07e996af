//! What the service manager is told, as sd_notify(3) has it: that the start is over, that the end has begun, and in a few words
//! how it is. Where nobody asks (`NOTIFY_SOCKET`), nothing is done.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tracing::warn;

/// What it may take from the deadline of a shutdown to the end of the process.
const LAST_STEPS: Duration = Duration::from_secs(10);

/// All listeners are bound.
pub(crate) fn ready() {
    tell("READY=1\nSTATUS=serving");
}

/// The configuration was read again.
pub(crate) fn reloaded(is_taken: bool) {
    tell(match is_taken {
        true => "STATUS=serving",
        false => "STATUS=serving by the configuration of before: the file has mistakes, see the log",
    });
}

/// A shutdown has begun, which may take `limit`: whoever started this process is asked to wait for so long before it is killed.
pub(crate) fn stopping(limit: Duration) {
    let microseconds = (limit + LAST_STEPS).as_micros();
    tell(&format!(
        "STOPPING=1\nEXTEND_TIMEOUT_USEC={microseconds}\nSTATUS=sessions end, at most {} s",
        limit.as_secs()
    ));
}

fn tell(state: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(error) = send(&socket, state) {
        warn!(socket = %socket.display(), %error, "the service manager cannot be told how it is");
    }
}

/// To a socket with a path, or with an abstract name (`@name`).
fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    let from = UnixDatagram::unbound()?;
    // A manager that does not read holds up nobody.
    from.set_nonblocking(true)?;
    from.send_to_addr(state.as_bytes(), &address).map(drop)
}
