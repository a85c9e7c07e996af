use std::net::{Ipv4Addr, SocketAddr};
use std::thread;

use e2e::raw::{self, CAPABILITIES, CREATE_GUEST, GUEST, Raw};
use e2e::{Setup, client, eventually, kind, servers_with};
use mysql_async::Conn;
use mysql_wire::ChangeUser;
use sandbox::{Kind, USER};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Builder;

/// Loopback itself is never blocked; this address is any other host to a server.
const ANOTHER_HOST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Servers of this test refuse a host that gave up ten logins in a row: error 1129.
const MANY: usize = 25;
/// Logins that are given up at a time. The gateway waits a second for the server's refusal: where a busy
/// machine gives the server no turn for as long, fewer are broken off than block the host.
const AT_A_TIME: usize = 9;
/// More than block the host, all together.
const TIMES: usize = 2;

/// Relays to a server from another host, on a thread that ends with the process. Returns its address.
fn relay_to(server: &str) -> String {
    let server: SocketAddr = server.parse().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener).unwrap();
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let socket = TcpSocket::new_v4().unwrap();
                socket.bind(SocketAddr::from((ANOTHER_HOST, 0))).unwrap();
                let Ok(mut server) = socket.connect(server).await else {
                    continue;
                };
                // Its end is that of either side, in order or not.
                tokio::spawn(async move { copy_bidirectional(&mut client, &mut server).await });
            }
        });
    });
    address
}

/// How a client ends its login.
#[derive(Debug, Clone, Copy)]
enum End {
    /// It goes as soon as it has sent its login.
    Early,
    /// It goes when it is asked for its password.
    WhenAsked,
    /// It stays and says nothing.
    Silent,
    /// It answers with what is no answer to any plugin.
    Nonsense,
    /// It answers with that before it is asked.
    NonsenseEarly,
    /// It claims an answer that is too long to be one.
    TooLong,
}

/// A login of `user` that comes to nothing.
async fn give_up(port: u16, user: &str, end: End) {
    let mut raw = Raw::connect(port).await.unwrap();
    raw.packet().await.unwrap();
    let login = raw::packet(1, &raw::login_of(user, CAPABILITIES));
    let early = match end {
        End::NonsenseEarly => raw::packet(2, b"nonsense"),
        _ => Vec::new(),
    };
    raw.send_bytes(&[login, early].concat()).await.unwrap();
    match end {
        End::Early => {}
        End::WhenAsked => drop(raw.packet().await.unwrap()),
        End::Silent | End::NonsenseEarly => {
            raw.read_to_end("half a login").await;
        }
        End::Nonsense => {
            let (sequence, _) = raw.packet().await.unwrap();
            raw.send(sequence + 1, b"nonsense").await.unwrap();
            raw.read_to_end("a login with nonsense").await;
        }
        End::TooLong => {
            let (sequence, _) = raw.packet().await.unwrap();
            raw.send_bytes(&[0, 0, 8, sequence + 1]).await.unwrap();
            raw.read_to_end("a login that is too long").await;
        }
    }
}

async fn is_not_blocked_by(user: &str, ends: &[End]) {
    let servers = servers_with(1, &["--max-connect-errors=10"]);
    let server = servers[0].primary();
    server.sql(CREATE_GUEST).unwrap();
    if kind() == Kind::Mariadb {
        let create = "INSTALL SONAME 'auth_ed25519'; CREATE USER ed25519 IDENTIFIED VIA ed25519 USING PASSWORD('secret')";
        server.sql(create).unwrap();
    }
    let relay = relay_to(&server.address());
    // The login behind those that are given up is to be in time, on a busy machine as well.
    let gateway = Setup::of_addresses([relay])
        .listener("login_timeout = \"6s\"")
        .start();
    for end in ends {
        let port = gateway.port();
        for _ in 0..TIMES {
            let giving_up = (0..AT_A_TIME).map(|_| {
                let user = user.to_owned();
                let end = *end;
                tokio::spawn(async move { give_up(port, &user, end).await })
            });
            for login in giving_up.collect::<Vec<_>>() {
                login.await.unwrap();
            }
            eventually("they are all gone", async || {
                gateway.metric("forebay_sessions_active", &[]) == 0.0
            })
            .await;
        }
        let session = Conn::new(client::options(&gateway)).await;
        let session = session.unwrap_or_else(|error| panic!("after logins that ended {end:?}: {error}"));
        session.disconnect().await.unwrap();
    }
}

#[tokio::test]
async fn of_an_account_without_a_password() {
    is_not_blocked_by(
        GUEST,
        &[
            End::Early,
            End::WhenAsked,
            End::Silent,
            End::Nonsense,
            End::NonsenseEarly,
            End::TooLong,
        ],
    )
    .await;
}

#[tokio::test]
async fn of_an_account_with_a_password() {
    is_not_blocked_by(
        USER,
        &[
            End::Early,
            End::WhenAsked,
            End::Silent,
            End::Nonsense,
            End::NonsenseEarly,
            End::TooLong,
        ],
    )
    .await;
}

