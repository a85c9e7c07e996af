//! `forebay check` finds right what we show: the files in `examples/` and the configuration of the Debian
//! package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What they take from the environment.
const SECRETS: [&str; 3] = [
    "APP_PASSWORD",
    "FOREBAY_CHECK_PASSWORD",
    "FOREBAY_MONITOR_PASSWORD",
];

#[test]
fn every_example_passes_the_check() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("examples");
    make_certificates(&folder.join("tls"));
    // The Debian package makes one at its installation.
    let token = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["token", "--replace"])
        .arg(folder.join("token"))
        .status();
    assert!(token.unwrap().success());
    let examples = fs::read_dir(root.join("examples")).unwrap();
    let all = examples.map(|entry| entry.unwrap().path());
    // The others are for other programs: script/package-test, and the end-to-end tests that start them.
    let is_ours = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "toml");
    let mut shown: Vec<PathBuf> = all.filter(is_ours).collect();
    shown.push(root.join("deploy/debian/forebay.toml"));
    assert!(shown.len() >= 10, "{shown:?}");
    for path in shown {
        let copy = folder.join(path.file_name().unwrap());
        fs::copy(&path, &copy).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["check", "--config"])
            .arg(&copy)
            .envs(SECRETS.map(|name| (name, "secret")))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", path.display());
    }
}

/// The files that `examples/tls.toml` names.
fn make_certificates(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let made = sandbox::Certificates::make(folder).unwrap();
    let named = [
        (&made.server_cert, "listener-cert.pem"),
        (&made.server_key, "listener-key.pem"),
        (&made.client_cert, "gateway-cert.pem"),
        (&made.client_key, "gateway-key.pem"),
        (&made.ca, "client-ca.pem"),
        (&made.ca, "server-ca.pem"),
    ];
    for (file, name) in named {
        fs::copy(file, folder.join(name)).unwrap();
    }
}
