//! `forebay ctl upgrade`, and SIGUSR2: a new process takes the listeners over, and the sessions that can go
//! there; the others go on in the old one. No client notices.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use e2e::{Gateway, Setup, client, eventually, kind};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, SslOpts};
use rustix::process::{Pid, Signal, kill_process};
use sandbox::{Certificates, PASSWORD, Sandbox, Spec, USER};
use tokio::runtime::Builder;

use crate::cluster::{self, ctl};
use crate::ledger::{self, Load};

const SESSIONS: usize = 200;

/// Far above what "at once" takes on a busy machine, where the log alone takes its time to be looked at, and
/// below all that is waited for otherwise.
const AT_ONCE: Duration = Duration::from_secs(9);

/// No such process: it has ended while it was looked at.
const ESRCH: i32 = 3;

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
        match std::fs::read_to_string(format!("/proc/{}/status", self.0)) {
            Ok(status) => !status.contains("State:\tZ"),
            // Else nobody knows.
            Err(error) => error.kind() != ErrorKind::NotFound && error.raw_os_error() != Some(ESRCH),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// The processes that serve, or will, with the configuration of this gateway.
fn serving(gateway: &Gateway) -> Vec<u32> {
    let file = gateway.folder().join("forebay.toml");
    let command_line = format!("serve\0--config\0{}\0", file.display());
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let serving = processes.filter_map(|process| {
        let number = process.file_name().to_str()?.parse().ok()?;
        let said = std::fs::read_to_string(process.path().join("cmdline")).ok()?;
        said.ends_with(&command_line).then_some(number)
    });
    serving.collect()
}

/// Has a new process take over, and returns it.
fn upgrade(gateway: &Gateway) -> Process {
    let (code, said) = ctl(gateway, &["upgrade"]);
    assert_eq!(code, Some(0), "{said}\n{}", gateway.log());
    // Both answer for a moment: who does now is not to be asked.
    let (process, _) = said.split_once(" has taken over").expect("it says which");
    let (_, number) = process.rsplit_once(' ').unwrap();
    Process(number.parse().unwrap())
}

fn setup(sandbox: &Sandbox, socket: &Path) -> Setup {
    let by_socket = format!(
        "[[listener]]\nbind = \"unix:{}\"\ncluster = \"main\"\nmode = \"split\"\n",
        socket.display()
    );
    // A busy MySQL takes its time for the logins of all sessions at once.
    cluster::split(sandbox)
        .tables(&by_socket)
        .cluster("login_timeout = \"1m\"")
        .listener("login_timeout = \"1m\"")
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
    let load = Load::start(&gateway, SESSIONS);
    load.goes_on(300).await;
    let stop = Arc::<AtomicBool>::default();
    let connecting = connecting(&gateway, &stop);

    let new = upgrade(&gateway);
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
    // Both answer for a moment.
    let mut third = None;
    eventually("a third process has taken over", async || {
        third = Process::answering(&gateway).filter(|answering| *answering != new.0);
        third.is_some()
    })
    .await;
    let third = Process(third.unwrap());
    // Its only session has gone, too.
    eventually("the second process has ended", async || !new.is_there()).await;
    session.query_drop("SELECT 1").await.unwrap();
    session.disconnect().await.unwrap();
    third.signal(Signal::TERM);
    eventually("the third process has ended", async || !third.is_there()).await;
    assert!(
        !socket.exists(),
        "the last one takes the file with it\n{}",
        gateway.log()
    );
}

#[tokio::test]
async fn while_sessions_with_a_server_of_their_own_are_busy() {
    let sandbox = &e2e::servers(1)[0];
    ledger::prepare(sandbox);
    for (mode, listener) in [("session", ""), ("session", "moves = true"), ("tcp", "")] {
        let mut gateway = Setup::of_addresses(sandbox.addresses())
            .mode(mode)
            .listener(listener)
            .cluster(&cluster::monitor())
            .admin("socket = \"admin.sock\"")
            .start();
        let load = Load::start(&gateway, 20);
        load.goes_on(100).await;
        let _new = upgrade(&gateway);
        assert!(gateway.exit().await.success(), "{mode} {listener}: all have gone");
        load.goes_on(100).await;
        let failures = load.end(sandbox.primary());
        assert!(failures.is_empty(), "{mode} {listener}: {failures:#?}");
        sandbox.primary().sql("DELETE FROM ledger.events").unwrap();
    }
}

#[tokio::test]
async fn while_an_encrypted_session_stays_until_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::make(folder.path()).unwrap();
    let (cert, key) = (&certificates.server_cert, &certificates.server_key);
    let setup = Setup::of_addresses(cluster::single().addresses())
        .mode("split")
        .tables(&cluster::user(USER, PASSWORD))
        .listener_tls(&format!("mode = \"preferred\"\ncert = {cert:?}\nkey = {key:?}"))
        .admin("socket = \"admin.sock\"");
    let mut gateway = setup.start();
    let tls = SslOpts::default().with_root_certs(vec![certificates.ca.clone().into()]);
    let mut encrypted = Conn::new(cluster::options(&gateway).ssl_opts(tls)).await.unwrap();
    let mut plain = cluster::connect(&gateway).await;
    let _new = upgrade(&gateway);
    let count = |metric, labels: &[&str]| gateway.metric(metric, labels) as u64;
    eventually("the plain session has gone, and the other not", async || {
        count("forebay_upgrade_sessions_taken_total", &[]) == 1
            && count("forebay_upgrade_sessions_left", &["reason=\"tls\""]) == 1
    })
    .await;
    for session in [&mut encrypted, &mut plain] {
        session.query_drop("SELECT 1").await.unwrap();
    }
    assert!(gateway.is_running());
    encrypted.disconnect().await.unwrap();
    assert!(gateway.exit().await.success());
    plain.query_drop("SELECT 1").await.unwrap();
}

