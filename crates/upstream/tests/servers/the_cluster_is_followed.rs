//! Real clusters whose primary dies or changes: found out, told, and never two at a time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use config::{Monitor, Secret, ServerAddress};
use mysql_wire::gtid::GtidSet;
use sandbox::{Kind, Node, Sandbox, Spec};
use tokio::task::JoinHandle;
use upstream::{Cluster, Flavor, Role, Topology};

use crate::clusters_that_misbehave::{a_donor_is_seen_and_obeyed, transactions_to_apply_are_counted};
use crate::play::{cluster, server, until};

/// A real cluster under watch, configured with `known` of its nodes, named `n0`, `n1`, ...
pub(crate) struct Followed {
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) cluster: Arc<Cluster>,
    checks: JoinHandle<()>,
}

impl Followed {
    pub(crate) async fn start(spec: Spec, topology: config::Topology, known: usize) -> Self {
        let sandbox = tokio::task::spawn_blocking(|| Sandbox::start(spec))
            .await
            .unwrap()
            .unwrap();
        let servers = sandbox.nodes()[..known]
            .iter()
            .map(|node| server(&format!("n{}", node.index()), node.address().parse().unwrap()));
        let mut config = cluster(servers.collect());
        config.topology = topology;
        config.check.interval = Duration::from_millis(500);
        // With what the documentation says it needs, and nothing more.
        let grants = match topology {
            config::Topology::Replication if sandbox.kind() == Kind::Mariadb => {
                "GRANT SLAVE MONITOR, REPLICATION MASTER ADMIN ON *.* TO watch"
            }
            config::Topology::Replication => "GRANT REPLICATION CLIENT ON *.* TO watch",
            config::Topology::GroupReplication => "GRANT SELECT ON performance_schema.* TO watch",
            config::Topology::Galera | config::Topology::Static | config::Topology::Tidb => {
                "GRANT USAGE ON *.* TO watch"
            }
        };
        let account = format!("CREATE USER watch IDENTIFIED BY 'see'; {grants}");
        let sandbox = tokio::task::spawn_blocking(move || {
            sandbox.primary().sql(&account).unwrap();
            sandbox.sync().unwrap();
            sandbox
        });
        let sandbox = sandbox.await.unwrap();
        config.monitor = Some(Monitor {
            password: Some(Secret::new("see")),
            interval: Duration::from_millis(250),
            ..Monitor::new("watch")
        });
        let cluster = Cluster::new(config).unwrap();
        let checks = tokio::spawn(Arc::clone(&cluster).run_checks());
        Self {
            sandbox: Arc::new(sandbox),
            cluster,
            checks,
        }
    }

    pub(crate) fn roles(&self) -> Vec<Role> {
        roles(&self.cluster.topology())
    }

    pub(crate) fn primary(&self) -> Option<usize> {
        self.cluster.topology().primary
    }

    /// Waits until the roles are these; returns how long that took.
    pub(crate) async fn until_roles(&self, what: &str, wanted: &[Role]) -> Duration {
        let begun = Instant::now();
        let deadline = begun + Duration::from_secs(60);
        loop {
            let topology = self.cluster.topology();
            if roles(&topology) == wanted {
                return begun.elapsed();
            }
            let changed = self.cluster.wait_for_topology_change(topology.generation);
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                tokio::time::timeout(left, changed).await.is_ok(),
                "{what}: {wanted:?} wanted, there is {}",
                describe(&self.cluster.topology())
            );
        }
    }

    pub(crate) async fn sql(&self, node: usize, statements: &str) -> String {
        let (sandbox, statements) = (Arc::clone(&self.sandbox), statements.to_owned());
        let run = move || sandbox.node(node).sql(&statements).unwrap();
        tokio::task::spawn_blocking(run).await.unwrap()
    }

    pub(crate) async fn with_node(&self, node: usize, act: impl FnOnce(&Node) + Send + 'static) {
        let sandbox = Arc::clone(&self.sandbox);
        tokio::task::spawn_blocking(move || act(sandbox.node(node)))
            .await
            .unwrap();
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.checks.abort();
    }
}

