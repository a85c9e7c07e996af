//! Three gateways and an etcd: a change is checked by all and counts for all or for none, and nothing that
//! happens to the etcd or to a gateway is noticed by a client.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use e2e::{client, eventually, servers};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use rustix::process::Signal;
use sandbox::{Etcd, PASSWORD, USER, free_port};
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::fleet::{Member, is, text_for};

/// Whether a file of the folder, or below, has this text.
fn is_in(folder: &Path, text: &str) -> bool {
    let mut grep = Command::new("grep");
    let found = grep.args(["-r", "-a", "-q", "-F", text]).arg(folder).status();
    match found.unwrap().code() {
        Some(0) => true,
        Some(1) => false,
        code => panic!("grep: {code:?}"),
    }
}

/// A folder that is the store, and can be taken away at once: whoever is writing into it makes no new one.
struct Shared(TempDir);

impl Shared {
    fn new() -> Self {
        let shared = Self(tempfile::tempdir().unwrap());
        let behind = shared.0.path().join("behind");
        fs::create_dir(&behind).unwrap();
        symlink(behind, shared.folder()).unwrap();
        shared
    }

    fn folder(&self) -> PathBuf {
        self.0.path().join("store")
    }

    /// Whether there is a key of the fleet that begins so.
    fn has(&self, key: &str) -> bool {
        let store = fs::read(self.folder().join("store.json")).unwrap();
        let store: Value = serde_json::from_slice(&store).unwrap();
        let mut keys = store["keys"].as_object().unwrap().keys();
        keys.any(|of| of.starts_with(&format!("/forebay/main/{key}")))
    }

    /// There is a file in its place.
    fn take_away(&self) {
        let file = self.0.path().join("file");
        fs::write(&file, "").unwrap();
        fs::rename(file, self.folder()).unwrap();
    }
}

