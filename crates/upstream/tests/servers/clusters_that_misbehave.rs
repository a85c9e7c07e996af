//! Real clusters as their operators break them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::{Secret, ServerAddress};
use sandbox::{Kind, Node, Spec};
use telemetry::Source;
use upstream::{Cluster, Role};

use crate::play::until;
use crate::the_cluster_is_followed::Followed;

const P: Role = Role::Primary;
const R: Role = Role::Replica;
const U: Role = Role::Unusable;

/// A figure of the cluster as a scrape would have it.
fn metric(cluster: &Arc<Cluster>, name: &str) -> String {
    struct Shared(Arc<Cluster>);
    impl Source for Shared {
        fn collect(&self, out: &mut telemetry::Samples) {
            self.0.collect(out);
        }
    }
    let telemetry = telemetry::Telemetry::new(1, |_| "other");
    telemetry.register(Arc::new(Shared(Arc::clone(cluster))));
    let text = telemetry.encode();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name} in\n{text}"))
        .trim()
        .to_owned()
}

fn reason(followed: &Followed, at: usize) -> String {
    followed.cluster.topology().members[at].reason.clone()
}

/// It stops taking writes and takes them again, over and over: believed at once for some time, and then only
/// when it lasts.
#[tokio::test]
async fn a_primary_that_flaps_is_not_believed_each_time() {
    let followed = Followed::start(Spec::new(Kind::Mariadb), config::Topology::Replication, 1).await;
    followed.until_roles("the first picture", &[P]).await;
    let damped = || {
        metric(
            &followed.cluster,
            "forebay_primary_damped_total{cluster=\"main\"}",
        )
    };
    for turn in 1..=3 {
        followed.sql(0, "SET GLOBAL read_only=1").await;
        followed.until_roles("it takes no writes", &[R]).await;
        assert_eq!(damped(), "0", "turn {turn}");
        let begun = Instant::now();
        followed.sql(0, "SET GLOBAL read_only=0").await;
        if turn == 3 {
            until("it is not believed", || damped() == "1").await;
        }
        followed.until_roles("it takes writes", &[P]).await;
        assert!(
            turn < 3 || begun.elapsed() >= Duration::from_secs(1),
            "{:?}",
            begun.elapsed()
        );
    }
    assert_eq!(damped(), "1");
}

/// Seeds by name and by address, and nobody follows it who could tell which is meant.
#[tokio::test]
async fn one_server_by_two_names_is_one_server() {
    let followed = Followed::start(Spec::new(Kind::Mariadb), config::Topology::Replication, 1).await;
    followed.until_roles("the first picture", &[P]).await;
    let port = followed.sandbox.primary().port();
    let mut config = (*followed.cluster.config()).clone();
    let by_name = ServerAddress::Host {
        host: "localhost".to_owned(),
        port,
    };
    config.servers.push(config::Server::new(by_name));
    followed.cluster.reload(config).unwrap();
    until("it is seen by both names", || {
        followed.roles() == [P, U] && reason(&followed, 1) == "is the same server as n0"
    })
    .await;
    assert_eq!(followed.cluster.topology().refuse_writes, None);
}

/// What the server says of it itself has statements, rows and hashes of passwords in it.
#[tokio::test]
async fn what_stopped_a_replica_is_told_without_what_is_nobodys_business() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let followed = Followed::start(Spec::new(kind).nodes(2), config::Topology::Replication, 2).await;
        followed.until_roles("the first picture", &[P, R]).await;
        followed
            .sql(0, "CREATE TABLE t (v VARCHAR(20) PRIMARY KEY)")
            .await;
        let sandbox = Arc::clone(&followed.sandbox);
        tokio::task::spawn_blocking(move || sandbox.sync().unwrap())
            .await
            .unwrap();
        let (open, close) = match kind {
            Kind::Mysql => ("SET GLOBAL super_read_only=0; ", "; SET GLOBAL super_read_only=1"),
            _ => ("", ""),
        };
        let insert = "INSERT INTO t VALUES ('private')";
        followed
            .sql(1, &format!("SET sql_log_bin=0; {open}{insert}{close}"))
            .await;
        followed.sql(0, insert).await;
        followed.until_roles("it applies nothing", &[P, U]).await;
        let address = followed.sandbox.primary().address();
        assert_eq!(
            reason(&followed, 1),
            format!(
                "applies nothing from {address}: error 1062, a row with the same key is there already \
                 (SHOW REPLICA STATUS on that server has the rest)"
            )
        );
    }
}

