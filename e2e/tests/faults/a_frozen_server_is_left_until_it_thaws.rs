use e2e::{Setup, eventually, servers};

use crate::bank::{self, Load};
use crate::{CHECK, scaled};

const WORKERS: usize = 8;

#[tokio::test]
async fn and_its_sessions_end_when_it_is_found_down() {
    let servers = servers(2);
    bank::prepare(&servers);
    let gateway = Setup::in_front_of(&servers).check(CHECK).start();
    let load = Load::start(&gateway, WORKERS);
    let (victim, other) = (servers[0].primary(), servers[1].primary());
    let label = format!("server={:?}", victim.address());
    for _ in 0..scaled(1) {
        load.goes_on(&[victim, other], 20).await;
        victim.freeze().unwrap();
        eventually("it is found to be down", async || {
            gateway.metric("forebay_server_state", &[&label, "state=\"down\""]) == 1.0
        })
        .await;
        // All workers are elsewhere then, those who were logging in at that moment, too.
        eventually("no session is left on it", async || {
            gateway.metric("forebay_server_sessions_active", &[&label]) == 0.0
        })
        .await;
        load.goes_on(&[other], 50).await;
        victim.thaw().unwrap();
        load.goes_on(&[victim, other], 20).await;
    }
    let failures = load.end(&servers).await;
    bank::assert_only_on(victim, &failures);
    let found_down = format!(
        "Lost connection to MySQL server: server {} was found down by its health check",
        victim.address()
    );
    assert!(
        failures.iter().any(|failure| failure.text.contains(&found_down)),
        "{failures:#?}"
    );
}
