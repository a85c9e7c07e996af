use e2e::{Setup, client, servers};

#[tokio::test]
async fn and_the_client_does_not_notice() {
    let servers = servers(2);
    // One check at the start, none afterwards while this test runs.
    let gateway = Setup::in_front_of(&servers).check("interval = \"5m\"").start();
    servers[0].primary().kill9().unwrap();
    for _ in 0..6 {
        let mut session = client::connect(&gateway).await;
        assert_eq!(
            client::server_port(&mut session).await,
            servers[1].primary().port()
        );
    }
    let label = format!("server={:?}", servers[0].primary().address());
    // By a session; or by the second look that a start asks for, where the machine is so slow that it comes
    // this late.
    let noticed = [
        "forebay_server_connect_failures_total",
        "forebay_checks_failed_total",
    ];
    let noticed = noticed.map(|metric| gateway.metric(metric, &[&label]));
    assert!(noticed.iter().sum::<f64>() >= 1.0, "{noticed:?}");
}
