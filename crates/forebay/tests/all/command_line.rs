//! What the command line prints, and its exit codes.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

#[test]
fn a_reader_that_has_read_enough_is_no_error() {
    for what in ["options", "metrics", "mapping-tables"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["docs", what])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.as_ref()), (Some(0), ""), "{what}");
    }
}

#[test]
fn a_reader_that_has_read_enough_is_no_error_of_ctl() {
    let gateway = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = gateway.local_addr().unwrap().to_string();
    for act in ["status", "sessions", "log"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["ctl", "--address", &address, act])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let (mut stream, _) = gateway.accept().unwrap();
        assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
        stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n[]").unwrap();
        drop(stream);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.as_ref()), (Some(0), ""), "{act}");
    }
}

/// By 2 these say that sessions are left, or what differs.
#[test]
fn a_mistake_on_the_command_line_is_no_result() {
    let mistakes: [(&[&str], i32); 3] = [
        (&["serve", "--confg"], 2),
        (&["ctl", "drain"], 1),
        (&["traffic", "compare", "a", "b", "--fail-on", "rowz"], 1),
    ];
    for (arguments, code) in mistakes {
        let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(arguments)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
    }
}

/// The shell of whoever acts lacks what the service manager gives the gateway, and the file may be half done.
#[test]
fn ctl_finds_the_socket_in_a_file_that_only_the_gateway_can_use() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join("named.toml");
    let said = |config: &str| {
        std::fs::write(&file, config).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["ctl", "--config"])
            .arg(&file)
            .arg("status")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let config = "[admin]\nbind = \"127.0.0.1:1\"\nsocket = \"none.sock\"\n[cluster.main]\nservers = [\"db1\"]\n\
                  check = { user = \"f\", password_env = \"FOREBAY_TEST_UNSET\" }\nunfinished = 1\n";
    let socket = folder.join("none.sock").display().to_string();
    let not_reached = said(config);
    assert!(
        not_reached.contains(&format!("was not reached on {socket}")),
        "{not_reached}"
    );
    let broken = said("[admin]\nsocket = secret\n");
    assert!(broken.contains("named.toml:2:"), "{broken}");
    let none = said("[admin]\nbind = \"127.0.0.1:1\"\n");
    assert!(none.contains("has no `socket` in [admin]"), "{none}");
}

#[test]
fn an_address_that_is_taken_is_told_once_with_the_next_step() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("taken.toml");
    let config = format!(
        "max_connections = 1\n[[listener]]\nbind = {:?}\ncluster = \"main\"\n[cluster.main]\nservers = [\"127.0.0.1:1\"]\n",
        address.to_string()
    );
    std::fs::write(&file, config).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["serve", "--config"])
        .arg(&file)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().last().unwrap_or_default();
    assert_eq!(
        last,
        format!(
            "forebay: cannot start: cannot listen on {address}: Address already in use (os error 98); another process or another \
             listener uses this address (`ss -ltnp` shows which)"
        )
    );
}

#[test]
fn too_few_file_descriptors_are_told_with_the_figure_that_is_needed() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("descriptors.toml");
    let config = "max_connections = 1000\n[[listener]]\nbind = \"127.0.0.1:1\"\ncluster = \"main\"\n\
                  [cluster.main]\nservers = [\"127.0.0.1:1\"]\n";
    std::fs::write(&file, config).unwrap();
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 200; exec \"$0\" serve --config \"$1\""])
        .args([Path::new(env!("CARGO_BIN_EXE_forebay")), &file])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        said.lines().last().unwrap_or_default(),
        "forebay: max_connections = 1000 needs 2128 file descriptors, and this process may have 200; raise the limit \
         (systemd: LimitNOFILE=2128, shell: ulimit -n 2128) or set max_connections to at most 36"
    );
}

/// A process that a test which fails does not leave behind.
struct KilledAtTheEnd(Child);

