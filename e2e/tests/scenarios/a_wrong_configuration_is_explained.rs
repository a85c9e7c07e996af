use std::process::Command;

use e2e::program;

/// Exit code and everything printed by `forebay check`.
fn check(text: &str) -> (i32, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("forebay.toml");
    std::fs::write(&file, text).unwrap();
    let output = Command::new(program())
        .args(["check", "--config"])
        .arg(&file)
        .output()
        .unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(printed).unwrap())
}

const MINIMAL: &str = r#"workers = 2
[[listener]]
bind = "127.0.0.1:6033"
mode = "session"
cluster = "main"
[cluster.main]
servers = ["127.0.0.1:3306", "127.0.0.1:3307"]
[admin]
bind = "127.0.0.1:6080"
"#;

#[test]
fn and_the_minimal_one_is_right() {
    assert_eq!(check(MINIMAL).0, 0);
}

#[test]
fn with_file_line_key_and_what_was_expected() {
    let (code, printed) = check(&MINIMAL.replace("\"session\"", "\"sesion\""));
    assert_ne!(code, 0);
    for part in ["forebay.toml:4:", "mode", "session", "sesion"] {
        assert!(printed.contains(part), "{part:?} is not in: {printed}");
    }
}

#[test]
fn all_mistakes_at_once() {
    let text = MINIMAL
        .replace("cluster = \"main\"", "cluster = \"mian\"")
        .replace("workers = 2", "wokers = 2");
    let (code, printed) = check(&text);
    assert_ne!(code, 0);
    for part in ["wokers", "workers", "mian"] {
        assert!(printed.contains(part), "{part:?} is not in: {printed}");
    }
}

#[test]
fn also_when_the_file_is_missing() {
    let output = Command::new(program())
        .args(["check", "--config", "/no/such/file.toml"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("/no/such/file.toml")
    );
}