#[tokio::test]
async fn whatever_happens_to_the_store() {
    let servers = servers(1);
    let mut etcd = Etcd::start().unwrap();
    // Longer than a busy machine, or its disk, keeps a gateway from renewing it: all are asked each time.
    let store = format!("endpoints = [{:?}]\nlease = \"6s\"", etcd.address());
    let mut all = ["g1", "g2", "g3"].map(|name| Member::start(name, &store));
    // The port is each gateway's own, since all are on one machine here.
    let text = |more: &str| {
        format!(
            "[[listener]]\nname = \"app\"\nbind = \"127.0.0.1:0\"\nmode = \"session\"\ncluster = \"main\"\n{more}\n[cluster.main]\n\
             servers = [{:?}]\n[cluster.main.check]\nuser = {USER:?}\npassword_file = \"check\"\ninterval = \"100ms\"\nrise = 1\n",
            servers[0].primary().address()
        )
    };
    for member in &all {
        fs::write(member.secret("check"), PASSWORD).unwrap();
        eventually("the gateway is one of the fleet", async || {
            let members = member.get("/fleet/members").unwrap_or_default().1;
            ["g1", "g2", "g3"].iter().all(|name| members.contains(name))
        })
        .await;
        let (status, words) = member.get("/readyz").unwrap();
        assert_eq!(
            (status, words.contains("no configuration yet")),
            (503, true),
            "{words}"
        );
    }

    // For all.
    is(
        all[0].apply(&text(""), &["--wait", "--why", "the first"]),
        0,
        "revision 1",
    );
    let mut sessions = Vec::new();
    for member in &all {
        member.is_ready().await;
        sessions.push(member.session().await);
    }
    let (code, listed) = all[0].ctl(&["sessions", "--all", "--json"]);
    let listed: Vec<Value> = serde_json::from_str(&listed).unwrap();
    let mut names: Vec<_> = listed
        .iter()
        .filter_map(|session| session["gateway"].as_str())
        .collect();
    names.sort_unstable();
    assert_eq!((code, names), (0, vec!["g1", "g2", "g3"]));
    // For none: another one was meant to be there, one gateway lacks a file, a secret is in clear, no path
    // leads elsewhere.
    is(
        all[1].apply(&text("max_connections = 9"), &["--expect", "0"]),
        2,
        "conflict",
    );
    fs::rename(all[2].secret("check"), all[2].secret("gone")).unwrap();
    is(
        all[0].apply(&text("max_connections = 9"), &[]),
        3,
        "g3: the new text:",
    );
    fs::rename(all[2].secret("gone"), all[2].secret("check")).unwrap();
    let in_clear = text("").replace("password_file = \"check\"", "password = \"hunter2\"");
    let (code, words) = all[0].apply(&in_clear, &[]);
    assert!(
        code == 3 && words.contains("in clear") && !words.contains("hunter2"),
        "{words}"
    );
    let was_told = |what: &str| is_in(&etcd.data(), what);
    assert!(
        was_told("password_file"),
        "the files of the etcd have what it was told"
    );
    assert!(!was_told("hunter2"), "nor did the etcd ever hear of it");
    is(
        all[0].apply(&text("").replace("\"check\"", "\"../x\""), &[]),
        3,
        "secrets_dir",
    );
    assert_eq!(all[0].status()["store"]["committed"], 1);

    // And back; a password that was revoked does not come back by chance.
    let hash = "*2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19";
    let with_user = format!(
        "{}[[user]]\nname = \"app\"\nnative_hash = {hash:?}\n",
        text("max_connections = 9")
    );
    is(all[1].apply(&with_user, &["--wait"]), 0, "revision 2");
    is(
        all[2].ctl(&["diff", "1", "2"]),
        0,
        "listener[app].max_connections",
    );
    is(all[2].ctl(&["rollback", "1"]), 1, "--accounts");
    is(
        all[2].ctl(&["rollback", "1", "--accounts", "--wait"]),
        0,
        "revision 3",
    );
    is(all[0].ctl(&["history"]), 0, "the first");
    is(all[0].ctl(&["history", "2"]), 0, hash);
    // What not all can do that could be seen before: they keep what they have, and are named.
    let taken = format!(
        "{}\n[[listener]]\nbind = \"127.0.0.1:{}\"\ncluster = \"main\"\n",
        text(""),
        free_port().unwrap()
    );
    eventually("both are named, with the reason", async || {
        let (code, words) = all[0].apply(&taken, &["--wait", "--timeout", "1"]);
        assert_eq!(code, 5, "{words}");
        words.matches("runs revision 3: revision 4").count() == 2
    })
    .await;
    for member in &all {
        assert_eq!(member.get("/readyz").unwrap().0, 200);
    }
    is(all[0].apply(&text("# 5"), &["--wait"]), 0, "revision 5");

    // Without the store.
    etcd.stop();
    for member in &all {
        eventually("it is noticed", async || {
            member.status()["store"]["connected"] == false
        })
        .await;
        let metrics = member.get("/metrics").unwrap().1;
        assert!(metrics.contains("forebay_store_connected 0"));
    }
    is(all[0].apply(&text("# 6"), &[]), 1, "the store does not answer");
    for session in &mut sessions {
        session.query_drop("SELECT 1").await.unwrap();
    }
    all[1].kill();
    all[1].start_again();
    all[1].is_ready().await;
    all[1].session().await.query_drop("SELECT 1").await.unwrap();
    assert_eq!(all[1].status()["store"]["revision"], 5);

    // It is back.
    etcd.go_on().unwrap();
    for member in &all {
        eventually("it is noticed", async || {
            // Without the store a gateway tells of those that it has seen last.
            let store = member.status()["store"].clone();
            store["connected"] == true && store["members"] == 3
        })
        .await;
    }
    is(all[1].apply(&text("# 6"), &["--wait"]), 0, "revision 6");
    is(all[2].ctl(&["members"]), 0, "g1");
    for session in [0, 2] {
        sessions[session].query_drop("SELECT 1").await.unwrap();
    }
    // One that has said so is not waited for, and one that is gone not for long.
    all[2].signal(Signal::TERM);
    all[2].wait();
    eventually("it has left", async || all[1].status()["store"]["members"] == 2).await;
    all[0].kill();
    is(all[1].apply(&text("# 7"), &["--wait"]), 0, "revision 7");
    all[0].start_again();
    eventually("it has what has come meanwhile", async || {
        all[0].status()["store"]["revision"] == 7
    })
    .await;
}

