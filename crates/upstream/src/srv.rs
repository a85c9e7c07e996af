//! Servers that DNS names: SRV records (RFC 2782), asked for again and again.
//!
//! The system's resolver has no way to ask for them, so the question goes to a name server itself: the one of
//! the option, or those of `/etc/resolv.conf`. Over UDP, and over TCP where the answer does not fit. The
//! hosts that are named are looked up as those of the configuration are.
//!
//! An answer counts as a whole: whoever is in it is a server, with its weight, and a backup unless its
//! priority is the first; whoever is not is none any more. No answer changes nothing.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use config::ServerAddress;
use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, sleep_until, timeout};

use crate::cluster::Cluster;

/// Who names the servers, for the log.
const NAMED_BY: &str = "SRV records";

/// Time for a name server to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// How soon a lookup that failed is made again, where `dns_interval` is not sooner.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Servers of one answer; further ones are left out.
const SERVERS_MAX: usize = 256;

/// Name servers that are asked, one after the other, until one answers.
const NAME_SERVERS_MAX: usize = 3;

const DNS_PORT: u16 = 53;

/// One server of an answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Record {
    priority: u16,
    host: String,
    port: u16,
    weight: u16,
}

/// Looks until the future is dropped.
pub(crate) async fn watch(cluster: Arc<Cluster>) {
    let mut failing = None;
    loop {
        let config = cluster.config();
        let Some(srv) = &config.srv else {
            if !config.looks_up_servers() {
                cluster.take_named(&[], NAMED_BY);
            }
            cluster.srv_changed.notified().await;
            continue;
        };
        let begun = Instant::now();
        let found = look_up(srv).await;
        let interval = match &found {
            Ok(records) => {
                cluster.take_named(&servers(records, srv), NAMED_BY);
                config.dns_interval
            }
            Err(_) => config.dns_interval.min(RETRY_AFTER),
        };
        let reason = found.err().map(|error| error.to_string());
        if reason != failing {
            let (cluster, name) = (cluster.name(), &srv.name);
            match &reason {
                Some(reason) => tracing::warn!(cluster, name, reason, "SRV records cannot be looked up"),
                None => tracing::info!(cluster, name, "SRV records can be looked up"),
            }
            failing = reason;
        }
        tokio::select! {
            () = sleep_until(begun + interval) => {}
            () = cluster.srv_changed.notified() => {}
        }
    }
}

/// What the configuration would say of the servers of an answer.
fn servers(records: &[Record], srv: &config::Srv) -> Vec<config::Server> {
    let first = records.iter().map(|record| record.priority).min();
    let server = |record: &Record| config::Server {
        // Of weight 0 are those that are hardly to be chosen, or all where weights play no part.
        weight: u32::from(record.weight.max(1)),
        backup: Some(record.priority) != first,
        max_connections: srv.max_connections,
        ..config::Server::new(ServerAddress::Host {
            host: record.host.clone(),
            port: record.port,
        })
    };
    let mut servers: Vec<config::Server> = Vec::new();
    for server in records.iter().take(SERVERS_MAX).map(server) {
        if servers.iter().all(|other| other.address != server.address) {
            servers.push(server);
        }
    }
    servers
}

async fn look_up(srv: &config::Srv) -> io::Result<Vec<Record>> {
    let name_servers = match &srv.server {
        Some(server) => vec![server.parse().map_err(io::Error::other)?],
        // A short file, once an interval, on the control thread.
        None => name_servers(&std::fs::read_to_string("/etc/resolv.conf")?),
    };
    let mut failed = io::Error::other("/etc/resolv.conf names no name server");
    for server in name_servers.into_iter().take(NAME_SERVERS_MAX) {
        let asked = timeout(ANSWER_LIMIT, ask(server, &srv.name)).await;
        match asked.unwrap_or_else(|late| Err(late.into())) {
            Ok(records) => return Ok(records),
            Err(error) => failed = io::Error::other(format!("name server {server}: {error}")),
        }
    }
    Err(failed)
}

/// `nameserver` lines (resolv.conf(5)).
fn name_servers(text: &str) -> Vec<SocketAddr> {
    let address = |line: &str| {
        let mut words = line.split_whitespace();
        let ip = words
            .next()
            .filter(|word| *word == "nameserver")
            .and(words.next())?;
        ip.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, DNS_PORT))
    };
    text.lines().filter_map(address).collect()
}

