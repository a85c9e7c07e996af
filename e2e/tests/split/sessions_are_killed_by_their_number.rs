//! The number that a client was told is the gateway's own: `KILL` and `KILL QUERY` find the session wherever
//! it is, and never hit whoever has its connection now.

use e2e::{Gateway, Setup, client, eventually, kind};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use mysql_wire::{Capabilities, Command};
use sandbox::{DATABASE, Kind, PASSWORD, USER};

use crate::cluster::{self, narrow, user};

fn gateway() -> Gateway {
    let monitor = format!("monitor = {{ user = {USER:?}, password = {PASSWORD:?} }}");
    narrow(cluster::single(), 4).cluster(&monitor).start()
}

async fn runs(text: &str) {
    let question = format!(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%{text}%' AND id <> CONNECTION_ID()"
    );
    let server = cluster::single().primary();
    eventually("the statement runs", async || {
        server.sql(&question).unwrap().trim() == "1"
    })
    .await;
}

#[tokio::test]
async fn while_a_statement_runs() {
    let gateway = gateway();
    let (mut victim, mut killer) = (cluster::connect(&gateway).await, cluster::connect(&gateway).await);
    let mut bystander = cluster::connect(&gateway).await;
    let id = victim.id();
    let told: Option<u32> = victim.query_first("SELECT CONNECTION_ID()").await.unwrap();
    assert_eq!(told, Some(id));
    for _ in 0..3 {
        let sleeping = tokio::spawn(async move {
            let slept = victim
                .query_drop("SELECT id FROM (SELECT SLEEP(131) AS id) AS s")
                .await;
            (victim, slept)
        });
        runs("SLEEP(131)").await;
        killer.query_drop(format!("KILL QUERY {id}")).await.unwrap();
        let (back, slept) = sleeping.await.unwrap();
        victim = back;
        if let Err(error) = slept {
            assert_eq!(client::code(&error), 1317, "{error}");
        }
        victim.query_drop("SELECT 1").await.unwrap();
        // There is nothing to kill now, and nobody else is hit.
        killer.query_drop(format!("KILL QUERY {id}")).await.unwrap();
        for _ in 0..10 {
            bystander.query_drop("SELECT 1").await.unwrap();
            victim.query_drop("SELECT 1").await.unwrap();
        }
    }
    let sleeping = tokio::spawn(async move { victim.query_drop("SELECT SLEEP(132)").await });
    runs("SLEEP(132)").await;
    killer.query_drop(format!("KILL {id}")).await.unwrap();
    sleeping.await.unwrap().unwrap_err();
    bystander.query_drop("SELECT 1").await.unwrap();
    // As long as the gateway has not taken leave of the session, there is one that is being ended.
    eventually("nobody has the number any more", async || {
        let killed = killer.query_drop(format!("KILL {id}")).await;
        killed.is_err_and(|error| client::code(&error) == 1094)
    })
    .await;
}

/// A server goes on with a statement whose client is gone, and commits it.
#[tokio::test]
async fn with_what_it_does() {
    let gateway = gateway();
    let mut holder = cluster::connect(&gateway).await;
    holder
        .query_drop("CREATE TABLE killed (id INT PRIMARY KEY, v INT)")
        .await
        .unwrap();
    holder
        .query_drop("INSERT INTO killed VALUES (1, 1)")
        .await
        .unwrap();
    for over in ["KILL", "COM_PROCESS_KILL"] {
        let mut killer = cluster::connect_raw(&gateway.address(), DATABASE, Capabilities::default());
        let mut victim = cluster::connect(&gateway).await;
        let id = victim.id();
        holder.query_drop("BEGIN").await.unwrap();
        holder.query_drop("UPDATE killed SET v = 2").await.unwrap();
        let waiting = tokio::spawn(async move {
            let update = "UPDATE killed SET v = 3 WHERE id = 1 AND 'killed_while_it_waits' <> ''";
            victim.query_drop(update).await
        });
        runs("killed_while_it_waits").await;
        if over == "KILL" {
            killer.ask(&format!("KILL {id}"));
        } else {
            let kill = [&[Command::PROCESS_KILL.0], id.to_le_bytes().as_slice()].concat();
            killer.send_payload(0, &kill).unwrap();
            assert_eq!(killer.packet().unwrap().payload[0], 0);
        }
        waiting.await.unwrap().unwrap_err();
        let others = "SELECT COUNT(*) FROM information_schema.processlist
                      WHERE info LIKE '%killed_while_it_waits%' AND id <> CONNECTION_ID()";
        eventually("nobody waits", async || {
            cluster::single().primary().sql(others).unwrap().trim() == "0"
        })
        .await;
        holder.query_drop("COMMIT").await.unwrap();
        let v: Option<u8> = holder.query_first("SELECT v FROM killed").await.unwrap();
        assert_eq!(v, Some(2), "{over}");
    }
}