fn roles(topology: &Topology) -> Vec<Role> {
    topology.members.iter().map(|member| member.role).collect()
}

fn ports(cluster: &Cluster) -> Vec<u16> {
    let port = |server: &Arc<upstream::Server>| match server.address() {
        ServerAddress::Host { port, .. } => *port,
        ServerAddress::Unix(_) => 0,
    };
    cluster.servers().iter().map(port).collect()
}

fn describe(topology: &Topology) -> String {
    let line = |member: &upstream::Member| {
        format!(
            "\n  {}: {} ({}), lag {:?}",
            member.server.name(),
            member.role.label(),
            member.reason,
            member.lag
        )
    };
    topology.members.iter().map(line).collect()
}

const P: Role = Role::Primary;
const R: Role = Role::Replica;
const U: Role = Role::Unusable;

#[tokio::test]
async fn mariadb_replication_through_a_failover() {
    let spec = Spec::new(Kind::Mariadb).nodes(3);
    let followed = Followed::start(spec, config::Topology::Replication, 3).await;
    followed.until_roles("the first picture", &[P, R, R]).await;
    a_heartbeat_tells_the_lag(&followed).await;
    let topology = followed.cluster.topology();
    assert_eq!(topology.refuse_writes, None);
    assert_eq!(topology.members[1].flavor, Some(Flavor::MariaDb));
    assert_eq!(topology.members[1].reason, "follows n0");
    until("lags are known", || {
        let topology = followed.cluster.topology();
        topology.members[1..]
            .iter()
            .all(|member| member.lag.is_some_and(|lag| lag < Duration::from_secs(5)))
    })
    .await;

    // Dead, and nobody promoted: reads go on. A replica that had got more than the other could not follow it.
    let sandbox = Arc::clone(&followed.sandbox);
    let synced = tokio::task::spawn_blocking(move || sandbox.sync());
    synced.await.unwrap().unwrap();
    followed.with_node(0, |node| node.kill9().unwrap()).await;
    let took = followed.until_roles("the primary is lost", &[U, R, R]).await;
    assert!(took < Duration::from_secs(20), "{took:?}");

    followed
        .sql(1, "STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only=0")
        .await;
    let promoted = Instant::now();
    until("the new primary is found", || followed.primary() == Some(1)).await;
    assert!(
        promoted.elapsed() < Duration::from_secs(20),
        "{:?}",
        promoted.elapsed()
    );

    // Its former brother still waits for the dead one, and is made to follow the new one.
    let port = followed.sandbox.node(1).port();
    followed
        .sql(
            2,
            &format!("STOP SLAVE; CHANGE MASTER TO MASTER_PORT={port}; START SLAVE"),
        )
        .await;
    followed
        .until_roles("the other replica follows", &[U, P, R])
        .await;
    until("by its new name", || {
        followed.cluster.topology().members[2].reason == "follows n1"
    })
    .await;

    // The old primary comes back as it was, and takes writes, too.
    followed.with_node(0, |node| node.restart().unwrap()).await;
    until("two take writes", || {
        followed.cluster.topology().members[0]
            .reason
            .contains("takes writes")
    })
    .await;
    let topology = followed.cluster.topology();
    assert_eq!(
        (topology.primary, &topology.refuse_writes),
        (Some(1), &None),
        "{}",
        describe(&topology)
    );
}

