//! Health checks: what counts as alive, what is said about the rest, and what follows.

use std::sync::Arc;
use std::time::Duration;

use config::CheckKind;
use mysql_wire::{Capabilities, Greeting, Login, PacketHeader};
use telemetry::Source;
use tokio::sync::broadcast::error::TryRecvError;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use upstream::{Cluster, ServerChange, Status};

use crate::play::{
    Act, CAPABILITIES, Player, by_name, cluster, greeting, packet, server, status, take_lease, until,
};

/// A cluster under watch. The checks end with it.
struct Watched {
    cluster: Arc<Cluster>,
    checks: JoinHandle<()>,
}

impl Watched {
    fn start(config: config::Cluster) -> Self {
        let cluster = Cluster::new(config).unwrap();
        let checks = tokio::spawn(Arc::clone(&cluster).run_checks());
        Self { cluster, checks }
    }

    async fn until_status(&self, name: &str, wanted: Status) {
        until(&format!("{name} is {wanted}"), || {
            status(&self.cluster, name) == wanted
        })
        .await;
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.checks.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_goes_down_after_fall_and_comes_up_after_rise() {
    let mut player = Player::start(Act::Greet("9.0.0")).await;
    let watched = Watched::start(cluster(vec![player.config("a")]));
    let mut events = watched.cluster.subscribe();
    watched.until_status("a", Status::Up).await;
    player.stop().await;
    let stopped = Instant::now();
    watched.until_status("a", Status::Down).await;
    let took = stopped.elapsed().as_secs();
    assert!(
        (4..=6).contains(&took),
        "three checks, two seconds apart: {took} s"
    );
    let reason = by_name(&watched.cluster, "a").state().reason.clone();
    assert_eq!(reason, format!("connection refused by {}", player.address));
    player.resume().await;
    watched.until_status("a", Status::Up).await;
    assert_eq!(by_name(&watched.cluster, "a").state().reason, "greets as 9.0.0");
    // Every change was announced, and once.
    let mut changes = Vec::new();
    while let Ok(event) = events.try_recv() {
        changes.push(event.change);
    }
    assert_eq!(
        changes,
        [
            ServerChange::Up,
            ServerChange::Down {
                reason: reason.into()
            },
            ServerChange::Up
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_is_said() {
    let mut long = PacketHeader {
        payload_len: 5000,
        sequence: 0,
    }
    .encode()
    .to_vec();
    long.extend_from_slice(&[10; 5000]);
    let mut eager = packet(0, &greeting("9.0.0"));
    eager.extend_from_slice(b"more");
    let cases = [
        (Act::Silent, "no greeting within 2s"),
        (Act::Close, "server closed the connection without a greeting"),
        (
            Act::Half,
            "server closed the connection 20 bytes into its greeting",
        ),
        (
            Act::Refuse(1130, "Host '192.0.2.2' is not allowed to connect"),
            "server refuses the connection: Host '192.0.2.2' is not allowed to connect (error 1130)",
        ),
        (
            Act::Bytes(long),
            "not a MySQL server: its first packet claims 5000 bytes",
        ),
        (
            Act::Bytes(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()),
            "not a MySQL server: its first packet claims 4739923 bytes",
        ),
        (Act::Bytes(packet(0, b"\x09old")), "not a MySQL greeting: "),
        (
            Act::Bytes(eager),
            "not a MySQL server: 4 bytes after its greeting",
        ),
    ];
    for (act, expected) in cases {
        let player = Player::start(act.clone()).await;
        let watched = Watched::start(cluster(vec![player.config("a")]));
        watched.until_status("a", Status::Down).await;
        let reason = by_name(&watched.cluster, "a").state().reason.clone();
        assert!(reason.starts_with(expected), "{act:?}: {reason}");
        let error = take_lease(&watched.cluster).await.unwrap_err().to_string();
        assert!(error.contains(&format!("a is down ({expected}")), "{error}");
    }
}

/// TiDB has no word for those who come over its `max-server-connections`. Who took it for dead would end the
/// sessions that fill it.
#[tokio::test(start_paused = true)]
async fn a_full_tidb_is_alive_and_another_server_that_closes_is_not() {
    let [tidb, other] = [
        Player::start(Act::Greet("5.7.25-TiDB-v5.4.0")).await,
        Player::start(Act::Greet("9.0.0")).await,
    ];
    let watched = Watched::start(cluster(vec![tidb.config("tidb"), other.config("other")]));
    watched.until_status("tidb", Status::Up).await;
    watched.until_status("other", Status::Up).await;
    tidb.act(Act::Close);
    other.act(Act::Close);
    watched.until_status("other", Status::Down).await;
    // It was checked as often.
    let state = by_name(&watched.cluster, "tidb").state();
    assert_eq!((state.status, state.suspect), (Status::Up, false));
    // As long as nobody knows that it is one, it has to greet.
    let unknown = Player::start(Act::Close).await;
    let watched = Watched::start(cluster(vec![unknown.config("unknown")]));
    watched.until_status("unknown", Status::Down).await;
}

#[tokio::test(start_paused = true)]
async fn a_full_server_is_alive() {
    let player = Player::start(Act::Refuse(1040, "Too many connections")).await;
    let watched = Watched::start(cluster(vec![player.config("a")]));
    watched.until_status("a", Status::Up).await;
    assert_eq!(
        by_name(&watched.cluster, "a").state().reason,
        "is full (too many connections)"
    );
    assert_eq!(watched.cluster.profile(), None, "it has not introduced itself");
}

/// A server keeps its last permit for accounts with rights of their own: others are refused behind the
/// greeting.
#[tokio::test(start_paused = true)]
async fn a_server_that_is_full_behind_its_greeting_is_alive_but_has_run_nothing() {
    let player = Player::start(Act::Full).await;
    let mut config = cluster(vec![player.config("a")]);
    config.check.kind = CheckKind::Login;
    config.check.user = Some("probe".to_owned());
    let watched = Watched::start(config);
    watched.until_status("a", Status::Up).await;
    let server = by_name(&watched.cluster, "a");
    assert_eq!(server.state().reason, "is full (too many connections)");
    let ran = watched.cluster.kill(server.id(), "KILL QUERY 7").await;
    let why = ran.unwrap_err();
    assert!(why.contains("Too many connections"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_check_of_kind_tcp_asks_for_nothing_more() {
    let player = Player::start(Act::Silent).await;
    let mut config = cluster(vec![player.config("a")]);
    config.check.kind = CheckKind::Tcp;
    let watched = Watched::start(config);
    watched.until_status("a", Status::Up).await;
    assert!(player.received.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_greeting_is_answered_before_leaving() {
    let player = Player::start(Act::Greet("9.0.0")).await;
    let _watched = Watched::start(cluster(vec![player.config("a")]));
    until("the check has left", || {
        !player.received.lock().unwrap().is_empty()
    })
    .await;
    let sent = player.received.lock().unwrap()[0].clone();
    let login = Login::decode(&sent[PacketHeader::LEN..]).unwrap();
    assert_eq!(login.user, b"forebay_probe");
    assert_eq!(login.auth_plugin.as_deref(), Some(&b"caching_sha2_password"[..]));
    assert!(login.auth_response.is_empty());
}

#[tokio::test(start_paused = true)]
async fn checks_of_our_own_carry_no_client_in_the_proxy_header() {
    let player = Player::start(Act::Silent).await;
    let mut config = cluster(vec![player.config("a")]);
    config.send_proxy = true;
    let _watched = Watched::start(config);
    until("the header arrives", || {
        !player.received.lock().unwrap().is_empty()
    })
    .await;
    let received = player.received.lock().unwrap()[0].clone();
    assert_eq!(received, b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00");
}

#[tokio::test(start_paused = true)]
async fn what_traffic_suspects_is_checked_at_once() {
    let (player, other) = (
        Player::start(Act::Greet("9.0.0")).await,
        Player::start(Act::Greet("9.0.0")).await,
    );
    let mut config = cluster(vec![player.config("a"), other.config("b")]);
    config.servers[1].backup = true;
    config.check.interval = Duration::from_secs(3600);
    let watched = Watched::start(config);
    watched.until_status("a", Status::Up).await;
    watched.until_status("b", Status::Up).await;
    let a = by_name(&watched.cluster, "a");
    let name = async || {
        take_lease(&watched.cluster)
            .await
            .unwrap()
            .server
            .name()
            .to_owned()
    };
    assert_eq!(name().await, "a");
    watched.cluster.suspect(&a, "no greeting");
    assert!(
        a.state().suspect && a.state().status == Status::Up,
        "its sessions stay"
    );
    assert_eq!(name().await, "b");
    let suspected = Instant::now();
    until("a is cleared", || !a.state().suspect).await;
    assert!(
        suspected.elapsed() < Duration::from_secs(1),
        "{:?}",
        suspected.elapsed()
    );
    assert_eq!(name().await, "a");
}

#[tokio::test(start_paused = true)]
async fn suspicions_do_not_multiply_checks() {
    let player = Player::start(Act::Greet("9.0.0")).await;
    let watched = Watched::start(cluster(vec![player.config("a")]));
    watched.until_status("a", Status::Up).await;
    let before = player.accepted();
    let a = by_name(&watched.cluster, "a");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        watched.cluster.suspect(&a, "traffic says so");
        sleep(Duration::from_millis(1)).await;
    }
    let checks = player.accepted() - before;
    assert!((10..=22).contains(&checks), "at most ten a second: {checks}");
}

#[tokio::test(start_paused = true)]
async fn checks_keep_their_interval_and_their_distance() {
    let mut players = Vec::new();
    for _ in 0..16 {
        players.push(Player::start(Act::Greet("9.0.0")).await);
    }
    let names: Vec<_> = (0..)
        .zip(&players)
        .map(|(n, player)| player.config(&format!("s{n}")))
        .collect();
    let _watched = Watched::start(cluster(names));
    sleep(Duration::from_millis(1)).await;
    let count = |players: &[Player]| players.iter().map(Player::accepted).collect::<Vec<_>>();
    until("each has been checked", || {
        count(&players).iter().all(|&n| n == 1)
    })
    .await;
    // From the second on they are spread over an interval: never many in the same twentieth of it.
    sleep(Duration::from_secs(2)).await;
    let mut most = 0;
    for _ in 0..20 {
        let before: usize = count(&players).iter().sum();
        sleep(Duration::from_millis(100)).await;
        most = most.max(count(&players).iter().sum::<usize>() - before);
    }
    assert!(most <= 10, "{most} of 16 within a twentieth of the interval");
    sleep(Duration::from_secs(16)).await;
    for checks in count(&players) {
        assert!(
            (10..=12).contains(&checks),
            "twenty seconds, one in two: {checks}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_can_what_its_servers_can() {
    let old = Player::start(Act::Greet("8.4.2")).await;
    let weak = Greeting {
        capabilities: Capabilities(CAPABILITIES.0 & !Capabilities::DEPRECATE_EOF.0),
        ..Greeting::decode(&greeting("9.7.4")).unwrap()
    };
    let mut payload = Vec::new();
    weak.encode(&mut payload);
    let new = Player::start(Act::Bytes(packet(0, &payload))).await;
    let config = cluster(vec![new.config("new"), old.config("old")]);
    let watched = Watched::start(config.clone());
    assert_eq!(watched.cluster.profile(), None);
    watched.until_status("new", Status::Up).await;
    watched.until_status("old", Status::Up).await;
    let profile = watched.cluster.profile().unwrap();
    assert_eq!(profile.server_version, b"8.4.2", "the lowest");
    assert_eq!(profile.capabilities, weak.capabilities, "what both have");
    let renamed = config::Cluster {
        server_version: Some("5.7.44".to_owned()),
        ..config
    };
    watched.cluster.reload(renamed).unwrap();
    assert_eq!(watched.cluster.profile().unwrap().server_version, b"5.7.44");
}

#[tokio::test(start_paused = true)]
async fn who_comes_back_starts_slowly() {
    let mut players = [
        Player::start(Act::Greet("9.0.0")).await,
        Player::start(Act::Greet("9.0.0")).await,
    ];
    let mut config = cluster(vec![players[0].config("a"), players[1].config("b")]);
    config.slow_start = Duration::from_secs(1000);
    config.balance = config::Balance::Weighted;
    let watched = Watched::start(config);
    watched.until_status("a", Status::Up).await;
    watched.until_status("b", Status::Up).await;
    let share_of_a = async |sessions: u32| {
        let mut hits = 0;
        for _ in 0..sessions {
            let lease = take_lease(&watched.cluster).await.unwrap();
            hits += u32::from(lease.server.name() == "a");
        }
        hits
    };
    assert_eq!(share_of_a(20).await, 10, "at process start all are warm");
    players[0].stop().await;
    watched.until_status("a", Status::Down).await;
    players[0].resume().await;
    watched.until_status("a", Status::Up).await;
    assert!(share_of_a(100).await <= 10, "just back");
    sleep(Duration::from_secs(500)).await;
    let half_warm = share_of_a(100).await;
    assert!((25..=42).contains(&half_warm), "about a third: {half_warm}");
    sleep(Duration::from_secs(600)).await;
    assert!((48..=52).contains(&share_of_a(100).await), "warm");
}

#[tokio::test(start_paused = true)]
async fn metrics_tell_states_checks_and_queue() {
    let up = Player::start(Act::Greet("9.0.0")).await;
    let down = server("down", crate::play::nobody().await);
    let watched = Watched::start(cluster(vec![up.config("up"), down]));
    watched.until_status("up", Status::Up).await;
    watched.until_status("down", Status::Down).await;
    struct Shared(Arc<Cluster>);
    impl Source for Shared {
        fn collect(&self, out: &mut telemetry::Samples) {
            self.0.collect(out);
        }
    }
    let telemetry = telemetry::Telemetry::new(1, |_| "other");
    telemetry.register(Arc::new(Shared(Arc::clone(&watched.cluster))));
    let text = telemetry.encode();
    for line in [
        r#"forebay_server_state{cluster="main",server="up",state="up"} 1"#,
        r#"forebay_server_state{cluster="main",server="down",state="up"} 0"#,
        r#"forebay_server_state{cluster="main",server="down",state="down"} 1"#,
        r#"forebay_checks_total{cluster="main",server="down"} 1"#,
        r#"forebay_checks_failed_total{cluster="main",server="down"} 1"#,
        r#"forebay_checks_failed_total{cluster="main",server="up"} 0"#,
        r#"forebay_check_duration_seconds_count{cluster="main",server="up"} 1"#,
        r#"forebay_server_role{cluster="main",server="up",role="replica"} 1"#,
        r#"forebay_server_role{cluster="main",server="down",role="replica"} 0"#,
        r#"forebay_server_role{cluster="main",server="down",role="unusable"} 1"#,
        r#"forebay_primary_changes_total{cluster="main"} 0"#,
        r#"forebay_writes_refused{cluster="main"} 0"#,
        r#"forebay_queue_waiting{cluster="main"} 0"#,
        r#"forebay_queue_rejected_total{cluster="main"} 0"#,
    ] {
        assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
    }
    assert!(
        !text.contains("forebay_primary_missing{"),
        "nobody misses one in a list: {text}"
    );

    // Where nobody goes by roles there are none.
    let config = config::Cluster {
        uses_roles: false,
        ..(*watched.cluster.config()).clone()
    };
    watched.cluster.reload(config).unwrap();
    let text = telemetry.encode();
    assert!(
        text.contains("forebay_server_state{") && !text.contains("forebay_server_role{"),
        "{text}"
    );
    let topology = watched.cluster.topology();
    assert!(topology.members[0].reason.starts_with("roles play no part"));

    // Also of a gateway that has begun when there was none.
    let mut config = cluster(vec![server("lost", crate::play::nobody().await)]);
    config.topology = config::Topology::Replication;
    let telemetry = telemetry::Telemetry::new(1, |_| "other");
    telemetry.register(Arc::new(Shared(Cluster::new(config).unwrap())));
    let text = telemetry.encode();
    let line = r#"forebay_primary_missing{cluster="main"} 1"#;
    assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
}

#[tokio::test(start_paused = true)]
async fn nobody_is_told_of_what_changes_nothing() {
    let player = Player::start(Act::Greet("9.0.0")).await;
    let watched = Watched::start(cluster(vec![player.config("a")]));
    watched.until_status("a", Status::Up).await;
    let since = by_name(&watched.cluster, "a").state().since;
    let mut events = watched.cluster.subscribe();
    player.act(Act::Silent);
    sleep(Duration::from_secs(3)).await;
    player.act(Act::Greet("9.0.0"));
    sleep(Duration::from_secs(20)).await;
    assert_eq!(events.try_recv(), Err(TryRecvError::Empty), "one failure is none");
    assert_eq!(by_name(&watched.cluster, "a").state().since, since);
}

#[tokio::test(start_paused = true)]
async fn who_needs_traits_gets_them_as_soon_as_they_are_known() {
    for kind in [CheckKind::Greeting, CheckKind::Tcp] {
        let player = Player::start(Act::Greet("9.0.0")).await;
        let mut config = cluster(vec![
            server("down", crate::play::nobody().await),
            player.config("up"),
        ]);
        config.check.kind = kind;
        config.check.interval = Duration::from_secs(3600);
        let watched = Watched::start(config);
        let begun = Instant::now();
        let profile = watched.cluster.introduced(Duration::from_secs(30)).await.unwrap();
        assert_eq!(profile.server_version, b"9.0.0", "{kind:?}");
        assert!(
            begun.elapsed() < Duration::from_secs(1),
            "{kind:?}: {:?}",
            begun.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_the_traits_of_servers_that_are_down() {
    let watched = Watched::start(cluster(vec![server("down", crate::play::nobody().await)]));
    let begun = Instant::now();
    assert_eq!(watched.cluster.introduced(Duration::from_secs(30)).await, None);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    // A server that says nothing costs the limit and no more.
    let silent = Player::start(Act::Silent).await;
    let mut config = cluster(vec![silent.config("silent")]);
    config.check.kind = CheckKind::Tcp;
    let watched = Watched::start(config);
    let begun = Instant::now();
    assert_eq!(watched.cluster.introduced(Duration::from_secs(5)).await, None);
    assert_eq!(begun.elapsed().as_secs(), 5);
}
