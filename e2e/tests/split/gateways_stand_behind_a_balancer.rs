//! The files of `examples/` for several gateways behind a balancer, as they are but for the addresses.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use e2e::{Gateway, client, eventually, program};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::{PASSWORD, USER, free_port};
use tempfile::TempDir;

use crate::cluster;

/// How often ports are chosen anew when another program took one in between.
const PORT_ATTEMPTS: usize = 5;

/// A process with a file of its own. Dropping it kills it.
struct Running {
    process: Child,
    folder: TempDir,
    port: u16,
    admin_port: u16,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Running {
    /// Starts what `command` makes of a file, which `text` makes of a port and a port for the admin server,
    /// and waits until `listens`.
    async fn start(
        text: impl Fn(u16, u16) -> String,
        command: impl Fn(&Path) -> Command,
        listens: impl Fn(&Self) -> bool,
    ) -> Self {
        for _ in 0..PORT_ATTEMPTS {
            let folder = tempfile::tempdir().unwrap();
            let (port, admin_port) = (free_port().unwrap(), free_port().unwrap());
            let file = folder.path().join("file");
            fs::write(&file, text(port, admin_port)).unwrap();
            let log = fs::File::create(folder.path().join("log")).unwrap();
            let mut command = command(&file);
            let output = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap());
            let mut running = Self {
                process: output.stderr(log).spawn().unwrap(),
                folder,
                port,
                admin_port,
            };
            let mut has_ended = false;
            eventually("it listens", async || {
                has_ended = running.process.try_wait().unwrap().is_some();
                has_ended || listens(&running)
            })
            .await;
            if !has_ended {
                return running;
            }
        }
        panic!("it ended at its start, again and again");
    }

    /// A gateway with this file, once it is ready.
    async fn gateway(text: impl Fn(u16, u16) -> String) -> Self {
        let command = |file: &Path| {
            let mut command = Command::new(program());
            command.args(["serve", "--config"]).arg(file);
            command.env("APP_PASSWORD", PASSWORD);
            command.env("FOREBAY_MONITOR_PASSWORD", PASSWORD);
            command
        };
        Self::start(text, command, |running| running.readyz() == Some(200)).await
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn readyz(&self) -> Option<u16> {
        Some(Gateway::page(self.admin_port, "/readyz")?.0)
    }

    /// A session through it; an error where there is none.
    async fn connect(&self) -> mysql_async::Result<Conn> {
        Conn::new(client::options_at(self.port)).await
    }

    fn ctl(&self, arguments: &[&str]) {
        let mut ctl = Command::new(program());
        ctl.args(["ctl", "--socket"]);
        ctl.arg(self.folder.path().join("admin.sock"));
        assert!(ctl.args(arguments).status().unwrap().success(), "{arguments:?}");
    }

    /// The clients of sessions that have ended in order, by its log.
    fn clients(&self) -> HashSet<String> {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap();
        let ended = log.lines().filter(|line| line.contains("session ended"));
        ended
            .filter_map(|line| Some(line.split_once("client=")?.1.split_once(' ')?.0.to_owned()))
            .collect()
    }
}

/// A file of `examples/` with each of these instead of what it has there.
fn example(name: &str, changes: &[(&str, String)]) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../examples")
        .join(name);
    let mut text = fs::read_to_string(path).unwrap();
    for (from, to) in changes {
        assert!(text.contains(from), "{name} has no {from}");
        text = text.replace(from, to);
    }
    text
}

/// Two gateways in mode `split` in front of the same servers.
async fn gateways() -> [Running; 2] {
    let servers = cluster::shared();
    let text = |port, admin_port| {
        example(
            "behind-a-balancer.toml",
            &[
                ("0.0.0.0:6033", format!("127.0.0.1:{port}")),
                ("0.0.0.0:6080", format!("127.0.0.1:{admin_port}")),
                ("/run/forebay/admin.sock", "admin.sock".to_owned()),
                ("10.0.0.10", "127.0.0.1".to_owned()),
                ("10.0.1.1:3306", servers.node(0).address()),
                ("10.0.1.2:3306", servers.node(1).address()),
                ("\"forebay_monitor\"", format!("{USER:?}")),
                ("\"app\"", format!("{USER:?}")),
            ],
        )
    };
    [Running::gateway(text).await, Running::gateway(text).await]
}

async fn answers(session: &mut Conn) -> bool {
    session.query_first("SELECT 42").await.ok() == Some(Some(42))
}

