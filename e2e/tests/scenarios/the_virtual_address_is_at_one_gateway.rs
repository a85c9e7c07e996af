//! Two gateways on two machines, made of network namespaces on a bridge, and an address that one of them has.
//! A third machine asks twenty times a second who has it, and connects to it as a client does.
//!
//! Needs the right to make network namespaces.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use e2e::{program, servers};
use net::arp::{Arp, Mac, Message};
use net::interface::interface;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sandbox::{Etcd, PASSWORD, USER};
use tempfile::TempDir;

const BRIDGE: &str = "fbvip-br";
const CLIENT: &str = "fbvip-c";
const GATEWAYS: [&str; 2] = ["fbvip-1", "fbvip-2"];
/// In each machine.
const INTERFACE: &str = "eth0";
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 97, 0, 9);
const CLIENTS: Ipv4Addr = Ipv4Addr::new(10, 97, 0, 3);
const PORT: u16 = 6033;
/// Where a machine has its ways to the store and to the server.
const STORE: u16 = 2379;
const SERVER: u16 = 3306;

/// Between two questions.
const ROUND: Duration = Duration::from_millis(50);
/// Both may answer for so long.
const BOTH: Duration = Duration::from_millis(200);
/// A client has connected again.
const AGAIN: Duration = Duration::from_secs(7);

#[test]
fn whatever_happens_to_the_one_that_has_it() {
    let net = Network::set_up();
    let servers = servers(1);
    let etcd = Etcd::start().unwrap();
    let server = servers[0].primary().address();
    let mut machines = GATEWAYS.map(|name| Machine::start(name, &etcd.address(), &server));
    machines[0].apply();
    let observer = Observer::start();
    // How long until clients connect to another one than this.
    let goes_from = |old: Option<usize>, limit: Duration| {
        let began = Instant::now();
        while !observer.connects() || Some(observer.holder()) == old {
            assert!(began.elapsed() < limit, "nobody serves the address");
            sleep(ROUND);
        }
        began.elapsed()
    };
    let mut told = vec![("at first", goes_from(None, AGAIN))];

    let first = observer.holder();
    machines[first].kill();
    told.push(("kill -9", goes_from(Some(first), AGAIN)));
    machines[first].serve();
    machines[first].is_ready();

    let second = observer.holder();
    machines[second].signal(Signal::STOP);
    told.push(("stopped for ten seconds", goes_from(Some(second), AGAIN)));
    sleep(Duration::from_secs(10).saturating_sub(told[2].1));
    machines[second].signal(Signal::CONT);
    observer.stays_elsewhere_than(second);

    let third = observer.holder();
    machines[third].cut_off(true);
    told.push(("without the store", goes_from(Some(third), AGAIN)));
    machines[third].cut_off(false);
    observer.stays_elsewhere_than(third);

    let fourth = observer.holder();
    net.link(GATEWAYS[fourth], false);
    told.push(("link down", goes_from(Some(fourth), AGAIN)));
    net.link(GATEWAYS[fourth], true);
    observer.stays_elsewhere_than(fourth);

    let fifth = observer.holder();
    machines[fifth].signal(Signal::TERM);
    told.push(("shutdown", goes_from(Some(fifth), Duration::from_secs(3))));

    let both = observer.longest_with_two();
    println!("{}", words(&told, both));
    assert!(both <= BOTH, "two have answered for {both:?}");
}

fn words(told: &[(&str, Duration)], both: Duration) -> String {
    let all = told
        .iter()
        .map(|(what, after)| format!("{what}: {:.2} s", after.as_secs_f64()));
    let all: Vec<String> = all.collect();
    format!(
        "a client connects again: {}; two answered for {both:?}",
        all.join(", ")
    )
}

fn run(command: &str) {
    let mut words = command.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "this test needs to be root, and network namespaces: {command}: {error}"
    );
}

/// A bridge, and three machines on it.
struct Network;