impl Drop for KilledAtTheEnd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_service_manager_is_told_of_the_start_a_refused_reload_and_the_end() {
    let name = format!("forebay-notify-{}", std::process::id());
    let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let told = || {
        let mut bytes = [0; 1024];
        let length = manager.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    };
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("notify.toml");
    let config = "max_connections = 1\nwatch = false\nshutdown_timeout = \"90s\"\nshutdown_delay = \"10m\"\n[[listener]]\n\
                  bind = \"127.0.0.1:0\"\ncluster = \"main\"\n[cluster.main]\nservers = [\"127.0.0.1:1\"]\n";
    std::fs::write(&file, config).unwrap();
    let mut gateway = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["serve", "--config"])
        .arg(&file)
        .env("NOTIFY_SOCKET", format!("@{name}"))
        .stderr(Stdio::piped())
        .spawn()
        .map(KilledAtTheEnd)
        .unwrap();
    let gateway = &mut gateway.0;
    let mut log = BufReader::new(gateway.stderr.take().unwrap()).lines();
    let mut logged = |words: &str| {
        let found = log.by_ref().find(|line| line.as_ref().unwrap().contains(words));
        found.unwrap().unwrap()
    };
    let signal = |signal: &str| {
        let id = gateway.id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &id])
                .status()
                .unwrap()
                .success()
        );
    };
    assert_eq!(told(), "READY=1\nSTATUS=serving");

    std::fs::write(&file, "workers = 0\n").unwrap();
    signal("-HUP");
    assert_eq!(
        told(),
        "STATUS=serving by the configuration of before: the last reload was refused, see the log"
    );
    std::fs::write(&file, config).unwrap();
    signal("-HUP");
    assert_eq!(told(), "STATUS=serving");

    signal("-TERM");
    assert_eq!(
        told(),
        "STOPPING=1\nEXTEND_TIMEOUT_USEC=700000000\nSTATUS=not ready, and new sessions are taken for at most 600 s"
    );
    // A reload in the delay is one, but its end is what is told of a process that ends.
    logged("about to shut down");
    signal("-HUP");
    logged("nothing has changed");
    // The second signal ends the delay, and not the sessions.
    signal("-TERM");
    assert_eq!(
        told(),
        "STOPPING=1\nEXTEND_TIMEOUT_USEC=100000000\nSTATUS=sessions end, at most 90 s"
    );
    let end = logged(" stopping");
    assert!(end.contains("all sessions have ended"), "{end}");
    assert_eq!(gateway.wait().unwrap().code(), Some(0));
}

/// A gateway with a socket of `[admin]`, in a folder of its own, and what it logs.
struct Running {
    file: PathBuf,
    log: Lines<BufReader<ChildStderr>>,
    _gateway: KilledAtTheEnd,
}

impl Running {
    fn start(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("forebay.toml");
        configure(&file, "127.0.0.1:0", "");
        let mut gateway = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["serve", "--config"])
            .arg(&file)
            .stderr(Stdio::piped())
            .spawn()
            .map(KilledAtTheEnd)
            .unwrap();
        let mut log = BufReader::new(gateway.0.stderr.take().unwrap()).lines();
        assert!(log.any(|line| line.unwrap().contains("admin listening")));
        Self {
            file,
            log,
            _gateway: gateway,
        }
    }

    fn ctl(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["ctl", "--config"])
            .arg(&self.file)
            .args(arguments)
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    }
}

/// Writes a gateway's configuration with a listener at `bind`. `more`: further options of its cluster.
fn configure(file: &Path, bind: &str, more: &str) {
    let config = format!(
        "max_connections = 1\nwatch = false\n[admin]\nbind = \"127.0.0.1:0\"\nsocket = \"admin.sock\"\n\
         [[listener]]\nname = \"app\"\nbind = {bind:?}\ncluster = \"main\"\n[cluster.main]\nservers = [\"127.0.0.1:1\"]\n{more}"
    );
    std::fs::write(file, config).unwrap();
}

#[test]
fn a_refused_reload_leaves_the_log_level_that_an_operator_has_given() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let running = Running::start("log-level");
    let level = running.ctl(&["log", "upstream=debug"]);
    assert_eq!(level.0, Some(0));
    assert!(level.1.contains("upstream=debug"), "{level:?}");
    configure(&running.file, &taken.local_addr().unwrap().to_string(), "");
    assert_eq!(running.ctl(&["reload"]).0, Some(1));
    assert_eq!(running.ctl(&["log"]), level);
}

