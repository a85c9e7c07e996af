//! For tests of what the whole process has, its memory say: each runs once more by itself, in a process of
//! its own.

use std::process::Command;

use tokio::task::LocalSet;

/// Says to the copy of this program that it is one.
const COPY: &str = "NET_TEST_COPY";

/// Runs `test`, whose name here is `name`, in a process that the shell command `limits` is for.
pub(crate) fn alone(name: &str, limits: &str, test: impl Future<Output = ()>) {
    if std::env::var_os(COPY).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        return runtime.block_on(LocalSet::new().run_until(test));
    }
    let output = Command::new("sh")
        .args(["-c", &format!("{limits} && exec \"$@\""), "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(COPY, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(said.contains("1 passed"), "{name} is none of its tests");
}