impl Network {
    fn set_up() -> Self {
        drop(Self);
        run(&format!("ip link add {BRIDGE} type bridge"));
        run(&format!("ip link set {BRIDGE} up"));
        for (number, name) in [CLIENT, GATEWAYS[0], GATEWAYS[1]].iter().enumerate() {
            let own = Ipv4Addr::from(u32::from(CLIENTS) + number as u32);
            run(&format!("ip netns add {name}"));
            run(&format!(
                "ip link add {name} type veth peer name {INTERFACE} netns {name}"
            ));
            run(&format!("ip link set {name} master {BRIDGE} up"));
            for rest in [
                "link set lo up".to_owned(),
                format!("link set {INTERFACE} up"),
                format!("addr add {own}/24 dev {INTERFACE}"),
            ] {
                run(&format!("ip -n {name} {rest}"));
            }
        }
        Self
    }

    /// The other end of its cable.
    fn link(&self, name: &str, is_up: bool) {
        let state = if is_up { "up" } else { "down" };
        run(&format!("ip link set {name} {state}"));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in [CLIENT, GATEWAYS[0], GATEWAYS[1]] {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
            let _ = Command::new("ip").args(["link", "del", name]).output();
        }
        let _ = Command::new("ip").args(["link", "del", BRIDGE]).output();
    }
}

/// Does something on another machine.
fn within<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let space = File::open(format!("/run/netns/{name}")).unwrap();
    thread::spawn(move || {
        move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        work()
    })
}

/// What listens on a machine's own loopback and leads to this one's.
struct Way {
    is_cut: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Way {
    fn new(name: &str, port: u16, target: &str) -> Self {
        let listener = within(name, move || TcpListener::bind(("127.0.0.1", port)).unwrap());
        let listener = listener.join().unwrap();
        let way = Self {
            is_cut: Arc::default(),
            open: Arc::default(),
        };
        let (is_cut, open, target) = (Arc::clone(&way.is_cut), Arc::clone(&way.open), target.to_owned());
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(&target) else {
                    continue;
                };
                let mut open = open.lock().unwrap();
                if is_cut.load(Ordering::Relaxed) {
                    continue;
                }
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    thread::spawn(move || {
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
                open.extend([near, far]);
            }
        });
        way
    }