#[tokio::test]
async fn mysql_replication_with_a_replica_that_stops() {
    let spec = Spec::new(Kind::Mysql).nodes(2);
    let followed = Followed::start(spec, config::Topology::Replication, 2).await;
    followed.until_roles("the first picture", &[P, R]).await;
    let member = || followed.cluster.topology().members[1].clone();
    until("lag is known", || member().lag.is_some()).await;
    assert_eq!(
        (member().flavor, member().reason.as_str()),
        (Some(Flavor::MySql), "follows n0")
    );

    followed.sql(1, "STOP REPLICA SQL_THREAD").await;
    followed.until_roles("it applies nothing", &[P, U]).await;
    followed
        .sql(1, "START REPLICA SQL_THREAD; STOP REPLICA IO_THREAD")
        .await;
    followed.until_roles("it applies again", &[P, R]).await;
    until("and gets no more: its lag grows", || {
        member().reason == "has everything it got from n0, and gets no more"
            && member().lag.is_some_and(|lag| lag > Duration::from_millis(500))
    })
    .await;

    followed
        .sql(0, "CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1)")
        .await;
    let position = followed.sql(0, "SELECT @@gtid_executed").await.replace("\\n", "");
    let position = GtidSet::parse(Flavor::MySql, position.trim().as_bytes()).unwrap();
    let has = |at: usize| {
        let server = &followed.cluster.topology().members[at].server;
        server.applied().is_some_and(|applied| applied.covers(&position))
    };
    until("the primary has it", || has(0)).await;
    assert!(!has(1));
    followed.sql(1, "START REPLICA IO_THREAD").await;
    until("the replica has it", || has(1)).await;
    a_heartbeat_tells_the_lag(&followed).await;
}

/// The newest row of a table does, in a column of ours or as `pt-heartbeat` writes it. Without a right to it
/// the server says how far it is behind.
async fn a_heartbeat_tells_the_lag(followed: &Followed) {
    let tables = "CREATE DATABASE beat; CREATE TABLE beat.plain (ts TIMESTAMP(6) NOT NULL); \
        CREATE TABLE beat.pt (ts VARCHAR(26) NOT NULL, server_id INT UNSIGNED PRIMARY KEY); \
        INSERT INTO beat.plain VALUES (NOW(6) - INTERVAL 9 HOUR), (NOW(6) - INTERVAL 1 HOUR); \
        INSERT INTO beat.pt VALUES (DATE_FORMAT(NOW(6) - INTERVAL 2 HOUR, '%Y-%m-%dT%H:%i:%s.%f'), 1); \
        GRANT SELECT ON beat.* TO watch";
    followed.sql(0, tables).await;
    let hours = || {
        let lag = followed.cluster.topology().members[1].lag;
        lag.map(|lag| lag.as_secs() / 3600)
    };
    let mut config = (*followed.cluster.config()).clone();
    for (table, behind) in [("beat.plain", 1), ("beat.pt", 2)] {
        if let Some(monitor) = &mut config.monitor {
            monitor.heartbeat_table = Some(table.to_owned());
        }
        followed.cluster.reload(config.clone()).unwrap();
        until(table, || hours() == Some(behind)).await;
    }
    followed.sql(0, "REVOKE SELECT ON beat.* FROM watch").await;
    until("the server says it", || hours() == Some(0)).await;
    followed.sql(0, "DROP DATABASE beat").await;
}

#[tokio::test]
async fn a_monitor_that_may_not_log_in_says_so() {
    let player = crate::play::Player::start(crate::play::Act::Greet("9.0.0")).await;
    let mut config = cluster(vec![player.config("a")]);
    config.topology = config::Topology::Replication;
    config.monitor = Some(Monitor {
        interval: Duration::from_millis(20),
        ..Monitor::new("watch")
    });
    let cluster = Cluster::new(config).unwrap();
    let checks = tokio::spawn(Arc::clone(&cluster).run_checks());
    let wanted = "login of the monitor's user watch: Access denied (error 1045)";
    until("it is given up", || {
        cluster.topology().members[0].reason == wanted
    })
    .await;
    assert_eq!(cluster.topology().members[0].role, U);
    assert_eq!(cluster.topology().primary, None);
    checks.abort();
}

/// Where roles are written the monitor is for the lag and for accounts, and may have no rights for the rest.
#[test]
fn roles_that_are_written_need_no_monitor() {
    let host = crate::host::start();
    *host.stranger.lock().unwrap() = Some("watch".to_owned());
    crate::sessions_share_connections::on_a_worker(async {
        let mut config = cluster(vec![server("a", host.address), server("b", host.address)]);
        config.servers[0].role = Some(config::Role::Primary);
        config.monitor = Some(Monitor {
            interval: Duration::from_millis(20),
            ..Monitor::new("watch")
        });
        let cluster = Cluster::new(config).unwrap();
        let checks = tokio::spawn(Arc::clone(&cluster).run_checks());
        until("all looks have failed", || {
            host.refused.load(Ordering::SeqCst) > 20
        })
        .await;
        assert_eq!(roles(&cluster.topology()), [P, R]);
        let limited = config::Cluster {
            limits_lag: true,
            ..(*cluster.config()).clone()
        };
        cluster.reload(limited).unwrap();
        until("where the lag is limited it has to be known", || {
            roles(&cluster.topology()) == [P, U]
        })
        .await;
        checks.abort();
    });
}

