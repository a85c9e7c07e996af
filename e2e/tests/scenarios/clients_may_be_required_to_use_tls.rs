use e2e::{Setup, client, eventually, servers};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, SslOpts};
use sandbox::Certificates;

fn listener_tls(mode: &str, certificates: &Certificates) -> String {
    let Certificates {
        server_cert,
        server_key,
        ..
    } = certificates;
    format!("mode = {mode:?}\ncert = {server_cert:?}\nkey = {server_key:?}")
}

#[tokio::test]
async fn and_see_a_certificate_that_they_can_verify() {
    let servers = servers(1);
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::make(folder.path()).unwrap();
    let gateway = Setup::in_front_of(&servers)
        .listener_tls(&listener_tls("required", &certificates))
        .start();

    let error = Conn::new(client::options(&gateway)).await.unwrap_err();
    assert_eq!(client::code(&error), 3159, "{error}");

    let tls = SslOpts::default().with_root_certs(vec![certificates.ca.clone().into()]);
    let mut session = Conn::new(client::options(&gateway).ssl_opts(tls.clone()))
        .await
        .unwrap();
    assert_eq!(session.query_first("SELECT 42").await.unwrap(), Some(42));

    let ca = format!("--ssl-ca={}", certificates.ca.display());
    assert_eq!(
        client::command_line(gateway.port(), &[&ca], "SELECT 42").unwrap(),
        "42\n"
    );

    // Somebody else's authority.
    let other = tempfile::tempdir().unwrap();
    let other = Certificates::make(other.path()).unwrap();
    let tls = SslOpts::default().with_root_certs(vec![other.ca.into()]);
    assert!(Conn::new(client::options(&gateway).ssl_opts(tls)).await.is_err());
}

#[tokio::test]
async fn and_see_a_new_one_as_soon_as_its_files_are_there() {
    let servers = servers(1);
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let old = Certificates::make(folder.path()).unwrap();
    let new = Certificates::make(other.path()).unwrap();
    let gateway = Setup::in_front_of(&servers)
        .listener_tls(&listener_tls("required", &old))
        .start();
    let connect = async |authority: &Certificates| {
        let tls = SslOpts::default().with_root_certs(vec![authority.ca.clone().into()]);
        Conn::new(client::options(&gateway).ssl_opts(tls)).await
    };
    let mut open = connect(&old).await.unwrap();
    // As `mv` would, one after the other.
    for (from, to) in [
        (&new.server_key, &old.server_key),
        (&new.server_cert, &old.server_cert),
    ] {
        std::fs::rename(from, to).unwrap();
    }
    eventually("the files are read again", async || {
        gateway.log().contains("certificates read again")
    })
    .await;
    let mut session = connect(&new).await.unwrap();
    assert_eq!(session.query_first("SELECT 42").await.unwrap(), Some(42));
    assert!(connect(&old).await.is_err());
    assert_eq!(open.query_first("SELECT 43").await.unwrap(), Some(43));
}

#[tokio::test]
async fn or_to_show_one_of_their_own() {
    let servers = servers(1);
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::make(folder.path()).unwrap();
    let tls = listener_tls("required", &certificates);
    let ca = &certificates.ca;
    let gateway = Setup::in_front_of(&servers)
        .listener_tls(&format!("{tls}\nclient_ca = {ca:?}\nclient_auth = \"required\""))
        .start();
    let ca = format!("--ssl-ca={}", ca.display());
    let cert = format!("--ssl-cert={}", certificates.client_cert.display());
    let key = format!("--ssl-key={}", certificates.client_key.display());
    assert_eq!(
        client::command_line(gateway.port(), &[&ca, &cert, &key], "SELECT 42").unwrap(),
        "42\n"
    );
    client::command_line(gateway.port(), &[&ca], "SELECT 42").unwrap_err();
    let error = Conn::new(client::options(&gateway)).await.unwrap_err();
    assert_eq!(client::code(&error), 3159, "without TLS: {error}");

    for file in [&certificates.server_cert, &certificates.ca] {
        let file = format!("file={file:?}");
        let end = gateway.metric("forebay_certificate_expiry_timestamp_seconds", &[&file]);
        assert!(end > 1.8e9, "{file} ends at {end}");
    }
}

#[tokio::test]
async fn and_files_that_cannot_be_read_again_are_named_once() {
    let servers = servers(1);
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::copy(servers[0].folder().join("ca.pem"), &ca).unwrap();
    let gateway = Setup::in_front_of(&servers)
        .cluster_tls(&format!("mode = \"required\"\nverify = \"ca\"\nca = {ca:?}"))
        .start();
    std::fs::write(&ca, "nothing").unwrap();
    let told = || {
        let log = gateway.log();
        let mut lines = log.lines();
        lines
            .find(|line| line.contains("certificates not read again"))
            .map(str::to_owned)
    };
    eventually("the log says so", async || told().is_some()).await;
    let line = told().unwrap();
    assert_eq!(line.matches("cluster main").count(), 1, "{line}");
    client::connect(&gateway).await;
}
