//! What becomes of connections whose server moves.

use std::net::SocketAddr;

use config::ServerAddress;
use mysql_wire::{Capabilities, StatusFlags};

use super::arming::Arming;
use super::*;

#[tokio::test]
async fn connections_to_an_address_that_the_name_has_left_are_closed() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = listener.local_addr().unwrap();
    let elsewhere = SocketAddr::from(([127, 0, 0, 9], here.port()));
    let address = ServerAddress::Host {
        host: "db".to_owned(),
        port: here.port(),
    };
    let config = config::Cluster::new("main", vec![config::Server::new(address)]);
    let pool = Pool::new(Cluster::new(config).unwrap(), |_| ());
    let cluster = pool.cluster();
    let server = &cluster.servers()[0];
    server.addresses.note(&[here]);
    let key = Rc::new(Key {
        user: "u".into(),
        account: 0,
        capabilities: Capabilities::default(),
        collation: 45,
    });
    for _ in 0..2 {
        let opened = Rc::new(Opened {
            server: Arc::clone(server),
            key: Rc::clone(&key),
            capabilities: Capabilities::default(),
            thread_id: 1,
            login_began: Instant::now(),
            version: Vec::new(),
            status: StatusFlags::default(),
            baseline: Rc::default(),
            arming: Arming {
                tracked: Arc::new(Tracked::everything(b"")),
                config: cluster.config(),
            },
        });
        let origin = Origin {
            terms: 0,
            generation: server.generation(),
            peer: Some(here),
            moves: server.addresses.moves(),
        };
        let series = pool.with_idle(server, |idle_connections| Arc::clone(idle_connections.series()));
        let permit = Permit::take(cluster, server).unwrap();
        let stream = net::Stream::connect_tcp(here, Duration::ZERO).await.unwrap();
        let life = Life::new(series, permit, now(), origin);
        let parts = Parts {
            stream,
            state: (),
            opened,
            life,
        };
        pool.place(Idle(Box::new(parts)), now());
    }
    let lease = || pool.lease_at_once(server, &key, |()| 0);
    pool.give_back(lease().unwrap());
    let leased = lease().unwrap();
    server.addresses.note(&[here, elsewhere]);
    assert_eq!((pool.idle(), pool.busy()), (1, 1), "it is still there");
    assert!(!server.has_left(Some(here)));
    server.addresses.note(&[elsewhere]);
    server.addresses.note(&[SocketAddr::from(([127, 0, 0, 8], 1))]);
    assert!(server.has_left(Some(here)) && !server.has_left(None));
    assert!(lease().is_none());
    pool.give_back(leased);
    assert_eq!((pool.idle(), pool.busy(), server.sessions()), (0, 0, 0));
}

#[test]
fn those_opened_together_end_at_different_times() {
    let hour = Duration::from_secs(3600);
    let ends: std::collections::HashSet<_> = (0..101).map(|thread_id| lifetime(hour, thread_id)).collect();
    assert_eq!(ends.len(), 101);
    assert!(ends.iter().all(|end| (hour / 10 * 9..=hour).contains(end)));
    assert_eq!(lifetime(Duration::ZERO, 77), Duration::ZERO);
}