/// Whoever made it read-only did so for as long as it ran, and it comes back before its primary, whom its
/// configuration here calls otherwise.
#[tokio::test]
async fn a_replica_that_is_back_before_its_primary_takes_no_writes() {
    let spec = Spec::new(Kind::Mariadb).nodes(2);
    let followed = Followed::start(spec, config::Topology::Replication, 2).await;
    followed.until_roles("the first picture", &[P, R]).await;
    let mut config = (*followed.cluster.config()).clone();
    for server in &mut config.servers {
        let ServerAddress::Host { host, .. } = &mut server.address else {
            panic!("on loopback")
        };
        "localhost".clone_into(host);
    }
    followed.cluster.reload(config).unwrap();
    followed.until_roles("by their names", &[P, R]).await;
    let changes = || {
        metric(
            &followed.cluster,
            "forebay_primary_changes_total{cluster=\"main\"}",
        )
    };
    let before: u32 = changes().parse().unwrap();
    for node in [1, 0] {
        followed.with_node(node, |node| node.kill9().unwrap()).await;
    }
    followed.until_roles("nobody is left", &[U, U]).await;
    followed.with_node(1, |node| node.restart().unwrap()).await;
    until("it has been looked at", || {
        followed.roles()[1] != U || reason(&followed, 1).contains("takes")
    })
    .await;
    let is_writable = followed.sql(1, "SELECT @@read_only").await;
    assert_eq!(
        (is_writable.trim(), followed.primary()),
        ("0", None),
        "{}",
        reason(&followed, 1)
    );
    followed.with_node(0, |node| node.restart().unwrap()).await;
    followed.until_roles("both are back", &[P, R]).await;
    assert_eq!(changes(), (before + 1).to_string());
}

/// First on the server, and then here. The connection that is open goes on; no other is let in.
#[tokio::test]
async fn a_monitor_whose_password_has_changed_is_let_in_once_it_knows() {
    let followed = Followed::start(Spec::new(Kind::Mariadb), config::Topology::Replication, 1).await;
    followed.until_roles("the first picture", &[P]).await;
    followed.sql(0, "ALTER USER watch IDENTIFIED BY 'new'").await;
    let name = "forebay_looks_total{cluster=\"main\",server=\"n0\"}";
    let looks = || metric(&followed.cluster, name).parse::<u32>().unwrap();
    let before = looks();
    until("it is looked at", || looks() > before + 2).await;
    assert_eq!(followed.roles(), [P]);
    followed.sql(0, "KILL USER watch").await;
    followed.until_roles("nobody can say what it is", &[U]).await;
    assert!(
        reason(&followed, 0).contains("Access denied"),
        "{}",
        reason(&followed, 0)
    );
    let mut config = (*followed.cluster.config()).clone();
    config.monitor.as_mut().unwrap().password = Some(Secret::new("new"));
    followed.cluster.reload(config).unwrap();
    followed.until_roles("it is let in", &[P]).await;
}

/// Keeps a node from applying what others write to the table `held`, until it is dropped.
struct Held(Child);

