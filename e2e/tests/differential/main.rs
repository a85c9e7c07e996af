//! What a client gets through the gateway is what it gets from the server.
//!
//! Two connections to the same server, one direct and one through the gateway, run the same random script on
//! the same data, one after the other, and every packet of every answer must be the same: sequence numbers,
//! lengths, bytes. Left out is only what belongs to the server and not to the session, see `compare`.
//!
//! By itself it runs the same scripts every time: new ones find bugs of servers too (crashes, mostly), and a
//! test that must pass before a change goes in must not depend on luck. `FOREBAY_DIFF_MIXTURES` takes more of
//! the same, `FOREBAY_DIFF_SECONDS` looks for new ones for so long, `FOREBAY_SEED` repeats the one script
//! that a failure named, `FOREBAY_E2E_SERVER=mysql` takes MySQL. A failure prints the command and the first
//! packet that differs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    unreachable_pub,
    reason = "code of tests"
)]

mod answer;
mod compare;
mod kinds;
mod noise;
mod schema;
mod script;
mod session;
mod versions;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use e2e::Setup;
use e2e::packets::{Client, Identity};
use inputs::asked;
use mysql_wire::Capabilities;
use sandbox::{Kind, PASSWORD, USER};

use crate::schema::{DATABASE, OPEN, READER, READER_PASSWORD, Stage};
use crate::session::{Rig, SINGLE};

/// Where the scripts begin that always run.
const ALWAYS_FROM: u64 = 42 * 100_000;
/// Those that found something: a prepared SHOW WARNINGS after an error of the gateway's own.
const FOUND: [u64; 2] = [33_568_300_012, 4_800_013];
/// Known to differ where reads go to another server than writes, in what the guide says or nobody has seen
/// outside of these scripts. 47, MariaDB: `GET DIAGNOSTICS @n` after an error of a replica binds the session
/// to it. 56, MySQL: `FOUND_ROWS()` after a read on a replica and DDL. 83, MariaDB: an error after which
/// nobody knows what the replica's connection has of it. The two of MariaDB get error 1290 for their next
/// write.
const KNOWN_OF_TWO_SERVERS: [u64; 3] = [4_200_047, 4_200_056, 4_200_083];
/// Known to differ on MariaDB 11: the server tells the gateway the collation of `SET NAMES binary` in the
/// place of the charset, for which there is no room in that answer.
const KNOWN_OF_MARIADB_11: [u64; 1] = [4_200_042];
/// Scripts that mix all kinds; `FOREBAY_DIFF_MIXTURES` asks for more.
const MIXTURES: u64 = 24;
/// Lines of the server's log that are shown.
const LOG_LINES: usize = 60;
/// What makes one session like the other: statistics that do not change by themselves (EXPLAIN), and nothing
/// left over in a thread (MariaDB goes on counting statement ids), nor a status flag for what a busy machine
/// takes long for. The disk need not be waited for.
const OPTIONS: &[&str] = &[
    "--innodb-stats-auto-recalc=OFF",
    "--thread-cache-size=0",
    "--innodb-flush-method=nosync",
    "--long-query-time=1000000",
];

#[test]
fn answers_through_the_gateway_are_the_servers() {
    let servers = e2e::servers_with(1, OPTIONS);
    compare_with(
        &servers,
        [
            Setup::in_front_of(&servers).cluster_tls("mode = \"off\""),
            Setup::in_front_of(&servers)
                .cluster_tls("mode = \"required\"\nverify = \"off\"")
                .cluster("compression = \"zlib\""),
        ],
        Connections::Own,
    );
}

/// Sessions of mode `session` with lookups: they have a connection for themselves, and the gateway reads what
/// they do. Rows that it has in memory are among those of the scripts.
#[test]
fn answers_of_sessions_that_are_understood_are_the_servers() {
    let servers = e2e::servers_with(1, OPTIONS);
    let address = servers[0].primary().address();
    let server = format!("{{ address = {address:?}, role = \"primary\" }}");
    // The gateway's own connections are there all the time.
    let watcher = "CREATE USER watcher IDENTIFIED BY 'secret'; GRANT ALL ON *.* TO watcher";
    servers[0].primary().sql(watcher).unwrap();
    let setup = Setup::in_front_of(&servers)
        .servers([server])
        .listener("point_lookups = true\nlookup_consistency = \"strong\"")
        .cluster("monitor = { user = \"watcher\", password = \"secret\" }")
        .tables(&format!(
            "[cache]\ncluster = \"main\"\n\
             [[cache.mapping]]\nname = \"small\"\nkind = \"hash\"\ntable = \"{DATABASE}.small\"\nkey = [\"id\"]\n\
             value = [\"*\"]"
        ));
    compare_with(&servers, [setup], Connections::Understood);
}