async fn ask(server: SocketAddr, name: &str) -> io::Result<Vec<Record>> {
    let mut id = [0; 2];
    aws_lc_rs::rand::fill(&mut id).map_err(io::Error::other)?;
    let id = u16::from_ne_bytes(id);
    let question = question(id, name).map_err(io::Error::other)?;
    let own: SocketAddr = match server {
        SocketAddr::V4(_) => ([0; 4], 0).into(),
        SocketAddr::V6(_) => ([0; 16], 0).into(),
    };
    let socket = UdpSocket::bind(own).await?;
    socket.connect(server).await?;
    socket.send(&question).await?;
    let mut answer = vec![0; usize::from(u16::MAX)];
    loop {
        let length = socket.recv(&mut answer).await?;
        match read(&answer[..length], id, name)? {
            DnsAnswer::Records(records) => return Ok(records),
            DnsAnswer::Truncated => break,
            // Late, or somebody else's.
            DnsAnswer::ToAnother => {}
        }
    }
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    stream
        .write_all(&[&length.to_be_bytes()[..], &question].concat())
        .await?;
    answer.resize(usize::from(stream.read_u16().await?), 0);
    stream.read_exact(&mut answer).await?;
    match read(&answer, id, name)? {
        DnsAnswer::Records(records) => Ok(records),
        DnsAnswer::Truncated | DnsAnswer::ToAnother => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn question(id: u16, name: &str) -> Result<Vec<u8>, simple_dns::SimpleDnsError> {
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    packet.questions.push(Question::new(
        Name::new(name.trim_end_matches('.'))?,
        QTYPE::TYPE(TYPE::SRV),
        QCLASS::CLASS(CLASS::IN),
        false,
    ));
    packet.build_bytes_vec()
}

#[derive(Debug, PartialEq, Eq)]
enum DnsAnswer {
    /// In the order of their priority.
    Records(Vec<Record>),
    Truncated,
    ToAnother,
}

fn read(bytes: &[u8], id: u16, name: &str) -> io::Result<DnsAnswer> {
    let Ok(packet) = Packet::parse(bytes) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "its answer cannot be read",
        ));
    };
    let is_asked = |question: &Question<'_>| {
        question
            .qname
            .to_string()
            .eq_ignore_ascii_case(name.trim_end_matches('.'))
    };
    if packet.id() != id || !packet.has_flags(PacketFlag::RESPONSE) || !packet.questions.iter().all(is_asked)
    {
        return Ok(DnsAnswer::ToAnother);
    }
    if packet.has_flags(PacketFlag::TRUNCATION) {
        return Ok(DnsAnswer::Truncated);
    }
    if packet.rcode() != RCODE::NoError {
        return Err(io::Error::other(format!("{name}: {:?}", packet.rcode())));
    }
    let record = |rdata: &RData<'_>| match rdata {
        RData::SRV(srv) => Some(Record {
            priority: srv.priority,
            host: srv.target.to_string(),
            port: srv.port,
            weight: srv.weight,
        }),
        _ => None,
    };
    let mut records: Vec<Record> = (packet.answers.iter())
        .filter_map(|answer| record(&answer.rdata))
        .collect();
    // A single dot says that there is no such service.
    records.retain(|record| !record.host.is_empty() && record.host != "." && record.port != 0);
    if records.is_empty() {
        return Err(io::Error::other(format!("{name} has no SRV records")));
    }
    records.sort();
    Ok(DnsAnswer::Records(records))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use simple_dns::ResourceRecord;
    use simple_dns::rdata::SRV;
    use tokio::net::TcpListener;

    use super::*;

    const NAME: &str = "_mysql._tcp.db.example.com";

    fn answer(id: u16, records: &[(u16, u16, u16, &str)], flags: PacketFlag) -> Vec<u8> {
        let asked = question(id, NAME).unwrap();
        let mut packet = Packet::parse(&asked).unwrap().into_reply();
        packet.set_flags(flags);
        for (priority, weight, port, host) in records {
            let srv = SRV {
                priority: *priority,
                weight: *weight,
                port: *port,
                target: Name::new_unchecked(host),
            };
            let record = ResourceRecord::new(Name::new_unchecked(NAME), CLASS::IN, 1, RData::SRV(srv));
            packet.answers.push(record);
        }
        packet.build_bytes_vec().unwrap()
    }

    fn answered(bytes: &[u8]) -> Vec<Record> {
        match read(bytes, 7, NAME).unwrap() {
            DnsAnswer::Records(records) => records,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_answer_is_a_list_of_servers() {
        let bytes = answer(
            7,
            &[
                (20, 0, 3306, "db3.example.com"),
                (10, 5, 3307, "db2"),
                (10, 5, 3306, "db1"),
            ],
            PacketFlag::RESPONSE,
        );
        let srv = config::Srv {
            max_connections: 9,
            ..config::Srv::new(NAME)
        };
        let servers = servers(&answered(&bytes), &srv);
        let said: Vec<_> = (servers.iter())
            .map(|server| {
                (
                    server.name.as_str(),
                    server.weight,
                    server.backup,
                    server.max_connections,
                )
            })
            .collect();
        assert_eq!(
            said,
            [
                ("db1:3306", 5, false, 9),
                ("db2:3307", 5, false, 9),
                ("db3.example.com:3306", 1, true, 9)
            ]
        );
    }

    #[test]
    fn what_is_no_answer_changes_nothing() {
        let records = [(10, 5, 3306, "db1")];
        let ours = answer(7, &records, PacketFlag::RESPONSE);
        assert_eq!(read(&ours, 8, NAME).unwrap(), DnsAnswer::ToAnother);
        assert_eq!(read(&ours, 7, "_mysql._tcp.other").unwrap(), DnsAnswer::ToAnother);
        let cut = answer(7, &records, PacketFlag::RESPONSE | PacketFlag::TRUNCATION);
        assert_eq!(read(&cut, 7, NAME).unwrap(), DnsAnswer::Truncated);
        read(&answer(7, &[], PacketFlag::RESPONSE), 7, NAME).unwrap_err();
        read(&ours[..20], 7, NAME).unwrap_err();
    }

    #[test]
    fn name_servers_are_those_of_the_system() {
        let text = "# none\nsearch example.com\nnameserver 10.0.0.1\nnameserver  ::1 \nnameserver x\noptions ndots:1\n";
        let expected: [SocketAddr; 2] = ["10.0.0.1:53".parse().unwrap(), "[::1]:53".parse().unwrap()];
        assert_eq!(name_servers(text), expected);
    }

    /// The same port of both kinds, which somebody else may have one of.
    async fn one_port() -> (UdpSocket, TcpListener) {
        loop {
            let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()).await {
                return (udp, tcp);
            }
        }
    }

    /// A name server that cuts short what it says over UDP.
    #[tokio::test]
    async fn a_long_answer_comes_over_tcp() {
        let (udp, tcp) = one_port().await;
        let address = udp.local_addr().unwrap();
        let serve = async {
            let mut bytes = [0; 512];
            let (length, client) = udp.recv_from(&mut bytes).await.unwrap();
            let id = Packet::parse(&bytes[..length]).unwrap().id();
            udp.send_to(&answer(id.wrapping_add(1), &[], PacketFlag::RESPONSE), client)
                .await
                .unwrap();
            let cut = answer(id, &[], PacketFlag::RESPONSE | PacketFlag::TRUNCATION);
            udp.send_to(&cut, client).await.unwrap();
            let (mut stream, _) = tcp.accept().await.unwrap();
            let mut asked = vec![0; usize::from(stream.read_u16().await.unwrap())];
            stream.read_exact(&mut asked).await.unwrap();
            assert_eq!(asked, bytes[..length]);
            let whole = answer(id, &[(1, 1, 3306, "db1")], PacketFlag::RESPONSE);
            stream.write_u16(whole.len() as u16).await.unwrap();
            stream.write_all(&whole).await.unwrap();
            stream.flush().await.unwrap();
        };
        let (records, ()) = tokio::join!(ask(address, NAME), serve);
        assert_eq!(records.unwrap()[0].host, "db1");
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(mut bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0_usize..100, byte: u8) {
            let _ = read(&bytes, 7, NAME);
            bytes = answer(7, &[(20, 0, 3306, "db3.example.com")], PacketFlag::RESPONSE);
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = read(&bytes, 7, NAME);
        }
    }
}
