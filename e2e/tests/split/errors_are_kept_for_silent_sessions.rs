//! A session whose last statement failed may ask for the error, and keeps its connection for that. While
//! others wait for connections the gateway keeps the error instead, and what the session is told of it is
//! what it would have been told anyway.

use std::net::TcpStream;

use e2e::{Setup, client, eventually, kind};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::{Kind, PASSWORD, USER};

use crate::cluster;
use crate::statements_of_every_kind_are_as_on_one_server::in_words;

const FAILING: [&str; 5] = [
    "SELECT nothing",
    "SELECT * FROM `it's not there`",
    "UPDATE not_there SET v = 1",
    "INSERT INTO t (id) VALUES (1)",
    "p:SELECT nothing FROM t",
];

/// One a line, with `|` between statements; `M` in front: on MariaDB only.
const ASKING: &str = "
SHOW WARNINGS | SHOW WARNINGS
SHOW ERRORS | SHOW ERRORS LIMIT 1
SHOW COUNT(*) ERRORS | SHOW COUNT(*) WARNINGS
SELECT @@error_count, @@warning_count, ROW_COUNT(), LAST_INSERT_ID()
p:SHOW WARNINGS | SHOW ERRORS LIMIT 1
GET DIAGNOSTICS CONDITION 1 @s = RETURNED_SQLSTATE, @e = MYSQL_ERRNO, @m = MESSAGE_TEXT, @c = CLASS_ORIGIN, @u = SUBCLASS_ORIGIN | SELECT @s, @e, @m, @c, @u
GET DIAGNOSTICS @n = NUMBER, @r = ROW_COUNT | SELECT @n, @r
GET DIAGNOSTICS CONDITION 1 @t = TABLE_NAME, @k = CONSTRAINT_NAME, @d = SCHEMA_NAME, @l = COLUMN_NAME | SELECT @t, @k, @d, @l
SELECT ROW_COUNT()
M SET @a = 1 | SHOW WARNINGS | SELECT @a
M BEGIN | SHOW WARNINGS | COMMIT | SHOW ERRORS
";

fn asking() -> Vec<&'static str> {
    let lines = ASKING.lines().map(str::trim).filter(|line| !line.is_empty());
    let own = lines.filter_map(|line| match line.strip_prefix("M ") {
        Some(_) if kind() == Kind::Mysql => None,
        of_mariadb => Some(of_mariadb.unwrap_or(line)),
    });
    own.collect()
}

async fn play(session: &mut Conn, statement: &str) -> String {
    let told = match statement.strip_prefix("p:") {
        Some(text) => match session.exec_iter(text, ()).await {
            Ok(result) => Ok(in_words(result).await),
            Err(error) => Err(error),
        },
        None => match session.query_iter(statement).await {
            Ok(result) => Ok(in_words(result).await),
            Err(error) => Err(error),
        },
    };
    told.unwrap_or_else(|error| format!("error {}", client::code(&error)))
}

async fn directly(schema: &str) -> Conn {
    let options = client::options_at(cluster::single().primary().port());
    let mut direct = Conn::new(options).await.unwrap();
    for statement in [
        &*format!("CREATE DATABASE {schema}"),
        &*format!("USE {schema}"),
        "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v INT)",
        "INSERT INTO t VALUES (1, 1)",
    ] {
        direct.query_drop(statement).await.unwrap();
    }
    direct
}

#[tokio::test]
async fn while_others_have_all_connections() {
    if kind() == Kind::Mysql {
        return;
    }
    let (mut there, asking) = (directly("errors").await, asking());
    let scripts: Vec<(&str, &str)> = FAILING
        .into_iter()
        .flat_map(|failing| asking.iter().map(move |asking| (failing, *asking)))
        .collect();
    // One more than those of the silent: where all are taken, connections are wanted.
    let connections = scripts.len() as u32 + 1;
    let gateway = cluster::narrow(cluster::single(), connections)
        .cluster("pool = { adaptive = false }\nqueue_timeout = \"50s\"")
        .start();
    let held = || {
        gateway
            .get("/sessions?pinned=true")
            .1
            .matches("diagnostics")
            .count()
    };
    let mut sessions = Vec::new();
    for (failing, _) in &scripts {
        let mut own = cluster::connect_to(&gateway, "errors").await;
        assert!(play(&mut own, failing).await.starts_with("error "), "{failing}");
        sessions.push(own);
    }
    eventually("the silent hold their connections", async || {
        held() == scripts.len()
    })
    .await;
    let mut others = Vec::new();
    for _ in 0..connections {
        let mut other = cluster::connect_to(&gateway, "errors").await;
        others.push(tokio::spawn(async move {
            other.query_drop("BEGIN").await.unwrap();
            other.query_drop("SELECT CAST('x' AS SIGNED)").await.unwrap();
            other
        }));
    }
    let mut busy = Vec::new();
    for other in others {
        busy.push(other.await.unwrap());
    }
    for mut other in busy {
        other.query_drop("COMMIT").await.unwrap();
        other.query_drop("SELECT v FROM t").await.unwrap();
    }
    eventually("they hold none", async || held() == 0).await;
    for ((failing, asking), own) in scripts.into_iter().zip(&mut sessions) {
        there.query_drop("DO LAST_INSERT_ID(0)").await.unwrap();
        play(&mut there, failing).await;
        for statement in asking.split(" | ") {
            let (expected, told) = (play(&mut there, statement).await, play(own, statement).await);
            assert_eq!(told, expected, "{failing} | {asking}");
        }
    }
}

