use std::collections::BTreeMap;

use e2e::{Gateway, Setup, client, servers};
use mysql_async::Conn;

/// Opens sessions, keeps them open, and counts them by the server's port.
async fn open(gateway: &Gateway, count: usize) -> (Vec<Conn>, BTreeMap<u16, usize>) {
    let (mut sessions, mut by_port) = (Vec::new(), BTreeMap::new());
    for _ in 0..count {
        let mut session = client::connect(gateway).await;
        *by_port
            .entry(client::server_port(&mut session).await)
            .or_default() += 1;
        sessions.push(session);
    }
    (sessions, by_port)
}

#[tokio::test]
async fn each_kind_of_balance_spreads_them() {
    let servers = servers(3);
    let ports: Vec<u16> = servers.iter().map(|sandbox| sandbox.primary().port()).collect();

    for balance in ["least-connections", "round-robin"] {
        let gateway = Setup::in_front_of(&servers)
            .cluster(&format!("balance = {balance:?}"))
            .start();
        let (_sessions, by_port) = open(&gateway, 9).await;
        assert_eq!(
            by_port,
            ports.iter().map(|port| (*port, 3)).collect(),
            "{balance}"
        );
    }

    let weights = [3, 1, 0];
    let weighted = |(sandbox, weight): (&sandbox::Lent, i32)| {
        format!(
            "{{ address = {:?}, weight = {weight} }}",
            sandbox.primary().address()
        )
    };
    let gateway = Setup::in_front_of(&servers)
        .servers(servers.iter().zip(weights).map(weighted))
        .cluster("balance = \"weighted\"")
        .start();
    let (_sessions, by_port) = open(&gateway, 12).await;
    let expected: BTreeMap<u16, usize> = [(ports[0], 9), (ports[1], 3)].into();
    assert_eq!(by_port, expected, "weights 3, 1 and 0");

    let gateway = Setup::in_front_of(&servers)
        .cluster("balance = \"random-two\"")
        .start();
    let (_sessions, by_port) = open(&gateway, 30).await;
    assert_eq!(by_port.len(), 3, "all servers are used: {by_port:?}");
    assert!(
        by_port.values().all(|count| (5..=15).contains(count)),
        "none is preferred: {by_port:?}"
    );
}

#[tokio::test]
async fn a_session_that_ends_makes_room() {
    let servers = servers(2);
    let gateway = Setup::in_front_of(&servers).start();
    let (mut sessions, _) = open(&gateway, 4).await;
    let mut left_ports = Vec::new();
    // The two on the first server go; the next two must land there.
    let mut kept = Vec::new();
    for mut session in sessions.drain(..) {
        if client::server_port(&mut session).await == servers[0].primary().port() {
            session.disconnect().await.unwrap();
        } else {
            left_ports.push(client::server_port(&mut session).await);
            kept.push(session);
        }
    }
    let gone = async || gateway.metric("forebay_server_sessions_active", &[]) == 2.0;
    e2e::eventually("the ended sessions have left their server", gone).await;
    let (_more, by_port) = open(&gateway, 2).await;
    assert_eq!(by_port, [(servers[0].primary().port(), 2)].into());
}
