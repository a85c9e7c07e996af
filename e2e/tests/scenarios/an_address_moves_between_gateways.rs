//! Two gateways on machines of their own (network namespaces), an etcd, and an address that one of them has:
//! whatever happens to them the other one has it a few seconds later, and never both.

use std::cell::Cell;
use std::fs;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

use e2e::{PATIENCE, client, program, servers};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder};
use rustix::process::{Pid, Signal, kill_process};
use sandbox::{Etcd, PASSWORD, USER};
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::lan::{INTERFACE, Lan, Observer, Relay};

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 9);
const OBSERVER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 60);
const PORT: u16 = 6033;

/// By when a client connects again, whatever happens, and where the gateway that has the address says so or
/// loses its link.
const LIMIT: Duration = Duration::from_secs(7);
const QUICK: Duration = Duration::from_secs(3);

/// So often something happens. A busy machine may be too slow for some of them.
const TRIES: usize = 4;

/// When a client comes after the one before, and how long it waits for its answer.
const COMES_EVERY: Duration = Duration::from_millis(100);
const ANSWER: Duration = Duration::from_secs(5);

struct Member<'l> {
    lan: &'l Lan,
    machine: &'static str,
    process: Child,
    relay: Relay,
    folder: TempDir,
}

impl<'l> Member<'l> {
    fn start(lan: &'l Lan, machine: &'static str, etcd: &Etcd) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        fs::create_dir(path.join("secrets")).unwrap();
        fs::write(path.join("secrets/check"), PASSWORD).unwrap();
        let toml = format!(
            "workers = 1\nmax_connections = 100\n[store]\nendpoints = [{:?}]\nname = {machine:?}\nsecrets_dir = \"secrets\"\n\
             state_dir = \"state\"\n[vip]\naddress = \"{ADDRESS}/24\"\ninterface = \"{INTERFACE}\"\n\
             [admin]\nbind = \"127.0.0.1:6080\"\nsocket = \"admin.sock\"\n",
            etcd.address()
        );
        fs::write(path.join("forebay.toml"), toml).unwrap();
        let (_, port) = etcd
            .address()
            .rsplit_once(':')
            .map(|(host, port)| (host.to_owned(), port.to_owned()))
            .unwrap();
        Self {
            lan,
            machine,
            process: serve(lan, machine, &folder),
            relay: Relay::start(lan, machine, port.parse().unwrap()),
            folder,
        }
    }

    fn start_again(&mut self) {
        self.process = serve(self.lan, self.machine, &self.folder);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    fn page(&self, page: &str) -> Option<String> {
        let mut stream = UnixStream::connect(self.folder.path().join("admin.sock")).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        write!(
            stream,
            "GET {page} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.starts_with("HTTP/1.1 200").then_some(())?;
        Some(answer.split_once("\r\n\r\n")?.1.to_owned())
    }

    fn status(&self) -> Value {
        let page = self.page("/status").unwrap_or_default();
        serde_json::from_str(&page).unwrap_or_default()
    }

    fn vip(&self, field: &str) -> String {
        let status = self.status();
        status["store"]["vip"][field]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// How often the store has not renewed its lease of the address in time, as its log tells.
    fn leases_lost(&self) -> usize {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap();
        log.matches("its lease").count()
    }

    fn ctl(&self, arguments: &[&str]) -> String {
        let socket = self.folder.path().join("admin.sock");
        let mut ctl = Command::new(program());
        ctl.args(["ctl", "--socket"]).arg(socket).args(arguments);
        let done = ctl.output().unwrap();
        let words = String::from_utf8([done.stdout, done.stderr].concat()).unwrap();
        assert!(done.status.success(), "{words}");
        words
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        // Another process may have taken over.
        let running = self.status()["process_id"]
            .as_i64()
            .and_then(|pid| i32::try_from(pid).ok());
        if let Some(pid) = running.and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            eprintln!("The log of {}:\n{log}", self.machine);
        }
    }
}

fn serve(lan: &Lan, machine: &str, folder: &TempDir) -> Child {
    let path = folder.path();
    let log = fs::File::options()
        .create(true)
        .append(true)
        .open(path.join("log"))
        .unwrap();
    lan.command(machine, &program())
        .args(["serve", "--config"])
        .arg(path.join("forebay.toml"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "this did not come true: {what}");
        sleep(Duration::from_millis(20));
    }
}

/// Has clients log in at the address, one after the other and none waiting for those before, and tells when
/// one has had an answer.
fn keep_coming(lan: &Lan, told: Sender<Instant>) {
    lan.on("client", move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let options = client::options_at(PORT).ip_or_hostname(ADDRESS.to_string());
        runtime.block_on(async {
            let mut visits = JoinSet::new();
            loop {
                visits.spawn(timeout(ANSWER, visit(options.clone(), told.clone())));
                while visits.try_join_next().is_some() {}
                tokio::time::sleep(COMES_EVERY).await;
            }
        });
    });
}

