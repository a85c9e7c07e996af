//! A server that is lent twice is to its second user as a new one.

use std::process::Stdio;

use sandbox::{Kind, Sandbox, Spec};

/// The tests share the servers that wait: each asks for one of its own.
fn spec(kind: Kind, name: &str) -> Spec {
    Spec::new(kind).option(format!("--init-connect=/* {name} */"))
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
    // Somebody who stays, with a table under lock.
    let mut client = first.primary().client();
    let mut stays = client
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut words = stays.stdin.take().unwrap();
    std::io::Write::write_all(&mut words, b"LOCK TABLES kept WRITE; DO SLEEP(100);\n").unwrap();
    let sleeps = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'DO SLEEP%'";
    while node.sql(sleeps).unwrap() != "1\n" {}
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
on_both!(is_clean_the_second_time ends_when_it_cannot_be_cleaned);

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
