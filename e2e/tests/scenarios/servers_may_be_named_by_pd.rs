//! PD's etcd, a real one, names the servers, which play TiDB's: those that live are taken, those whose lease
//! ends are given up, and what PD does not say changes nothing. Their status ports say when they end.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;

use e2e::{Gateway, Setup, client, eventually, servers};
use mysql_async::prelude::Queryable;
use sandbox::Etcd;

fn setup(pd: &str) -> Setup {
    Setup::of_addresses([]).cluster(&format!("topology = \"tidb\"\npd = {pd}"))
}

fn in_front_of(etcd: &Etcd) -> Setup {
    setup(&format!("[{:?}]", etcd.address()))
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
async fn and_come_and_go_with_it() {
    let servers = servers(2);
    let (first, second) = (servers[0].primary(), servers[1].primary());
    let mut etcd = Etcd::start().unwrap();
    assert!(etcd.register_tidb(&first.address(), "{\"status_port\":1}"));
    let mut gateway = in_front_of(&etcd).start_unready();
    knows(&gateway, 1).await;
    let mut session = client::connect(&gateway).await;
    assert_eq!(gateway.metric("forebay_pd_answers", &["main"]), 1.0);

    assert!(etcd.register_tidb(&second.address(), "{}"));
    knows(&gateway, 2).await;
    eventually("the added server gets sessions", async || {
        port_of_a_session(&gateway).await == second.port()
    })
    .await;
    assert!(etcd.expire_tidb(&first.address()));
    knows(&gateway, 1).await;
    eventually("the session of the server that is gone ends", async || {
        session.query_drop("SELECT 1").await.is_err()
    })
    .await;

    // PD is gone; what it has said stays, through a reload as well.
    etcd.stop();
    let told = "PD cannot be asked";
    eventually("the gateway notices", async || gateway.log().contains(told)).await;
    assert_eq!(gateway.metric("forebay_pd_answers", &["main"]), 0.0);
    assert!(
        gateway
            .reload(in_front_of(&etcd).cluster("drain_timeout = \"9s\""))
            .await
    );
    assert_eq!(port_of_a_session(&gateway).await, second.port());
    // PD is back, and the gateway knows what has happened since.
    etcd.go_on().unwrap();
    assert!(etcd.register_tidb(&first.address(), "{}"));
    knows(&gateway, 2).await;
    assert_eq!(gateway.metric("forebay_pd_answers", &["main"]), 1.0);
    // Nobody lives any more, as far as PD knows: that is not believed.
    assert!(etcd.expire_tidb(&first.address()) && etcd.expire_tidb(&second.address()));
    eventually("the gateway says so", async || {
        gateway.metric("forebay_pd_answers", &["main"]) == 0.0
    })
    .await;
    port_of_a_session(&gateway).await;
}

#[tokio::test]
async fn whenever_pd_comes() {
    let servers = servers(1);
    let mut etcd = Etcd::start().unwrap();
    assert!(etcd.register_tidb(&servers[0].primary().address(), "{}"));
    etcd.stop();
    let gateway = in_front_of(&etcd).start_unready();
    let told = "PD cannot be asked";
    eventually("the gateway says so", async || gateway.log().contains(told)).await;
    assert_eq!(gateway.get("/readyz").0, 503);
    etcd.go_on().unwrap();
    knows(&gateway, 1).await;
    port_of_a_session(&gateway).await;
    assert_eq!(gateway.get("/readyz").0, 200);
}

#[tokio::test]
async fn over_tls_and_by_whichever_member_answers() {
    let servers = servers(1);
    let etcd = Etcd::start().unwrap();
    assert!(etcd.register_tidb(&servers[0].primary().address(), "{}"));
    let nobody = format!("127.0.0.1:{}", sandbox::free_port().unwrap());
    let of_etcd = |ca: &std::path::Path| {
        format!(
            "{{ addresses = [{nobody:?}, {:?}], tls = {{ mode = \"required\", ca = {ca:?} }} }}",
            etcd.tls_address()
        )
    };
    let gateway = setup(&of_etcd(&etcd.certificates().ca)).start_unready();
    knows(&gateway, 1).await;
    // Another CA than the one that has signed PD's certificate.
    let others = tempfile::tempdir().unwrap();
    let others = sandbox::Certificates::make(others.path())
        .map(|made| (made, others))
        .unwrap();
    let gateway = setup(&of_etcd(&others.0.ca)).start_unready();
    eventually("it is not trusted", async || {
        gateway.log().contains("PD cannot be asked")
    })
    .await;
    assert_eq!(gateway.servers_up(), 0);
}

/// A status port that answers with a status that can be changed.
struct StatusPort {
    port: u16,
    status: Arc<AtomicU16>,
}

impl StatusPort {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let status = Arc::new(AtomicU16::new(200));
        let now = Arc::clone(&status);
        thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                let mut request = [0; 1024];
                let length = client.read(&mut request).unwrap_or(0);
                // A gateway that has not been answered in time has gone without a word.
                if length == 0 {
                    continue;
                }
                assert!(request[..length].starts_with(b"GET /status HTTP/1.1\r\n"));
                let status = now.load(Ordering::SeqCst);
                let _ = write!(client, "HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\n{{}}");
            }
        });
        Self { port, status }
    }
}