#[tokio::test]
async fn and_drain_and_pause_together() {
    let servers = servers(2);
    let shared = Shared::new();
    // No lease is renewed within this test: one that is stopped meanwhile would keep the lock of the folder.
    let store = format!("folder = {:?}\nlease = \"5m\"", shared.folder());
    let all = ["g1", "g2"].map(|name| Member::start(name, &store));
    for member in &all {
        eventually("both are there", async || {
            member.status()["store"]["members"] == 2
        })
        .await;
    }
    let addresses = [0, 1].map(|server: usize| servers[server].primary().address());
    let text = format!(
        "[[listener]]\nbind = \"127.0.0.1:0\"\nmode = \"session\"\ncluster = \"main\"\n[cluster.main]\nservers = {addresses:?}\n\
         [cluster.main.check]\ninterval = \"100ms\"\nrise = 1\n"
    );
    is(all[0].apply(&text, &["--wait"]), 0, "revision 1");
    for member in &all {
        eventually("its servers are up", async || {
            let servers = member.status()["clusters"][0]["servers"].clone();
            servers
                .as_array()
                .is_some_and(|all| all.iter().all(|server| server["state"] == "up"))
        })
        .await;
    }

    let drains = |member: &Member| member.get("/drains").unwrap().1;
    is(all[0].ctl(&["drain", &addresses[0], "--no-wait"]), 0, "");
    assert!(drains(&all[0]).contains("operator"));
    eventually("the other one drains as well", async || {
        drains(&all[1]).contains("operator")
    })
    .await;
    is(all[1].ctl(&["undrain", &addresses[0]]), 0, "");
    eventually("neither drains", async || {
        all.iter().all(|member| drains(member) == "[]")
    })
    .await;
    // A drain can be taken back even if no gateway has its server.
    is(all[0].ctl(&["drain", &addresses[0], "--no-wait"]), 0, "");
    let without = text.replace(&format!("{addresses:?}"), &format!("{:?}", [&addresses[1]]));
    is(all[0].apply(&without, &["--wait"]), 0, "revision 2");
    is(all[1].ctl(&["undrain", &addresses[0]]), 1, "--cluster");
    // The second gateway forgets its own part, and knows nothing of the drain, as after a restart.
    let undrain: [&str; 4] = ["undrain", &addresses[0], "--cluster", "main"];
    is(all[1].ctl(&[&undrain[..], &["--here"]].concat()), 0, "");
    assert!(shared.has("acts/drain/"));
    is(all[1].ctl(&undrain), 1, "for all gateways it is taken back");
    assert!(!shared.has("acts/drain/"));
    is(all[0].apply(&text, &["--wait"]), 0, "revision 3");
    eventually("it is up again", async || {
        let servers = all[0].status()["clusters"][0]["servers"].clone();
        servers
            .as_array()
            .is_some_and(|all| all.iter().all(|server| server["state"] == "up"))
    })
    .await;
    is(
        all[0].ctl(&["drain", &addresses[0], "--no-wait", "--here"]),
        0,
        "",
    );

    // When the answer is there all have paused.
    let is_paused = |member: &Member| member.status()["clusters"][0]["paused"].as_bool().unwrap();
    is(all[0].ctl(&["pause"]), 0, "");
    assert!(all.iter().all(is_paused));
    is(all[1].ctl(&["resume"]), 0, "");
    eventually("statements go on", async || !all.iter().any(is_paused)).await;
    assert_eq!(drains(&all[1]), "[]");
    // One does not answer, and none is paused.
    all[1].signal(Signal::STOP);
    is(all[0].ctl(&["pause"]), 1, "g2: it lives, and has not paused");
    assert!(!is_paused(&all[0]));
    all[1].signal(Signal::CONT);
    eventually("nor is that one", async || !is_paused(&all[1])).await;

    // What is for one gateway alone needs no store.
    is(all[0].ctl(&["undrain", &addresses[0]]), 0, "");
    shared.take_away();
    for member in &all {
        eventually("it is noticed", async || {
            member.status()["store"]["connected"] == false
        })
        .await;
    }
    is(all[0].ctl(&["drain", &addresses[0], "--here"]), 0, "is empty");
    is(all[0].ctl(&["pause", "--here"]), 0, "");
    assert!(drains(&all[0]).contains("operator") && is_paused(&all[0]));
    is(all[0].ctl(&["undrain", &addresses[0], "--here"]), 0, "");
    is(all[0].ctl(&["resume", "--here"]), 0, "");
    assert!(drains(&all[0]) == "[]" && !is_paused(&all[0]));
    is(all[0].ctl(&["pause"]), 1, "`--here` is for this gateway alone");
    assert!(drains(&all[1]) == "[]" && !is_paused(&all[1]));
}

