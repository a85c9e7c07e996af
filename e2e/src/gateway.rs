//! The gateway as a process: started with a configuration, asked over its admin port, ended by signals.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sandbox::free_port;
use tempfile::TempDir;

use crate::setup::{Bind, Setup};
use crate::{PATIENCE, eventually};

/// How often ports are chosen anew when another program took one in between.
const PORT_ATTEMPTS: usize = 5;
const POLL: Duration = Duration::from_millis(10);
/// How long a log is waited for, far above what it takes to write.
const LOG_LIMIT: Duration = Duration::from_secs(2);
const LOG_POLL: Duration = Duration::from_millis(1);

/// A running gateway. Dropping it kills it.
#[derive(Debug)]
pub struct Gateway {
    process: Child,
    setup: Setup,
    port: u16,
    admin_port: u16,
    folder: TempDir,
}

/// The gateway's program.
///
/// # Panics
/// When it was not built.
#[must_use]
pub fn program() -> PathBuf {
    let built = || {
        // target/debug/deps/scenarios-0123 → target/debug/forebay
        let own = std::env::current_exe().unwrap();
        own.ancestors().nth(2).unwrap().join("forebay")
    };
    let path = std::env::var_os("FOREBAY_BIN").map_or_else(built, PathBuf::from);
    assert!(
        path.is_file(),
        "{} is not there: cargo build -p forebay, or set FOREBAY_BIN",
        path.display()
    );
    path
}

impl Gateway {
    pub(crate) fn start(setup: Setup, wait_until_ready: bool) -> Self {
        let ready = |gateway: &Self| match gateway.try_get("/readyz") {
            // Ready is a gateway with one working server; scenarios count on all of theirs.
            Some((200, _)) if wait_until_ready => gateway.servers_up() == gateway.setup.server_count(),
            Some(_) => !wait_until_ready,
            None => false,
        };
        for _ in 0..PORT_ATTEMPTS {
            let mut gateway = Self::spawn(setup.clone());
            let begin = Instant::now();
            loop {
                if ready(&gateway) {
                    return gateway;
                }
                if gateway.process.try_wait().unwrap().is_some() {
                    break;
                }
                assert!(
                    begin.elapsed() < PATIENCE,
                    "the gateway does not become ready:\n{}",
                    gateway.log()
                );
                sleep(POLL);
            }
            let log = gateway.log();
            assert!(
                log.contains("Address already in use") || log.contains("another process is listening"),
                "the gateway ended at its start:\n{log}"
            );
        }
        panic!("the ports chosen were taken again and again");
    }

