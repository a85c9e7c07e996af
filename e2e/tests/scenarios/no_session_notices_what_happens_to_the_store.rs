//! Members of the etcd and gateways are killed and stopped one after the other, the store is cut off for
//! long, its disk is full, a clock jumps: sessions go on, and each gateway runs what was committed.
//!
//! `FOREBAY_FLEET_CHANGES` is how many changes five gateways make together, `FOREBAY_FLEET_CUT_SECONDS` for
//! how long a gateway is cut off at least.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use e2e::link::Link;
use e2e::{PATIENCE, eventually, servers};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use rustix::process::Signal;
use sandbox::Etcd;
use serde_json::Value;
use tempfile::TempDir;
use testkit::lossy_link::Fault;
use tokio::runtime::Builder;
use tokio::time::sleep;

use crate::fleet::{Member, is, text_for};

const LEASE: Duration = Duration::from_secs(2);

fn store_at(endpoints: &[String]) -> String {
    format!("endpoints = {endpoints:?}\nlease = \"{}s\"", LEASE.as_secs())
}

/// A session that has statements executed one after the other, none of which fails; on a thread of its own,
/// since the test waits for `forebay ctl`.
struct Steady {
    ends: Arc<AtomicBool>,
    statements: JoinHandle<()>,
}

impl Steady {
    fn on(member: &Member) -> Self {
        let options = member.options();
        let ends = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ends);
        let statements = async move {
            let mut session = Conn::new(options).await.unwrap();
            let mut count = 0;
            // A session that has begun late has some all the same.
            while count < 2 || !is_over.load(Ordering::Relaxed) {
                session.query_drop("SELECT SLEEP(0.01)").await.unwrap();
                count += 1;
            }
        };
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let statements = thread::spawn(move || runtime.block_on(statements));
        Self { ends, statements }
    }

    fn end(self) {
        self.ends.store(true, Ordering::Relaxed);
        self.statements.join().unwrap();
    }
}

fn steady<const N: usize>(all: [&Member; N]) -> [Steady; N] {
    all.map(Steady::on)
}

fn end<const N: usize>(all: [Steady; N]) {
    all.into_iter().for_each(Steady::end);
}

async fn are_together(all: &[&Member]) {
    eventually("all are there", async || {
        all.iter()
            .all(|member| member.status()["store"]["members"] == all.len())
    })
    .await;
}

async fn all_run(all: &[&Member], revision: u64) {
    eventually("all run the last revision", async || {
        all.iter()
            .all(|member| member.status()["store"]["revision"] == revision)
    })
    .await;
}

/// What was told to be committed.
#[derive(Default)]
struct Line(BTreeMap<u64, String>);

impl Line {
    /// While the store is ill it may take several attempts.
    async fn commit(&mut self, member: &Member, text: String) -> u64 {
        eventually("it is committed", async || member.apply(&text, &[]).0 == 0).await;
        let last = self.0.keys().next_back().map_or(1, |last| last + 1);
        eventually("it has heard so", async || {
            member.status()["store"]["committed"] == last
        })
        .await;
        self.0.insert(last, text);
        last
    }

    /// The store has each of them, and nothing else.
    fn is_kept(&self, member: &Member) {
        let (code, history) = member.ctl(&["history", "--json"]);
        let history: Value = serde_json::from_str(&history).unwrap();
        let history = history.as_array().unwrap();
        assert_eq!((code, history.len()), (0, self.0.len().min(100)));
        for about in history {
            let revision = about["revision"].as_u64().unwrap();
            let (code, text) = member.ctl(&["history", &revision.to_string()]);
            assert_eq!((code, &text), (0, &self.0[&revision]));
        }
    }
}

#[tokio::test]
async fn where_each_of_three_etcds_and_of_three_gateways_is_killed_and_stopped() {
    let servers = servers(1);
    let address = servers[0].primary().address();
    let mut etcds = Etcd::start_three().unwrap();
    let endpoints = etcds.each_ref().map(Etcd::address);
    let mut all = ["g1", "g2", "g3"].map(|name| Member::start(name, &store_at(&endpoints)));
    are_together(&all.each_ref()).await;
    let mut line = Line::default();
    let mut texts = (1..).map(|number: u64| text_for(&address, &number.to_string()));
    line.commit(&all[0], texts.next().unwrap()).await;
    for member in &all {
        member.is_ready().await;
    }

    let sessions = steady(all.each_ref());
    for place in 0..etcds.len() {
        etcds[place].stop();
        line.commit(&all[place], texts.next().unwrap()).await;
        etcds[place].go_on().unwrap();
    }
    for place in 0..etcds.len() {
        etcds[place].freeze(true).unwrap();
        line.commit(&all[place], texts.next().unwrap()).await;
        etcds[place].freeze(false).unwrap();
    }
    are_together(&all.each_ref()).await;
    for place in 0..all.len() {
        all[place].signal(Signal::STOP);
        let last = line.commit(&all[(place + 1) % 3], texts.next().unwrap()).await;
        all[place].signal(Signal::CONT);
        are_together(&all.each_ref()).await;
        all_run(&all.each_ref(), last).await;
    }
    end(sessions);
    for place in 0..all.len() {
        let others = steady([&all[(place + 1) % 3], &all[(place + 2) % 3]]);
        all[place].kill();
        let last = line.commit(&all[(place + 1) % 3], texts.next().unwrap()).await;
        all[place].start_again();
        all[place].is_ready().await;
        all_run(&all.each_ref(), last).await;
        end(others);
    }
    line.is_kept(&all[0]);
}