#[test]
fn a_reload_warns_of_what_it_trusts_too_much() {
    let mut running = Running::start("trust");
    configure(&running.file, "127.0.0.1:0", "tls = { mode = \"required\" }\n");
    assert_eq!(running.ctl(&["reload"]).0, Some(0));
    let said =
        |line: &String| line.contains("configuration reloaded") || line.contains("does not say with whom");
    let first = running.log.by_ref().map(Result::unwrap).find(said).unwrap();
    assert!(first.contains("does not say with whom"), "{first}");
}

#[test]
fn a_file_that_may_not_be_read_says_who_must() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unreadable");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("forebay.toml");
    std::fs::write(&file, "").unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o000)).unwrap();
    if std::fs::File::open(&file).is_ok() {
        // Whoever is root reads everything.
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["check", "--config"])
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("the user that runs this must be able to read it"),
        "{said}"
    );
}

#[test]
fn a_cluster_that_nothing_uses_is_told_of() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unused.toml");
    let config = "[[listener]]\nbind = \"127.0.0.1:0\"\ncluster = \"main\"\n[cluster.main]\nservers = [\"db1\"]\n\
                  [cluster.copy]\nservers = [\"db2\"]\n";
    let said = |config: &str| {
        std::fs::write(&file, config).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["check", "--config"])
            .arg(&file)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(
        said(config),
        "forebay: cluster copy: no listener, no [cache] and no `mirror` of a rule names it\n"
    );
    assert_eq!(
        said(&format!(
            "{config}[[listener]]\nname = \"copy\"\nbind = \"127.0.0.1:0\"\ncluster = \"copy\"\n"
        )),
        ""
    );
}

/// A rule that does nothing is no mistake of the file, and not for silence either.
#[test]
fn what_does_nothing_is_told_by_check_and_at_the_start() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("idle.toml");
    let config = format!(
        "max_connections = 1\n[[listener]]\nbind = {:?}\ncluster = \"main\"\n\
         [cluster.main]\nservers = [\"127.0.0.1:1\"]\n[[rule]]\nname = \"firewall\"\nrefuse = \"no\"\n",
        taken.local_addr().unwrap().to_string()
    );
    std::fs::write(&file, config).unwrap();
    for (command, is_right) in [("check", true), ("serve", false)] {
        let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args([command, "--config"])
            .arg(&file)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), is_right, "{said}");
        assert!(
            said.contains("rule[firewall]: it does nothing"),
            "{command}: {said}"
        );
    }
}

#[test]
fn a_store_that_is_not_reached_is_found_by_check() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("store");
    std::fs::create_dir_all(&folder).unwrap();
    let check = |store: &str| {
        let file = folder.join("forebay.toml");
        let config = format!("[store]\n{store}\nname = \"g1\"\nstate_dir = \"state\"\n");
        std::fs::write(&file, config).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["check", "--connect", "--config"])
            .arg(&file)
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, _, said) = check("endpoints = [\"127.0.0.1:1\"]");
    assert_eq!(code, Some(1));
    assert!(said.contains("wrong: [store]: 127.0.0.1:1: "), "{said}");
    let (code, told, said) = check("folder = \"shared\"");
    assert_eq!(code, Some(0), "{said}");
    assert!(
        told.contains("store of fleet main: no configuration yet, 0 gateways"),
        "{told}"
    );
    assert!(!folder.join("shared").exists() && !folder.join("state").exists());
}

/// The frame of a certificate is there, and nothing in it that a start could use.
#[test]
fn a_broken_authority_is_found_by_check_on_every_link() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(
        folder.join("broken-ca.pem"),
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
    )
    .unwrap();
    let file = folder.join("broken-ca.toml");
    let tls = "tls = { mode = \"required\", ca = \"broken-ca.pem\" }\n";
    let listener = "[[listener]]\nbind = \"127.0.0.1:0\"\ncluster = \"main\"\n[cluster.main]\n";
    let links = [
        (format!("{listener}servers = [\"db1\"]\n{tls}"), "cluster main"),
        (
            format!(
                "{listener}servers = []\ntopology = \"tidb\"\n[cluster.main.pd]\naddresses = [\"pd1:2379\"]\n{tls}"
            ),
            "cluster main: pd",
        ),
        (
            format!("[store]\nendpoints = [\"127.0.0.1:2379\"]\n{tls}"),
            "[store]",
        ),
    ];
    for (config, place) in links {
        std::fs::write(&file, config).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["check", "--config"])
            .arg(&file)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with(&format!("forebay: {place}: ")), "{said}");
    }
}
