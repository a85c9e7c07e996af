//! `forebay import`: where its output goes, and its exit codes.

use std::io::Write;
use std::process::{Command, Output, Stdio};

const PLAIN: &str = r#"
mysql_servers = ( { address = "db1", hostgroup = 0 }, { address = "db2", hostgroup = 1 } )
mysql_replication_hostgroups = ( { writer_hostgroup = 0, reader_hostgroup = 1 } )
mysql_variables = { monitor_username = "monitor", monitor_password = "m" }
mysql_users = ( { username = "app", password = "p" } )
"#;

fn import(arguments: &[&str], text: &str) -> Output {
    import_from("proxysql", arguments, text)
}

fn import_from(gateway: &str, arguments: &[&str], text: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["import", gateway])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn the_configuration_goes_out_and_the_rest_is_said_beside_it() {
    let with_more = PLAIN.replace("monitor_password", "query_cache_size_MB = 256, monitor_password");
    let output = import(&["-"], &with_more);
    assert_eq!(output.status.code(), Some(0));
    assert!(config::Config::parse(text(&output.stdout), "out").is_ok());
    assert_eq!(
        text(&output.stderr),
        "global variables without an equal: mysql-query_cache_size_MB\n"
    );
    assert_eq!(import(&["--strict", "-"], &with_more).status.code(), Some(3));
}

#[test]
fn nothing_lost_is_strict_enough() {
    let output = import(&["--strict", "-"], PLAIN);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}

#[test]
fn a_file_that_cannot_be_read_is_named_with_the_line() {
    let output = import(&["-"], "mysql_servers = (\n oops )");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "forebay: -: line 2: expected `{` or `)`\n");
    assert!(output.stdout.is_empty());
}

/// What was taken over has the line that it is from; a word that nobody knows is named with its line.
#[test]
fn haproxy_is_read_as_well() {
    let text = "listen db\n  bind 127.0.0.1:3306\n  option mysql-check user check\n  blance roundrobin\n\
                \x20 server db1 10.0.0.1:3306 check\n";
    let output = import_from("haproxy", &["--strict", "-"], text);
    assert_eq!(output.status.code(), Some(3));
    let toml = self::text(&output.stdout);
    assert!(config::Config::parse(toml, "out").is_ok(), "{toml}");
    assert!(
        toml.contains("address = \"10.0.0.1:3306\" }, # line 5\n"),
        "{toml}"
    );
    assert_eq!(
        self::text(&output.stderr),
        "line 4: `blance roundrobin`: not known; left out\n"
    );
    let output = import_from("haproxy", &["-"], "[[listener]]\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(self::text(&output.stderr).starts_with("forebay: -: line 1: nothing here is HAProxy's"));
}

/// A whole file of one, with the certificates that it names.
#[test]
fn what_is_imported_is_accepted_by_check() {
    let folder = std::env::temp_dir().join(format!("forebay-import-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let files = concat!(env!("CARGO_MANIFEST_DIR"), "/../import/tests/files/");
    for name in ["writes-and-reads.cfg", "galera.cfg"] {
        let text = std::fs::read_to_string(format!("{files}{name}")).unwrap();
        let output = import_from("haproxy", &["-"], &text);
        let file = folder.join("forebay.toml");
        std::fs::write(&file, &output.stdout).unwrap();
        let check = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .arg("check")
            .arg("--config")
            .arg(&file)
            .output();
        let check = check.unwrap();
        assert!(check.status.success(), "{name}: {}", self::text(&check.stderr));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