async fn visit(options: OptsBuilder, told: Sender<Instant>) -> mysql_async::Result<()> {
    let mut session = Conn::new(options).await?;
    session.query_drop("SELECT 1").await?;
    // The test may be over.
    let _ = told.send(Instant::now());
    session.disconnect().await
}

/// Does something, up to a few times, until clients have waited no longer than this for their next answer.
fn in_time(what: &str, limit: Duration, mut pause_of: impl FnMut() -> Duration) {
    let mut pauses = Vec::new();
    while pauses.last().is_none_or(|pause| *pause >= limit) {
        assert!(pauses.len() < TRIES, "{what}: {pauses:?}");
        let pause = pause_of();
        println!("{what}: clients wait for {:.1} s", pause.as_secs_f64());
        pauses.push(pause);
    }
}

/// Two gateways of which one has the address, and what the network sees of them.
struct Scene<'l> {
    all: [Member<'l>; 2],
    observer: Observer,
    visits: Receiver<Instant>,
}

impl<'l> Scene<'l> {
    /// Waits until one has it and the other waits; which one.
    fn settled(&self) -> usize {
        until("one has it, and the other waits", || {
            let mut states = [0, 1].map(|index: usize| self.all[index].vip("state"));
            states.sort_unstable();
            states == ["holds", "waits"] && self.observer.answering().is_some()
        });
        usize::from(self.all[1].vip("state") == "holds")
    }

    /// For how long no client had an answer, until one has and `next` has the address.
    fn longest_pause(&self, since: Instant, next: usize) -> Duration {
        let (mut last, mut longest, mut over) = (since, Duration::ZERO, None);
        while over.is_none_or(|over| last < over) {
            let at = self
                .visits
                .recv_timeout(PATIENCE)
                .expect("an answer at the address");
            if at > last {
                longest = longest.max(at - last);
                last = at;
            }
            if over.is_none() && self.all[next].vip("state") == "holds" {
                over = Some(Instant::now());
            }
        }
        longest
    }

