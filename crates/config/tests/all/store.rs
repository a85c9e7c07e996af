//! `[store]`, what stands beside it, and the text that several gateways have in common.

use std::fs;
use std::path::Path;

use config::{Config, TlsMode};
use expect_test::{Expect, expect};

const OWN: &str = r#"
workers = 3
zone = "east"
[store]
endpoints = ["127.0.0.1:2379"]
secrets_dir = "secrets"
[admin]
bind = "127.0.0.1:6080"
"#;

const COMMON: &str = r#"
[[listener]]
bind = "127.0.0.1:6033"
cluster = "main"
[cluster.main]
servers = ["db1"]
"#;

fn told(text: &str, expected: Expect) {
    let errors = Config::parse(text, "f.toml").unwrap_err();
    expected.assert_eq(&format!("{errors}\n"));
}

/// A gateway's own file, and a folder with a secret.
fn own(toml: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("forebay.toml"), toml).unwrap();
    fs::create_dir(folder.path().join("secrets")).unwrap();
    fs::write(folder.path().join("secrets/app"), "hunter2\n").unwrap();
    folder
}

fn common(folder: &Path, text: &str) -> Result<Config, String> {
    let loaded = Config::load_common(folder.join("forebay.toml"), text, "revision 7");
    loaded.map_err(|errors| {
        let words = errors.to_string();
        words.replace(&folder.display().to_string(), "FOLDER")
    })
}