/// In the middle: some sessions are the new one's, and one is not.
#[tokio::test]
async fn and_a_new_one_that_is_killed_takes_nothing_of_the_others_with_it() {
    let sandbox = cluster::replicated();
    ledger::prepare(&sandbox);
    let folder = tempfile::tempdir().unwrap();
    let setup = setup(&sandbox, &folder.path().join("forebay.sock"));
    let mut gateway = cluster::start(setup, 2).await;
    let load = Load::start(&gateway, SESSIONS);
    load.goes_on(300).await;
    let mut stays = cluster::connect_to(&gateway, "ledger").await;
    stays.query_drop("START TRANSACTION").await.unwrap();
    let insert = |number: u32| format!("INSERT INTO events (number) VALUES ({number})");
    stays.query_drop(insert(1_000_000)).await.unwrap();
    let new = upgrade(&gateway);
    eventually("some have gone", async || {
        gateway.metric("forebay_upgrade_sessions_taken_total", &[]) > 0.0
    })
    .await;
    new.signal(Signal::KILL);
    eventually("it has ended", async || !new.is_there()).await;
    stays.query_drop(insert(1_000_001)).await.unwrap();
    stays.query_drop("COMMIT").await.unwrap();
    assert!(gateway.exit().await.success(), "a service manager starts it anew");
    let there = sandbox
        .primary()
        .sql("DELETE FROM ledger.events WHERE number >= 1000000; SELECT ROW_COUNT()");
    assert_eq!(there.unwrap().trim(), "2");
    // Those that were the new one's end without a word, and the others are told of a shutdown.
    for failure in load.end(sandbox.primary()) {
        assert!(matches!(failure.code, None | Some(1053)), "{failure:?}");
    }
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

/// The only server is down: the new one waits for it, and meanwhile nobody is there any more to be told that
/// it serves.
#[tokio::test]
async fn and_the_new_one_serves_where_the_old_one_is_killed_before() {
    let sandbox = Sandbox::start(Spec::new(kind())).unwrap();
    let mut gateway = Setup::of_addresses(sandbox.addresses())
        .mode("session")
        .admin("socket = \"admin.sock\"")
        .start();
    let old = Process::answering(&gateway).unwrap();
    let listening = |gateway: &Gateway| gateway.log().matches("listening").count();
    let at_start = listening(&gateway);
    sandbox.primary().stop().unwrap();
    let ctl = Command::new(e2e::program())
        .args(["ctl", "--socket"])
        .arg(gateway.folder().join("admin.sock"))
        .arg("upgrade")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut new = None;
    eventually("there is a new process", async || {
        new = serving(&gateway).into_iter().find(|process| *process != old);
        new.is_some()
    })
    .await;
    let new = Process(new.unwrap());
    eventually("it has the listeners", async || listening(&gateway) > at_start).await;
    assert_eq!(Process::answering(&gateway), Some(old));
    gateway.kill9();
    let ended = Instant::now();
    let says = "the process before this one has ended: takes over although it is not ready";
    eventually("it says so", async || gateway.log().contains(says)).await;
    let took = ended.elapsed();
    assert!(took < AT_ONCE, "{took:?}");

    let said = tokio::task::spawn_blocking(|| ctl.wait_with_output().unwrap())
        .await
        .unwrap();
    let words = String::from_utf8(said.stdout).unwrap();
    assert_eq!(said.status.code(), Some(0), "{words}");
    assert!(
        words.starts_with(&format!("process {} has taken over", new.0)),
        "{words}"
    );
    let log = gateway.log();
    assert!(
        log.contains("the process before this one has ended meanwhile"),
        "{log}"
    );
    assert_eq!(serving(&gateway), [new.0]);
    sandbox.primary().restart().unwrap();
    eventually("it serves", async || gateway.get("/readyz").0 == 200).await;
    let mut session = cluster::connect(&gateway).await;
    session.query_drop("SELECT 1").await.unwrap();
    session.disconnect().await.unwrap();
    new.signal(Signal::TERM);
    eventually("the new process has ended", async || !new.is_there()).await;
    assert!(
        TcpStream::connect(gateway.address()).is_err(),
        "somebody else listens"
    );
}

/// In the middle: a session in a transaction is still the old one's, and ends with it.
#[tokio::test]
async fn and_an_old_one_that_is_killed_takes_nothing_of_the_new_one_with_it() {
    let sandbox = cluster::replicated();
    ledger::prepare(&sandbox);
    let folder = tempfile::tempdir().unwrap();
    let setup = setup(&sandbox, &folder.path().join("forebay.sock"));
    let mut gateway = cluster::start(setup, 2).await;
    let mut goes = cluster::connect_to(&gateway, "ledger").await;
    let mut stays = cluster::connect_to(&gateway, "ledger").await;
    stays.query_drop("START TRANSACTION").await.unwrap();
    stays
        .query_drop("INSERT INTO events (number) VALUES (1)")
        .await
        .unwrap();
    let new = upgrade(&gateway);
    let count = |metric, labels: &[&str]| gateway.metric(metric, labels) as u64;
    eventually("one has gone, and the other not", async || {
        count("forebay_upgrade_sessions_taken_total", &[]) == 1
            && count("forebay_upgrade_sessions_left", &["reason=\"transaction\""]) == 1
    })
    .await;
    gateway.kill9();
    let ended = Instant::now();
    eventually("it says what has become of them", async || {
        let log = gateway.log();
        let mut lines = log.lines();
        let said = lines.find(|line| line.contains("gives no more sessions, or has ended"));
        said.is_some_and(|line| line.contains("taken=1") && line.contains("transaction 1"))
    })
    .await;
    let took = ended.elapsed();
    assert!(took < AT_ONCE, "{took:?}");
    assert_eq!(
        gateway.metric("forebay_upgrade_sessions_left", &["reason=\"transaction\""]) as u64,
        0
    );
    assert!(stays.query_drop("COMMIT").await.is_err());
    goes.query_drop("INSERT INTO events (number) VALUES (2)")
        .await
        .unwrap();
    // What it has written itself it sees wherever it reads.
    let numbers: Vec<u32> = goes.query("SELECT number FROM events").await.unwrap();
    assert_eq!(numbers, [2]);
    let mut another = cluster::connect(&gateway).await;
    another.query_drop("SELECT 1").await.unwrap();
    assert!(new.is_there());
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
    let new = upgrade(&gateway);
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
    // Both answer for a moment.
    assert!(gateway.exit().await.success());
    assert_eq!(gateway.get("/drains").1.trim(), "[]");
    new.signal(Signal::TERM);
    eventually("the new process has ended", async || !new.is_there()).await;
}
