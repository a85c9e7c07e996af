//! Slips of those who write a configuration by hand, and at night: what they are told, and the next step.

use config::Config;
use expect_test::{Expect, expect};

const SOUND: &str = r#"
[[listener]]
bind = "127.0.0.1:6033"
cluster = "main"

[cluster.main]
servers = ["db1", "db2"]
"#;

/// Compares the messages for a text.
fn told(text: &str, expected: Expect) {
    let errors = Config::parse(text, "f.toml").unwrap_err();
    expected.assert_eq(&format!("{errors}\n"));
}

#[test]
fn what_the_parser_does_not_understand_is_told_in_words_of_operators() {
    told(
        "bind = 127.0.0.1:6033\nservers = [db1]\nwatch = yes\npassword = hunter2\ntext = \"\\d+\"\n",
        expect![[r#"
            f.toml:1:13: invalid float, expected nothing; what is no plain number goes in quotes: "..."
            f.toml:2:12: a text without quotes, or no value at all; text goes in quotes: "..."
            f.toml:3:9: a text without quotes, or no value at all; write true or false, in small letters
            f.toml:4:12: a text without quotes, or no value at all; text goes in quotes: "..."
            f.toml:5:10: missing escaped value, expected `b`, `e`, `f`, `n`, `r`, `\`, `"`, `x`, `u`, `U`; a backslash stands for itself in single quotes: '\d+'
        "#]],
    );
}

#[test]
fn addresses_that_are_nearly_right() {
    let long = format!("/{}", "x".repeat(120));
    let bind = |address: &str| format!("[[listener]]\nbind = {address:?}\ncluster = \"main\"\n");
    let binds = [
        "::1:6033",
        ":::6033",
        "::1",
        "127.0.0.1:65536",
        " 127.0.0.1:6033",
        &long,
    ]
    .map(bind);
    told(
        &format!(
            "{}[cluster.main]\nservers = [\"fd00::1:3306\", \"db1:0\", \"db1 \", \"10.0.0.1,10.0.0.2\"]\nconnect_timeout = \
             \"99999999999999999999s\"\n",
            binds.concat()
        ),
        expect![[r#"
            f.toml:2:8: listener[0].bind: expected an address and port ("127.0.0.1:6033", "[::1]:6033") or a socket's absolute path ("/run/forebay.sock"), found "::1:6033"; an IPv6 address goes in brackets: "[::1]:6033"
            f.toml:5:8: listener[1].bind: expected an address and port ("127.0.0.1:6033", "[::1]:6033") or a socket's absolute path ("/run/forebay.sock"), found ":::6033"; an IPv6 address goes in brackets: "[::]:6033"
            f.toml:8:8: listener[2].bind: expected an address and port ("127.0.0.1:6033", "[::1]:6033") or a socket's absolute path ("/run/forebay.sock"), found "::1"; an IPv6 address goes in brackets, with a port behind it: "[::1]:PORT"
            f.toml:11:8: listener[3].bind: expected an address and port ("127.0.0.1:6033", "[::1]:6033") or a socket's absolute path ("/run/forebay.sock"), found "127.0.0.1:65536"; a port is a number from 1 to 65535
            f.toml:14:8: listener[4].bind: expected an address and port ("127.0.0.1:6033", "[::1]:6033") or a socket's absolute path ("/run/forebay.sock"), found " 127.0.0.1:6033"; there is a blank before or behind it
            f.toml:17:8: listener[5].bind: expected an address and port ("127.0.0.1:6033", "[::1]:6033") or a socket's absolute path ("/run/forebay.sock"), found "/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…"; the path of a socket has at most 107 bytes
            f.toml:20:12: cluster.main.servers[0].address: expected "host", "host:port", "[IPv6]:port" or a socket's absolute path, found "fd00::1:3306"; an IPv6 address goes in brackets: "[fd00::1:3306]:3306", or "[fd00::1]:3306" if its end is the port
            f.toml:20:28: cluster.main.servers[1].address: expected "host", "host:port", "[IPv6]:port" or a socket's absolute path, found "db1:0"; a port is a number from 1 to 65535
            f.toml:20:37: cluster.main.servers[2].address: expected "host", "host:port", "[IPv6]:port" or a socket's absolute path, found "db1 "; there is a blank before or behind it
            f.toml:20:45: cluster.main.servers[3].address: expected "host", "host:port", "[IPv6]:port" or a socket's absolute path, found "10.0.0.1,10.0.0.2"; each server is an element of the list: ["HOST", "HOST"]
            f.toml:21:19: cluster.main.connect_timeout: expected a duration from "1ms" to "10m", found "99999999999999999999s"
        "#]],
    );
}

/// One slip, one message: where it is, and not what it makes of the rest of the file.
#[test]
fn brackets_and_quotes_that_are_not_closed_are_pointed_at() {
    told(
        "[[listener]]\nbind = \"127.0.0.1:6033\"\ncluster = \"main\"\n[cluster.main]\nservers = [\"db1\", \"db2\"\n\
         connect_timeout = \"1s\"\n\n[admin]\nbind = \"127.0.0.1:6080\"\n",
        expect![[r#"
            f.toml:6:1: missing comma between array elements, expected `,`; the `[` in line 5 may not be closed
        "#]],
    );
    told(
        "[cluster.main]\nmonitor = { user = \"a\"\n[admin]\n",
        expect![[r#"
            f.toml:3:1: missing key for inline table element, expected `,`; the `{` in line 2 may not be closed
        "#]],
    );
    told(
        "[cluster.main]\nservers = [\"db1]\n[admin]\n",
        expect![[r#"
        f.toml:3:1: missing comma between array elements, expected `,`; the `[` in line 2 may not be closed
    "#]],
    );
}

/// As other programs have it.
#[test]
fn other_languages_are_told_how_it_is_written_here() {
    told(
        "listeners:\n  - bind: 0.0.0.0:3306\n",
        expect![[r#"
        f.toml:1:10: invalid unquoted key, expected letters, numbers, `-`, `_`; an option is written NAME = VALUE, a section [NAME]
        f.toml:1:11: key with no value, expected `=`; an option is written NAME = VALUE, a section [NAME]
        f.toml:2:5: key with no value, expected `=`; an option is written NAME = VALUE, a section [NAME]
    "#]],
    );
    told(
        "frontend db\n  bind :3306\n",
        expect![[r#"
        f.toml:1:10: key with no value, expected `=`; an option is written NAME = VALUE, a section [NAME]
        f.toml:2:8: key with no value, expected `=`; an option is written NAME = VALUE, a section [NAME]
    "#]],
    );
    told(
        &SOUND.replacen("servers =", "max_connections = 100\nservers =", 1),
        expect![[r#"
            f.toml:7:1: cluster.main.max_connections: expected an option of `cluster.main`, found the unknown key `max_connections`; `max_connections` belongs in `listener`, `cluster.NAME.servers`, `cluster.NAME.srv`, `cluster.NAME.pd`, `cluster.NAME.endpoint_slices` or `user`
        "#]],
    );
}

#[test]
fn a_cluster_without_a_name_is_told_once() {
    told(
        "[[listener]]\nbind = \"127.0.0.1:6033\"\ncluster = \"main\"\n[cluster]\nservers = [\"db1\"]\nbalance = \"weighted\"\n",
        expect![[r#"
            f.toml:6:1: cluster: expected tables with a name; each is a table, found `balance` in one without a name; write [cluster.NAME] with a name of your choice
        "#]],
    );
}

#[test]
fn a_file_that_is_no_utf_8_says_where() {
    let folder = std::env::temp_dir().join(format!("forebay-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("forebay.toml");
    let told = |bytes: &[u8]| {
        std::fs::write(&file, bytes).unwrap();
        let errors = Config::load(&file).unwrap_err().to_string();
        errors.rsplit_once("found ").unwrap().1.to_owned()
    };
    let utf16: Vec<u8> = SOUND.encode_utf16().flat_map(u16::to_be_bytes).collect();
    assert_eq!(told(&utf16), "text in UTF-16: save it as UTF-8");
    assert_eq!(
        told(&[b"\xff\xfe", &utf16[..]].concat()),
        "text in UTF-16: save it as UTF-8"
    );
    assert_eq!(told(b"# 1\n# caf\xe9\n"), "bytes in line 2 that are not UTF-8");
    assert_eq!(told(b"# 1\n\n# \0"), "no text: a zero byte in line 3");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Nobody writes into the pipe: whoever opened it would wait for ever.
#[test]
fn what_is_no_file_is_named_and_not_waited_for() {
    let folder = std::env::temp_dir().join(format!("forebay-config-kinds-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let at = |name: &str| folder.join(name).display().to_string();
    let made = std::process::Command::new("mkfifo").arg(at("pipe")).status();
    assert!(made.unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    let (told, has_told) = std::sync::mpsc::channel();
    let config = folder.join("forebay.toml");
    let kinds = [at("pipe"), at("socket"), at("."), "/dev/zero".to_owned()];
    let named = kinds.clone();
    std::thread::spawn(move || {
        let mut errors: Vec<String> = named
            .iter()
            .map(|file| Config::load(file).unwrap_err().to_string())
            .collect();
        for (option, file) in ["users_file", "rsa_key", "password_file"].iter().zip(&named) {
            let text = match *option {
                "users_file" => format!("users_file = {file:?}\n{SOUND}"),
                "rsa_key" => SOUND.replacen("cluster =", &format!("rsa_key = {file:?}\ncluster ="), 1),
                _ => format!("{SOUND}[cluster.main.check]\nuser = \"a\"\npassword_file = {file:?}\n"),
            };
            std::fs::write(&config, text).unwrap();
            errors.push(Config::load(&config).unwrap_err().to_string());
        }
        told.send(errors)
    });
    let errors = has_told
        .recv_timeout(std::time::Duration::from_secs(30))
        .expect("nothing waits");
    let words = [
        "a pipe, and no file that could be read again",
        "a socket",
        "a folder",
        "a device, and no file that could be read again",
    ];
    for (index, error) in errors.iter().enumerate() {
        let (file, words) = (&kinds[index % 4], words[index % 4]);
        assert!(
            error.contains(file.as_str()) && error.contains(words),
            "{index}: {error}"
        );
    }
    assert_eq!(errors.len(), 7);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A slip in it changes nothing, but not without a word. It is no reason not to start.
#[test]
fn parts_of_the_log_are_crates_that_write_to_it() {
    let level = "info,hyper=warn,session=debug";
    let text = format!("{SOUND}[log]\nlevel = {level:?}\n");
    assert_eq!(Config::parse(&text, "f.toml").unwrap().log.level, level);
    expect![[r#"
        log.level: "hyper" is no part of Forebay that writes to the log; parts: admin, cache, dataplane, fleet, forebay, net, telemetry, traffic, upstream
        log.level: "session" is no part of Forebay that writes to the log; parts: admin, cache, dataplane, fleet, forebay, net, telemetry, traffic, upstream"#]]
    .assert_eq(&config::log_worries(level).join("\n"));
    assert_eq!(
        config::log_worries("info,hyper=warn,axum::routing=warn,net=warn,hyper=info")
            .iter()
            .map(|words| words.split(' ').nth(1).unwrap())
            .collect::<Vec<_>>(),
        ["\"axum\"", "\"hyper\""],
        "every one, once"
    );
    expect![[
        r#"log.level: "dataplan" is no part of Forebay that writes to the log; did you mean `dataplane`?"#
    ]]
    .assert_eq(&config::log_worries("info,dataplan::connection=warn").concat());
    let crates = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    for entry in std::fs::read_dir(crates).unwrap() {
        let path = entry.unwrap().path();
        let manifest = std::fs::read_to_string(path.join("Cargo.toml")).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let writes = manifest.lines().any(|line| line.starts_with("tracing."));
        assert_eq!(writes, config::LOG_PARTS.contains(&name), "{name}");
    }
    for level in [
        "info,upstream::checks=debug,net=trace",
        "info,[session]=trace",
        "warn,data=debug",
    ] {
        assert_eq!(config::log_worries(level), [""; 0], "{level}");
    }
}

/// Whoever comes from another gateway types its words.
#[test]
fn words_of_other_gateways_are_understood() {
    let text = "[[listener]]\nbind = \"127.0.0.1:6033\"\ndefault_backend = \"main\"\nmaxconn = 5\n\
                [[rule]]\nmatch_digest = \"^SELECT\"\ndestination_hostgroup = 20\n\
                [cluster.main]\nservers = [{ host = \"db1\", maxconn = 5 }]\nbalance = \"leastconn\"\nread_balance = \"roundrobin\"\n\
                [cluster.other]\nservers = [\"db2\"]\nbalance = \"roundrobin\"\n";
    let errors = Config::parse(text, "f.toml").unwrap_err();
    let hints: Vec<String> = errors.0.iter().filter_map(|error| error.hint.clone()).collect();
    expect![[r#"
        did you mean `cluster`?
        did you mean `max_connections`?
        did you mean `digest_text`?
        did you mean `route`?
        did you mean `address`?
        did you mean `max_connections`?
        did you mean `least-connections`?
        did you mean `weighted`?
        did you mean `round-robin`?"#]]
    .assert_eq(&hints.join("\n"));
}
