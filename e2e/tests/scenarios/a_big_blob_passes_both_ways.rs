use e2e::{Setup, client, servers};
use mysql_async::prelude::Queryable;

/// Over one packet of 16 MiB, and of a length that is no multiple of anything.
const LENGTH: usize = 20_000_003;

#[tokio::test]
async fn in_text_and_in_prepared_statements() {
    let servers = servers(1);
    let gateway = Setup::in_front_of(&servers).start();
    let mut session = client::connect(&gateway).await;
    session
        .query_drop("CREATE TABLE blobs (id INT PRIMARY KEY, body LONGBLOB)")
        .await
        .unwrap();
    let body: Vec<u8> = (0..LENGTH as u32)
        .map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    session
        .exec_drop("INSERT INTO blobs VALUES (1, ?)", (&body,))
        .await
        .unwrap();

    let text: Option<Vec<u8>> = session.query_first("SELECT body FROM blobs").await.unwrap();
    assert!(text.unwrap() == body, "the same bytes come back (text protocol)");
    let binary: Option<Vec<u8>> = session
        .exec_first("SELECT body FROM blobs WHERE id = ?", (1,))
        .await
        .unwrap();
    assert!(binary.unwrap() == body, "the same bytes come back (prepared)");

    // A statement whose packet is exactly as long as a packet can be, and is followed by an empty one.
    let frame = "SELECT LENGTH('')".len() + 1;
    let exact = format!("SELECT LENGTH('{}')", "x".repeat(0xff_ffff - frame));
    assert_eq!(session.query_first(exact).await.unwrap(), Some(0xff_ffff - frame));
    session.ping().await.unwrap();
}
