use std::time::Duration;

use e2e::link::Link;
use e2e::{Setup, client, servers};
use mysql_async::prelude::Queryable;
use testkit::lossy_link::Fault;

use crate::bank::{self, Load};
use crate::{CHECK, scaled};

#[tokio::test]
async fn after_the_server_s_idle_timeout() {
    let servers = servers(1);
    let link = Link::to(&servers[0]);
    let gateway = Setup::of_addresses([link.address().to_string()])
        // Above the time for which a busy machine keeps a server from going on.
        .cluster("server_idle_timeout = \"8s\"")
        .check("kind = \"tcp\"\ninterval = \"500ms\"\ntimeout = \"5s\"")
        .start();
    let mut session = client::connect(&gateway).await;
    let mut other = client::connect(&gateway).await;
    link.set_to_client(Fault::Stall);
    let error = session.query_drop("SELECT 1").await.unwrap_err();
    assert_eq!(client::code(&error), 1158, "{error}");
    let words = format!(
        "Lost connection to MySQL server: server {} did not go on with its answer for 8s",
        link.address()
    );
    assert!(error.to_string().contains(&words), "{error}");
    // Nobody waited for the server here.
    link.set_to_client(Fault::None);
    other.query_drop("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn after_the_login_timeout() {
    let servers = servers(1);
    let link = Link::to(&servers[0]);
    let gateway = Setup::of_addresses([link.address().to_string()])
        // The first login is to succeed, on a busy machine as well.
        .cluster("login_timeout = \"4s\"")
        .check("kind = \"tcp\"\ninterval = \"500ms\"\ntimeout = \"5s\"")
        .start();
    client::connect(&gateway).await.disconnect().await.unwrap();
    link.set_to_client(Fault::Stall);
    let error = mysql_async::Conn::new(client::options(&gateway))
        .await
        .unwrap_err();
    assert_eq!(client::code(&error), 1429, "{error}");
    assert!(
        error.to_string().contains("Can't connect to a MySQL server: "),
        "{error}"
    );
    link.set_to_client(Fault::None);
    e2e::eventually("it is used again", async || {
        mysql_async::Conn::new(client::options(&gateway)).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn and_requests_that_are_cut_are_not_done_twice() {
    let servers = servers(2);
    bank::prepare(&servers);
    let link = Link::to(&servers[0]);
    let (victim, other) = (servers[0].primary(), servers[1].primary());
    let gateway = Setup::of_addresses([link.address().to_string(), other.address()])
        .check(CHECK)
        .start();
    let load = Load::start(&gateway, 8);
    for round in 0..scaled(4) {
        load.goes_on(&[victim, other], 15).await;
        let seen = load.failures().len();
        link.set_to_server(Fault::CutAfter(40 + 97 * round as u64));
        load.has_failed(seen + 2).await;
        link.set_to_server(Fault::None);
    }
    // Slow is no fault.
    link.set_to_server(Fault::Delay(Duration::from_millis(5)));
    link.set_to_client(Fault::Delay(Duration::from_millis(5)));
    load.goes_on(&[victim, other], 5).await;
    let failures = load.end(&servers).await;
    bank::assert_only_on(victim, &failures);
}
