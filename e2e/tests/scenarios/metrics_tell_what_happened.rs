use e2e::{Setup, client, eventually, servers};
use mysql_async::prelude::Queryable;

#[tokio::test]
async fn sessions_commands_errors_and_servers() {
    let servers = servers(1);
    let gateway = Setup::in_front_of(&servers).start();
    let mut session = client::connect(&gateway).await;
    // Commands are counted one after the other: what the client asked for itself at its login is, once this
    // one is.
    session.ping().await.unwrap();
    eventually("the client's own commands are counted", async || {
        gateway.metric("forebay_commands_total", &["command=\"ping\""]) == 1.0
    })
    .await;
    let commands_before = gateway.metric("forebay_commands_total", &["command=\"query\""]);
    for _ in 0..10 {
        session.query_drop("SELECT 1").await.unwrap();
    }
    session.query_drop("SELECT no_such_column").await.unwrap_err(); // 1054
    // Counted when its answer is done, which the client may know first.
    let commands = || gateway.metric("forebay_commands_total", &["command=\"query\""]) - commands_before;
    eventually("eleven queries are counted", async || commands() == 11.0).await;
    eventually("and the one error, which is a server's", async || {
        gateway.metric("forebay_server_errors_total", &["code=\"1054\""]) == 1.0
    })
    .await;
    assert_eq!(gateway.metric("forebay_errors_total", &[]), 0.0);
    assert_eq!(
        gateway.metric("forebay_sessions_active", &["listener=\"e2e\""]),
        1.0
    );
    let server = format!("server={:?}", servers[0].primary().address());
    assert_eq!(
        gateway.metric("forebay_server_sessions_active", &["cluster=\"main\"", &server]),
        1.0
    );
    assert_eq!(
        gateway.metric("forebay_server_state", &[&server, "state=\"up\""]),
        1.0
    );
    assert!(gateway.metric("forebay_command_duration_seconds_count", &[&server]) >= 11.0);
    assert!(gateway.metric("forebay_client_received_bytes_total", &[]) > 0.0);
    assert!(gateway.metric("forebay_checks_total", &[&server]) >= 1.0);

    session.disconnect().await.unwrap();
    eventually("the end of the session is counted", async || {
        gateway.metric("forebay_sessions_ended_total", &["reason=\"client_quit\""]) == 1.0
    })
    .await;
    eventually("it is active no more", async || {
        gateway.metric("forebay_sessions_active", &[]) == 0.0
    })
    .await;
    eventually("and logged", async || gateway.log().contains("client_quit")).await;
    assert!(!gateway.log().contains(sandbox::PASSWORD.repeat(2).as_str()));
}

#[tokio::test]
async fn a_cluster_that_no_listener_names_does_not_count_for_readiness() {
    let servers = servers(1);
    let nobody = sandbox::free_port().unwrap();
    let gateway = Setup::in_front_of(&servers)
        .tables(&format!("[cluster.shadow]\nservers = [\"127.0.0.1:{nobody}\"]"))
        .start();
    let label = "cluster=\"shadow\"";
    eventually("it was found down", async || {
        gateway.metric("forebay_server_state", &[label, "state=\"down\""]) == 1.0
    })
    .await;
    assert_eq!(gateway.get("/readyz").0, 200);
}
