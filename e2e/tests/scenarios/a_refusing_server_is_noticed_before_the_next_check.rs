use e2e::{Setup, client, servers};

#[tokio::test]
async fn and_the_client_does_not_notice() {
    let servers = servers(2);
    // One check at the start, none afterwards while this test runs: it has the time that it takes.
    let gateway = Setup::in_front_of(&servers)
        .check("interval = \"5m\"\ntimeout = \"20s\"")
        .start();
    servers[0].primary().kill9().unwrap();
    // All stay: the server with the fewest sessions is tried first.
    let mut sessions = Vec::new();
    for _ in 0..6 {
        let mut session = client::connect(&gateway).await;
        assert_eq!(
            client::server_port(&mut session).await,
            servers[1].primary().port()
        );
        sessions.push(session);
    }
    assert!(gateway.connects_or_checks_failed(&servers[0].primary().address()) >= 1.0);
}
