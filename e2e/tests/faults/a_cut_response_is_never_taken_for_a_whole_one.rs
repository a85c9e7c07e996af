use e2e::link::Link;
use e2e::raw::{CAPABILITIES, CREATE_GUEST, Raw};
use e2e::{Setup, servers};
use mysql_wire::{Capabilities, ErrPacket, OkPacket, PacketHeader};
use testkit::lossy_link::Fault;

use crate::bank::{self, Load};
use crate::frames;
use crate::{CHECK, scaled};

const ROWS: usize = 40;
const NOBODY_KNOWS: &str = "during a command; it is not known whether it was executed";
const QUERY: &str = "WITH RECURSIVE r AS (SELECT 1 n UNION ALL SELECT n + 1 FROM r WHERE n < 40) \
    SELECT n, REPEAT('x', 50) FROM r";

/// All packets of a response with their headers.
async fn whole_response(raw: &mut Raw) -> Vec<Vec<u8>> {
    raw.query(QUERY).await.unwrap();
    let mut packets = Vec::new();
    loop {
        let (sequence, payload) = raw.packet().await.unwrap();
        packets.push(e2e::raw::packet(sequence, &payload));
        // One ends the columns where the end of a result is an EOF packet.
        if packets.len() > 4 && payload[0] == OkPacket::HEADER_AS_EOF {
            return packets;
        }
    }
}

/// Asks, while the link lets `bytes` more through, and returns all that came until the end.
async fn cut_response(link: &Link, raw: &mut Raw, bytes: usize) -> Vec<u8> {
    // The question must be there before the end: a server that ends between two statements owes no error.
    let fault = match bytes {
        0 => Fault::CutNext,
        bytes => Fault::CutAfter(bytes as u64),
    };
    link.set_to_client(fault);
    raw.query(QUERY).await.unwrap();
    let got = raw.take_to_end().await;
    link.set_to_client(Fault::None);
    got
}

/// `got` must be a beginning of the response, and then nothing, or between two packets an error. Returns its
/// words.
fn error_after(got: &[u8], whole: &[Vec<u8>], cut: usize) -> Option<String> {
    let mut rest = got;
    for (number, packet) in whole.iter().enumerate() {
        if let Some(after) = rest.strip_prefix(packet.as_slice()) {
            rest = after;
            continue;
        }
        if packet.starts_with(rest) {
            return None; // it ends here, perhaps inside of the packet
        }
        let header = PacketHeader::parse(rest).unwrap();
        assert_eq!(
            usize::from(header.sequence),
            number + 1,
            "cut after {cut} bytes: {header:?}"
        );
        assert_eq!(
            header.payload_len,
            rest.len() - PacketHeader::LEN,
            "the last packet"
        );
        let error = ErrPacket::decode(&rest[PacketHeader::LEN..], CAPABILITIES).unwrap();
        assert_eq!(error.code, 1158, "cut after {cut} bytes");
        return Some(String::from_utf8(error.message).unwrap());
    }
    panic!("cut after {cut} bytes, and yet the client has the whole response");
}

#[tokio::test]
async fn wherever_it_is_cut() {
    cut_everywhere(CAPABILITIES, 1 + 2).await;
}

#[tokio::test]
async fn wherever_it_is_cut_if_it_has_eof_packets() {
    cut_everywhere(CAPABILITIES.without(Capabilities::DEPRECATE_EOF), 1 + 2 + 1).await;
}