/// Statements of an account that nobody else has, over as many connections as there are to be had.
fn busy(sessions: Vec<Conn>) -> JoinSet<()> {
    let mut all = JoinSet::new();
    for mut session in sessions {
        // Until its gateway is killed, or the test is over.
        all.spawn(async move { while session.query_drop("SELECT SLEEP(0.02)").await.is_ok() {} });
    }
    all
}

#[tokio::test]
async fn and_share_the_limits_of_servers() {
    const LIMIT: usize = 12;
    let servers = servers(1);
    let primary = servers[0].primary();
    primary
        .sql("CREATE USER sharing IDENTIFIED BY 'a password'; GRANT SELECT ON *.* TO sharing")
        .unwrap();
    let shared = Shared::new();
    let store = format!(
        "folder = {:?}\nlease = \"2s\"\nshare_limits = true",
        shared.folder()
    );
    let text = format!(
        "[[listener]]\nbind = \"127.0.0.1:0\"\nmode = \"split\"\ncluster = \"main\"\n[[user]]\nname = \"sharing\"\n\
         password_file = \"sharing\"\n[cluster.main]\nservers = [{{ address = {:?}, max_connections = {LIMIT} }}]\n\
         [cluster.main.check]\nuser = {USER:?}\npassword_file = \"check\"\ninterval = \"100ms\"\nrise = 1\n",
        primary.address()
    );
    let connections = || -> usize {
        let count = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'sharing'";
        primary.sql(count).unwrap().trim().parse().unwrap()
    };
    // One that has just come has a single connection until the others have made room.
    let reach = async |parts: u64, all: &[&Member]| {
        let most = AtomicUsize::new(0);
        eventually("all have their part, and use it", async || {
            let now = connections();
            // A busy server shows one that is closed for a moment more, and others take its place at once: so
            // many are there that are there at each of some looks.
            let mut at_each = now;
            for _ in 0..4 {
                if at_each > LIMIT + 1 {
                    at_each = at_each.min(connections());
                }
            }
            most.fetch_max(at_each, Ordering::Relaxed);
            all.iter()
                .all(|member| member.status()["store"]["parts"] == parts)
                && now == LIMIT
        })
        .await;
        let most = most.into_inner();
        assert!(most <= LIMIT + 1, "{most} connections, of {parts} gateways");
    };
    let sessions = async |member: &Member| {
        let mut sessions = Vec::new();
        for _ in 0..LIMIT {
            let bind = member.status()["listeners"][0]["bind"].clone();
            let port = bind
                .as_str()
                .unwrap()
                .rsplit(':')
                .next()
                .unwrap()
                .parse()
                .unwrap();
            let options = client::options_at(port)
                .user(Some("sharing"))
                .pass(Some("a password"));
            sessions.push(Conn::new(options).await.unwrap());
        }
        sessions
    };
    let start = async |name: &str| {
        let member = Member::start(name, &store);
        fs::write(member.secret("check"), PASSWORD).unwrap();
        fs::write(member.secret("sharing"), "a password").unwrap();
        member
    };

    let one = start("g1").await;
    eventually("it is there", async || one.status()["store"]["members"] == 1).await;
    is(one.apply(&text, &["--wait"]), 0, "revision 1");
    one.is_ready().await;
    let mut statements = vec![busy(sessions(&one).await)];
    reach(1, &[&one]).await;
    let mut two = start("g2").await;
    two.is_ready().await;
    statements.push(busy(sessions(&two).await));
    reach(2, &[&one, &two]).await;
    let three = start("g3").await;
    three.is_ready().await;
    statements.push(busy(sessions(&three).await));
    reach(3, &[&one, &two, &three]).await;
    // The part of one that is gone is the others' once its lease is over, and for some time.
    two.kill();
    reach(2, &[&one, &three]).await;
    two.start_again();
    two.is_ready().await;
    statements.push(busy(sessions(&two).await));
    reach(3, &[&one, &two, &three]).await;
    // Without the store, each goes on with what it has.
    shared.take_away();
    two.kill();
    two.start_again();
    eventually("it has what it had last", async || {
        two.status()["store"]["parts"] == 3
    })
    .await;
}

