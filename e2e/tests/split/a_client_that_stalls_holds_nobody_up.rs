//! A client that does not go on with a command, or does not take its answer, holds its server connection for
//! `stall_timeout`. One that is idle between two commands may take its time.

use e2e::eventually;
use mysql_async::prelude::Queryable;
use mysql_wire::{Capabilities, ErrPacket};
use sandbox::DATABASE;

use crate::cluster::{self, connect_raw, narrow};

const BIG: &[u8] = b"\x03WITH RECURSIVE r AS (SELECT 1 n UNION ALL SELECT n + 1 FROM r WHERE n < 100) \
    SELECT REPEAT('x', 1048576) FROM r";

#[tokio::test]
async fn however_it_stalls() {
    let sandbox = cluster::single();
    let local = "SET GLOBAL local_infile = ON; CREATE TABLE IF NOT EXISTS test.stalled (a INT)";
    sandbox.primary().sql(local).unwrap();
    let gateway = narrow(sandbox, 4)
        .listener("stall_timeout = \"1s\"")
        .cluster("queue_timeout = \"50s\"")
        .start();
    let mut idle = cluster::connect(&gateway).await;
    idle.query_drop("BEGIN").await.unwrap();
    let connect = || connect_raw(&gateway.address(), DATABASE, Capabilities::LOCAL_FILES);

    let mut half = connect();
    half.ask("BEGIN");
    half.send(b"\x20\0\0\0\x03SELECT").unwrap();
    let mut deaf = connect();
    deaf.send_payload(0, BIG).unwrap();
    let mut file = connect();
    let load = b"\x03LOAD DATA LOCAL INFILE 'x' INTO TABLE test.stalled";
    file.send_payload(0, load).unwrap();
    assert_eq!(file.packet().unwrap().payload[0], 0xfb);
    let mut unleased = connect();
    unleased.send(b"\x20\0\0\0\x03SELECT").unwrap();

    let ended = || gateway.metric("forebay_sessions_ended_total", &["reason=\"client_stalled\""]);
    eventually("those who stall are ended", async || ended() == 4.0).await;
    // All connections but the one of the transaction are free again.
    let mut others = Vec::new();
    for _ in 0..3 {
        let mut other = cluster::connect(&gateway).await;
        other.query_drop("BEGIN").await.unwrap();
        others.push(other);
    }
    idle.query_drop("COMMIT").await.unwrap();

    for told in [&mut half, &mut unleased] {
        let packet = told.packet().unwrap();
        let error = ErrPacket::decode(&packet.payload, Capabilities::PROTOCOL_41).unwrap();
        assert_eq!((packet.sequence, error.code), (1, 1159));
    }
    eventually("the log says so", async || {
        let log = gateway.log();
        log.contains("client_stalled") && log.contains("did not take its answer")
    })
    .await;
}