#[tokio::test]
async fn of_an_account_with_another_plugin() {
    // Another server does not know the account, and asks for a password all the same.
    is_not_blocked_by(
        "ed25519",
        &[
            End::Early,
            End::WhenAsked,
            End::Silent,
            End::Nonsense,
            End::NonsenseEarly,
            End::TooLong,
        ],
    )
    .await;
}

#[tokio::test]
async fn of_nobody() {
    is_not_blocked_by("", &[End::Early, End::WhenAsked]).await;
}

/// A login within a session is one, too.
#[tokio::test]
async fn of_clients_that_change_their_user() {
    let servers = servers_with(1, &["--max-connect-errors=10"]);
    let server = servers[0].primary();
    server.sql(CREATE_GUEST).unwrap();
    let gateway = Setup::of_addresses([relay_to(&server.address())]).start();
    let mut sessions = Vec::new();
    for _ in 0..MANY {
        sessions.push(Raw::log_in(gateway.port()).await.unwrap());
    }
    // No login in between: each that works would be a new beginning for the host.
    for session in &mut sessions {
        session.send(0, &change_user(USER)).await.unwrap();
        session.packet().await.unwrap();
    }
    while !sessions.is_empty() {
        sessions.truncate(sessions.len().saturating_sub(AT_A_TIME));
        eventually("they are gone", async || {
            gateway.metric("forebay_sessions_active", &[]) <= sessions.len() as f64
        })
        .await;
    }
    let session = Conn::new(client::options(&gateway)).await.unwrap();
    session.disconnect().await.unwrap();
}

fn change_user(user: &str) -> Vec<u8> {
    let mut payload = Vec::new();
    ChangeUser {
        user: user.into(),
        auth_response: Vec::new(),
        database: Vec::new(),
        charset: Some(45),
        auth_plugin: Some(b"mysql_native_password".to_vec()),
        attributes: None,
    }
    .encode(&mut payload, CAPABILITIES);
    payload
}

#[tokio::test]
async fn when_the_gateway_stops_in_the_middle_of_them() {
    let servers = servers_with(1, &["--max-connect-errors=10"]);
    let server = servers[0].primary();
    server.sql(CREATE_GUEST).unwrap();
    let mut gateway = Setup::of_addresses([relay_to(&server.address())]).start();
    let mut asked = Vec::new();
    for _ in 0..MANY {
        let mut raw = Raw::connect(gateway.port()).await.unwrap();
        raw.begin_login().await.unwrap();
        raw.packet().await.unwrap();
        asked.push(raw);
    }
    gateway.terminate();
    assert!(gateway.exit().await.success(), "{}", gateway.log());
    gateway.restart().await;
    let session = Conn::new(client::options(&gateway)).await.unwrap();
    session.disconnect().await.unwrap();
}

#[tokio::test]
async fn on_a_server_that_cannot_do_what_the_configuration_asks_for() {
    let without_tls = match kind() {
        Kind::Mariadb => "--skip-ssl",
        _ => "--tls-version=",
    };
    let servers = servers_with(1, &["--max-connect-errors=10", without_tls]);
    let setup = Setup::of_addresses([relay_to(&servers[0].primary().address())]);
    let mut gateway = setup.clone().cluster_tls("mode = \"required\"").start();
    for _ in 0..MANY {
        let error = Conn::new(client::options(&gateway)).await.unwrap_err();
        assert_eq!(client::code(&error), 1429, "{error}");
    }
    assert!(gateway.reload(setup).await, "{}", gateway.log());
    let session = Conn::new(client::options(&gateway)).await.unwrap();
    session.disconnect().await.unwrap();
}

/// Nor do those that end with the server's certificate, which nobody here has signed.
#[tokio::test]
async fn to_a_server_that_is_not_trusted() {
    let servers = servers_with(2, &["--max-connect-errors=10"]);
    let relay = relay_to(&servers[0].primary().address());
    let setup = |authority: usize| {
        let ca = servers[authority].ca_file().display().to_string();
        Setup::of_addresses([relay.clone()])
            .cluster_tls(&format!("mode = \"required\"\nca = {ca:?}\nverify = \"ca\""))
            .check("kind = \"tcp\"\ninterval = \"60s\"")
    };
    let aborted = || -> usize {
        let status = servers[0]
            .primary()
            .sql("SHOW GLOBAL STATUS LIKE 'Aborted_connects'");
        status
            .unwrap()
            .split_whitespace()
            .nth(1)
            .unwrap()
            .parse()
            .unwrap()
    };
    let before = aborted();
    let gateway = setup(1).start();
    for _ in 0..MANY {
        Conn::new(client::options(&gateway)).await.unwrap_err();
    }
    eventually("the log says that it is another one's", async || {
        gateway.log().contains("invalid peer certificate")
    })
    .await;
    // The server counts each when it has noticed its end.
    eventually("all have come to it", async || aborted() - before >= MANY).await;
    let gateway = setup(0).start();
    Conn::new(client::options(&gateway))
        .await
        .unwrap()
        .disconnect()
        .await
        .unwrap();
}
