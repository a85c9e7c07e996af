use e2e::{Setup, servers};

use crate::bank::{self, Load};
use crate::{CHECK, scaled};

const WORKERS: usize = 8;

#[tokio::test]
async fn and_nobody_on_the_other_server_notices() {
    let servers = servers(2);
    bank::prepare(&servers);
    let gateway = Setup::in_front_of(&servers).check(CHECK).start();
    let load = Load::start(&gateway, WORKERS);
    let (victim, other) = (servers[0].primary(), servers[1].primary());
    for _ in 0..scaled(2) {
        load.goes_on(&[victim, other], 20).await;
        let seen = load.failures().len();
        victim.kill9().unwrap();
        load.has_failed(seen + 1).await;
        load.goes_on(&[other], 50).await;
        victim.restart().unwrap();
        load.goes_on(&[victim, other], 20).await;
    }
    let failures = load.end(&servers).await;
    bank::assert_only_on(victim, &failures);
    assert!(bank::with_code(&failures, 1158) > 0, "{failures:#?}");
    // Each worker had one session to lose and at most one login each time.
    assert!(failures.len() <= scaled(2) * 2 * WORKERS, "{failures:#?}");
}
