//! Captures of traffic and what becomes of them, by the program itself.

use std::process::Command;

use sandbox::{Node, PASSWORD, USER};

use crate::Gateway;

/// `forebay` with these arguments: its exit code, and what it says.
#[must_use]
pub fn forebay(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(crate::program());
    command.args(arguments).env("REPLAY_PASSWORD", PASSWORD);
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

/// Replays a folder on a server.
#[must_use]
pub fn replay_on(server: &Node, folder: &str, result: &str, more: &[&str]) -> (Option<i32>, String) {
    let server = server.address();
    let to = ["traffic", "replay", folder, "--to", &server, "--user", USER];
    let login = ["--password-env", "REPLAY_PASSWORD", "--result", result];
    forebay(&[&to[..], &login, more].concat())
}

/// Begins a capture into a folder of this name beside the gateway's configuration, and tells its path.
#[must_use]
pub fn start(gateway: &Gateway, name: &str) -> String {
    start_with(gateway, name, &[])
}

/// Begins one with more options.
#[must_use]
pub fn start_with(gateway: &Gateway, name: &str, more: &[&str]) -> String {
    let folder = gateway.folder().join(name).display().to_string();
    let socket = gateway.folder().join("admin.sock").display().to_string();
    let fixed = ["traffic", "capture", "start", "--socket", &socket];
    let to = ["--to", &folder, "--free-disk", "0"];
    let (code, said) = forebay(&[&fixed[..], &to, more].concat());
    assert_eq!(code, Some(0), "{said}");
    folder
}

/// Ends the capture, with all that clients have had answers to.
pub fn stop(gateway: &Gateway) {
    // A client has its answer a moment before the worker notes the command. A worker that tells of its
    // sessions has noted all that was answered.
    drop(gateway.get("/sessions"));
    let socket = gateway.folder().join("admin.sock").display().to_string();
    let (code, said) = forebay(&["traffic", "capture", "stop", "--socket", &socket]);
    assert_eq!(code, Some(0), "{said}");
}

/// The bytes of a folder's files: as they are, and the frames unpacked.
#[must_use]
pub fn bytes_of(folder: &str) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        all.extend_from_slice(&bytes);
        let mut rest = &bytes[56..];
        while let Some((prefix, behind)) = rest.split_first_chunk::<8>() {
            let len = u32::from_le_bytes([prefix[0], prefix[1], prefix[2], prefix[3]]) as usize;
            all.extend(zstd::bulk::decompress(&behind[..len], 16 << 20).unwrap());
            rest = &behind[len..];
        }
    }
    all
}

/// Whether this text is among the bytes.
#[must_use]
pub fn has(bytes: &[u8], what: &str) -> bool {
    bytes.windows(what.len()).any(|part| part == what.as_bytes())
}