#[test]
fn a_store_takes_a_place_and_beyond_this_machine_a_login() {
    told(
        "[store]\n",
        expect![[r#"
            f.toml:1:1: store.endpoints: expected `endpoints` of an etcd, found none
        "#]],
    );
    told(
        r#"
[store]
endpoints = ["10.0.0.1:2379", "etcd", "/run/etcd.sock"]
fleet = "a/b"
tls = { mode = "preferred" }
lease = "1s"
"#,
        expect![[r#"
            f.toml:2:1: store.user: expected an account of the etcd, since 10.0.0.1:2379 is beyond this machine, found none
            f.toml:3:31: store.endpoints[1]: expected a host and the port of etcd for clients ("etcd1:2379"), found etcd:3306
            f.toml:3:39: store.endpoints[2]: expected a host and the port of etcd for clients ("etcd1:2379"), found /run/etcd.sock
            f.toml:4:9: store.fleet: expected 1 to 64 letters, digits, `.`, `-` or `_`, found "a/b"
            f.toml:5:16: store.tls.mode: expected "required", since 10.0.0.1:2379 is beyond this machine, found "preferred"
            f.toml:6:9: store.lease: expected a duration from "2s" to "5m", found "1s"
        "#]],
    );
    let sound = "[store]\nendpoints = [\"etcd1:2379\"]\nuser = \"gw\"\npassword = \"x\"\ntls = { mode = \"required\" }\n";
    let config = Config::parse(sound, "f.toml").unwrap();
    let store = config.store.unwrap();
    assert_eq!(
        (store.tls.mode, store.fleet.as_str()),
        (TlsMode::Required, "main")
    );
}

#[test]
fn a_gateway_s_own_address_stays_beside_the_text_of_all() {
    let vip = "[vip]\naddress = \"10.0.0.9/24\"\ninterface = \"eth0\"\n";
    let folder = own(&format!("{OWN}{vip}"));
    let config = common(folder.path(), COMMON).unwrap();
    let vip_of = config.vip.unwrap();
    assert_eq!(
        (vip_of.address.to_string().as_str(), vip_of.priority),
        ("10.0.0.9/24", 100)
    );
    let problem = common(folder.path(), &format!("{COMMON}{vip}")).unwrap_err();
    assert!(
        problem.contains("vip: expected what is one for all gateways"),
        "{problem}"
    );
}

#[test]
fn what_is_one_for_all_is_not_in_a_gateway_s_own_file() {
    told(
        &format!("log = {{ level = \"debug\" }}\n{OWN}\n{COMMON}"),
        expect![[r#"
            f.toml:12:3: listener: expected what is one for all gateways in the store alone, since there is a [store], found `listener`; put it into the file of `forebay ctl apply FILE`
            f.toml:15:2: cluster: expected what is one for all gateways in the store alone, since there is a [store], found `cluster`; put it into the file of `forebay ctl apply FILE`
        "#]],
    );
}

#[test]
fn a_gateway_s_own_and_what_all_have_are_one_configuration() {
    let folder = own(OWN);
    let text = format!("{COMMON}[[user]]\nname = \"app\"\npassword_file = \"app\"\n");
    let config = common(folder.path(), &text).unwrap();
    assert_eq!((config.workers, config.zone.as_deref()), (3, Some("east")));
    assert!(config.admin.is_some() && config.store.is_some());
    assert_eq!(config.listeners.len(), 1);
    assert_eq!(config.users[0].password.as_ref().unwrap().reveal(), "hunter2");
    // What may stand in either is the common text's where that has it.
    let folder = own(&format!("max_connections = 5\nbuffer_pool_max = 7\n{OWN}"));
    let config = common(folder.path(), &format!("max_connections = 9\n{COMMON}")).unwrap();
    assert_eq!((config.max_connections, config.buffer_pool_max), (Some(9), 7));
}

#[test]
fn a_text_for_all_has_no_secrets_and_no_paths_of_machines() {
    let folder = own(OWN);
    let text = format!(
        "{COMMON}monitor = {{ user = \"m\", password = \"hunter2\" }}\n\
         tls = {{ mode = \"required\", ca = \"/etc/passwd\" }}\n\
         [[user]]\nname = \"a\"\npassword_file = \"../app\"\n\
         [[user]]\nname = \"b\"\npassword = \"\"\n\
         [[user]]\nname = \"c\"\nnative_hash = \"*2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19\"\nprevious_password = \"hunter3\"\n\
         [admin]\nbind = \"127.0.0.1:1\"\n"
    );
    let words = common(folder.path(), &text).unwrap_err();
    expect![[r#"
        revision 7:7:36: cluster.main.monitor.password: expected no password in clear in the store, found one; password_file below `secrets_dir`, password_env, or a hash
        revision 7:8:33: cluster.main.tls.ca: expected a path below `secrets_dir` of each gateway (here FOLDER/secrets), found "/etc/passwd"
        revision 7:11:17: user[0].password_file: expected a path below `secrets_dir` of each gateway (here FOLDER/secrets), found "../app"
        revision 7:18:21: user[2].previous_password: expected no password in clear in the store, found one; password_file below `secrets_dir`, password_env, or a hash
        revision 7:19:2: admin: expected what is one for all gateways, found `admin`; it stands in the file of each gateway, beside [store]"#]].assert_eq(&words);
    // Nothing in it: not what this gateway began with.
    let words = common(folder.path(), "").unwrap_err();
    expect!["revision 7:1:1: listener: expected at least one listener, found none; add [[listener]] with `bind` and `cluster`"].assert_eq(&words);
}

#[test]
fn an_account_of_kubernetes_is_no_way_to_other_folders() {
    let folder = own(OWN);
    let slices = |account_dir: &str| {
        let slices = format!("{{ service = \"mysql\", account_dir = {account_dir:?} }}");
        common(
            folder.path(),
            &format!("{COMMON}[cluster.k8s]\nservers = []\nendpoint_slices = {slices}\n"),
        )
    };
    let words = slices("/etc/forebay").unwrap_err();
    let expected = "cluster.k8s.endpoint_slices.account_dir: expected a path below `secrets_dir`";
    assert!(words.contains(expected), "{words}");
    let config = slices("account").unwrap();
    let k8s = config.clusters["k8s"].endpoint_slices.as_ref().unwrap();
    assert_eq!(k8s.account_dir, folder.path().join("secrets/account"));
}
