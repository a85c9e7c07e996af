//! SRV records name the servers: those that come are taken, those that go are given up, and no answer changes
//! nothing.

use std::net::UdpSocket;
use std::sync::{Arc, Mutex};
use std::thread;

use e2e::{Setup, eventually};
use sandbox::{PASSWORD, Sandbox, USER};

use crate::cluster::{self, ask};

const NAME: &str = "_mysql._tcp.db.example";

/// A name server that knows one name. It falls silent when it is told to name nobody.
struct NameServer {
    address: String,
    ports: Arc<Mutex<Vec<u16>>>,
}

impl NameServer {
    fn start(ports: &[u16]) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap().to_string();
        let ports = Arc::new(Mutex::new(ports.to_vec()));
        let named = Arc::clone(&ports);
        thread::spawn(move || {
            let mut question = [0; 512];
            while let Ok((length, client)) = socket.recv_from(&mut question) {
                let ports = named.lock().unwrap().clone();
                if !ports.is_empty() {
                    socket
                        .send_to(&answer(&question[..length], &ports), client)
                        .unwrap();
                }
            }
        });
        Self { address, ports }
    }

    fn name(&self, ports: &[u16]) {
        *self.ports.lock().unwrap() = ports.to_vec();
    }
}

/// `localhost` with each of the ports (RFC 1035, 4.1; RFC 2782).
fn answer(question: &[u8], ports: &[u16]) -> Vec<u8> {
    let mut out = question[..2].to_vec();
    out.extend([0x81, 0x80, 0, 1, 0, ports.len() as u8, 0, 0, 0, 0]);
    out.extend(&question[12..]);
    for port in ports {
        let host = b"\x09localhost\x00";
        // The name of the question, SRV, IN, for a second.
        out.extend([0xc0, 12, 0, 33, 0, 1, 0, 0, 0, 1, 0, 6 + host.len() as u8]);
        // Priority, weight.
        out.extend([0, 1, 0, 1]);
        out.extend(port.to_be_bytes());
        out.extend(host);
    }
    out
}

fn setup(sandbox: &Sandbox, dns: &NameServer) -> Setup {
    let monitor = cluster::monitor().replace(" }", ", discover = false }");
    Setup::of_addresses(sandbox.addresses())
        .servers([])
        .mode("split")
        .tables(&cluster::user(USER, PASSWORD))
        .cluster(&format!(
            "topology = \"replication\"\n{monitor}\ndns_interval = \"1s\"\nsrv = {{ name = {NAME:?}, server = {:?} }}",
            dns.address
        ))
        .check(cluster::PATIENT_CHECKS)
}

#[tokio::test]
async fn and_come_and_go_with_it() {
    let sandbox = cluster::replicated();
    let [primary, first, second] = [0, 1, 2].map(|at| sandbox.node(at).port());
    let dns = NameServer::start(&[primary, first]);
    let mut gateway = setup(&sandbox, &dns).start_unready();
    cluster::knows(&gateway, 1).await;
    let mut session = cluster::connect(&gateway).await;
    assert_eq!(cluster::where_am_i(&mut session).await, first);

    dns.name(&[primary, first, second]);
    cluster::knows(&gateway, 2).await;
    dns.name(&[second, primary]);
    cluster::knows(&gateway, 1).await;
    eventually("reads go to the one that is left", async || {
        cluster::where_am_i(&mut session).await == second
    })
    .await;

    // It says nothing any more; what it has said stays, through a reload as well.
    dns.name(&[]);
    eventually("the gateway notices", async || {
        gateway.log().contains("SRV records cannot be looked up")
    })
    .await;
    let taken = gateway
        .reload(setup(&sandbox, &dns).cluster("max_lag = \"9s\""))
        .await;
    assert!(taken);
    cluster::knows(&gateway, 1).await;
    assert_eq!(
        ask(&mut session, "SELECT 1 FOR UPDATE").await,
        Ok(Some("1".to_owned()))
    );
}