#[tokio::test]
async fn while_it_is_idle() {
    let gateway = gateway();
    let (mut victim, mut killer) = (cluster::connect(&gateway).await, cluster::connect(&gateway).await);
    victim.query_drop("BEGIN").await.unwrap();
    let lock = "SELECT GET_LOCK('of the victim', 0)";
    victim.query_drop(lock).await.unwrap();
    killer.query_drop(format!("KILL {}", victim.id())).await.unwrap();
    victim.query_drop("SELECT 1").await.unwrap_err();
    eventually("what it held is free", async || {
        cluster::ask(&mut killer, "SELECT IS_FREE_LOCK('of the victim')").await == Ok(Some("1".to_owned()))
    })
    .await;
    let itself = format!("KILL {}", killer.id());
    killer.query_drop(itself).await.unwrap_err();
    killer.query_drop("SELECT 1").await.unwrap_err();
}

/// The statement is over by the time its server is told: there is nothing to interrupt, and nothing has
/// failed.
#[tokio::test]
async fn when_its_statement_is_just_over() {
    let gateway = gateway();
    let (mut victim, mut killer) = (cluster::connect(&gateway).await, cluster::connect(&gateway).await);
    let id = victim.id();
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let works = tokio::spawn(async move {
        while stopped.try_recv().is_err() {
            // Interrupted at times.
            let _ = victim.query_drop("SELECT 1").await;
        }
        victim
    });
    for _ in 0..200 {
        killer.query_drop(format!("KILL QUERY {id}")).await.unwrap();
    }
    stop.send(()).unwrap();
    works.await.unwrap().query_drop("SELECT 1").await.unwrap();
    let unknown = killer.query_drop("KILL QUERY 4294967290").await.unwrap_err();
    assert_eq!(client::code(&unknown), 1094, "{unknown}");
}

async fn log_in(gateway: &Gateway, name: &str) -> Conn {
    let options = cluster::options(gateway).user(Some(name)).pass(Some("secret"));
    Conn::new(options.db_name(None::<String>)).await.unwrap()
}

fn right_to_kill() -> &'static str {
    match kind() {
        Kind::Mysql => "CONNECTION_ADMIN, SYSTEM_USER",
        _ => "CONNECTION ADMIN",
    }
}

