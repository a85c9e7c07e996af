//! A file is read together with what it refers to.

use std::fs;
use std::path::Path;

use config::{Config, ConfigErrors};
use tempfile::TempDir;

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
const KEY: &str = "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n";

const HEAD: &str = r#"
[[listener]]
bind = "127.0.0.1:6033"
cluster = "main"
"#;

fn load(folder: &TempDir, text: &str) -> Result<Config, ConfigErrors> {
    let path = folder.path().join("forebay.toml");
    fs::write(&path, text).unwrap();
    Config::load(&path)
}

/// The messages without the folder that changes from run to run.
fn messages(folder: &TempDir, text: &str) -> Vec<String> {
    let prefix = format!("{}/", folder.path().display());
    let errors = load(folder, text).unwrap_err();
    errors
        .0
        .iter()
        .map(|error| error.to_string().replace(&prefix, ""))
        .collect()
}

fn write(folder: &TempDir, name: &str, content: &str) {
    fs::write(folder.path().join(name), content).unwrap();
}

#[test]
fn a_missing_file_is_told_by_name() {
    let errors = Config::load("/nonexistent/forebay.toml").unwrap_err();
    assert_eq!(
        errors.to_string(),
        "/nonexistent/forebay.toml: expected a readable configuration file, found No such file or directory (os error 2)"
    );
    assert!(
        Config::load("/")
            .unwrap_err()
            .to_string()
            .contains("found a folder")
    );
}

#[test]
fn a_file_that_is_not_text_is_told() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("forebay.toml");
    fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(Config::load(&path).unwrap_err().to_string().contains("UTF-8"));
    fs::write(&path, vec![b'#'; (1 << 20) + 1]).unwrap();
    assert!(
        Config::load(&path)
            .unwrap_err()
            .to_string()
            .contains("more than 1048576 bytes")
    );
}

#[test]
fn relative_paths_start_at_the_folder_of_the_file() {
    let folder = TempDir::new().unwrap();
    write(&folder, "cert.pem", CERTIFICATE);
    write(&folder, "key.pem", KEY);
    let tls = "[listener.tls]\nmode = \"required\"\ncert = \"cert.pem\"\nkey = \"key.pem\"\n";
    let config = load(
        &folder,
        &format!("{HEAD}{tls}[cluster.main]\nservers = [\"db1\"]\n"),
    )
    .unwrap();
    assert_eq!(
        config.listeners[0].tls.cert.as_deref(),
        Some(folder.path().join("cert.pem").as_path())
    );
}

#[test]
fn files_of_those_who_name_servers_are_as_others() {
    let folder = TempDir::new().unwrap();
    write(&folder, "ca.pem", CERTIFICATE);
    let tidb = |ca: &str| {
        format!(
            "{HEAD}[cluster.main]\nservers = []\ntopology = \"tidb\"\n[cluster.main.pd]\naddresses = [\"pd1:2379\"]\n\
             tls = {{ mode = \"required\", ca = \"{ca}\" }}\n"
        )
    };
    let config = load(&folder, &tidb("ca.pem")).unwrap();
    let pd = config.clusters["main"].pd.as_ref().unwrap();
    assert_eq!(pd.tls.ca, Some(folder.path().join("ca.pem")));
    assert_eq!(
        messages(&folder, &tidb("none.pem")),
        [
            "forebay.toml:10:33: cluster.main.pd.tls.ca: expected a file with PEM certificates, found none.pem: \
             No such file or directory (os error 2)"
        ]
    );

    let slices = "endpoint_slices = { service = \"mysql\", account_dir = \"account\" }";
    let config = load(
        &folder,
        &format!("{HEAD}[cluster.main]\nservers = []\n{slices}\n"),
    )
    .unwrap();
    let slices = config.clusters["main"].endpoint_slices.as_ref().unwrap();
    assert_eq!(slices.account_dir, folder.path().join("account"));
}

#[test]
fn files_that_are_missing_or_swapped_are_told_together() {
    let folder = TempDir::new().unwrap();
    write(&folder, "cert.pem", CERTIFICATE);
    write(&folder, "key.pem", KEY);
    let text = format!(
        "{HEAD}rsa_key = \"cert.pem\"\n[listener.tls]\nmode = \"required\"\ncert = \"key.pem\"\nkey = \"none.pem\"\n\
         [cluster.main]\nservers = [\"db1\"]\ntls = {{ mode = \"required\", ca = \".\" }}\n"
    );
    assert_eq!(
        messages(&folder, &text),
        [
            "forebay.toml:5:11: listener[0].rsa_key: expected a file with a PEM private key, found none in cert.pem",
            "forebay.toml:8:8: listener[0].tls.cert: expected a file with PEM certificates, found none in key.pem",
            "forebay.toml:9:7: listener[0].tls.key: expected a file with a PEM private key, found none.pem: \
             No such file or directory (os error 2)",
            "forebay.toml:12:33: cluster.main.tls.ca: expected a file with PEM certificates, found .: a folder",
        ]
    );
}

