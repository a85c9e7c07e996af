//! Statements by the command line client: as root over a server's Unix socket, in the database `test`.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::{DATABASE, SandboxError};

/// The client program, for a server with this socket.
pub(crate) fn client(program: &Path, socket: &Path) -> Command {
    let mut client = Command::new(program);
    client.args(["--no-defaults", "--batch", "--skip-column-names", "--user=root"]);
    if program.file_name().is_some_and(|name| name == "mariadb") {
        // This one encrypts even what goes over a Unix socket, which takes it four times as long.
        client.arg("--skip-ssl");
    }
    client.arg(format!("--socket={}", socket.display())).arg(DATABASE);
    client
}

/// Reads the first packet that the server sends to a new client; version 10 of the protocol begins with a 10
/// after the header, an error packet with 255. Over the socket, so that no host is noted for leaving early.
pub(crate) fn greets(socket: &Path) -> bool {
    let Ok(mut stream) = UnixStream::connect(socket) else {
        return false;
    };
    let mut start = [0; 5];
    let limited = stream.set_read_timeout(Some(Duration::from_secs(2)));
    limited.and_then(|()| stream.read_exact(&mut start)).is_ok() && start[4] == 10
}

/// Runs statements, and returns the rows: columns separated by tabs, no header. `node`: whose error it is.
pub(crate) fn run(mut client: Command, statements: &str, node: usize) -> Result<String, SandboxError> {
    let program = client.get_program().to_owned();
    let failed = |source| SandboxError::io("run", Path::new(&program), source);
    let mut running = client
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let stdin = running.stdin.take();
    let output = std::thread::scope(|scope| {
        // A client that gives up closes the pipe; its message says why.
        scope.spawn(move || stdin.map(|mut pipe| pipe.write_all(statements.as_bytes())));
        running.wait_with_output()
    });
    let output = output.map_err(failed)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(SandboxError::Sql { node, message })
}
