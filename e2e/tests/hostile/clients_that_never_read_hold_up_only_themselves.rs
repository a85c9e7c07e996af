use std::collections::VecDeque;
use std::time::Duration;

use e2e::raw::{CREATE_GUEST, Raw};
use e2e::{Gateway, PATIENCE, Setup, client, servers};
use mysql_async::prelude::Queryable;
use mysql_async::{Compression, Conn, SslOpts};
use mysql_wire::{OkPacket, PacketHeader};
use tokio::io::{AsyncReadExt, BufReader};
use tokio::time::{Instant, sleep};

use crate::footprint::{Footprint, assert_no_panic};
use crate::witness::{Witness, assert_not_slowed};

const PLAIN: usize = 5;
const ROWS: usize = 200;
const ROW_BYTES: usize = 1 << 20;
/// 200 rows of 1 MiB.
const BIG: &str = "WITH RECURSIVE r AS (SELECT 1 n UNION ALL SELECT n + 1 FROM r WHERE n < 200) \
    SELECT REPEAT('x', 1048576) FROM r";
/// 200 MB that cannot be compressed.
const NOISE: &str = "WITH RECURSIVE r AS (SELECT 1 n UNION ALL SELECT n + 1 FROM r WHERE n < 450) \
    SELECT RANDOM_BYTES(1000) FROM r a JOIN r b";

/// What a client that does not read may cost: the gateway's buffers of both directions, of TLS and of
/// compression.
const BYTES_EACH: f64 = 2e6;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// Waits until next to nothing goes to clients: the good client's answers are all.
async fn until_stuck(gateway: &Gateway) {
    const LOOKS: usize = 5;
    const NEXT_TO_NOTHING: f64 = 64e3;
    let begin = Instant::now();
    let mut sent = VecDeque::from([0.0]);
    while sent.len() < LOOKS || sent[LOOKS - 1] - sent[0] > NEXT_TO_NOTHING {
        assert!(
            begin.elapsed() < PATIENCE,
            "bytes flow to clients who do not read"
        );
        sleep(BETWEEN_LOOKS).await;
        sent.push_back(gateway.metric("forebay_client_sent_bytes_total", &[]));
        if sent.len() > LOOKS {
            sent.pop_front();
        }
    }
}

/// Reads the answer to [`BIG`] packet by packet.
async fn read_all(raw: &mut Raw) {
    let mut stream = BufReader::new(&mut raw.stream);
    let mut rows = 0;
    let mut packets = 0;
    loop {
        let mut head = [0; PacketHeader::LEN];
        stream.read_exact(&mut head).await.unwrap();
        let header = PacketHeader::parse(&head).unwrap();
        let mut payload = vec![0; header.payload_len];
        stream.read_exact(&mut payload).await.unwrap();
        packets += 1;
        match payload.first() {
            Some(&OkPacket::HEADER_AS_EOF) if packets > 1 && header.payload_len < 100 => break,
            _ if header.payload_len > ROW_BYTES => rows += 1,
            _ => {}
        }
    }
    assert_eq!(
        (rows, packets),
        (ROWS, ROWS + 3),
        "a count, a column, the rows, an end"
    );
}

#[tokio::test]
async fn and_memory_stays_bounded() {
    let servers = servers(1);
    servers[0].primary().sql(CREATE_GUEST).unwrap();
    let certificates = servers[0].certificates();
    let (cert, key) = (&certificates.server_cert, &certificates.server_key);
    let mut gateway = Setup::in_front_of(&servers)
        .listener_tls(&format!("mode = \"preferred\"\ncert = {cert:?}\nkey = {key:?}"))
        .start();
    let before = Footprint::of(&gateway);
    let mut witness = Witness::start(&gateway).await;
    let calm = witness.p95().await;

    let mut deaf = Vec::new();
    for _ in 0..PLAIN {
        let mut raw = Raw::log_in(gateway.port()).await.unwrap();
        raw.query(BIG).await.unwrap();
        deaf.push(raw);
    }
    let tls = SslOpts::default().with_root_certs(vec![certificates.ca.clone().into()]);
    let options = client::options(&gateway);
    let mut encrypted = Conn::new(options.clone().ssl_opts(tls)).await.unwrap();
    let mut compressed = Conn::new(options.compression(Compression::fast())).await.unwrap();
    // Each reads as far as the first row.
    let unread = (
        encrypted.query_iter(BIG).await.unwrap(),
        compressed.query_iter(NOISE).await.unwrap(),
    );
    until_stuck(&gateway).await;
    let grown = Footprint::of(&gateway).resident_bytes - before.resident_bytes;
    assert!(
        grown < 16e6 + BYTES_EACH * (PLAIN + 2) as f64,
        "memory grew by {grown} bytes while nobody reads"
    );
    assert_not_slowed(calm, witness.p95().await);

    // It was only late: nothing is missing.
    read_all(&mut deaf[0]).await;
    deaf[0].query("DO 1").await.unwrap();
    assert_eq!(deaf[0].packet().await.unwrap().1[0], OkPacket::HEADER);
    deaf.into_iter().skip(2).for_each(Raw::reset);
    // A connection that is dropped reads on in the background, in the time that the gateway has to be rid of
    // it. The server may have given it up.
    let _ = unread.0.drop_result().await;
    let _ = unread.1.drop_result().await;
    drop((encrypted, compressed));
    witness.stop().await;
    let grown = before.comes_back(&mut gateway).await;
    assert!(grown < 32e6, "memory grew by {grown} bytes");
    assert_no_panic(&gateway);
}
