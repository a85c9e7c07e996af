use e2e::{Setup, client, eventually, servers};
use mysql_async::Conn;

use crate::CHECK;
use crate::bank::{self, Load};

const WORKERS: usize = 8;
/// What MariaDB and MySQL say to those whom they end: server shutdown, connection killed, statement
/// interrupted.
const SERVERS_OWN: [u16; 3] = [1053, 1927, 1317];

#[tokio::test]
async fn and_without_any_server_clients_are_told_which_refused() {
    let servers = servers(2);
    bank::prepare(&servers);
    let gateway = Setup::in_front_of(&servers).check(CHECK).start();
    let load = Load::start(&gateway, WORKERS);
    let (first, second) = (servers[0].primary(), servers[1].primary());
    load.goes_on(&[first, second], 20).await;
    first.stop().unwrap();
    load.goes_on(&[second], 50).await;
    let failures = load.failures();
    for failure in &failures {
        assert!(
            failure.port.is_none_or(|port| port == first.port()),
            "{failure:?}"
        );
        if !failure.code.is_some_and(|code| SERVERS_OWN.contains(&code)) {
            bank::assert_right_words(failure);
        }
    }

    second.stop().unwrap();
    eventually("new sessions are refused, and told of no address", async || {
        let error = Conn::new(client::options(&gateway)).await.unwrap_err();
        let text = error.to_string();
        client::code(&error) == 1429
            && text.contains("Can't connect to a MySQL server: no server available: ")
            && [first, second].iter().all(|node| !text.contains(&node.address()))
    })
    .await;

    first.restart().unwrap();
    load.goes_on(&[first], 20).await;
    second.restart().unwrap();
    load.goes_on(&[first, second], 20).await;
    load.end(&servers).await;
}
