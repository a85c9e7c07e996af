use e2e::{Gateway, Setup, client, eventually, servers};
use mysql_async::{ChangeUserOpts, Conn};
use tokio::net::TcpStream;

/// The sessions that the gateway shows, one an element.
fn shown(gateway: &Gateway) -> Vec<String> {
    let (status, body) = gateway.get("/sessions");
    assert_eq!(status, 200, "{body}");
    body.split("},{").map(str::to_owned).collect()
}

async fn one_shows(gateway: &Gateway, parts: &[&str]) {
    eventually(&format!("a session shows {parts:?}"), async || {
        shown(gateway)
            .iter()
            .any(|session| parts.iter().all(|part| session.contains(part)))
    })
    .await;
}

#[tokio::test]
async fn from_their_first_moment_on_and_under_their_present_user() {
    let servers = servers(1);
    let server = servers[0].primary();
    server
        .sql("CREATE USER other@'%' IDENTIFIED BY 'secret'; CREATE USER other@localhost IDENTIFIED BY 'secret'")
        .unwrap();
    let gateway = Setup::in_front_of(&servers).start();

    let silent = TcpStream::connect(gateway.address()).await.unwrap();
    let from = format!("\"client\":\"{}\"", silent.local_addr().unwrap());
    one_shows(
        &gateway,
        &[&from, "\"listener\":\"e2e\"", "\"waits_for\":\"login\""],
    )
    .await;

    let mut session: Conn = client::connect(&gateway).await;
    let user = format!("\"user\":{:?}", sandbox::USER);
    one_shows(&gateway, &[&user, "\"waits_for\":\"client\""]).await;
    let other = ChangeUserOpts::new().with_user(Some("other".to_owned()));
    session
        .change_user(other.with_pass(Some("secret".to_owned())).with_db_name(None))
        .await
        .unwrap();
    one_shows(&gateway, &["\"user\":\"other\"", &server.address()]).await;
    assert!(!gateway.get("/sessions").1.contains(&user));
}

#[tokio::test]
async fn in_mode_tcp_as_far_as_they_are_known() {
    let servers = servers(1);
    let gateway = Setup::in_front_of(&servers).mode("tcp").start();
    let silent = TcpStream::connect(gateway.address()).await.unwrap();
    let from = format!("\"client\":\"{}\"", silent.local_addr().unwrap());
    let parts = [
        &from,
        "\"listener\":\"e2e\"",
        "\"user\":\"\"",
        "\"waits_for\":\"stream\"",
        &servers[0].primary().address(),
    ];
    one_shows(&gateway, &parts).await;
}
