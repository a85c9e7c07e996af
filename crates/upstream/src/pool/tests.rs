//! What becomes of connections whose server moves.

use std::net::SocketAddr;

use config::ServerAddress;
use mysql_wire::{Capabilities, StatusFlags};

use super::setup::Setup;
use super::*;

fn pool_of(server: SocketAddr, pool: config::Pool) -> Rc<Pool<()>> {
    let address = ServerAddress::Host {
        host: "db".to_owned(),
        port: server.port(),
    };
    let mut config = config::Cluster::new("main", vec![config::Server::new(address)]);
    config.pool = pool;
    Pool::new(Cluster::new(config).unwrap(), |_| ())
}

fn key() -> Rc<Key> {
    Rc::new(Key {
        user: "u".into(),
        account: 0,
        capabilities: Capabilities::default(),
        collation: 45,
    })
}

fn opened(cluster: &Cluster, key: &Rc<Key>, login_began: Instant) -> Rc<Opened> {
    Rc::new(Opened {
        server: Arc::clone(&cluster.servers()[0]),
        key: Rc::clone(key),
        capabilities: Capabilities::default(),
        thread_id: 1,
        login_began,
        version: Vec::new(),
        status: StatusFlags::default(),
        baseline: Rc::default(),
        setup: Setup {
            tracked: Arc::new(Tracked::everything(b"")),
            config: cluster.config(),
        },
    })
}

#[tokio::test]
async fn connections_to_an_address_that_the_name_has_left_are_closed() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = listener.local_addr().unwrap();
    let elsewhere = SocketAddr::from(([127, 0, 0, 9], here.port()));
    let (pool, key) = (pool_of(here, config::Pool::default()), key());
    let cluster = pool.cluster();
    let server = &cluster.servers()[0];
    server.addresses.note(&[here]);
    for _ in 0..2 {
        let opened = opened(cluster, &key, Instant::now());
        let origin = Origin {
            terms: 0,
            generation: server.generation(),
            peer: Some(here),
            moves: server.addresses.moves(),
        };
        let metrics = pool.with_idle(server, |idle_connections| Arc::clone(idle_connections.metrics()));
        let permit = Permit::take(cluster, server).unwrap();
        let stream = net::Stream::connect_tcp(here, Duration::ZERO).await.unwrap();
        let life = Life::new(metrics, permit, now(), origin);
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

#[tokio::test]
async fn one_that_another_process_has_opened_has_its_place_and_its_age() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = listener.local_addr().unwrap();
    let elsewhere = SocketAddr::from(([127, 0, 0, 9], here.port()));
    let (now, max_age) = (now(), Duration::from_secs(30));
    for (server_is, began, kept) in [
        (here, now, 1),
        (elsewhere, now, 0),
        (here, now.checked_sub(2 * max_age).unwrap(), 0),
    ] {
        let with_max_age = config::Pool {
            max_age,
            ..config::Pool::default()
        };
        let (pool, key) = (pool_of(here, with_max_age), key());
        let server = Arc::clone(&pool.cluster().servers()[0]);
        server.addresses.note(&[server_is]);
        let opened = opened(pool.cluster(), &key, began);
        let packed = PackedConnection::of(&opened);
        let stream = net::Stream::connect_tcp(here, Duration::ZERO).await.unwrap();
        let permit = Permit::take(pool.cluster(), &server).unwrap();
        pool.give_back(pool.unpack(stream, &key, packed, permit));
        assert_eq!(pool.idle(), kept, "{server_is} {:?}", began.elapsed());
    }
}

#[test]
fn those_opened_together_end_at_different_times() {
    let hour = Duration::from_secs(3600);
    let ends: std::collections::HashSet<_> = (0..101).map(|thread_id| lifetime(hour, thread_id)).collect();
    assert_eq!(ends.len(), 101);
    assert!(ends.iter().all(|end| (hour / 10 * 9..=hour).contains(end)));
    assert_eq!(lifetime(Duration::ZERO, 77), Duration::ZERO);
}
