use e2e::{Setup, client, servers};
use mysql_async::prelude::Queryable;
use mysql_async::{Compression, Conn};

#[tokio::test]
async fn whatever_the_way_to_the_server_is() {
    let servers = servers(1);
    for server_side in ["off", "zlib"] {
        let setup = Setup::in_front_of(&servers).cluster(&format!("compression = {server_side:?}"));
        let gateway = setup.start();
        let question = "SELECT REPEAT('forebay', 300000); SHOW STATUS LIKE 'Compression'";
        for arguments in [&["--compress"][..], &[]] {
            let answer = client::command_line(gateway.port(), arguments, question).unwrap();
            let (big, status) = answer.trim_end().split_once('\n').unwrap();
            assert_eq!(big.len(), 7 * 300_000);
            let expected = if server_side == "off" {
                "Compression\tOFF"
            } else {
                "Compression\tON"
            };
            assert_eq!(status, expected, "the way to the server: {server_side}");
        }
        let options = client::options(&gateway).compression(Some(Compression::best()));
        let mut session = Conn::new(options).await.unwrap();
        let body = "compress me ".repeat(200_000);
        let length: Option<usize> = session.exec_first("SELECT LENGTH(?)", (&body,)).await.unwrap();
        assert_eq!(length, Some(body.len()));
        let before = gateway.metric("forebay_client_sent_bytes_total", &[]);
        let back: Option<String> = session.query_first("SELECT REPEAT('z', 1000000)").await.unwrap();
        assert_eq!(back.unwrap().len(), 1_000_000);
        session.ping().await.unwrap();
        let sent = gateway.metric("forebay_client_sent_bytes_total", &[]) - before;
        assert!(sent < 100_000.0, "a million equal letters took {sent} bytes");
    }
}