/// Sessions of mode `split` that never share connections, under a rule that lets everything pass.
#[test]
fn answers_of_sessions_that_share_nothing_are_the_servers() {
    let servers = e2e::servers_with(1, OPTIONS);
    let setup = Setup::in_front_of(&servers)
        .mode("split")
        .listener("sharing = \"never\"")
        .tables("[[rule]]\nname = \"all\"\ntext = \".\"\ntimeout = \"5m\"");
    compare_with(&servers, [setup], Connections::Ruled);
}

/// Sessions of mode `session` that go to another server before each step, if nothing holds them. Both are one
/// server under two names, so that none is behind.
#[test]
fn answers_of_sessions_that_move_are_the_servers() {
    let servers = e2e::servers_with(1, &[OPTIONS, gtids()].concat());
    let users = [(USER, PASSWORD), (READER, READER_PASSWORD), (OPEN, "")]
        .map(|(name, password)| format!("[[user]]\nname = {name:?}\npassword = {password:?}\n"));
    let setup = Setup::in_front_of(&servers)
        .servers(names_of(&servers[0]).map(|name| format!("{name:?}")))
        .listener("moves = true")
        .admin("socket = \"admin.sock\"")
        .top("shutdown_timeout = \"1s\"")
        .tables(&users.concat());
    let version = servers[0].primary().sql("SELECT VERSION()").unwrap();
    let known = match version.starts_with("11.") {
        true => &KNOWN_OF_MARIADB_11[..],
        false => &[],
    };
    compare_but(&servers, [setup], Connections::Moved, known);
}

/// What a session has written is known by its GTIDs.
fn gtids() -> &'static [&'static str] {
    match e2e::kind() {
        Kind::Mysql => &["--log-bin", "--gtid-mode=ON", "--enforce-gtid-consistency=ON"],
        _ => &["--log-bin"],
    }
}

fn names_of(server: &sandbox::Sandbox) -> [String; 2] {
    ["127.0.0.1", "localhost"].map(|host| format!("{host}:{}", server.primary().port()))
}

/// How many steps a session has made on a server that it was to leave, by what had held it there before.
type Held = Rc<RefCell<BTreeMap<String, u64>>>;

/// Has the session leave the server that it is on, each time that it is called.
fn chase(gateway: &e2e::Gateway, server: &sandbox::Sandbox, held: Held) -> Box<dyn FnMut()> {
    let [mut free, mut left] = names_of(server);
    let (acts, admin_port) = (gateway.acts(), gateway.admin_port());
    let mut before = BTreeMap::new();
    Box::new(move || {
        let now = whereabouts(admin_port);
        let stayed = before.iter().filter(|(session, (on, _))| {
            *on == left && now.get(session).is_some_and(|(still_on, _)| still_on == on)
        });
        for reason in stayed.flat_map(|(_, (_, reasons))| reasons) {
            *held.borrow_mut().entry(String::clone(reason)).or_default() += 1;
        }
        before = now;
        let undrained = acts(&format!("/undrain?server={left}"));
        let drained = acts(&format!("/drain?server={free}"));
        assert_eq!((undrained.0, drained.0), (200, 200), "{undrained:?} {drained:?}");
        std::mem::swap(&mut free, &mut left);
    })
}

/// On which server the sessions are, by their numbers, and what holds them there.
fn whereabouts(admin_port: u16) -> BTreeMap<u64, (String, Vec<String>)> {
    // These are carried, as far as nothing else holds the session.
    const CARRIED: [&str; 2] = ["user-variables", "role"];
    let (_, body) = e2e::Gateway::page(admin_port, "/sessions").expect("the sessions");
    let sessions: Vec<serde_json::Value> = serde_json::from_str(&body).expect("a list of sessions");
    let known = sessions.iter().map(|session| {
        let pins = session["pins"].as_array().expect("a list of pins");
        let reasons = pins
            .iter()
            .map(|pin| pin["reason"].as_str().expect("a reason").to_owned());
        let mut reasons: Vec<String> = reasons.collect();
        if reasons.iter().any(|reason| !CARRIED.contains(&reason.as_str())) {
            reasons.retain(|reason| !CARRIED.contains(&reason.as_str()));
        }
        let server = session["server"].as_str().unwrap_or_default().to_owned();
        (session["id"].as_u64().expect("a number"), (server, reasons))
    });
    known.collect()
}