impl Held {
    fn back(node: &Node) -> Self {
        let mut client = node.client();
        client
            .arg("--unbuffered")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut client = client.spawn().unwrap();
        let lock = b"LOCK TABLES held READ; SELECT 'locked';\n";
        let stdin = client.stdin.as_mut().unwrap();
        stdin.write_all(lock).and_then(|()| stdin.flush()).unwrap();
        let mut said = String::new();
        BufReader::new(client.stdout.as_mut().unwrap())
            .read_line(&mut said)
            .unwrap();
        assert_eq!(said.trim(), "locked");
        Self(client)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Those that a replica has received and not applied, as members of a group and nodes of Galera say.
pub(crate) async fn transactions_to_apply_are_counted(followed: &Followed, primary: usize, replica: usize) {
    let behind = || followed.cluster.topology().members[replica].transactions_behind;
    followed
        .sql(primary, "CREATE TABLE held (id INT PRIMARY KEY)")
        .await;
    let sandbox = Arc::clone(&followed.sandbox);
    let held = tokio::task::spawn_blocking(move || {
        sandbox.sync().unwrap();
        Held::back(sandbox.node(replica))
    });
    let held = held.await.unwrap();
    until("it has nothing to apply", || behind() == Some(0)).await;
    let inserts: String = (0..6)
        .map(|id| format!("INSERT INTO held VALUES ({id});"))
        .collect();
    followed.sql(primary, &inserts).await;
    // The one that waits for the lock may count or not.
    until("they are counted", || {
        behind().is_some_and(|behind| (5..=6).contains(&behind))
    })
    .await;
    assert_eq!(followed.roles()[replica], R);
    let name = format!("forebay_server_transactions_behind{{cluster=\"main\",server=\"n{replica}\"}}");
    until("a scrape says the same", || {
        behind().is_some_and(|behind| metric(&followed.cluster, &name) == behind.to_string())
    })
    .await;
    drop(held);
    until("they are applied", || behind() == Some(0)).await;
}

/// Of three Galera nodes one has lost its data, and another gives it all of its own: a real state transfer,
/// held up half way.
pub(crate) async fn a_donor_is_seen_and_obeyed(followed: &Followed, loses: usize) {
    let hold = |node: &Node| node.data_folder().with_file_name("hold_transfer");
    let others: Vec<usize> = (0..3).filter(|at| *at != loses).collect();
    for at in &others {
        std::fs::write(hold(followed.sandbox.node(*at)), "").unwrap();
    }
    followed
        .with_node(loses, |node| {
            node.kill9().unwrap();
            std::fs::remove_dir_all(node.data_folder()).unwrap();
            std::fs::create_dir(node.data_folder()).unwrap();
        })
        .await;
    let sandbox = Arc::clone(&followed.sandbox);
    let joins = tokio::task::spawn_blocking(move || sandbox.node(loses).restart().unwrap());
    let is_donor = |at: usize| reason(followed, at) == "is donor or desynced";
    until("a node gives its data", || others.iter().any(|at| is_donor(*at))).await;
    let donor = others.iter().copied().find(|at| is_donor(*at)).unwrap();
    let writer = others.iter().copied().find(|at| *at != donor).unwrap();
    let roles = |of_donor| {
        let mut roles = [U; 3];
        (roles[donor], roles[writer]) = (of_donor, P);
        roles
    };
    followed
        .until_roles("the other one takes the writes", &roles(U))
        .await;
    let mut config = (*followed.cluster.config()).clone();
    config.donor_reads = true;
    followed.cluster.reload(config.clone()).unwrap();
    followed
        .until_roles("it takes reads where it may", &roles(R))
        .await;
    config.donor_reads = false;
    followed.cluster.reload(config).unwrap();
    followed.until_roles("and none where it may not", &roles(U)).await;
    for at in &others {
        std::fs::remove_file(hold(followed.sandbox.node(*at))).unwrap();
    }
    joins.await.unwrap();
    until("all are synced", || {
        let roles = followed.roles();
        roles.iter().filter(|role| **role == R).count() == 2 && roles.contains(&P)
    })
    .await;
}
