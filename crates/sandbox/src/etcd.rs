//! An etcd of one member, as PD has it inside for the keys of TiDB servers, or of three: a fleet's store.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustix::process::Signal;

use crate::disk::Disk;
use crate::process::{go_on_waiting, send, stands};
use crate::program::on_path;
use crate::watchdog::Watchdog;
use crate::{Certificates, SandboxError, again_where_ports_are_taken, free_port, make_folder};

/// How often it is looked whether it answers, or stands.
const POLL: Duration = Duration::from_millis(20);

/// A running etcd. Dropping it ends it and removes what it wrote.
#[derive(Debug)]
pub struct Etcd {
    process: Option<Child>,
    name: String,
    /// All that are one with it: names and where they hear each other.
    members: String,
    port: u16,
    tls_port: u16,
    peer_port: u16,
    certificates: Certificates,
    /// Bytes that it may take; 0: its own limit.
    space: u64,
    /// Its port with TLS is for those who have a certificate of the CA.
    asks_for_certificates: bool,
    /// Where it writes, if not on this machine's own.
    disk: Option<Disk>,
    // Dropped after the server, in this order.
    _watchdog: Watchdog,
    folder: tempfile::TempDir,
}

/// How it differs from others.
#[derive(Clone, Copy, Default)]
struct Options {
    space: u64,
    asks_for_certificates: bool,
    /// Bytes of a disk of its own; 0: it has none.
    disk: u64,
}

impl Etcd {
    /// Starts it and waits until it answers, on a plain port and on one with TLS.
    ///
    /// # Errors
    /// It is not installed (the message says how to), or did not start.
    pub fn start() -> Result<Self, SandboxError> {
        Self::start_as(Options::default())
    }

    /// The same with no more room than so many bytes.
    pub fn start_with_space(space: u64) -> Result<Self, SandboxError> {
        Self::start_as(Options {
            space,
            ..Options::default()
        })
    }

    /// The same on a disk of its own, of so many bytes, which takes root. It takes 128 MB to begin with.
    ///
    /// # Errors
    /// As for [`start`](Self::start), and this process may not mount.
    pub fn start_on_disk(disk: u64) -> Result<Self, SandboxError> {
        Self::start_as(Options {
            disk,
            ..Options::default()
        })
    }

    /// The same, and its port with TLS is only for clients with a certificate of the CA.
    pub fn start_for_certificates() -> Result<Self, SandboxError> {
        Self::start_as(Options {
            asks_for_certificates: true,
            ..Options::default()
        })
    }

    /// Starts three that are one store, and waits until each answers.
    pub fn start_three() -> Result<[Self; 3], SandboxError> {
        again_where_ports_are_taken(|| {
            let prepare = |name| Self::prepare(name, Options::default());
            let mut all = [prepare("one")?, prepare("two")?, prepare("three")?];
            let members: Vec<_> = all.iter().map(|etcd| etcd.members.clone()).collect();
            for etcd in &mut all {
                etcd.members = members.join(",");
                etcd.spawn()?;
            }
            for etcd in &mut all {
                etcd.wait()?;
            }
            Ok(all)
        })
    }

    fn start_as(options: Options) -> Result<Self, SandboxError> {
        again_where_ports_are_taken(|| {
            let mut etcd = Self::prepare("one", options)?;
            etcd.go_on()?;
            Ok(etcd)
        })
    }

    fn prepare(name: &str, options: Options) -> Result<Self, SandboxError> {
        let folder = make_folder(None)?;
        let peer_port = free_port()?;
        let disk = (options.disk > 0).then(|| Disk::mount(&folder.path().join("disk"), options.disk));
        Ok(Self {
            process: None,
            name: name.to_owned(),
            members: format!("{name}={}", url(peer_port)),
            port: free_port()?,
            tls_port: free_port()?,
            peer_port,
            certificates: Certificates::make(folder.path())?,
            space: options.space,
            asks_for_certificates: options.asks_for_certificates,
            disk: disk.transpose()?,
            _watchdog: Watchdog::start(folder.path())?,
            folder,
        })
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
        let disk = if self.disk.is_some() { "disk/data" } else { "data" };
        self.folder.path().join(disk)
    }

    /// Ends it at once. What it was told stays.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Starts it again, on the same ports, with what it was told.
    pub fn go_on(&mut self) -> Result<(), SandboxError> {
        self.spawn()?;
        self.wait()
    }