#[test]
fn a_password_comes_from_a_file_without_its_newline() {
    let folder = TempDir::new().unwrap();
    let text = format!(
        "{HEAD}[cluster.main]\nservers = [\"db1\"]\ncheck = {{ user = \"forebay\", password_file = \"secret\" }}\n"
    );
    write(&folder, "secret", "hunter2\n");
    let config = load(&folder, &text).unwrap();
    assert_eq!(
        config.clusters["main"].check.password.as_ref().unwrap().reveal(),
        "hunter2"
    );

    write(&folder, "secret", "hunter3\r\n");
    let changed = load(&folder, &text).unwrap();
    let diff = config.diff(&changed).to_string();
    assert_eq!(diff, "cluster.main.check.password: changed (live)");

    write(&folder, "secret", "\n");
    assert_eq!(
        messages(&folder, &text),
        [
            "forebay.toml:7:45: cluster.main.check.password_file: expected a file with a password, found nothing in secret"
        ]
    );

    // A line too many is not taken for a part of the password.
    write(&folder, "secret", "hunter2\n# of the checks\n");
    assert_eq!(
        messages(&folder, &text),
        [
            "forebay.toml:7:45: cluster.main.check.password_file: expected a file with a password, found 2 lines in secret; \
             it is to hold one, the password"
        ]
    );
}

#[test]
fn a_password_comes_from_the_environment() {
    let folder = TempDir::new().unwrap();
    let text = |variable: &str| {
        format!(
            "{HEAD}[cluster.main]\nservers = [\"db1\"]\ncheck = {{ user = \"forebay\", password_env = \"{variable}\" }}\n"
        )
    };
    // Cargo sets this one for every test; changing the environment of a running program is not safe.
    let config = load(&folder, &text("CARGO_PKG_NAME")).unwrap();
    assert_eq!(
        config.clusters["main"].check.password.as_ref().unwrap().reveal(),
        "config"
    );
    assert_eq!(
        messages(&folder, &text("FOREBAY_TEST_UNSET")),
        [
            "forebay.toml:7:44: cluster.main.check.password_env: expected a password in the environment variable \
          \"FOREBAY_TEST_UNSET\", found that it is not set"
        ]
    );
}

#[test]
fn a_zone_comes_from_a_file_or_the_environment() {
    let folder = TempDir::new().unwrap();
    let text = |option: &str| format!("{option}\n{HEAD}[cluster.main]\nservers = [\"db1\"]\n");
    std::fs::write(folder.path().join("zone"), "eu-west-1a\n").unwrap();
    let zone = |option: &str| load(&folder, &text(option)).unwrap().zone;
    assert_eq!(zone("zone_file = \"zone\"").as_deref(), Some("eu-west-1a"));
    assert_eq!(zone("zone_env = \"CARGO_PKG_NAME\"").as_deref(), Some("config"));
    std::fs::write(folder.path().join("zone"), "").unwrap();
    assert_eq!(
        messages(&folder, &text("zone_file = \"zone\"")),
        ["forebay.toml:1:13: zone_file: expected 1 to 255 bytes of printable text, found 0 bytes"]
    );
    assert_eq!(
        messages(&folder, &text("zone_env = \"FOREBAY_TEST_UNSET\"")),
        [
            "forebay.toml:1:12: zone_env: expected a zone in the environment variable \"FOREBAY_TEST_UNSET\", found that it \
             is not set, or no text"
        ]
    );
}

const SPLIT: &str = r#"
users_file = "secrets/users.toml"
[[listener]]
bind = "127.0.0.1:6033"
mode = "split"
cluster = "main"
[cluster.main]
servers = ["db1"]
"#;

fn names(config: &Config) -> Vec<&str> {
    config.users.iter().map(|user| user.name.as_str()).collect()
}