/// A session as this account, at the listener of this mode.
async fn session_as(member: &Member, mode: &str, user: &str) -> Conn {
    let status = member.status();
    let listeners = status["listeners"].as_array().unwrap();
    let listener = listeners.iter().find(|listener| listener["mode"] == mode);
    let (ip, port) = listener.unwrap()["bind"]
        .as_str()
        .unwrap()
        .rsplit_once(':')
        .unwrap();
    let options = client::options_at(port.parse().unwrap()).ip_or_hostname(ip);
    Conn::new(options.user(Some(user))).await.unwrap()
}

fn code_and_words(result: Result<(), mysql_async::Error>) -> (u16, String) {
    match result {
        Ok(()) => (0, String::new()),
        Err(mysql_async::Error::Server(error)) => (error.code, error.message),
        Err(other) => panic!("{other}"),
    }
}

/// The result of a `KILL` on another gateway, once that one has answered within the two seconds that it has.
/// A store on a busy machine may need longer for the question and the answer.
async fn killed(killer: &mut Conn, kill: &str) -> (u16, String) {
    const LATE: [&str; 4] = ["not answered", "in time", "it is not known", "does not answer"];
    let mut told = (0, String::new());
    eventually("the other gateway answers in time", async || {
        told = code_and_words(killer.query_drop(kill).await);
        !LATE.iter().any(|words| told.1.contains(words))
    })
    .await;
    told
}