/// `report_host` and `report_port` of a replica are those of a server somewhere else, which lets the monitor
/// in.
#[tokio::test]
async fn a_member_is_who_it_is_said_to_be() {
    let elsewhere = Spec::new(Kind::Mariadb).option("--server-id=77");
    let elsewhere = Followed::start(elsewhere, config::Topology::Replication, 1).await;
    let port = elsewhere.sandbox.primary().port();
    let spec = Spec::new(Kind::Mariadb)
        .nodes(2)
        .option("--report-host=127.0.0.1")
        .option(format!("--report-port={port}"));
    elsewhere.checks.abort();
    let seen = async || {
        let status = elsewhere.sql(0, "SHOW GLOBAL STATUS LIKE 'Connections'").await;
        let count: u64 = status.split_whitespace().nth(1).unwrap().parse().unwrap();
        count
    };
    let (mut before, mut quiet) = (seen().await, false);
    while !quiet {
        let now = seen().await;
        (before, quiet) = (now, now == before + 1);
    }
    let followed = Followed::start(spec, config::Topology::Replication, 1).await;
    followed.until_roles("the first picture", &[P]).await;
    let mut own = 1;
    while seen().await <= before + own {
        own += 1;
        assert!(own < 1000, "nobody else has looked at the server");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // What was found out there has its effect, and is looked at again twice a second.
    let until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < until {
        let servers = followed.cluster.servers();
        let names: Vec<&str> = servers.iter().map(|server| server.name()).collect();
        assert_eq!(names, ["n0"]);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up() {
    let player = crate::play::Player::start(crate::play::Act::Silent).await;
    let mut config = cluster(vec![player.config("a")]);
    config.topology = config::Topology::Galera;
    config.check.kind = config::CheckKind::Tcp;
    config.monitor = Some(Monitor {
        interval: Duration::from_millis(20),
        timeout: Duration::from_millis(30),
        ..Monitor::new("watch")
    });
    let cluster = Cluster::new(config).unwrap();
    let checks = tokio::spawn(Arc::clone(&cluster).run_checks());
    until("it is given up", || {
        let topology = cluster.topology();
        topology.members[0].reason.contains("within 30ms")
    })
    .await;
    checks.abort();
}

#[tokio::test]
async fn members_that_nobody_configured_are_found_and_survive_a_reload() {
    let spec = Spec::new(Kind::Mariadb).nodes(3);
    // Only a replica is known: its source is what it follows, and that one knows the other replica.
    let mut followed = Followed::start(spec, config::Topology::Replication, 3).await;
    let mut config = (*followed.cluster.config()).clone();
    config.servers = vec![config.servers[1].clone()];
    followed.checks.abort();
    followed.cluster = Cluster::new(config.clone()).unwrap();
    followed.checks = tokio::spawn(Arc::clone(&followed.cluster).run_checks());
    let nodes = followed.sandbox.nodes();
    let wanted = [nodes[1].port(), nodes[0].port(), nodes[2].port()];
    until("all three are there", || ports(&followed.cluster) == wanted).await;
    followed.until_roles("all three have roles", &[R, P, R]).await;
    let ids = || {
        followed
            .cluster
            .servers()
            .iter()
            .map(|server| server.id())
            .collect::<Vec<_>>()
    };
    let before = ids();
    followed.cluster.reload(config.clone()).unwrap();
    assert_eq!(ids(), before, "a reload keeps what was discovered");
    config.monitor.as_mut().unwrap().discover = false;
    followed.cluster.reload(config).unwrap();
    assert_eq!(ids(), before[..1], "but not for those who do not want it");
}

/// By the name that others name it by, and by another one.
#[tokio::test]
async fn a_member_that_is_ignored_stays_away() {
    let spec = Spec::new(Kind::Mariadb).nodes(3);
    let mut followed = Followed::start(spec, config::Topology::Replication, 3).await;
    let mut config = (*followed.cluster.config()).clone();
    config.servers.truncate(1);
    let [primary, ignored, other] = [0, 1, 2].map(|node| followed.sandbox.node(node).port());
    let ignore = |host: &str| {
        let (host, port) = (host.to_owned(), ignored);
        vec![ServerAddress::Host { host, port }]
    };
    let are = |cluster: &Cluster, wanted: &[u16]| {
        let ports = ports(cluster);
        ports.len() == wanted.len() && wanted.iter().all(|port| ports.contains(port))
    };
    let [all, without] = [&[primary, ignored, other][..], &[primary, other]];
    for host in ["localhost", "127.0.0.1"] {
        config.discover_ignore = ignore(host);
        followed.checks.abort();
        followed.cluster = Cluster::new(config.clone()).unwrap();
        followed.checks = tokio::spawn(Arc::clone(&followed.cluster).run_checks());
        // Whoever names one of them names the other at the same time.
        until("the other one is found", || ports(&followed.cluster).len() > 1).await;
        assert!(are(&followed.cluster, without), "{host}");

        config.discover_ignore.clear();
        followed.cluster.reload(config.clone()).unwrap();
        until("it is wanted", || are(&followed.cluster, all)).await;
        config.discover_ignore = ignore(host);
        followed.cluster.reload(config.clone()).unwrap();
        until("it is not", || are(&followed.cluster, without)).await;
    }
}

#[tokio::test]
async fn a_primary_that_hangs_is_lost_and_comes_back() {
    let spec = Spec::new(Kind::Mariadb).nodes(2);
    let followed = Followed::start(spec, config::Topology::Replication, 2).await;
    followed.until_roles("the first picture", &[P, R]).await;
    let mut config = (*followed.cluster.config()).clone();
    // Long enough for the other one on a busy machine, and far shorter than checks take to find out.
    config.monitor.as_mut().unwrap().timeout = Duration::from_secs(1);
    config.check.timeout = Duration::from_secs(20);
    followed.cluster.reload(config).unwrap();
    followed.with_node(0, |node| node.freeze().unwrap()).await;
    let took = followed.until_roles("it does not answer", &[U, R]).await;
    assert!(took < Duration::from_secs(20), "{took:?}");
    followed.with_node(0, |node| node.thaw().unwrap()).await;
    followed.until_roles("it answers", &[P, R]).await;
}

#[tokio::test]
async fn a_restarted_primary_takes_statements_soon() {
    let followed = Followed::start(Spec::new(Kind::Mariadb), config::Topology::Replication, 1).await;
    let mut config = (*followed.cluster.config()).clone();
    config.check.interval = Duration::from_secs(60);
    followed.cluster.reload(config).unwrap();
    followed.until_roles("the first picture", &[P]).await;
    followed.with_node(0, |node| node.kill9().unwrap()).await;
    followed.until_roles("it is lost", &[U]).await;
    followed.with_node(0, |node| node.restart().unwrap()).await;
    // Long before the next check is due.
    followed.until_roles("it is back", &[P]).await;
    let server = Arc::clone(&followed.cluster.topology().members[0].server);
    until("it is no longer suspected", || server.takes_statements()).await;
}

/// A server gives rights to the connections that come after the grant.
#[tokio::test]
async fn a_right_that_is_granted_later_is_taken_notice_of() {
    let followed = Followed::start(Spec::new(Kind::Mariadb), config::Topology::Replication, 1).await;
    followed.until_roles("the first picture", &[P]).await;
    followed
        .sql(0, "REVOKE SLAVE MONITOR ON *.* FROM watch; KILL USER watch")
        .await;
    followed.until_roles("it may not ask", &[U]).await;
    let reason = followed.cluster.topology().members[0].reason.clone();
    assert!(reason.contains("SLAVE MONITOR"), "{reason}");
    followed.sql(0, "GRANT SLAVE MONITOR ON *.* TO watch").await;
    followed.until_roles("it may ask again", &[P]).await;
}

#[tokio::test]
async fn what_replicas_have_applied_is_known_without_asking_them() {
    let followed = Followed::start(
        Spec::new(Kind::Mariadb).nodes(2),
        config::Topology::Replication,
        2,
    )
    .await;
    followed
        .sql(0, "CREATE TABLE t (id INT); INSERT INTO t VALUES (1)")
        .await;
    let position = followed.sql(0, "SELECT @@gtid_current_pos").await;
    let position = GtidSet::parse(Flavor::MariaDb, position.trim().as_bytes()).unwrap();
    assert!(!position.is_empty());
    until("all have it", || {
        let members = &followed.cluster.topology().members;
        members.iter().all(|member| {
            member
                .server
                .applied()
                .is_some_and(|applied| applied.covers(&position))
        })
    })
    .await;
}

#[tokio::test]
async fn two_primaries_that_nobody_decides_get_no_writes() {
    let spec = Spec::new(Kind::Mariadb).nodes(2);
    let followed = Followed::start(spec, config::Topology::Replication, 2).await;
    followed.until_roles("the first picture", &[P, R]).await;
    followed
        .sql(1, "STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only=0")
        .await;
    until("writes are refused", || {
        followed.cluster.topology().refuse_writes.is_some()
    })
    .await;
    let topology = followed.cluster.topology();
    assert_eq!(roles(&topology), [U, U], "{}", describe(&topology));
    assert_eq!(
        topology.refuse_writes.as_deref(),
        Some("n0 and n1 take writes, and nothing tells which is the primary")
    );
    followed.sql(0, "SET GLOBAL read_only=1").await;
    until("one of them gives way", || followed.primary() == Some(1)).await;
    assert_eq!(followed.cluster.topology().refuse_writes, None);
}

#[tokio::test]
async fn mysql_group_replication_through_a_failover() {
    let spec = Spec::new(Kind::GroupReplication).nodes(3);
    let followed = Followed::start(spec, config::Topology::GroupReplication, 3).await;
    followed.until_roles("the first picture", &[P, R, R]).await;
    assert_eq!(followed.cluster.topology().members[0].flavor, Some(Flavor::MySql));
    transactions_to_apply_are_counted(&followed, 0, 1).await;
    followed.with_node(0, |node| node.kill9().unwrap()).await;
    until("the primary is lost", || followed.primary() != Some(0)).await;
    until("the group has elected another", || {
        let roles = followed.roles();
        roles == [U, P, R] || roles == [U, R, P]
    })
    .await;

    followed.with_node(0, |node| node.restart().unwrap()).await;
    until("it is back in the group", || followed.roles()[0] == R).await;
}

#[tokio::test]
async fn galera_through_a_failover() {
    let spec = Spec::new(Kind::Galera).nodes(3);
    let followed = Followed::start(spec, config::Topology::Galera, 3).await;
    until("one writer, two readers", || {
        let roles = followed.roles();
        followed.primary().is_some() && roles.iter().filter(|role| **role == R).count() == 2
    })
    .await;
    let first = followed.primary().unwrap();
    transactions_to_apply_are_counted(&followed, first, (first + 1) % 3).await;
    followed.with_node(first, |node| node.kill9().unwrap()).await;
    until("the writer is lost", || followed.primary() != Some(first)).await;
    until("another writes", || followed.primary().is_some()).await;

    followed.with_node(first, |node| node.restart().unwrap()).await;
    // One of the others gives it what it has missed, and takes no writes meanwhile: it may be the one that
    // took them.
    until("it is back in the cluster", || {
        followed.roles()[first] == R && followed.primary().is_some()
    })
    .await;
    let second = followed.primary().unwrap();

    followed.sql(second, "SET GLOBAL wsrep_desync=ON").await;
    until("a desynced node loses the writes", || {
        followed.primary().is_some_and(|primary| primary != second) && followed.roles()[second] == U
    })
    .await;
    followed.sql(second, "SET GLOBAL wsrep_desync=OFF").await;
    until("it is synced", || followed.roles()[second] == R).await;
    a_donor_is_seen_and_obeyed(&followed, second).await;
}
