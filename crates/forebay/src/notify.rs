//! What the service manager is told, as sd_notify(3) has it: that the start is over, that the end has begun,
//! and in a few words how it is. Where nobody asks (`NOTIFY_SOCKET`), nothing is done.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tracing::warn;

/// How long the manager is waited for with what it must not miss: it ends a process that it takes for one
/// that hangs.
const PATIENCE: Duration = Duration::from_secs(1);
/// What it may take from the deadline of a shutdown to the end of the process.
const LAST_STEPS: Duration = Duration::from_secs(10);

/// Another process has taken over, and is the one that the manager hears.
static IS_REPLACED: AtomicBool = AtomicBool::new(false);

/// All listeners are bound. Where they were another process's this one is the service from here on.
pub(crate) fn ready(has_taken_over: bool) {
    let process = match has_taken_over {
        true => format!("MAINPID={}\n", std::process::id()),
        false => String::new(),
    };
    tell(&format!("{process}READY=1\nSTATUS=serving"), Some(PATIENCE));
}

/// Nothing is told from here on.
pub(crate) fn replaced() {
    IS_REPLACED.store(true, Ordering::Relaxed);
}

/// The configuration was read again.
pub(crate) fn reloaded(is_taken: bool) {
    let state = match is_taken {
        true => "STATUS=serving",
        false => "STATUS=serving by the configuration of before: the last reload was refused, see the log",
    };
    tell(state, None);
}

/// A shutdown has begun, and for `delay` clients may still come.
pub(crate) fn leaving(delay: Duration, limit: Duration) {
    let how = format!(
        "not ready, and new sessions are taken for at most {} s",
        delay.as_secs()
    );
    stop(delay + limit, &how);
}

/// Sessions end, which may take `limit`.
pub(crate) fn stopping(limit: Duration) {
    stop(limit, &format!("sessions end, at most {} s", limit.as_secs()));
}

/// Whoever started this process is asked to wait for `limit` before it is killed.
fn stop(limit: Duration, how: &str) {
    let microseconds = (limit + LAST_STEPS).as_micros();
    let state = format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={microseconds}\nSTATUS={how}");
    tell(&state, Some(PATIENCE));
}

fn tell(state: &str, patience: Option<Duration>) {
    if IS_REPLACED.load(Ordering::Relaxed) {
        return;
    }
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(error) = send(&socket, state, patience) {
        warn!(socket = %socket.display(), %error, "the service manager cannot be told how it is");
    }
}

/// To a socket with a path, or with an abstract name (`@name`). A manager that has too much to read holds up
/// nobody for longer than `patience`.
fn send(socket: &OsStr, state: &str, patience: Option<Duration>) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    let from = UnixDatagram::unbound()?;
    match patience {
        Some(_) => from.set_write_timeout(patience)?,
        None => from.set_nonblocking(true)?,
    }
    from.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_that_is_busy_is_waited_for_but_not_for_ever() {
        let name = format!("@forebay-busy-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name[1..]).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        let socket = OsStr::new(&name);
        let is_full = |result: io::Result<()>| match result {
            Ok(()) => false,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
                true
            }
        };
        let tries = (0..100_000).position(|_| is_full(send(socket, "STATUS=serving", None)));
        assert!(tries.is_some(), "its queue has an end");
        assert!(is_full(send(socket, "READY=1", Some(Duration::from_millis(10)))));

        let reading = std::thread::spawn(move || {
            manager.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let mut bytes = [0; 64];
            while let Ok(length) = manager.recv(&mut bytes) {
                if &bytes[..length] == b"READY=1" {
                    return true;
                }
            }
            false
        });
        send(socket, "READY=1", Some(Duration::from_secs(10))).unwrap();
        assert!(reading.join().unwrap());
    }
}