#[tokio::test]
async fn and_end_sessions_of_each_other() {
    let servers = servers(1);
    let primary = servers[0].primary();
    primary
        .sql(&format!(
            "CREATE USER stranger IDENTIFIED BY '{PASSWORD}'; GRANT SELECT ON *.* TO stranger"
        ))
        .unwrap();
    let etcd = Etcd::start().unwrap();
    // A gateway that stands still lives for longer than others wait for its answer.
    let store = format!("endpoints = [{:?}]\nlease = \"6s\"", etcd.address());
    let [mut one, two] = ["g1", "g2"].map(|name| Member::start(name, &store));
    let numbers = || [&one, &two].map(|member| member.status()["store"]["number"].as_u64());
    eventually("each has a number", async || {
        numbers().iter().all(Option::is_some)
    })
    .await;
    let before = numbers();
    assert_ne!(before[0], before[1]);
    for member in [&one, &two] {
        fs::write(member.secret("check"), PASSWORD).unwrap();
    }
    let listeners = [("session", 1), ("split", 2)].map(|(mode, place)| {
        format!(
            "[[listener]]\nname = {mode:?}\nbind = \"127.0.0.{place}:0\"\nmode = {mode:?}\ncluster = \"main\"\n"
        )
    });
    let users =
        [USER, "stranger"].map(|user| format!("[[user]]\nname = {user:?}\npassword_file = \"check\"\n"));
    let text = format!(
        "{}{}[cluster.main]\nservers = [{:?}]\n[cluster.main.check]\nuser = {USER:?}\npassword_file = \"check\"\n\
         interval = \"100ms\"\nrise = 1\n",
        listeners.concat(),
        users.concat(),
        primary.address()
    );
    is(one.apply(&text, &["--wait"]), 0, "revision 1");
    for member in [&one, &two] {
        member.is_ready().await;
    }
    let mut left = Vec::new();
    for (mode, far_mode) in [("session", "split"), ("split", "session"), ("split", "split")] {
        let mut sleeper = session_as(&one, mode, USER).await;
        let id = sleeper.id();
        assert_eq!(u64::from(id >> 24 & 63), before[0].unwrap());
        let sleeping = tokio::spawn(async move {
            let slept = sleeper.query_drop("SELECT SLEEP(600)").await;
            (slept, sleeper)
        });
        let is_under_way = || {
            let count =
                "SELECT COUNT(*) FROM information_schema.processlist WHERE info = 'SELECT SLEEP(600)'";
            primary.sql(count).unwrap().trim() == "1"
        };
        eventually("it is under way", async || is_under_way()).await;
        // Nobody else's, but by who may.
        let mut stranger = session_as(&two, far_mode, "stranger").await;
        let refused = stranger.query_drop(format!("KILL QUERY {id}")).await;
        let (code, words) = code_and_words(refused);
        assert_eq!(code, 1095, "{words}");
        assert!(is_under_way());
        let mut killer = session_as(&two, far_mode, USER).await;
        let (code, words) = killed(&mut killer, &format!("KILL QUERY {id}")).await;
        assert_eq!(code, 0, "{words}");
        let (_, mut sleeper) = sleeping.await.unwrap();
        sleeper.query_drop("DO 1").await.unwrap();
        assert!(!is_under_way());
        // The whole session, of another user, by one who may.
        let mut of_stranger = session_as(&one, mode, "stranger").await;
        // Others find it once its gateway waits for its commands.
        of_stranger.query_drop("DO 1").await.unwrap();
        let (code, words) = killed(&mut killer, &format!("KILL {}", of_stranger.id())).await;
        // A session may have been ended by a question whose answer came late.
        assert!(code == 0 || code == 1094, "{code} {words}");
        eventually("it has ended", async || {
            of_stranger.query_drop("DO 1").await.is_err()
        })
        .await;
        // By an operator, from either gateway.
        eventually("the other gateway has answered in time", async || {
            let (code, words) = two.ctl(&["kill", &id.to_string()]);
            code == 0 || words.contains("there is no session")
        })
        .await;
        eventually("it has ended", async || sleeper.query_drop("DO 1").await.is_err()).await;
        // Its client hears of the end a moment before nobody has the number any more.
        eventually("nobody has its number", async || {
            let (code, words) = two.ctl(&["kill", &id.to_string()]);
            code == 1 && words.contains("there is no session")
        })
        .await;
        let (code, words) = killed(&mut killer, &format!("KILL QUERY {id}")).await;
        assert_eq!(code, 1094, "{words}");
        left.push((killer, session_as(&one, mode, USER).await.id()));
    }
    // One that does not answer, and one that is gone.
    one.signal(Signal::STOP);
    let (killer, id) = &mut left[0];
    let silent = killer.query_drop(format!("KILL QUERY {id}")).await;
    let (code, words) = code_and_words(silent);
    // The store may be as late when the question is taken back.
    let who = ["g1 has not answered", "the store has not answered in time"];
    assert!(
        code == 1095 && who.iter().any(|who| words.contains(who)),
        "{code} {words}"
    );
    one.kill();
    eventually("it is gone", async || two.status()["store"]["members"] == 1).await;
    for (killer, id) in &mut left {
        let gone = killer.query_drop(format!("KILL QUERY {id}")).await;
        let (code, words) = code_and_words(gone);
        assert!(code == 1094 && words.contains("gateway g1"), "{code} {words}");
    }
    // It has its number when it is back.
    one.start_again();
    eventually("it has its number again", async || {
        one.status()["store"]["number"].as_u64() == before[0]
    })
    .await;
}