    /// Does something to the gateway that has the address, has the other one take it, and undoes it.
    fn case(
        &mut self,
        (what, limit): (&str, Duration),
        harm: impl Fn(&mut Member<'l>),
        mend: impl Fn(&mut Member<'l>),
    ) {
        in_time(what, limit, || {
            let holder = self.settled();
            let began = Instant::now();
            harm(&mut self.all[holder]);
            let pause = self.longest_pause(began, 1 - holder);
            let lost_before = self.all[1 - holder].leases_lost();
            mend(&mut self.all[holder]);
            let has_it = self.settled();
            // A machine that stands still for too long takes it from everybody.
            let has_lost_it = self.all[1 - holder].leases_lost() > lost_before;
            assert!(has_it == 1 - holder || has_lost_it, "who has it keeps it");
            pause
        });
    }
}

#[test]
fn whatever_happens_to_who_has_it() {
    let lan = Lan::new(&[("g1", 11), ("g2", 12), ("client", 50), ("observer", 60)]);
    let servers = servers(1);
    let mut etcd = Etcd::start().unwrap();
    let text = format!(
        "[[listener]]\nbind = \"0.0.0.0:{PORT}\"\nmode = \"session\"\ncluster = \"main\"\n[cluster.main]\nservers = [{:?}]\n\
         [cluster.main.check]\nuser = {USER:?}\npassword_file = \"check\"\ninterval = \"100ms\"\nrise = 1\n",
        servers[0].primary().socket()
    );
    let all = ["g1", "g2"].map(|machine| Member::start(&lan, machine, &etcd));
    for member in &all {
        until("both are there", || member.status()["store"]["members"] == 2);
        assert_eq!(member.vip("state"), "out", "it is not ready");
    }
    // Somebody has the address who has no right to it.
    lan.ip("observer", &format!("addr add {ADDRESS}/24 dev {INTERFACE}"));
    let file = all[0].folder.path().join("new.toml");
    fs::write(&file, text).unwrap();
    all[0].ctl(&["apply", file.to_str().unwrap(), "--wait"]);
    until("somebody else is named", || {
        all.iter()
            .any(|member| member.vip("problem").ends_with(" answers for it"))
    });
    lan.ip("observer", &format!("addr del {ADDRESS}/24 dev {INTERFACE}"));

    let (told, visits) = channel();
    let observer = Observer::start(&lan, "observer", OBSERVER, ADDRESS);
    keep_coming(&lan, told);
    let mut scene = Scene {
        all,
        observer,
        visits,
    };
    let holder = scene.settled();
    let members = scene.all[1 - holder].ctl(&["members"]);
    let its_line = members
        .lines()
        .find(|line| line.starts_with(scene.all[holder].machine));
    assert!(
        its_line.is_some_and(|line| line.contains("10.99.0.9")),
        "{members}"
    );
    let metrics = [0, 1].map(|index: usize| scene.all[index].page("/metrics").unwrap());
    for (index, is_held) in [(holder, 1), (1 - holder, 0)] {
        let line = format!("forebay_vip_held{{address=\"{ADDRESS}\"}} {is_held}\n");
        assert!(metrics[index].contains(&line), "{}", metrics[index]);
    }

    let is_killed = |member: &mut Member<'_>| {
        member.process.kill().unwrap();
        member.process.wait().unwrap();
    };
    scene.case(("kill -9", LIMIT), is_killed, Member::start_again);

    let stopped = Cell::new(Instant::now());
    scene.case(
        ("SIGSTOP", LIMIT),
        |member| {
            stopped.set(Instant::now());
            member.signal(Signal::STOP);
        },
        |member| {
            // Until it has missed all that it might have missed.
            sleep(Duration::from_secs(10).saturating_sub(stopped.get().elapsed()));
            member.signal(Signal::CONT);
        },
    );
    scene.case(
        ("cut off from the store", LIMIT),
        |member| member.relay.cut(true),
        |member| member.relay.cut(false),
    );
    let has_link = |member: &Member<'_>, is_up: &str| {
        lan.ip(member.machine, &format!("link set {INTERFACE} {is_up}"));
    };
    scene.case(
        ("link down", QUICK),
        |member| has_link(member, "down"),
        |member| has_link(member, "up"),
    );
    let is_reached = |member: &Member<'_>, is_up: &str| {
        lan.ip("bridge", &format!("link set {} {is_up}", member.machine));
        member.relay.cut(is_up == "down");
    };
    scene.case(
        ("link down at the other end, and the store with it", LIMIT),
        |member| is_reached(member, "down"),
        |member| is_reached(member, "up"),
    );
    scene.case(
        ("not ready", QUICK),
        |member| drop(member.ctl(&["unready"])),
        |member| drop(member.ctl(&["ready"])),
    );
    let leaves = |member: &mut Member<'_>| {
        member.signal(Signal::TERM);
        member.process.wait().unwrap();
    };
    scene.case(("SIGTERM", QUICK), leaves, Member::start_again);

    // Nobody can say who may have it.
    in_time("store back", LIMIT, || {
        let began = Instant::now();
        etcd.stop();
        until("nobody has it", || {
            // A busy observer may hear nothing for a moment.
            let says_so = |member: &Member<'_>| member.vip("state") == "holds";
            scene.observer.answering().is_none() && !scene.all.iter().any(says_so)
        });
        println!(
            "store gone: the address is off after {:.1} s",
            began.elapsed().as_secs_f64()
        );
        assert!(
            began.elapsed() > Duration::from_secs(1),
            "it stays as long as the lease does"
        );
        let began = Instant::now();
        etcd.go_on().unwrap();
        let holder = scene.settled();
        scene.longest_pause(began, holder)
    });

    // The new process has it, and no other gateway.
    in_time("upgrade", QUICK, || {
        let holder = scene.settled();
        let (began, before) = (Instant::now(), scene.all[holder].status()["process_id"].clone());
        scene.all[holder].ctl(&["upgrade"]);
        until("another process has it", || {
            let member = &scene.all[holder];
            member.vip("state") == "holds" && member.status()["process_id"] != before
        });
        scene.longest_pause(began, holder)
    });

    let (overlap, answers) = scene.observer.longest_overlap();
    println!("{answers} answers, both at once for {overlap:?}");
    assert!(answers > 200 && overlap <= Duration::from_millis(200));
}
