//! Captures go to an object store, are fetched from there, and are what was said. A store that is gone
//! disturbs no session and loses no statement: files wait in the spool, which is kept where nothing helps.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use e2e::{Gateway, Setup, client, eventually, servers};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::{PASSWORD, USER};
use serde_json::Value;
use testkit::object_store::{ACCESS_KEY, Health, ObjectStore};

/// `forebay traffic` on the machine of an operator who knows the store.
struct Operator<'a> {
    gateway: &'a Gateway,
    environment: Vec<(String, String)>,
}

impl<'a> Operator<'a> {
    fn new(gateway: &'a Gateway, store: &ObjectStore) -> Self {
        Self {
            gateway,
            environment: store.environment(),
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(e2e::program());
        command
            .arg("traffic")
            .args(arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("REPLAY_PASSWORD", PASSWORD);
        command
    }

    /// The exit code, and what it says.
    fn does(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.command(arguments).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    }

    fn socket(&self) -> String {
        self.gateway.folder().join("admin.sock").display().to_string()
    }

    fn start(&self, url: &str, spool: &Path) -> (Option<i32>, String) {
        let spool = spool.to_str().unwrap();
        let fixed = [
            "capture",
            "start",
            "--free-disk",
            "0",
            "--to",
            url,
            "--spool",
            spool,
        ];
        self.does(&[&fixed[..], &["--socket", &self.socket()]].concat())
    }

    fn stop(&self) -> (Option<i32>, String) {
        self.does(&["capture", "stop", "--socket", &self.socket()])
    }

    /// A stop that waits for the store.
    fn stopping(&self) -> Child {
        let mut command = self.command(&["capture", "stop", "--socket", &self.socket()]);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    fn status(&self) -> Value {
        let (code, said) = self.does(&["capture", "status", "--socket", &self.socket()]);
        assert_eq!(code, Some(0), "{said}");
        serde_json::from_str(&said).unwrap()
    }

    fn upload(&self) -> Value {
        self.status()["upload"].clone()
    }

    /// Fetches a folder beside the gateway's own.
    fn fetch(&self, url: &str, name: &str) -> (Option<i32>, String, PathBuf) {
        let folder = self.gateway.folder().join(name);
        let (code, said) = self.does(&["fetch", url, folder.to_str().unwrap()]);
        (code, said, folder)
    }

    /// What `verify` says of a folder.
    fn verified(&self, folder: &Path) -> (Option<i32>, String) {
        self.does(&["capture", "verify", folder.to_str().unwrap()])
    }
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Texts that do not shrink, more than a file is long.
async fn say_much(session: &mut Conn, seed: &mut u64) -> u64 {
    const TEXTS: u64 = 30;
    for _ in 0..TEXTS {
        let mut text = String::from("DO LENGTH('");
        while text.len() < 900 << 10 {
            *seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            for byte in (*seed >> 8).to_le_bytes().iter().take(6) {
                // Six bits a byte, none of which ends the text.
                text.push(char::from(b'0' + byte % 64));
            }
        }
        text = text.replace('\\', "~") + "')";
        session.query_drop(text).await.unwrap();
    }
    TEXTS
}

#[tokio::test]
async fn what_comes_from_a_store_is_replayed_alike() {
    let servers = servers(2);
    let [source, copy] = [&servers[0], &servers[1]].map(|server| server.primary());
    let table = "DROP TABLE IF EXISTS test.stored; CREATE TABLE test.stored (number INT PRIMARY KEY)";
    source.sql(table).unwrap();
    copy.sql(table).unwrap();
    let store = ObjectStore::start().unwrap();
    let gateway = Setup::in_front_of(&servers[..1])
        .environment(store.environment())
        .start();
    let operator = Operator::new(&gateway, &store);
    let (url, spool) = (store.url("monday/1"), gateway.folder().join("spool"));
    let (code, said) = operator.start(&url, &spool);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(
        (mode_of(&spool), operator.upload()["state"].as_str()),
        (0o700, Some("running"))
    );
    assert!(store.names() == ["monday/1/traffic.json"], "{:?}", store.names());
    let mut session = client::connect(&gateway).await;
    for number in 0..9 {
        let insert = "INSERT INTO test.stored VALUES (?)";
        session.exec_drop(insert, (number,)).await.unwrap();
    }
    session
        .query_drop("SELECT * FROM test.stored ORDER BY number")
        .await
        .unwrap();
    session.disconnect().await.unwrap();
    let (code, said) = operator.stop();
    assert!(code == Some(0) && said.starts_with(&url), "{said}");
    assert_eq!(operator.upload()["state"], "complete");
    assert!(!spool.exists());
    assert_eq!(
        store.names(),
        ["monday/1/traffic-000001.fbt", "monday/1/traffic.json"]
    );

    let (code, said, fetched) = operator.fetch(&url, "fetched");
    assert_eq!(code, Some(0), "{said}");
    let file = fetched.join("traffic-000001.fbt");
    assert_eq!((mode_of(&fetched), mode_of(&file)), (0o700, 0o600));
    let (code, said) = operator.verified(&fetched);
    assert!(code == Some(0) && said.contains("ended: stopped"), "{said}");
    let (fetched, result) = (fetched.display().to_string(), gateway.folder().join("result"));
    let result = result.display().to_string();
    let to = copy.address();
    let (code, said) = operator.does(&[
        "replay",
        &fetched,
        "--to",
        &to,
        "--user",
        USER,
        "--password-env",
        "REPLAY_PASSWORD",
        "--even-source",
        "--any-position",
        "--result",
        &result,
    ]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = operator.does(&["compare", &fetched, &result]);
    assert!(
        code == Some(0) && said.contains(" 0 only in a, 0 only in b"),
        "{said}"
    );

    // Neither the folder nor the prefix is used twice.
    let (code, said, _) = operator.fetch(&url, "fetched");
    assert!(
        code == Some(1) && said.contains("the folder is not empty"),
        "{said}"
    );
    let (code, said) = operator.start(&url, &spool);
    assert!(
        code == Some(1) && said.contains("another folder of traffic is there"),
        "{said}"
    );
    assert!(!spool.exists());
    // What was promised has to be there.
    store.change("monday/1/traffic-000001.fbt", |file| {
        file.as_mut().unwrap().truncate(300)
    });
    let (code, said, _) = operator.fetch(&url, "cut");
    assert!(
        code == Some(2) && said.contains("the files have 300 bytes, and should have"),
        "{said}"
    );
    store.change("monday/1/traffic-000001.fbt", |file| *file = None);
    let (code, said, folder) = operator.fetch(&url, "gone");
    assert!(
        code == Some(1) && said.contains("no files of captured traffic are there"),
        "{said}"
    );
    assert!(!folder.exists());
}

#[tokio::test]
async fn a_store_that_takes_nothing_is_told_before_anything_begins() {
    let store = ObjectStore::start().unwrap();
    let mut environment = store.environment();
    let gateway = Setup::of_addresses(["127.0.0.1:1".to_owned()])
        .environment(environment.clone())
        .start_unready();
    let operator = Operator::new(&gateway, &store);
    let spool = gateway.folder().join("spool");
    for (health, cause) in [
        (Health::Gone, "onnection refused"),
        (Health::Busy, "SlowDown"),
        (Health::Cuts, "traffic.json"),
    ] {
        store.turn(health);
        let (code, said) = operator.start(&store.url("p"), &spool);
        assert!(code == Some(1) && said.contains(cause), "{health:?}: {said}");
        assert!(!spool.exists() && operator.status().is_null());
    }
    store.turn(Health::Fine);
    for (url, cause) in [
        ("s3://nowhere/p", "NoSuchBucket"),
        ("s3://bucket", "a prefix is wanted"),
        ("s3://bucket/a b", "letters, digits"),
        ("ftp://bucket/p", "known are s3://"),
    ] {
        let (code, said) = operator.start(url, &spool);
        assert!(code == Some(1) && said.contains(cause), "{url}: {said}");
    }
    let (code, said) = operator.does(&["capture", "start", "--to", "s3://bucket/p"]);
    assert!(code == Some(1) && said.contains("--spool"), "{said}");
    // Google's prefixes are as good as Amazon's.
    let url = "gs://bucket/of/google";
    let (code, said) = operator.start(url, &spool);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = operator.stop();
    assert_eq!(code, Some(0), "{said}");
    let (code, said, folder) = operator.fetch(url, "fetched");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(operator.verified(&folder).0, Some(0));

    for (name, value) in &mut environment {
        if name == "AWS_ACCESS_KEY_ID" {
            *value = format!("{ACCESS_KEY}-of-another");
        }
    }
    let stranger = Setup::of_addresses(["127.0.0.1:1".to_owned()])
        .environment(environment)
        .start_unready();
    let operator = Operator::new(&stranger, &store);
    let (code, said) = operator.start(&store.url("q"), &stranger.folder().join("spool"));
    assert!(code == Some(1) && said.contains("InvalidAccessKeyId"), "{said}");
}

#[tokio::test]
async fn a_store_that_is_gone_for_a_while_misses_nothing() {
    let servers = servers(1);
    let store = ObjectStore::start().unwrap();
    let gateway = Setup::in_front_of(&servers)
        .environment(store.environment())
        .start();
    let operator = Operator::new(&gateway, &store);
    let (url, spool) = (store.url("p"), gateway.folder().join("spool"));
    let (code, said) = operator.start(&url, &spool);
    assert_eq!(code, Some(0), "{said}");
    let mut session = client::connect(&gateway).await;
    let (mut seed, mut texts) = (1, 0);
    for health in [Health::Gone, Health::Busy, Health::Cuts, Health::Mute] {
        store.turn(health);
        let failed_before = operator.upload()["failures"].as_u64().unwrap();
        texts += say_much(&mut session, &mut seed).await;
        eventually("an attempt has failed, and all of it waits", async || {
            let upload = operator.upload();
            upload["failures"].as_u64().unwrap() > failed_before
                && upload["waiting_bytes"].as_u64().unwrap() > 16 << 20
                && upload["error"] != ""
        })
        .await;
        let upload = operator.upload();
        assert!(gateway.metric("forebay_capture_waiting_bytes", &[]) > f64::from(16 << 20));
        assert!(gateway.metric("forebay_capture_upload_failures", &[]) > 0.0);
        let files_before = upload["files"].as_u64().unwrap();
        store.turn(Health::Fine);
        eventually("the store has the files that are finished", async || {
            let upload = operator.upload();
            upload["files"].as_u64().unwrap() > files_before
                && upload["waiting_files"] == 1
                && upload["error"] == ""
        })
        .await;
    }
    session.disconnect().await.unwrap();
    let (code, said) = operator.stop();
    assert_eq!(code, Some(0), "{said}");
    assert!(!spool.exists());
    let (code, said, fetched) = operator.fetch(&url, "fetched");
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = operator.verified(&fetched);
    let commands = operator.status()["commands"].as_u64().unwrap();
    assert!(
        code == Some(0) && said.contains(&format!("\n{commands} commands")),
        "{said}"
    );
    assert!(
        commands >= texts && !said.contains("sessions only in part"),
        "{said}"
    );
}

#[tokio::test]
async fn what_a_store_never_took_stays_in_the_spool() {
    let servers = servers(1);
    let store = ObjectStore::start().unwrap();
    let mut gateway = Setup::in_front_of(&servers)
        .environment(store.environment())
        .start();
    let operator = Operator::new(&gateway, &store);
    let (url, spool) = (store.url("stopped"), gateway.folder().join("spool"));
    assert_eq!(operator.start(&url, &spool).0, Some(0));
    let mut session = client::connect(&gateway).await;
    session.query_drop("SELECT 'before it was gone'").await.unwrap();
    store.turn(Health::Gone);
    // The first one waits for the store; the second gives it up.
    let first = operator.stopping();
    eventually("an attempt has failed", async || {
        operator.status()["state"] == "ended" && operator.upload()["error"] != ""
    })
    .await;
    let (code, said) = operator.start(&store.url("other"), &gateway.folder().join("other"));
    assert!(code == Some(1) && said.contains("still"), "{said}");
    for ended in [operator.stop(), {
        let output = first.wait_with_output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    }] {
        let named = format!("forebay traffic push {} {url}", spool.display());
        assert!(ended.0 == Some(1) && ended.1.contains(&named), "{ended:?}");
    }
    assert_eq!(operator.upload()["state"], "given-up");
    let log = gateway.log();
    assert!(
        log.contains("stay in its folder") && log.contains(spool.to_str().unwrap()),
        "{log}"
    );
    store.turn(Health::Fine);
    let (code, said, _) = operator.fetch(&url, "early");
    assert!(code == Some(1) && said.contains("no files"), "{said}");
    let (code, said) = operator.does(&["push", spool.to_str().unwrap(), &url]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said, fetched) = operator.fetch(&url, "fetched");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(operator.verified(&fetched).0, Some(0));
    // A prefix takes the files of one folder alone.
    let (code, said) = operator.does(&["push", fetched.to_str().unwrap(), &store.url("stopped")]);
    assert_eq!(code, Some(0), "{said}");
    let (other, spool) = (store.url("killed"), gateway.folder().join("killed"));
    assert_eq!(operator.start(&other, &spool).0, Some(0));
    let (code, said) = operator.does(&["push", fetched.to_str().unwrap(), &other]);
    assert!(code == Some(1) && said.contains("another folder"), "{said}");

    // A gateway that is killed: the first file is there, the second is not.
    let mut seed = 7;
    say_much(&mut session, &mut seed).await;
    eventually("the first file is there", async || {
        operator.upload()["files"] == 1
    })
    .await;
    session.query_drop("SELECT 'the last word'").await.unwrap();
    eventually("all is on the disk", async || {
        let (_, shown) = operator.does(&["capture", "show", spool.to_str().unwrap()]);
        shown.contains("the last word")
    })
    .await;
    let commands = operator.status()["commands"].as_u64().unwrap();
    gateway.kill9();
    let operator = Operator::new(&gateway, &store);
    let (code, said, part) = operator.fetch(&other, "part");
    assert!(
        code == Some(2) && said.contains(spool.to_str().unwrap()),
        "{said}"
    );
    assert_eq!(fs::read_dir(&part).unwrap().count(), 1);
    let (code, said) = operator.does(&["push", spool.to_str().unwrap(), &other]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said, whole) = operator.fetch(&other, "whole");
    assert_eq!(code, Some(0), "{said}");
    let (_, said) = operator.verified(&whole);
    assert!(
        said.starts_with("capture of") && said.contains(&format!("\n{commands} commands")),
        "{said}"
    );
    assert!(said.contains("no end"), "{said}");
}

#[tokio::test]
async fn a_gateway_that_ends_waits_for_no_store_that_is_gone() {
    let store = ObjectStore::start().unwrap();
    let start = || {
        Setup::of_addresses(["127.0.0.1:1".to_owned()])
            .environment(store.environment())
            .start_unready()
    };
    for (health, stays) in [(Health::Gone, true), (Health::Fine, false)] {
        let mut gateway = start();
        let spool = gateway.folder().join("spool");
        let operator = Operator::new(&gateway, &store);
        assert_eq!(
            operator.start(&store.url(&format!("{health:?}")), &spool).0,
            Some(0)
        );
        store.turn(health);
        gateway.terminate();
        gateway.exit().await;
        assert_eq!(spool.exists(), stays);
        assert_eq!(
            gateway
                .log()
                .contains("are not in the object store and stay in its folder"),
            stays,
            "{}",
            gateway.log()
        );
        store.turn(Health::Fine);
    }
    let names = store.names();
    assert!(names.contains(&"Fine/traffic-000001.fbt".to_owned()), "{names:?}");
}
