//! A configuration is read as it is written; what is not written has its documented default.

use std::time::Duration;

use config::{BindAddress, CheckKind, Config, Mode, ServerAddress, TlsMode, Verify};

const MINIMAL: &str = r#"
workers = 2             # default: one per core

[[listener]]
bind = "127.0.0.1:6033"
mode = "session"        # tcp | session
cluster = "main"

[cluster.main]
servers = ["127.0.0.1:3306", "127.0.0.1:3307"]

[admin]
bind = "127.0.0.1:6080"   # /metrics /healthz /readyz
"#;

fn parse(text: &str) -> Config {
    Config::parse(text, "forebay.toml").unwrap_or_else(|errors| panic!("{errors}"))
}

#[test]
fn the_minimal_configuration_is_enough() {
    let config = parse(MINIMAL);
    assert_eq!(config.workers, 2);
    assert_eq!(config.max_connections, None);
    assert_eq!(
        config.admin.as_ref().unwrap().bind,
        "127.0.0.1:6080".parse().unwrap()
    );
    let listener = &config.listeners[0];
    assert_eq!(listener.name, "127.0.0.1:6033");
    assert_eq!(listener.bind, BindAddress::Tcp("127.0.0.1:6033".parse().unwrap()));
    assert_eq!(listener.mode, Mode::Session);
    assert_eq!(listener.client_idle_timeout, Duration::from_secs(8 * 3600));
    assert_eq!(listener.unix_mode.0, 0o666);
    let cluster = &config.clusters["main"];
    assert_eq!((cluster.name.as_str(), cluster.servers.len()), ("main", 2));
    assert_eq!(
        cluster.servers[1].address,
        ServerAddress::Host {
            host: "127.0.0.1".into(),
            port: 3307
        }
    );
    assert_eq!(cluster.servers[1].name, "127.0.0.1:3307");
    assert_eq!(
        (cluster.check.kind, cluster.check.rise, cluster.check.fall),
        (CheckKind::Greeting, 2, 3)
    );
    assert_eq!(cluster.tls.mode, TlsMode::Off);
}

#[test]
fn a_server_is_an_address_or_a_table() {
    let config = parse(
        r#"
        listener = [{ bind = "/run/forebay.sock", cluster = "main", unix_mode = "0660" }]
        [cluster.main]
        servers = ["db1", { address = "db2:3307", name = "two", weight = 3, max_connections = 10, backup = true }]
        "#,
    );
    assert_eq!(config.listeners[0].unix_mode.0, 0o660);
    let [one, two] = config.clusters["main"].servers.as_slice() else {
        panic!("two servers")
    };
    assert_eq!(
        (one.name.as_str(), one.weight, one.max_connections, one.backup),
        ("db1:3306", 1, 0, false)
    );
    assert_eq!(
        (two.name.as_str(), two.weight, two.max_connections, two.backup),
        ("two", 3, 10, true)
    );
}

#[test]
fn an_account_asks_for_logins_and_an_authority_for_verification() {
    let config = parse(
        r#"
        listener = [{ bind = "127.0.0.1:6033", cluster = "main" }]
        [cluster.main]
        servers = ["db1"]
        check = { user = "forebay", password = "hunter2" }
        tls = { mode = "required", ca = "/etc/forebay/ca.pem" }
        "#,
    );
    let cluster = &config.clusters["main"];
    assert_eq!(cluster.check.kind, CheckKind::Login);
    assert_eq!(cluster.check.password.as_ref().unwrap().reveal(), "hunter2");
    assert_eq!(cluster.tls.verify, Verify::Identity);
    assert!(!format!("{config:?}").contains("hunter2"));
}