    /// Stops the process where it is (SIGSTOP) and waits until it stands, or lets it go on. Its connections
    /// stay open, and say nothing.
    ///
    /// # Errors
    /// The process is not running, or does not stand within 90 s.
    pub fn freeze(&self, is_frozen: bool) -> Result<(), SandboxError> {
        let (signal, name) = match is_frozen {
            true => (Signal::STOP, "SIGSTOP"),
            false => (Signal::CONT, "SIGCONT"),
        };
        let process = self.process.as_ref();
        send(process, 0, signal, name)?;
        let begin = Instant::now();
        while is_frozen && !process.is_some_and(|process| stands(process.id())) {
            go_on_waiting(0, "freezing", begin, None, || self.log())?;
            sleep(POLL);
        }
        Ok(())
    }

    /// Leaves no room on its own disk, or makes room again.
    pub fn fill_disk(&self, is_full: bool) -> Result<(), SandboxError> {
        match (&self.disk, is_full) {
            (Some(disk), true) => disk.fill(),
            (Some(disk), false) => disk.clear(),
            (None, _) => Err(SandboxError::State("it has no disk of its own".to_owned())),
        }
    }

    pub fn has_ended(&mut self) -> bool {
        self.ended().is_some()
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.process.as_mut()?.try_wait().ok()?
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn spawn(&mut self) -> Result<(), SandboxError> {
        let program = on_path("etcd").ok_or(SandboxError::Missing {
            what: "etcd",
            remedy: "apt-get install etcd-server",
        })?;
        let path = self.log_file();
        let log = File::create(&path).map_err(|source| SandboxError::io("write", &path, source))?;
        let (plain, tls) = (url(self.port), format!("https://{}", self.tls_address()));
        let peer = url(self.peer_port);
        let ca = format!("--trusted-ca-file={}", self.certificates.ca.display());
        let asks = ["--client-cert-auth", &ca];
        let command = self.disk.as_ref().map(|disk| disk.command(&program));
        let process = command
            .unwrap_or_else(|| Command::new(&program))
            .args(asks.iter().filter(|_| self.asks_for_certificates))
            .arg(format!("--name={}", self.name))
            .arg(format!("--data-dir={}", self.data().display()))
            .arg(format!("--listen-client-urls={plain},{tls}"))
            .arg(format!("--advertise-client-urls={plain},{tls}"))
            .arg(format!("--listen-peer-urls={peer}"))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(format!("--initial-cluster={}", self.members))
            .arg(format!("--cert-file={}", self.certificates.server_cert.display()))
            .arg(format!("--key-file={}", self.certificates.server_key.display()))
            .arg(format!("--quota-backend-bytes={}", self.space))
            .args(["--logger=zap", "--log-level=warn", "--log-outputs=stderr"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0) // Ctrl-C in the terminal is not for it
            .spawn()
            .map_err(|source| SandboxError::io("run", &program, source))?;
        self.process = Some(process);
        Ok(())
    }

    /// Until it answers.
    fn wait(&mut self) -> Result<(), SandboxError> {
        let begin = Instant::now();
        let mut ended = self.ended();
        while self.ask("/v3/kv/range", "{\"key\":\"YQ==\"}").is_none() {
            go_on_waiting(0, "starting", begin, ended, || self.log())?;
            ended = self.ended();
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

    /// Forgets all former values. False where that did not work.
    pub fn compact(&self) -> bool {
        let revision = self.said("/v3/kv/range", "{\"key\":\"YQ==\"}", "revision");
        let compact = |revision| format!("{{\"revision\":{revision:?},\"physical\":true}}");
        revision.is_some_and(|revision| self.ask("/v3/kv/compaction", &compact(revision)).is_some())
    }

    /// Has it take changes again, once there is room: gives back what was freed, and ends the alarm.
    pub fn disarm(&self) -> bool {
        let member = self.said("/v3/maintenance/alarm", "{\"action\":\"GET\"}", "memberID");
        let end =
            |member| format!("{{\"action\":\"DEACTIVATE\",\"alarm\":\"NOSPACE\",\"memberID\":{member:?}}}");
        self.ask("/v3/maintenance/defragment", "{}").is_some()
            && member.is_some_and(|member| self.ask("/v3/maintenance/alarm", &end(member)).is_some())
    }

    /// A value of an answer: a text, behind the first of this name.
    fn said(&self, path: &str, body: &str, name: &str) -> Option<String> {
        let answer = self.ask(path, body)?;
        let (_, rest) = answer.split_once(&format!("\"{name}\":\""))?;
        Some(rest.split_once('"')?.0.to_owned())
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

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.stop();
    }
}