/// Every session borrows its connection anew for each statement, from a few that others use in between.
#[test]
fn answers_over_shared_connections_are_the_servers() {
    let servers = e2e::servers_with(1, OPTIONS);
    let address = servers[0].primary().address();
    let server = format!("{{ address = {address:?}, max_connections = 8, role = \"primary\" }}");
    let users = [(USER, PASSWORD), (READER, READER_PASSWORD), (OPEN, "")]
        .map(|(name, password)| format!("[[user]]\nname = {name:?}\npassword = {password:?}\n"));
    let setup = Setup::in_front_of(&servers)
        .mode("split")
        .servers([server])
        .top("shutdown_timeout = \"1s\"")
        // Each script begins when the connections of the one before are gone.
        .cluster("pool = { idle_timeout = \"100ms\", reuse = \"oldest\" }")
        .tables(&users.concat());
    compare_with(&servers, [setup], Connections::Shared);
}

/// Another session wants the one connection that there is before each step. Sessions that have user variables
/// leave it with them.
#[test]
fn answers_of_sessions_whose_connection_is_wanted_are_the_servers() {
    // By which MySQL tells which user variables there are.
    let lists = &["--performance-schema=ON"];
    let servers = e2e::servers_with(1, &[OPTIONS, lists].concat());
    let address = servers[0].primary().address();
    let server = format!("{{ address = {address:?}, max_connections = 1, role = \"primary\" }}");
    let users = [(USER, PASSWORD), (READER, READER_PASSWORD), (OPEN, "")]
        .map(|(name, password)| format!("[[user]]\nname = {name:?}\npassword = {password:?}\n"));
    let setup = Setup::in_front_of(&servers)
        .mode("split")
        .servers([server])
        .top("workers = 1\nshutdown_timeout = \"1s\"")
        // As long as others wait where something else holds the session.
        .cluster("queue_timeout = \"30ms\"\npool = { idle_timeout = \"100ms\" }")
        .tables(&users.concat());
    compare_with(&servers, [setup], Connections::Wanted);
}

/// Has another session want a connection, each time that it is called.
fn want(gateway: &e2e::Gateway) -> Box<dyn FnMut()> {
    let identity = Identity {
        user: USER,
        password: PASSWORD,
        database: Some("information_schema"),
        charset: 45,
        capabilities: Capabilities::PROTOCOL_41
            | Capabilities::SECURE_CONNECTION
            | Capabilities::PLUGIN_AUTH
            | Capabilities::CONNECT_WITH_DB,
    };
    let (mut other, _) = Client::connect(&gateway.address(), &identity).unwrap();
    Box::new(move || noise::query(&mut other, "SELECT 1"))
}

/// What was prepared before is on the one connection that there is, where its text is prepared anew.
#[test]
fn answers_to_what_is_prepared_anew_are_the_servers() {
    let servers = e2e::servers_with(1, OPTIONS);
    let address = servers[0].primary().address();
    let server = format!("{{ address = {address:?}, max_connections = 1, role = \"primary\" }}");
    let gateway = Setup::in_front_of(&servers)
        .mode("split")
        .servers([server])
        .top("workers = 1\nshutdown_timeout = \"1s\"")
        .cluster("pool = { idle_timeout = \"100ms\" }")
        .tables(&format!("[[user]]\nname = {USER:?}\npassword = {PASSWORD:?}\n"))
        .start();
    let mut rig = Rig {
        server: e2e::kind(),
        direct: address.clone(),
        gateways: vec![gateway.address()],
        shared: true,
        logs_in: true,
        with_others: false,
        before_steps: None,
        stage: Stage::new(&address),
        commands: 0,
        packets: 0,
    };
    // The last kind.
    for place in [SINGLE - 2, SINGLE - 1] {
        rig.play(ALWAYS_FROM + place)
            .unwrap_or_else(|report| panic!("{report}"));
    }
    leaves_nothing_behind(&gateway);
}

