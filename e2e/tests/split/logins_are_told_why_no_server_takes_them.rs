//! Servers that are up, and of which none has a role that takes sessions: no login works, and everybody who
//! asks is told why.

use e2e::{Gateway, client, eventually, kind};
use mysql_async::Conn;
use sandbox::Kind;

use crate::a_new_primary_is_followed::promote;
use crate::cluster;

/// The gateway says that it is not ready and why, server by server. The client, which nobody knows yet, is
/// told of no server.
async fn is_told(gateway: &Gateway, addresses: &[String], why: &str) {
    let mut ready = (0, String::new());
    eventually("readyz says why", async || {
        ready = gateway.get("/readyz");
        // The first looks may be over before the first checks, which have a line of their own.
        ready.0 == 503 && ready.1.contains(why) && !ready.1.contains("no server is up")
    })
    .await;
    let beginning = "cluster main: mode split refuses every login: ";
    assert!(ready.1.starts_with(beginning), "{}", ready.1);
    assert_eq!(ready.1.lines().count(), 1, "{}", ready.1);
    let error = Conn::new(client::options(gateway)).await.unwrap_err();
    assert_eq!(client::code(&error), 1429, "{error}");
    let error = error.to_string();
    assert!(
        error.contains("no server available: none in cluster main; the gateway's log says why"),
        "{error}"
    );
    assert!(!error.contains(why), "{error}");
    for address in addresses {
        assert!(ready.1.contains(address), "{}", ready.1);
        assert!(!error.contains(address), "{error}");
    }
}

#[tokio::test]
async fn where_the_monitor_may_not_ask() {
    let sandbox = cluster::replicated();
    let create = "CREATE USER blind@'%' IDENTIFIED BY 'blind'";
    sandbox.primary().sql(create).unwrap();
    sandbox.sync().unwrap();
    let setup = e2e::Setup::of_addresses(sandbox.addresses())
        .mode("split")
        .tables(&cluster::user(sandbox::USER, sandbox::PASSWORD))
        .cluster("topology = \"replication\"\nmonitor = { user = \"blind\", password = \"blind\", interval = \"100ms\" }");
    let gateway = setup.start_unready();
    is_told(&gateway, &sandbox.addresses(), "privilege").await;
    let grant = match kind() {
        Kind::Mysql => "GRANT REPLICATION CLIENT ON *.* TO blind@'%'",
        _ => "GRANT SLAVE MONITOR, BINLOG MONITOR ON *.* TO blind@'%'",
    };
    sandbox.primary().sql(grant).unwrap();
    cluster::knows(&gateway, 2).await;
    assert_eq!(gateway.get("/readyz"), (200, "ok\n".to_owned()));
    Conn::new(client::options(&gateway)).await.unwrap();
}

#[tokio::test]
async fn where_every_server_takes_writes() {
    let sandbox = cluster::replicated();
    let gateway = cluster::start(cluster::split(&sandbox), 2).await;
    promote(sandbox.node(1));
    promote(sandbox.node(2));
    is_told(&gateway, &sandbox.addresses(), "takes writes").await;
    let read_only = match kind() {
        Kind::Mysql => "SET GLOBAL super_read_only = ON",
        _ => "SET GLOBAL read_only = ON",
    };
    // One primary is enough for sessions.
    sandbox.node(1).sql(read_only).unwrap();
    sandbox.node(2).sql(read_only).unwrap();
    eventually("it is ready", async || gateway.get("/readyz").0 == 200).await;
    Conn::new(client::options(&gateway)).await.unwrap();
}
