//! Machines of one network, each a network namespace, with a bridge between them. Nothing of it is seen on
//! this machine's own network, and nothing leaves it.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use net::arp::{Arp, Mac, Message};
use net::interface::interface;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

const ASK_EVERY: Duration = Duration::from_millis(50);

/// The interface of each machine.
pub(crate) const INTERFACE: &str = "eth0";

pub(crate) struct Lan {
    prefix: String,
    machines: Vec<&'static str>,
}

impl Lan {
    /// Machine number N has the address 10.99.0.N.
    pub(crate) fn new(machines: &[(&'static str, u8)]) -> Self {
        let mut lan = Self {
            prefix: format!("forebay{}", std::process::id()),
            machines: vec!["bridge"],
        };
        let bridge = lan.namespace("bridge");
        ip(&format!("netns add {bridge}"));
        ip(&format!("-n {bridge} link add br0 type bridge"));
        ip(&format!("-n {bridge} link set br0 up"));
        for (machine, number) in machines {
            lan.machines.push(machine);
            let namespace = lan.namespace(machine);
            ip(&format!("netns add {namespace}"));
            ip(&format!("-n {namespace} link set lo up"));
            ip(&format!(
                "-n {bridge} link add {machine} type veth peer name {INTERFACE} netns {namespace}"
            ));
            ip(&format!("-n {bridge} link set {machine} master br0 up"));
            ip(&format!(
                "-n {namespace} addr add 10.99.0.{number}/24 dev {INTERFACE}"
            ));
            ip(&format!("-n {namespace} link set {INTERFACE} up"));
        }
        lan
    }

    fn namespace(&self, machine: &str) -> String {
        format!("{}-{machine}", self.prefix)
    }

    /// `ip` on a machine, or on the bridge, which has a port of the name of each machine.
    pub(crate) fn ip(&self, machine: &str, arguments: &str) {
        ip(&format!("-n {} {arguments}", self.namespace(machine)));
    }

    /// A program on a machine.
    pub(crate) fn command(&self, machine: &str, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.namespace(machine)])
            .arg(program);
        command
    }

    /// Has a thread of its own on a machine.
    pub(crate) fn on<T: Send + 'static>(
        &self,
        machine: &str,
        act: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let namespace = File::open(format!("/run/netns/{}", self.namespace(machine))).unwrap();
        thread::spawn(move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            act()
        })
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        for machine in &self.machines {
            // That ends its interfaces as well.
            let _ = Command::new("ip")
                .args(["netns", "del", &self.namespace(machine)])
                .status();
        }
    }
}

fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split(' ')).output();
    let done = done.expect("the program `ip` (Debian: iproute2)");
    assert!(
        done.status.success(),
        "this test needs network namespaces, so it has to run as root, and where the kernel lets it: ip {arguments}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
}

/// A way from a port of one machine's loopback to the same port of this one.
pub(crate) struct Relay {
    ends: Arc<AtomicBool>,
    is_cut: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    pub(crate) fn start(lan: &Lan, machine: &str, port: u16) -> Self {
        let relay = Self {
            ends: Arc::default(),
            is_cut: Arc::default(),
            streams: Arc::default(),
        };
        let (send, accepted) = mpsc::channel::<TcpStream>();
        let (is_bound, bound) = mpsc::channel();
        let ends = Arc::clone(&relay.ends);
        lan.on(machine, move || {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
            listener.set_nonblocking(true).unwrap();
            is_bound.send(()).unwrap();
            while !ends.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => drop(send.send(stream)),
                    Err(_) => thread::sleep(Duration::from_millis(2)),
                }
            }
        });
        bound.recv().unwrap();
        let (is_cut, streams) = (Arc::clone(&relay.is_cut), Arc::clone(&relay.streams));
        // Sockets are where their thread is.
        thread::spawn(move || {
            for near in accepted {
                near.set_nonblocking(false).unwrap();
                streams.lock().unwrap().push(near.try_clone().unwrap());
                // One that is cut off is not refused: it hears nothing.
                let far = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
                if let (false, Ok(far)) = (is_cut.load(Ordering::Relaxed), far) {
                    copy(&near, &far);
                    copy(&far, &near);
                } else if !is_cut.load(Ordering::Relaxed) {
                    let _ = near.shutdown(Shutdown::Both);
                }
            }
        });
        relay
    }

    /// Nothing gets through any more, or again.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.cut(true);
    }
}

fn copy(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
}

/// Asks all the time who has an address.
pub(crate) struct Observer {
    ends: Arc<AtomicBool>,
    answers: Arc<Mutex<Vec<(Instant, Mac)>>>,
}

impl Observer {
    pub(crate) fn start(lan: &Lan, machine: &str, own: Ipv4Addr, address: Ipv4Addr) -> Self {
        let observer = Self {
            ends: Arc::default(),
            answers: Arc::default(),
        };
        let (ends, answers) = (Arc::clone(&observer.ends), Arc::clone(&observer.answers));
        lan.on(machine, move || {
            let found = interface(INTERFACE).unwrap().unwrap();
            let arp = Arp::open(found.index).unwrap();
            let question = Message::question(found.mac.unwrap(), own, address);
            while !ends.load(Ordering::Relaxed) {
                arp.send(&question).unwrap();
                thread::sleep(ASK_EVERY);
                while let Some(message) = arp.receive().unwrap() {
                    if message.is_answer && message.sender == address {
                        answers.lock().unwrap().push((Instant::now(), message.mac));
                    }
                }
            }
        });
        observer
    }

    /// Who answers now.
    pub(crate) fn answering(&self) -> Option<Mac> {
        let answers = self.answers.lock().unwrap();
        let (at, mac) = answers.last()?;
        (at.elapsed() < 4 * ASK_EVERY).then_some(*mac)
    }

    /// For how long two have answered at the same time, at most; and how many answers there were.
    pub(crate) fn longest_overlap(&self) -> (Duration, usize) {
        let answers = self.answers.lock().unwrap();
        (longest_overlap(&answers), answers.len())
    }
}

fn longest_overlap(answers: &[(Instant, Mac)]) -> Duration {
    // Who does not answer eight times has not had it in between.
    let mut times: Vec<(Mac, Instant, Instant)> = Vec::new();
    for (at, mac) in answers {
        let last = times.iter_mut().rev().find(|(of, ..)| of == mac);
        match last.filter(|(.., end)| at.duration_since(*end) <= 8 * ASK_EVERY) {
            Some((.., end)) => *end = *at,
            None => times.push((*mac, *at, *at)),
        }
    }
    let mut longest = Duration::ZERO;
    for (place, (mac, begin, end)) in times.iter().enumerate() {
        for (other, its_begin, its_end) in &times[..place] {
            if mac != other {
                let both = (*end)
                    .min(*its_end)
                    .saturating_duration_since(*(begin.max(its_begin)));
                longest = longest.max(both);
            }
        }
    }
    longest
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

#[test]
fn two_that_answer_at_the_same_time_are_noticed() {
    let (began, step) = (Instant::now(), ASK_EVERY);
    let answers = |from: u32, to: u32, mac: u8| (from..to).map(move |at| (began + at * step, [mac; 6]));
    let mut one_then_other: Vec<_> = answers(0, 20, 1).chain(answers(20, 40, 2)).collect();
    one_then_other.extend(answers(60, 80, 1));
    assert_eq!(longest_overlap(&one_then_other), Duration::ZERO);
    let mut both: Vec<_> = answers(0, 20, 1).chain(answers(10, 40, 2)).collect();
    both.sort_unstable();
    assert_eq!(longest_overlap(&both), 9 * step);
}