/// Transactions begin on a replica and move to the primary. Both are one server under two names, so that no
/// replica is behind.
#[test]
fn answers_of_transactions_that_move_are_the_servers() {
    let servers = e2e::servers_with(1, OPTIONS);
    let port = servers[0].primary().port();
    let server =
        |host, role| format!("{{ address = \"{host}:{port}\", max_connections = 8, role = \"{role}\" }}");
    let users = [(USER, PASSWORD), (READER, READER_PASSWORD), (OPEN, "")]
        .map(|(name, password)| format!("[[user]]\nname = {name:?}\npassword = {password:?}\n"));
    let setup = Setup::in_front_of(&servers)
        .mode("split")
        .servers([server("127.0.0.1", "primary"), server("localhost", "replica")])
        .listener("transaction_reads = \"replica\"\nread_consistency = \"eventual\"")
        .top("shutdown_timeout = \"1s\"")
        .cluster("pool = { idle_timeout = \"100ms\", reuse = \"oldest\" }")
        .tables(&users.concat());
    compare_but(&servers, [setup], Connections::Shared, &KNOWN_OF_TWO_SERVERS);
}

/// Whose connections sessions have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Connections {
    Own,
    /// The same, and what is said on them is read.
    Understood,
    /// The same, and a rule sees it.
    Ruled,
    /// The same, and before each step the server drains that the session is on.
    Moved,
    Shared,
    /// The same, one alone, and before each step another session wants it.
    Wanted,
}

fn compare_with<const COUNT: usize>(
    servers: &[sandbox::Lent],
    setups: [Setup; COUNT],
    connections: Connections,
) {
    compare_but(servers, setups, connections, &[]);
}

/// But for scripts that are known to differ.
fn compare_but<const COUNT: usize>(
    servers: &[sandbox::Lent],
    setups: [Setup; COUNT],
    connections: Connections,
    known: &[u64],
) {
    let address = servers[0].primary().address();
    let gateways = setups.map(Setup::start);
    let held = Held::default();
    let mut rig = Rig {
        server: e2e::kind(),
        direct: address.clone(),
        gateways: gateways.iter().map(e2e::Gateway::address).collect(),
        shared: connections != Connections::Own,
        logs_in: matches!(connections, Connections::Shared | Connections::Wanted),
        with_others: connections == Connections::Shared,
        before_steps: match connections {
            Connections::Moved => Some(chase(&gateways[0], &servers[0], Rc::clone(&held))),
            Connections::Wanted => Some(want(&gateways[0])),
            _ => None,
        },
        stage: Stage::new(&address),
        commands: 0,
        packets: 0,
    };
    if let Some(seed) = asked("FOREBAY_SEED") {
        return rig.play(seed).unwrap_or_else(|report| panic!("{report}"));
    }
    let limit = asked("FOREBAY_DIFF_SECONDS").map(Duration::from_secs);
    let begin = Instant::now();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    // The lowest digits say what a script is made of: each kind alone twice, and mixtures from then on.
    let base = limit.map_or(ALWAYS_FROM, |_| now.as_secs() % 1_000_000 * 100_000);
    let always = FOUND.len() as u64 + SINGLE;
    let mixtures = asked("FOREBAY_DIFF_MIXTURES").unwrap_or(MIXTURES);
    let goes_on = |scripts: u64| match limit {
        Some(limit) => begin.elapsed() < limit,
        // Each step of a session that moves takes three times as long, and rules are no more than a look.
        None if matches!(connections, Connections::Moved | Connections::Ruled) => {
            scripts < always + mixtures / 2
        }
        // And others wait in vain before most.
        None if connections == Connections::Wanted => scripts < always,
        None => scripts < always + mixtures,
    };
    let mut scripts = 0;
    let mut failures = Vec::new();
    for seed in FOUND.into_iter().chain(base..) {
        if !goes_on(scripts) && scripts >= always {
            break;
        }
        if known.contains(&seed) {
            println!("{seed} is known to differ");
            scripts += 1;
            continue;
        }
        let _told = TellWhenPanicking {
            seed,
            server: servers[0].primary(),
        };
        if let Err(report) = rig.play(seed) {
            eprintln!("{report}");
            failures.push(report);
        }
        scripts += 1;
    }
    println!(
        "{scripts} scripts, {} commands, {} packets",
        rig.commands, rig.packets
    );
    rig.before_steps = None;
    for gateway in &gateways {
        match connections {
            Connections::Own => {}
            Connections::Understood => statements_were_read(gateway),
            Connections::Ruled => a_rule_has_seen(gateway, rig.commands),
            Connections::Moved => sessions_were_moved(gateway, rig.commands, &held),
            Connections::Shared => connections_were_shared(gateway),
            Connections::Wanted => sessions_left(gateway),
        }
        leaves_nothing_behind(gateway);
    }
    if let Some(first) = failures.first() {
        panic!(
            "{} of {scripts} scripts differ, the first:\n{first}",
            failures.len()
        );
    }
}

