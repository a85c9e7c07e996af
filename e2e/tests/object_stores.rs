//! Captures go to object stores that others have made, and come back: S3 (s3rver, which knows keys and checks
//! no signature) and Azure (azurite, which checks them).
//!
//! `script/lib/object_stores` installs them, which takes a minute or two: `cargo test -p e2e --test
//! object_stores` is not part of `script/test` unless `--long`. Without them each test fails and says so.

#![allow(clippy::unwrap_used, reason = "code of tests")]

use std::fs::{self, File};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use e2e::{Setup, client, eventually, servers};
use mysql_async::prelude::Queryable;
use sandbox::free_port;
use tempfile::TempDir;
use testkit::certificates::Certificates;

/// A store, which is killed when it is dropped.
struct Store {
    process: Child,
    port: u16,
    _data: TempDir,
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(1)
        .unwrap()
        .to_owned()
}

impl Store {
    /// Starts one by what `script/lib/object_stores` has installed, and waits until it listens.
    async fn start(program: &str, arguments: impl Fn(u16, &Path) -> Vec<String>) -> Self {
        let build =
            std::env::var_os("FOREBAY_BUILD").map_or_else(|| repository().join("build"), PathBuf::from);
        let program = build.join("object_stores/node_modules/.bin").join(program);
        assert!(
            program.is_file(),
            "{} is not there: script/lib/object_stores installs it",
            program.display()
        );
        let data = tempfile::tempdir().unwrap();
        let port = free_port().unwrap();
        let process = Command::new("node")
            .arg(program)
            .args(arguments(port, data.path()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let store = Self {
            process,
            port,
            _data: data,
        };
        eventually("the store listens", async || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        })
        .await;
        store
    }
}

/// More than goes to a store in one piece.
const LONG: u64 = 40 << 20;

/// Captures to the store, fetches, and brings the long file of another folder there, in parts.
async fn there_and_back(url: &str, environment: &[(&str, String)]) {
    let servers = servers(1);
    let variables = environment
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()));
    let gateway = Setup::in_front_of(&servers)
        .environment(variables.collect())
        .start();
    let traffic = |arguments: &[&str]| {
        let mut command = Command::new(e2e::program());
        command.arg("traffic").args(arguments);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        let output = command.output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code(), said)
    };
    let path = |name: &str| gateway.folder().join(name).display().to_string();
    let (socket, spool, fetched) = (path("admin.sock"), path("spool"), path("fetched"));
    let start = ["capture", "start", "--free-disk", "0", "--socket", &socket];
    let (code, said) = traffic(&[&start[..], &["--to", url, "--spool", &spool]].concat());
    assert_eq!(code, Some(0), "{said}");
    let mut session = client::connect(&gateway).await;
    session.query_drop("SELECT 'there and back'").await.unwrap();
    session.disconnect().await.unwrap();
    let (code, said) = traffic(&["capture", "stop", "--socket", &socket]);
    assert_eq!(code, Some(0), "{said}");
    assert!(!Path::new(&spool).exists());
    let (code, said) = traffic(&["fetch", url, &fetched]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = traffic(&["capture", "verify", &fetched]);
    assert_eq!(code, Some(0), "{said}");
    let (_, shown) = traffic(&["capture", "show", &fetched]);
    assert!(shown.contains("there and back"), "{shown}");
    let (code, said) = traffic(&[&start[..], &["--to", url, "--spool", &spool]].concat());
    assert!(
        code == Some(1) && said.contains("another folder of traffic is there"),
        "{said}"
    );

    // What lies behind its frames is damage to a reader, and nothing to a store.
    let (file, long) = (path("fetched/traffic-000001.fbt"), format!("{url}-long"));
    File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .set_len(LONG)
        .unwrap();
    let (code, said) = traffic(&["push", &fetched, &long]);
    assert_eq!(code, Some(0), "{said}");
    let again = path("again");
    let (code, said) = traffic(&["fetch", &long, &again]);
    assert_eq!(code, Some(0), "{said}");
    let back = fs::read(Path::new(&again).join("traffic-000001.fbt")).unwrap();
    assert!(back.len() as u64 == LONG && back == fs::read(&file).unwrap());
}

/// S3 with a bucket, with a certificate and its key where they are given.
async fn s3(tls: &[String]) -> Store {
    Store::start("s3rver", |port, data| {
        let (port, data) = (port.to_string(), data.display().to_string());
        let fixed = [
            "-d",
            &data,
            "-a",
            "127.0.0.1",
            "-p",
            &port,
            "--configure-bucket",
            "bucket",
        ];
        [&fixed.map(str::to_owned)[..], tls].concat()
    })
    .await
}

/// What a fetch says that fails.
fn refused(environment: &[(&str, String)]) -> String {
    let fetch = ["traffic", "fetch", "s3://bucket/of/monday", "/nowhere/to/be/made"];
    let mut command = Command::new(e2e::program());
    command
        .args(fetch)
        .envs(environment.iter().map(|(name, value)| (name, value)));
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    said
}

#[tokio::test]
async fn s3_has_them() {
    let store = s3(&[]).await;
    let known = |key: &str| {
        [
            ("AWS_ENDPOINT", format!("http://127.0.0.1:{}", store.port)),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_ACCESS_KEY_ID", key.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "S3RVER".to_owned()),
        ]
    };
    there_and_back("s3://bucket/of/monday", &known("S3RVER")).await;
    let said = refused(&known("another"));
    assert!(said.contains("InvalidAccessKeyId"), "{said}");
}

#[tokio::test]
async fn s3_has_them_by_tls() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    Certificates::generate().unwrap().write_to(folder.path()).unwrap();
    let tls = ["--key", &path("key.pem"), "--cert", &path("cert.pem")].map(str::to_owned);
    let store = s3(&tls).await;
    let known = [
        ("AWS_ENDPOINT", format!("https://localhost:{}", store.port)),
        ("AWS_ACCESS_KEY_ID", "S3RVER".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "S3RVER".to_owned()),
        ("SSL_CERT_FILE", path("ca.pem")),
    ];
    there_and_back("s3://bucket/of/monday", &known).await;
    // Whom another authority has signed is nobody.
    let other = tempfile::tempdir().unwrap();
    Certificates::generate().unwrap().write_to(other.path()).unwrap();
    let said = refused(
        &[
            &known[..3],
            &[("SSL_CERT_FILE", other.path().join("ca.pem").display().to_string())],
        ]
        .concat(),
    );
    assert!(said.contains("certificate"), "{said}");
}

#[tokio::test]
async fn azure_has_them() {
    let store = Store::start("azurite-blob", |port, _| {
        let port = port.to_string();
        [
            "--silent",
            "--inMemoryPersistence",
            "--skipApiVersionCheck",
            "--disableTelemetry",
            "--blobPort",
            &port,
        ]
        .map(str::to_owned)
        .to_vec()
    })
    .await;
    let script = repository().join("e2e/object_stores/container.js");
    let made = Command::new("node")
        .arg(script)
        .args([&store.port.to_string(), "container"])
        .status()
        .unwrap();
    assert!(made.success());
    let environment = [
        ("AZURE_STORAGE_USE_EMULATOR", "true".to_owned()),
        (
            "AZURITE_BLOB_STORAGE_URL",
            format!("http://127.0.0.1:{}", store.port),
        ),
    ];
    there_and_back("az://container/of/monday", &environment).await;
}
