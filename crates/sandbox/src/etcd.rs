//! One etcd of one member, as PD has it inside: for the keys that TiDB servers keep there.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::program::on_path;
use crate::watchdog::Watchdog;
use crate::{Certificates, PATIENCE, PORT_ATTEMPTS, SandboxError, free_port, make_folder};

/// How often it is looked whether it answers.
const POLL: Duration = Duration::from_millis(20);

/// A running etcd. Dropping it ends it and removes what it wrote.
#[derive(Debug)]
pub struct Etcd {
    process: Option<Child>,
    port: u16,
    tls_port: u16,
    peer_port: u16,
    certificates: Certificates,
    // Dropped after the server, in this order.
    _watchdog: Watchdog,
    folder: tempfile::TempDir,
}

impl Etcd {
    /// Starts it and waits until it answers, on a plain port and on one with TLS.
    ///
    /// # Errors
    /// It is not installed (the message says how to), or did not start.
    pub fn start() -> Result<Self, SandboxError> {
        let mut attempt = 1;
        loop {
            match Self::launch() {
                Err(SandboxError::Ended { log, .. })
                    if log.contains("address already in use") && attempt < PORT_ATTEMPTS =>
                {
                    attempt += 1;
                }
                result => return result,
            }
        }
    }

    fn launch() -> Result<Self, SandboxError> {
        let folder = make_folder(None)?;
        let mut etcd = Self {
            process: None,
            port: free_port()?,
            tls_port: free_port()?,
            peer_port: free_port()?,
            certificates: Certificates::make(folder.path())?,
            _watchdog: Watchdog::start(folder.path())?,
            folder,
        };
        etcd.go_on()?;
        Ok(etcd)
    }

    /// `127.0.0.1:PORT`
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The same with TLS.
    #[must_use]
    pub fn tls_address(&self) -> String {
        format!("127.0.0.1:{}", self.tls_port)
    }

    /// The CA and what it has signed.
    #[must_use]
    pub fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// The folder of its files, which have all that it was ever told.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Ends it at once. What it was told stays.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Starts it again, on the same ports, with what it was told.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn go_on(&mut self) -> Result<(), SandboxError> {
        let program = on_path("etcd").ok_or(SandboxError::Missing {
            what: "etcd",
            remedy: "apt-get install etcd-server",
        })?;
        let path = self.folder.path().join("log");
        let log = File::create(&path).map_err(|source| SandboxError::io("write", &path, source))?;
        let (plain, tls) = (
            format!("http://{}", self.address()),
            format!("https://{}", self.tls_address()),
        );
        let peer = format!("http://127.0.0.1:{}", self.peer_port);
        let process = Command::new(&program)
            .arg(format!("--data-dir={}", self.data().display()))
            .arg(format!("--listen-client-urls={plain},{tls}"))
            .arg(format!("--advertise-client-urls={plain},{tls}"))
            .arg(format!("--listen-peer-urls={peer}"))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(format!("--initial-cluster=default={peer}"))
            .arg(format!("--cert-file={}", self.certificates.server_cert.display()))
            .arg(format!("--key-file={}", self.certificates.server_key.display()))
            .args(["--logger=zap", "--log-level=warn", "--log-outputs=stderr"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0) // Ctrl-C in the terminal is not for it
            .spawn()
            .map_err(|source| SandboxError::io("run", &program, source))?;
        let process = self.process.insert(process);
        let begin = Instant::now();
        let mut ended = process.try_wait();
        while self.ask("/v3/kv/range", "{\"key\":\"YQ==\"}").is_none() {
            if let Ok(Some(status)) = ended {
                return Err(SandboxError::Ended {
                    node: 0,
                    status: status.to_string(),
                    log: std::fs::read_to_string(&path).unwrap_or_default(),
                });
            }
            ended = self.process.as_mut().map_or(Ok(None), Child::try_wait);
            if begin.elapsed() > PATIENCE {
                return Err(SandboxError::Timeout {
                    node: 0,
                    what: "starting".to_owned(),
                    waited: PATIENCE,
                    log: std::fs::read_to_string(&path).unwrap_or_default(),
                });
            }
            sleep(POLL);
        }
        Ok(())
    }

    /// Gives a key a value. False where it did not take it.
    pub fn put(&self, key: &str, value: &str) -> bool {
        let (key, value) = (BASE64_STANDARD.encode(key), BASE64_STANDARD.encode(value));
        let body = format!("{{\"key\":{key:?},\"value\":{value:?}}}");
        self.ask("/v3/kv/put", &body).is_some()
    }

    /// Removes a key, as the end of its lease does.
    pub fn delete(&self, key: &str) -> bool {
        let body = format!("{{\"key\":{:?}}}", BASE64_STANDARD.encode(key));
        self.ask("/v3/kv/deleterange", &body).is_some()
    }

    /// A server lives, with this to be said of it in JSON.
    pub fn register_tidb(&self, address: &str, info: &str) -> bool {
        self.put(&format!("/topology/tidb/{address}/info"), info)
            && self.put(&format!("/topology/tidb/{address}/ttl"), "1700000000000000000")
    }

    /// The lease of a server has come to its end.
    pub fn expire_tidb(&self, address: &str) -> bool {
        self.delete(&format!("/topology/tidb/{address}/ttl"))
    }

    fn ask(&self, path: &str, body: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.address()).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.starts_with("HTTP/1.1 200").then_some(answer)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.stop();
    }
}