    fn spawn(setup: Setup) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port().unwrap();
        let admin_port = loop {
            let other = free_port().unwrap();
            if other != port {
                break other;
            }
        };
        fs::write(config_in(folder.path()), setup.to_toml(port, admin_port)).unwrap();
        Self {
            process: launch(folder.path(), &setup),
            setup,
            port,
            admin_port,
            folder,
        }
    }

    /// The port of its listener.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `ADDRESS:PORT` of its listener.
    ///
    /// # Panics
    /// When it listens on a Unix socket.
    #[must_use]
    pub fn address(&self) -> String {
        match self.setup.bind {
            Bind::Ip(address) => format!("{address}:{}", self.port),
            Bind::Unix(_) => panic!("this gateway listens on a Unix socket"),
        }
    }

    /// Everything that it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        // It may say what it has done a moment after that is seen.
        sleep(POLL);
        let (begin, threads) = (Instant::now(), log_threads(&config_in(self.folder.path())));
        // One that stands still writes nothing.
        while !threads.iter().all(|thread| has_written(thread)) && begin.elapsed() < LOG_LIMIT {
            sleep(LOG_POLL);
        }
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// A folder that goes with the gateway.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Status and body of a page of the admin server.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn get(&self, page: &str) -> (u16, String) {
        self.try_get(page).expect("an answer from the admin server")
    }

    /// The port of its admin server.
    #[must_use]
    pub fn admin_port(&self) -> u16 {
        self.admin_port
    }

    fn try_get(&self, page: &str) -> Option<(u16, String)> {
        Self::page(self.admin_port, page)
    }

    /// Status and body of a page of the admin server on this port, where one answers.
    #[must_use]
    pub fn page(admin_port: u16, page: &str) -> Option<(u16, String)> {
        Self::request(admin_port, "GET", page, "")
    }

    /// Asks its admin server to do something, over TCP with these lines of headers.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn put_over_tcp(&self, page: &str, headers: &str) -> (u16, String) {
        Self::request(self.admin_port, "PUT", page, headers).expect("an answer from the admin server")
    }

    /// Asks it to do something, on its admin socket.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn put(&self, page: &str) -> (u16, String) {
        self.acts()(page)
    }

    /// [`Gateway::put`] that outlives the borrow.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn acts(&self) -> impl Fn(&str) -> (u16, String) + 'static {
        let socket = self.folder().join("admin.sock");
        move |page| {
            let stream = UnixStream::connect(&socket).expect("the admin socket");
            stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
            Self::answer(stream, "PUT", page, "").expect("an answer from the admin server")
        }
    }

    fn request(admin_port: u16, method: &str, page: &str, headers: &str) -> Option<(u16, String)> {
        let stream = TcpStream::connect(("127.0.0.1", admin_port)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        Self::answer(stream, method, page, headers)
    }

    fn answer(
        mut stream: impl Read + Write,
        method: &str,
        page: &str,
        headers: &str,
    ) -> Option<(u16, String)> {
        write!(
            stream,
            "{method} {page} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n"
        )
        .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    /// Sum of all series of a metric whose labels contain each of `labels`, written `name="value"`.
    #[must_use]
    pub fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let (status, body) = self.get("/metrics");
        assert_eq!(status, 200, "{body}");
        testkit::metrics::sum(&body, name, labels)
    }

    /// How many servers are up, as the gateway sees it.
    #[must_use]
    pub fn servers_up(&self) -> usize {
        self.metric("forebay_server_state", &["state=\"up\""]) as usize
    }

    /// How many times this server was found wanting: by a session, or by the second look that a start asks
    /// for, where the machine is so slow that it comes after what a test did to the server.
    #[must_use]
    pub fn connects_or_checks_failed(&self, server: &str) -> f64 {
        let label = format!("server={server:?}");
        let counters = [
            "forebay_server_connect_failures_total",
            "forebay_checks_failed_total",
        ];
        counters
            .iter()
            .map(|counter| self.metric(counter, &[&label]))
            .sum()
    }

    /// Changes the configuration (ports and socket stay), sends SIGHUP and waits until it was taken or
    /// refused. Returns whether it was taken.
    pub async fn reload(&mut self, setup: Setup) -> bool {
        let taken = |gateway: &Self| gateway.metric("forebay_config_reloads_total", &["result=\"ok\""]);
        let seen = |gateway: &Self| gateway.metric("forebay_config_reloads_total", &[]);
        let (taken_before, seen_before) = (taken(self), seen(self));
        self.write_config(setup);
        self.signal(Signal::HUP);
        eventually("the gateway has looked at its new configuration", async || {
            seen(self) > seen_before
        })
        .await;
        taken(self) > taken_before
    }

    /// Changes the configuration file in one step, and nothing else.
    pub fn write_config(&mut self, setup: Setup) {
        let unfinished = self.folder.path().join("forebay.toml.new");
        fs::write(&unfinished, setup.to_toml(self.port, self.admin_port)).unwrap();
        fs::rename(unfinished, config_in(self.folder.path())).unwrap();
        self.setup = setup;
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Ends it at once, as a crash would (SIGKILL).
    pub fn kill9(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts it again after its end, with the same configuration and ports, and waits until it is ready.
    pub async fn restart(&mut self) {
        assert!(!self.is_running());
        self.process = launch(self.folder.path(), &self.setup);
        eventually("the gateway is ready again", async || {
            self.try_get("/readyz").is_some_and(|(status, _)| status == 200)
        })
        .await;
    }

    /// Waits until the process has ended.
    pub async fn exit(&mut self) -> ExitStatus {
        let process = &mut self.process;
        let mut status = None;
        eventually("the gateway ends", async || {
            status = process.try_wait().unwrap();
            status.is_some()
        })
        .await;
        status.unwrap()
    }

    /// Whether the process runs.
    pub fn is_running(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.process.id().cast_signed()).unwrap(), signal).unwrap();
    }
}

fn config_in(folder: &Path) -> PathBuf {
    folder.join("forebay.toml")
}

/// Starts the program with the configuration in `folder`, and its log there.
fn launch(folder: &Path, setup: &Setup) -> Child {
    let log = File::options()
        .create(true)
        .append(true)
        .open(folder.join("log"))
        .unwrap();
    Command::new(program())
        .args(["serve", "--config"])
        .arg(config_in(folder))
        .envs(setup.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            eprintln!("The gateway's log:\n{}", self.log());
        }
    }
}

/// The threads that write the log of the processes with this configuration, of which there may be several.
fn log_threads(config: &Path) -> Vec<PathBuf> {
    let inside = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten();
    let has = |folder: &Path, file, text: &str| {
        fs::read_to_string(folder.join(file)).is_ok_and(|words| words.contains(text))
    };
    let processes = inside("/proc".into()).map(|process| process.path());
    let serving = processes.filter(|process| has(process, "cmdline", &config.to_string_lossy()));
    let threads = serving.flat_map(|process| inside(process.join("task")));
    let threads = threads.map(|thread| thread.path());
    threads.filter(|thread| has(thread, "comm", "log\n")).collect()
}

/// Whether all is written that was logged so far. The thread lets lines gather for two milliseconds, and may
/// be late. With nothing to write it sleeps until somebody wakes it, and that alone is a futex.
fn has_written(log_thread: &Path) -> bool {
    let sleeps_in = fs::read_to_string(log_thread.join("wchan"));
    sleeps_in.is_ok_and(|function| function.starts_with("futex")) || !log_thread.exists()
}
