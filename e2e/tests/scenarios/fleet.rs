//! Gateways that have their configuration in one store.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use e2e::{Gateway, PATIENCE, client, eventually, program};
use mysql_async::{Conn, OptsBuilder};
use rustix::process::{Pid, Signal, kill_process};
use sandbox::{free_port, stands};
use serde_json::Value;
use tempfile::TempDir;

/// One of several.
pub(crate) struct Member {
    process: Child,
    folder: TempDir,
    admin_port: u16,
    environment: Vec<(&'static str, String)>,
}

impl Member {
    /// With what its section `[store]` says besides.
    pub(crate) fn start(name: &str, store: &str) -> Self {
        Self::start_in(name, store, Vec::new())
    }

    /// The same with these environment variables.
    pub(crate) fn start_in(name: &str, store: &str, environment: Vec<(&'static str, String)>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (admin_port, path) = (free_port().unwrap(), folder.path());
        fs::create_dir(path.join("secrets")).unwrap();
        let toml = format!(
            "workers = 1\nmax_connections = 100\n[store]\n{store}\nname = {name:?}\nsecrets_dir = \"secrets\"\nstate_dir = \"state\"\n\
             [admin]\nbind = \"127.0.0.1:{admin_port}\"\nsocket = \"admin.sock\"\n"
        );
        fs::write(path.join("forebay.toml"), toml).unwrap();
        Self {
            process: serve(&folder, &environment),
            folder,
            environment,
            admin_port,
        }
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Until it has ended by itself.
    pub(crate) fn wait(&mut self) {
        self.process.wait().unwrap();
    }

    /// A gateway that was sent SIGSTOP stands still when this returns.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
        let began = Instant::now();
        // A thread that runs on another core goes on for a moment, long enough to answer somebody.
        while signal == Signal::STOP && !stands(self.process.id()) {
            assert!(began.elapsed() < PATIENCE, "the gateway does not stand still");
            sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn start_again(&mut self) {
        self.process = serve(&self.folder, &self.environment);
    }

    pub(crate) fn secret(&self, name: &str) -> PathBuf {
        self.folder.path().join("secrets").join(name)
    }

    pub(crate) fn get(&self, page: &str) -> Option<(u16, String)> {
        Gateway::page(self.admin_port, page)
    }

    pub(crate) fn status(&self) -> Value {
        let text = self.get("/status").map(|(_, text)| text).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    pub(crate) async fn is_ready(&self) {
        eventually("the gateway is ready", async || {
            self.get("/readyz").is_some_and(|(status, _)| status == 200)
        })
        .await;
    }

    /// To log in at its first listener.
    pub(crate) fn options(&self) -> OptsBuilder {
        let status = self.status();
        let bind = status["listeners"][0]["bind"].as_str().unwrap();
        client::options_at(bind.rsplit(':').next().unwrap().parse().unwrap())
    }

    pub(crate) async fn session(&self) -> Conn {
        Conn::new(self.options()).await.unwrap()
    }

    /// Exit code and words of `forebay ctl`.
    pub(crate) fn ctl(&self, arguments: &[&str]) -> (i32, String) {
        let socket = self.folder.path().join("admin.sock");
        let mut ctl = Command::new(program());
        ctl.args(["ctl", "--socket"]).arg(socket).args(arguments);
        let Output {
            status,
            stdout,
            stderr,
        } = ctl.output().unwrap();
        let words = String::from_utf8([stdout, stderr].concat()).unwrap();
        (status.code().unwrap(), words)
    }

    pub(crate) fn apply(&self, text: &str, arguments: &[&str]) -> (i32, String) {
        let file = self.folder.path().join("new.toml");
        fs::write(&file, text).unwrap();
        self.ctl(&[&["apply", file.to_str().unwrap()], arguments].concat())
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            eprintln!("The gateway's log:\n{}", self.log());
        }
    }
}

fn serve(folder: &TempDir, environment: &[(&str, String)]) -> Child {
    let path = folder.path();
    let log = fs::File::options()
        .create(true)
        .append(true)
        .open(path.join("log"))
        .unwrap();
    Command::new(program())
        .args(["serve", "--config"])
        .arg(path.join("forebay.toml"))
        .envs(environment.iter().cloned())
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// A text with one listener in front of this server.
pub(crate) fn text_for(server: &str, more: &str) -> String {
    format!(
        "[[listener]]\nbind = \"127.0.0.1:0\"\nmode = \"session\"\ncluster = \"main\"\n[cluster.main]\nservers = [{server:?}]\n\
         [cluster.main.check]\ninterval = \"100ms\"\nrise = 1\n# {more}\n"
    )
}

#[track_caller]
pub(crate) fn is(result: (i32, String), code: i32, words: &str) {
    assert_eq!(result.0, code, "{}", result.1);
    assert!(result.1.contains(words), "{words:?} is not in: {}", result.1);
}
