use e2e::{Setup, client, servers};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

const CIPHER: &str = "SHOW SESSION STATUS LIKE 'Ssl_version'";

#[tokio::test]
async fn while_clients_use_none() {
    let servers = servers(1);
    let gateway = Setup::in_front_of(&servers).start();
    let mut plain = client::connect(&gateway).await;
    assert_eq!(
        plain.query_first(CIPHER).await.unwrap(),
        Some(("Ssl_version".to_owned(), String::new()))
    );

    let ca = servers[0].ca_file();
    for verify in ["off", "ca", "identity"] {
        let tls = format!("mode = \"required\"\nverify = {verify:?}\nca = {ca:?}");
        let gateway = Setup::in_front_of(&servers).cluster_tls(&tls).start();
        let mut session = client::connect(&gateway).await;
        let version: Option<(String, String)> = session.query_first(CIPHER).await.unwrap();
        assert_eq!(version.unwrap().1, "TLSv1.3", "verify = {verify}");
    }
}

#[tokio::test]
async fn and_a_server_that_cannot_prove_itself_is_not_used() {
    let servers = servers(1);
    let folder = tempfile::tempdir().unwrap();
    let other = sandbox::Certificates::make(folder.path()).unwrap();
    let tls = format!("mode = \"required\"\nverify = \"ca\"\nca = {:?}", other.ca);
    let gateway = Setup::in_front_of(&servers).cluster_tls(&tls).start_unready();
    let error = Conn::new(client::options(&gateway)).await.unwrap_err();
    assert!(matches!(client::code(&error), 1429 | 1158), "{error}");
}