#[tokio::test]
async fn and_one_that_is_cut_off_reads_anew_what_the_store_has_forgotten() {
    let servers = servers(1);
    let address = servers[0].primary().address();
    let mut etcd = Etcd::start().unwrap();
    let store = format!("endpoints = [{:?}]\nlease = \"2s\"", etcd.address());
    let [one, two] = ["g1", "g2"].map(|name| Member::start(name, &store));
    eventually("both are there", async || {
        [&one, &two]
            .iter()
            .all(|member| member.status()["store"]["members"] == 2)
    })
    .await;
    is(one.apply(&text_for(&address, "1"), &["--wait"]), 0, "revision 1");
    two.is_ready().await;
    let mut session = two.session().await;
    // It hears nothing, its connections to the etcd break, and what has happened meanwhile is forgotten.
    two.signal(Signal::STOP);
    etcd.stop();
    eventually("it is noticed", async || {
        one.status()["store"]["connected"] == false
    })
    .await;
    etcd.go_on().unwrap();
    eventually("it is none of them", async || {
        let store = one.status()["store"].clone();
        store["connected"] == true && store["members"] == 1
    })
    .await;
    for revision in 2..=6 {
        let text = text_for(&address, &revision.to_string());
        is(one.apply(&text, &["--wait"]), 0, &format!("revision {revision}"));
    }
    assert!(etcd.compact());
    two.signal(Signal::CONT);
    eventually("it runs the last one", async || {
        let store = two.status()["store"].clone();
        store["revision"] == 6 && store["members"] == 2
    })
    .await;
    session.query_drop("SELECT 1").await.unwrap();
    is(one.apply(&text_for(&address, "7"), &["--wait"]), 0, "revision 7");
}