#[tokio::test]
async fn where_two_change_the_configuration_of_five_at_once() {
    let servers = servers(1);
    let address = servers[0].primary().address();
    let etcd = Etcd::start().unwrap();
    let store = store_at(&[etcd.address()]);
    let all = ["g1", "g2", "g3", "g4", "g5"].map(|name| Member::start(name, &store));
    are_together(&all.each_ref()).await;
    let changes = inputs::asked("FOREBAY_FLEET_CHANGES").unwrap_or(40) / 2;
    // Each number that was told, with its text.
    let apply_all = |who: usize| {
        let mut told = Vec::new();
        let mut conflicts = 0;
        let is_away = |words: &str| words.contains("the store does not answer");
        for number in 0..changes {
            let text = text_for(&address, &format!("{number} of {who}"));
            let began = Instant::now();
            let words = loop {
                match all[who].apply(&text, &[]) {
                    (0, words) => break words,
                    // Another one came first; on a machine that has no time, several did.
                    (1 | 2, words) if words.contains("nothing has changed") => conflicts += 1,
                    // A question to the etcd has taken more than three seconds. Nothing was proposed.
                    (1, words) if is_away(&words) && began.elapsed() < PATIENCE => conflicts += 1,
                    other => panic!("{other:?}"),
                }
            };
            let revision = words.trim().strip_prefix("revision ").unwrap();
            told.push((revision.parse().unwrap(), text));
        }
        (told, conflicts)
    };
    let (line, conflicts) = thread::scope(|scope| {
        let both = [0, 1].map(|who| scope.spawn(move || apply_all(who)));
        let [one, two] = both.map(|initiator| initiator.join().unwrap());
        (Line(one.0.into_iter().chain(two.0).collect()), one.1 + two.1)
    });
    let ended = Instant::now();
    all_run(&all.each_ref(), changes * 2).await;
    let waited = ended.elapsed();
    println!(
        "{} changes, {conflicts} conflicts, {waited:?} until all ran the last",
        changes * 2
    );
    assert_eq!(line.0.len() as u64, changes * 2, "each number was told once");
    line.is_kept(&all[4]);
}

#[tokio::test]
async fn where_it_is_cut_off_for_long_and_compacted() {
    let servers = servers(1);
    let address = servers[0].primary().address();
    let etcd = Etcd::start().unwrap();
    let link = Link::to_address(&etcd.address());
    let one = Member::start("g1", &store_at(&[etcd.address()]));
    let mut two = Member::start("g2", &store_at(&[link.address().to_string()]));
    are_together(&[&one, &two]).await;
    is(one.apply(&text_for(&address, "1"), &["--wait"]), 0, "revision 1");
    for member in [&one, &two] {
        member.is_ready().await;
    }

    let least = Duration::from_secs(inputs::asked("FOREBAY_FLEET_CUT_SECONDS").unwrap_or(5));
    let cut = Instant::now();
    let sessions = steady([&one, &two]);
    // Nothing is refused, and nothing is heard.
    link.set_to_client(Fault::Stall);
    link.set_to_server(Fault::Stall);
    are_together(&[&one]).await;
    eventually("it is noticed", async || {
        two.status()["store"]["connected"] == false
    })
    .await;
    let mut last = 1;
    while last < 6 || cut.elapsed() < least {
        last += 1;
        let text = text_for(&address, &last.to_string());
        is(one.apply(&text, &["--wait"]), 0, &format!("revision {last}"));
        assert!(etcd.compact());
        assert_eq!(two.status()["store"]["revision"], 1);
        assert_eq!(two.get("/readyz").unwrap().0, 200);
        sleep(least / 100).await;
    }
    end(sessions);
    // Also one that is started anew meanwhile begins with what it had.
    two.kill();
    two.start_again();
    two.is_ready().await;
    assert_eq!(two.status()["store"]["revision"], 1);

    let sessions = steady([&one, &two]);
    link.set_to_client(Fault::None);
    link.set_to_server(Fault::None);
    are_together(&[&one, &two]).await;
    all_run(&[&one, &two], last).await;
    end(sessions);
}

