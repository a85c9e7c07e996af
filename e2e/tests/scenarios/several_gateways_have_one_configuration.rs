//! Three gateways and an etcd: a change is checked by all and counts for all or for none, and nothing that
//! happens to the etcd or to a gateway is noticed by a client.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use e2e::{Gateway, client, eventually, program, servers};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use rustix::process::{Pid, Signal, kill_process};
use sandbox::{Etcd, PASSWORD, USER, free_port};
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinSet;

/// One of several.
struct Member {
    process: Child,
    folder: TempDir,
    admin_port: u16,
}

impl Member {
    fn start(name: &str, store: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (admin_port, path) = (free_port().unwrap(), folder.path());
        fs::create_dir(path.join("secrets")).unwrap();
        let toml = format!(
            "workers = 1\nmax_connections = 100\n[store]\n{store}\nname = {name:?}\nsecrets_dir = \"secrets\"\nstate_dir = \"state\"\n\
             [admin]\nbind = \"127.0.0.1:{admin_port}\"\nsocket = \"admin.sock\"\n"
        );
        fs::write(path.join("forebay.toml"), toml).unwrap();
        Self {
            process: serve(&folder),
            folder,
            admin_port,
        }
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    fn start_again(&mut self) {
        self.process = serve(&self.folder);
    }

    fn secret(&self, name: &str) -> PathBuf {
        self.folder.path().join("secrets").join(name)
    }

    fn get(&self, page: &str) -> Option<(u16, String)> {
        Gateway::page(self.admin_port, page)
    }

    fn status(&self) -> Value {
        let text = self.get("/status").map(|(_, text)| text).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    async fn is_ready(&self) {
        eventually("the gateway is ready", async || {
            self.get("/readyz").is_some_and(|(status, _)| status == 200)
        })
        .await;
    }

    async fn session(&self) -> Conn {
        let status = self.status();
        let bind = status["listeners"][0]["bind"].as_str().unwrap();
        let port = bind.rsplit(':').next().unwrap().parse().unwrap();
        Conn::new(client::options_at(port)).await.unwrap()
    }

    /// Exit code and words of `forebay ctl`.
    fn ctl(&self, arguments: &[&str]) -> (i32, String) {
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

    fn apply(&self, text: &str, arguments: &[&str]) -> (i32, String) {
        let file = self.folder.path().join("new.toml");
        fs::write(&file, text).unwrap();
        self.ctl(&[&["apply", file.to_str().unwrap()], arguments].concat())
    }

    fn log(&self) -> String {
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

fn serve(folder: &TempDir) -> Child {
    let path = folder.path();
    let log = fs::File::options()
        .create(true)
        .append(true)
        .open(path.join("log"))
        .unwrap();
    Command::new(program())
        .args(["serve", "--config"])
        .arg(path.join("forebay.toml"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

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

fn is(result: (i32, String), code: i32, words: &str) {
    assert_eq!(result.0, code, "{}", result.1);
    assert!(result.1.contains(words), "{words:?} is not in: {}", result.1);
}

#[tokio::test]
async fn whatever_happens_to_the_store() {
    let servers = servers(1);
    let mut etcd = Etcd::start().unwrap();
    let store = format!("endpoints = [{:?}]\nlease = \"2s\"", etcd.address());
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
    let (code, words) = all[0].apply(&taken, &["--wait", "--timeout", "1"]);
    assert!(
        code == 5 && words.matches("runs revision 3: revision 4").count() == 2,
        "{words}"
    );
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
        eventually("it is noticed", async || member.status()["store"]["members"] == 3).await;
    }
    is(all[1].apply(&text("# 6"), &["--wait"]), 0, "revision 6");
    is(all[2].ctl(&["members"]), 0, "g1");
    for session in [0, 2] {
        sessions[session].query_drop("SELECT 1").await.unwrap();
    }
    // One that has said so is not waited for, and one that is gone not for long.
    all[2].signal(Signal::TERM);
    all[2].process.wait().unwrap();
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
    let shared = tempfile::tempdir().unwrap();
    let store = format!("folder = {:?}\nlease = \"1m\"", shared.path());
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
    let shared = tempfile::tempdir().unwrap();
    let store = format!(
        "folder = {:?}\nlease = \"2s\"\nshare_limits = true",
        shared.path()
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
            most.fetch_max(now, Ordering::Relaxed);
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
    fs::remove_dir_all(shared.path()).unwrap();
    fs::write(shared.path(), "").unwrap();
    two.kill();
    two.start_again();
    eventually("it has what it had last", async || {
        two.status()["store"]["parts"] == 3
    })
    .await;
}
