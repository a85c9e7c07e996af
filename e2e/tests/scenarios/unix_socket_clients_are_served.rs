use std::os::unix::fs::PermissionsExt;

use e2e::{Setup, client, servers};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

#[tokio::test]
async fn and_the_socket_goes_with_the_gateway() {
    let servers = servers(1);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("forebay.sock");
    let setup = Setup::in_front_of(&servers)
        .unix(&path)
        .listener("unix_mode = \"0600\"");
    let mut gateway = setup.start();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let options = client::options_at(1)
        .socket(Some(path.to_str().unwrap()))
        .prefer_socket(true);
    let mut session = Conn::new(options).await.unwrap();
    assert_eq!(session.query_first("SELECT 42").await.unwrap(), Some(42));
    session.disconnect().await.unwrap();

    gateway.terminate();
    assert!(gateway.exit().await.success());
    assert!(!path.exists());
}