#[tokio::test]
async fn where_its_disk_is_full() {
    let servers = servers(1);
    let address = servers[0].primary().address();
    let mut etcd = Etcd::start_on_disk(140 << 20).unwrap();
    let [one, mut two] = ["g1", "g2"].map(|name| Member::start(name, &store_at(&[etcd.address()])));
    // Somebody else asks it, and waits for the answer.
    let asked = Arc::new(one);
    let one = asked.as_ref();
    are_together(&[one, &two]).await;
    is(one.apply(&text_for(&address, "1"), &["--wait"]), 0, "revision 1");
    for member in [one, &two] {
        member.is_ready().await;
    }

    let sessions = steady([one, &two]);
    etcd.fill_disk(true).unwrap();
    // Where it stands in the log and not in the database, it is there when the etcd is back.
    let large = text_for(&address, &"x".repeat(400_000));
    let of_other = Arc::clone(&asked);
    let applied = tokio::task::spawn_blocking(move || of_other.apply(&large, &["--why", "large"]));
    eventually("the etcd has ended", async || etcd.has_ended()).await;
    for member in [one, &two] {
        eventually("it is noticed", async || {
            member.status()["store"]["connected"] == false
        })
        .await;
    }
    is(
        two.apply(&text_for(&address, "2"), &[]),
        1,
        "the store does not answer",
    );
    two.session().await.query_drop("SELECT 1").await.unwrap();
    end(sessions);
    two.kill();
    two.start_again();
    two.is_ready().await;

    let sessions = steady([one, &two]);
    etcd.fill_disk(false).unwrap();
    etcd.go_on().unwrap();
    are_together(&[one, &two]).await;
    let (code, words) = applied.await.unwrap();
    let was_committed = one.ctl(&["history"]).1.contains("large");
    // Where its time has passed meanwhile it is refused: the other one has not looked at it.
    let told: &[i32] = if was_committed { &[0] } else { &[1, 3] };
    assert!(told.contains(&code), "{code} {words}");
    let committed = 1 + u64::from(was_committed);
    all_run(&[one, &two], committed).await;
    let next = format!("revision {}", committed + 1);
    is(two.apply(&text_for(&address, "3"), &["--wait"]), 0, &next);
    end(sessions);
}

/// The clock of one process, which can be set: libfaketime between it and the C library. What is monotonic
/// stays so, as on a machine whose clock is set.
struct Clock(TempDir);

impl Clock {
    fn new() -> Self {
        let clock = Self(tempfile::tempdir().unwrap());
        clock.set_ahead(0);
        clock
    }

    /// In seconds; behind, where that is negative.
    fn set_ahead(&self, seconds: i64) {
        let new = self.0.path().join("new");
        fs::write(&new, format!("{seconds:+}\n")).unwrap();
        fs::rename(new, self.file()).unwrap();
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("clock")
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        let library = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
        assert!(fs::exists(library).unwrap(), "{library} (Debian: libfaketime)");
        vec![
            ("LD_PRELOAD", library.to_owned()),
            ("FAKETIME_TIMESTAMP_FILE", self.file().display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
    }
}

#[tokio::test]
async fn where_a_clock_jumps() {
    const HOUR: i64 = 3600;
    let servers = servers(1);
    let address = servers[0].primary().address();
    let etcd = Etcd::start().unwrap();
    // Longer than a busy machine, or its disk, keeps a gateway from renewing it.
    let lease = LEASE * 2;
    let store = format!(
        "endpoints = [{:?}]\nlease = \"{}s\"",
        etcd.address(),
        lease.as_secs()
    );
    let clock = Clock::new();
    let one = Member::start("g1", &store);
    let two = Member::start_in("g2", &store, clock.environment());
    are_together(&[&one, &two]).await;
    is(one.apply(&text_for(&address, "1"), &["--wait"]), 0, "revision 1");
    for member in [&one, &two] {
        member.is_ready().await;
    }
    let sessions = steady([&one, &two]);
    for (ahead, revision) in [(HOUR, 2), (-HOUR, 3), (0, 4)] {
        clock.set_ahead(ahead);
        // For longer than a lease that nobody renews.
        let set = Instant::now();
        while set.elapsed() < lease * 2 {
            for member in [&one, &two] {
                let store = member.status()["store"].clone();
                assert_eq!(
                    (&store["connected"], &store["members"]),
                    (&true.into(), &2.into())
                );
            }
        }
        let text = text_for(&address, &revision.to_string());
        is(two.apply(&text, &["--wait"]), 0, &format!("revision {revision}"));
        let history: Value = serde_json::from_str(&one.ctl(&["history", "--json"]).1).unwrap();
        let told = history[0]["when"].as_i64().unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!(
            (told - i64::try_from(now).unwrap() - ahead).abs() < 60,
            "its clock was set"
        );
    }
    end(sessions);
}
