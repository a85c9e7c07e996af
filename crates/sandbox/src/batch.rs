//! Statements by the command line client: as root over a server's Unix socket, in the database `test`.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

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