    fn cut(&self, is_cut: bool) {
        let mut open = self.open.lock().unwrap();
        self.is_cut.store(is_cut, Ordering::Relaxed);
        for stream in open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// A gateway.
struct Machine {
    name: &'static str,
    process: Child,
    folder: TempDir,
    to_store: Way,
}

impl Machine {
    fn start(name: &'static str, store: &str, server: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        fs::create_dir(path.join("secrets")).unwrap();
        fs::write(path.join("secrets").join("check"), PASSWORD).unwrap();
        let to_store = Way::new(name, STORE, store);
        let _to_server = Way::new(name, SERVER, server);
        let text = format!(
            "workers = 1\nmax_connections = 100\n[store]\nendpoints = [\"127.0.0.1:{STORE}\"]\nlease = \"2s\"\nname = {name:?}\n\
             secrets_dir = \"secrets\"\nstate_dir = \"state\"\n[vip]\naddress = \"{ADDRESS}/24\"\ninterface = \"{INTERFACE}\"\n\
             [admin]\nbind = \"127.0.0.1:6080\"\nsocket = \"admin.sock\"\n"
        );
        fs::write(path.join("forebay.toml"), text).unwrap();
        Self {
            name,
            process: serve(name, &folder),
            folder,
            to_store,
        }
    }

    fn serve(&mut self) {
        self.process = serve(self.name, &self.folder);
    }

    /// The same for all.
    fn apply(&self) {
        let text = format!(
            "[[listener]]\nbind = \"0.0.0.0:{PORT}\"\nmode = \"session\"\ncluster = \"main\"\n[cluster.main]\n\
             servers = [\"127.0.0.1:{SERVER}\"]\n[cluster.main.check]\nuser = {USER:?}\npassword_file = \"check\"\n\
             interval = \"100ms\"\nrise = 1\n"
        );
        let file = self.folder.path().join("new.toml");
        fs::write(&file, text).unwrap();
        let began = Instant::now();
        loop {
            let mut ctl = Command::new(program());
            ctl.args(["ctl", "--socket"])
                .arg(self.folder.path().join("admin.sock"));
            let output = ctl.arg("apply").arg(&file).output().unwrap();
            if output.status.success() {
                return;
            }
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(began.elapsed() < AGAIN, "{error}\n{}", self.log());
            sleep(ROUND);
        }
    }

    /// A candidate again.
    fn is_ready(&self) {
        let began = Instant::now();
        loop {
            let mut ctl = Command::new(program());
            ctl.args(["ctl", "--socket"])
                .arg(self.folder.path().join("admin.sock"));
            let members = ctl.args(["members", "--json"]).output().unwrap();
            let words = String::from_utf8_lossy(&members.stdout).into_owned();
            if members.status.success() && GATEWAYS.iter().all(|name| words.contains(name)) {
                return;
            }
            assert!(began.elapsed() < AGAIN, "{words}\n{}", self.log());
            sleep(ROUND);
        }
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    fn cut_off(&self, is_cut: bool) {
        self.to_store.cut(is_cut);
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if thread::panicking() {
            eprintln!("The log of {}:\n{}", self.name, self.log());
        }
    }
}

fn serve(name: &str, folder: &TempDir) -> Child {
    let path = folder.path();
    let log = File::options()
        .create(true)
        .append(true)
        .open(path.join("log"))
        .unwrap();
    // Behind `ip netns exec` it is the gateway itself that has the number.
    Command::new("ip")
        .args(["netns", "exec", name])
        .arg(program())
        .args(["serve", "--config"])
        .arg(path.join("forebay.toml"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// Who has answered a question, and when that was asked.
type Round = (Instant, BTreeSet<Mac>);

/// The client's machine.
struct Observer {
    /// Of the gateways' machines.
    macs: [Mac; 2],
    rounds: Arc<Mutex<Vec<Round>>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Observer {
    fn start() -> Self {
        let (rounds, ends) = (Arc::<Mutex<Vec<Round>>>::default(), Arc::<AtomicBool>::default());
        let (all, over) = (Arc::clone(&rounds), Arc::clone(&ends));
        let thread = within(CLIENT, move || {
            let own = interface(INTERFACE).unwrap().unwrap();
            let arp = Arp::open(own.index).unwrap();
            let question = Message::question(own.mac.unwrap(), CLIENTS, ADDRESS);
            while !over.load(Ordering::Relaxed) {
                let asked = Instant::now();
                arp.send(&question).unwrap();
                sleep(ROUND);
                let mut answered = BTreeSet::new();
                while let Some(message) = arp.receive().unwrap() {
                    if message.is_answer && message.sender == ADDRESS {
                        answered.insert(message.mac);
                    }
                }
                all.lock().unwrap().push((asked, answered));
            }
        });
        let mac = |name| within(name, || interface(INTERFACE).unwrap().unwrap().mac.unwrap());
        Self {
            macs: GATEWAYS.map(|name| mac(name).join().unwrap()),
            rounds,
            ends,
            thread: Some(thread),
        }
    }

    /// A server greets through the address.
    fn connects(&self) -> bool {
        let tried = within(CLIENT, || {
            // Whom the machine remembers may be another one by now, as for any client that connects anew.
            let address = SocketAddr::from((ADDRESS, PORT));
            let mut stream = TcpStream::connect_timeout(&address, Duration::from_millis(300))?;
            stream.set_read_timeout(Some(Duration::from_millis(500)))?;
            stream.read_exact(&mut [0; 5])
        });
        tried.join().unwrap().is_ok()
    }

    /// The machine that answers from now on.
    fn holder(&self) -> usize {
        let now = Instant::now();
        while now.elapsed() < AGAIN {
            let rounds = self.rounds.lock().unwrap();
            let last = rounds
                .last()
                .filter(|(asked, macs)| *asked > now && macs.len() == 1);
            if let Some((_, macs)) = last {
                return self.macs.iter().position(|mac| macs.contains(mac)).unwrap();
            }
            drop(rounds);
            sleep(ROUND);
        }
        panic!("nobody answers for the address");
    }

    /// Who has lost it does not take it back, now that it could.
    fn stays_elsewhere_than(&self, old: usize) {
        let now = Instant::now();
        while now.elapsed() < Duration::from_secs(2) {
            assert_ne!(self.holder(), old);
        }
    }

    /// For how long in a row two have answered.
    fn longest_with_two(&self) -> Duration {
        let rounds = self.rounds.lock().unwrap();
        let (mut longest, mut since) = (Duration::ZERO, None);
        for (at, macs) in rounds.iter() {
            match macs.len() {
                0 | 1 => since = None,
                _ => longest = longest.max(*at + ROUND - *since.get_or_insert(*at)),
            }
        }
        longest
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
