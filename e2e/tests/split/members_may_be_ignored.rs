//! A server is taken out of a cluster whose members are discovered: it comes back as long as others name it,
//! unless it is ignored.

use e2e::{Gateway, Setup, eventually, kind};
use sandbox::{PASSWORD, Sandbox, Spec, USER};

use crate::cluster;

fn setup(sandbox: &Sandbox, servers: &[usize]) -> Setup {
    let servers = servers
        .iter()
        .map(|at| format!("{:?}", sandbox.node(*at).address()));
    Setup::of_addresses(sandbox.addresses())
        .servers(servers)
        .mode("split")
        .tables(&cluster::user(USER, PASSWORD))
        .cluster("topology = \"replication\"")
        .cluster(&cluster::monitor())
}

/// Whether the log has a line with all of these.
fn logged(gateway: &Gateway, parts: &[&str]) -> bool {
    let log = gateway.log();
    log.lines()
        .any(|line| parts.iter().all(|part| line.contains(part)))
}

#[tokio::test]
async fn and_stay_away_then() {
    // Without it servers of MySQL do not say who follows them.
    let spec = Spec::new(kind()).nodes(3).option("--report-host=127.0.0.1");
    let sandbox = Sandbox::start(spec).unwrap();
    let gone = sandbox.node(1).address();
    let mut gateway = cluster::start(setup(&sandbox, &[0, 1, 2]), 2).await;

    assert!(gateway.reload(setup(&sandbox, &[0, 2])).await);
    eventually("the log says what comes of it", async || {
        logged(
            &gateway,
            &["server removed", &gone, "discovery takes it up again"],
        )
    })
    .await;
    eventually("it is back, and who named it is told", async || {
        logged(&gateway, &["server added", &gone, "named_by"])
    })
    .await;
    cluster::knows(&gateway, 2).await;

    let ignore = format!("discover_ignore = [\"localhost:{}\"]", sandbox.node(1).port());
    assert!(gateway.reload(setup(&sandbox, &[0, 2]).cluster(&ignore)).await);
    eventually("it goes", async || {
        logged(
            &gateway,
            &["server removed", &gone, "its address is in `discover_ignore`"],
        )
    })
    .await;
    cluster::knows(&gateway, 1).await;

    // At once: nobody takes it up in between.
    let added = |gateway: &Gateway| gateway.log().matches("server added").count();
    assert!(gateway.reload(setup(&sandbox, &[0, 1, 2])).await);
    cluster::knows(&gateway, 2).await;
    let before = added(&gateway);
    let ignore = format!("discover_ignore = [{gone:?}]");
    assert!(gateway.reload(setup(&sandbox, &[0, 2]).cluster(&ignore)).await);
    cluster::knows(&gateway, 1).await;
    let removed = |line: &&str| line.contains("server removed") && line.contains(&gone);
    eventually("the log says so", async || {
        gateway.log().lines().filter(removed).count() == 3
    })
    .await;
    let log = gateway.log();
    let last = log.lines().rfind(removed).unwrap();
    assert!(!last.contains("discovery"), "{last}");
    assert_eq!(added(&gateway), before);
}
