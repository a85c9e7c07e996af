use std::path::Path;
use std::process::Command;

use e2e::program;

/// Runs `forebay sandbox` with a state folder of its own; what it printed.
fn sandbox(state: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(program());
    let output = command
        .arg("sandbox")
        .args(arguments)
        .env("XDG_RUNTIME_DIR", state)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn and_then_leave_nothing_behind() {
    let state = tempfile::tempdir().unwrap();
    let nothing = "No sandbox is up";
    assert!(sandbox(state.path(), &["status"]).contains(nothing));

    let printed = sandbox(
        state.path(),
        &["up", "--kind", e2e::kind().name(), "--nodes", "2"],
    );
    let connect = printed
        .lines()
        .find(|line| line.starts_with("Connect:"))
        .expect("a line that says how to connect");
    let port = connect
        .split("--port=")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let folder = printed
        .lines()
        .find_map(|line| line.strip_prefix("Files:"))
        .expect("a line that names the folder");
    let folder = folder.trim().split(' ').next().unwrap();
    let status = sandbox(state.path(), &["status"]);
    assert_eq!(status.matches("running").count(), 2, "{status}");
    assert_eq!(e2e::client::command_line(port, &[], "SELECT 42").unwrap(), "42\n");
    assert!(Path::new(folder).is_dir());

    // Another one goes by its address, and nothing else does.
    let other = sandbox(state.path(), &["up", "--kind", e2e::kind().name()]);
    let stop = other.lines().find_map(|line| line.strip_prefix("Stop:"));
    let address = stop.unwrap().split_whitespace().nth(3).unwrap();
    sandbox(state.path(), &["down", address]);
    let status = sandbox(state.path(), &["status"]);
    assert_eq!(status.matches("running").count(), 2, "{status}");
    assert!(!status.contains(address), "{status}");

    let printed = sandbox(state.path(), &["down"]);
    assert!(printed.contains("Stopped 2"), "{printed}");
    assert!(!Path::new(folder).exists());
    assert!(sandbox(state.path(), &["status"]).contains(nothing));
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
}