#[test]
fn accounts_come_from_a_file_of_their_own_as_well() {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("secrets")).unwrap();
    write(&folder, "secrets/app", "hunter2\n");
    let users = "[[user]]\nname = \"app\"\npassword_file = \"app\"\n";
    write(&folder, "secrets/users.toml", users);
    let text = format!("{SPLIT}[[user]]\nname = \"admin\"\npassword = \"hunter3\"\n");
    let config = load(&folder, &text).unwrap();
    assert_eq!(names(&config), ["admin", "app"]);
    assert_eq!(config.users[1].password.as_ref().unwrap().reveal(), "hunter2");
    assert!(!format!("{config:?}").contains("hunter"));

    // It is read again with every reload.
    let more = "[[user]]\nname = \"batch\"\npassword = \"\"\npooling = \"session\"\n";
    write(
        &folder,
        "secrets/users.toml",
        &format!("{users}max_connections = 5\n{more}"),
    );
    write(&folder, "secrets/app", "hunter4\n");
    let changed = load(&folder, &text).unwrap();
    assert_eq!(
        config.diff(&changed).to_string(),
        "user[app].password: changed (live)\nuser[app].max_connections: added (live)\nuser[batch]: added (live)"
    );

    // An empty one is no mistake: accounts may come and go.
    write(&folder, "secrets/users.toml", "");
    assert_eq!(names(&load(&folder, SPLIT).unwrap()), [""; 0]);
}

#[test]
fn mistakes_in_the_users_file_are_told_with_its_own_lines() {
    let folder = TempDir::new().unwrap();
    let text = format!("{SPLIT}[[user]]\nname = \"admin\"\npassword = \"hunter3\"\n");
    assert_eq!(
        messages(&folder, &text),
        [
            "forebay.toml:2:14: users_file: expected a file with [[user]] tables, found secrets/users.toml: \
             No such file or directory (os error 2)"
        ]
    );
    fs::create_dir(folder.path().join("secrets")).unwrap();
    let users = r#"
workers = 4
[[user]]
name = "admin"
password = "hunter2"
[[user]]
name = "app"
password_file = "none"
[[users]]
"#;
    write(&folder, "secrets/users.toml", users);
    assert_eq!(
        messages(&folder, &format!("worker = 2\n{text}")),
        [
            "forebay.toml:1:1: worker: expected an option of the file's top level, found the unknown key `worker`; did you mean \
             `workers`?",
            "secrets/users.toml:2:1: workers: expected an option of the file's top level, found the unknown key `workers`; known \
             here: user",
            "secrets/users.toml:4:8: user[0].name: expected a name of its own, found \"admin\" a second time, first in line 11 of \
             forebay.toml; leave one of the two out",
            "secrets/users.toml:8:17: user[1].password_file: expected a file with a password, found secrets/none: No such file or \
             directory (os error 2)",
            "secrets/users.toml:9:3: users: expected an option of the file's top level, found the unknown key `users`; did you \
             mean `user`?",
        ]
    );
    write(&folder, "secrets/users.toml", "[[user]\n");
    let broken = messages(&folder, &text);
    assert!(broken[0].starts_with("secrets/users.toml:1:8: "), "{broken:?}");
}

#[test]
fn checks_use_the_account_of_the_monitor() {
    let folder = TempDir::new().unwrap();
    write(&folder, "secret", "hunter2\n");
    let monitor = "monitor = { user = \"forebay\", password_file = \"secret\" }\n";
    let text = format!("{HEAD}[cluster.main]\nservers = [\"db1\"]\ntopology = \"replication\"\n{monitor}");
    let config = load(&folder, &text).unwrap();
    let cluster = &config.clusters["main"];
    assert_eq!(
        cluster
            .monitor
            .as_ref()
            .unwrap()
            .password
            .as_ref()
            .unwrap()
            .reveal(),
        "hunter2"
    );
    assert_eq!(cluster.check.kind, config::CheckKind::Login);
    assert_eq!(cluster.check.user.as_deref(), Some("forebay"));
    assert_eq!(cluster.check.password.as_ref().unwrap().reveal(), "hunter2");

    let own = load(&folder, &format!("{text}check = {{ user = \"checker\" }}\n")).unwrap();
    let check = &own.clusters["main"].check;
    assert_eq!(
        (check.user.as_deref(), check.password.as_ref()),
        (Some("checker"), None)
    );

    let none = load(&folder, &format!("{text}check = {{ kind = \"tcp\" }}\n")).unwrap();
    assert_eq!(none.clusters["main"].check.user, None);
}

#[test]
fn every_example_is_right() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut seen = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).unwrap();
            Config::parse(&text, &name).unwrap_or_else(|errors| panic!("{errors}"));
            seen += 1;
        }
    }
    assert!(seen >= 6, "{seen} examples");
}

#[test]
fn a_congestion_control_that_the_kernel_does_not_have_is_told() {
    let folder = TempDir::new().unwrap();
    let text =
        format!("{HEAD}congestion = \"bbrr9\"\n[cluster.main]\nservers = [\"db1\"]\ncongestion = \"reno\"\n");
    let [told] = &messages(&folder, &text)[..] else {
        panic!("one mistake")
    };
    let expected = "forebay.toml:5:14: listener[0].congestion: expected \"auto\", \"system\" or one that the kernel has (";
    assert!(told.starts_with(expected), "{told}");
    assert!(told.contains("), found \"bbrr9\"; "), "{told}");
}