#[tokio::test]
async fn and_go_on_where_the_store_is_full() {
    let servers = servers(1);
    let address = servers[0].primary().address();
    let etcd = Etcd::start_with_space(2 << 20).unwrap();
    let store = format!("endpoints = [{:?}]\nlease = \"2s\"", etcd.address());
    let [mut one, two] = ["g1", "g2"].map(|name| Member::start(name, &store));
    eventually("both are there", async || {
        [&one, &two]
            .iter()
            .all(|member| member.status()["store"]["members"] == 2)
    })
    .await;
    is(one.apply(&text_for(&address, "1"), &["--wait"]), 0, "revision 1");
    let mut sessions = Vec::new();
    for member in [&one, &two] {
        member.is_ready().await;
        sessions.push(member.session().await);
    }
    let junk = "x".repeat(100_000);
    let is_taken = |number: usize| etcd.put(&format!("/junk/{number}"), &junk);
    let taken = (0..100).take_while(|number| is_taken(*number)).count();
    assert!(taken < 100, "it is full");
    for member in [&one, &two] {
        is(
            member.apply(&text_for(&address, "2"), &[]),
            1,
            "the store takes no changes",
        );
        is(member.ctl(&["pause"]), 1, "the store takes no changes");
        let told = member.status()["store"]["problems"].to_string();
        assert!(told.contains("database space exceeded"), "{told}");
    }
    // They are members as before, and one that is started again begins with what it had.
    one.kill();
    one.start_again();
    one.is_ready().await;
    one.session().await.query_drop("SELECT 1").await.unwrap();
    sessions[1].query_drop("SELECT 1").await.unwrap();
    assert_eq!(two.status()["store"]["revision"], 1);

    (0..taken).for_each(|number| assert!(etcd.delete(&format!("/junk/{number}"))));
    assert!(etcd.compact() && etcd.disarm());
    eventually("both are members", async || {
        [&one, &two]
            .iter()
            .all(|member| member.status()["store"]["members"] == 2)
    })
    .await;
    is(one.apply(&text_for(&address, "2"), &["--wait"]), 0, "revision 2");
    // A gateway hears that its change was taken a moment after others see the change.
    eventually("no problem is left", async || {
        two.status()["store"]["problems"] == serde_json::json!([])
    })
    .await;
    sessions[1].query_drop("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn and_one_of_another_version_is_named_and_what_only_that_one_knows_is_not_run() {
    let servers = servers(1);
    let address = servers[0].primary().address();
    let etcd = Etcd::start().unwrap();
    let mut one = Member::start("g1", &format!("endpoints = [{:?}]", etcd.address()));
    eventually("it is there", async || one.status()["store"]["members"] == 1).await;
    is(one.apply(&text_for(&address, "1"), &["--wait"]), 0, "revision 1");
    one.is_ready().await;
    let mut session = one.session().await;
    let told = r#"{"id":"x","run":1,"version":"99.1.0","zone":null,"addresses":[],"revision":2,"refused":null,"news":[1]}"#;
    assert!(etcd.put("/forebay/main/gateways/g99", told));
    eventually("it is named", async || one.ctl(&["members"]).1.contains("99.1.0")).await;
    // As only a newer version commits it.
    let newer = format!("option_of_tomorrow = 1\n{}", text_for(&address, "2"));
    assert!(etcd.put("/forebay/main/config", &newer));
    let says_so = |member: &Member| {
        let (_, members) = member.ctl(&["members"]);
        members.contains("revision 2: ") && members.contains("option_of_tomorrow")
    };
    eventually("it says what it does not understand", async || says_so(&one)).await;
    assert_eq!(one.status()["store"]["revision"], 1);
    assert_eq!(one.get("/readyz").unwrap().0, 200);
    session.query_drop("SELECT 1").await.unwrap();
    one.kill();
    one.start_again();
    one.is_ready().await;
    one.session().await.query_drop("SELECT 1").await.unwrap();
    eventually("it says so again", async || says_so(&one)).await;
    assert_eq!(one.status()["store"]["revision"], 1);
}

#[tokio::test]
async fn and_show_the_store_their_certificates() {
    let servers = servers(1);
    let etcd = Etcd::start_for_certificates().unwrap();
    let files = etcd.certificates();
    let store = |own: &str| {
        format!(
            "endpoints = [{:?}]\ntls = {{ mode = \"required\", ca = {:?}{own} }}",
            etcd.tls_address(),
            files.ca
        )
    };
    let own = format!(", cert = {:?}, key = {:?}", files.client_cert, files.client_key);
    let with = Member::start("g1", &store(&own));
    let without = Member::start("g2", &store(""));
    eventually("it is one of the fleet", async || {
        with.status()["store"]["members"] == 1
    })
    .await;
    let text = text_for(&servers[0].primary().address(), "1");
    is(with.apply(&text, &["--wait"]), 0, "revision 1");
    with.is_ready().await;
    eventually("the other one is told why not", async || {
        let problems = without.status()["store"]["problems"].to_string();
        problems.contains("the store does not answer") && problems.to_lowercase().contains("certificate")
    })
    .await;
    assert_eq!(with.status()["store"]["members"], 1);
}
