use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use e2e::{Gateway, PATIENCE, Setup, eventually};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, netlink, recv, send, socket};

/// The congestion control of the socket on this machine that is connected from one port to another, by the
/// kernel's own account (sock_diag(7), as `ss -i` asks it).
fn congestion(from: u16, to: u16) -> Option<String> {
    const DUMP_BY_FAMILY: [u8; 2] = 20u16.to_ne_bytes();
    const REQUEST_DUMP: [u8; 2] = 0x301u16.to_ne_bytes();
    const INET_DIAG_CONG: u16 = 4;
    // nlmsghdr, then inet_diag_req_v2: IPv4, TCP, the one attribute, established; then the ports, and no
    // other wish.
    let head = [&72u32.to_ne_bytes()[..], &DUMP_BY_FAMILY, &REQUEST_DUMP, &[0; 8]].concat();
    let wanted = [
        &[2, 6, 1 << (INET_DIAG_CONG - 1), 0][..],
        &(1u32 << 1).to_ne_bytes(),
    ]
    .concat();
    let ports = [from.to_be_bytes(), to.to_be_bytes()].concat();
    let request = [&head[..], &wanted, &ports, &[0; 44]].concat();
    let kernel = socket(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        Some(netlink::SOCK_DIAG),
    )
    .unwrap();
    send(&kernel, &request, SendFlags::empty()).unwrap();

    let half = |bytes: &[u8], at: usize| usize::from(u16::from_ne_bytes([bytes[at], bytes[at + 1]]));
    loop {
        let mut answer = vec![0; 1 << 16];
        let (length, _) = recv(&kernel, &mut answer[..], RecvFlags::empty()).unwrap();
        let mut messages = &answer[..length];
        while messages.len() >= 16 {
            let whole = half(messages, 0);
            // Not a socket: the end, or an error.
            if half(messages, 4) != 20 {
                return None;
            }
            // nlmsghdr and inet_diag_msg, in which the ports stand at 4; then attributes, each with length
            // and type.
            if messages[20..24] == ports {
                let mut attributes = &messages[88..whole];
                while attributes.len() > 4 {
                    let length = half(attributes, 0);
                    if half(attributes, 2) == usize::from(INET_DIAG_CONG) {
                        let name = attributes[4..length].split(|byte| *byte == 0).next().unwrap();
                        return Some(String::from_utf8(name.to_vec()).unwrap());
                    }
                    attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
                }
            }
            messages = messages.get(whole.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// A session, and the connection to the server that is its own.
struct Pair {
    client: TcpStream,
    server: TcpStream,
}

impl Pair {
    fn new(gateway: &Gateway, servers: &TcpListener) -> Self {
        let mut client = TcpStream::connect(gateway.address()).unwrap();
        client.write_all(b"hello").unwrap();
        loop {
            let (mut server, _) = servers.accept().unwrap();
            server.set_read_timeout(Some(PATIENCE)).unwrap();
            // A check says nothing.
            if server.read_exact(&mut [0; 5]).is_ok() {
                return Self { client, server };
            }
        }
    }

    /// Those of the gateway's sockets: the client's and the server's.
    fn congestion(&self) -> [String; 2] {
        let port = |address: std::io::Result<std::net::SocketAddr>| address.unwrap().port();
        let [ours, theirs] =
            [&self.client, &self.server].map(|socket| (port(socket.local_addr()), port(socket.peer_addr())));
        [ours, theirs].map(|(ours, theirs)| congestion(theirs, ours).unwrap())
    }
}

#[tokio::test]
async fn by_name_by_the_system_or_by_how_far_they_go() {
    let servers = TcpListener::bind("127.0.0.1:0").unwrap();
    let setup = |value: &str| {
        let option = format!("congestion = {value:?}");
        Setup::of_addresses([servers.local_addr().unwrap().to_string()])
            .mode("tcp")
            .check("kind = \"tcp\"\ninterval = \"1h\"")
            .listener(&option)
            .cluster(&option)
    };
    let system = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
    let system = system.trim();
    // Every kernel has this one, and every process may set it.
    let mut gateway = setup("reno").start();
    let before = Pair::new(&gateway, &servers);
    assert_eq!(before.congestion(), ["reno"; 2]);

    assert!(gateway.reload(setup("system")).await, "{}", gateway.log());
    let is = async |name: &str| Pair::new(&gateway, &servers).congestion() == [name; 2];
    eventually("new connections have the system's", async || is(system).await).await;

    // The default: all of this is on the loopback interface.
    assert!(gateway.reload(setup("auto")).await, "{}", gateway.log());
    let unpaced = if system.starts_with("bbr") { "reno" } else { system };
    let is = async |name: &str| Pair::new(&gateway, &servers).congestion() == [name; 2];
    eventually("new connections have what costs least", async || {
        is(unpaced).await
    })
    .await;
    assert_eq!(before.congestion(), ["reno"; 2], "a session keeps what it has");
}