#[tokio::test]
async fn and_the_balancer_may_be_another_in_mode_tcp() {
    let [first, second] = gateways().await;
    let balancer = Running::gateway(|port, admin_port| {
        example(
            "balancer.toml",
            &[
                ("0.0.0.0:3306", format!("127.0.0.1:{port}")),
                ("127.0.0.1:6080", format!("127.0.0.1:{admin_port}")),
                ("/run/forebay/admin.sock", "admin.sock".to_owned()),
                ("10.0.0.21:6033", first.address()),
                ("10.0.0.22:6033", second.address()),
                ("\"app\"", format!("{USER:?}")),
                // A gateway that is late twice on a busy machine is not down.
                ("fall = 2", "fall = 2\ntimeout = \"30s\"".to_owned()),
            ],
        )
    })
    .await;
    for _ in 0..4 {
        let mut session = balancer.connect().await.unwrap();
        assert!(answers(&mut session).await);
        session.disconnect().await.unwrap();
    }
    let are_known = async || {
        let known = &first.clients() | &second.clients();
        let clients = balancer.clients();
        clients.len() == 4 && clients.is_subset(&known)
    };
    eventually("the gateways know their clients by the PROXY header", are_known).await;

    // What is taken out by hand keeps its sessions, and gets no more.
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(balancer.connect().await.unwrap());
    }
    balancer.ctl(&["drain", "gateway-1", "--no-wait"]);
    for session in &mut sessions {
        assert!(answers(session).await);
    }
    // One that is lost takes its sessions along, and refuses nobody once that was noticed.
    balancer.ctl(&["undrain", "gateway-1"]);
    drop(second);
    let is_left = async || match balancer.connect().await {
        Ok(mut session) => answers(&mut session).await,
        Err(_) => false,
    };
    eventually("the other one serves", is_left).await;
}

#[tokio::test]
async fn and_the_balancer_may_be_haproxy_which_asks_whether_they_are_ready() {
    let [first, second] = gateways().await;
    let text = |port, _| {
        let to = |gateway: &Running| format!("{} port {}", gateway.address(), gateway.admin_port);
        example(
            "haproxy.cfg",
            &[
                ("0.0.0.0:3306", format!("127.0.0.1:{port}")),
                ("10.0.0.21:6033", to(&first)),
                ("10.0.0.22:6033", to(&second)),
                ("inter 1s", "inter 500ms".to_owned()),
                // Two late checks in a row would take a gateway out, and on a busy machine both gateways.
                (
                    "timeout connect 3s",
                    "timeout connect 3s\n    timeout check 30s".to_owned(),
                ),
            ],
        )
    };
    let command = |file: &Path| {
        let mut command = Command::new("haproxy");
        command.args(["-db", "-f"]).arg(file);
        command
    };
    let listens = |running: &Running| std::net::TcpStream::connect(running.address()).is_ok();
    let balancer = Running::start(text, command, listens).await;

    let sessions = |gateway: &Running| {
        let (_, status) = Gateway::page(gateway.admin_port, "/status").unwrap();
        let (_, sessions) = status.split_once("\"sessions\":").unwrap();
        sessions.split(',').next().unwrap().parse::<usize>().unwrap()
    };
    let mut kept = Vec::new();
    eventually("both have some", async || {
        kept.push(balancer.connect().await.unwrap());
        let (on_first, on_second) = (sessions(&first), sessions(&second));
        on_first > 0 && on_second > 0 && on_first + on_second == kept.len()
    })
    .await;
    let before = sessions(&first);

    // Its sessions stay, and new ones are on the other.
    first.ctl(&["unready", "--reason", "a new kernel"]);
    assert_eq!(first.readyz(), Some(503));
    eventually("new sessions are all on the other", async || {
        let mut three = Vec::new();
        for _ in 0..3 {
            three.push(balancer.connect().await.unwrap());
        }
        sessions(&first) == before
    })
    .await;
    for session in &mut kept {
        assert!(answers(session).await);
    }
    eventually("it is out for a time, and is asked in time", async || {
        first.ctl(&["unready", "--for", "200ms"]);
        first.readyz() == Some(503)
    })
    .await;
    eventually("it is back by itself", async || {
        kept.push(balancer.connect().await.unwrap());
        first.readyz() == Some(200) && sessions(&first) > before
    })
    .await;
}
