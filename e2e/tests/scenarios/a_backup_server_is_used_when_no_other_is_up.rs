use e2e::{Setup, client, eventually, servers};

#[tokio::test]
async fn and_only_then() {
    let servers = servers(2);
    let (main, backup) = (servers[0].primary(), servers[1].primary());
    let list = [
        format!("{{ address = {:?}, backup = true }}", backup.address()),
        format!("{:?}", main.address()),
    ];
    let gateway = Setup::in_front_of(&servers).servers(list).start();
    for _ in 0..4 {
        assert_eq!(
            client::server_port(&mut client::connect(&gateway).await).await,
            main.port()
        );
    }
    main.kill9().unwrap();
    assert_eq!(
        client::server_port(&mut client::connect(&gateway).await).await,
        backup.port()
    );
    main.restart().unwrap();
    eventually("new sessions are on the main server again", async || {
        client::server_port(&mut client::connect(&gateway).await).await == main.port()
    })
    .await;
}