#[tokio::test]
async fn who_is_about_to_end_is_left() {
    let servers = servers(2);
    let (first, second) = (servers[0].primary(), servers[1].primary());
    let status = StatusPort::start();
    let etcd = Etcd::start().unwrap();
    let info = format!(
        "{{\"status_port\":{},\"labels\":{{\"zone\":\"east\"}}}}",
        status.port
    );
    assert!(etcd.register_tidb(&first.address(), &info) && etcd.register_tidb(&second.address(), "{}"));
    let gateway = in_front_of(&etcd).start_unready();
    knows(&gateway, 2).await;
    let draining = || gateway.metric("forebay_server_draining", &["main", &first.address()]);
    assert_eq!(draining(), 0.0);
    status.status.store(500, Ordering::SeqCst);
    eventually("it drains", async || draining() == 1.0).await;
    eventually("the log says why", async || {
        gateway.log().contains("is about to end, by its status port")
    })
    .await;
    for _ in 0..4 {
        assert_eq!(port_of_a_session(&gateway).await, second.port());
    }
    status.status.store(200, Ordering::SeqCst);
    eventually("it takes sessions again", async || draining() == 0.0).await;
    eventually("and gets some", async || {
        port_of_a_session(&gateway).await == first.port()
    })
    .await;
}

#[tokio::test]
async fn those_of_the_own_zone_come_first() {
    let servers = servers(2);
    let (near, far) = (servers[0].primary(), servers[1].primary());
    let etcd = Etcd::start().unwrap();
    let info = |zone: &str| format!("{{\"labels\":{{\"zone\":{zone:?}}}}}");
    assert!(etcd.register_tidb(&near.address(), &info("east")));
    assert!(etcd.register_tidb(&far.address(), &info("west")));
    let by_location = |setup: Setup| {
        setup
            .top("zone = \"east\"")
            .tables("[cluster.main.rebalance]\npolicy = \"location\"")
    };
    let gateway = by_location(in_front_of(&etcd)).start_unready();
    knows(&gateway, 2).await;
    let all_go_to = async |port: u16| {
        let mut sessions = Vec::new();
        for _ in 0..4 {
            let mut session = client::connect(&gateway).await;
            if client::server_port(&mut session).await != port {
                return false;
            }
            sessions.push(session);
        }
        true
    };
    eventually("sessions stay near", async || all_go_to(near.port()).await).await;
    // The labels of a server may be changed.
    assert!(etcd.register_tidb(&near.address(), &info("north")));
    assert!(etcd.register_tidb(&far.address(), &info("east")));
    eventually("they follow", async || all_go_to(far.port()).await).await;
}
