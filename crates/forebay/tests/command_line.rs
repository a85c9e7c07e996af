//! What the command line prints, and its exit codes.

#![allow(
    clippy::unwrap_used,
    reason = "a test stops where something is not as it must be"
)]

use std::process::{Command, Stdio};

#[test]
fn a_reader_that_has_read_enough_is_no_error() {
    for what in ["options", "metrics", "mapping-tables"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["docs", what])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.as_ref()), (Some(0), ""), "{what}");
    }
}
