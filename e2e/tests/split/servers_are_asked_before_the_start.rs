//! `forebay check --connect` finds what `serve` would: who is let in, who may ask what, and what the servers
//! are.

use std::process::Command;

use e2e::{kind, program};
use sandbox::{Kind, PASSWORD, USER};

use crate::cluster;

/// Exit code, the table, and what is said about it. A server of a busy machine that is late is not down.
fn check(addresses: &[String], monitor: [&str; 2], tables: &str) -> (i32, String, String) {
    let [user, password] = monitor;
    let text = format!(
        "[[listener]]\nbind = \"127.0.0.1:0\"\nmode = \"split\"\ncluster = \"main\"\n[cluster.main]\ntopology = \"replication\"\n\
         servers = {addresses:?}\nmonitor = {{ user = {user:?}, password = {password:?}, timeout = \"30s\" }}\n\
         [cluster.main.check]\ntimeout = \"30s\"\n{tables}"
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("forebay.toml");
    std::fs::write(&file, text).unwrap();
    let output = Command::new(program())
        .args(["check", "--connect", "--config"])
        .arg(&file)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    (code, text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn as_they_are() {
    let sandbox = cluster::shared();
    let addresses = sandbox.addresses();
    let (code, table, said) = check(&addresses, [USER, PASSWORD], &cluster::user(USER, PASSWORD));
    assert_eq!(code, 0, "{table}{said}");
    for (address, role) in addresses.iter().zip(["primary", "replica", "replica"]) {
        let is_it = |line: &&str| line.contains(address.as_str());
        let line = table.lines().find(is_it).unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let read_only = if role == "primary" { "off" } else { "on" };
        assert_eq!(words[..3], [address.as_str(), role, read_only], "{table}");
        assert_eq!(words[4..7], ["ok", "ok", "1/1"], "{table}");
        assert!(!words[7].contains("off"), "GTIDs: {table}");
    }
}

#[tokio::test]
async fn with_what_would_not_work() {
    let sandbox = cluster::shared();
    let addresses = sandbox.addresses();
    // A password that the servers do not know.
    let wrong = cluster::user(USER, "mistyped");
    let (code, _, said) = check(&addresses, [USER, PASSWORD], &wrong);
    assert_eq!(code, 1, "{said}");
    for address in &addresses {
        let words = format!("server {address} refuses the password of [[user]] {USER:?}: Access denied");
        assert!(said.contains(&words), "{said}");
    }
    assert!(said.ends_with("forebay: 3 things would not work\n"), "{said}");
    assert!(!said.contains("mistyped"), "{said}");
    // While a password is changed the former one is as good.
    let changing = format!("{wrong}previous_password = {PASSWORD:?}\n");
    assert_eq!(check(&addresses, [USER, PASSWORD], &changing).0, 0);

    // A monitor without rights.
    let account = "asks_in_vain";
    let create = format!("CREATE USER {account}@'%' IDENTIFIED BY 'x'");
    sandbox.primary().sql(&create).unwrap();
    sandbox.sync().unwrap();
    let own = cluster::user(USER, PASSWORD);
    let (code, _, said) = check(&addresses, [account, "x"], &own);
    let right = match kind() {
        Kind::Mysql => "REPLICATION CLIENT",
        _ => "SLAVE MONITOR",
    };
    assert_eq!(code, 1, "{said}");
    for words in [
        "cannot be asked by the monitor: does not tell its role:",
        right,
        "no server is the primary",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let (_, _, said) = check(&addresses, [account, "other"], &own);
    assert!(
        said.contains(&format!("login of the check's user {account}: Access denied")),
        "{said}"
    );

    // Nobody there, and the others as before.
    let with_nobody = [&addresses[..], &["127.0.0.1:1".to_owned()]].concat();
    let (code, table, said) = check(&with_nobody, [USER, PASSWORD], &own);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("server 127.0.0.1:1 fails its check"), "{said}");
    assert!(said.ends_with("forebay: 1 thing would not work\n"), "{said}");
    assert_eq!(table.matches("1/1").count(), 3, "{table}");
}
