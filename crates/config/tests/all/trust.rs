//! What trusts more than it seems to is told.

use config::{Config, trust_worries};

fn told(cluster: &str, mode: &str, system_user: &str) -> Vec<String> {
    let text = format!(
        "[[listener]]\nname = \"clients\"\nbind = \"127.0.0.1:7000\"\ncluster = \"main\"\nmode = \"{mode}\"\n[cluster.main]\n{cluster}"
    );
    trust_worries(&Config::parse(&text, "f.toml").unwrap(), system_user)
}

#[test]
fn encryption_with_whoever_answers() {
    let tls = |options: &str| format!("servers = [\"db1\"]\n[cluster.main.tls]\n{options}\n");
    let blind = told(&tls("mode = \"required\""), "session", "forebay");
    assert!(blind.len() == 1 && blind[0].contains("without `ca`"), "{blind:?}");
    for seeing in [
        "mode = \"preferred\"",
        "mode = \"required\"\nca = \"/etc/hostname\"",
        "mode = \"off\"",
    ] {
        assert_eq!(told(&tls(seeing), "session", "forebay"), [""; 0], "{seeing}");
    }
    let pd = "topology = \"tidb\"\nservers = []\npd = { addresses = [\"pd1:2379\"], tls = { mode = \"required\" } }\n";
    let blind = told(pd, "session", "forebay");
    assert!(
        blind.len() == 1 && blind[0].contains("cluster.main.pd.tls"),
        "{blind:?}"
    );
}

#[test]
fn a_gateway_that_is_whom_servers_trust() {
    let socket = "servers = [\"/run/mysqld/mysqld.sock\"]\n";
    for user in ["root", "mysql"] {
        let words = told(socket, "session", user);
        assert!(
            words.len() == 1 && words[0].contains(&format!("runs as {user}")),
            "{words:?}"
        );
    }
    assert_eq!(told(socket, "session", "forebay"), [""; 0]);
    assert_eq!(told("servers = [\"db1\"]\n", "tcp", "root"), [""; 0]);
    let bare = told(socket, "tcp", "forebay");
    assert!(bare.len() == 1 && bare[0].contains("mode \"tcp\""), "{bare:?}");
}