/// A script that ends the server, or that this test does not understand, is named too.
struct TellWhenPanicking<'a> {
    seed: u64,
    server: &'a sandbox::Node,
}

impl Drop for TellWhenPanicking<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.server.log();
            let lines: Vec<_> = log.lines().collect();
            let end = &lines[lines.len().saturating_sub(LOG_LINES)..];
            eprintln!(
                "FOREBAY_SEED={}; the server's log ends with:\n{}",
                self.seed,
                end.join("\n")
            );
        }
    }
}

/// Without that the comparison would say nothing.
fn connections_were_shared(gateway: &e2e::Gateway) {
    let leases = gateway.metric("forebay_pool_lease_duration_seconds_count", &[]);
    let opened = gateway.metric("forebay_pool_opened_total", &[]);
    println!("{leases} leases of {opened} connections");
    assert!(leases > 5.0 * opened, "{leases} leases of {opened} connections");
}

/// The same.
fn sessions_left(gateway: &e2e::Gateway) {
    let left = gateway.metric("forebay_split_user_variables_left_total", &[]);
    println!("{left} times a session has left with its user variables");
    assert!(left > 30.0, "{left}");
}

/// The same. Some steps leave what holds a session for all that come after.
fn sessions_were_moved(gateway: &e2e::Gateway, commands: usize, held: &Held) {
    let moved = gateway.metric("forebay_sessions_moved_total", &[]);
    println!("{moved} moves, {commands} commands; so often a session stayed where it was to leave:");
    for (reason, steps) in held.borrow().iter() {
        println!("  {reason} {steps}");
    }
    println!("moves that came to nothing:");
    for line in gateway.get("/metrics").1.lines() {
        if let Some(failed) = line.strip_prefix("forebay_session_moves_failed_total")
            && !failed.ends_with(" 0")
        {
            println!("  {failed}");
        }
    }
    assert!(
        moved > commands as f64 / 5.0,
        "{moved} moves of {commands} commands"
    );
}

/// Commands but statements are not for rules.
fn a_rule_has_seen(gateway: &e2e::Gateway, commands: usize) {
    let seen = gateway.metric("forebay_rule_hits_total", &[]);
    println!("a rule has seen {seen} of {commands} commands");
    assert!(seen > commands as f64 / 3.0);
}

/// The same.
fn statements_were_read(gateway: &e2e::Gateway) {
    let left = gateway.metric("forebay_lookups_left_total", &[]);
    let answered = gateway.metric("forebay_lookups_answered_total", &[]);
    println!("{answered} lookups answered, {left} left");
    assert!(left > 0.0);
}

fn leaves_nothing_behind(gateway: &e2e::Gateway) {
    let begin = Instant::now();
    let left =
        || gateway.metric("forebay_sessions_active", &[]) + gateway.metric("forebay_buffers_in_use", &[]);
    while left() > 0.0 {
        assert!(
            begin.elapsed() < e2e::PATIENCE,
            "sessions or buffers are left: {}",
            gateway.get("/metrics").1
        );
    }
}

/// The gateway offers what its server does, but for what is between neighbours.
#[test]
fn the_greeting_is_the_servers_own() {
    let servers = e2e::servers_with(1, OPTIONS);
    let gateway = Setup::in_front_of(&servers).start();
    let identity = Identity {
        user: sandbox::USER,
        password: sandbox::PASSWORD,
        database: None,
        charset: 45,
        capabilities: session::ALWAYS,
    };
    let greeting = |address: &str| Client::connect(address, &identity).unwrap().0.greeting;
    let (direct, gateway) = (
        greeting(&servers[0].primary().address()),
        greeting(&gateway.address()),
    );
    let between_neighbours = Capabilities::SSL
        | Capabilities::COMPRESS
        | Capabilities::ZSTD_COMPRESSION
        | Capabilities::SSL_VERIFY_SERVER_CERT
        | Capabilities::MARIADB_COM_MULTI;
    assert_eq!(
        gateway.capabilities.without(between_neighbours),
        direct.capabilities.without(between_neighbours)
    );
    assert_eq!(gateway.server_version, direct.server_version);
    assert_eq!((gateway.charset, gateway.status), (direct.charset, direct.status));
    assert_eq!(gateway.auth_plugin, direct.auth_plugin);
}
