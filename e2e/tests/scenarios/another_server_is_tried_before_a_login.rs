use e2e::{Gateway, Setup, client, eventually, servers, servers_with};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::Node;
use tokio::join;

/// One check at the start, none afterwards while a test runs: it has the time that it takes.
const SELDOM: &str = "interval = \"5m\"\ntimeout = \"20s\"";

async fn sessions_come_to(gateway: &Gateway, server: &Node) {
    // All stay: the server with the fewest sessions is tried first.
    let mut sessions = Vec::new();
    for _ in 0..4 {
        let mut session = client::connect(gateway).await;
        assert_eq!(client::server_port(&mut session).await, server.port());
        sessions.push(session);
    }
}

#[tokio::test]
async fn where_one_is_full_and_says_so_in_place_of_its_greeting() {
    let full = servers_with(1, &["--max-connections=10"]);
    let other = servers(1);
    let (full, other) = (full[0].primary(), other[0].primary());
    let gateway = Setup::of_addresses([full.address(), other.address()])
        .check(SELDOM)
        .start();
    let mut holders = Vec::new();
    eventually("it has as many connections as it takes", async || {
        let refused = loop {
            match Conn::new(client::options_at(full.port())).await {
                Ok(holder) => holders.push(holder),
                Err(error) => break error,
            }
        };
        assert_eq!(client::code(&refused), 1040, "{refused}");
        let connected = "SHOW STATUS LIKE 'Threads_connected'";
        let connected: Option<(String, usize)> = holders[0].query_first(connected).await.unwrap();
        connected.unwrap().1 == holders.len()
    })
    .await;
    sessions_come_to(&gateway, other).await;
    assert!(gateway.connects_or_checks_failed(&full.address()) >= 1.0);
}

#[tokio::test]
async fn where_one_takes_connections_and_does_not_greet() {
    let servers = servers(2);
    let gateway = Setup::in_front_of(&servers)
        // The other server has to greet in time on a busy machine as well.
        .cluster("login_timeout = \"3s\"")
        .check(SELDOM)
        .start();
    servers[0].primary().freeze().unwrap();
    sessions_come_to(&gateway, servers[1].primary()).await;
    servers[0].primary().thaw().unwrap();
}

#[tokio::test]
async fn where_one_is_found_down_before_it_greets() {
    let servers = servers(2);
    let gateway = Setup::in_front_of(&servers)
        .cluster("login_timeout = \"1h\"")
        .check("interval = \"200ms\"\ntimeout = \"2s\"\nrise = 1\nfall = 2")
        .start();
    servers[0].primary().freeze().unwrap();
    // One goes to each.
    let (mut one, mut other) = join!(client::connect(&gateway), client::connect(&gateway));
    let port = servers[1].primary().port();
    assert_eq!(client::server_port(&mut one).await, port);
    assert_eq!(client::server_port(&mut other).await, port);
    servers[0].primary().thaw().unwrap();
}
