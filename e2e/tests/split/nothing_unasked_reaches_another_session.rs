//! Bytes that a server sends while nobody has asked it anything close its connection: whoever had it next
//! would take them for an answer.

use e2e::link::Link;
use e2e::{Gateway, eventually};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::{PASSWORD, USER};
use testkit::lossy_link::Fault;

use crate::cluster::{self, ask, user};

/// An OK packet, as it ends the answer to a command.
const OK: &[u8] = b"\x07\0\0\x01\0\0\0\x02\0\0\0";
/// What MySQL says before it closes a connection that was idle for too long.
const IDLE: &[u8] = b"\x11\0\0\0\xff\xbf\x0f#HY000too long";

fn gateway(link: &Link) -> Gateway {
    let server = format!(
        "{{ address = {:?}, role = \"primary\" }}",
        link.address().to_string()
    );
    e2e::Setup::of_addresses([link.address().to_string()])
        .servers([server])
        .mode("split")
        .top("workers = 1")
        .tables(&user(USER, PASSWORD))
        // The first check decides for the whole test, and may take its time.
        .check("interval = \"10m\"\ntimeout = \"30s\"")
        .start()
}

async fn are_right(sessions: &mut [&mut Conn]) {
    for turn in 0..4 {
        for (number, session) in sessions.iter_mut().enumerate() {
            let answer = ask(session, &format!("SELECT '{turn} {number}'")).await;
            assert_eq!(answer, Ok(Some(format!("{turn} {number}"))));
        }
    }
}

fn broken(gateway: &Gateway) -> f64 {
    gateway.metric("forebay_pool_closed_total", &["reason=\"broken\""])
}

#[tokio::test]
async fn or_later() {
    let link = Link::to(cluster::single());
    let gateway = gateway(&link);
    let (mut one, mut other) = (cluster::connect(&gateway).await, cluster::connect(&gateway).await);
    for words in [OK, IDLE] {
        let mut bound = cluster::connect(&gateway).await;
        bound.query_drop("BEGIN").await.unwrap();
        are_right(&mut [&mut one, &mut other]).await;
        let before = broken(&gateway);
        link.set_to_client(Fault::Unasked(words));
        // A session that holds a connection ends with it: two are left.
        eventually("all connections are closed", async || {
            broken(&gateway) > before && gateway.metric("forebay_sessions_active", &[]) == 2.0
        })
        .await;
        link.set_to_client(Fault::None);
        bound.query_drop("SELECT 1").await.unwrap_err();
        are_right(&mut [&mut one, &mut other]).await;
    }
}
