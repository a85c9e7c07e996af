//! An API server of Kubernetes, played, names real servers: those that are endpoints of the service are
//! taken, one that terminates drains and goes, and where nobody answers the last ones stay.

use e2e::{Gateway, Setup, client, eventually, servers};
use mysql_async::prelude::Queryable;
use testkit::api_server::ApiServer;

/// A slice with an endpoint, the rest of a JSON object behind its metadata.
fn slice(port: u16, terminating: bool) -> String {
    format!(
        "\"addressType\":\"IPv4\",\"endpoints\":[{{\"addresses\":[\"127.0.0.1\"],\"zone\":\"east\",\
         \"conditions\":{{\"ready\":false,\"serving\":true,\"terminating\":{terminating}}}}}],\
         \"ports\":[{{\"name\":\"mysql\",\"port\":{port},\"protocol\":\"TCP\"}}]"
    )
}

async fn knows(gateway: &Gateway, servers: usize) {
    eventually("the gateway knows its servers", async || {
        gateway.servers_up() == servers
    })
    .await;
}

async fn port_of_a_session(gateway: &Gateway) -> u16 {
    client::server_port(&mut client::connect(gateway).await).await
}

#[tokio::test]
async fn and_one_that_terminates_drains() {
    let servers = servers(2);
    let [first, second] = [servers[0].primary().port(), servers[1].primary().port()];
    let (api, certificates) = ApiServer::start("databases", "mysql").unwrap();
    let account = tempfile::tempdir().unwrap();
    let written = api.write_account(account.path(), &certificates, "databases", "secret");
    written.unwrap();
    api.put("mysql-1", &slice(first, false));
    let service = format!(
        "endpoint_slices = {{ service = \"mysql\", port = \"mysql\", api_server = {:?}, account_dir = {:?} }}",
        api.address(),
        account.path()
    );
    let gateway = Setup::of_addresses([]).cluster(&service).start_unready();
    knows(&gateway, 1).await;
    let mut session = client::connect(&gateway).await;

    api.put("mysql-2", &slice(second, false));
    knows(&gateway, 2).await;
    assert_eq!(gateway.metric("forebay_endpoint_slices_answer", &["main"]), 1.0);
    // The session that is there stays as long as the endpoint; new ones go elsewhere.
    api.put("mysql-1", &slice(first, true));
    eventually("it drains", async || {
        let label = format!("server=\"127.0.0.1:{first}\"");
        gateway.metric("forebay_server_draining", &[&label]) == 1.0
    })
    .await;
    for _ in 0..4 {
        assert_eq!(port_of_a_session(&gateway).await, second);
    }
    session.query_drop("SELECT 1").await.unwrap();
    api.delete("mysql-1");
    knows(&gateway, 1).await;
    eventually("the session of the endpoint that is gone ends", async || {
        session.query_drop("SELECT 1").await.is_err()
    })
    .await;

    api.set_gone(true);
    eventually("the gateway notices", async || {
        gateway.log().contains("Kubernetes cannot be asked")
    })
    .await;
    assert_eq!(gateway.metric("forebay_endpoint_slices_answer", &["main"]), 0.0);
    assert_eq!(port_of_a_session(&gateway).await, second);
    api.put("mysql-1", &slice(first, false));
    api.set_gone(false);
    knows(&gateway, 2).await;
}
