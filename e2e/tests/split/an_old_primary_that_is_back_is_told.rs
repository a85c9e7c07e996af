//! The primary was replaced, and comes back as it was: whoever goes past the gateway would write there.

use e2e::eventually;

use crate::a_new_primary_is_followed::{follow, promote};
use crate::cluster;

#[tokio::test]
async fn in_the_log_and_once() {
    let sandbox = cluster::replicated();
    let gateway = cluster::start(cluster::split(&sandbox), 2).await;
    sandbox.primary().kill9().unwrap();
    promote(sandbox.node(1));
    follow(sandbox.node(2), sandbox.node(1), false);
    cluster::knows(&gateway, 1).await;
    let told = || {
        let log = gateway.log();
        let lines = log
            .lines()
            .filter(|line| line.contains("takes writes beside the primary"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(told(), [""; 0]);
    sandbox.primary().restart().unwrap();
    eventually("the log says so", async || !told().is_empty()).await;
    let [old, new] = [sandbox.node(0), sandbox.node(1)].map(|node| node.address());
    let line = told().swap_remove(0);
    let parts = [
        "WARN",
        &format!("server={old:?}"),
        &format!("but {new} is the primary"),
    ];
    assert!(parts.iter().all(|part| line.contains(part)), "{line}");
    // It is looked at ten times a second.
    let looks = || gateway.metric("forebay_looks_total", &[&format!("server={old:?}")]);
    let before = looks();
    eventually("it is looked at again", async || looks() > before + 5.0).await;
    assert_eq!(told().len(), 1);
}