/// Its client looks at the error, or whether the server is there.
#[tokio::test]
async fn over_commands_that_leave_it_as_it_is() {
    if kind() == Kind::Mysql {
        return;
    }
    let mut there = directly("errors_looked_at").await;
    let gateway = cluster::narrow(cluster::single(), 1)
        .cluster("queue_timeout = \"50s\"")
        .start();
    let mut own = cluster::connect_to(&gateway, "errors_looked_at").await;
    let mut other = cluster::connect_to(&gateway, "errors_looked_at").await;
    for statement in ["SELECT nothing", "ping", "SHOW WARNINGS", "SELECT @@error_count"] {
        let (expected, told) = match statement {
            "ping" => {
                own.ping().await.unwrap();
                continue;
            }
            _ => (play(&mut there, statement).await, play(&mut own, statement).await),
        };
        assert_eq!(told, expected, "{statement}");
        // There is one connection.
        other.query_drop("SELECT v FROM t").await.unwrap();
    }
}

/// Commands that do not ask for it are not held up by it, and those that ask are told by whoever is there.
#[tokio::test]
async fn where_there_is_no_primary() {
    if kind() == Kind::Mysql {
        return;
    }
    let mut there = directly("errors_at_replicas").await;
    // Nobody can listen at the end of a connection that is there.
    let taken = TcpStream::connect(cluster::single().primary().address()).unwrap();
    let servers = [
        format!(
            "{{ address = \"{}\", role = \"primary\" }}",
            taken.local_addr().unwrap()
        ),
        format!(
            "{{ address = {:?}, role = \"replica\", max_connections = 1 }}",
            cluster::single().primary().address()
        ),
    ];
    let gateway = Setup::of_addresses(cluster::single().addresses())
        .servers(servers)
        .mode("split")
        .top("workers = 1")
        .tables(&cluster::user(USER, PASSWORD))
        .cluster("failover_wait = \"300ms\"")
        .check("interval = \"100ms\"\ntimeout = \"20s\"\nrise = 1\nfall = 1")
        .start_unready();
    eventually(
        "one server is up, and it is known that the other is not",
        async || gateway.servers_up() == 1 && gateway.get("/status").1.contains("\"down\""),
    )
    .await;
    let mut own = cluster::connect_to(&gateway, "errors_at_replicas").await;
    let mut other = cluster::connect_to(&gateway, "errors_at_replicas").await;
    for script in [
        "SELECT nothing | START TRANSACTION READ ONLY | SHOW WARNINGS | COMMIT",
        "SELECT nothing FROM t | SHOW ERRORS",
    ] {
        for (at, statement) in script.split(" | ").enumerate() {
            let (expected, told) = (play(&mut there, statement).await, play(&mut own, statement).await);
            assert_eq!(told, expected, "{script}: {statement}");
            if at == 0 {
                other.query_drop("SELECT v FROM t").await.unwrap();
            }
        }
    }
}

/// There is more to be shown than the error.
#[tokio::test]
async fn but_not_with_warnings_before_it() {
    let mut there = directly("errors_and_more").await;
    there
        .query_drop("INSERT INTO t VALUES (2, 2), (3, 3)")
        .await
        .unwrap();
    let gateway = cluster::narrow(cluster::single(), 1)
        .cluster("queue_timeout = \"3s\"")
        .start();
    let mut own = cluster::connect_to(&gateway, "errors_and_more").await;
    let mut other = cluster::connect_to(&gateway, "errors_and_more").await;
    for statement in [
        "SET sql_mode = ''",
        "SELECT v FROM t",
        "INSERT INTO t (id, v) VALUES (1, 'x')",
    ] {
        assert_eq!(play(&mut own, statement).await, play(&mut there, statement).await);
    }
    let full = other.query_drop("SELECT v FROM t").await.unwrap_err();
    assert_eq!(client::code(&full), 1040, "{full}");
    for statement in [
        // What the gateway has asked counts rows of its own.
        "SELECT FOUND_ROWS()",
        "GET DIAGNOSTICS @n = NUMBER",
        "SELECT @n",
        "SHOW WARNINGS",
        "SELECT @@warning_count, @@error_count",
    ] {
        assert_eq!(play(&mut own, statement).await, play(&mut there, statement).await);
    }
    own.disconnect().await.unwrap();
    other.query_drop("SELECT v FROM t").await.unwrap();
}
