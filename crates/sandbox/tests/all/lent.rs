//! A server that is lent twice is to its second user as a new one, and so is a cluster.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use sandbox::{Kind, Node, Sandbox, Spec};

/// The tests share the servers that wait: each asks for one of its own.
fn spec(kind: Kind, name: &str) -> Spec {
    Spec::new(kind).option(format!("--init-connect=/* {name} */"))
}

/// Far above what anything here needs: a busy machine is no failure.
const PATIENCE: Duration = Duration::from_secs(60);

fn until(mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE);
    }
}

/// A client that stays connected, with the table `kept` under lock.
fn lock(node: &Node, how: &str) -> Child {
    let mut client = node.client();
    let mut stays = client
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut words = stays.stdin.take().unwrap();
    let statements = format!("LOCK TABLES kept {how}; DO SLEEP(100);\n");
    std::io::Write::write_all(&mut words, statements.as_bytes()).unwrap();
    let sleeps = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'DO SLEEP%'";
    until(|| node.sql(sleeps).unwrap() == "1\n");
    stays
}

fn is_clean_the_second_time(kind: Kind) {
    let spec = spec(kind, "clean");
    let first = Sandbox::lend(spec.clone()).unwrap();
    let node = first.primary();
    let (pid, folder) = (node.pid(), first.folder().to_path_buf());
    let logged = node.sql("SHOW BINARY LOGS").unwrap();
    node.sql(
        "CREATE DATABASE `a``b`; CREATE TABLE `a``b`.t (id INT); CREATE TABLE kept (id INT);
         CREATE USER guest@'%' IDENTIFIED BY 'secret'; CREATE ROLE reader; GRANT SELECT ON test.* TO guest@'%';
         SET GLOBAL max_connections = 77; SET GLOBAL time_zone = '+03:00'; SET GLOBAL read_only = ON;",
    )
    .unwrap();
    std::fs::write(folder.join("left"), "behind").unwrap();
    let mut stays = lock(node, "WRITE");
    drop(first);

    let second = Sandbox::lend(spec).unwrap();
    let node = second.primary();
    assert_eq!(node.pid(), pid, "it is the same server");
    assert_eq!(node.sql("SHOW TABLES").unwrap(), "");
    assert!(!node.sql("SHOW DATABASES").unwrap().contains("a`b"));
    assert_eq!(
        node.sql("SELECT user FROM mysql.user WHERE user IN ('guest', 'reader')")
            .unwrap(),
        ""
    );
    let set = node.sql("SELECT @@GLOBAL.max_connections, @@GLOBAL.time_zone, @@GLOBAL.read_only");
    assert_eq!(set.unwrap(), "1000\tSYSTEM\t0\n");
    assert_eq!(
        node.sql("SHOW BINARY LOGS").unwrap().lines().count(),
        logged.lines().count()
    );
    assert!(!folder.join("left").exists());
    assert!(!stays.wait().unwrap().success(), "its connection was ended");
}

fn is_another_one_after(kind: Kind, name: &str, harm: impl Fn(&Sandbox)) {
    let spec = spec(kind, name);
    let first = Sandbox::lend(spec.clone()).unwrap();
    let folder = first.folder().to_path_buf();
    harm(&first);
    drop(first);
    let second = Sandbox::lend(spec).unwrap();
    assert_ne!(second.folder(), folder, "{name}");
    assert!(!folder.exists(), "{name}: it is gone");
}

macro_rules! on_both {
    ($($name:ident)*) => {
        mod mariadb { $(#[test] fn $name() { super::$name(sandbox::Kind::Mariadb); })* }
        mod mysql { $(#[test] fn $name() { super::$name(sandbox::Kind::Mysql); })* }
    };
}
on_both!(is_clean_the_second_time ends_when_it_cannot_be_cleaned replicates_as_at_first);

fn ends_when_it_cannot_be_cleaned(kind: Kind) {
    is_another_one_after(kind, "restarted", |sandbox| sandbox.primary().restart().unwrap());
    is_another_one_after(kind, "prepared", |sandbox| {
        let sql =
            "CREATE TABLE t (id INT); XA START 'x'; INSERT INTO t VALUES (1); XA END 'x'; XA PREPARE 'x'";
        sandbox.primary().sql(sql).unwrap();
    });
    is_another_one_after(kind, "changed", |sandbox| {
        sandbox
            .primary()
            .sql("ALTER USER forebay@'%' IDENTIFIED BY 'other'")
            .unwrap();
    });
}

/// A primary and a replica that replicate, and have nothing of what was before.
fn is_as_new(cluster: &Sandbox) {
    let [primary, replica] = cluster.nodes() else {
        panic!("two nodes")
    };
    let states = [primary, replica].map(|node| {
        assert_eq!(node.sql("SHOW TABLES").unwrap(), "");
        assert!(!node.sql("SHOW DATABASES").unwrap().contains("left_behind"));
        node.sql("SELECT @@GLOBAL.read_only, @@GLOBAL.max_connections")
            .unwrap()
    });
    assert_eq!(states, ["0\t1000\n", "1\t1000\n"]);
    primary
        .sql("CREATE TABLE kept (id INT PRIMARY KEY); INSERT INTO kept VALUES (1)")
        .unwrap();
    cluster.sync().unwrap();
    assert_eq!(replica.sql("SELECT id FROM kept").unwrap(), "1\n");
}

fn replicates_as_at_first(kind: Kind) {
    let spec = spec(kind, "cluster").nodes(2);
    let pids = |cluster: &Sandbox| cluster.nodes().iter().map(Node::pid).collect::<Vec<_>>();
    let late = Sandbox::lend(spec.clone()).unwrap();
    let before = pids(&late);
    is_as_new(&late);
    let delay = match kind {
        Kind::Mysql => {
            "STOP REPLICA SQL_THREAD; CHANGE REPLICATION SOURCE TO SOURCE_DELAY = 3600; START REPLICA SQL_THREAD"
        }
        _ => "STOP SLAVE; CHANGE MASTER TO MASTER_DELAY = 3600; START SLAVE",
    };
    late.node(1).sql(delay).unwrap();
    late.primary().sql("CREATE DATABASE left_behind").unwrap();
    drop(late);

    let switched = Sandbox::lend(spec.clone()).unwrap();
    assert_eq!(pids(&switched), before, "they are the same servers");
    is_as_new(&switched);
    let [old, new] = switched.nodes() else {
        panic!("two nodes")
    };
    new.promote().unwrap();
    old.follow(new, true).unwrap();
    new.sql("CREATE DATABASE left_behind; SET GLOBAL max_connections = 77")
        .unwrap();
    until(|| old.has(&new.position().unwrap()).unwrap());
    let mut stays = lock(old, "READ");
    new.sql("INSERT INTO kept VALUES (2)").unwrap();
    let waits = "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE '%metadata lock%'";
    until(|| old.sql(waits).unwrap() != "0\n");
    drop(switched);

    let harmed = Sandbox::lend(spec).unwrap();
    assert_eq!(pids(&harmed), before, "they are the same servers");
    assert!(!stays.wait().unwrap().success(), "its connection was ended");
    is_as_new(&harmed);
    let folder = harmed.folder().to_path_buf();
    harmed.node(1).freeze().unwrap();
    harmed.node(1).thaw().unwrap();
    drop(harmed);
    assert!(!folder.exists(), "nobody gets servers that stood still");
}
