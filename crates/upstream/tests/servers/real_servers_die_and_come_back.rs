//! A real server frozen, thawed, killed and restarted: noticed each time, without help.

use std::sync::Arc;
use std::time::Duration;

use sandbox::{Kind, Sandbox, Spec};
use upstream::{Cluster, Status};

use crate::play::{by_name, cluster, server, status, take_lease, until};

#[tokio::test]
async fn mariadb() {
    let sandbox = tokio::task::spawn_blocking(|| Sandbox::start(Spec::new(Kind::Mariadb).nodes(2)))
        .await
        .unwrap()
        .unwrap();
    let [a, b] = [sandbox.node(0), sandbox.node(1)];
    let mut config = cluster(vec![
        server("a", a.address().parse().unwrap()),
        server("b", b.address().parse().unwrap()),
    ]);
    config.check.interval = Duration::from_millis(100);
    config.check.timeout = Duration::from_secs(2);
    let cluster = Cluster::new(config).unwrap();
    let checks = tokio::spawn(Arc::clone(&cluster).run_checks());
    let reason = |name: &str| by_name(&cluster, name).state().reason.clone();
    let both = || status(&cluster, "a") == Status::Up && status(&cluster, "b") == Status::Up;
    until("both up", both).await;

    a.freeze().unwrap();
    until("a down", || status(&cluster, "a") == Status::Down).await;
    assert_eq!(
        reason("a"),
        "no greeting within 2s",
        "the kernel still accepts for it"
    );
    let lease = take_lease(&cluster).await.unwrap();
    assert_eq!((lease.server.name(), lease.failures.len()), ("b", 0));
    a.thaw().unwrap();
    until("both up", both).await;

    b.kill9().unwrap();
    // Before or after a check has found out: the session gets the other one.
    let lease = take_lease(&cluster).await.unwrap();
    assert_eq!(lease.server.name(), "a");
    until("b down", || status(&cluster, "b") == Status::Down).await;
    assert_eq!(reason("b"), format!("connection refused by {}", b.address()));
    b.restart().unwrap();
    until("both up", both).await;
    checks.abort();
}