/// `before_rows` is the number of packets before the first row.
async fn cut_everywhere(capabilities: Capabilities, before_rows: usize) {
    let servers = servers(1);
    servers[0].primary().sql(CREATE_GUEST).unwrap();
    let link = Link::to(&servers[0]);
    // The checks connect and say nothing: the link has nothing to cut there.
    let check = "kind = \"tcp\"\ninterval = \"500ms\"\ntimeout = \"5s\"";
    let gateway = Setup::of_addresses([link.address().to_string()])
        .check(check)
        .start();
    let log_in = async || Raw::log_in_with(gateway.port(), capabilities).await.unwrap();
    let whole = whole_response(&mut log_in().await).await;
    assert_eq!(whole.len(), before_rows + ROWS + 1);

    let mut end = 0;
    for (number, packet) in whole.iter().enumerate() {
        // Before each packet, and inside of some: in the header, after its first byte, before its last one.
        let inside = [1, 3, 4, 5, packet.len() - 1];
        let inside = if number % 7 < 2 || number + 1 == whole.len() {
            &inside[..]
        } else {
            &[]
        };
        for at in [0].iter().chain(inside) {
            let cut = end + at;
            let mut raw = log_in().await;
            let got = cut_response(&link, &mut raw, cut).await;
            let error = error_after(&got, &whole, cut);
            // The protocol has a place for an error in front of a response, and of a row.
            if *at == 0 && (number == 0 || number >= before_rows) {
                let words = error.unwrap_or_else(|| panic!("no error after {cut} bytes, {number} packets"));
                let lost = "Lost connection to MySQL server: lost connection to server ";
                assert!(words.starts_with(lost), "{words}");
                assert!(words.ends_with(NOBODY_KNOWS), "{words}");
            }
        }
        end += packet.len();
    }
}

/// The numbers of frames go on to the error, whoever goes on after it.
#[tokio::test]
async fn nor_by_a_client_that_compresses() {
    let servers = servers(1);
    servers[0].primary().sql(CREATE_GUEST).unwrap();
    let link = Link::to(&servers[0]);
    let address = link.address().to_string();
    let split = Setup::of_addresses([])
        .servers([format!(
            "{{ address = {address:?}, role = \"primary\", max_connections = 1 }}"
        )])
        .tables("[[user]]\nname = \"guest\"\npassword = \"\"");
    for (mode, setup) in [("session", Setup::of_addresses([address])), ("split", split)] {
        let check = "kind = \"tcp\"\ninterval = \"500ms\"\ntimeout = \"5s\"";
        let gateway = setup.mode(mode).check(check).start();
        let whole = whole_response(&mut Raw::log_in(gateway.port()).await.unwrap()).await;
        let compressing = CAPABILITIES.with(Capabilities::COMPRESS);
        let mut raw = Raw::log_in_with(gateway.port(), compressing).await.unwrap();
        raw.send_bytes(&frames::query_in_frame("DO 1")).await.unwrap();
        frames::answers(&mut raw, |_| true).await;

        let rows = &whole[..whole.len() / 2];
        let cut: usize = rows.iter().map(Vec::len).sum();
        link.set_to_client(Fault::CutAfter(cut as u64));
        raw.send_bytes(&frames::query_in_frame(QUERY)).await.unwrap();
        let is_error = |packet: &frames::Framed| packet.payload[0] == ErrPacket::HEADER;
        let answer = frames::answers(&mut raw, is_error).await;
        link.set_to_client(Fault::None);
        assert_eq!(answer.len(), rows.len() + 1, "{mode}");
        let [.., row, refused] = answer.as_slice() else {
            panic!("{answer:?}");
        };
        assert_eq!(refused.frame, row.frame + 1, "{mode}: the next frame");
        let error = ErrPacket::decode(&refused.payload, CAPABILITIES).unwrap();
        assert_eq!(error.code, 1158, "{mode}");
    }
}

#[tokio::test]
async fn under_load() {
    let servers = servers(2);
    bank::prepare(&servers);
    let link = Link::to(&servers[0]);
    let (victim, other) = (servers[0].primary(), servers[1].primary());
    let gateway = Setup::of_addresses([link.address().to_string(), other.address()])
        .check(CHECK)
        .start();
    let load = Load::start(&gateway, 8);
    for round in 0..scaled(6) {
        load.goes_on(&[victim, other], 15).await;
        let seen = load.failures().len();
        link.set_to_client(Fault::CutAfter(1000 + 7919 * round as u64 % 60_000));
        load.has_failed(seen + 2).await;
        link.set_to_client(Fault::None);
    }
    load.goes_on(&[victim, other], 15).await;
    let failures = load.end(&servers).await;
    // Most cuts are inside of a row, where there is no place for an error packet.
    bank::assert_only_on(victim, &failures);
}
