//! `forebay ctl upgrade`, and SIGUSR2: a new process takes the listeners over, and the sessions that can go
//! there; the others go on in the old one. No client notices.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use e2e::{Gateway, Setup, client, eventually};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use rustix::process::{Pid, Signal, kill_process};
use sandbox::Sandbox;
use tokio::runtime::Builder;

use crate::cluster::{self, ctl};
use crate::ledger::{self, Load};

const SESSIONS: usize = 50;

/// A process that nobody else ends.
struct Process(u32);

impl Process {
    /// The one that answers on the admin port now.
    fn answering(gateway: &Gateway) -> Option<u32> {
        let (_, status) = Gateway::page(gateway.admin_port(), "/status")?;
        let (_, rest) = status.split_once("\"process_id\":")?;
        rest.split_once(',')?.0.parse().ok()
    }

    fn signal(&self, signal: Signal) {
        let process = Pid::from_raw(self.0.cast_signed()).unwrap();
        let _ = kill_process(process, signal);
    }

    fn is_there(&self) -> bool {
        // One that has ended stays for a while where its parent has not asked for it.
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0)).unwrap_or_default();
        !status.is_empty() && !status.contains("State:\tZ")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

fn setup(sandbox: &Sandbox, socket: &Path) -> Setup {
    let by_socket = format!(
        "[[listener]]\nbind = \"unix:{}\"\ncluster = \"main\"\nmode = \"split\"\n",
        socket.display()
    );
    cluster::split(sandbox)
        .tables(&by_socket)
        .admin("socket = \"admin.sock\"")
}

/// Connects again and again, in a thread of its own; says how often, and how long the longest took.
fn connecting(gateway: &Gateway, stop: &Arc<AtomicBool>) -> JoinHandle<(u64, Duration)> {
    let (stop, options) = (Arc::clone(stop), cluster::options(gateway));
    let connecting = async move {
        let (mut connects, mut longest) = (0, Duration::ZERO);
        while !stop.load(Ordering::Relaxed) {
            let began = Instant::now();
            let mut session = Conn::new(options.clone()).await.expect("a connection");
            session.query_drop("SELECT 1").await.expect("an answer");
            session.disconnect().await.expect("a good end");
            (connects, longest) = (connects + 1, longest.max(began.elapsed()));
        }
        (connects, longest)
    };
    std::thread::spawn(move || {
        let mut runtime = Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(connecting)
    })
}

#[tokio::test]
async fn while_sessions_are_busy() {
    let sandbox = cluster::replicated();
    ledger::prepare(&sandbox);
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("forebay.sock");
    let mut gateway = cluster::start(setup(&sandbox, &socket), 2).await;
    let old = Process::answering(&gateway).unwrap();
    let load = Load::start(&gateway, SESSIONS);
    load.goes_on(300).await;
    let stop = Arc::<AtomicBool>::default();
    let connecting = connecting(&gateway, &stop);

    let (code, said) = ctl(&gateway, &["upgrade"]);
    assert_eq!(code, Some(0), "{said}\n{}", gateway.log());
    assert!(said.contains("has taken over"), "{said}");
    let new = Process(Process::answering(&gateway).unwrap());
    assert_ne!(new.0, old);
    load.goes_on(300).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    stop.store(true, Ordering::Relaxed);
    let (connects, longest) = connecting.join().unwrap();
    println!("{connects} connects, the longest took {longest:?}");
    assert!(connects > 0);
    // All sessions have gone, and so has the process.
    assert!(gateway.exit().await.success());
    load.goes_on(300).await;
    let failures = load.end(sandbox.primary());
    assert!(failures.is_empty(), "{failures:#?}");
    let options = client::options_at(1)
        .socket(Some(socket.to_str().unwrap()))
        .prefer_socket(true);
    let mut session = Conn::new(options).await.expect("the file of the socket is there");
    session.query_drop("SELECT 1").await.unwrap();

    // Once more, by the signal.
    new.signal(Signal::USR2);
    eventually("a third process has taken over", async || {
        Process::answering(&gateway).is_some_and(|answering| answering != new.0)
    })
    .await;
    let third = Process(Process::answering(&gateway).unwrap());
    // Its only session has gone, too.
    eventually("the second process has ended", async || !new.is_there()).await;
    session.query_drop("SELECT 1").await.unwrap();
    session.disconnect().await.unwrap();
    third.signal(Signal::TERM);
    eventually("the third process has ended", async || !third.is_there()).await;
    assert!(!socket.exists(), "the last one takes the file with it");
}

#[tokio::test]
async fn unless_the_new_one_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("forebay.sock");
    let mut gateway = cluster::start(setup(cluster::shared(), &socket), 2).await;
    let mut session = cluster::connect(&gateway).await;
    let before = Process::answering(&gateway).unwrap();
    let file = gateway.folder().join("forebay.toml");
    let good = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("workrs = 1\n{good}")).unwrap();
    let (code, said) = ctl(&gateway, &["upgrade"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the new process does not serve"), "{said}");
    assert!(gateway.log().contains("workrs"), "{}", gateway.log());
    assert!(gateway.is_running());
    assert_eq!(Process::answering(&gateway), Some(before));
    session.query_drop("SELECT 1").await.unwrap();
    cluster::connect(&gateway)
        .await
        .query_drop("SELECT 1")
        .await
        .unwrap();
    assert!(socket.exists());
}

/// The new process knows nothing of the drain: the first server has not come back by anybody's word.
#[tokio::test]
async fn and_ends_drains_one_after_the_other() {
    let sandbox = cluster::shared();
    let [first, second] = [1, 2].map(|node| sandbox.node(node).address());
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = cluster::start(setup(sandbox, &folder.path().join("forebay.sock")), 2).await;
    let servers = [first.clone(), second.clone()];
    let (mut ctl_drain, mut told) = cluster::drain_one_at_a_time(&gateway, &servers);
    let waits = told.next().unwrap().unwrap();
    assert!(waits.contains(&format!("forebay ctl undrain {first}")), "{waits}");
    let (code, said) = ctl(&gateway, &["upgrade"]);
    assert_eq!(code, Some(0), "{said}\n{}", gateway.log());
    let new = Process(Process::answering(&gateway).unwrap());
    let (said, code) = tokio::task::spawn_blocking(move || {
        let said: Vec<String> = told.map(Result::unwrap).collect();
        (said.concat(), ctl_drain.wait().unwrap().code())
    })
    .await
    .unwrap();
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("has forgotten the drain") && said.contains(&first),
        "{said}"
    );
    assert_eq!(gateway.get("/drains").1.trim(), "[]");
    assert!(gateway.exit().await.success());
    new.signal(Signal::TERM);
    eventually("the new process has ended", async || !new.is_there()).await;
}
