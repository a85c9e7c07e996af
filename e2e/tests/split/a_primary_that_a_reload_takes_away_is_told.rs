//! A reload without the primary may be a slip: the log says what comes of it.

use e2e::eventually;
use sandbox::{PASSWORD, USER};

use crate::cluster;

#[tokio::test]
async fn a_primary_that_is_no_longer_listed() {
    let sandbox = cluster::replicated();
    let setup = |addresses: &[String]| {
        e2e::Setup::of_addresses(addresses.to_vec())
            .mode("split")
            .tables(&cluster::user(USER, PASSWORD))
            .cluster("topology = \"replication\"")
            .cluster(&cluster::monitor().replace(" }", ", discover = false }"))
    };
    let addresses = sandbox.addresses();
    let mut gateway = cluster::start(setup(&addresses), 2).await;
    let said = "the primary is no longer in `servers`";
    // A replica is nothing to warn of.
    assert!(gateway.reload(setup(&addresses[..2])).await);
    assert!(!gateway.log().contains(said), "{}", gateway.log());
    assert!(gateway.reload(setup(&addresses[1..])).await);
    eventually("the log says so", async || {
        let log = gateway.log();
        log.lines()
            .any(|line| line.contains(said) && line.contains(&addresses[0]))
    })
    .await;
}
