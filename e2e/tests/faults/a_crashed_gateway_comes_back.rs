use e2e::{Setup, servers};

use crate::bank::{self, Load, Step};
use crate::{CHECK, scaled};

#[tokio::test]
async fn and_no_acknowledged_write_was_lost() {
    let servers = servers(2);
    bank::prepare(&servers);
    let mut gateway = Setup::in_front_of(&servers).check(CHECK).start();
    let load = Load::start(&gateway, 8);
    let nodes = [servers[0].primary(), servers[1].primary()];
    for _ in 0..scaled(3) {
        load.goes_on(&nodes, 20).await;
        let seen = load.failures().len();
        gateway.kill9();
        load.has_failed(seen + 8).await;
        gateway.restart().await;
    }
    load.goes_on(&nodes, 20).await;
    for failure in load.end(&servers).await {
        assert!(
            failure.code.is_none() || failure.step == Step::Connect,
            "nobody was there to send an error: {failure:?}"
        );
    }
}
