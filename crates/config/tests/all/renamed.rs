//! Options under names of earlier versions are understood, and told.

use config::{Config, Consistency, setup_worries};

const OLD: &str = r#"
[[listener]]
bind = "127.0.0.1:6379"
protocol = "redis"
consistency = "eventual"

[cluster.main]
servers = [{ address = "db1", max_connections = 8 }]
topology = "replication"
monitor = { user = "m", password = "x" }
ignore = ["db7"]

[[user]]
name = "app"
password = "new"
other_password = "old"

[cache]
cluster = "main"
"#;

fn renewed() -> String {
    OLD.replace("\nconsistency", "\nlookup_consistency")
        .replace("\nignore", "\ndiscover_ignore")
        .replace("\nother_", "\nprevious_")
}

#[test]
fn a_former_name_means_the_present_option_and_is_told() {
    let config = Config::parse(OLD, "f.toml").unwrap();
    assert_eq!(config.listeners[0].lookup_consistency, Consistency::Eventual);
    assert_eq!(config.clusters["main"].discover_ignore.len(), 1);
    let previous = config.users[0].previous_password.as_ref();
    assert_eq!(previous.map(|secret| secret.reveal()), Some("old"));
    let is_called = |place: &str, option: &str, new: &str| {
        format!(
            "f.toml:{place}: {option} is called `{new}` now; the former name is still understood, and will not always be"
        )
    };
    assert_eq!(
        setup_worries(&config),
        [
            is_called("5:1", "listener[0].consistency", "lookup_consistency"),
            is_called("11:1", "cluster.main.ignore", "discover_ignore"),
            is_called("16:1", "user[0].other_password", "previous_password"),
        ]
    );
    let new = Config::parse(&renewed(), "f.toml").unwrap();
    assert_eq!(setup_worries(&new), [""; 0]);
    assert!(config.diff(&new).is_empty(), "the same options");
}

#[test]
fn both_names_at_once_are_a_mistake() {
    let both = OLD.replace(
        "ignore = [\"db7\"]",
        "ignore = [\"db7\"]\ndiscover_ignore = [\"db8\"]",
    );
    let told = Config::parse(&both, "f.toml").unwrap_err().to_string();
    assert_eq!(
        told,
        "f.toml:11:1: cluster.main.ignore: expected `discover_ignore` alone, which was `ignore` in earlier versions, \
         found it beside `discover_ignore`; delete `ignore`"
    );
}

#[test]
fn also_in_the_users_file() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let user = "[[user]]\nname = \"later\"\npassword = \"a\"\nother_password = \"b\"\n";
    std::fs::write(at("users.toml"), user).unwrap();
    std::fs::write(
        at("f.toml"),
        format!("users_file = \"users.toml\"\n{}", renewed()),
    )
    .unwrap();
    let told = setup_worries(&Config::load(at("f.toml")).unwrap());
    assert!(
        told.len() == 1 && told[0].contains("users.toml:4:1: user[0].other_password"),
        "{told:?}"
    );
}