#[tokio::test]
async fn by_those_who_may_end_sessions_of_others() {
    let sandbox = &e2e::servers(1)[0];
    // The session that is killed is of a system user of MySQL, which nobody ends who is none.
    let of_deputy = match kind() {
        Kind::Mysql => "CONNECTION_ADMIN, SUPER",
        _ => "PROCESS",
    };
    let create = format!(
        "CREATE USER chief@'%' IDENTIFIED BY 'secret'; CREATE USER clerk@'%' IDENTIFIED BY 'secret';
         CREATE USER deputy@'%' IDENTIFIED BY 'secret'; GRANT {of_deputy} ON *.* TO deputy@'%';
         GRANT {} ON *.* TO chief@'%'; GRANT ALL ON test.* TO clerk@'%'",
        right_to_kill()
    );
    sandbox.primary().sql(&create).unwrap();
    // A KILL has as much time as a check.
    let account = format!("user = {USER:?}\npassword = {PASSWORD:?}\ntimeout = \"20s\"");
    let [split, session] = [
        narrow(sandbox, 4)
            .tables(
                &["chief", "clerk", "deputy"]
                    .map(|name| user(name, "secret"))
                    .concat(),
            )
            .check(&account),
        Setup::of_addresses(sandbox.addresses()).check(&account),
    ]
    .map(Setup::start);
    for gateway in [&split, &session] {
        let mut chief = log_in(gateway, "chief").await;
        let mut clerk = log_in(gateway, "clerk").await;
        let mut deputy = log_in(gateway, "deputy").await;
        let mut victim = cluster::connect(gateway).await;
        // Its id is known once the gateway waits for its commands.
        victim.query_drop("DO 1").await.unwrap();
        let id = victim.id();
        for kill in [format!("KILL QUERY {id}"), format!("KILL {id}")] {
            let error = clerk.query_drop(&kill).await.unwrap_err();
            assert_eq!(client::code(&error), 1095, "{kill}: {error}");
            assert!(error.to_string().contains("not owner of thread"), "{error}");
            let error = deputy.query_drop(&kill).await.unwrap_err();
            assert_eq!(client::code(&error), 1095, "{kill}: {error}");
        }
        victim.query_drop("BEGIN").await.unwrap();
        let sleeping = tokio::spawn(async move {
            let slept = victim.query_drop("SELECT SLEEP(133)").await;
            (victim, slept)
        });
        let question = "SELECT COUNT(*) FROM information_schema.processlist
                        WHERE info LIKE '%SLEEP(133)%' AND id <> CONNECTION_ID()";
        eventually("the statement runs", async || {
            sandbox.primary().sql(question).unwrap().trim() == "1"
        })
        .await;
        chief.query_drop(format!("KILL QUERY {id}")).await.unwrap();
        let (mut victim, _) = sleeping.await.unwrap();
        // Rights are asked for on the connection that a session holds, too.
        chief.query_drop("BEGIN").await.unwrap();
        chief.query_drop(format!("KILL {id}")).await.unwrap();
        victim.query_drop("SELECT 1").await.unwrap_err();
        eventually("nobody has the number any more", async || {
            let killed = clerk.query_drop(format!("KILL {id}")).await;
            client::code(&killed.unwrap_err()) == 1094
        })
        .await;
    }
}

/// A client that looks for itself in the list of processes finds its own number there, and others find it.
#[tokio::test]
async fn which_lists_of_processes_have_as_well() {
    let sandbox = cluster::single();
    let in_session = || Setup::of_addresses(sandbox.addresses());
    for (setup, shows_others) in [
        (narrow(sandbox, 4), false),
        (in_session(), true),
        (
            in_session()
                .listener("moves = true")
                .tables(&user(USER, PASSWORD)),
            true,
        ),
    ] {
        let gateway = setup.start();
        let (mut one, mut other) = (cluster::connect(&gateway).await, cluster::connect(&gateway).await);
        // A client hears of its login a moment before others can find its session.
        other.query_drop("DO 1").await.unwrap();
        for list in ["SHOW PROCESSLIST", "show /* all */ full processlist"] {
            let rows: Vec<mysql_async::Row> = one.query(list).await.unwrap();
            let listed = |row: &mysql_async::Row| {
                (
                    row.get::<u32, _>(0).unwrap(),
                    row.get::<Option<String>, _>(7).unwrap(),
                )
            };
            let listed: Vec<_> = rows.iter().map(listed).collect();
            let own: Vec<_> = listed.iter().filter(|(id, _)| *id == one.id()).collect();
            assert_eq!(own.len(), 1, "{listed:?}");
            assert_eq!(own[0].1.as_deref(), Some(list));
            let has_other = listed.iter().any(|(id, _)| *id == other.id());
            assert_eq!(has_other, shows_others, "{listed:?}");
        }
        other.query_drop(format!("KILL {}", one.id())).await.unwrap();
        assert!(one.query_drop("SELECT 1").await.is_err());
    }
}
